"""Programs by their names: which there are, what they search, and their settings."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

SEARCHING = (
    "active", "always", "never", "static", "fused", "escalation", "rag", "ircot", "react", "react-plus", "self-ask",
    "flare", "dr3", "dr3-escalation",
)  # fmt: skip
"""Programs that need an index. The names are those of ``hopgate.programs.registry``, which would import dspy."""

NAMES = (*SEARCHING, "direct", "cot", "self-consistency")
"""All programs."""


def check_index(where: str | None, name: str) -> None:
    """Refuse an index that cannot be searched before anything is loaded.

    Args:
        where: The index folder or the address of an index server.
        name: The program.

    Raises:
        InputError: The program searches and there is no index.
        IndexStoreError: The folder is not an index.
    """
    from ..core import InputError

    if where is None:
        others = [other for other in NAMES if other not in SEARCHING]
        raise InputError(
            f"--program {name} needs an index: build one with `hopgate index build CORPUS --out DIR` and name it with "
            f"--index DIR; --program {', '.join(others[:-1])} and {others[-1]} need none"
        )
    if not where:
        raise InputError("--index is empty; name the folder of an index, or the address of an index server")
    if not is_address(where):
        from ..index import read_info

        read_info(where)


def is_address(where: str) -> bool:
    """Whether an index is named by the address of a server."""
    return where.startswith(("http://", "https://"))


def open_index(where: str, checkpoint: str | None) -> Any:
    """The index in a folder, or on a server, which is sent the token in ``HOPGATE_TOKEN`` if there is one.

    Raises:
        HopgateError: It cannot be opened, or the token cannot be sent.
    """
    from ..index import ColBERTIndex, RemoteIndex
    from ..index.bearer import token_of_environment

    if is_address(where):
        return RemoteIndex(where, token=token_of_environment())
    return ColBERTIndex.open(where, checkpoint=checkpoint)


def named_values(pairs: Iterable[str]) -> dict[str, Any]:
    """Settings given as ``name=value``; a value is JSON, or else a text.

    Raises:
        InputError: There is no name, or one is given twice.
    """
    from ..core import InputError

    values: dict[str, Any] = {}
    for pair in pairs:
        name, separator, text = pair.partition("=")
        name = name.strip()
        if not separator or not name:
            raise InputError(f"a setting is given as name=value, got {pair!r:.80}")
        if name in values:
            raise InputError(f"`{name}` is given twice")
        try:
            values[name] = json.loads(text)
        except ValueError:
            values[name] = text
    return values


def is_file(name: str) -> bool:
    """Whether a program is named by the file that it was saved in."""
    return bool(name) and name not in NAMES and (name.endswith(".json") or Path(name).exists())


def program_name(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """Callback of ``--program``: one of the names, or a file."""
    if value is not None and value not in NAMES and not is_file(value):
        raise click.BadParameter(f"{value!r}: there are {', '.join(NAMES)}, or the file of a saved program")
    return value
