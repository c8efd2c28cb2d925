"""Signature of ReAct, from which ``dspy.ReAct`` makes those of its two steps."""

from __future__ import annotations

import dspy


class AnswerBySearching(dspy.Signature):
    """Answer the question in the fewest words. Search for one fact at a time."""

    question: str = dspy.InputField()
    answer: str = dspy.OutputField(desc="short answer to the question")
