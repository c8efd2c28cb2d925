"""Building an index: encode once, keep what is finished, and let the result appear whole.

The work goes on in a hidden folder beside the index, ``.<name>.hopgate-part``. Each chunk of vectors is a file there as
soon as it is encoded, so a build that was killed and is started again with the same corpus and checkpoint goes on after
the last whole chunk. Chunks are cut the same way every time, hence the result is that of an undisturbed build. At the
end the folder is renamed to that of the index. An index that it replaces is ``.<name>.hopgate-old`` for a moment. Both
folders carry a file of ours, and a folder of these names without it is never touched.
"""

from __future__ import annotations

import io
import json
import logging
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import numpy as np

from ..core import IndexStoreError, InputError, Passage, locked, write_atomic
from .corpus import CorpusFingerprint, checked_passages, passage_line, read_corpus
from .encoder import Encoder
from .manifest import Manifest, is_index, list_files, read_manifest, write_manifest
from .store import (
    CHUNK,
    DTYPE,
    VECTORS,
    IndexStore,
    PassageFile,
    VectorStore,
    lengths_path,
    vectors_path,
    write_passages,
)

ENGINES = ("auto", "exact", "plaid")
NBITS = (1, 2, 4, 8)

EXACT_LIMIT = 2_000_000
"""Vectors up to which ``auto`` takes exact search: some 20,000 passages, a quarter of a second a query on two cores."""

_log = logging.getLogger(__name__)

_PLAN = "hopgate-plan.json"  # marks a folder as made here; goes last when one is removed
_VERSIONED = ("hopgate", "numpy", "torch", "transformers")

OnProgress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class _Request:
    """What a build was asked for."""

    path: Path
    encoder: Encoder
    engine: str
    nbits: int
    on_progress: OnProgress | None

    @property
    def part(self) -> Path:
        return self.path.with_name(f".{self.path.name}.hopgate-part")

    @property
    def old(self) -> Path:
        return self.path.with_name(f".{self.path.name}.hopgate-old")


def build_index(
    corpus: str | Path | Iterable[Passage],
    path: Path,
    encoder: Encoder,
    *,
    engine: str,
    nbits: int,
    on_progress: OnProgress | None,
) -> None:
    """Build an index folder, or leave it as it is if it already is what would be built.

    Args:
        corpus: A corpus file, see :func:`~hopgate.index.corpus.read_corpus`, or passages.
        path: The folder to make. An index of something else that lies there is replaced at the very end.
        encoder: Encoder with the checkpoint.
        engine: ``exact``, ``plaid``, or ``auto`` for exact up to :data:`EXACT_LIMIT` vectors.
        nbits: Bits per dimension that PLAID keeps of a residual.
        on_progress: Called with the number of passages encoded so far, and of all.

    Raises:
        InputError: An argument has no possible value.
        CorpusError: The corpus cannot be read, is empty, or holds something that is not a passage.
        IndexStoreError: The folder cannot be written, or holds something that is not an index.
        MissingDependencyError: PLAID was asked for and cannot run here.
        HopgateError: Another process is building the same index.
    """
    if engine not in ENGINES:
        raise InputError(f"engine must be one of {', '.join(ENGINES)}, got {engine!r}")
    if isinstance(nbits, bool) or not isinstance(nbits, int | np.integer) or nbits not in NBITS:
        raise InputError(f"nbits must be one of {', '.join(map(str, NBITS))}, got {nbits!r}")
    if not isinstance(corpus, str | Path | Iterable) or isinstance(corpus, bytes | Mapping):
        raise InputError(f"corpus must be the path of a file or passages, got a {type(corpus).__name__}")
    if engine == "plaid":
        from .colbert_ai import load_extensions

        load_extensions()  # Refused here, before hours of encoding.
    with _writing(path):
        _check_target(path)
    request = _Request(path, encoder, engine, int(nbits), on_progress)
    busy = f"{path}: another process is building this index; wait until it is done"
    with ExitStack() as held:
        with _writing(path):
            held.enter_context(locked(path.parent / f".{path.name}.hopgate-lock", busy=busy))
            for folder in (request.part, request.old):
                _check_ours(folder)
        _build(corpus, request)


