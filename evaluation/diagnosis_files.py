"""Diagnosis files: JSON Lines with a header and one record a wrong answer, written as the work goes on.

As in a run file, texts of a data set are not in it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import cache
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from ..core import InputError, StateError, user_path, write_atomic
from .diagnosis import DiagnosisHeader, DiagnosisRecord
from .line_files import cut_off, lines_of, one_writer
from .run_differences import differences

_WHAT = "diagnosis; `hopgate diagnose` makes one"
_REMEDY = "run `hopgate diagnose` again into another file"

Append = Callable[[DiagnosisRecord], None]


@contextmanager
def appending(path: str | Path, header: DiagnosisHeader) -> Iterator[tuple[dict[str, DiagnosisRecord], Append]]:
    """Open a diagnosis file to append to, or make it; the records that are there, and a function that adds one.

    Args:
        path: The file.
        header: What the diagnosis is made with. A file that is there must have been made with the same.

    Raises:
        HopgateError: Another process writes the file.
        InputError: The file was made with something else, is no diagnosis, or no regular file.
        StateError: It is damaged.
        OSError: It cannot be written.
    """
    target = user_path(path)
    with one_writer(target, "diagnosis"):
        before: dict[str, DiagnosisRecord] = {}
        if not target.exists() or target.stat().st_size == 0:
            write_atomic(target, _line(header))
        else:
            old, before, end = _read(target)
            _check_same(target, old, header)
            cut_off(target, end)
        with target.open("ab") as file:

            def append(record: DiagnosisRecord) -> None:
                file.write(_line(record))
                file.flush()

            yield before, append


def _read(path: Path) -> tuple[DiagnosisHeader, dict[str, DiagnosisRecord], int]:
    header: DiagnosisHeader | None = None
    records: dict[str, DiagnosisRecord] = {}
    end = 0
    for number, line, whole in lines_of(path, _WHAT):
        try:
            if header is None:
                header = _header_adapter().validate_json(line)
            elif line.strip():
                record = _record_adapter().validate_json(line)
                records[record.id] = record
        except ValidationError as error:
            if header is None:
                raise InputError(f"{path}, line {number}: is not the header of a diagnosis; {_REMEDY}") from error
            if not whole:
                break  # cut by a kill
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise StateError(f"{path}, line {number}: `{where}`: {first['msg']}; {_REMEDY}") from error
        end += len(line)
    if header is None:
        raise InputError(f"{path}: is empty, and no diagnosis; {_REMEDY}")
    return header, records, end


def _check_same(path: Path, old: DiagnosisHeader, new: DiagnosisHeader) -> None:
    other = differences(old.run, new.run)
    if old.lm.get("model") != new.lm.get("model"):
        other.append(f"LM of the trials {old.lm.get('model')!r}, now {new.lm.get('model')!r}")
    if old.every != new.every:
        other.append(f"{'all' if old.every else 'not all'} replacements tried, now {'all' if new.every else 'not all'}")
    if other:
        raise InputError(f"{path}: was made with something else and cannot be resumed: {'; '.join(other)}; {_REMEDY}")


def _line(item: DiagnosisHeader | DiagnosisRecord) -> bytes:
    text = json.dumps(asdict(item), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode("utf-8", "replace") + b"\n"


@cache
def _header_adapter() -> TypeAdapter[DiagnosisHeader]:
    return TypeAdapter(DiagnosisHeader)


@cache
def _record_adapter() -> TypeAdapter[DiagnosisRecord]:
    return TypeAdapter(DiagnosisRecord)
