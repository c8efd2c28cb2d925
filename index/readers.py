"""The records of text files: JSON Lines, CSV, TSV, and ColBERT's collections."""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import stat
import threading
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import ujson

from ..core import CorpusError, Passage
from .records import Layout

JSONL = 'one JSON object a line: {"id": ..., "title": ..., "text": ...}'

_EXPECTED = {
    "jsonl": f"a JSON Lines file, {JSONL}",
    "csv": "a CSV file with a row of names",
    "tsv": "a TSV file with a row of names, or rows of number, text and title",
    "parquet": "a Parquet file",
}

Located = Iterator[tuple[str, Passage]]

_CELL = 1 << 24  # characters; a quote that is never closed would else swallow a large file
_cell_limit = threading.Lock()


def check_file(path: Path, form: str) -> None:
    """Raise CorpusError unless a path is that of a file that can be read."""
    expected = _EXPECTED[form]
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            kind = "a folder" if stat.S_ISDIR(mode) else "not a regular file"
            raise CorpusError(f"{path}: is {kind}; give {expected}")
        path.open("rb").close()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise CorpusError(f"{path}: no such corpus file; give {expected}") from error
    except OSError as error:
        raise CorpusError(f"{path}: cannot be read ({error.strerror}); check its permissions") from error


def _lines(path: Path, form: str) -> Iterator[str]:
    """The lines of a text file with their ends, unpacked if its name ends in ``.gz``."""
    check_file(path, form)
    number = 0
    try:
        with _opened(path) as file:
            for number, line in enumerate(file, start=1):
                # A byte order mark, which some editors write, is not part of the first record.
                yield line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        raise CorpusError(f"{path}:{number}: not UTF-8 at byte {error.start}; convert the file to UTF-8") from error
    except (OSError, EOFError, zlib.error) as error:
        raise CorpusError(f"{path}:{number + 1}: cannot be read ({one_line(error)}); fetch or pack it again") from error


def _opened(path: Path) -> io.BufferedIOBase:
    return gzip.open(path, "rb") if path.suffix.lower() == ".gz" else path.open("rb")


def one_line(error: BaseException) -> str:
    """The message of another library's error on one line, shortened."""
    return " ".join(str(error).split())[:200] or type(error).__name__


def read_jsonl(path: Path, layout: Layout) -> Located:
    """The passages of a JSON Lines file, and where each stands."""
    numbered: bool | None = None
    count = 0
    title = layout.fields.get("title")
    for number, line in enumerate(_lines(path, "jsonl"), start=1):
        where = f"{path}:{number}"
        text = line.strip()
        if not text:
            continue
        try:
            record: Any = ujson.loads(text)
        except ValueError as error:
            raise CorpusError(f"{where}: not JSON ({one_line(error)}); expected {JSONL}") from error
        if not isinstance(record, dict):
            raise CorpusError(f"{where}: a {type(record).__name__}, not an object; expected {JSONL}")
        if numbered is None:
            numbered = not layout.has_id(record)
        if title in record:
            title = None
        yield where, layout.passage(record, where, count if numbered else None)
        count += 1
    # Some records may lack a title, so that a wrong name shows at the end only.
    if title is not None and count:
        raise CorpusError(f"{path}: no record has `{title:.80}`, to be read as the title; correct the name")


def read_csv(path: Path, layout: Layout) -> Located:
    """The passages of a CSV file with a row of names, and where each begins."""
    return _table(path, _csv_rows(path, _lines(path, "csv"), ","), layout)


def read_tsv(path: Path, layout: Layout) -> Located:
    """The passages of a TSV file with a row of names, or of a collection as ColBERT reads it, and where each stands."""
    lines = _lines(path, "tsv")
    first = next(lines, None)
    if first is None:
        return iter(())
    lines = itertools.chain([first], lines)
    cells = _cells(first)
    if len(cells) in (2, 3) and cells[0].isascii() and cells[0].isdecimal():
        return _table(path, _collection_rows(path, lines), layout)
    return _table(path, _csv_rows(path, lines, "\t"), layout)


def _cells(line: str) -> list[str]:
    return line.rstrip("\r\n").split("\t")


def _collection_rows(path: Path, lines: Iterable[str]) -> Iterator[tuple[int, list[str]]]:
    """The rows of a collection after names for them: number, text and, where there is one, title; nothing is quoted."""
    yield 1, ["id", "text", "title"]
    for number, line in enumerate(lines, start=1):
        cells = _cells(line)
        if cells == [""]:
            continue
        if len(cells) not in (2, 3):
            raise CorpusError(
                f"{path}:{number}: {len(cells)} cells, and a row is a number, a text and maybe a title; "
                "replace tabs within the text"
            )
        yield number, cells if len(cells) == 3 else [*cells, ""]


def _csv_rows(path: Path, lines: Iterable[str], delimiter: str) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    while True:
        number = reader.line_num + 1
        try:
            with _cell_limit:  # The limit belongs to the whole process, so it is put back after each row.
                before = csv.field_size_limit(_CELL)
                try:
                    row = next(reader, None)
                finally:
                    csv.field_size_limit(before)
        except csv.Error as error:
            remedy = "check that each quote is closed, and doubled within a quoted cell"
            raise CorpusError(f"{path}:{number}: a broken row ({one_line(error)}); {remedy}") from error
        if row is None:
            return
        if row:
            yield number, row


def _table(path: Path, rows: Iterator[tuple[int, list[str]]], layout: Layout) -> Located:
    number, columns = next(rows, (1, None))
    if columns is None:
        return
    layout.check(columns, f"{path}:{number}")
    has_id = layout.has_id(columns)
    for count, (number, row) in enumerate(rows):
        where = f"{path}:{number}"
        if len(row) != len(columns):
            raise CorpusError(
                f"{where}: {len(row)} cells, and there are {len(columns)} columns; add or remove cells, or quote the "
                "cell that holds the separator"
            )
        yield where, layout.passage(dict(zip(columns, row, strict=True)), where, None if has_id else count)
