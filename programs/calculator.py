"""A calculator for a hop's sub-question: the LM writes an expression over what is known, which is evaluated safely.

Expressions are evaluated by simpleeval, narrowed to numbers, texts, comparisons and the functions of
:data:`FUNCTIONS`; dates are read by dateutil. Nothing is executed: no attributes, names, indexing or comprehensions.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from datetime import date as day
from datetime import datetime
from functools import total_ordering
from typing import Any

from dateutil import parser as dates
from dateutil.relativedelta import relativedelta
from simpleeval import InvalidExpression, SimpleEval

from ..core import InputError
from ..core.question_kinds import plainly_fits, question_kind
from .requests import Ask, Told
from .solver import accept
from .trajectory import Hop, Trajectory
from .transcript import NO_MORE, opened

MAX_CHARACTERS = 200
MAX_EXPONENT = 64
MAX_VALUE = 1e15

_NUMBER = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?")
_ASKS = re.compile(
    r"\bhow (?:many (?:years|days|months|more|fewer|less)|much|old|long)\b|\bwhat age\b|"
    r"\b(?:older|oldest|younger|youngest|earlier|earliest|later|latest|first|last|before|after|difference|sum|total|"
    r"combined|together|average|longer|longest|shorter|shortest|larger|largest|smaller|smallest|higher|highest|lower|"
    r"lowest|greater|more|most|less|least|fewer|fewest|times|percent|percentage|same)\b|\d\s*[-+*/\u00d7]\s*\d",
    re.IGNORECASE,
)
_CHOICE = re.compile(r"^([^\"'()]+?) if (.+) else ([^\"'()]+)$")
# Numbers that need not be known: units, and whatever has at most two digits.
_UNITS = {"100", "365", "1000"}


class CalculationError(InputError):
    """An expression cannot be evaluated."""


@total_ordering
@dataclass(frozen=True, slots=True)
class _Date:
    """A date, or a year alone."""

    text: str
    on: day
    whole: bool

    def __eq__(self, other: object) -> bool:
        return self._key(_date(other)) == _date(other)._key(self)

    def __lt__(self, other: Any) -> bool:
        return self._key(_date(other)) < _date(other)._key(self)

    def _key(self, other: _Date) -> tuple[int, ...]:
        if self.whole and other.whole:
            return self.on.year, self.on.month, self.on.day
        if self.on.year == other.on.year and not (self.text + other.text).isdecimal():
            raise CalculationError(f"which of {self.text!r} and {other.text!r} is earlier is not known")
        return (self.on.year,)


def _date(value: Any) -> _Date:
    """A date from text such as ``4 May 1868``, or from a year."""
    text = str(value).strip()
    if isinstance(value, _Date):
        return value
    if re.search(r"\d{3}", text) is None:
        raise CalculationError(f"{text!r} has no year")
    try:
        # What a text leaves out is taken from the default; two defaults tell whether anything was.
        first, second = (dates.parse(text, default=moment) for moment in (datetime(1, 1, 1), datetime(4, 12, 31)))
    except (ValueError, OverflowError) as error:
        raise CalculationError(f"{text!r} is no date") from error
    if first.year != second.year:
        raise CalculationError(f"{text!r} has no year")
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


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "date": _date,
    "years": _years,
    "days": _days,
    "earlier": lambda *texts: min(map(_date, texts)).text,
    "later": lambda *texts: max(map(_date, texts)).text,
    "count": lambda *things: len(set(things)),
    "min": min,
    "max": max,
    "abs": abs,
    "round": round,
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
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
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
    for number in _NUMBER.findall(known or ""):
        # As it is written in passages; elsewhere a comma stands between two numbers.
        expression = expression.replace(number, number.replace(",", ""))
    # Small models forget the quotation marks of the two names.
    expression = _CHOICE.sub(r'"\1" if \2 else "\3"', expression.strip())
    if len(expression) > MAX_CHARACTERS:
        raise CalculationError(f"the expression has {len(expression)} characters; at most {MAX_CHARACTERS} are read")
    if known is not None and (unknown := _numbers(expression, digits=3) - _numbers(known) - _UNITS):
        raise CalculationError(f"{', '.join(sorted(unknown))} is not among what is known")
    if re.search(r"\b\d{3,4}-\d{1,2}-\d{1,2}\b", re.sub(r"\"[^\"]*\"|'[^']*'", "", expression)):
        raise CalculationError("a date that is not in quotation marks would be a subtraction")
    try:
        tree = ast.parse(expression.strip(), mode="eval").body
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
        RecursionError,
        MemoryError,
    ) as error:
        raise CalculationError(f"{expression[:80]!r} cannot be calculated: {error}") from error


def calculable(sub_question: str, trajectory: Trajectory) -> bool:
    """Whether a sub-question may be one for a calculator, so that it is worth asking: a cheap rule for English.

    It is where it compares, counts or asks for a difference, and at least two numbers are known.
    """
    answers = [hop.answer for hop in trajectory.tasks if hop.answer]
    if re.search(r"\bhow many of\b", sub_question, re.IGNORECASE) and len(answers) > 1:
        return True
    numbers = _NUMBER.findall(" ".join([sub_question, *answers]))
    return len(numbers) > 1 and _ASKS.search(sub_question) is not None


def calculated(
    trajectory: Trajectory, hop: Hop, demos: tuple[dict[str, Any], ...]
) -> Generator[Ask, Told, tuple[Hop, bool]]:
    """Ask for an expression and evaluate it: the hop, and whether it is answered.

    What fails is noted on the hop.
    """
    shown = opened(trajectory, hop)
    inputs = {"question": trajectory.question, "trajectory": shown}
    told = yield Ask("express", "expression", inputs, demos, tentative=True)
    hop = replace(hop, cost=hop.cost + told.cost)
    text = (told.text or "").strip().strip("`").strip()
    if not text or text.casefold().strip(".\"'") == NO_MORE:
        return hop, False
    try:
        answer = calculate(text, known=shown)
        if not _fits(hop.sub_question, answer):
            raise CalculationError(f"{answer[:40]!r} is not what the sub-question asks for")
    except CalculationError as error:
        return replace(hop, note=f"calculator: {error}"), False
    accept(told)
    return replace(hop, source="calculator", query=text, answer=answer), True


def _fits(sub_question: str, answer: str) -> bool:
    """Whether a value is of the kind that a sub-question asks for, as far as its form tells."""
    kind, numeric = question_kind(sub_question), answer.removeprefix("-")[:1].isdecimal()
    if kind in ("choice", "yes_no"):
        return plainly_fits(sub_question, answer)
    if answer in ("yes", "no"):
        return kind is None
    return numeric is (kind == "number") if kind in ("number", "thing") else True


def _evaluator() -> SimpleEval:
    evaluator = SimpleEval(operators=_OPERATORS, functions=FUNCTIONS, names={})
    handlers: dict[type, Any] = evaluator.nodes or {}
    evaluator.nodes = {kind: handler for kind, handler in handlers.items() if kind in _NODES}
    return evaluator


def _numbers(text: str, digits: int = 1) -> set[str]:
    found = (match.replace(",", "") for match in _NUMBER.findall(text))
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
    rounded = round(value, 6)
    return str(int(rounded) if rounded == int(rounded) else rounded)
