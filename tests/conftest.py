"""Shared fixtures: a small invented corpus with a retriever, and settings that do not leak between tests."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import dspy
import pytest

from hopgate.core import Passage
from hopgate.lms import CompactAdapter

pytest.register_assert_rewrite("hopgate.index.testing")


class WordIndex:
    """A retriever that counts shared words; deterministic, and records its queries."""

    def __init__(self, passages: list[Passage]) -> None:
        self.all = passages
        self.queries: list[tuple[str, int]] = []

    def search(self, query: str, k: int) -> list[Passage]:
        self.queries.append((query, k))
        words = set(query.lower().replace("?", "").split())
        ranked = sorted(self.all, key=lambda p: (-len(words & set(p.long_text.lower().split())), p.id))
        return ranked[:k]


@pytest.fixture
def index() -> WordIndex:
    return WordIndex(
        [
            Passage("1", "Osk Tower", "The Osk Tower was designed by Mira Dol in the town of Varn."),
            Passage("2", "Mira Dol", "Mira Dol was born in 1871 and built three towers."),
            Passage("3", "Varn", "Varn is a town on the river Ile."),
            Passage("4", "Ile", "The river Ile flows north."),
        ]
    )


@pytest.fixture(autouse=True)
def dspy_settings():
    with dspy.context(adapter=CompactAdapter(), trace=[], lm=None):
        yield
