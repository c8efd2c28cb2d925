"""What differs between two runs that should have been made with the same."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from .run_schema import DataHeader, ProgramHeader, RunHeader

_OF_THE_ENGINE = ("n_ctx", "slots", "cache_mib")
"""Options of the embedded LM that older headers do not tell."""


def differences(old: RunHeader, new: RunHeader) -> list[str]:
    """What differs between the headers of two runs that should be the same, for people.

    Name, time and versions are left out: they may differ. What the old header does not know is left out too, which for
    a setting that its program did not have yet is the case as long as that has its default. Of another program only
    that is said.
    """
    if old.program.name not in (None, new.program.name):
        # What else differs follows from it for the most part: settings of one that the other has not.
        return [f"program {_short(old.program.name)}, now {_short(new.program.name)}"]
    found: list[str] = []
    pairs = (
        ("LM", old.lm.get("model"), new.lm.get("model")),
        ("adapter", old.adapter, new.adapter),
        ("seed", old.seed, new.seed),
        ("normalisation", old.normalisation, new.normalisation),
    )
    found += [f"{what} {_short(was)}, now {_short(now)}" for what, was, now in pairs if was not in (None, now)]
    known = old.program.settings
    settings = _without_new_defaults(new.program.name, known, new.program.settings)
    if old.program.state_sha256 is None:
        settings = {name: value for name, value in settings.items() if name in known}
    found += _table("setting", known, settings)
    options = _options(old.lm)
    found += _table(
        "LM option",
        options,
        {name: value for name, value in _options(new.lm).items() if name in options or name not in _OF_THE_ENGINE},
    )
    if old.program.state_sha256 is not None and not found and not _same_state(old.program, new.program):
        found.append("the program's state (instructions, demos or examples)")
    if (old.index is None) != (new.index is None):
        found.append(f"{'no index' if old.index is None else 'an index'}, now {'one' if new.index else 'none'}")
    elif old.index is not None and new.index is not None:
        told = {name: value for name, value in asdict(old.index).items() if value is not None}
        found += _table("index", told, {name: value for name, value in asdict(new.index).items() if name in told})
    return found + data_differences(old.data, new.data)


def _same_state(old: ProgramHeader, new: ProgramHeader) -> bool:
    if old.state_sha256 == new.state_sha256:
        return True
    if old.state is None or new.state is None:
        return False
    was, now = old.state.get("settings"), new.state.get("settings")
    if not isinstance(was, dict) or not isinstance(now, dict):
        return False
    return old.state == {**new.state, "settings": _without_new_defaults(new.name, was, now)}


def _without_new_defaults(program: str | None, known: dict[str, Any], settings: dict[str, Any]) -> dict[str, Any]:
    """Settings less those that an older version of the program did not have and that have their default now."""
    new = settings.keys() - known.keys()
    if not new or program is None:
        return settings
    from ..programs.registry import PROGRAMS, make_program

    if program not in PROGRAMS:
        return settings
    defaults = make_program(program).settings.values.model_dump(mode="json")
    left_out = {name for name in new if name in defaults and defaults[name] == settings[name]}
    return {name: value for name, value in settings.items() if name not in left_out}


def _options(lm: dict[str, Any]) -> dict[str, Any]:
    # Threads belong to a machine: they change the time, and not what is answered.
    return {name: value for name, value in lm.items() if name not in ("model", "threads")}


def _table(what: str, old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    names = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    return [f"{what} `{name}` {_short(old.get(name))}, now {_short(new.get(name))}" for name in names]


def data_differences(old: DataHeader, new: DataHeader) -> list[str]:
    """What differs between the questions of two runs, for people; a digest that one of them lacks is left out."""
    if old.ids == new.ids:
        known = None not in (old.questions_sha256, new.questions_sha256)
        if known and old.questions_sha256 != new.questions_sha256:
            return ["other questions or gold answers, though with the same ids"]
        return []
    if len(old.ids) != len(new.ids):
        return [f"{len(old.ids):,} questions of {old.name}, now {len(new.ids):,} of {new.name}"]
    place = next(i for i, (was, now) in enumerate(zip(old.ids, new.ids, strict=True), 1) if was != now)
    same = "the same questions in another order" if set(old.ids) == set(new.ids) else "other questions"
    return [f"{same} (the first that differs is number {place}: {_short(old.ids[place - 1])})"]


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 80 else f"{text[:80]}..."
