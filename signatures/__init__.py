"""What each LM call takes and returns, as DSPy signatures without logic.

Steps of a solver take ``question`` and ``trajectory``, the transcript so far; they differ in what they write next.
"""

from __future__ import annotations

from .baselines import AnswerDirectly, AnswerFromPassages
from .steps import ComposeAnswer, DraftConclusion, NextSubQuestion, PlanSubQuestions, ReadConclusion

__all__ = [
    "AnswerDirectly",
    "AnswerFromPassages",
    "ComposeAnswer",
    "DraftConclusion",
    "NextSubQuestion",
    "PlanSubQuestions",
    "ReadConclusion",
]
