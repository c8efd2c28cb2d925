"""What a folder of a joint optimisation is about, so that it does not go on with another one."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import dspy

from ..core import InputError, StateError, user_path, write_atomic
from ..evaluation.provenance import describe_data, describe_run
from ..evaluation.question_digest import questions_digest
from ..evaluation.questions import Question
from .nested import decider_in, solver_in

SCHEMA = 1
_NAME = "joint.json"


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
    folder.mkdir(parents=True, exist_ok=True)
    yield folder


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
    names = [name for name in {**known, **told} if known.get(name) != told.get(name)]
    if names:
        differing = "; ".join(f"{name}: {_short(known.get(name))}, now {_short(told.get(name))}" for name in names)
        raise InputError(f"{folder}: holds another optimisation ({differing}); name another folder, or give the same")


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else f"{text[:80]}..."
