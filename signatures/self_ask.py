"""Signatures of Self-Ask (Press et al. 2023), in its own words."""

from __future__ import annotations

import dspy


class FollowUp(dspy.Signature):
    """Are follow up questions needed here? Write `Yes. Follow up:` and a simple question, or `No.` if the question can
    be answered."""

    question: str = dspy.InputField()
    trajectory: str = dspy.InputField(desc="follow up questions and intermediate answers so far")
    follow_up: str = dspy.OutputField(desc="`Yes. Follow up:` and the question, or `No.`")


class IntermediateAnswer(dspy.Signature):
    """Answer the last follow up question in the fewest words."""

    question: str = dspy.InputField()
    trajectory: str = dspy.InputField(desc="follow up questions and intermediate answers so far, then what was found")
    intermediate_answer: str = dspy.OutputField(desc="short answer to the last follow up question")


class AnswerFromFollowUps(dspy.Signature):
    """Answer the question from the intermediate answers, in the fewest words."""

    question: str = dspy.InputField()
    trajectory: str = dspy.InputField(desc="follow up questions and intermediate answers")
    answer: str = dspy.OutputField(desc="short answer to the question")


# The lines of the worked examples, which say what the instructions do (see CompactAdapter).
for _signature, _label in (
    (FollowUp, "Are follow up questions needed here:"),
    (IntermediateAnswer, "Intermediate answer:"),
    (AnswerFromFollowUps, "So the final answer is:"),
):
    _extra = next(iter(_signature.output_fields.values())).json_schema_extra
    _extra.update({"prefix": _label, "one_line": True, "implied_instruction": _signature.instructions})  # type: ignore[union-attr]
