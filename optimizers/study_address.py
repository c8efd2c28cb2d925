"""Whether a study's storage is a file or an address, told without opening it or importing Optuna."""

from __future__ import annotations

import re
from pathlib import Path

from ..core import InputError, user_path

_SCHEME = re.compile(r"(?![A-Za-z]:[\\/](?![\\/]))[\w+.-]+:")
"""A word and a colon, and no drive of Windows."""

_CREDENTIALS = re.compile(r"^[^:/?]*(:[^@?]*)?@")
_POSTGRESQL = ("postgres", "postgresql", "postgresql+psycopg")


def is_address(storage: str | Path | None) -> bool:
    """Whether a storage is an address of PostgreSQL; otherwise it is a path, or ``None`` for memory.

    What looks like an address and is none of PostgreSQL is refused, even if a file could have such a name: it may hold
    a password, which would become the name of a file. Messages therefore repeat nothing of it.

    Args:
        storage: As of :meth:`hopgate.optimizers.SharedStudy.open`.

    Raises:
        InputError: It is neither; or no path can be like it.
    """
    if storage is None:
        return False
    text = str(user_path(storage)) if isinstance(storage, Path) else storage
    if not isinstance(text, str):
        raise InputError(f"`storage` is a path or a postgresql:// URL, got a {type(storage).__name__}")
    scheme, separator, rest = text.partition("://")
    if separator and scheme in _POSTGRESQL and isinstance(storage, str):
        place, _, query = _CREDENTIALS.sub("", rest, count=1).partition("?")
        if "@" in place or ("@" in query and ":" in place):  # it would be split within a password
            raise InputError(
                "the URL of the database has an @ too many; write postgresql://user:password@host:port/database, "
                "with special characters of the password as %XX, such as %40 for @"
            )
        return True
    if separator or (_SCHEME.match(text) and not user_path(text).exists()):
        raise InputError(
            "a study is kept in a journal file or in PostgreSQL, and not at such an address (it is not repeated, as it "
            "may hold a password); name a file, with its folder if there is a colon in its name, or a URL "
            "such as postgresql://user@host/database"
        )
    return False
