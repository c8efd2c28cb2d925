"""Signatures of the steps of a multi-hop solver.

Only the last step's output is called ``answer``, since labelled demos go wherever that name is. The trajectory of a
draft holds conclusions alone and never passages: with passages in view its confidence would measure reading, not
knowledge.
"""

from __future__ import annotations

import dspy


class NextSubQuestion(dspy.Signature):
    """Ask for the next single fact that is missing, or write none."""

    question: str = dspy.InputField()
    trajectory: str = dspy.InputField(desc="sub-questions, passages found and conclusions so far")
    sub_question: str = dspy.OutputField(desc="a question about one fact, or none if the question can be answered")


class NextWithDraft(dspy.Signature):
    """Ask for the next single fact that is missing, or write none; then conclude from what you know."""

    question: str = dspy.InputField()
    trajectory: str = dspy.InputField(desc="sub-questions and conclusions so far")
    sub_question: str = dspy.OutputField(desc="a question about one fact, or none if the question can be answered")
    draft: str = dspy.OutputField(desc="short answer to it", default="")


class PlanSubQuestions(dspy.Signature):
    """Split the question into 2 to 4 simple questions that each ask for one fact, separated by |. Write #1, #2 for the
    answers of earlier ones."""

    question: str = dspy.InputField()
    trajectory: str = dspy.InputField(desc="plans that failed, if any")
    plan: str = dspy.OutputField(desc="simple questions separated by |")


class DraftConclusion(dspy.Signature):
    """Conclude from what you know."""

    question: str = dspy.InputField()
    trajectory: str = dspy.InputField(desc="sub-questions and conclusions so far, then the open sub-question")
    draft: str = dspy.OutputField(desc="short answer to the open sub-question")


class WriteExpression(dspy.Signature):
    """If the open task can be calculated from the conclusions, write one expression of numbers, + - * /, < >,
    years("date", "date"), days("date", "date"), earlier("date", "date"), later("date", "date"), count("a", "b"), or
    "a" if date("date") < date("date") else "b". Otherwise write none."""

    question: str = dspy.InputField()
    trajectory: str = dspy.InputField(desc="sub-questions and conclusions so far, then the open sub-question")
    expression: str = dspy.OutputField(desc="one expression, or none")


class ReadConclusion(dspy.Signature):
    """Conclude from what was found."""

    question: str = dspy.InputField()
    trajectory: str = dspy.InputField(desc="the steps so far, then the open sub-question and the passages found")
    conclusion: str = dspy.OutputField(desc="short answer to the open sub-question")


class ComposeAnswer(dspy.Signature):
    """Give the final answer to the question in the fewest words."""

    question: str = dspy.InputField()
    trajectory: str = dspy.InputField(desc="sub-questions and conclusions, then the best passages")
    answer: str = dspy.OutputField(desc="short answer to the question")


# The lines of the worked examples, numbered; their instructions are what the examples show (see CompactAdapter).
for _signature, _labels in (
    (NextSubQuestion, ["Task #:"]),
    (NextWithDraft, ["Task #:", "Conclusion #:"]),
    (PlanSubQuestions, ["Plan:"]),
    (DraftConclusion, ["Conclusion #:"]),
    (WriteExpression, ["Calculation:"]),
    (ReadConclusion, ["Conclusion #:"]),
    (ComposeAnswer, ["Answer:"]),
):
    for _field, _label in zip(_signature.output_fields.values(), _labels, strict=True):
        _extra = {"prefix": _label, "one_line": True, "implied_instruction": _signature.instructions}
        _field.json_schema_extra.update(_extra)  # type: ignore[union-attr]
# No worked example shows a calculation, so its instruction is always written.
del WriteExpression.output_fields["expression"].json_schema_extra["implied_instruction"]  # type: ignore[index]
