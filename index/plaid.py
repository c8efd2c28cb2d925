"""PLAID: compressed vectors and candidate generation by centroids, done by colbert-ai.

ColBERTv2 (Santhanam et al. 2022, https://arxiv.org/abs/2112.01488) stores a token vector as its nearest centroid and a
residual of a few bits a dimension; PLAID (Santhanam et al. 2022, https://arxiv.org/abs/2205.09707) finds candidates
with the centroids alone. colbert-ai does both here, on vectors that are already encoded. What it writes are pickles
with the name of the machine in them, so they are turned into plain arrays, and these alone are kept and read.
"""

from __future__ import annotations

import random
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core import IndexStoreError, InputError, MissingDependencyError
from .captured import captured_output
from .colbert_ai import load_extensions
from .exact import NOT_FINITE, ExactEngine
from .processor import has_bfloat16_units
from .store import VectorStore, load_array

if TYPE_CHECKING:
    import torch

FEWEST_VECTORS = 1_000
"""Vectors below which clustering has too few points, and compression no purpose."""

_SEED = 12345
_POINTS = 32
"""Vectors for each centroid that clustering looks at. More of them take longer and change no result that was seen."""
_PASSAGES_AT_ONCE = 5_000
_ARRAYS = ("centroids", "cutoffs", "weights", "ivf", "ivf_lengths", "codes", "residuals")

FILES = tuple(f"{name}.npy" for name in _ARRAYS)
"""The files that :func:`build_plaid` makes."""

_MORE = 32
_FEW = 1024
"""So few passages are searched exactly: a filter that leaves few would leave PLAID's candidates none."""

# The last codes are read in strides that reach beyond their end.
_PADDING = 512


def plaid_obstacle(vectors: int, dim: int, nbits: int) -> str | None:
    """Why PLAID cannot be used for so many vectors on this machine, or ``None`` if it can."""
    if dim % (8 * nbits):
        return f"nbits={nbits} does not fit vectors of {dim} dimensions, which must be a multiple of {8 * nbits}"
    if vectors < FEWEST_VECTORS:
        return f"PLAID needs at least {FEWEST_VECTORS:,} token vectors and there are {vectors:,}; use engine='exact'"
    try:
        load_extensions()
    except MissingDependencyError as error:
        return str(error)
    return None


def build_plaid(vectors: VectorStore, folder: Path, *, nbits: int) -> None:
    """Compress vectors and build the map from centroids to passages.

    Args:
        vectors: The passages' vectors.
        folder: Where to put the arrays; made here.
        nbits: Bits per dimension of a residual.

    Raises:
        InputError: There are too few vectors, or ``nbits`` does not fit their dimension.
        MissingDependencyError: There is no C++ compiler.
        IndexStoreError: colbert-ai failed.
    """
    count, dim = int(vectors.lengths.sum()), vectors.chunks[0].shape[1]
    load_extensions()
    obstacle = plaid_obstacle(count, dim, nbits)
    if obstacle is not None:
        raise InputError(obstacle)
    folder.mkdir()
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="plaid-") as scratch, captured_output() as last_line:
        try:
            _run_indexer(vectors, Path(scratch), dim=dim, nbits=nbits)
            _keep_arrays(Path(scratch), folder)
        except (RuntimeError, AssertionError, ValueError, IndexError, TypeError) as error:
            reason = str(error).strip().split("\n")[0] or last_line()
            raise IndexStoreError(f"{folder}: PLAID could not be built ({reason}); use engine='exact'") from error


def _run_indexer(vectors: VectorStore, scratch: Path, *, dim: int, nbits: int) -> None:
    import torch
    from colbert.data.collection import Collection
    from colbert.indexing.collection_indexer import CollectionIndexer
    from colbert.indexing.index_saver import IndexSaver
    from colbert.infra.config import ColBERTConfig

    class StoredVectors:
        """Stands in for colbert-ai's encoder: the "passages" are positions, their vectors are there already."""

        def encode_passages(self, positions: Sequence[int]) -> tuple[torch.Tensor, list[int]]:
            arrays = [vectors[position] for position in positions]
            return torch.from_numpy(np.concatenate(arrays)).float(), [len(array) for array in arrays]

    class Indexer(CollectionIndexer):
        def __init__(self, config: Any) -> None:  # The original loads the checkpoint, which nothing needs here.
            self.config, self.verbose, self.rank, self.nranks, self.use_gpu = config, 0, 0, 1, False
            self.collection = Collection(data=list(range(len(vectors.lengths))))
            self.collection.get_chunksize = lambda: _PASSAGES_AT_ONCE
            self.encoder, self.saver = StoredVectors(), IndexSaver(config)

        def _concatenate_and_split_sample(self) -> tuple[torch.Tensor, torch.Tensor]:
            sample, heldout = super()._concatenate_and_split_sample()  # in random order
            return sample[: _POINTS * self.num_partitions], heldout

    config = ColBERTConfig(index_path=str(scratch), dim=dim, nbits=nbits, rank=0, nranks=1)
    config.total_visible_gpus = 0
    state = random.getstate()
    with torch.random.fork_rng(devices=[]):
        try:
            random.seed(_SEED)
            torch.manual_seed(_SEED)
            # Which centroid is nearest is a matrix product too. Where bfloat16 takes the second nearest of two that are
            # as near as its rounding, the residual is counted from that one.
            with torch.autocast("cpu", torch.bfloat16, enabled=has_bfloat16_units()):
                Indexer(config).run([])
        finally:
            random.setstate(state)


def _keep_arrays(scratch: Path, folder: Path) -> None:
    """Turn what colbert-ai wrote a moment ago into plain arrays."""
    import torch

    def load(name: str) -> Any:
        return torch.load(scratch / name, map_location="cpu", weights_only=True)

    chunks = range(len(list(scratch.glob("*.codes.pt"))))
    cutoffs, weights = load("buckets.pt")
    ivf, ivf_lengths = load("ivf.pid.pt")
    arrays = {
        "centroids": load("centroids.pt"),
        "cutoffs": cutoffs,
        "weights": weights,
        "ivf": ivf,
        "ivf_lengths": ivf_lengths,
        "codes": torch.cat([load(f"{chunk}.codes.pt") for chunk in chunks]),
        "residuals": torch.cat([load(f"{chunk}.residuals.pt") for chunk in chunks]),
    }
    for name in _ARRAYS:
        np.save(folder / f"{name}.npy", arrays[name].numpy(), allow_pickle=False)


class PlaidEngine:
    """Searches with colbert-ai's PLAID. Nothing changes after loading, so any thread may use it.

    It finds candidates; their scores are computed from the full vectors, so that they are those of exact search.

    Args:
        folder: The folder that :func:`build_plaid` filled.
        vectors: The passages' vectors.
        covered: How many of the passages PLAID was built of; the others were added later.

    Raises:
        MissingDependencyError: There is no C++ compiler.
        IndexStoreError: The arrays are missing or do not fit together.
    """

    def __init__(self, folder: Path, vectors: VectorStore, covered: int) -> None:
        load_extensions()
        self._arrays = {name: load_array(folder / f"{name}.npy") for name in _ARRAYS}
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
        if k <= 10:
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
        keep = None
        if allowed is not None:
            mask = torch.from_numpy(allowed)

            def keep(positions: torch.Tensor) -> torch.Tensor:
                return positions[mask[positions.long()]]

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
