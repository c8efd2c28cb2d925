"""Building PLAID: colbert-ai's indexer on vectors that are already encoded.

What it writes are pickles with the name of the machine in them, so they are turned into plain arrays, and these alone
are kept; see :mod:`hopgate.index.plaid`.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core import IndexStoreError, InputError, MissingDependencyError
from .captured import captured_output
from .colbert_ai import load_extensions
from .plaid import ARRAYS
from .processor import has_bfloat16_units
from .store import VectorStore

if TYPE_CHECKING:
    import torch

FEWEST_VECTORS = 1_000
"""Vectors below which clustering has too few points, and compression no purpose."""

_SEED = 12345
_ROWS = 4096
_POINTS = 32
"""Vectors for each centroid that clustering looks at. More of them take longer and change no result that was seen."""
_MOST_NUMBERS = 2**24
"""Largest tensor that torch computes quantiles of, which the steps of compression are."""
_PASSAGES_AT_ONCE = 5_000


def nbits_fault(dim: int, nbits: int) -> str | None:
    """Why so many bits do not fit vectors of so many dimensions, or ``None`` if they do."""
    if dim % (8 * nbits):
        return f"nbits={nbits} does not fit vectors of {dim} dimensions, which must be a multiple of {8 * nbits}"
    return None


def size_fault(vectors: int) -> str | None:
    """Why so many vectors are too few for PLAID, or ``None`` if they are enough."""
    if vectors < FEWEST_VECTORS:
        return f"PLAID needs at least {FEWEST_VECTORS:,} token vectors and there are {vectors:,}; use engine='exact'"
    return None


def plaid_obstacle(vectors: int, dim: int, nbits: int) -> str | None:
    """Why PLAID cannot be used for so many vectors on this machine, or ``None`` if it can."""
    fault = nbits_fault(dim, nbits) or size_fault(vectors)
    if fault is not None:
        return fault
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
    fault = nbits_fault(dim, nbits) or size_fault(count)
    if fault is not None:
        raise InputError(fault)
    load_extensions()
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
    from colbert.indexing.codecs.residual import ResidualCodec
    from colbert.indexing.collection_indexer import CollectionIndexer
    from colbert.indexing.index_saver import IndexSaver
    from colbert.infra.config import ColBERTConfig

    class StoredVectors:
        """Stands in for colbert-ai's encoder: the "passages" are positions, their vectors are there already."""

        def encode_passages(self, positions: Sequence[int]) -> tuple[torch.Tensor, list[int]]:
            arrays = [vectors[position] for position in positions]
            return torch.from_numpy(np.concatenate(arrays)).float(), [len(array) for array in arrays]

    class Codec(ResidualCodec):
        def compress_into_codes(self, embs: torch.Tensor, out_device: Any) -> torch.Tensor:
            """The nearest centroid of each vector, in rows, which are searched several times as fast as columns.

            Where bfloat16 takes the second nearest of two that are as near as its rounding, the residual is counted
            from that one.
            """
            kind = torch.bfloat16 if has_bfloat16_units() else torch.float32
            centroids = self.centroids.to(kind).T.contiguous()
            nearest = [(batch.to(kind) @ centroids).max(dim=1).indices for batch in embs.split(_ROWS)]
            return torch.cat(nearest).to(out_device)

    class Saver(IndexSaver):
        def load_codec(self) -> Codec:
            return Codec.load(index_path=self.config.index_path_)

    class Indexer(CollectionIndexer):
        def __init__(self, config: Any) -> None:  # The original loads the checkpoint, which nothing needs here.
            self.config, self.verbose, self.rank, self.nranks, self.use_gpu = config, 0, 0, 1, False
            self.collection = Collection(data=list(range(len(vectors.lengths))))
            self.collection.get_chunksize = lambda: _PASSAGES_AT_ONCE
            self.encoder, self.saver = StoredVectors(), Saver(config)

        def _concatenate_and_split_sample(self) -> tuple[torch.Tensor, torch.Tensor]:
            sample, heldout = super()._concatenate_and_split_sample()  # in random order
            return sample[: _POINTS * self.num_partitions], heldout[: _MOST_NUMBERS // dim]

    config = ColBERTConfig(index_path=str(scratch), dim=dim, nbits=nbits, rank=0, nranks=1)
    config.total_visible_gpus = 0
    state = random.getstate()
    with torch.random.fork_rng(devices=[]):
        try:
            random.seed(_SEED)
            torch.manual_seed(_SEED)
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
    for name in ARRAYS:
        np.save(folder / f"{name}.npy", arrays[name].numpy(), allow_pickle=False)
