"""The store: passages and their token vectors on disk, memory-mapped, in a folder that can be moved.

Layout::

    manifest.json
    passages.jsonl             one passage a line, in the order of the corpus
    passages.offsets.npy       int64 (passages + 1,): where each line starts, and the end of the file
    vectors/00000.npy          float16 (tokens, dim): the vectors of the first 512 passages, one after the other
    vectors/00000.lengths.npy  int32 (passages,): tokens of each of these passages
    vectors/00001.npy          ...
    plaid/                     what PLAID needs beside these vectors, if it is the engine
    lexical-0000/              the BM25 index of a hybrid index
    added/0001/                passages that were added later: the same files, without manifest and engine
    deleted-0002.npy           int64: positions of passages that were deleted

Files are written once and never changed: an update adds files and replaces the manifest, so that readers that are open
keep what they have.

Vectors lie in chunks, so that a build keeps what it has finished. Half precision costs nothing that can be seen in a
ranking (a rounding error of at most .0005 in a cosine) and halves the disk and the memory that search reads.
"""

from __future__ import annotations

import mmap
import threading
import types
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np
import ujson

from ..core import IndexStoreError, InputError, Passage
from .manifest import NAME, Manifest, verify_files

PASSAGES = "passages.jsonl"
OFFSETS = "passages.offsets.npy"
VECTORS = "vectors"
DTYPE = np.float16


def vectors_path(folder: Path, chunk: int) -> Path:
    """The file with the vectors of a chunk."""
    return folder / VECTORS / f"{chunk:05d}.npy"


def lengths_path(folder: Path, chunk: int) -> Path:
    """The file with the numbers of tokens of a chunk's passages."""
    return folder / VECTORS / f"{chunk:05d}.lengths.npy"


