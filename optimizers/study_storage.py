"""Where studies are kept: a journal file or memory; with the locks that tell live workers from dead ones."""

from __future__ import annotations

import json
import os
import secrets
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from optuna.storages import BaseStorage, InMemoryStorage, JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock

from ..core import HopgateError, InputError, StateError, check_file, locked, user_path
from .study_address import is_address
from .study_sampling import quiet

_PATIENCE = 60.0
"""Seconds to wait for a lock that is held for milliseconds."""


class Place(ABC):
    """A storage as one worker sees it.

    Attributes:
        name: For messages; holds no secret.
        worker: The worker's id.
        storage: Optuna's storage.
    """

    name: str
    storage: BaseStorage

    def __init__(self) -> None:
        self.worker = str(secrets.randbits(62))

    @abstractmethod
    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Keep all other workers waiting while the body runs. May be nested.

        Raises:
            HopgateError: The storage cannot be used.
        """

    @abstractmethod
    def alive(self, worker: str) -> bool:
        """Whether a worker has the storage open; call it while holding :meth:`exclusive`."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the worker's lock."""


class Memory(Place):
    """A storage that ends with its process."""

    name = "memory"

    def __init__(self) -> None:
        super().__init__()
        self.storage = InMemoryStorage()
        self._lock = threading.RLock()

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """As of :class:`Place`."""
        with self._lock:
            yield

    def alive(self, worker: str) -> bool:
        """As of :class:`Place`."""
        return worker == self.worker

    def close(self) -> None:
        """As of :class:`Place`."""


class Journal(Place):
    """A journal file of Optuna: JSON Lines that are only ever appended to.

    Beside it lie ``.NAME.lock``, which is locked for each access, and for each worker ``.NAME.WORKER.worker``, which is
    locked as long as the worker lives: the operating system frees it when the process ends, however it ends. Workers on
    several machines need a file system that shares locks.

    Args:
        path: The file.

    Raises:
        HopgateError: Another process keeps the file locked.
        InputError: It is no regular file, or cannot be written.
        StateError: It is damaged; the message names the line.
    """

    def __init__(self, path: str | Path) -> None:
        super().__init__()
        self._path = user_path(path)
        self.name = str(self._path)
        check_file(self._path)
        self._lock = threading.RLock()
        self._depth = 0
        self._held = ExitStack()
        self._file: tuple[int, int] | None = None
        try:
            with self.exclusive():
                self._begin()
        except BaseException as error:
            self._held.close()
            if isinstance(error.__cause__, OSError):
                raise InputError(str(error)) from error
            raise

    def _begin(self) -> None:
        own = self._lock_of(self.worker)
        self._held.callback(own.unlink, missing_ok=True)
        self._held.enter_context(locked(own, busy=f"{own}: is locked"))
        start, end = f".{self._path.name}.", ".worker"
        for path in self._path.parent.iterdir():
            worker = path.name.removeprefix(start).removesuffix(end)
            if path.name == f"{start}{worker}{end}" and worker.isdecimal():
                self.alive(worker)  # removes what a dead one left
        _check_lines(self._path)
        try:
            with quiet():
                self.storage = JournalStorage(JournalFileBackend(str(self._path), lock_obj=_Lock(self)))
        except (ValueError, KeyError, TypeError, AttributeError, AssertionError) as error:
            raise _damaged(self._path, f"{type(error).__name__}: {error}") from error
        self._file = self._identity()

    def _identity(self) -> tuple[int, int]:
        status = self._path.stat()
        return status.st_dev, status.st_ino

    def _lock_of(self, worker: str) -> Path:
        return self._path.with_name(f".{self._path.name}.{worker}.worker")

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """As of :class:`Place`."""
        with self._lock, ExitStack() as stack:
            try:
                if not self._depth:
                    busy = (
                        f"{self._path}: another process keeps it locked since {_PATIENCE:g} seconds; end that process"
                    )
                    lock = self._path.with_name(f".{self._path.name}.lock")
                    stack.enter_context(locked(lock, timeout=_PATIENCE, busy=busy))
                    if self._file is not None and self._file != self._identity():
                        raise StateError(f"{self._path}: was replaced while the study was open; open it again")
                    self._cut()
                self._depth += 1
                try:
                    yield
                finally:
                    self._depth -= 1
            except OSError as error:
                what = error.strerror or str(error)
                raise HopgateError(f"{self._path}: cannot be used as a journal: {what}") from error

    def _cut(self) -> None:
        # Nobody else writes now: a last line without an end is of a worker that was killed while it wrote.
        if not self._path.exists():
            return
        with self._path.open("rb+") as file:
            end = file.seek(0, os.SEEK_END)
            keep = end
            while keep:
                start = max(0, keep - (1 << 16))
                file.seek(start)
                newline = file.read(keep - start).rfind(b"\n")
                if newline >= 0:
                    keep = start + newline + 1
                    break
                keep = start
            if keep < end:
                file.truncate(keep)

    def alive(self, worker: str) -> bool:
        """As of :class:`Place`. What a dead worker left is removed."""
        if worker == self.worker:
            return True
        path = self._lock_of(worker)
        if not path.exists():
            return False
        try:
            with locked(path, busy="alive"):
                path.unlink(missing_ok=True)
        except HopgateError:
            return True
        return False

    def close(self) -> None:
        """As of :class:`Place`."""
        self._held.close()


class _Lock(JournalFileOpenLock):
    """Optuna's own lock file would outlive a killed worker, and is taken from one that is slow."""

    def __init__(self, place: Journal) -> None:
        self._place = place
        self._stack = ExitStack()

    def acquire(self) -> bool:
        self._stack.enter_context(self._place.exclusive())
        return True

    def release(self) -> None:
        self._stack.close()


def _check_lines(path: Path) -> None:
    """Refuse a file that is no journal before anything is appended to it."""
    if not path.exists():
        return
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                entry = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise _damaged(path, f"line {number} is no JSON") from error
            if not isinstance(entry, dict) or not isinstance(entry.get("op_code"), int):
                raise _damaged(path, f"line {number} is no entry of a journal")


def _damaged(path: Path, what: str) -> StateError:
    return StateError(
        f"{path}: is no journal of Optuna or is damaged ({what}); restore a copy, or name another file to begin anew"
    )


def place_of(storage: str | Path | None, stale_after: float) -> Place:
    """Open a storage.

    Args:
        storage: A path of a journal file, a ``postgresql://`` URL, or ``None`` for memory.
        stale_after: Seconds after which a worker whose machine is gone counts as dead (PostgreSQL).

    Raises:
        HopgateError: As for each kind of storage.
        InputError: It looks like an address, and is none of PostgreSQL.
    """
    if storage is None:
        return Memory()
    if not is_address(storage):
        return Journal(storage)
    from .study_postgresql import PostgreSQL

    return PostgreSQL(str(storage), stale_after)
