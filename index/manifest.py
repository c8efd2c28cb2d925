"""The manifest: what an index folder holds, made with what, and the checksums of its files."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, fields
from pathlib import Path, PurePosixPath
from typing import Any

from ..core import IndexStoreError, sha256_file, sha256_of, write_atomic

FORMAT = 2
"""Version of the folder's layout; a reader refuses others."""

NAME = "manifest.json"
"""File name of the manifest within an index folder."""

_REBUILD = "build the index again"

_ADDED = re.compile(r"added/\d{4,9}")
_DELETED = re.compile(r"deleted-\d{4,9}\.npy")
_LEXICAL = re.compile(r"lexical-\d{4,9}")
_OURS = re.compile(
    rf"manifest\.json|passages\.(jsonl|offsets\.npy)|vectors|plaid|added|hopgate-plan\.json|\..*\.part"
    rf"|{_DELETED.pattern}|{_LEXICAL.pattern}"
)


@dataclass(frozen=True, slots=True)
class Manifest:
    """The content of ``manifest.json``. Holds no absolute path and no name of the machine.

    Attributes:
        engine: ``exact`` or ``plaid``.
        engine_reason: Why that engine was taken.
        checkpoint: Name of the checkpoint.
        checkpoint_is_local: Whether the checkpoint was a folder, which has to be named again when opening.
        checkpoint_fingerprint: See :class:`~hopgate.index.checkpoint.Checkpoint`.
        corpus_fingerprint: See :class:`~hopgate.index.corpus.CorpusFingerprint`.
        passages: Number of passages that can be found.
        vectors: Number of token vectors, those of deleted passages included.
        segments: What was built at once: ``folder`` (relative; "." for the first), and the numbers of ``passages`` and
            of ``chunks``, which are files of vectors.
        deleted: The file with the positions of deleted passages, if there are any.
        hybrid: Whether searches are fused with BM25.
        lexical: The folder of the BM25 index; ``None`` if there is none, or no words.
        revision: Number of updates since the index was built.
        dim: Dimensions of a vector.
        dtype: Type of the stored numbers.
        precision: Type of the numbers that the encoder calculated with.
        nbits: Bits per dimension of compressed residuals; ``None`` for exact search.
        versions: Versions of the packages that made the index.
        files: For each file, its path relative to the folder, size in bytes and SHA-256.
        format: Version of the layout.
    """

    engine: str
    engine_reason: str
    checkpoint: str
    checkpoint_is_local: bool
    checkpoint_fingerprint: str
    corpus_fingerprint: str
    passages: int
    vectors: int
    segments: list[dict[str, Any]]
    deleted: str | None
    hybrid: bool
    lexical: str | None
    revision: int
    dim: int
    dtype: str
    precision: str
    nbits: int | None
    versions: dict[str, str]
    files: dict[str, dict[str, Any]]
    format: int = FORMAT

    @property
    def size(self) -> int:
        """Bytes of all files, the manifest aside."""
        return sum(file["bytes"] for file in self.files.values())


def list_files(folder: Path, *, under: str = ".") -> dict[str, dict[str, Any]]:
    """Size in bytes and SHA-256 of every file below a folder; the manifest is left out.

    Args:
        folder: The folder.
        under: Where it lies in the index; paths begin with it.
    """
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != NAME)
    return {(PurePosixPath(under) / path.relative_to(folder).as_posix()).as_posix(): file_entry(path) for path in paths}


def file_entry(path: Path) -> dict[str, Any]:
    """What a manifest says of a file: size in bytes and SHA-256."""
    return {"bytes": path.stat().st_size, "sha256": sha256_file(path)}


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest of a folder whose files are complete."""
    write_atomic(folder / NAME, json.dumps(asdict(manifest), indent=1, sort_keys=True) + "\n")


def is_index(folder: Path) -> bool:
    """Whether a folder holds an index of ours, of any format and whatever its state.

    A file called manifest.json alone does not make one: many programs have such files.
    """
    try:
        if not (folder / NAME).is_file():
            return False
        if (folder / "passages.offsets.npy").is_file() and (folder / "vectors").is_dir():
            return True
        record = json.loads((folder / NAME).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(record, dict) and {"format", "corpus_fingerprint", "checkpoint_fingerprint"} <= set(record)


def is_newer(form: Any) -> bool:
    """Whether a manifest's ``format`` is one of versions of hopgate to come."""
    return isinstance(form, int) and not isinstance(form, bool) and form > FORMAT


