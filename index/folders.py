"""The folders that building works in, beside the index: hidden, marked as ours, and never anybody else's.

``.<name>.hopgate-part`` holds a build that is under way, ``.<name>.hopgate-add`` passages that are being added,
``.<name>.hopgate-compact`` a compaction, ``.<name>.hopgate-old`` the index that is being replaced. Each carries a file
of ours, and a folder of these names without it is never touched.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path

from ..core import IndexStoreError, locked, user_path
from .manifest import foreign, is_index

_PATIENCE = 10.0
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")

PLAN = "hopgate-plan.json"
"""Marks a folder as made here, and says what its chunks belong to; goes last when a folder is removed."""


def index_folder(path: str | Path) -> Path:
    """Where an index lies: where a link leads, since what is replaced and locked is that, not the link.

    Raises:
        IndexStoreError: It is an address, or cannot be found out.
        InputError: It is no path.
    """
    if isinstance(path, str) and _ADDRESS.match(path):
        raise IndexStoreError(
            f"{path[:200]}: is an address, and a folder is needed here; servers, at addresses that begin with http:// "
            "or https://, can be searched only, with RemoteIndex or as the index of a command that searches"
        )
    try:
        return user_path(path).resolve()
    except FileNotFoundError as error:
        raise IndexStoreError(
            f"{str(path)[:200]}: the working folder does not exist any more, since it was removed or replaced; "
            "change to one that does"
        ) from error
    except (OSError, RuntimeError) as error:
        raise IndexStoreError(f"{str(path)[:200]}: is a link that leads nowhere; name another folder") from error


def beside(path: Path, kind: str) -> Path:
    """The hidden folder of a kind (``part``, ``add``, ``compact``, ``old``) beside an index."""
    return path.with_name(f".{path.name}.hopgate-{kind}")


@contextmanager
def held(path: Path, kinds: tuple[str, ...]) -> Iterator[None]:
    """Hold the lock of an index while the body changes it, with the hidden folders it will use checked.

    Raises:
        HopgateError: Another process is changing the index.
        IndexStoreError: The lock cannot be made, or a hidden folder is not ours.
    """
    with ExitStack() as stack:
        with writing(path):
            if path.exists() and not path.is_dir():
                raise IndexStoreError(f"{path}: is not a folder, and no index")  # before a lock is put beside it
            stack.enter_context(_lock(path))
            for kind in (*kinds, "old"):
                _check_ours(beside(path, kind))
            if os.path.ismount(path):
                raise IndexStoreError(f"{path}: is a mount point, which cannot be replaced; name a folder within it")
            _restore(path)
            if is_index(path):
                remove(beside(path, "old"))
        yield


def restore(path: Path) -> None:
    """Put the old index back where replacing it was killed between two renames, waiting for who replaces it just now.

    Raises:
        HopgateError: Another process keeps the lock.
    """
    if not os.path.exists(path) and is_index(beside(path, "old")):  # noqa: PTH110 - false, not an error, for any name
        with writing(path), _lock(path, timeout=_PATIENCE):
            _restore(path)


def _restore(path: Path) -> None:
    old = beside(path, "old")
    if not path.exists() and is_index(old):
        old.rename(path)


def _lock(path: Path, timeout: float = 0.0) -> AbstractContextManager[None]:
    busy = f"{path}: another process is building this index; wait until it is done"
    return locked(path.parent / f".{path.name}.hopgate-lock", timeout=timeout, busy=busy)


def check_target(path: Path) -> None:
    """Raise IndexStoreError unless an index can be put there."""
    if not path.name:
        raise IndexStoreError(f"{path}: cannot be an index; name a folder that does not exist yet")
    if path.exists() and not path.is_dir():
        raise IndexStoreError(
            f"{path}: is a file, device or pipe, and no folder; name a folder that does not exist yet"
        )
    if path.is_dir() and any(path.iterdir()) and not is_index(path):
        raise IndexStoreError(f"{path}: exists and is not an index; name a folder that does not exist yet")
    refuse_working_folder(path)
    other = foreign(path) if is_index(path) else None
    if other is not None:
        raise IndexStoreError(f"{path}: holds {other!r}, which is no part of an index; move it elsewhere")


def refuse_working_folder(path: Path) -> None:
    """Raise IndexStoreError if this process works in a folder that is to be replaced, or in one within it.

    A shell that the process was started from would be left in a folder that has no name any more.
    """
    try:
        here = Path.cwd()
    except OSError:
        return  # it is gone already
    if here.is_relative_to(path):
        within = "is the working folder" if here == path else f"holds the working folder, {here},"
        raise IndexStoreError(
            f"{path}: {within} and cannot be replaced while a shell is in it; name another folder, or start from "
            f"outside it (cd {path.parent})"
        )


def begin(folder: Path) -> None:
    """Make a hidden folder, or go on in it; files that were being written are cleared away."""
    with writing(folder):
        folder.mkdir(exist_ok=True)
        _mark(folder)
        for leftover in folder.rglob(".*.part"):
            leftover.unlink()


def remove(folder: Path) -> None:
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


def put_in_place(part: Path, path: Path) -> None:
    """Make a finished folder the index, in place of the one that may be there."""
    old = beside(path, "old")
    check_target(path)  # hours may have passed
    remove(old)
    replaced = is_index(path)
    if replaced:
        # A folder with content cannot be replaced by a rename; readers keep the files that they have mapped.
        path.rename(old)
    elif path.is_dir():
        path.rmdir()
    try:
        part.rename(path)
    except OSError:
        if replaced:
            old.rename(path)
        raise
    (path / PLAN).unlink(missing_ok=True)
    with suppress(OSError, IndexStoreError):  # the index is there; what is left goes with the next build
        remove(old)


def refuse_links(path: Path) -> None:
    """Raise IndexStoreError if something in an index leads elsewhere, where an update must not write or remove."""
    for folder in (path, path / "added"):
        for entry in folder.iterdir() if folder.is_dir() else ():
            if entry.is_symlink():
                raise IndexStoreError(f"{entry}: is a link that may lead out of the index; build the index again")


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an error of the file system into one that says what to do."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        remedy = "make room or choose another folder" if full else "choose a folder that can be written"
        raise IndexStoreError(
            f"{path}: cannot write the index ({reason}); {remedy}, then start again: finished chunks are kept"
        ) from error


def _check_ours(folder: Path) -> None:
    """Refuse a folder that is neither made by a build nor empty, so that nobody's files are written over or removed."""
    if not os.path.lexists(folder):
        return
    ours = folder.is_dir() and not folder.is_symlink()
    if not ours or not ((folder / PLAN).is_file() or is_index(folder) or not any(folder.iterdir())):
        raise IndexStoreError(
            f"{folder}: is in the way of building and was not made by hopgate; move it elsewhere or give the index "
            "another name"
        )


def _mark(folder: Path) -> Path:
    plan = folder / PLAN
    plan.touch()  # at once, unlike an atomic write, which would leave a folder without a mark if it is killed
    return plan