def _check_target(path: Path) -> None:
    if not path.name:
        raise IndexStoreError(f"{path}: cannot be an index; name a folder that does not exist yet")
    if path.exists() and not path.is_dir():
        raise IndexStoreError(f"{path}: is a file; name a folder that does not exist yet")
    if path.is_dir() and any(path.iterdir()) and not is_index(path):
        raise IndexStoreError(f"{path}: exists and is not an index; name a folder that does not exist yet")


def _check_ours(folder: Path) -> None:
    """Refuse a folder that is neither made by a build nor empty, so that nobody's files are written over or removed."""
    if not os.path.lexists(folder):
        return
    ours = folder.is_dir() and not folder.is_symlink()
    if not ours or not ((folder / _PLAN).is_file() or is_index(folder) or not any(folder.iterdir())):
        raise IndexStoreError(
            f"{folder}: is in the way of building and was not made by hopgate; move it elsewhere or give the index "
            "another name"
        )


def _mark(folder: Path) -> Path:
    plan = folder / _PLAN
    plan.touch()  # at once, unlike an atomic write, which would leave a folder without a mark if it is killed
    return plan


def _remove(folder: Path) -> None:
    """Remove a folder of ours; its mark goes last, so that what is left of it after an interruption is ours still."""
    if not folder.is_dir():
        return
    _check_ours(folder)
    plan = _mark(folder)
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path != plan:
            path.unlink()
    plan.unlink()
    folder.rmdir()


def _build(corpus: str | Path | Iterable[Passage], request: _Request) -> None:
    part = request.part
    with _writing(part):
        part.mkdir(exist_ok=True)
        _mark(part)
        for leftover in part.rglob(".*.part"):
            leftover.unlink()
    try:
        fingerprint = _store_passages(corpus, part)
    except BaseException:
        if not (part / VECTORS).is_dir():
            with suppress(OSError, IndexStoreError):  # the first error is the one to tell
                _remove(part)
        raise
    present = _present(request, fingerprint)
    if present is not None and request.engine in ("auto", present.engine) and present.nbits in (None, request.nbits):
        with _writing(part):
            _remove(part)
        return
    passages = PassageFile(part)
    with _writing(part):
        _keep_or_drop_chunks(request, fingerprint, present)
    vectors = _encode(passages, request)
    with _writing(part):
        engine, reason = _make_engine(vectors, request)
        manifest = Manifest(
            engine=engine,
            engine_reason=reason,
            checkpoint=request.encoder.checkpoint.name,
            checkpoint_is_local=request.encoder.checkpoint.is_local,
            checkpoint_fingerprint=request.encoder.checkpoint.fingerprint,
            corpus_fingerprint=fingerprint,
            passages=len(passages),
            vectors=int(vectors.lengths.sum()),
            chunks=len(vectors.chunks),
            dim=request.encoder.dim,
            dtype=np.dtype(DTYPE).name,
            nbits=request.nbits if engine == "plaid" else None,
            versions=_versions(engine),
            files={name: file for name, file in list_files(part).items() if name != _PLAN},
        )
        write_manifest(part, manifest)
        _put_in_place(request)


def _store_passages(corpus: str | Path | Iterable[Passage], part: Path) -> str:
    """Check all passages before the first is encoded, and write them down; returns the corpus's fingerprint."""
    passages = read_corpus(corpus) if isinstance(corpus, str | Path) else _located(corpus)
    fingerprint = CorpusFingerprint()

    def lines() -> Iterator[str]:
        for passage in passages:
            line = passage_line(passage)
            fingerprint.add(line)
            yield line

    with _writing(part):
        write_passages(part, lines())
    return fingerprint.hexdigest()


def _located(passages: Iterable[Passage]) -> Iterator[Passage]:
    def pairs() -> Iterator[tuple[str, Passage]]:
        for number, passage in enumerate(passages):
            if not isinstance(passage, Passage):
                raise InputError(f"corpus[{number}] is a {type(passage).__name__}; give hopgate.core.Passage objects")
            yield f"corpus[{number}]", passage

    return checked_passages(pairs(), empty="the corpus holds no passages; give at least one")


