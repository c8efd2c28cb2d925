"""LM backends: declared LMs, the embedded engine, the compact adapter and answer-span confidence."""

from __future__ import annotations

from .compact import CompactAdapter
from .confidence import EMPTY_ANSWER, AnswerConfidence, answer_confidence
from .config import DEFAULT_MODEL, embedded_models, lm_from_config
from .embedded import AsyncEmbeddedEngine, EmbeddedEngine

__all__ = [
    "DEFAULT_MODEL",
    "EMPTY_ANSWER",
    "AnswerConfidence",
    "AsyncEmbeddedEngine",
    "CompactAdapter",
    "EmbeddedEngine",
    "answer_confidence",
    "embedded_models",
    "lm_from_config",
]
