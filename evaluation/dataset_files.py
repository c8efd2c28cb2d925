"""The records of data files: JSON, JSON Lines and CSV, read one at a time and in bounded memory.

The format is told by the content: a file that begins with ``[`` is a JSON list of objects, one that begins with ``{``
JSON Lines, and any other CSV (or TSV) with a row of names. Files compressed by gzip are unpacked.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import json
import zlib
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import IO, Any, cast

from ..core import InputError

LONGEST_RECORD = 1 << 26
"""Bytes that one record may have, and a file that can only be read whole. The largest of a benchmark has some 30 kB."""

_CHUNK = 1 << 20
_SPACE = " \t\r\n"

Located = Iterator[tuple[str, dict[str, Any]]]
"""Records, each with its place for messages: ``file:line`` or ``file: record N``, counted from 1."""


def read_records(path: Path) -> Located:
    """The records of a file, and where each stands.

    Raises:
        InputError: The file is missing, empty, not UTF-8 or of another format, or a record is broken or too long.
    """
    with open_data(path) as file:
        try:
            start = first_character(path, file)
            if start == "[":
                yield from _list_items(path, file)
            elif start == "{":
                yield from _json_lines(path, file)
            else:
                yield from _table_rows(path, file)
        except (OSError, EOFError, zlib.error) as error:
            raise InputError(f"{path}: cannot be read ({one_line(error)}); fetch or pack it again") from error


def open_data(path: Path) -> IO[bytes]:
    """A file, opened for reading and unpacked if it is compressed by gzip.

    Raises:
        InputError: There is no such file, or it cannot be read.
    """
    try:
        if path.is_dir():
            raise InputError(f"{path}: is a folder; name a file in it")
        with path.open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
        return cast("IO[bytes]", gzip.open(path, "rb")) if packed else path.open("rb")
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file; correct the path") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({one_line(error)}); check its permissions") from error


def first_character(path: Path, file: IO[bytes]) -> str:
    """The first character of a file that is no white space; the file is left at its beginning.

    Raises:
        InputError: The file is empty or not UTF-8.
    """
    beginning = file.read(_CHUNK)
    file.seek(0)
    if beginning[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        raise InputError(f"{path}: is UTF-16; convert the file to UTF-8")
    text = beginning.removeprefix(codecs.BOM_UTF8).lstrip()
    if not text:
        raise InputError(f"{path}: holds no records; give a file with at least one")
    return chr(text[0])


def read_lines(path: Path, file: IO[bytes]) -> Iterator[tuple[int, str]]:
    """The numbers and the lines of a file; a line that is too long is refused before it is read whole.

    Raises:
        InputError: A line is too long or not UTF-8.
    """
    number = 0
    while line := file.readline(LONGEST_RECORD + 1):
        number += 1
        if len(line) > LONGEST_RECORD:
            raise InputError(
                f"{path}:{number}: longer than {LONGEST_RECORD:,} bytes, the most that one record may have; write one "
                "record a line"
            )
        if number == 1:
            line = line.removeprefix(codecs.BOM_UTF8)
        try:
            yield number, line.decode("utf-8")
        except UnicodeDecodeError as error:
            raise InputError(
                f"{path}:{number}: not UTF-8 at byte {error.start + 1} of the line; convert the file to UTF-8"
            ) from error


def one_line(error: BaseException) -> str:
    """The message of another library's error on one line, shortened."""
    return " ".join(str(error).split())[:200] or type(error).__name__


def _json_lines(path: Path, file: IO[bytes]) -> Located:
    for number, line in read_lines(path, file):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{where}: not JSON ({one_line(error)}); write one object a line") from error
        yield where, _object(where, record)


