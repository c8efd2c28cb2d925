"""Evaluation: metrics and the bundled sample."""

from __future__ import annotations

from .metrics import cover_em, exact_match, f1, normalize
from .sample import SampleQuestion, SubQuestion, sample_corpus_path, sample_questions

__all__ = [
    "SampleQuestion",
    "SubQuestion",
    "cover_em",
    "exact_match",
    "f1",
    "normalize",
    "sample_corpus_path",
    "sample_questions",
]
