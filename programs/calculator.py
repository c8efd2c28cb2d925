"""A calculator for a hop's sub-question: the LM writes an expression over what is known, which is evaluated safely."""

from __future__ import annotations

import re
from collections.abc import Generator
from dataclasses import replace
from typing import Any

from ..core.question_kinds import plainly_fits, question_kind
from .expressions import NUMBER, CalculationError, calculate
from .requests import Ask, Told
from .solver import accept
from .trajectory import Hop, Trajectory
from .transcript import NO_MORE, opened

_ASKS = re.compile(
    r"\bhow (?:many (?:years|days|months|more|fewer|less)|much|old|long)\b|\bwhat age\b|"
    r"\b(?:older|oldest|younger|youngest|earlier|earliest|later|latest|first|last|before|after|difference|sum|total|"
    r"combined|together|average|longer|longest|shorter|shortest|larger|largest|smaller|smallest|higher|highest|lower|"
    r"lowest|greater|more|most|less|least|fewer|fewest|times|percent|percentage|same)\b|\d\s*[-+*/\u00d7]\s*\d",
    re.IGNORECASE,
)


def calculable(sub_question: str, trajectory: Trajectory) -> bool:
    """Whether a sub-question may be one for a calculator, so that it is worth asking: a cheap rule for English.

    It is where it compares, counts or asks for a difference, and at least two numbers are known.
    """
    answers = [hop.answer for hop in trajectory.tasks if hop.answer]
    if re.search(r"\bhow many of\b", sub_question, re.IGNORECASE) and len(answers) > 1:
        return True
    numbers = NUMBER.findall(" ".join([sub_question, *answers]))
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