def _list_items(path: Path, file: IO[bytes]) -> Located:
    """The objects of a JSON list, parsed as they are read: published files hold half a gigabyte on one line."""
    text = _Text(path, file)
    decoder = json.JSONDecoder()
    text.take()  # the bracket
    count = 0
    if text.peek() == "]":
        raise InputError(f"{path}: holds no records; give a file with at least one")
    while True:
        count += 1
        where = f"{path}: record {count}"
        text.peek()
        yield where, _object(where, text.decode(decoder, where))
        separator = text.take()
        if separator == "]":
            break
        if separator != ",":
            raise InputError(f"{where}: followed by {separator or 'the end of the file'!r}, not by , or ]; {_REPAIR}")
    if text.peek():
        raise InputError(f"{path}: goes on after the end of its list; {_REPAIR}")


_REPAIR = "repair the file or fetch it again"


class _Text:
    """The text of a file, of which no more is held than one record and the chunk that it ends in."""

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        self.path = path
        self.file = file
        self.decoder = codecs.getincrementaldecoder("utf-8-sig")()
        self.read = 0
        self.held = ""
        self.place = 0

    def more(self, size: int = _CHUNK) -> bool:
        """Read on; whether there was anything left."""
        data = self.file.read(size)
        try:
            text = self.decoder.decode(data, final=not data)
        except UnicodeDecodeError as error:
            near = max(1, self.read + error.start + 1)
            raise InputError(f"{self.path}: not UTF-8 near byte {near}; convert the file to UTF-8") from error
        self.read += len(data)
        self.held = self.held[self.place :] + text
        self.place = 0
        return bool(data)

    def peek(self) -> str:
        """The next character that is no white space; empty at the end."""
        while True:
            while self.place < len(self.held):
                if self.held[self.place] not in _SPACE:
                    return self.held[self.place]
                self.place += 1
            if not self.more():
                return ""

    def take(self) -> str:
        """As :meth:`peek`, and go past it."""
        found = self.peek()
        self.place += len(found)
        return found

    def decode(self, decoder: json.JSONDecoder, where: str) -> Any:
        """The next JSON object."""
        if self.peek() != "{":
            raise InputError(f"{where}: begins with {self.peek() or 'the end of the file'!r}, not with an object")
        size = _CHUNK
        while True:
            try:
                value, self.place = decoder.raw_decode(self.held, self.place)
                return value
            except (ValueError, RecursionError) as error:
                if isinstance(error, RecursionError) or len(self.held) - self.place > LONGEST_RECORD:
                    reason = one_line(error)
                    raise InputError(
                        f"{where}: not JSON, or longer than the {LONGEST_RECORD:,} characters that one record may have "
                        f"({reason}); {_REPAIR}"
                    ) from error
                # It may only be cut off: look again with twice as much, so that long ones are not parsed too often.
                if not self.more(size):
                    raise InputError(f"{where}: not JSON ({one_line(error)}); {_REPAIR}") from error
                size *= 2


def _object(where: str, record: Any) -> dict[str, Any]:
    if not isinstance(record, dict):
        raise InputError(f"{where}: a {type(record).__name__}, not an object; give one object a record")
    return record


def _table_rows(path: Path, file: IO[bytes]) -> Located:
    lines = (line for _, line in read_lines(path, file))
    header = next(lines)
    tabs = "\t" in header and "," not in header
    reader = csv.reader(chain([header], lines), delimiter="\t" if tabs else ",", strict=True)
    names: list[str] | None = None
    while True:
        where = f"{path}:{reader.line_num + 1}"
        try:
            row = next(reader, None)
        except csv.Error as error:
            remedy = "check that each quote is closed, and doubled within a quoted cell"
            raise InputError(f"{where}: a broken row ({one_line(error)}); {remedy}") from error
        if row is None:
            break
        if not any(cell.strip() for cell in row):
            continue
        if names is None:
            names = [name.strip() for name in row]
            if len(names) == 1 and ";" in names[0]:
                raise InputError(
                    f"{where}: the names {names[0]!r:.80} seem to be separated by `;`; separate the cells by commas or "
                    "tabs (spreadsheets ask for it when they export)"
                )
            continue
        if len(row) != len(names):
            raise InputError(
                f"{where}: {len(row)} cells, and there are {len(names)} columns; quote cells that hold the separator"
            )
        yield where, dict(zip(names, row, strict=True))
