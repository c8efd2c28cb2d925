"""Reading the JSON that a program was saved in, and refusing what no program's state holds.

DSPy sets whatever a predictor's saved state holds as the predictor's attributes, and makes the LM that it names. A file
may come from anybody, so both are looked at first.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any, NoReturn

from ..core import InputError, StateError, user_path
from ..core.texts import encodable

MAX_BYTES = 64 << 20
"""Size of a file of a program; demos and instructions of the largest are far below."""

_PREDICTOR = {"traces", "train", "demos", "signature", "lm", "fields"}
_UNSAFE_LM = {"api_base", "base_url", "api_key", "api_version", "model_list", "headers", "extra_headers", "engine"}

logger = logging.getLogger(__name__)


def read_json(path: str | Path) -> tuple[Path, dict[str, Any]]:
    """The JSON object in a file.

    Raises:
        InputError: There is no such file.
        StateError: It is too large, no JSON, or no object.
        OSError: It cannot be read.
    """
    file = user_path(path)
    if not file.exists():
        raise InputError(f"{file}: no such file; name the JSON file that a program was saved in")
    if not file.is_file():
        raise StateError(
            f"{file}: is no file; a program that was saved whole, as a folder, runs code when it is loaded: save its "
            "state with `save_program(program, FILE.json)`"
        )
    if file.stat().st_size > MAX_BYTES:
        raise StateError(f"{file}: has {file.stat().st_size:,} bytes and may have {MAX_BYTES:,}; it is no program")
    data = file.read_bytes()
    if data.startswith(b"\x80"):
        raise StateError(
            f"{file}: is a pickle, which runs code when it is loaded; save the program as JSON, with "
            "`save_program(program, FILE.json)`"
        )
    try:
        record = json.loads(data.decode("utf-8"), parse_constant=_not_json, object_pairs_hook=_without_repetition)
    except (ValueError, RecursionError) as error:
        raise StateError(
            f"{file}: is not JSON ({str(error)[:200]}); save the program with `save_program(program, FILE.json)`"
        ) from error
    if not isinstance(record, dict):
        raise StateError(f"{file}: is not the saved state of one of hopgate's programs")
    check_texts(record, str(file))
    return file, record


def check_texts(record: dict[str, Any], source: str) -> None:
    """Check that all texts in a JSON object can be encoded, as a prompt or a file must be.

    Args:
        record: The object.
        source: Where it comes from, for messages.

    Raises:
        StateError: One holds half of a character (a lone surrogate); the message names the field.
    """
    left: list[tuple[str, Any]] = [("", record)]
    while left:
        place, value = left.pop()
        if isinstance(value, dict):
            for key, inner in value.items():
                left += [(place, key), (f"{place}.{encodable(str(key))}".lstrip("."), inner)]
        elif isinstance(value, list | tuple):
            left += [(f"{place}[{number}]", inner) for number, inner in enumerate(value)]
        elif isinstance(value, str) and encodable(value) != value:
            raise StateError(
                f"{source}: `{place[:200]}` holds half of a character (a lone surrogate); repair the text first"
            )


def checked_state(record: dict[str, Any], source: str) -> dict[str, Any]:
    """The state of a program, without the LMs that its predictors may have had.

    Args:
        record: The state.
        source: Where it comes from, for messages.

    Raises:
        StateError: It is not the state of one of hopgate's programs, a predictor has attributes that a state does not
            hold, or an LM has an address, key or class of its own.
    """
    if "settings" not in record:
        raise StateError(f"{source}: is not the saved state of one of hopgate's programs")
    return {name: _part(name, part, source) for name, part in record.items() if name != "metadata"}


def _part(name: str, part: Any, source: str) -> dict[str, Any]:
    if not isinstance(part, dict):
        raise StateError(f"{source}: `{name}` is no JSON object; save the program again")
    if "signature" not in part:
        return part  # settings or a gate, which check what they take
    if strange := sorted(set(part) - _PREDICTOR):
        raise StateError(
            f"{source}: `{name}` has {', '.join(strange)[:100]}, which the state of a predictor does not hold; load "
            "files of programs that were saved by `save_program` or DSPy 3"
        )
    for field in ("demos", "traces", "train"):
        if not isinstance(part.get(field, []), list):
            raise StateError(f"{source}: `{name}.{field}` is no list; save the program again")
    if not all(isinstance(demo, dict) for demo in part.get("demos", [])):
        raise StateError(f"{source}: `{name}.demos` holds something that is no demo; save the program again")
    signature = part["signature"]
    if not isinstance(signature, dict) or not isinstance(signature.get("instructions"), str):
        raise StateError(f"{source}: `{name}.signature` has no instructions; save the program again")
    fields = signature.get("fields")
    if not isinstance(fields, list) or not all(
        isinstance(field, dict) and all(isinstance(field.get(key), str) for key in ("prefix", "description"))
        for field in fields
    ):
        raise StateError(f"{source}: `{name}.signature` has no fields with prefix and description; save it again")
    return {**part, "lm": _without_lm(name, part.get("lm"), source)}


def _without_lm(name: str, lm: Any, source: str) -> None:
    if lm is None:
        return
    unsafe = sorted(_UNSAFE_LM & set(lm)) if isinstance(lm, dict) else ["lm"]
    if unsafe:
        raise StateError(
            f"{source}: `{name}` names an LM with {', '.join(unsafe)}: questions could be sent to whoever made the "
            "file; take its `lm` out, and name the LM by --lm or dspy.configure"
        )
    logger.warning(
        "%s: the LM of `%s` is left out: a program's file holds none; set it by predictor.lm or dspy.configure", source,
        name,
    )  # fmt: skip


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"`{encodable(twice)[:80]}` is there twice in one object")
    return found


def _not_json(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON number")
