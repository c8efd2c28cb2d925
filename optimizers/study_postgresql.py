"""Studies in PostgreSQL, so that several machines work on one."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote, quote_plus

import optuna
import sqlalchemy
from optuna.storages import RDBStorage
from sqlalchemy.exc import ArgumentError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from ..core import HopgateError, InputError, MissingDependencyError
from .study_sampling import quiet
from .study_storage import Place

_ALL = 0x686F706761746500
"""The advisory lock that is held for each access: "hopgate" in ASCII, and a zero."""

_PATIENCE = 60
"""Seconds to wait for it; it is held for milliseconds."""

_SECRET = ("password", "passfile", "sslpassword", "sslkey")


class PostgreSQL(Place):
    """A database of PostgreSQL.

    Each worker keeps one connection that holds an advisory lock with its id as long as it lives: the server frees it
    when the connection ends, at once if the process was killed. If the machine is gone, TCP keepalives tell the server.
    A connection pool between worker and server must therefore work per session (PgBouncer: ``session``).

    Args:
        url: ``postgresql://user:password@host/database``. The password may be left to ``~/.pgpass`` or ``PGPASSWORD``.
        stale_after: Seconds after which a worker whose machine is gone counts as dead.

    Raises:
        HopgateError: Another process keeps the database locked.
        InputError: The URL cannot be used, or the database cannot be reached or is of another version of Optuna.
        MissingDependencyError: psycopg is not installed.
    """

    def __init__(self, url: str, stale_after: float) -> None:
        super().__init__()
        try:
            self._url = sqlalchemy.make_url(url).set(drivername="postgresql+psycopg")
        except (ArgumentError, ValueError):  # their messages may quote the password
            raise InputError(
                "the URL of the database cannot be read; write postgresql://user:password@host:port/database, with "
                "special characters of the password as %XX"
            ) from None
        self.name = _shown(self._url)
        self._stale_after = stale_after
        self._lock = threading.RLock()
        self._depth = 0
        self._connection: sqlalchemy.Connection | None = None
        arguments = {"connect_timeout": 10, "keepalives_idle": max(1, int(stale_after / 2))}
        try:
            self._engine = sqlalchemy.create_engine(
                self._url, poolclass=NullPool, isolation_level="AUTOCOMMIT", connect_args=arguments
            )
        except ImportError:
            raise MissingDependencyError(
                "a study in PostgreSQL needs psycopg; install it with: pip install 'hopgate[postgresql]'"
            ) from None
        try:
            with self.exclusive():
                text = self._url.render_as_string(hide_password=False)
                level = logging.getLogger("alembic").level
                try:
                    with quiet():
                        rdb = RDBStorage(text, engine_kwargs={"pool_pre_ping": True, "connect_args": arguments})
                finally:
                    logging.getLogger("alembic").setLevel(level)  # Optuna sets it
                self.storage = optuna.storages.get_storage(rdb)
                self._rdb = rdb
        except HopgateError as error:
            self._drop()
            raise InputError(str(error)) from None
        except RuntimeError as error:
            self._drop()
            raise InputError(f"{self.name}: {self._without_secrets(error)}") from None
        except BaseException:
            self._drop()
            raise

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """As of :class:`~.study_storage.Place`. A lost connection is made again."""
        with self._lock:
            if self._depth:
                yield
                return
            self._depth += 1
            try:
                with self._explained():
                    connection = self._connected()
                    connection.execute(sqlalchemy.select(sqlalchemy.func.pg_advisory_lock(_ALL)))
                    try:
                        yield
                    finally:
                        with contextlib.suppress(SQLAlchemyError):  # the lock ends with a broken connection
                            connection.execute(sqlalchemy.select(sqlalchemy.func.pg_advisory_unlock(_ALL)))
            finally:
                self._depth -= 1

    def _connected(self) -> sqlalchemy.Connection:
        if self._connection is not None:
            try:
                self._connection.execute(sqlalchemy.select(1))
                return self._connection
            except SQLAlchemyError:
                self._drop_connection()
        connection = self._engine.connect()
        self._connection = connection
        idle = max(1, int(self._stale_after / 2))
        for name, value in (
            ("lock_timeout", f"{_PATIENCE}s"),
            ("idle_session_timeout", "0"),
            ("tcp_keepalives_idle", str(idle)),
            ("tcp_keepalives_interval", str(max(1, idle // 5))),
            ("tcp_keepalives_count", "5"),
        ):
            connection.execute(sqlalchemy.select(sqlalchemy.func.set_config(name, value, False)))
        if not self._try(int(self.worker)):
            raise HopgateError(f"{self.name}: the connection was lost, and the server has not noticed yet; try again")
        return connection

    def _try(self, key: int) -> bool:
        if self._connection is None:
            return False
        return bool(self._connection.scalar(sqlalchemy.select(sqlalchemy.func.pg_try_advisory_lock(key))))

    def alive(self, worker: str) -> bool:
        """As of :class:`~.study_storage.Place`."""
        if worker == self.worker:
            return True
        if not self._try(int(worker)):
            return True
        if self._connection is not None:
            self._connection.execute(sqlalchemy.select(sqlalchemy.func.pg_advisory_unlock(int(worker))))
        return False

    def close(self) -> None:
        """As of :class:`~.study_storage.Place`."""
        with self._lock:
            self._drop()

    def _drop(self) -> None:
        self._drop_connection()
        rdb = getattr(self, "_rdb", None)
        if rdb is not None:
            rdb.remove_session()
            rdb.engine.dispose()

    def _drop_connection(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(SQLAlchemyError):
                connection.invalidate()
            connection.close()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        # Errors of the database are told without the URL, and without those they came from.
        try:
            yield
        except (SQLAlchemyError, optuna.exceptions.StorageInternalError) as error:
            cause = error if isinstance(error, SQLAlchemyError) else error.__cause__ or error
            cause = getattr(cause, "orig", None) or cause
            raise HopgateError(f"{self.name}: {self._without_secrets(cause)}") from None

    def _without_secrets(self, error: BaseException) -> str:
        text = (str(error).strip() or type(error).__name__).splitlines()[0]
        secrets = [self._url.password, *(self._url.query.get(name) for name in _SECRET)]
        for secret in secrets:
            for form in {secret, quote(secret, safe=""), quote_plus(secret)} if isinstance(secret, str) else ():
                text = text.replace(form, "***") if form else text
        return text


def _shown(url: sqlalchemy.URL) -> str:
    """A URL without user, password and options."""
    host: Any = url.host or url.query.get("host") or "localhost"
    port = f":{url.port}" if url.port else ""
    return f"postgresql://{host if isinstance(host, str) else ','.join(host)}{port}/{url.database or ''}"
