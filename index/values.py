"""Values of other libraries as JSON."""

from __future__ import annotations

import datetime
import decimal
import math
import uuid
from collections.abc import Mapping
from typing import Any

from .faults import DEPTH, shown


def json_value(value: Any, depth: int = 1) -> Any:
    """A value as JSON has it.

    Dates and times become ISO 8601 strings, durations seconds, decimal numbers floats, UUIDs strings, arrays and tuples
    lists, and NaN, which stands for a missing number in tables, becomes ``None``.

    Args:
        value: The value, as a reader of JSON, of Parquet or of numpy arrays gives it.
        depth: How deep the value lies already.

    Raises:
        ValueError: There is no such JSON; the message says what it is, to be put behind the name of a field.
    """
    if depth > DEPTH:
        raise ValueError(f"nested more than {DEPTH} deep")
    match value:
        case None | bool() | str() | int():
            return value
        case float():
            return None if math.isnan(value) else value
        case Mapping():
            return {_key(key): json_value(item, depth + 1) for key, item in value.items()}
        case list() | tuple():
            return [json_value(item, depth + 1) for item in value]
        case datetime.date() | datetime.time():  # a datetime is a date
            return value.isoformat()
        case datetime.timedelta():
            return value.total_seconds()
        case decimal.Decimal():
            return None if value.is_nan() else float(value)
        case uuid.UUID():
            return str(value)
    if hasattr(value, "tolist"):  # numpy's arrays and scalars
        return json_value(value.tolist(), depth + 1)
    raise ValueError(f"of type {type(value).__name__}, which JSON cannot hold")


def _key(key: Any) -> str:
    if not isinstance(key, str):
        raise ValueError(f"an object with the key {shown(key, 40)}, and keys must be strings")
    return key
