"""Programs by their names: which there are, what they search, how they are made and loaded."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

NAMES = ("active", "rag", "direct", "cot")
SEARCHING = ("active", "rag")


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
        raise InputError(
            f"--program {name} needs an index: build one with `hopgate index build CORPUS --out DIR` and name it with "
            "--index DIR; --program direct and cot need none"
        )
    if not is_address(where):
        from ..index import read_info

        read_info(where)


def is_address(where: str) -> bool:
    """Whether an index is named by the address of a server."""
    return where.startswith(("http://", "https://"))


def open_index(where: str, checkpoint: str | None) -> Any:
    """The index in a folder, or on a server.

    Raises:
        HopgateError: It cannot be opened.
    """
    from ..index import ColBERTIndex, RemoteIndex

    return RemoteIndex(where) if is_address(where) else ColBERTIndex.open(where, checkpoint=checkpoint)


def make_program(name: str, index: Any, settings: dict[str, Any]) -> Any:
    """A new program.

    Args:
        name: One of ``NAMES``.
        index: What it searches; ignored by programs that do not search.
        settings: Its settings.

    Raises:
        InputError: A setting is unknown or has no possible value.
    """
    from ..programs import RAG, ActiveQA, ChainOfThought, Direct

    if name == "active":
        program: Any = ActiveQA(index)
    elif name == "rag":
        program = RAG(index)
    else:
        program = Direct() if name == "direct" else ChainOfThought()
    program.settings.update(**settings)
    return program


def read_state(path: str) -> dict[str, Any]:
    """The state that ``program.save(FILE.json)`` wrote.

    Raises:
        StateError: The file is no saved state.
        OSError: It cannot be read.
    """
    from ..core import InputError, StateError, user_path

    file = user_path(path)
    if not file.exists():
        raise InputError(f"{file}: no such file; name the JSON file that `program.save` wrote")
    try:
        state = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise StateError(f"{file}: is not JSON ({error}); save the program with `program.save(FILE.json)`") from error
    if not isinstance(state, dict) or "settings" not in state:
        raise StateError(f"{file}: is not the saved state of one of hopgate's programs")
    return {name: part for name, part in state.items() if name != "metadata"}


def load_state(program: Any, state: dict[str, Any], source: str) -> None:
    """Let a program take a saved state.

    Args:
        program: The program.
        state: The state.
        source: Where it comes from, for messages.

    Raises:
        StateError: It is that of another program.
    """
    from ..core import StateError

    try:
        program.load_state(state)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StateError(
            f"{source}: is not the state of {type(program).__name__} ({type(error).__name__}: {error}); name the "
            "program that it was saved from with --program"
        ) from error


def program_of_state(state: dict[str, Any], source: str) -> str:
    """Name of the program that a state was saved from, told by its predictors and their fields.

    Raises:
        StateError: It fits none of the programs.
    """
    from ..core import StateError

    found = [name for name in NAMES if _shape(make_program(name, None, {}).dump_state()) == _shape(state)]
    if len(found) != 1:
        raise StateError(
            f"{source}: which program it was saved from cannot be told; name it: --program NAME --state {source}"
        )
    return found[0]


def _shape(state: dict[str, Any]) -> dict[str, int | None]:
    """Names of the parameters, and how many fields the predictors among them have."""
    shape: dict[str, int | None] = {}
    for name, part in state.items():
        signature = part.get("signature") if isinstance(part, dict) else None
        fields = signature.get("fields") if isinstance(signature, dict) else None
        shape[name] = len(fields) if isinstance(fields, list) else None
    return shape


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
    """Whether a program is named by a file with its state."""
    return name not in NAMES and (name.endswith(".json") or Path(name).exists())
