"""Reading saved gates, with errors that name the field."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pydantic import ValidationError

from ..core import InputError, StateError


@contextmanager
def reading(state: Any, what: str, version: int) -> Iterator[None]:
    """Read a saved gate in the body; what does not fit there is a :class:`StateError`.

    Args:
        state: What was saved.
        what: What it should be, for messages.
        version: The newest version that can be read.

    Raises:
        StateError: It is no JSON object, of a newer version, or does not fit; the message names the field.
    """
    remedy = "load a file that was saved by save()"
    if not isinstance(state, dict):
        raise StateError(f"the state of {what} is a JSON object with a version, got {state!r:.60}; {remedy}")
    found = state.get("version")
    if isinstance(found, bool) or not isinstance(found, int) or found < 1 or found > version:
        raise StateError(f"{what} has version {found!r:.60}; this hopgate reads up to {version}")
    try:
        yield
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(map(str, first["loc"])) or "its fields"
        raise StateError(
            f"{what} does not fit: `{field}`: {first['msg']}, got {first['input']!r:.60}; {remedy}"
        ) from error
    except InputError as error:
        raise StateError(f"{what} does not fit: {error}; {remedy}") from error
