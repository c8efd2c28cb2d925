"""What makes a passage unusable, in words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ..core import Passage

DEPTH = 16
"""How many objects and lists may lie in one another in metadata."""

SIZE = 65_536
"""Characters that the metadata of one passage may have."""

_LEAST, _MOST = -(1 << 63), (1 << 64) - 1
"""Integers that other readers of JSON can hold, and that Python writes however long they are allowed to be."""

_BROKEN = "half of a surrogate pair in {place}; replace the broken character"


def passage_fault(passage: Passage) -> str | None:
    """What makes a passage unusable; ``None`` if nothing does.

    A field may not be a string or not text, or the metadata no JSON object of a sensible size.
    """
    for field in ("id", "title", "text"):
        value = getattr(passage, field)
        if not isinstance(value, str):
            return f"`{field}` of a passage must be a string, got a {type(value).__name__}; correct it"
        if is_broken(value):
            return _BROKEN.format(place=f"passage {passage.id!r}")
    fault = metadata_fault(passage.metadata)
    return None if fault is None else f"`metadata` of passage {passage.id!r} {fault}"


def shown(value: Any, most: int) -> str:
    """A value for messages, shortened; its type if Python cannot write it, such as a number of many digits."""
    try:
        return f"{value!r:.{most}}"
    except (ValueError, RecursionError):
        return f"a {type(value).__name__}"


def is_broken(text: str) -> bool:
    """Whether a string holds half of a surrogate pair, which no encoding of text can express."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def metadata_fault(metadata: Any) -> str | None:
    """What keeps metadata from being written as JSON, to be put behind "metadata"; ``None`` if nothing does."""
    if not isinstance(metadata, Mapping):
        return f"must be a JSON object, got a {type(metadata).__name__}; correct it"
    size = 0
    pending: list[tuple[Any, int]] = [(metadata, 0)]
    while pending:
        value, depth = pending.pop()
        match value:
            case Mapping() if depth == 0 or isinstance(value, dict):
                for key in value:
                    if not isinstance(key, str):
                        return f"has the key {shown(key, 40)}; keys must be strings"
                pending.extend((item, depth + 1) for pair in value.items() for item in pair)
            case list() | tuple():
                pending.extend((item, depth + 1) for item in value)
            case str():
                size += len(value)
                if is_broken(value):
                    return "holds half of a surrogate pair; replace the broken character"
            case float():
                size += 8
                if not math.isfinite(value):
                    return f"holds the number {value}, which JSON does not have; use a finite number or null"
            case int():
                size += 8
                if not _LEAST <= value <= _MOST:
                    return "holds an integer of more than 64 bits; use a string, or a floating-point number"
            case None:
                size += 4
            case _:
                return f"holds a {type(value).__name__}; use strings, numbers, booleans, null, lists and objects"
        if depth > DEPTH:
            return f"is nested more than {DEPTH} deep; make it flatter"
        if size + len(pending) > SIZE:
            return f"is larger than {SIZE:,} characters; keep fewer or shorter fields"
    return None
