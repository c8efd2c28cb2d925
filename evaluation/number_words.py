"""English number words and dates among the words of a normalised text.

Cardinal numbers in words become digits ("twenty-one" is 21, "a hundred and five" 105, "2.5 million" 2500000), up to
the trillions; ordinal numbers up to the ninety-ninth get theirs ("fifth" is 5th). Dates with the English name of the
month, whole or shortened, become day, month, year. What can be read in two ways is left alone: 7/5/1984, and years read
in pairs ("nineteen eighty-four").
"""

# ruff: noqa: SIM905  (a row of words is easier to read than a column)

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal

_SMALL = {
    word: value
    for value, word in enumerate(
        "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
        "seventeen eighteen nineteen".split()
    )
}
_TENS = {
    word: 10 * value
    for value, word in enumerate("twenty thirty forty fifty sixty seventy eighty ninety".split(), start=2)
}
_SCALES = {"thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_ORDINALS = {
    word: value
    for value, word in enumerate(
        "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth fourteenth "
        "fifteenth sixteenth seventeenth eighteenth nineteenth".split(),
        start=1,
    )
} | {f"{word[:-1]}ieth": value for word, value in _TENS.items()}
_DIGITS = re.compile(r"-?\d{1,15}(\.\d{1,6})?")

NUMBER_WORDS = frozenset([*_SMALL, *_TENS, *_SCALES, *_ORDINALS, "hundred"])
"""The words that this module reads."""

MONTHS = tuple("january february march april may june july august september october november december".split())
"""The English names of the months."""

_MONTH = {name: name for name in MONTHS} | {name[:3]: name for name in MONTHS} | {"sept": "september"}
_DAY = re.compile(r"0?([1-9]|[12]\d|3[01])(?:st|nd|rd|th)?")
_YEAR = re.compile(r"\d{3,4}")


def join_numbers(words: Sequence[str]) -> list[str]:
    """Write the number words among lower-case words as digits."""
    found: list[str] = []
    place = 0
    while place < len(words):
        value, after = _ordinal(words, place) or _cardinal(words, place) or (words[place], place + 1)
        found.append(value)
        place = after
    return found


def _ordinal(words: Sequence[str], place: int) -> tuple[str, int] | None:
    tens = _TENS.get(words[place])
    after = words[place + 1] if place + 1 < len(words) else ""
    if tens is not None and _ORDINALS.get(after, 10) < 10:
        return _with_ending(tens + _ORDINALS[after]), place + 2
    if words[place] in _ORDINALS:
        return _with_ending(_ORDINALS[words[place]]), place + 1
    return None


def _with_ending(value: int) -> str:
    ending = "th" if value // 10 == 1 else {1: "st", 2: "nd", 3: "rd"}.get(value % 10, "th")
    return f"{value}{ending}"


def _cardinal(words: Sequence[str], start: int) -> tuple[str, int] | None:
    """The number that begins at a place, and the place after it."""
    after = words[start + 1] if start + 1 < len(words) else ""
    if _DIGITS.fullmatch(words[start]) and (after in _SCALES or after == "hundred"):
        value = Decimal(words[start]) * _SCALES.get(after, 100)
        return f"{value.normalize():f}", start + 2
    total, place, limit = 0, start, 10**15
    while True:
        group = _below_thousand(words, _past_and(words, place, total))
        if group is None and place == start and words[place] in _SCALES:
            group = 1, place
        if group is None:
            break
        value, end = group
        scale = _SCALES.get(words[end]) if end < len(words) else None
        if scale is None:
            total, place = total + value, end
            break
        if scale >= limit:  # the next number
            break
        total, place, limit = total + value * scale, end + 1, scale
    return None if place == start else (str(total), place)


def _past_and(words: Sequence[str], place: int, total: int) -> int:
    return place + 1 if total and place < len(words) and words[place] == "and" else place


def _below_thousand(words: Sequence[str], place: int) -> tuple[int, int] | None:
    """A number up to ninety-nine hundred and ninety-nine."""
    if place < len(words) and words[place] == "hundred":
        value, after = 1, place
    else:
        found = _below_hundred(words, place)
        if found is None:
            return None
        value, after = found
    if value and after < len(words) and words[after] == "hundred":
        value, after = value * 100, after + 1
        rest = _below_hundred(words, _past_and(words, after, value))
        if rest is not None:
            return value + rest[0], rest[1]
    return value, after


def _below_hundred(words: Sequence[str], place: int) -> tuple[int, int] | None:
    if place >= len(words):
        return None
    if words[place] in _SMALL:
        return _SMALL[words[place]], place + 1
    tens = _TENS.get(words[place])
    if tens is None:
        return None
    unit = _SMALL.get(words[place + 1], 0) if place + 1 < len(words) else 0
    return (tens + unit, place + 2) if 0 < unit < 10 else (tens, place + 1)


def join_dates(words: Sequence[str]) -> list[str]:
    """Write dates among lower-case words as day, month, year, as far as each is there."""
    found: list[str] = []
    place = 0
    after_month = False  # one without a day or year: the next is then left alone too
    while place < len(words):
        date = None if after_month and words[place] in _MONTH else _date(words, place)
        after_month = date is None and words[place] in _MONTH
        joined, place = date or ([words[place]], place + 1)
        found += joined
    return found


def _date(words: Sequence[str], place: int) -> tuple[list[str], int] | None:
    iso = _iso(words, place)
    if iso is not None:
        return iso, place + 5
    rest = words[place : place + 4]
    day = _DAY.fullmatch(rest[0])
    if day is not None:
        middle = 2 if len(rest) > 2 and rest[1] == "of" else 1
        month = _MONTH.get(rest[middle]) if len(rest) > middle else None
        if month is None:
            return None
        return _with_year([day[1], month], words, place + middle + 1)
    month = _MONTH.get(rest[0])
    if month is None or len(rest) < 2:
        return None
    day = _DAY.fullmatch(rest[1])
    if day is not None and rest[2:3] != ["-"]:  # not July 5-8
        return _with_year([day[1], month], words, place + 2)
    return ([month, rest[1]], place + 2) if _YEAR.fullmatch(rest[1]) else None


def _with_year(date: list[str], words: Sequence[str], place: int) -> tuple[list[str], int]:
    if place < len(words) and _YEAR.fullmatch(words[place]):
        return [*date, words[place]], place + 1
    return date, place


def _iso(words: Sequence[str], place: int) -> list[str] | None:
    """A date as year, dash, month, dash, day, with two digits each for month and day."""
    parts = words[place : place + 5]
    if len(parts) < 5 or parts[1] != "-" or parts[3] != "-":
        return None
    year, month, day = parts[0], parts[2], parts[4]
    if not (re.fullmatch(r"\d{4}", year) and re.fullmatch(r"0[1-9]|1[0-2]", month) and len(day) == 2):
        return None
    match = _DAY.fullmatch(day)
    return None if match is None else [match[1], MONTHS[int(month) - 1], year]
