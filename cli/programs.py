"""Programs by their names: which there are, what they search, how they are made and loaded."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

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
    """The index in a folder, or on a server.

    Raises:
        HopgateError: It cannot be opened.
    """
    from ..index import ColBERTIndex, RemoteIndex

    return RemoteIndex(where) if is_address(where) else ColBERTIndex.open(where, checkpoint=checkpoint)


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
    """Name of the program that a state was saved from, told by its predictors, their fields and its settings.

    Programs that differ in settings alone are the same once the state is loaded; the first of them is named.

    Raises:
        StateError: It fits none of the programs, or several.
    """
    from ..core import StateError
    from ..programs.registry import PROGRAMS, make_program

    fitting: dict[str, list[str]] = {}
    for name in PROGRAMS:
        program = make_program(name)
        if _shape(program.dump_state()) == _shape(state) and _knows_settings(program, state):
            kinds = str([(part, type(module)) for part, module in program.named_sub_modules()])
            fitting.setdefault(kinds, []).append(name)
    if len(fitting) != 1:
        fit = "none of the programs" if not fitting else ", ".join(name for names in fitting.values() for name in names)
        raise StateError(
            f"{source}: which program it was saved from cannot be told (it fits {fit}); name it: "
            f"--program NAME --state {source}"
        )
    return next(iter(fitting.values()))[0]


def _shape(state: dict[str, Any]) -> dict[str, int | None]:
    """Names of the parameters, and how many fields the predictors among them have."""
    shape: dict[str, int | None] = {}
    for name, part in state.items():
        signature = part.get("signature") if isinstance(part, dict) else None
        fields = signature.get("fields") if isinstance(signature, dict) else None
        shape[name] = len(fields) if isinstance(fields, list) else None
    return shape


def _knows_settings(program: Any, state: dict[str, Any]) -> bool:
    """Whether a program has all the settings of a state; an older state may lack some of the program's."""
    known = program.dump_state()
    return all(
        set(part) <= set(known[name])
        for name, part in state.items()
        if isinstance(part, dict) and "signature" not in part
    )


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
    return bool(name) and name not in NAMES and (name.endswith(".json") or Path(name).exists())