class PassageFile:
    """Random access to a file of passages; safe to use from several threads.

    Args:
        folder: The folder that holds ``passages.jsonl`` and its offsets.

    Raises:
        IndexStoreError: The files do not fit together.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / PASSAGES
        self._offsets = load_array(folder / OFFSETS)
        try:
            with self._path.open("rb") as file:
                self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:  # an empty file cannot be mapped
            raise IndexStoreError(f"{self._path}: cannot be read ({error}); build the index again") from error
        offsets = self._offsets
        whole = offsets.dtype == np.int64 and offsets.ndim == 1 and len(offsets) > 1
        if not whole or offsets[0] != 0 or offsets[-1] != len(self._bytes) or (np.diff(offsets) < 1).any():
            raise IndexStoreError(f"{folder / OFFSETS}: does not fit {PASSAGES}; build the index again")

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __getitem__(self, position: int) -> Passage:
        """The passage at a position from 0; raises IndexError beyond the end."""
        if not 0 <= position < len(self):
            raise IndexError(position)
        line = self._bytes[int(self._offsets[position]) : int(self._offsets[position + 1])]
        try:
            return Passage.from_dict(ujson.loads(line))
        except (ValueError, AttributeError, InputError) as error:
            raise IndexStoreError(f"{self._path}:{position + 1}: not a passage; build the index again") from error

    def __iter__(self) -> Iterator[Passage]:
        return (self[position] for position in range(len(self)))


class VectorStore:
    """The token vectors of passages, as memory-mapped chunks.

    Args:
        parts: Folders of vectors, one after the other, each with its number of chunks.
        dim: Dimensions of a vector.
        first: Number of the first chunk to read of each folder.

    Attributes:
        chunks: For each chunk a float16 array of shape (tokens, dim).
        firsts: int64 array of shape (chunks,): the position of each chunk's first passage.
        starts: For each chunk, where each of its passages starts in it.
        lengths: int64 array of shape (passages,): tokens of each passage.

    Raises:
        IndexStoreError: A file is missing or has the wrong shape.
    """

    def __init__(self, parts: Iterable[tuple[Path, int]], dim: int, *, first: int = 0) -> None:
        self.chunks: list[np.ndarray] = []
        lengths: list[np.ndarray] = []
        for folder, chunks in parts:
            for number in range(first, first + chunks):
                path = vectors_path(folder, number)
                vectors, tokens = load_array(path), load_array(lengths_path(folder, number))
                if tokens.dtype != np.int32 or tokens.ndim != 1 or not len(tokens) or int(tokens.min()) < 1:
                    raise IndexStoreError(
                        f"{lengths_path(folder, number)}: does not hold the lengths of passages; build the index again"
                    )
                if vectors.dtype != DTYPE or vectors.shape != (int(tokens.sum(dtype=np.int64)), dim):
                    raise IndexStoreError(f"{path}: does not fit its lengths and the manifest; build the index again")
                self.chunks.append(vectors)
                lengths.append(tokens)
        self.lengths = np.concatenate(lengths).astype(np.int64)
        self.starts = [np.concatenate([[0], np.cumsum(tokens[:-1], dtype=np.int64)]) for tokens in lengths]
        self.firsts = np.concatenate([[0], np.cumsum([len(tokens) for tokens in lengths[:-1]])]).astype(np.int64)

    def __getitem__(self, position: int) -> np.ndarray:
        """The vectors of one passage, float16 (tokens, dim)."""
        chunk = int(np.searchsorted(self.firsts, position, side="right")) - 1
        start = int(self.starts[chunk][position - int(self.firsts[chunk])])
        return self.chunks[chunk][start : start + int(self.lengths[position])]


class IndexStore:
    """An opened index folder: its manifest, passages and vectors, all files compared with their checksums.

    A passage's position counts through the segments, those of deleted passages included.

    Args:
        folder: The folder.
        manifest: Its manifest, checked.

    Attributes:
        live: For each position whether its passage was not deleted; ``None`` if none was.

    Raises:
        IndexStoreError: A file is missing or is not the one that was built, or the files do not fit together.
    """

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder = folder
        self.manifest = manifest
        for name in _needed(manifest):
            if name not in manifest.files:
                raise IndexStoreError(f"{folder / NAME}: `files` lacks {name!r}; build the index again")
        verify_files(folder, manifest)
        self._files = [PassageFile(folder / segment["folder"]) for segment in manifest.segments]
        self.vectors = VectorStore(
            [(folder / segment["folder"], segment["chunks"]) for segment in manifest.segments], manifest.dim
        )
        for file, segment in zip(self._files, manifest.segments, strict=True):
            if len(file) != segment["passages"]:
                raise IndexStoreError(f"{folder}: passages do not fit the manifest; build the index again")
        self._firsts = np.concatenate([[0], np.cumsum([len(file) for file in self._files])])
        if int(self._firsts[-1]) != len(self.vectors.lengths) or int(self.vectors.lengths.sum()) != manifest.vectors:
            raise IndexStoreError(f"{folder}: passages and vectors do not fit the manifest; build the index again")
        self.live = None if manifest.deleted is None else self._live(folder / manifest.deleted)
        if manifest.passages != (len(self) if self.live is None else int(self.live.sum())):
            raise IndexStoreError(f"{folder}: passages do not fit the manifest; build the index again")
        self._positions: dict[str, int] | None = None
        self._metadata: list[Mapping[str, Any]] | None = None
        self._reading = threading.Lock()

    def __len__(self) -> int:
        """Number of positions, those of deleted passages included."""
        return int(self._firsts[-1])

    def __getitem__(self, position: int) -> Passage:
        """The passage at a position, deleted or not; raises IndexError beyond the end."""
        if not 0 <= position < len(self):
            raise IndexError(position)
        segment = int(np.searchsorted(self._firsts, position, side="right")) - 1
        return self._files[segment][position - int(self._firsts[segment])]

    def __iter__(self) -> Iterator[Passage]:
        """The passages that were not deleted, in the order in which they came."""
        return (self[position] for position in range(len(self)) if self.live is None or self.live[position])

    def position(self, identifier: str) -> int | None:
        """The position of the passage with an id; ``None`` if there is none."""
        if self._positions is None:
            with self._reading:
                # Read on first use only: searching does not need it.
                if self._positions is None:
                    live = range(len(self)) if self.live is None else np.flatnonzero(self.live)
                    positions = {self[int(position)].id: int(position) for position in live}
                    if len(positions) != len(live):
                        raise IndexStoreError(f"{self.folder}: has an id twice; build the index again")
                    self._positions = positions
        return self._positions.get(identifier)

    def metadata(self) -> list[Mapping[str, Any]]:
        """The metadata at each position, read only; read from the folder on first use and kept."""
        if self._metadata is None:
            with self._reading:
                if self._metadata is None:
                    found = (self[position].metadata for position in range(len(self)))
                    self._metadata = [types.MappingProxyType(metadata) for metadata in found]
        return self._metadata

    def _live(self, path: Path) -> np.ndarray:
        deleted = load_array(path)
        if deleted.dtype != np.int64 or deleted.ndim != 1 or not len(deleted):
            raise IndexStoreError(f"{path}: does not hold positions; build the index again")
        if int(deleted.min()) < 0 or int(deleted.max()) >= len(self) or (np.diff(deleted) < 1).any():
            raise IndexStoreError(f"{path}: holds positions that are not there; build the index again")
        live = np.ones(len(self), bool)
        live[deleted] = False
        return live


def _needed(manifest: Manifest) -> Iterator[str]:
    """The files that opening an index reads."""
    for segment in manifest.segments:
        folder = Path(segment["folder"])
        yield from ((folder / name).as_posix() for name in (PASSAGES, OFFSETS))
        for chunk in range(segment["chunks"]):
            for path in (vectors_path, lengths_path):
                yield path(folder, chunk).as_posix()
    if manifest.deleted is not None:
        yield manifest.deleted
    if manifest.lexical is not None:
        from .lexical import FILES as LEXICAL

        yield from (f"{manifest.lexical}/{name}" for name in LEXICAL)
    if manifest.engine == "plaid":
        from .plaid import FILES

        yield from (f"plaid/{name}" for name in FILES)


def write_passages(folder: Path, lines: Iterable[str]) -> int:
    """Write lines of passages with their offsets; returns their number."""
    offsets = [0]
    with (folder / PASSAGES).open("wb") as file:
        for line in lines:
            offsets.append(offsets[-1] + file.write(line.encode() + b"\n"))
    np.save(folder / OFFSETS, np.array(offsets, np.int64))
    return len(offsets) - 1


def load_array(path: Path) -> np.ndarray:
    """Memory-map an array; never unpickles.

    Raises:
        IndexStoreError: The file is missing or not an array.
    """
    try:
        # Copy on write rather than read only, which torch warns about; nothing writes to it.
        array = np.load(path, mmap_mode="c", allow_pickle=False)
    except (OSError, ValueError, EOFError, MemoryError, ArithmeticError, SyntaxError, TokenError, TypeError) as error:
        reason = str(error).strip().split("\n")[0][:100]
        raise IndexStoreError(f"{path}: cannot be read as an array ({reason}); build the index again") from error
    if not isinstance(array, np.ndarray):
        raise IndexStoreError(f"{path}: holds several arrays and should hold one; build the index again")
    return array
