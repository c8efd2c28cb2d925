"""Building an index: encode once, keep what is finished, and let the result appear whole.

The work goes on in a hidden folder beside the index, see :mod:`hopgate.index.folders`, whose chunks are kept as they
are finished, see :mod:`hopgate.index.chunks`. At the end the folder is renamed to that of the index.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from ..core import IndexStoreError, InputError, Passage
from .chunks import OnProgress, encode_chunks, keep_or_drop_chunks, other_work, store_passages
from .encoder import Encoder
from .estimate import OnEstimate, estimate_build
from .folders import PLAN, begin, beside, check_target, held, put_in_place, remove, writing
from .lexical import build_lexical
from .manifest import Manifest, list_files, write_manifest
from .present import Wanted, check_replacing, present_index
from .store import DTYPE, VECTORS, PassageFile, VectorStore

ENGINES = ("auto", "exact", "plaid")
NBITS = (1, 2, 4, 8)

EXACT_LIMIT = 1_000_000
"""Vectors up to which ``auto`` takes exact search: some 10,000 passages, a quarter of a second a query on two cores."""

_log = logging.getLogger(__name__)
_VERSIONED = ("hopgate", "numpy", "torch", "transformers")


@dataclass(frozen=True, slots=True)
class Request:
    """What a build was asked for."""

    path: Path
    encoder: Encoder
    engine: str
    nbits: int
    hybrid: bool
    on_progress: OnProgress | None = None
    on_estimate: OnEstimate | None = None
    replace: bool = False


def build_index(corpus: str | Path | Iterable[Passage], request: Request) -> None:
    """Build an index folder, or leave it as it is if it already is what would be built.

    Args:
        corpus: A corpus, see :func:`~hopgate.index.corpus.read_corpus`, or passages.
        request: The folder to make, and how; see :meth:`~hopgate.index.colbert_index.ColBERTIndex.build`.

    Raises:
        InputError: An argument has no possible value.
        CorpusError: The corpus cannot be read, is empty, or holds something that is not a passage.
        IndexStoreError: The folder cannot be written, is the working folder, holds something that is not an index or,
            unless it is to be replaced, another index or work on one; or the disk is too small.
        MissingDependencyError: PLAID was asked for and cannot run here.
        HopgateError: Another process is building the same index.
    """
    engine, nbits, path = request.engine, request.nbits, request.path
    if engine not in ENGINES:
        raise InputError(f"engine must be one of {', '.join(ENGINES)}, got {engine!r}")
    if isinstance(nbits, bool) or not isinstance(nbits, int | np.integer) or nbits not in NBITS:
        raise InputError(f"nbits must be one of {', '.join(map(str, NBITS))}, got {nbits!r}")
    if not isinstance(corpus, str | Path | Iterable) or isinstance(corpus, bytes | Mapping):
        raise InputError(f"corpus must be the path of a file or passages, got a {type(corpus).__name__}")
    if engine == "plaid":
        from .colbert_ai import check_compiler
        from .plaid_build import nbits_fault

        # Refused here, before the corpus is read.
        fault = nbits_fault(request.encoder.dim, int(nbits))
        if fault is not None:
            raise InputError(fault)
        check_compiler()
    with writing(path):
        check_target(path)
    with held(path, ("part",)):
        _build(corpus, request)


def _build(corpus: str | Path | Iterable[Passage], request: Request) -> None:
    path, part, encoder = request.path, beside(request.path, "part"), request.encoder
    begin(part)
    try:
        fingerprint = store_passages(corpus, part)
        wanted, present = _wanted(request, fingerprint), present_index(path)
        is_there = present is not None and wanted.is_there(present)
        other = None if request.replace else other_work(part, encoder, fingerprint)
        if not is_there and not request.replace:
            check_replacing(path, wanted)
            if other is not None:
                raise IndexStoreError(
                    f"{path}: a build that was interrupted is kept there; it {other}; go on with that one, name "
                    "another folder, or drop it with replace=True"
                )
        if not is_there and request.engine == "plaid":
            _prepare_plaid(PassageFile(part), encoder)
    except BaseException:
        if not (part / VECTORS).is_dir():
            with suppress(OSError, IndexStoreError):  # the first error is the one to tell
                remove(part)
        raise
    if is_there:
        if other is None:
            with writing(part):
                remove(part)
        return
    has_vectors = present is not None and wanted.has_vectors(present)
    with writing(part):
        keep_or_drop_chunks(part, encoder, fingerprint, vectors=path / VECTORS if has_vectors else None)
    compressed = 0.0 if request.engine == "exact" else encoder.dim * request.nbits / 8 + 4
    estimate = estimate_build(part, encoder, compressed=compressed, hybrid=request.hybrid)
    if request.on_estimate is not None:
        request.on_estimate(estimate)
    chunks = encode_chunks(part, encoder, request.on_progress)
    finish(part, request, fingerprint, chunks)


def _prepare_plaid(passages: PassageFile, encoder: Encoder) -> None:
    """Refuse a corpus that is too small for PLAID, and have colbert-ai compiled, before hours of encoding."""
    from .colbert_ai import load_extensions
    from .plaid_build import FEWEST_VECTORS, size_fault

    tokens = 0
    for passage in passages:
        tokens += encoder.count_tokens([passage.long_text])  # at least as many as vectors
        if tokens >= FEWEST_VECTORS:
            break
    fault = size_fault(tokens)
    if fault is not None:
        raise InputError(fault)
    load_extensions()


def finish(part: Path, request: Request, fingerprint: str, chunks: int) -> None:
    """Turn a hidden folder whose chunks are whole into the index: engine, BM25, manifest, and the rename.

    Args:
        part: The hidden folder.
        request: What to build.
        fingerprint: Of the passages.
        chunks: Number of chunks.
    """
    vectors = VectorStore([(part, chunks)], request.encoder.dim)
    passages = PassageFile(part)
    with writing(part):
        engine, reason = _make_engine(vectors, part, request)
        lexical = make_lexical(passages, part, 0) if request.hybrid else None
        checkpoint = request.encoder.checkpoint
        manifest = Manifest(
            engine=engine,
            engine_reason=reason,
            checkpoint=checkpoint.name,
            checkpoint_is_local=checkpoint.is_local,
            checkpoint_fingerprint=checkpoint.fingerprint,
            corpus_fingerprint=fingerprint,
            passages=len(passages),
            vectors=int(vectors.lengths.sum()),
            segments=[{"folder": ".", "passages": len(passages), "chunks": chunks}],
            deleted=None,
            hybrid=request.hybrid,
            lexical=lexical,
            revision=0,
            dim=request.encoder.dim,
            dtype=np.dtype(DTYPE).name,
            precision=request.encoder.precision,
            nbits=request.nbits if engine == "plaid" else None,
            versions=_versions(engine, hybrid=request.hybrid),
            files={name: file for name, file in list_files(part).items() if name != PLAN},
        )
        write_manifest(part, manifest)
        put_in_place(part, request.path)


def make_lexical(passages: Iterable[Passage], folder: Path, revision: int) -> str | None:
    """Build the BM25 index within a folder; returns its name, or ``None`` if the passages hold no words."""
    name = f"lexical-{revision:04d}"
    shutil.rmtree(folder / name, ignore_errors=True)  # left by work that was killed
    return name if build_lexical(passages, folder / name) else None


def _wanted(request: Request, fingerprint: str) -> Wanted:
    encoder = request.encoder
    return Wanted(
        corpus_fingerprint=fingerprint,
        checkpoint_fingerprint=encoder.checkpoint.fingerprint,
        precision=encoder.precision,
        engine=request.engine,
        nbits=int(request.nbits),
        hybrid=request.hybrid,
    )


def _make_engine(vectors: VectorStore, part: Path, request: Request) -> tuple[str, str]:
    """Build what the engine needs beside the vectors; returns its name and why it was taken."""
    count = int(vectors.lengths.sum())
    for unfinished in part.glob("plaid*"):
        shutil.rmtree(unfinished)
    if request.engine == "exact":
        return "exact", "asked for"
    if request.engine == "auto" and count <= EXACT_LIMIT:
        return "exact", f"{count:,} vectors, at most {EXACT_LIMIT:,}"
    from .plaid_build import build_plaid, plaid_obstacle

    if request.engine == "auto":
        obstacle = plaid_obstacle(count, request.encoder.dim, request.nbits)
        if obstacle is not None:
            _log.warning("exact search in place of PLAID: %s", obstacle)
            return "exact", f"PLAID cannot run: {obstacle}"
    build_plaid(vectors, part / "plaid", nbits=request.nbits)
    return "plaid", "asked for" if request.engine == "plaid" else f"{count:,} vectors, more than {EXACT_LIMIT:,}"


def _versions(engine: str, *, hybrid: bool) -> dict[str, Any]:
    names = [*_VERSIONED]
    names += ["colbert-ai", "faiss-cpu"] if engine == "plaid" else []
    names += ["bm25s"] if hybrid else []
    return dict(_found(names))


def _found(names: Iterable[str]) -> Iterator[tuple[str, str]]:
    for name in names:
        with suppress(metadata.PackageNotFoundError):  # Run from a source tree, or faiss from another package.
            yield name, metadata.version(name)
