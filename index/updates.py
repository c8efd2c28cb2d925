"""Changing an index that is there: passages are added and deleted without a rebuild, and what piles up is compacted.

Files of an index are written once and never changed. An update adds files, and takes effect when the manifest is
replaced; one that was killed before has no effect, and adding goes on where it stopped. Who has the index open keeps
what was there.
"""

from __future__ import annotations

import hashlib
import io
import shutil
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np

from ..core import CorpusError, IndexStoreError, InputError, Passage, write_atomic
from .build import Request, finish, make_lexical
from .chunks import OnProgress, copy_chunks, encode_chunks, keep_or_drop_chunks, other_work, store_passages
from .encoder import Encoder
from .folders import PLAN, begin, beside, held, refuse_links, refuse_working_folder, remove, writing
from .manifest import Manifest, file_entry, list_files, read_manifest, write_manifest
from .store import VECTORS, IndexStore, PassageFile, VectorStore


def add_passages(
    path: Path, corpus: str | Path | Iterable[Passage], encoder: Encoder, on_progress: OnProgress | None
) -> None:
    """Add passages to an index.

    Raises:
        InputError: The corpus is neither a path nor passages.
        CorpusError: The corpus cannot be read, is empty, or holds an id that the index has.
        IndexStoreError: The index cannot be read or written, or adding other passages was interrupted.
        HopgateError: Another process is changing the index.
    """
    part = beside(path, "add")
    with held(path, ("add",)):
        store = _opened(path, encoder)
        begin(part)
        try:
            fingerprint = store_passages(corpus, part)
            other = other_work(part, encoder, fingerprint)
            if _are_there(path, store, PassageFile(part)):
                if other is None:
                    remove(part)
                return
            if other is not None:
                raise IndexStoreError(
                    f"{path}: adding that was interrupted is kept; it {other}; finish it with its own passages first, "
                    f"or remove {part} to drop it"
                )
        except BaseException:
            if not (part / VECTORS).is_dir():
                with suppress(OSError, IndexStoreError):  # the first error is the one to tell
                    remove(part)
            raise
        with writing(part):
            keep_or_drop_chunks(part, encoder, fingerprint)
        chunks = encode_chunks(part, encoder, on_progress)
        revision = store.manifest.revision + 1
        folder = f"added/{revision:04d}"
        count = len(PassageFile(part))
        with writing(path):
            shutil.rmtree(path / folder, ignore_errors=True)  # left by an update that was killed
            (path / folder).parent.mkdir(exist_ok=True)
            part.rename(path / folder)
            (path / folder / PLAN).unlink()
            vectors = VectorStore([(path / folder, chunks)], encoder.dim)
            segment = {"folder": folder, "passages": count, "chunks": chunks}
            manifest = replace(
                store.manifest,
                segments=[*store.manifest.segments, segment],
                vectors=store.manifest.vectors + int(vectors.lengths.sum()),
                passages=store.manifest.passages + count,
                corpus_fingerprint=_chained(store.manifest.corpus_fingerprint, "add", fingerprint),
            )
            if manifest.hybrid:
                everything = (store[position] for position in range(len(store)))
                lexical = make_lexical(chain(everything, PassageFile(path / folder)), path, revision)
                manifest = replace(manifest, lexical=lexical)
            _commit(path, store.manifest, manifest)


def delete_passages(path: Path, ids: Iterable[str], encoder: Encoder) -> None:
    """Delete passages from an index, by their ids.

    Raises:
        InputError: There is no passage with one of the ids, or none would be left.
        IndexStoreError: The index cannot be read or written.
        HopgateError: Another process is changing the index.
    """
    with held(path, ()):
        store = _opened(path, encoder)
        wanted = sorted(set(ids))
        positions: list[int] = []
        for identifier in wanted:
            position = store.position(identifier)
            if position is None:
                raise InputError(f"no passage with id {identifier!r} in {path}")
            positions.append(position)
        if not positions:
            return
        left = store.manifest.passages - len(positions)
        if not left:
            raise InputError(f"{path}: no passage would be left; remove the folder instead")
        before = np.zeros(0, np.int64) if store.live is None else np.flatnonzero(~store.live)
        deleted = np.union1d(before, np.array(positions, np.int64))
        name = f"deleted-{store.manifest.revision + 1:04d}.npy"
        buffer = io.BytesIO()
        np.save(buffer, deleted, allow_pickle=False)
        manifest = replace(
            store.manifest,
            deleted=name,
            passages=left,
            corpus_fingerprint=_chained(store.manifest.corpus_fingerprint, "delete", *wanted),
        )
        with writing(path):
            write_atomic(path / name, buffer.getvalue())
            _commit(path, store.manifest, manifest)