def foreign(folder: Path) -> str | None:
    """The name of something in the folder of an index that is no part of one; ``None`` if there is nothing."""
    return next((path.name for path in sorted(folder.iterdir()) if not _OURS.fullmatch(path.name)), None)


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest and check that the files it lists are there with the right sizes.

    Raises:
        IndexStoreError: The folder is missing, is not an index, is of another format, or is incomplete or damaged.
    """
    path = folder / NAME
    try:
        if not folder.is_dir():
            raise IndexStoreError(f"{folder}: no such index folder; build it first")
        if not path.is_file():
            raise IndexStoreError(f"{folder}: has no {NAME}, so it is not a finished index; build it first")
    except OSError as error:
        raise IndexStoreError(f"{folder}: cannot be read ({error.strerror}); check the path") from error
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise IndexStoreError(f"{path}: cannot be read as JSON ({error}); {_REBUILD}") from error
    if not isinstance(record, dict) or "format" not in record:
        raise IndexStoreError(f"{path}: not a manifest of hopgate; {_REBUILD}")
    if is_newer(record["format"]):
        raise IndexStoreError(
            f"{path}: `format` is {record['format']!r}, which is newer than the {FORMAT} that this version of hopgate "
            "reads; install a newer hopgate"
        )
    if record["format"] != FORMAT:
        raise IndexStoreError(
            f"{path}: `format` is {record['format']!r} and this version of hopgate reads {FORMAT}; {_REBUILD}"
        )
    _check_fields(path, record)
    manifest = Manifest(**record)
    for name, expected in manifest.files.items():
        _check_size(folder, name, expected)
    return manifest


def verify_files(folder: Path, manifest: Manifest, *, again: bool = False) -> None:
    """Compare all files with the manifest's checksums.

    Args:
        folder: The index folder.
        manifest: Its manifest.
        again: Read every file in full; otherwise a large file that has not changed since its last check, by its size
            and time of change, is not read.

    Raises:
        IndexStoreError: A file is missing, cannot be read or is not the one that was built.
    """
    digest = sha256_file if again else sha256_of
    for name, expected in manifest.files.items():
        _check_size(folder, name, expected)
        try:
            found = digest(folder / name)
        except OSError as error:
            raise IndexStoreError(f"{folder / name}: cannot be read ({error.strerror}); {_REBUILD}") from error
        if found != expected["sha256"]:
            raise IndexStoreError(f"{folder / name}: does not have the checksum of the manifest; {_REBUILD}")


def _check_fields(path: Path, record: dict[str, Any]) -> None:
    kinds = {
        "str": str,
        "int": int,
        "bool": bool,
        "int | None": (int, type(None)),
        "str | None": (str, type(None)),
        "list[dict[str, Any]]": list,
    }
    for field in fields(Manifest):
        if field.name not in record:
            raise IndexStoreError(f"{path}: `{field.name}` is missing; {_REBUILD}")
        kind = kinds.get(str(field.type), dict)
        value = record[field.name]
        if not isinstance(value, kind) or (kind is not bool and isinstance(value, bool)):
            raise IndexStoreError(f"{path}: `{field.name}` is {value!r}; {_REBUILD}")
        least = 0 if field.name == "revision" else 1
        if kind is int and value < least:
            raise IndexStoreError(f"{path}: `{field.name}` is {value} and must be at least {least}; {_REBUILD}")
    unknown = sorted(set(record) - {field.name for field in fields(Manifest)})
    if unknown:
        raise IndexStoreError(f"{path}: unknown field `{unknown[0]}`; {_REBUILD}")
    if not record["segments"]:
        raise IndexStoreError(f"{path}: `segments` is empty; {_REBUILD}")
    for number, segment in enumerate(record["segments"]):
        whole = isinstance(segment, dict) and set(segment) == {"folder", "passages", "chunks"}
        counts = whole and all(type(segment[key]) is int and segment[key] > 0 for key in ("passages", "chunks"))
        folder = segment["folder"] if counts else None
        named = folder == "." if number == 0 else isinstance(folder, str) and _ADDED.fullmatch(folder) is not None
        if not named or folder in [other["folder"] for other in record["segments"][:number]]:
            raise IndexStoreError(f"{path}: `segments` holds {segment!r:.80}; {_REBUILD}")
    # These are removed when an update replaces them, so no other name will do.
    for field, form in (("deleted", _DELETED), ("lexical", _LEXICAL)):
        if record[field] is not None and not form.fullmatch(record[field]):
            raise IndexStoreError(f"{path}: `{field}` is {record[field]!r:.80}; {_REBUILD}")
    for name in record["files"]:
        # A path that leads out of the folder would have another file read in place of the index's own.
        pure = PurePosixPath(name)
        if pure.is_absolute() or ".." in pure.parts or "\\" in name:
            raise IndexStoreError(f"{path}: names {name!r}, which is not inside the folder; {_REBUILD}")
    for name, file in record["files"].items():
        if not isinstance(file, dict) or not isinstance(file.get("bytes"), int) or "sha256" not in file:
            raise IndexStoreError(f"{path}: `files` has no size and checksum for {name!r}; {_REBUILD}")


def _check_size(folder: Path, name: str, expected: dict[str, Any]) -> None:
    path = folder / name
    try:
        if not path.is_file():
            raise IndexStoreError(f"{path}: is missing; {_REBUILD}")
        if path.is_symlink() or not path.resolve().is_relative_to(folder.resolve()):
            raise IndexStoreError(f"{path}: is a link that may lead out of the index; {_REBUILD}")
        size = path.stat().st_size
    except (OSError, RuntimeError) as error:
        raise IndexStoreError(f"{str(path)[:200]}: cannot be read ({error!s:.100}); {_REBUILD}") from error
    if size != expected["bytes"]:
        raise IndexStoreError(f"{path}: has {size:,} bytes and should have {expected['bytes']:,}; {_REBUILD}")
