"""PLAID: compressed vectors and candidate generation by centroids, done by colbert-ai.

ColBERTv2 (Santhanam et al. 2022, https://arxiv.org/abs/2112.01488) stores a token vector as its nearest centroid and a
residual of a few bits a dimension; PLAID (Santhanam et al. 2022, https://arxiv.org/abs/2205.09707) finds candidates
with the centroids alone. colbert-ai does both here, on vectors that are already encoded; see
:mod:`hopgate.index.plaid_build` for building.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core import IndexStoreError
from .captured import captured_output
from .colbert_ai import load_extensions
from .exact import NOT_FINITE, ExactEngine
from .store import VectorStore, load_array

if TYPE_CHECKING:
    import torch

ARRAYS = ("centroids", "cutoffs", "weights", "ivf", "ivf_lengths", "codes", "residuals")

FILES = tuple(f"{name}.npy" for name in ARRAYS)
"""The files that :func:`~hopgate.index.plaid_build.build_plaid` makes."""

_MORE = 32
_FEW = 1024
"""So few passages are searched exactly: a filter that leaves few would leave PLAID's candidates none."""

# The last codes are read in strides that reach beyond their end.
_PADDING = 512


class PlaidEngine:
    """Searches with colbert-ai's PLAID. Nothing changes after loading, so any thread may use it.

    It finds candidates; their scores are computed from the full vectors, so that they are those of exact search.

    Args:
        folder: The folder that :func:`~hopgate.index.plaid_build.build_plaid` filled.
        vectors: The passages' vectors.
        covered: How many of the passages PLAID was built of; the others were added later.

    Raises:
        MissingDependencyError: There is no C++ compiler.
        IndexStoreError: The arrays are missing or do not fit together.
    """

    def __init__(self, folder: Path, vectors: VectorStore, covered: int) -> None:
        load_extensions()
        self._arrays = {name: load_array(folder / f"{name}.npy") for name in ARRAYS}
        fault = _fault(self._arrays, vectors, covered)
        if fault is not None:
            raise IndexStoreError(f"{folder}: {fault}; build the index again")
        self._covered, self._lengths = covered, vectors.lengths
        self._exact = ExactEngine(vectors)
        self._added = ExactEngine(vectors, since=covered) if covered < len(vectors.lengths) else None
        self._scorer: Any = None
        self._loading = threading.Lock()

    def candidates(self, queries: Sequence[np.ndarray], k: int, allowed: np.ndarray | None) -> list[np.ndarray]:
        """See :class:`~hopgate.index.ranking.Engine`.

        What PLAID does not know, passages added later, is searched exactly. So is everything if PLAID finds fewer
        candidates than are asked for.
        """
        total = len(self._lengths)
        count = total if allowed is None else int(allowed.sum())
        known = self._covered if allowed is None else int(allowed[: self._covered].sum())
        if count <= max(2 * k, _FEW):
            return self._exact.candidates(queries, k, allowed)
        found: list[np.ndarray] = []
        added = None if self._added is None else self._added.candidates(queries, k, allowed)
        for number, query in enumerate(queries):
            positions = self._found(query, k, allowed)
            if len(positions) < min(k, known):
                positions = self._exact.candidates([query], k, allowed)[0]
            elif added is not None:
                positions = np.concatenate([positions, added[number]])
            found.append(positions)
        return found

    def _found(self, query: np.ndarray, k: int, allowed: np.ndarray | None) -> np.ndarray:
        import torch
        from colbert.infra.config import ColBERTConfig

        # colbert-ai's own settings by k, in a configuration of their own: one kept would hold for all later calls.
        # Those for 10 passages leave 64 in the end, so they do for 50 too.
        if k <= 50:
            cells, threshold, candidates = 1, 0.5, 256
        elif k <= 100:
            cells, threshold, candidates = 2, 0.45, 1024
        else:
            cells, threshold, candidates = 4, 0.4, max(4 * k, 4096)
        config = ColBERTConfig(
            ncells=cells, centroid_score_threshold=threshold, ndocs=candidates, query_maxlen=len(query)
        )
        config.total_visible_gpus = 0
        queries = torch.from_numpy(np.ascontiguousarray(query))[None]
        mask = None if allowed is None else torch.from_numpy(allowed)

        def keep(positions: torch.Tensor) -> torch.Tensor:
            return positions if mask is None else positions[mask[positions.long()]]

        positions, scores = self._loaded().rank(config, queries, filter_fn=keep)
        if not np.isfinite(scores).all():
            raise IndexStoreError(NOT_FINITE)
        # Compressed scores order them well but not quite; a few more than asked for are scored with the full vectors.
        return np.array(positions[: 2 * k + _MORE], np.int64)

    def _loaded(self) -> Any:
        if self._scorer is None:
            with self._loading:
                if self._scorer is None:
                    with captured_output():
                        self._scorer = _scorer(self._arrays, self._lengths[: self._covered])
        return self._scorer


