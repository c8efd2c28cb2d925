"""Expressions that an LM writes over what is known: numbers, dates and their comparison, evaluated safely.

They are evaluated by simpleeval, narrowed to numbers, texts, comparisons and the functions of
:data:`FUNCTIONS`; dates are read by dateutil. Nothing is executed: no attributes, names, indexing or comprehensions.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date as day
from datetime import datetime
from decimal import Decimal
from functools import total_ordering
from typing import Any

from dateutil import parser as dates
from dateutil.relativedelta import relativedelta
from simpleeval import InvalidExpression, SimpleEval

from ..core import InputError

MAX_CHARACTERS = 200
MAX_EXPONENT = 64
MAX_DIGITS = 15
MAX_VALUE = 1e15
MIN_VALUE = 1e-12

NUMBER = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?")
_DIGITS = re.compile(r"\d+(?:\.\d*)?|\.\d+", re.ASCII)
# Numbers that need not be known: units, and whatever has at most two digits.
_UNITS = {"100", "365", "1000"}


class CalculationError(InputError):
    """An expression cannot be evaluated."""


@total_ordering
@dataclass(frozen=True, slots=True, eq=False)
class _Date:
    """A date, or a year alone."""

    text: str
    on: day
    whole: bool

    def __eq__(self, other: object) -> bool:
        return self._key(_date(other)) == _date(other)._key(self)

    def __lt__(self, other: Any) -> bool:
        return self._key(_date(other)) < _date(other)._key(self)

    def __hash__(self) -> int:
        # Dates that are equal are of one year, however they are written.
        return hash(self.on.year)

    def _key(self, other: _Date) -> tuple[int, ...]:
        if self.whole and other.whole:
            return self.on.year, self.on.month, self.on.day
        if self.on.year == other.on.year and not (self.text + other.text).isdecimal():
            raise CalculationError(f"which of {self.text[:80]!r} and {other.text[:80]!r} is earlier is not known")
        return (self.on.year,)


def _date(value: Any) -> _Date:
    """A date from text such as ``4 May 1868``, or from a year."""
    text = str(value).strip()
    if isinstance(value, _Date):
        return value
    if re.search(r"\d{3}", text) is None:
        raise CalculationError(f"{text[:80]!r} has no year")
    if not isinstance(value, str | int):
        raise CalculationError(f"{text[:80]!r} is no date")
    try:
        # What a text leaves out is taken from the default; two defaults tell whether anything was.
        first, second = (dates.parse(text, default=moment) for moment in (datetime(1, 1, 1), datetime(4, 12, 31)))
    except (ValueError, TypeError, LookupError, ArithmeticError) as error:
        raise CalculationError(f"{text[:80]!r} is no date") from error
    if first.year != second.year:
        raise CalculationError(f"{text[:80]!r} has no year")
    return _Date(text, first.date(), first.date() == second.date())


def _years(left: Any, right: Any) -> int:
    earlier, later = sorted((_date(left), _date(right)), key=lambda one: one.on)
    if earlier.whole and later.whole:
        return relativedelta(later.on, earlier.on).years
    return later.on.year - earlier.on.year


def _days(left: Any, right: Any) -> int:
    first, second = _date(left), _date(right)
    if not (first.whole and second.whole):
        raise CalculationError("days are counted between whole dates only")
    return abs((second.on - first.on).days)


def _power(base: float, exponent: float) -> float:
    if abs(exponent) > MAX_EXPONENT or abs(base) > MAX_VALUE:
        raise CalculationError(f"exponents are limited to {MAX_EXPONENT}")
    return base**exponent


def _numeric(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def checked(left: Any, right: Any) -> Any:
        for value in (left, right):
            if not isinstance(value, int | float):
                raise CalculationError(f"{str(value)[:40]!r} is no number")
        return function(left, right)

    return checked


def _round(value: Any, digits: Any = 0) -> Any:
    # Without a limit, rounding an integer to a negative number of digits computes that power of ten.
    if not isinstance(value, int | float) or not isinstance(digits, int) or abs(digits) > MAX_DIGITS:
        raise CalculationError(f"`round` takes a number and at most {MAX_DIGITS} digits")
    return round(value, digits)


def _number(value: Any) -> int | float | None:
    """A number, or what a text that is one alone says."""
    if isinstance(value, int | float):
        return value
    if not isinstance(value, str) or NUMBER.fullmatch(text := value.strip().removeprefix("-")) is None:
        return None
    plain = text.replace(",", "")
    number = int(plain) if plain.isdecimal() else float(plain)
    return -number if value.strip().startswith("-") else number


def _dated(value: Any) -> _Date | None:
    try:
        return _date(value)
    except CalculationError:
        return None


def _comparable(left: Any, right: Any) -> tuple[Any, Any] | None:
    """Two values as numbers or else as dates; ``None`` if they are not both one of these."""
    for read in (_number, _dated):
        first, second = read(left), read(right)
        if first is not None and second is not None:
            return first, second
    return None


def _ordered(function: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    """An order of numbers and dates: that of the alphabet, which texts have, is never what is asked for."""

    def compared(left: Any, right: Any) -> bool:
        pair = _comparable(left, right)
        if pair is None:
            shown = " and ".join(repr(str(value)[:40]) for value in (left, right))
            raise CalculationError(f"{shown} are neither two numbers nor two dates, so neither comes first")
        return function(*pair)

    return compared


def _equal(left: Any, right: Any) -> bool:
    pair = _comparable(left, right)
    return operator.eq(*(pair or (left, right)))


def _count(*things: Any) -> int:
    different: list[Any] = []
    for thing in things:
        if not any(_equal(thing, other) for other in different):
            different.append(thing)
    return len(different)


def _extreme(beats: Callable[[Any, Any], bool]) -> Callable[..., Any]:
    def extreme(*values: Any) -> Any:
        if len(values) < 2:
            raise CalculationError("the least or the greatest is one of at least two values")
        best, *others = values
        for value in others:
            best = value if beats(value, best) else best
        return best

    return extreme


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "date": _date,
    "years": _years,
    "days": _days,
    "earlier": lambda *texts: min(map(_date, texts)).text,
    "later": lambda *texts: max(map(_date, texts)).text,
    "count": _count,
    "min": _extreme(_ordered(operator.lt)),
    "max": _extreme(_ordered(operator.gt)),
    "abs": abs,
    "round": _round,
}
"""What expressions may call: ``date``, ``years`` and ``days`` between two dates, the ``earlier`` and ``later`` of some,
``count`` of different things, and arithmetic."""

_OPERATORS: dict[type, Callable[..., Any]] = {
    ast.Add: _numeric(operator.add),
    ast.Sub: _numeric(operator.sub),
    ast.Mult: _numeric(operator.mul),
    ast.Div: _numeric(operator.truediv),
    ast.FloorDiv: _numeric(operator.floordiv),
    ast.Mod: _numeric(operator.mod),
    ast.Pow: _numeric(_power),
    ast.Lt: _ordered(operator.lt),
    ast.LtE: _ordered(operator.le),
    ast.Gt: _ordered(operator.gt),
    ast.GtE: _ordered(operator.ge),
    ast.Eq: _equal,
    ast.NotEq: lambda left, right: not _equal(left, right),
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Not: operator.not_,
}
_NODES = (ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.Call, ast.Constant)


def calculate(expression: str, known: str | None = None) -> str:
    """The value of an expression, as an answer.

    Args:
        expression: Such as ``years("4 May 1868", "1940")`` or ``"Brahms" if 1833 < 1813 else "Verdi"``.
        known: The text that numbers of three or more digits must be taken from; ``None`` allows any.

    Returns:
        A number without needless digits; ``yes`` or ``no``; or a text.

    Raises:
        CalculationError: It is too long, no expression, calls or uses what is not offered, takes a number from nowhere,
            or has no finite value.

    Example:
        >>> calculate('years("4 May 1868", "3 May 1940")'), calculate("1911 < 1974"), calculate("7 / 2")
        ('71', 'yes', '3.5')
    """
    expression = expression.strip()
    if len(expression) > MAX_CHARACTERS:
        raise CalculationError(f"the expression has {len(expression)} characters; at most {MAX_CHARACTERS} are read")
    for number in NUMBER.findall(known or ""):
        # As it is written in passages; elsewhere a comma stands between two numbers.
        expression = expression.replace(number, number.replace(",", ""))
    expression = _quoted(expression)
    _check_known(expression, known)
    if re.search(r"\b\d{3,4}-\d{1,2}-\d{1,2}\b", re.sub(r"\"[^\"]*\"|'[^']*'", "", expression)):
        raise CalculationError("a date that is not in quotation marks would be a subtraction")
    try:
        tree = _parsed(expression)
        _check_tree(tree, expression, known)
        if isinstance(tree, ast.Constant):
            raise CalculationError(f"{expression[:80]!r} calculates nothing")
        return _said(_evaluator().eval(expression, previously_parsed=tree))
    except CalculationError:
        raise
    except (
        SyntaxError,
        InvalidExpression,
        ArithmeticError,
        ValueError,
        TypeError,
        LookupError,
        RecursionError,
        MemoryError,
    ) as error:
        reason = " ".join(str(error).split())[:120]
        raise CalculationError(f"{expression[:80]!r} cannot be calculated: {reason}") from error


def _parsed(expression: str) -> ast.expr:
    for _ in range(9):
        try:
            return ast.parse(expression, mode="eval").body
        except SystemError:
            # Before 3.11.8 Python counts the depth of all threads' expressions together (CPython issue 106905).
            continue
    raise CalculationError(f"{expression[:80]!r} could not be parsed beside other threads; calculate it again")


def _quoted(expression: str) -> str:
    """A choice whose two names have no quotation marks, which small models forget, with them."""
    first, _, rest = expression.partition(" if ")
    condition, _, second = rest.rpartition(" else ")
    if not (first and condition and second) or set(first + second) & set("\"'()"):
        return expression
    return f'"{first}" if {condition} else "{second}"'


def _check_known(text: str, known: str | None) -> None:
    if known is not None and (unknown := _numbers(text, digits=3) - _numbers(known) - _UNITS):
        raise CalculationError(f"{', '.join(sorted(unknown))[:80]} is not among what is known")


def _check_tree(tree: ast.expr, expression: str, known: str | None) -> None:
    """Refuse operators that are not offered, and numbers that the text does not show as they are."""
    for node in ast.walk(tree):
        if isinstance(node, ast.cmpop | ast.operator | ast.unaryop) and type(node) not in _OPERATORS:
            raise CalculationError(f"there is no operator {type(node).__name__}")
        if isinstance(node, ast.Constant):
            if isinstance(node.value, str):
                # Texts that stand side by side are one, and escapes are characters.
                _check_known(node.value, known)
            elif not _DIGITS.fullmatch(written := ast.get_source_segment(expression, node) or ""):
                raise CalculationError(f"{written[:40]!r} is no number in plain digits")


def _evaluator() -> SimpleEval:
    evaluator = SimpleEval(operators=_OPERATORS, functions=FUNCTIONS, names={})
    handlers: dict[type, Any] = evaluator.nodes or {}
    evaluator.nodes = {kind: handler for kind, handler in handlers.items() if kind in _NODES}
    return evaluator


def _numbers(text: str, digits: int = 1) -> set[str]:
    found = (match.replace(",", "") for match in NUMBER.findall(text))
    return {number for number in found if len(number) >= digits}


def _said(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, _Date):
        return value.text
    if isinstance(value, str):
        if not value.strip():
            raise CalculationError("the value is empty")
        return value.strip()
    if not isinstance(value, int | float) or not math.isfinite(value) or abs(value) > MAX_VALUE:
        raise CalculationError("the value is no number that could be an answer")
    if isinstance(value, int) or value == 0:
        return str(int(value))
    if abs(value) < MIN_VALUE:
        raise CalculationError("the value is too small to tell it from an error of rounding")
    # Six decimals, or of smaller numbers six digits: what is not zero is not said to be.
    rounded = round(value, max(6, 5 - math.floor(math.log10(abs(value)))))
    return str(int(rounded)) if rounded == int(rounded) else format(Decimal(repr(rounded)), "f")
