"""The token that an index server may ask for: where it comes from and what it may look like."""

from __future__ import annotations

import os
from pathlib import Path

from ..core import InputError, user_path

TOKEN_VARIABLE = "HOPGATE_TOKEN"
"""Name of the environment variable that holds the token."""

_LONGEST = 4096


def checked_token(token: str, where: str = "the token") -> str:
    """A token that can be sent in a header.

    Args:
        token: The token.
        where: What it is, for messages, which never show the token itself.

    Raises:
        InputError: It is empty, too long, or holds something else than visible ASCII characters.
    """
    if not isinstance(token, str) or not token:
        raise InputError(f"{where} is empty; give a secret of visible ASCII characters, or none")
    if len(token) > _LONGEST or not all("!" <= character <= "~" for character in token):
        raise InputError(f"{where} must be at most {_LONGEST:,} visible ASCII characters without spaces")
    return token


def token_of_environment() -> str | None:
    """The token in the environment variable ``HOPGATE_TOKEN``; ``None`` if that is not set or empty.

    Raises:
        InputError: It cannot be sent in a header.
    """
    token = os.environ.get(TOKEN_VARIABLE, "")
    return checked_token(token, f"the token in {TOKEN_VARIABLE}") if token else None


def token_of_file(path: str | Path) -> str:
    """The token in a file, without the space around it.

    Raises:
        InputError: The file cannot be read, or holds no token.
    """
    path = user_path(path)
    try:
        with path.open("rb") as file:
            data = file.read(_LONGEST + 100)
    except OSError as error:
        raise InputError(f"{path}: the token cannot be read ({error.strerror}); name a file that holds it") from error
    # Whatever is not ASCII is refused below.
    return checked_token(data.decode("ascii", errors="replace").strip(), f"{path}: the token")
