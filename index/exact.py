"""Exact MaxSim: every passage is scored with all its token vectors.

The score of a passage is the sum, over the query's tokens, of the largest dot product with a token of the passage
(Khattab & Zaharia 2020, section 3.3).

Scoring is done twice. A first pass over all passages, as fast as the processor can, leaves those that may be among the
best: all whose score is not farther below the k-th best than rounding can explain. Only these are scored in single
precision. So a score depends on the query and the passage alone, not on what else is scored in the same go, nor on how
the first pass calculates, and passages of equal score are recognised as such.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..core import IndexStoreError
from .processor import has_bfloat16_units
from .store import VectorStore

if TYPE_CHECKING:
    import torch

_BLOCK = 16_384
"""Vectors scored at a time: few enough to stay in the processor's cache, and many enough that threads seldom wait for
each other, which costs most where other programs run too."""
_QUERIES = 32
"""Queries scored at a time, which bounds the memory for scores."""
_KEPT = 2 << 30
"""Bytes of vectors up to which a copy for the first pass is kept in memory, where the processor gains from one."""
_FEW = 1024
"""So few passages are scored precisely at once."""

_NOISE = {"float32": 2.0**-16, "bfloat16": 1.6 * 2.0**-8}
"""Largest error of the dot product of two vectors of length 1: with bfloat16 both vectors and the product are each
rounded by up to 2**-9 of themselves."""

NOT_FINITE = "the index's vectors are damaged, since they give scores that are not numbers; build the index again"
"""Message for scores that are not finite, which no sound vectors give."""


class ExactEngine:
    """Finds the passages of the best scores by scoring all. Any thread may use it.

    Args:
        vectors: The passages' vectors.
        since: Position of the first passage to look at, which must begin a chunk.
    """

    def __init__(self, vectors: VectorStore, *, since: int = 0) -> None:
        self._vectors = vectors
        self._since = since
        self._blocks = _blocks(vectors, since)
        self._bytes = sum(chunk.nbytes for chunk in vectors.chunks)
        self._kept: list[torch.Tensor] | None = None
        self._keeping = threading.Lock()

    def candidates(self, queries: Sequence[np.ndarray], k: int, allowed: np.ndarray | None) -> list[np.ndarray]:
        """Positions among which are the k passages of the best scores; see :class:`~hopgate.index.ranking.Engine`."""
        total = len(self._vectors.lengths)
        if allowed is None:
            eligible, count = np.arange(self._since, total), total - self._since
        else:
            eligible = np.flatnonzero(allowed[self._since :]) + self._since
            count = len(eligible)
        if count <= max(k, _FEW):
            return [eligible] * len(queries)
        found: list[np.ndarray] = []
        for first in range(0, len(queries), _QUERIES):
            several = queries[first : first + _QUERIES]
            scores, noise = self._scores(several, allowed)
            for query, row in zip(several, scores, strict=True):
                kth = np.partition(row, len(row) - k)[len(row) - k]
                margin = 2 * noise * float(np.linalg.norm(query, axis=1).sum())
                found.append(np.flatnonzero(row >= kth - margin) + self._since)
        return found

    def _scores(self, queries: Sequence[np.ndarray], allowed: np.ndarray | None) -> tuple[np.ndarray, float]:
        """Scores of shape (queries, passages), minus infinity where a passage is not allowed, and their noise."""
        import torch

        kept = self._copy()
        kind = torch.float32 if kept is None else torch.bfloat16
        together = torch.from_numpy(np.ascontiguousarray(np.concatenate(queries))).to(kind)
        starts_of_queries = np.cumsum([0, *(len(query) for query in queries[:-1])])
        scores = np.full((len(queries), len(self._vectors.lengths) - self._since), -np.inf, np.float32)
        first = 0
        with torch.inference_mode():
            for number, (chunk, start, end, starts) in enumerate(self._blocks):
                last = first + len(starts)
                if allowed is None or allowed[self._since + first : self._since + last].any():
                    rows = torch.from_numpy(self._vectors.chunks[chunk][start:end]) if kept is None else kept[number]
                    products = (together @ rows.to(kind).T).float().numpy()
                    tokens = np.maximum.reduceat(products, starts, axis=1)
                    scores[:, first:last] = np.add.reduceat(tokens, starts_of_queries, axis=0)
                    if not np.isfinite(scores[:, first:last]).all():
                        raise IndexStoreError(NOT_FINITE)
                first = last
        if allowed is not None:
            scores[:, ~allowed[self._since :]] = -np.inf
        return scores, _NOISE["float32" if kept is None else "bfloat16"]

    def _copy(self) -> list[torch.Tensor] | None:
        """The blocks as bfloat16 in memory, where that is faster and there is room; else ``None``."""
        if self._bytes > _KEPT or not has_bfloat16_units():
            return None
        if self._kept is None:
            import torch

            with self._keeping:
                if self._kept is None:
                    self._kept = [
                        torch.from_numpy(self._vectors.chunks[chunk][start:end]).bfloat16()
                        for chunk, start, end, _ in self._blocks
                    ]
        return self._kept


def _blocks(vectors: VectorStore, since: int) -> list[tuple[int, int, int, np.ndarray]]:
    """Cut the chunks at passages: (chunk, first vector, end, starts of the passages relative to the first vector)."""
    blocks: list[tuple[int, int, int, np.ndarray]] = []
    for chunk, starts in enumerate(vectors.starts):
        if int(vectors.firsts[chunk]) < since:
            continue
        total, first = len(vectors.chunks[chunk]), 0
        while first < len(starts):
            # The last passage that still starts within the block, and at least one.
            last = max(first + 1, int(np.searchsorted(starts, starts[first] + _BLOCK)))
            end = int(starts[last]) if last < len(starts) else total
            blocks.append((chunk, int(starts[first]), end, starts[first:last] - starts[first]))
            first = last
    return blocks


def maxsim(query: np.ndarray, passages: Sequence[np.ndarray]) -> np.ndarray:
    """Score passages for a query, each by itself, so that a score does not depend on what else is scored.

    Args:
        query: Float32 array of shape (tokens, dim).
        passages: For each passage its vectors, of shape (tokens, dim) and any float type.

    Returns:
        Float64 array of shape (passages,), rounded to four decimals: what lies below is the rounding of the vectors,
        and would otherwise decide between passages that say the same.

    Raises:
        IndexStoreError: A score is not a finite number.
    """
    import torch

    scores, rows = np.empty(len(passages)), torch.from_numpy(np.ascontiguousarray(query))
    with torch.inference_mode():
        for number, vectors in enumerate(passages):
            tokens = torch.from_numpy(np.ascontiguousarray(vectors)).float()
            scores[number] = (tokens @ rows.T).amax(dim=0).sum(dtype=torch.float64)
    if not np.isfinite(scores).all():
        raise IndexStoreError(NOT_FINITE)
    return np.round(scores, 4) + 0.0  # no negative zero
