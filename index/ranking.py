"""From candidates to results: precise scores, a fixed order, and the fusion of two rankings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from .exact import maxsim
from .store import IndexStore

FUSED_DEPTH = 50
"""Passages of each ranking that fusion looks at."""
LEXICAL_WEIGHT = 0.5
_SMOOTHING = 10.0
# Chosen on the training questions of HotpotQA and MuSiQue, see benchmarks/README.md. The usual 60 and 1 let a passage
# that is second in both rankings pass the first of one, which loses first ranks.

Scored = list[tuple[int, float]]
"""Positions with their scores, best first."""


class Engine(Protocol):
    """What finds candidates for encoded queries. Any thread may use it."""

    def candidates(self, queries: Sequence[np.ndarray], k: int, allowed: np.ndarray | None) -> list[np.ndarray]:
        """Positions among which the k best passages are looked for.

        Args:
            queries: For each query a float32 array of shape (tokens, dim).
            k: How many passages are wanted.
            allowed: For each position whether its passage may be found; ``None`` allows all.

        Returns:
            For each query an int64 array of positions without repetition, at least k of them unless fewer are allowed.
            An exact engine's hold the k passages of the best scores, with all that tie.
        """
        ...


def ranked(store: IndexStore, query: np.ndarray, positions: np.ndarray, k: int) -> Scored:
    """The k best of some passages by MaxSim; of equal scores the smaller id first.

    Raises:
        IndexStoreError: A score is not a finite number, since the vectors are damaged.
    """
    scores = maxsim(query, [store.vectors[int(position)] for position in positions])
    return top(store, positions, scores, k)


def top(store: IndexStore, positions: np.ndarray, scores: np.ndarray, k: int) -> Scored:
    """The k positions of the largest scores, best first; of equal scores the smaller id first."""
    if k < len(scores):
        kth = np.partition(scores, len(scores) - k)[len(scores) - k]
        kept = scores >= kth
        positions, scores = positions[kept], scores[kept]
    pairs = [(int(position), float(score)) for position, score in zip(positions, scores, strict=True)]
    # Ids are read for ties alone.
    counts: dict[float, int] = {}
    for _, score in pairs:
        counts[score] = counts.get(score, 0) + 1
    return sorted(pairs, key=lambda pair: (-pair[1], store[pair[0]].id if counts[pair[1]] > 1 else ""))[:k]


def fused_depth(k: int) -> int:
    """How many passages of the ranking by late interaction :func:`fused` needs to give k."""
    return FUSED_DEPTH if k <= FUSED_DEPTH else k + FUSED_DEPTH


def fused(store: IndexStore, late: Scored, lexical: Scored, k: int) -> Scored:
    """Two rankings as one, by weighted reciprocal rank (Cormack et al. 2009, Reciprocal Rank Fusion, SIGIR).

    The first 50 passages of each ranking are fused, whatever k is, so that a larger k changes nothing about the first
    results. The others follow in the order of late interaction.

    Args:
        store: The index, for the ids of ties.
        late: The ranking by late interaction, of the length that :func:`fused_depth` says or of all passages.
        lexical: The ranking by BM25.
        k: How many passages are wanted.

    Returns:
        Positions with scores from 0 to 1, where 1 is the first place in both rankings.
    """
    sums: dict[int, float] = {}
    for weight, ranking in ((1.0, late), (LEXICAL_WEIGHT, lexical)):
        for rank, (position, _) in enumerate(ranking[:FUSED_DEPTH]):
            sums[position] = sums.get(position, 0.0) + weight / (_SMOOTHING + 1 + rank)
    largest = (1.0 + LEXICAL_WEIGHT) / (_SMOOTHING + 1)
    positions = np.fromiter(sums, np.int64, len(sums))
    scores = np.round(np.fromiter(sums.values(), np.float64, len(sums)) / largest, 6)
    first = top(store, positions, scores, k)
    others = [position for position, _ in late[FUSED_DEPTH:] if position not in sums]
    least = first[-1][1] if first else 1.0
    return first + [(position, least / (2 + rank)) for rank, position in enumerate(others[: k - len(first)])]
