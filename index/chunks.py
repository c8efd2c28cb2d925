"""Passages become files of vectors, a chunk at a time, in a folder that can be gone on with.

Each chunk of vectors is a file as soon as it is encoded, so work that was killed and is started again with the same
passages and checkpoint goes on after the last whole chunk. Chunks are cut the same way every time, hence the result is
that of undisturbed work.
"""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ..core import IndexStoreError, InputError, Passage, write_atomic
from .corpus import CorpusFingerprint, checked_passages, passage_line, read_corpus
from .encoder import Encoder
from .folders import PLAN, writing
from .store import (
    DTYPE,
    VECTORS,
    IndexStore,
    PassageFile,
    VectorStore,
    lengths_path,
    vectors_path,
    write_passages,
)

CHUNK = 512
"""Passages per file of vectors: some ten seconds of encoding, which is what interrupted work loses."""

OnProgress = Callable[[int, int], None]
"""Called with the number of passages encoded so far, and of all."""


def store_passages(corpus: str | Path | Iterable[Passage], folder: Path) -> str:
    """Check all passages before the first is encoded, and write them down; returns the corpus's fingerprint."""
    passages = read_corpus(corpus) if isinstance(corpus, str | Path) else _located(corpus)
    fingerprint = CorpusFingerprint()

    def lines() -> Iterator[str]:
        for passage in passages:
            line = passage_line(passage)
            fingerprint.add(line)
            yield line

    with writing(folder):
        write_passages(folder, lines())
    return fingerprint.hexdigest()


def _located(passages: Iterable[Passage]) -> Iterator[Passage]:
    def pairs() -> Iterator[tuple[str, Passage]]:
        for number, passage in enumerate(passages):
            if not isinstance(passage, Passage):
                raise InputError(f"corpus[{number}] is a {type(passage).__name__}; give hopgate.core.Passage objects")
            yield f"corpus[{number}]", passage

    return checked_passages(pairs(), empty="the corpus holds no passages; give at least one")


def kept_passages(done: int, total: int) -> int:
    """How many of the passages encoded so far are in finished chunks, which an interruption leaves."""
    return done if done == total else done // CHUNK * CHUNK


def other_work(folder: Path, encoder: Encoder, fingerprint: str) -> str | None:
    """What earlier work in a folder was, in words, if it is of something else and has finished chunks.

    Args:
        folder: The hidden folder.
        encoder: The encoder that is wanted now.
        fingerprint: Of the passages that are wanted now.
    """
    earlier = _plan_of(folder)
    wanted = _plan(encoder, fingerprint)
    finished = sum(1 for path in (folder / VECTORS).glob("*.npy") if path.stem.isdecimal())
    # What has no plan belongs to nothing, and can be gone on with by nobody.
    if earlier is None or earlier == wanted or not finished:
        return None
    words = {
        "corpus": "other passages",
        "checkpoint": "another checkpoint",
        "precision": f"precision={earlier.get('precision')!r:.80}",
        "chunk": "another version of hopgate",
    }
    others = [word for name, word in words.items() if earlier.get(name) != wanted[name]]
    size = earlier.get("chunk")
    count = f", and has encoded about {finished * size:,} passages" if isinstance(size, int) else ""
    return f"was begun with {' and '.join(others)}{count}, which would be lost"


def keep_or_drop_chunks(folder: Path, encoder: Encoder, fingerprint: str, *, vectors: Path | None = None) -> None:
    """Keep the chunks of earlier work if they are of the same passages; else begin anew.

    Args:
        folder: The hidden folder.
        encoder: The encoder.
        fingerprint: Of the passages.
        vectors: A folder with the chunks of just these passages, to begin with.
    """
    plan = _plan(encoder, fingerprint)
    if _plan_of(folder) != plan:
        # The old plan goes first: chunks that are taken over must not pass for those that it speaks of.
        write_atomic(folder / PLAN, "")
        shutil.rmtree(folder / VECTORS, ignore_errors=True)
        if vectors is not None:
            shutil.copytree(vectors, folder / VECTORS)
        (folder / VECTORS).mkdir(exist_ok=True)
        write_atomic(folder / PLAN, json.dumps(plan))


def _plan(encoder: Encoder, fingerprint: str) -> dict[str, Any]:
    return {
        "checkpoint": encoder.checkpoint.fingerprint,
        "precision": encoder.precision,
        "corpus": fingerprint,
        "chunk": CHUNK,
    }


def _plan_of(folder: Path) -> dict[str, Any] | None:
    """What the chunks of a folder belong to; ``None`` if that is not known."""
    try:
        plan = json.loads((folder / PLAN).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return plan if isinstance(plan, dict) else None


def encode_chunks(folder: Path, encoder: Encoder, on_progress: OnProgress | None) -> int:
    """Encode the passages of a folder that are not encoded yet; returns the number of chunks."""
    passages = PassageFile(folder)
    total = len(passages)
    chunks = chunk_count(total)
    report = on_progress or (lambda done, total: None)
    for chunk in range(chunks):
        first, end = chunk * CHUNK, min((chunk + 1) * CHUNK, total)
        if not _is_whole(folder, chunk, end - first, encoder.dim):
            texts = [passages[position].long_text for position in range(first, end)]
            arrays = encoder.encode_passages(texts, on_batch=lambda done, first=first: report(first + done, total))
            _write_chunk(folder, chunk, arrays)
        report(end, total)
    return chunks


def _is_whole(folder: Path, chunk: int, passages: int, dim: int) -> bool:
    """Whether a chunk was written to its end; one that was damaged since is made anew."""
    if not vectors_path(folder, chunk).is_file():  # written last
        return False
    try:
        store = VectorStore([(folder, 1)], dim, first=chunk)
    except IndexStoreError:
        return False
    return len(store.lengths) == passages


def copy_chunks(store: IndexStore, folder: Path, on_progress: OnProgress | None) -> int:
    """Write the vectors of the passages of an index that were not deleted; returns the number of chunks."""
    (folder / VECTORS).mkdir()
    live = np.arange(len(store)) if store.live is None else np.flatnonzero(store.live)
    for chunk, first in enumerate(range(0, len(live), CHUNK)):
        _write_chunk(folder, chunk, [store.vectors[int(position)] for position in live[first : first + CHUNK]])
        if on_progress is not None:
            on_progress(min(first + CHUNK, len(live)), len(live))
    return chunk_count(len(live))


def chunk_count(passages: int) -> int:
    """How many chunks so many passages make."""
    return -(-passages // CHUNK)


def _write_chunk(folder: Path, chunk: int, arrays: list[np.ndarray]) -> None:
    with writing(folder):
        write_atomic(lengths_path(folder, chunk), _npy(np.array([len(array) for array in arrays], np.int32)))
        write_atomic(vectors_path(folder, chunk), _npy(np.concatenate(arrays).astype(DTYPE)))


def _npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()
