"""Signatures of the programs that answer in one call."""

from __future__ import annotations

import dspy


class AnswerDirectly(dspy.Signature):
    """Answer the question in as few words as possible."""

    question: str = dspy.InputField()
    answer: str = dspy.OutputField()


class AnswerFromPassages(dspy.Signature):
    """Answer the question from the passages in as few words as possible."""

    passages: list[str] = dspy.InputField(desc="passages that may hold the answer, best first")
    question: str = dspy.InputField()
    answer: str = dspy.OutputField()


# Short answers: they end with their line (see CompactAdapter).
for _signature in (AnswerDirectly, AnswerFromPassages):
    _signature.output_fields["answer"].json_schema_extra["one_line"] = True  # type: ignore[index]