def _present(request: _Request, fingerprint: str) -> Manifest | None:
    """The manifest of the index that is in place, if it is whole and of the same corpus and checkpoint."""
    if not is_index(request.path):
        return None
    try:
        manifest = read_manifest(request.path)
        IndexStore(request.path, manifest)
    except IndexStoreError:
        return None  # Damaged or of another format: build it anew.
    if manifest.engine not in ("exact", "plaid"):
        return None
    wanted = (fingerprint, request.encoder.checkpoint.fingerprint)
    return manifest if (manifest.corpus_fingerprint, manifest.checkpoint_fingerprint) == wanted else None


def _keep_or_drop_chunks(request: _Request, fingerprint: str, present: Manifest | None) -> None:
    part = request.part
    plan = {"checkpoint": request.encoder.checkpoint.fingerprint, "corpus": fingerprint, "chunk": CHUNK}
    try:
        kept = json.loads((part / _PLAN).read_text(encoding="utf-8")) == plan
    except (OSError, ValueError, RecursionError):
        kept = False
    if not kept:
        shutil.rmtree(part / VECTORS, ignore_errors=True)
        if present is not None:  # Only the engine changes: the vectors are there already.
            shutil.copytree(request.path / VECTORS, part / VECTORS)
        (part / VECTORS).mkdir(exist_ok=True)
        write_atomic(part / _PLAN, json.dumps(plan))


def _encode(passages: PassageFile, request: _Request) -> VectorStore:
    part, total = request.part, len(passages)
    chunks = -(-total // CHUNK)
    report = request.on_progress or (lambda done, total: None)
    for chunk in range(chunks):
        first, end = chunk * CHUNK, min((chunk + 1) * CHUNK, total)
        # The vectors are written last, so where they are the chunk is whole.
        if not vectors_path(part, chunk).is_file():
            texts = [passages[position].long_text for position in range(first, end)]
            arrays = request.encoder.encode_passages(
                texts, on_batch=lambda done, first=first: report(first + done, total)
            )
            with _writing(part):
                write_atomic(lengths_path(part, chunk), _npy(np.array([len(array) for array in arrays], np.int32)))
                write_atomic(vectors_path(part, chunk), _npy(np.concatenate(arrays).astype(DTYPE)))
        report(end, total)
    return VectorStore(part, chunks, request.encoder.dim)


def _make_engine(vectors: VectorStore, request: _Request) -> tuple[str, str]:
    """Build what the engine needs beside the vectors; returns its name and why it was taken."""
    count = int(vectors.lengths.sum())
    for unfinished in request.part.glob("plaid*"):
        shutil.rmtree(unfinished)
    if request.engine == "exact":
        return "exact", "asked for"
    if request.engine == "auto" and count <= EXACT_LIMIT:
        return "exact", f"{count:,} vectors, at most {EXACT_LIMIT:,}"
    from .plaid import build_plaid, plaid_obstacle

    if request.engine == "auto":
        obstacle = plaid_obstacle(count)
        if obstacle is not None:
            _log.warning("exact search in place of PLAID: %s", obstacle)
            return "exact", f"PLAID cannot run: {obstacle}"
    build_plaid(vectors, request.part / "plaid", nbits=request.nbits)
    return "plaid", "asked for" if request.engine == "plaid" else f"{count:,} vectors, more than {EXACT_LIMIT:,}"


def _versions(engine: str) -> dict[str, str]:
    names = (*_VERSIONED, "colbert-ai", "faiss-cpu") if engine == "plaid" else _VERSIONED
    found: dict[str, str] = {}
    for name in names:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue  # Run from a source tree, or faiss from another package.
    return found


def _npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def _put_in_place(request: _Request) -> None:
    path, old = request.path, request.old
    _check_target(path)  # hours may have passed
    _remove(old)
    replaced = is_index(path)
    if replaced:
        # A folder with content cannot be replaced by a rename; readers keep the files that they have mapped.
        path.rename(old)
    elif path.is_dir():
        path.rmdir()
    try:
        request.part.rename(path)
    except OSError:
        if replaced:
            old.rename(path)
        raise
    (path / _PLAN).unlink(missing_ok=True)
    with suppress(OSError):  # the index is there; what is left goes with the next build
        _remove(old)


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise IndexStoreError(
            f"{path}: cannot write the index ({reason}); make room or choose another folder, then start again: "
            "finished chunks are kept"
        ) from error
