"""What a build will take, told before it begins: passages, vectors, bytes and seconds."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..core import IndexStoreError
from .chunks import chunk_count
from .encoder import Encoder
from .store import DTYPE, PassageFile, vectors_path

_COUNTED = 256
_TIMED = 16
_SPARE = 16 << 20
"""Bytes that are left to others on the disk."""
_WORD = 8
"""Bytes that a BM25 index keeps of a word of a passage."""
_SCRATCH = 2.2
"""Bytes that compressing writes for each byte it keeps, its working files included."""


@dataclass(frozen=True, slots=True)
class BuildEstimate:
    """What a build is expected to take.

    Attributes:
        passages: Number of passages.
        vectors: Number of token vectors.
        bytes: Bytes on the disk while building, what is there already aside.
        free: Bytes that are free there.
        seconds: Seconds of encoding that lie ahead, without compressing; ``None`` if there is nothing to encode.
    """

    passages: int
    vectors: int
    bytes: int
    free: int
    seconds: float | None


OnEstimate = Callable[[BuildEstimate], None]


def estimate_build(folder: Path, encoder: Encoder, *, compressed: float, hybrid: bool) -> BuildEstimate:
    """Estimate from a sample of passages.

    Args:
        folder: The hidden folder with the passages, and the chunks that are finished.
        encoder: The encoder.
        compressed: Bytes that an engine keeps of a vector beside it; 0 for exact search.
        hybrid: Whether a BM25 index is built too.

    Raises:
        IndexStoreError: The disk is too small.
    """
    passages = PassageFile(folder)
    count = len(passages)
    sampled = [
        passages[int(position)].long_text for position in np.unique(np.linspace(0, count - 1, _COUNTED, dtype=np.int64))
    ]
    tokens = encoder.count_tokens(sampled) / len(sampled)
    chunks = range(chunk_count(count))
    share = sum(not vectors_path(folder, chunk).is_file() for chunk in chunks) / len(chunks)
    size = np.dtype(DTYPE).itemsize * encoder.dim
    needed = int(count * tokens * (share * size + _SCRATCH * compressed + hybrid * _WORD))
    seconds = None
    if share:
        timed = sampled[:: max(1, len(sampled) // _TIMED)]
        encoder.encode_passages(timed[:1])  # the first call prepares things
        start = time.perf_counter()
        encoder.encode_passages(timed)
        seconds = share * count * (time.perf_counter() - start) / len(timed)
    estimate = BuildEstimate(count, int(count * tokens), needed, shutil.disk_usage(folder).free, seconds)
    if estimate.bytes + _SPARE > estimate.free:
        raise IndexStoreError(
            f"{folder.parent}: the index needs about {estimate.bytes / 1e6:,.0f} MB and {estimate.free / 1e6:,.0f} MB "
            "are free; make room or choose another folder"
        )
    return estimate
