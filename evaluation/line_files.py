"""Files of JSON Lines that are appended to while work goes on, and may be cut by a kill."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from ..core import InputError, StateError, check_file, locked
from ..core.files import named_as

_LONGEST_LINE = 64 << 20
"""Bytes; the header of a run of a million questions is shorter."""

T = TypeVar("T")


@contextmanager
def one_writer(path: Path, who: str) -> Iterator[None]:
    """Keep other writers off a file while the body runs (``.NAME.lock`` beside it, which stays).

    Args:
        path: The file.
        who: What another writer is, for the message.

    Raises:
        HopgateError: Another process writes the file.
        InputError: It is no regular file.
        OSError: Nothing can be written there.
    """
    check_file(path)  # before a lock file is put beside it
    busy = f"{path}: another {who} is writing this file; wait for its end, or write to another file"
    with ExitStack() as stack:
        with named_as(path):
            stack.enter_context(locked(path.with_name(f".{path.name}.lock"), busy=busy))
        yield


def parsed(adapter: TypeAdapter[T], path: Path, number: int, line: bytes, remedy: str) -> T:
    """A line as what the adapter reads.

    Raises:
        StateError: It has another form; the message names the line and the field.
    """
    try:
        return adapter.validate_json(line)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        what = f"`{where}`: {first['msg']}" if where else first["msg"]
        raise StateError(f"{path}, line {number}: {what}; {remedy}, or remove the line") from error


def lines_of(path: Path, what: str) -> Iterator[tuple[int, bytes, bool]]:
    """Number, bytes, and whether a line break ends it, of each line.

    Args:
        path: The file.
        what: What it should be and how to make one, for messages: ``run file; `hopgate evaluate` makes one``.

    Raises:
        InputError: It is missing, or a folder.
        StateError: A line is longer than any such file has.
    """
    kind = what.partition(";")[0]
    try:
        file = path.open("rb")
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such {what}") from error
    except IsADirectoryError as error:
        raise InputError(f"{path}: is a folder; name a {kind}") from error
    with file:
        number = 0
        while line := file.readline(_LONGEST_LINE):
            number += 1
            if len(line) == _LONGEST_LINE:
                raise StateError(f"{path}, line {number}: is longer than {_LONGEST_LINE:,} bytes; this is no {kind}")
            yield number, line, line.endswith(b"\n")


def cut_off(path: Path, end: int) -> None:
    """Cut what follows the last usable line, and end that line.

    Args:
        path: The file.
        end: Bytes up to the end of that line.
    """
    with path.open("r+b") as file:
        file.truncate(end)
        file.seek(end - 1)
        if file.read(1) != b"\n":
            file.write(b"\n")