def _scorer(arrays: dict[str, np.ndarray], lengths: np.ndarray) -> Any:
    import torch
    from colbert.indexing.codecs.residual import ResidualCodec
    from colbert.infra.config import ColBERTConfig
    from colbert.search.index_storage import IndexScorer
    from colbert.search.strided_tensor import StridedTensor

    tensors = {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}
    dim = tensors["centroids"].shape[1]

    class Scorer(IndexScorer):
        """colbert-ai's scorer, reading from the arrays in place of its own files."""

        def _load_codec(self) -> None:
            config = ColBERTConfig(dim=dim, nbits=tensors["residuals"].shape[1] * 8 // dim)
            config.total_visible_gpus = 0
            self.codec = ResidualCodec(
                config, tensors["centroids"], 0.0, bucket_cutoffs=tensors["cutoffs"], bucket_weights=tensors["weights"]
            )

        def _load_ivf(self) -> None:
            self.ivf = StridedTensor(tensors["ivf"], tensors["ivf_lengths"], use_gpu=False)

        def _load_doclens(self) -> None:
            self.doclens = torch.from_numpy(lengths)

        def _load_embeddings(self) -> None:
            padded = [
                torch.cat([tensors[name], tensors[name].new_zeros(_PADDING, *tensors[name].shape[1:])])
                for name in ("codes", "residuals")
            ]
            self.embeddings = ResidualCodec.Embeddings(*padded)

    return Scorer("", use_gpu=False)


def _fault(arrays: dict[str, np.ndarray], vectors: VectorStore, covered: int) -> str | None:
    """What is wrong with arrays, in words: compiled code reads where they point to without looking."""
    centroids, codes, residuals = arrays["centroids"], arrays["codes"], arrays["residuals"]
    ivf, ivf_lengths = arrays["ivf"], arrays["ivf_lengths"]
    kinds = {"centroids": "f", "cutoffs": "f", "weights": "f", "ivf": "i", "ivf_lengths": "i", "codes": "i"}
    for name, array in arrays.items():
        if array.dtype.kind != kinds.get(name, "u") or array.ndim != (2 if name in ("centroids", "residuals") else 1):
            return f"{name}.npy has the wrong type or shape"
    tokens, dim = int(vectors.lengths[:covered].sum()), vectors.chunks[0].shape[1]
    if not len(codes) == len(residuals) == tokens or centroids.shape[1] != dim:
        return "does not fit the vectors"
    bits = residuals.shape[1] * 8 / dim
    if bits not in (1, 2, 4, 8) or len(arrays["weights"]) != 2**bits or len(arrays["cutoffs"]) != 2**bits - 1:
        return "weights.npy and residuals.npy do not fit together"
    if len(ivf_lengths) != len(centroids) or (ivf_lengths < 0).any() or int(ivf_lengths.sum()) > len(ivf):
        return "ivf.npy and ivf_lengths.npy do not fit together"
    for name, limit in (("codes", len(centroids)), ("ivf", covered)):
        if len(arrays[name]) and not 0 <= int(arrays[name].min()) <= int(arrays[name].max()) < limit:
            return f"{name}.npy points to what is not there"
    if not all(np.isfinite(arrays[name]).all() for name in ("centroids", "cutoffs", "weights")):
        return "holds numbers that are not finite"
    return None
