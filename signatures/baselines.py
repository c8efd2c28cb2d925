"""Signatures of the programs that answer in one call."""

from __future__ import annotations

import dspy


class AnswerDirectly(dspy.Signature):
    """Answer the question with a short phrase: only a name, a date, a number, yes or no."""

    question: str = dspy.InputField()
    answer: str = dspy.OutputField()


class AnswerFromPassages(dspy.Signature):
    """Answer the question from the passages with a short phrase: only a name, a date, a number, yes or no."""

    passages: list[str] = dspy.InputField(desc="passages that may hold the answer, best first")
    question: str = dspy.InputField()
    answer: str = dspy.OutputField()
