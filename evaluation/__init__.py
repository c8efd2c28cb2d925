"""Evaluation: data sets, metrics, the resumable runner, comparisons and reports.

Importing this room loads neither dspy nor torch; what needs them is loaded when it is first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .aligned import align, read_runs
from .budget import Budget
from .comparison import Comparison, compare
from .datasets import load_questions
from .gate_analysis import GateAnalysis, analyse_gate, analyse_gates
from .metrics import cover_em, cover_em_tokens, exact_match, f1, retrieval_recall
from .normalisation import normalize
from .offtopic import off_topic
from .questions import Question, QuestionSet
from .records import Run, RunHeader, RunRecord, read_run
from .reliability import reliability
from .report import write_report
from .report_data import index_passages, report_data
from .sample import SampleQuestion, SubQuestion, sample_corpus_path, sample_questions
from .scoring import PredictionScores, score_answer, score_predictions
from .statistics import Interval, PairedTest, mean_interval, needed_questions, paired_test
from .tables import to_json, to_markdown

if TYPE_CHECKING:
    from .dspy_metrics import F1, AnswerAndCost, CostOf, CoverEM, ExactMatch, OnTopic, RetrievalRecall
    from .recorded_trajectories import trajectory_of
    from .runner import Progress, evaluate

_LATER = {
    **dict.fromkeys(
        ("AnswerAndCost", "CostOf", "CoverEM", "ExactMatch", "F1", "OnTopic", "RetrievalRecall"), "dspy_metrics"
    ),
    **dict.fromkeys(("Progress", "evaluate"), "runner"),
    "trajectory_of": "recorded_trajectories",
}

__all__ = [
    "F1",
    "AnswerAndCost",
    "Budget",
    "Comparison",
    "CostOf",
    "CoverEM",
    "ExactMatch",
    "GateAnalysis",
    "Interval",
    "OnTopic",
    "PairedTest",
    "PredictionScores",
    "Progress",
    "Question",
    "QuestionSet",
    "RetrievalRecall",
    "Run",
    "RunHeader",
    "RunRecord",
    "SampleQuestion",
    "SubQuestion",
    "align",
    "analyse_gate",
    "analyse_gates",
    "compare",
    "cover_em",
    "cover_em_tokens",
    "evaluate",
    "exact_match",
    "f1",
    "index_passages",
    "load_questions",
    "mean_interval",
    "needed_questions",
    "normalize",
    "off_topic",
    "paired_test",
    "read_run",
    "read_runs",
    "reliability",
    "report_data",
    "retrieval_recall",
    "sample_corpus_path",
    "sample_questions",
    "score_answer",
    "score_predictions",
    "to_json",
    "to_markdown",
    "trajectory_of",
    "write_report",
]


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{_LATER[name]}", __name__), name)
    globals()[name] = value
    return value
