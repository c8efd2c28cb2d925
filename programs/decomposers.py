"""Decomposers: where the next sub-question comes from.

Both are generators of the solver's requests and return the next sub-question, or ``None`` with the reason for stopping.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

from .requests import Ask, Told
from .trajectory import Cost, StopReason, Trajectory
from .transcript import NO_MORE, transcript

_MAX_PLAN = 8
# Without the plural's s, as the words that they are compared with.
_FUNCTION = set(
    "a an the of in on at to for by is i are wa were be been did do doe ha have had and that".split()  # noqa: SIM905
)
_QUESTION_MARKS = "?\uff1f\u061f\u037e"
_ASKING = re.compile(
    r"(who|whom|whose|what|when|where|which|why|how|in|on|at|by|for|from|of|to|is|are|was|were|do|does|did|has|have|had|"
    r"can|could|find|name|list|give|tell|identify|determine|compare|calculate|count|search|look)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Next:
    """The outcome of a decomposer.

    Attributes:
        sub_question: The next sub-question; ``None`` if there is none.
        trajectory: The trajectory, with the plan if one was made just now.
        reason: Why there is none.
        cost: What deciding took.
    """

    sub_question: str | None
    trajectory: Trajectory
    reason: StopReason | None = None
    cost: Cost = field(default_factory=Cost)


Decomposition = Generator[Ask, Told, Next]


@runtime_checkable
class Decomposer(Protocol):
    """Finds the next sub-question of a trajectory.

    It may have an attribute ``step``: the predictor whose demos it wants, ``next_sub_question`` or ``plan``.
    """

    def next(self, trajectory: Trajectory, words: int, demos: tuple[dict[str, Any], ...]) -> Decomposition:
        """The next sub-question."""
        ...


class Iterative:
    """Asks for the next sub-question only, given what was answered so far."""

    step = "next_sub_question"

    def next(self, trajectory: Trajectory, words: int, demos: tuple[dict[str, Any], ...]) -> Decomposition:
        """See :class:`Decomposer`. If the LM asks nothing at all, the question itself is the sub-question."""
        inputs = {"question": trajectory.question, "trajectory": transcript(trajectory, words=words)}
        told = yield Ask("next_sub_question", "sub_question", inputs, demos)
        asked = _clean(told.text)
        # A small model that has nothing left to ask states what it knows.
        if asked is None or not _asks(asked):
            if not trajectory.hops:
                return Next(trajectory.question, trajectory, cost=told.cost)
            return Next(None, trajectory, "empty" if told.text is None else "finished", told.cost)
        if repeats(asked, trajectory):
            return Next(None, trajectory, "repeated", told.cost)
        return Next(asked, trajectory, cost=told.cost)


class Plan:
    """Asks for all sub-questions at once, with ``#1`` for the first one's answer, and takes one after the other."""

    step = "plan"

    def next(self, trajectory: Trajectory, words: int, demos: tuple[dict[str, Any], ...]) -> Decomposition:
        """See :class:`Decomposer`. A plan that cannot be read is the question itself."""
        cost = Cost()
        if trajectory.plan is None:
            told = yield Ask("plan", "plan", {"question": trajectory.question, "trajectory": ""}, demos)
            cost = told.cost
            steps = list(filter(None, map(_clean, re.split(r"\s+\|\s+|\n", told.text or ""))))
            trajectory = replace(trajectory, plan=_distinct(steps[:_MAX_PLAN]) or (trajectory.question,))
        plan = trajectory.plan or ()
        if len(trajectory.hops) >= len(plan):
            return Next(None, trajectory, "no_plan" if plan == (trajectory.question,) else "finished", cost)
        asked = _filled(plan[len(trajectory.hops)], trajectory)
        if repeats(asked, trajectory):
            return Next(None, trajectory, "repeated", cost)
        return Next(asked, trajectory, cost=cost)


def _asks(text: str) -> bool:
    # Other languages: whatever ends with a question mark, of any script, is a question.
    return any(mark in text for mark in _QUESTION_MARKS) or _ASKING.match(text) is not None


def repeats(sub_question: str, trajectory: Trajectory) -> bool:
    """Whether a sub-question was asked before, in the same words but for order, function words and plurals."""
    asked = _content(sub_question)
    return any(asked == _content(hop.sub_question) for hop in trajectory.hops)


def same_question(left: str, right: str) -> bool:
    """Whether two questions are the same but for case, punctuation and spaces."""
    return _normal(left) == _normal(right)


def _clean(text: str | None) -> str | None:
    if text is None:
        return None
    text = re.sub(r"^(?:\d+[.)]|-|\*)\s+", "", " ".join(text.split()))
    return None if not _normal(text) or _normal(text) in {NO_MORE, "done", "finished"} else text


def _content(text: str) -> list[str]:
    words = [word.removesuffix("s") if word.isalpha() else word for word in _normal(text).split()]
    return sorted(word for word in words if word not in _FUNCTION) or words


def _normal(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.casefold()))


def _distinct(steps: list[str]) -> tuple[str, ...]:
    """The steps without repetitions; ``#`` references follow the step that stays."""
    kept: list[str] = []
    place: dict[int, int] = {}
    for number, step in enumerate(steps, 1):
        moved = re.sub(r"#(\d+)", lambda match: f"#{place.get(int(match.group(1)), match.group(1))}", step)
        if moved not in kept:
            kept.append(moved)
        place[number] = kept.index(moved) + 1
    return tuple(kept)


def _filled(sub_question: str, trajectory: Trajectory) -> str:
    def answer(match: re.Match[str]) -> str:
        number = int(match.group(1))
        return trajectory.hops[number - 1].answer if 1 <= number <= len(trajectory.hops) else match.group()

    return re.sub(r"#(\d+)", answer, sub_question)
