"""Run files: reading, checking, and appending so that a kill loses at most the question under way.

A record is written in one piece when its question has been answered and handed to the operating system at once, so it
outlives the process, however that ends. It is forced onto the disk every few seconds and at the end: a machine that
loses its power loses the questions of these seconds, which a resumed run asks again.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import BinaryIO

from pydantic_core import PydanticSerializationError

from ..core import InputError, StateError, user_path, write_atomic
from .line_files import cut_off, lines_of, one_writer, parsed
from .recorded_texts import without_question
from .recorded_trajectories import trajectory_of, trajectory_record
from .run_differences import differences
from .run_schema import (
    QUESTION,
    SCHEMA,
    DataHeader,
    Failure,
    FileHeader,
    IndexHeader,
    Normalisation,
    ProgramHeader,
    RunCost,
    RunHeader,
    RunRecord,
    Scores,
    header_adapter,
    record_adapter,
)
from .trajectory_schema import (
    AttemptCost,
    AttemptRecord,
    ConfidenceRecord,
    DecisionRecord,
    HopRecord,
    PassageRecord,
    TrajectoryRecord,
)

__all__ = [
    "QUESTION",
    "SCHEMA",
    "Appender",
    "AttemptCost",
    "AttemptRecord",
    "ConfidenceRecord",
    "DataHeader",
    "DecisionRecord",
    "Failure",
    "FileHeader",
    "HopRecord",
    "IndexHeader",
    "Normalisation",
    "PassageRecord",
    "ProgramHeader",
    "Run",
    "RunCost",
    "RunHeader",
    "RunRecord",
    "Scores",
    "TrajectoryRecord",
    "appending",
    "differences",
    "line_of",
    "read_header",
    "read_run",
    "trajectory_of",
    "trajectory_record",
    "without_question",
    "write_run",
]

_SYNC_SECONDS = 5.0
_WHAT = "run file; `hopgate evaluate` makes one"
_REMEDY = "run `hopgate evaluate` again into another file"


@dataclass(frozen=True)
class Run:
    """A recorded run.

    Attributes:
        header: What the run was made with.
        records: The records in the order of the data, one a question; questions that were not asked yet have none.
        path: The file.
        stopped: Why it ended before all questions were asked, if this process ended it; a file does not say it.
    """

    header: RunHeader
    records: tuple[RunRecord, ...]
    path: Path | None = None
    stopped: str | None = None

    @cached_property
    def by_id(self) -> dict[str, RunRecord]:
        """The records by the ids of their questions."""
        return {record.id: record for record in self.records}

    @property
    def answered(self) -> tuple[RunRecord, ...]:
        """The records with an answer, right or wrong."""
        return tuple(record for record in self.records if record.status == "ok")

    @property
    def failed(self) -> tuple[RunRecord, ...]:
        """The records without an answer."""
        return tuple(record for record in self.records if record.status == "error")

    @property
    def missing(self) -> tuple[str, ...]:
        """Ids of the questions that were not asked yet."""
        return tuple(identity for identity in self.header.data.ids if identity not in self.by_id)


class Appender:
    """An open run file that records are appended to; made by :func:`appending`.

    Attributes:
        header: The file's header.
        before: The records that were there when it was opened.
    """

    def __init__(self, file: BinaryIO, header: RunHeader, before: dict[str, RunRecord]) -> None:
        self.header = header
        self.before = before
        self._file = file
        self._synced = time.monotonic()

    def append(self, record: RunRecord) -> None:
        """Write a record in one piece and hand it to the operating system.

        Raises:
            OSError: It cannot be written, for instance since the disk is full. A part of it may stand at the end of the
                file; opening the file again removes it.
        """
        self._file.write(line_of(record))
        self._file.flush()
        if time.monotonic() - self._synced > _SYNC_SECONDS:
            self.sync()

    def sync(self) -> None:
        """Force what was written onto the disk."""
        os.fsync(self._file.fileno())
        self._synced = time.monotonic()


def line_of(item: RunHeader | RunRecord) -> bytes:
    """A header or record as a line of a run file.

    Raises:
        ValueError: A number is not finite, or a setting is no JSON value.
    """
    if isinstance(item, RunRecord):
        with contextlib.suppress(PydanticSerializationError):
            line = record_adapter().dump_json(item)
            if b"NaN" not in line and b"Infinity" not in line:
                return line + b"\n"
    record = asdict(item)
    if isinstance(item, RunHeader):
        record = {"schema": record.pop("schema"), "kind": record.pop("kind"), **record}
    # Half of a surrogate pair, which an LM may well write, cannot be encoded and becomes a question mark.
    text = json.dumps(record, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode("utf-8", "replace") + b"\n"


def read_run(path: str | Path) -> Run:
    """Read and check a run file.

    The later of two records of one question counts. A last line that was cut by a kill is left out.

    Args:
        path: The file.

    Raises:
        InputError: The file is missing, or is no run file.
        StateError: It has another version, or a line is damaged or has another form; the message names the line.
    """
    found, _ = _load(user_path(path))
    return found


def read_header(path: str | Path) -> RunHeader:
    """Read and check the first line of a run file; raises as :func:`read_run`."""
    target = user_path(path)
    for number, line, _ in lines_of(target, _WHAT):
        return _header(target, number, line)
    raise InputError(f"{target}: is empty, and no run file; {_REMEDY}")


def write_run(path: str | Path, header: RunHeader, records: list[RunRecord]) -> None:
    """Write a whole run file at once, in place of one that may be there."""
    write_atomic(user_path(path), b"".join(line_of(item) for item in (header, *records)))


@contextmanager
def appending(path: str | Path, header: RunHeader) -> Iterator[Appender]:
    """Open a run file to append to, or make it.

    The file is locked while the body runs (``.NAME.lock`` beside it, which stays). A cut last line is removed.

    Args:
        path: The file.
        header: What the run is made with. A file that is there must have been made with the same.

    Raises:
        HopgateError: Another process writes the file.
        InputError: The file was made with something else; the message says what differs. Or it is no run file, or
            no regular file.
        StateError: As for :func:`read_run`.
        OSError: The file cannot be written.
    """
    target = user_path(path)
    with one_writer(target, "run"):
        if not target.exists() or target.stat().st_size == 0:
            write_atomic(target, line_of(header))
            old, before = header, {}
        else:
            run, end = _load(target)
            other = differences(run.header, header)
            if other:
                raise InputError(
                    f"{target}: was made with something else and cannot be resumed: {'; '.join(other)}; give what it "
                    "was made with, or write to another file"
                )
            old, before = run.header, run.by_id
            cut_off(target, end)
        with target.open("ab") as file:
            appender = Appender(file, old, before)
            try:
                yield appender
            finally:
                file.flush()
                appender.sync()


# --- lines ------------------------------------------------------------------------------------------------------------


def _load(path: Path) -> tuple[Run, int]:
    """A run, and the bytes of the file up to its last usable line."""
    header: RunHeader | None = None
    wanted: set[str] = set()
    records: dict[str, RunRecord] = {}
    end = 0
    for number, line, whole in lines_of(path, _WHAT):
        if header is None:
            header = _header(path, number, line)
            wanted = set(header.data.ids)
        elif line.strip():
            try:
                record = parsed(record_adapter(), path, number, line, _REMEDY)
            except StateError:
                if whole:
                    raise
                break  # cut by a kill
            if record.id not in wanted:
                raise StateError(f"{path}, line {number}: question {record.id!r} is not in the header; {_REMEDY}")
            records[record.id] = record
        end += len(line)
    if header is None:
        raise InputError(f"{path}: is empty, and no run file; {_REMEDY}")
    ordered = tuple(records[identity] for identity in header.data.ids if identity in records)
    return Run(header, ordered, path), end


def _header(path: Path, number: int, line: bytes) -> RunHeader:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}, line {number}: is not the header of a run file ({error}); {_REMEDY}") from error
    if not isinstance(record, dict) or record.get("kind") != "run" or "schema" not in record:
        raise InputError(f"{path}, line {number}: is not the header of a run file; {_REMEDY}")
    if record["schema"] != SCHEMA:
        raise StateError(
            f"{path}: `schema` is {record['schema']!r} and this version of hopgate reads {SCHEMA}; "
            "read it with the version that wrote it, or install a newer hopgate"
        )
    return parsed(header_adapter(), path, number, line, _REMEDY)
