"""Files that are either complete or not there: atomic replacement, locks, checksums, the cache folder."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import filelock
import platformdirs

from .errors import HopgateError


def cache_dir() -> Path:
    """The folder for weights and derived files: ``$HOPGATE_CACHE``, or the user's cache folder. Not created here."""
    configured = os.environ.get("HOPGATE_CACHE")
    return Path(configured).expanduser() if configured else Path(platformdirs.user_cache_dir("hopgate", False))


def sha256_file(path: Path) -> str:
    """SHA-256 of a file as lower-case hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256_of(path: Path) -> str:
    """SHA-256 of a file, remembered in the cache folder until its size or modification time changes.

    For large files that are opened often, such as weights: hashing a gigabyte at each start would be felt.

    Raises:
        OSError: The file cannot be read.
    """
    resolved = path.resolve()
    status = resolved.stat()
    known = {"path": str(resolved), "size": status.st_size, "mtime_ns": status.st_mtime_ns}
    note = cache_dir() / "digests" / f"{hashlib.sha256(str(resolved).encode()).hexdigest()[:32]}.json"
    try:
        record = json.loads(note.read_text())
        if all(record.get(key) == value for key, value in known.items()) and isinstance(record.get("sha256"), str):
            return record["sha256"]
    except (OSError, ValueError, AttributeError):
        pass  # No usable note: hash the file, and write one.
    digest = sha256_file(resolved)
    with contextlib.suppress(OSError):  # A cache folder that cannot be written costs time, nothing else.
        write_atomic(note, json.dumps({**known, "sha256": digest}))
    return digest


def write_atomic(path: Path, data: bytes | str) -> None:
    """Write a file so that a reader sees the old content or the new one, never a part.

    Args:
        path: The file to write; its folder is created.
        data: The content; text is written as UTF-8.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    content = data.encode() if isinstance(data, str) else data
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(0o666 & ~_umask())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _umask() -> int:
    # The mask can only be read by setting it.
    current = os.umask(0)
    os.umask(current)
    return current


@contextmanager
def locked(path: Path, *, timeout: float = 0.0, busy: str) -> Iterator[None]:
    """Hold an inter-process lock while the body runs.

    Args:
        path: The lock file; created, and left in place.
        timeout: Seconds to wait for the lock.
        busy: The message of the error if another process holds it.

    Raises:
        HopgateError: Another process holds the lock.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with filelock.FileLock(path, timeout=timeout):
            yield
    except filelock.Timeout as error:
        raise HopgateError(busy) from error
