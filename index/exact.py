"""Exact MaxSim: every passage is scored with all its token vectors.

The score of a passage is the sum, over the query's tokens, of the largest dot product with a token of the passage
(Khattab & Zaharia 2020, section 3.3).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..core import IndexStoreError
from .store import VectorStore

_BLOCK = 4096
"""Vectors scored at a time: few enough that their float32 copy and their scores stay in the processor's cache."""

NOT_FINITE = "the index's vectors are damaged, since they give scores that are not numbers; build the index again"
"""Message for scores that are not finite, which no sound vectors give."""


class ExactEngine:
    """Searches by scoring every passage. Holds no state but the memory-mapped vectors, so any thread may use it.

    Args:
        vectors: The passages' vectors.
    """

    def __init__(self, vectors: VectorStore) -> None:
        self._vectors = vectors
        self._blocks = _blocks(vectors)

    def search(self, query: np.ndarray, k: int) -> list[tuple[int, float]]:
        """The best passages for a query.

        Args:
            query: Float32 array of shape (tokens, dim).
            k: How many; all if there are fewer.

        Returns:
            Pairs of position and score, best first; of equal scores the smaller position first.
        """
        import torch

        scores = np.empty(len(self._vectors.lengths), np.float32)
        queries = torch.from_numpy(np.ascontiguousarray(query))
        first = 0
        with torch.inference_mode():
            for chunk, start, end, starts in self._blocks:
                rows = torch.from_numpy(self._vectors.chunks[chunk][start:end]).float()
                scores[first : first + len(starts)] = _maxsim((queries @ rows.T).numpy(), starts)
                first += len(starts)
        return best(scores, k)


def _blocks(vectors: VectorStore) -> list[tuple[int, int, int, np.ndarray]]:
    """Cut the chunks at passages: (chunk, first vector, end, starts of the passages relative to the first vector)."""
    blocks: list[tuple[int, int, int, np.ndarray]] = []
    for chunk, starts in enumerate(vectors.starts):
        total, first = len(vectors.chunks[chunk]), 0
        while first < len(starts):
            # The last passage that still starts within the block, and at least one.
            last = max(first + 1, int(np.searchsorted(starts, starts[first] + _BLOCK)))
            end = int(starts[last]) if last < len(starts) else total
            blocks.append((chunk, int(starts[first]), end, starts[first:last] - starts[first]))
            first = last
    return blocks


def _maxsim(similarities: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Reduce similarities (query tokens, passage tokens) to one score per passage; ``starts`` begin at 0."""
    return np.maximum.reduceat(similarities, starts, axis=1).sum(axis=0)


def maxsim(query: np.ndarray, passages: Sequence[np.ndarray]) -> np.ndarray:
    """Score passages for a query.

    Args:
        query: Float32 array of shape (tokens, dim).
        passages: For each passage its vectors, of shape (tokens, dim) and any float type.

    Returns:
        Float32 array of shape (passages,).
    """
    lengths = [len(vectors) for vectors in passages]
    starts = np.concatenate([[0], np.cumsum(lengths[:-1], dtype=np.int64)]).astype(np.int64)
    return _maxsim(query @ np.concatenate(passages).astype(np.float32).T, starts)


def best(scores: np.ndarray, k: int) -> list[tuple[int, float]]:
    """The k largest scores as pairs of position and score, best first; of equal ones the smaller position first.

    Scores are rounded to four decimals. What lies below is the noise of float arithmetic, which depends on how work
    is cut into blocks, and which would otherwise decide between passages that say the same.

    Raises:
        IndexStoreError: A score is not a finite number.
    """
    if not np.isfinite(scores).all():
        raise IndexStoreError(NOT_FINITE)
    rounded = np.round(scores.astype(np.float64), 4)
    if k < len(rounded):
        # Everything that reaches the k-th score, ties included, then sorted.
        kth = np.partition(rounded, len(rounded) - k)[len(rounded) - k]
        candidates = np.flatnonzero(rounded >= kth)
    else:
        candidates = np.arange(len(rounded))
    order = candidates[np.argsort(-rounded[candidates], kind="stable")][:k]
    return [(int(position), float(rounded[position])) for position in order]
