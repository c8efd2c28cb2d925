"""Corpora: reading passages from a file, checking them, and a fingerprint that tells one corpus from another."""

from __future__ import annotations

import hashlib
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import ujson

from ..core import CorpusError, Passage, user_path

_FORMAT = 'one JSON object a line: {"id": ..., "title": ..., "text": ...}'


def read_corpus(path: str | Path) -> Iterator[Passage]:
    """Read passages from a JSON Lines file, one at a time.

    A line is an object with ``id`` (a string or an integer; integers become strings), ``text`` and, optionally,
    ``title``. Other fields are ignored, and so are blank lines. Texts are kept exactly as they are.

    Args:
        path: The file, UTF-8.

    Yields:
        The passages, in the order of the file.

    Raises:
        InputError: The path starts with the home folder of an unknown user, or is no path at all.
        CorpusError: The file is missing, empty or not readable; or a line is not UTF-8, not a JSON object, has no id
            or no text, or repeats an id. The message starts with ``file:line:``.
    """
    path = user_path(path)
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            kind = "a folder" if stat.S_ISDIR(mode) else "not a regular file"
            raise CorpusError(f"{path}: is {kind}; give a JSON Lines file, {_FORMAT}")
        file = path.open("rb")
    except (FileNotFoundError, NotADirectoryError) as error:
        raise CorpusError(f"{path}: no such corpus file; give a JSON Lines file, {_FORMAT}") from error
    except OSError as error:
        raise CorpusError(f"{path}: cannot be read ({error.strerror}); check its permissions") from error
    with file:
        yield from checked_passages(_records(path, file), empty=f"{path}: holds no passages; expected {_FORMAT}")


def _records(path: Path, lines: Iterable[bytes]) -> Iterator[tuple[str, Passage]]:
    for number, line in enumerate(lines, start=1):
        where = f"{path}:{number}"
        try:
            # A byte order mark, which some editors write, is not part of the first record.
            text = line.decode("utf-8-sig" if number == 1 else "utf-8").strip()
        except UnicodeDecodeError as error:
            raise CorpusError(f"{where}: not UTF-8 at byte {error.start}; convert the file to UTF-8") from error
        if not text:
            continue
        try:
            record = ujson.loads(text)
        except ValueError as error:
            raise CorpusError(f"{where}: not JSON ({error}); expected {_FORMAT}") from error
        yield where, _passage(where, record)


def _passage(where: str, record: Any) -> Passage:
    if not isinstance(record, dict):
        raise CorpusError(f"{where}: a {type(record).__name__}, not an object; expected {_FORMAT}")
    identifier, title, text = record.get("id"), record.get("title"), record.get("text")
    if isinstance(identifier, bool) or not isinstance(identifier, str | int) or identifier == "":
        raise CorpusError(f"{where}: `id` must be a non-empty string or an integer, got {identifier!r}; add one")
    if title is not None and not isinstance(title, str):
        raise CorpusError(f"{where}: `title` must be a string, got {type(title).__name__}; correct or remove it")
    if text is not None and not isinstance(text, str):
        raise CorpusError(f"{where}: `text` must be a string, got {type(text).__name__}; correct it")
    return Passage(str(identifier), title or "", text or "")


def checked_passages(located: Iterable[tuple[str, Passage]], *, empty: str) -> Iterator[Passage]:
    """Pass passages on, refusing those that no index can hold.

    Args:
        located: Pairs of where a passage comes from (for messages) and the passage.
        empty: The message if there are none.

    Raises:
        CorpusError: A field is not a string, a text is empty, an id occurs twice, a string cannot be written as UTF-8,
            or there are no passages.
    """
    seen: set[str] = set()
    for where, passage in located:
        fault = passage_fault(passage)
        if fault is not None:
            raise CorpusError(f"{where}: {fault}")
        if not passage.text.strip():
            raise CorpusError(f"{where}: passage {passage.id!r} has no `text`; add one or remove the passage")
        if passage.id in seen:
            raise CorpusError(f"{where}: id {passage.id!r} occurs a second time; ids must be unique")
        seen.add(passage.id)
        yield passage
    if not seen:
        raise CorpusError(empty)


def passage_fault(passage: Passage) -> str | None:
    """What makes a passage unusable, in words: a field that is not a string or not text; ``None`` if nothing does."""
    for field in ("id", "title", "text"):
        value = getattr(passage, field)
        if not isinstance(value, str):
            return f"`{field}` of a passage must be a string, got a {type(value).__name__}; correct it"
        if is_broken(value):
            return f"half of a surrogate pair in passage {passage.id!r}; replace the broken character"
    return None


def is_broken(text: str) -> bool:
    """Whether a string holds half of a surrogate pair, which no encoding of text can express."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def passage_line(passage: Passage) -> str:
    """The normal form of a passage: a JSON object with ``id``, ``title`` and ``text`` on one line, without line end."""
    record = {"id": passage.id, "title": passage.title, "text": passage.text}
    return ujson.dumps(record, ensure_ascii=False, escape_forward_slashes=False)


class CorpusFingerprint:
    """SHA-256 over the normal forms of passages; their order counts."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()

    def add(self, line: str) -> None:
        """Take in one line of :func:`passage_line`."""
        self._digest.update(line.encode())
        self._digest.update(b"\n")

    def hexdigest(self) -> str:
        """The fingerprint of what was added so far, as lower-case hexadecimal digits."""
        return self._digest.hexdigest()


def corpus_fingerprint(passages: Iterable[Passage]) -> str:
    """The fingerprint of a corpus that is at hand; see :class:`CorpusFingerprint`."""
    fingerprint = CorpusFingerprint()
    for passage in passages:
        fingerprint.add(passage_line(passage))
    return fingerprint.hexdigest()
