"""What each LM call takes and returns, as DSPy signatures without logic.

Steps of a solver take ``question`` and ``trajectory``, the transcript so far; they differ in what they write next.
"""

from __future__ import annotations

from .baselines import AnswerDirectly, AnswerFromPassages
from .chains import AnswerFromFound, NextSentence
from .dr3 import JudgeAnswer, NameAnswerKinds
from .react import AnswerBySearching
from .react_plus import NextTask
from .self_ask import AnswerFromFollowUps, FollowUp, IntermediateAnswer
from .steps import (
    ComposeAnswer,
    DraftConclusion,
    NextSubQuestion,
    NextWithDraft,
    PlanSubQuestions,
    ReadConclusion,
    WriteExpression,
)

__all__ = [
    "AnswerBySearching",
    "AnswerDirectly",
    "AnswerFromFollowUps",
    "AnswerFromFound",
    "AnswerFromPassages",
    "ComposeAnswer",
    "DraftConclusion",
    "FollowUp",
    "IntermediateAnswer",
    "JudgeAnswer",
    "NameAnswerKinds",
    "NextSentence",
    "NextSubQuestion",
    "NextTask",
    "NextWithDraft",
    "PlanSubQuestions",
    "ReadConclusion",
    "WriteExpression",
]
