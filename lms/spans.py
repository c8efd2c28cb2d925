"""Finding the value of an output field in the completion that it was parsed from."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any
from xml.sax.saxutils import escape

from ..core import ConfidenceError

# Characters that one token cut by a stop sequence may have had.
_CUT = 16


def label_pattern(label: str) -> str:
    """Regular expression for a line label, however the LM set it off (list, heading, bold, code).

    ``#`` stands for a number, which may be left out.
    """
    name = re.escape(label.removesuffix(":").strip()).replace(r"\ \#", r"(?:\ *(?:\d+|\#))?")
    name = name.replace(r"\#", r"(?:\d+|\#)?") if r"(?:\d+" not in name else name
    return rf"(?:[-*>#]+[ \t]+)?(?:\*\*|`)?{name}(?:(?:\*\*|`):|:(?:\*\*|`)?)"


def find_answer(data: bytes, field: str, value: Any, label: str) -> tuple[int, int]:
    """Byte range ``[start, end)`` of a field's value within a completion.

    Args:
        data: The completion's bytes.
        field: Name of the field.
        value: What the adapter parsed.
        label: The field's line label in ``CompactAdapter``'s rendering.

    Raises:
        ConfidenceError: The value is not there.
    """
    # Undecodable bytes (a character cut off at the token limit) keep their place as lone surrogates.
    text = data.decode("utf-8", "surrogateescape")
    wanted = value if isinstance(value, str) else None
    for begin, end, exact in _regions(text, field, label, wanted):
        if wanted is None or exact:
            span = _trim(text, begin, end)
            if span[0] < span[1]:
                return _bytes(text, *span)
            continue
        for pattern in _spellings(wanted):
            if match := pattern.search(text, begin, end):
                return _bytes(text, *match.span())
        # Some servers drop the log-probability of a token that a stop sequence cuts in two ("?\\n"): the tokens then
        # end shortly before the value does.
        known = text[begin:end].strip()
        if end == len(text) and known and wanted.strip().startswith(known) and len(wanted) - len(known) <= _CUT:
            return _bytes(text, *_trim(text, begin, end))
    raise ConfidenceError(f"the value of `{field}` ({str(value)[:60]!r}) is not in the completion it was parsed from")


def _regions(text: str, field: str, label: str, wanted: str | None) -> Iterable[tuple[int, int, bool]]:
    """Where a field's value may stand, best guess first: (start, end, whether exactly this range is the value)."""
    name = re.escape(field)
    if match := re.search(rf"^[ \t]*\[\[ ## {name} ## \]\]", text, re.MULTILINE):
        following = re.search(r"^[ \t]*\[\[ ## \w+ ## \]\]", text[match.end() :], re.MULTILINE)
        yield match.end(), match.end() + following.start() if following else len(text), False
    if match := re.search(rf"<{name}>(.*?)</{name}>", text, re.DOTALL):
        yield match.start(1), match.end(1), False
    yield from _json_regions(text, field, wanted)
    if match := re.search(rf"^[ \t]*{label_pattern(label)}[ \t]*", text, re.MULTILINE | re.IGNORECASE):
        # What looks like a label at the start of a line ends a value that is not a text.
        following = re.search(r"^[^\W\d_][\w ]{0,60}:", text[match.end() :], re.MULTILINE) if wanted is None else None
        yield match.end(), match.end() + following.start() if following else len(text), False
    yield 0, len(text), False


def _json_regions(text: str, field: str, wanted: str | None) -> Iterator[tuple[int, int, bool]]:
    opening = re.match(r"\s*(?:```(?:json)?\s*)?\{", text)
    if opening is None:
        return
    # The last of equal keys counts, as json.loads has it.
    for key, start, end in reversed(list(_members(text, opening.end()))):
        if key == field:
            quoted = int(text[start] == '"')
            exact = wanted is None or json.loads(text[start:end]) == wanted
            yield start + quoted, end - quoted, exact
            return


def _members(text: str, position: int) -> Iterator[tuple[str, int, int]]:
    """Keys of a JSON object, each with the range of its value, as far as the text is JSON."""
    decoder = json.JSONDecoder()
    try:
        while True:
            key, position = decoder.raw_decode(text, _skip(text, position, ","))
            start = _skip(text, position, ":")
            _, position = decoder.raw_decode(text, start)
            yield str(key), start, position
    except (ValueError, IndexError):
        return


def _skip(text: str, position: int, separator: str) -> int:
    while position < len(text) and (text[position].isspace() or text[position] == separator):
        position += 1
    return position


def _spellings(value: str) -> Iterator[re.Pattern[str]]:
    """The forms in which an adapter may have rendered a text value: indented lines, escapes, a cut last character."""
    stripped = value.strip()
    for form in dict.fromkeys((stripped, stripped.rstrip("\ufffd"), escape(stripped), _json_form(stripped))):
        if form:
            yield re.compile(r"[ \t]*\n[\s\u2502]*".join(re.escape(line.strip()) for line in form.split("\n")))


def _json_form(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)[1:-1]


def _trim(text: str, start: int, end: int) -> tuple[int, int]:
    piece = text[start:end]
    return start + len(piece) - len(piece.lstrip()), start + len(piece.rstrip())


def _bytes(text: str, start: int, end: int) -> tuple[int, int]:
    prefix = len(text[:start].encode("utf-8", "surrogateescape"))
    return prefix, prefix + len(text[start:end].encode("utf-8", "surrogateescape"))
