"""Files that are either complete or not there: atomic replacement, locks, checksums, the cache folder."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import filelock
import platformdirs

from .errors import HopgateError, InputError

_SMALL = 1 << 20  # bytes that are hashed as fast as a note about them is found
_FRESH_NS = 2_000_000_000  # a file changed so lately may change again without its time showing it


def user_path(path: str | Path) -> Path:
    """A path as a user gave it, with ``~`` or ``~name`` at its beginning replaced by the home folder.

    Raises:
        InputError: It is not a path, is empty, cannot be one on this machine, or its home folder is not known.
    """
    if isinstance(path, str) and not path:
        raise InputError("a path must not be empty; name a file or folder, or leave it out")
    try:
        expanded = Path(path).expanduser()
        encoded = os.fsencode(expanded)
    except RuntimeError as error:
        raise InputError(f"{path}: there is no such home folder; write the path without ~") from error
    except (TypeError, UnicodeError) as error:
        raise InputError(f"a path must be a string or a pathlib.Path, got {path!r}"[:200]) from error
    if b"\0" in encoded:
        raise InputError(f"a path must not hold a zero byte, got {str(path)!r}"[:200])
    return expanded


def cache_dir() -> Path:
    """The folder for weights and derived files: ``$HOPGATE_CACHE``, or the user's cache folder. Not created here.

    Raises:
        InputError: ``$HOPGATE_CACHE`` starts with the home folder of an unknown user.
    """
    configured = os.environ.get("HOPGATE_CACHE")
    if not configured:
        return Path(platformdirs.user_cache_dir("hopgate", False))
    try:
        return user_path(configured)
    except InputError as error:
        raise InputError(f"HOPGATE_CACHE: {error}") from error


def sha256_file(path: Path) -> str:
    """SHA-256 of a file as lower-case hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256_of(path: Path) -> str:
    """SHA-256 of a file, remembered in the cache folder until its size or modification time changes.

    For large files that are opened often, such as weights: hashing a gigabyte at each start would be felt. Small files
    are hashed each time, and so are those that were changed a moment ago.

    Raises:
        OSError: The file cannot be read.
        InputError: As for :func:`cache_dir`.
    """
    resolved = path.resolve()
    status = resolved.stat()
    if status.st_size <= _SMALL:
        return sha256_file(resolved)
    known = {"path": str(resolved), "size": status.st_size, "mtime_ns": status.st_mtime_ns}
    note = cache_dir() / "digests" / f"{hashlib.sha256(str(resolved).encode()).hexdigest()[:32]}.json"
    try:
        record = json.loads(note.read_text())
        if all(record.get(key) == value for key, value in known.items()) and isinstance(record.get("sha256"), str):
            return record["sha256"]
    except (OSError, ValueError, AttributeError, RecursionError):
        pass  # No usable note: hash the file, and write one.
    digest = sha256_file(resolved)
    if time.time_ns() - status.st_mtime_ns < _FRESH_NS:
        return digest
    with contextlib.suppress(OSError):  # A cache folder that cannot be written costs time, nothing else.
        write_atomic(note, json.dumps({**known, "sha256": digest}))
    return digest


def check_file(path: Path) -> None:
    """Refuse a path that no file may be written to: devices, pipes, sockets and folders are never replaced.

    Args:
        path: The file to write; it may be missing. A link is judged by what it leads to.

    Raises:
        InputError: Something is there that is no regular file.
    """
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return  # nothing is there, or the folder cannot be made, which writing tells
    if stat.S_ISDIR(mode):
        raise InputError(f"{path}: is a folder; name a file")
    if not stat.S_ISREG(mode):
        raise InputError(f"{path}: is a device, pipe or socket, which is not written to; name a file")


_REMEDIES = {
    errno.EACCES: "name a file in a folder that you may write to",
    errno.EPERM: "name a file in a folder that you may write to",
    errno.EROFS: "name a file in a folder that you may write to",
    errno.ENOSPC: "free some space, or name a file on another disk",
    errno.ENAMETOOLONG: "give the file a shorter name",
}


@contextmanager
def named_as(path: Path) -> Iterator[None]:
    """While the body runs, an ``OSError`` names this file, and what to do, rather than a helper file beside it.

    Args:
        path: The file that the user asked for.

    Raises:
        OSError: Of the same kind.
    """
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        reason = error.strerror or os.strerror(error.errno)
        remedy = _REMEDIES.get(error.errno, "name another file")
        raise OSError(error.errno, f"cannot be written ({reason}); {remedy}", str(path)) from error


def write_atomic(path: Path, data: bytes | str) -> None:
    """Write a file so that a reader sees the old content or the new one, never a part.

    Args:
        path: The file to write; its folder is created.
        data: The content; text is written as UTF-8.

    Raises:
        InputError: Something is there that is no regular file.
        OSError: The file cannot be written.
    """
    check_file(path)
    content = data.encode() if isinstance(data, str) else data
    with named_as(path):
        path.parent.mkdir(parents=True, exist_ok=True)
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
        InputError: Something is there that is no regular file.
        OSError: The lock file cannot be made or locked there.
    """
    check_file(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    # The lock library takes a folder that refuses files for a lock that is held.
    if not path.exists():
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o666))
    elif not os.access(path, os.R_OK | os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
    lock = filelock.FileLock(path, timeout=timeout)
    try:
        lock.acquire()
    except filelock.Timeout as error:
        raise HopgateError(busy) from error
    except NotImplementedError as error:  # a file system without locks
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK), str(path)) from error
    try:
        yield
    finally:
        lock.release()
