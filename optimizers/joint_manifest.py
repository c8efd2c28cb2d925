"""What a folder of a joint optimisation is about, so that it does not go on with another one."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from string import hexdigits
from typing import Any

import dspy

from ..core import InputError, StateError, user_path, write_atomic
from ..evaluation.provenance import describe_data, describe_run
from ..evaluation.question_digest import questions_digest
from ..evaluation.questions import Question
from .nested import decider_in, solver_in

SCHEMA = 1
_NAME = "joint.json"
_WORDS = {
    "state": "state of the program (settings, prompts, demos)",
    "lm": "LM",
    "racing questions": "set of questions to compare candidates on",
    "learning questions": "set of questions to learn prompts from",
    "race": "numbers of questions and error of the race",
    "schema": "version of the folder",
}


def fingerprint_of(
    program: dspy.Module,
    racing: Sequence[Question],
    learning: Sequence[Question],
    *,
    seed: int,
    metric: Any,
    **options: Any,
) -> dict[str, Any]:
    """What trials mean: program, LM, index, questions, metric and options, as JSON.

    Raises:
        InputError: There is no LM.
    """
    solver = decider_in(program) or solver_in(program)
    data = describe_data(racing, [question.id for question in racing])
    header = describe_run(program, data, name="joint", seed=seed, normalisation="official")
    index = header.index
    if index is None and solver is not None:
        index = describe_run(solver, data, name="joint", seed=seed, normalisation="official").index
    return {
        "schema": SCHEMA,
        "program": header.program.name,
        "state": header.program.state_sha256,
        "lm": header.lm,
        "adapter": header.adapter,
        "index": None if index is None else asdict(index),
        "racing questions": questions_digest(list(racing)),
        "learning questions": questions_digest(list(learning)) if learning else None,
        "metric": metric_name(metric),
        "seed": seed,
        **options,
    }


def metric_name(metric: Any) -> str:
    """What a metric is called; of an object its fields too."""
    if isinstance(metric, str):
        return metric
    if hasattr(metric, "__qualname__"):
        return f"{metric.__module__}.{metric.__qualname__}"
    fields = getattr(type(metric), "__dataclass_fields__", None)
    return repr(metric) if fields is not None else f"{type(metric).__module__}.{type(metric).__qualname__}"


@contextmanager
def folder_at(path: str | Path | None) -> Iterator[Path]:
    """A folder, made if it is missing; a temporary one, removed at the end, where none is named."""
    if path is None:
        with tempfile.TemporaryDirectory(prefix="hopgate-joint-") as name:
            yield Path(name)
        return
    folder = user_path(path)
    check_folder_path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: cannot be made as a folder: {error.strerror}; name another one") from error
    yield folder


def check_folder_path(folder: Path) -> None:
    """Refuse a path that is no folder, nor can become one.

    Raises:
        InputError: It, or what should hold it, is a file.
    """
    for path in (folder, *folder.parents):
        if path.is_dir():
            return
        if path.exists():
            raise InputError(f"{folder}: {path} is a file, and a joint optimisation is kept in a folder; name another")


def check_folder(folder: Path, about: dict[str, Any]) -> None:
    """Note what a folder is about, or compare.

    Raises:
        InputError: It is about something else; the message says what differs.
        StateError: Its note cannot be read.
    """
    path = folder / _NAME
    told = json.loads(json.dumps(about))
    if not path.exists():
        write_atomic(path, json.dumps(told, indent=1) + "\n")
        return
    try:
        known = json.loads(path.read_text())
    except ValueError as error:
        raise StateError(f"{path}: is no JSON ({error}); name another folder") from error
    if not isinstance(known, dict):
        raise StateError(f"{path}: is no note of a joint optimisation; name another folder")
    if found := differences(known, told):
        raise InputError(
            f"{folder}: holds another optimisation ({'; '.join(found)}); name another folder, or give the same"
        )


def differences(known: dict[str, Any], told: dict[str, Any]) -> list[str]:
    """What differs between two optimisations, in words.

    Args:
        known: What one is about, see :func:`fingerprint_of`.
        told: What the other is about.
    """
    names = [name for name in {**known, **told} if known.get(name) != told.get(name)]
    if "seed" in names:  # it draws which questions are which
        names = [name for name in names if not name.endswith("questions")]
    found = []
    for name in names:
        was, now = known.get(name), told.get(name)
        what = _WORDS.get(name, name)
        if any(isinstance(value, list | dict) or (isinstance(value, str) and len(value) >= 40) for value in (was, now)):
            more = _told_inside(was, now)
            found.append(f"{what}: {more}" if more else f"another {what}")
        else:
            found.append(f"{what} {_short(was)}, now {_short(now)}")
    return found


def _told_inside(was: Any, now: Any) -> str:
    if isinstance(was, dict) and isinstance(now, dict):
        pairs = [(name, was.get(name), now.get(name)) for name in {**was, **now} if was.get(name) != now.get(name)]
        return ", ".join(
            f"another {name}" if _is_digest(old) or _is_digest(new) else f"{name} {_short(old)}, now {_short(new)}"
            for name, old, new in pairs
        )
    if (was is None) != (now is None):
        return f"{'none' if was is None else 'one'}, now {'none' if now is None else 'one'}"
    return "" if _is_digest(was) or _is_digest(now) else f"{_short(was)}, now {_short(now)}"


def _is_digest(value: Any) -> bool:
    return isinstance(value, str) and len(value) >= 32 and all(character in hexdigits for character in value)


def _short(value: Any) -> str:
    text = "none" if value is None else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else f"{text[:80]}..."
