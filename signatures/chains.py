"""Signatures of the programs that reason sentence by sentence: IRCoT and FLARE."""

from __future__ import annotations

import dspy


class NextSentence(dspy.Signature):
    """Reason towards the answer: write the next sentence, about one fact. Once the answer is known, write "So the
    answer is:" and the answer."""

    question: str = dspy.InputField()
    trajectory: str = dspy.InputField(desc="passages found, then the sentences so far")
    sentence: str = dspy.OutputField(desc="the next sentence of the reasoning")


class AnswerFromFound(dspy.Signature):
    """Answer the question from what was found, in the fewest words."""

    question: str = dspy.InputField()
    trajectory: str = dspy.InputField(desc="passages found, and the reasoning if there is any")
    answer: str = dspy.OutputField(desc="short answer to the question")


# The lines of the worked examples, which say what the instructions do (see CompactAdapter).
for _signature, _label in ((NextSentence, "Thought #:"), (AnswerFromFound, "Answer:")):
    _extra = next(iter(_signature.output_fields.values())).json_schema_extra
    _extra.update({"prefix": _label, "one_line": True, "implied_instruction": _signature.instructions})  # type: ignore[union-attr]