def compact_index(path: Path, encoder: Encoder, on_progress: OnProgress | None) -> None:
    """Rewrite an index so that it holds its passages in one piece, without those that were deleted.

    Nothing is encoded again. PLAID is built anew of all passages.

    Raises:
        IndexStoreError: The index cannot be read or written.
        MissingDependencyError: The index needs PLAID, which cannot run here.
        HopgateError: Another process is changing the index.
    """
    part = beside(path, "compact")
    with held(path, ("compact",)):
        store = _opened(path, encoder)
        manifest = store.manifest
        with writing(part):
            remove(part)
        if manifest.deleted is None and len(manifest.segments) == 1:
            return
        refuse_working_folder(path)
        begin(part)
        fingerprint = store_passages(store, part)
        chunks = copy_chunks(store, part, on_progress)
        engine, nbits = "auto", manifest.nbits or 2
        if manifest.engine_reason == "asked for":
            engine = "plaid" if manifest.engine == "plaid" and _fits_plaid(part, chunks, encoder) else "exact"
        request = Request(path, encoder, engine, nbits, manifest.hybrid)
        finish(part, request, fingerprint, chunks)


def _are_there(path: Path, store: IndexStore, passages: Iterable[Passage]) -> bool:
    """Whether all passages are in the index just so: added by a process that was killed before it could say so.

    Raises:
        CorpusError: The index has some of their ids, for other passages or not for all.
    """
    equal, new, taken = 0, 0, None
    for passage in passages:
        position = store.position(passage.id)
        if position is None:
            new += 1
        elif store[position] == passage:
            equal += 1
            taken = taken or passage.id
        else:
            taken, new = passage.id, new + 1
    if taken is not None and new:
        raise CorpusError(f"{path}: has a passage with the id {taken!r} already; delete it first to replace it")
    return new == 0


def _opened(path: Path, encoder: Encoder) -> IndexStore:
    manifest = read_manifest(path)
    refuse_links(path)
    if manifest.checkpoint_fingerprint != encoder.checkpoint.fingerprint:
        raise IndexStoreError(f"{path}: was built again with another checkpoint since it was opened; open it again")
    return IndexStore(path, manifest)


def _fits_plaid(part: Path, chunks: int, encoder: Encoder) -> bool:
    """Whether enough vectors are left for PLAID."""
    from .plaid_build import FEWEST_VECTORS

    return int(VectorStore([(part, chunks)], encoder.dim).lengths.sum()) >= FEWEST_VECTORS


def _chained(before: str, *steps: str) -> str:
    """A fingerprint of what an index holds after a step; equal to that of no corpus."""
    return hashlib.sha256("\0".join((before, *steps)).encode()).hexdigest()


def _commit(path: Path, before: Manifest, after: Manifest) -> None:
    """Let an update take effect, then clear away what only the state before it needed."""
    files = dict(before.files)
    for folder in [segment["folder"] for segment in after.segments[len(before.segments) :]]:
        files.update(list_files(path / folder, under=folder))
    if after.lexical != before.lexical:
        files = {name: file for name, file in files.items() if not name.startswith(f"{before.lexical}/")}
        if after.lexical is not None:
            files.update(list_files(path / after.lexical, under=after.lexical))
    if after.deleted is not None and after.deleted != before.deleted:
        files.pop(before.deleted or "", None)
        files[after.deleted] = file_entry(path / after.deleted)
    write_manifest(path, replace(after, revision=before.revision + 1, files=files))
    # Also what an update that was killed at this point has left.
    for entry in path.iterdir():
        if entry.name.startswith("lexical-") and entry.name != after.lexical:
            shutil.rmtree(entry, ignore_errors=True)
        elif entry.name.startswith("deleted-") and entry.name != after.deleted:
            with suppress(OSError):
                entry.unlink()
