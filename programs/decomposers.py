"""Decomposers: where the next sub-question comes from.

Both are generators of the solver's requests and return the next sub-question, or ``None`` with the reason for stopping.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

import dspy

from .requests import Ask, Told
from .solver import accept
from .trajectory import Cost, StopReason, Trajectory
from .transcript import NO_MORE, failed_plan, transcript

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
        drafted: The draft that came with the sub-question, if one was asked for.
    """

    sub_question: str | None
    trajectory: Trajectory
    reason: StopReason | None = None
    cost: Cost = field(default_factory=Cost)
    drafted: Told | None = None


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
        """See :class:`Decomposer`. If the LM asks nothing at all, the question itself is the sub-question.

        The first sub-question of a plan that failed is not asked again.
        """
        lines = [*failed_plan(trajectory), transcript(trajectory, words=words)]
        inputs = {"question": trajectory.question, "trajectory": "\n".join(filter(None, lines))}
        told = yield Ask("next_sub_question", "sub_question", inputs, demos, tentative=True)
        found = judged(told, trajectory)
        if not _stuck(found, trajectory):
            accept(told)
        return found


class Fused(Iterative):
    """Asks for the next sub-question and its draft in one call, given the conclusions alone, as drafts are.

    Args:
        confidence: Whether the draft's log-probabilities are needed.
    """

    step = "next_with_draft"

    def __init__(self, *, confidence: bool = True) -> None:
        self.confidence = confidence

    def next(self, trajectory: Trajectory, words: int, demos: tuple[dict[str, Any], ...]) -> Decomposition:
        """See :class:`Iterative`. The call joins the trace when the hop is taken, with the draft if it is kept."""
        lines = [*failed_plan(trajectory), transcript(trajectory, words=None)]
        inputs = {"question": trajectory.question, "trajectory": "\n".join(filter(None, lines))}
        # Two lines, and not what would follow them.
        config = {"stop": ["\nTask", "\nFound", "\nAnswer", "\n\n"]}
        told = yield Ask(
            "next_with_draft", "draft", inputs, demos, self.confidence, True, also=("sub_question",), config=config
        )
        asked = _first_line(told.others.get("sub_question"))
        found = judged(replace(told, text=asked), trajectory)
        if found.sub_question is not None and found.sub_question == _clean(asked):
            return replace(found, drafted=replace(told, text=_first_line(told.text)))
        if not _stuck(found, trajectory):
            accept(without_draft(told))
        return found


class Plan:
    """Asks for all sub-questions at once, with ``#1`` for the first one's answer, and takes one after the other."""

    step = "plan"

    def next(self, trajectory: Trajectory, words: int, demos: tuple[dict[str, Any], ...]) -> Decomposition:
        """See :class:`Decomposer`. A plan that cannot be read, or that failed before, is the question itself."""
        cost = Cost()
        if trajectory.plan is None:
            inputs = {"question": trajectory.question, "trajectory": "\n".join(failed_plan(trajectory))}
            told = yield Ask("plan", "plan", inputs, demos)
            cost = told.cost
            steps = list(filter(None, map(_clean, re.split(r"\s+\|\s+|\n", told.text or ""))))
            plan = _distinct(steps[:_MAX_PLAN])
            if not plan or any(_same_plan(plan, failed) for failed in trajectory.failed_plans):
                plan = (trajectory.question,)
            trajectory = replace(trajectory, plan=plan)
        plan, done = trajectory.plan or (), len(trajectory.tasks)
        whole = plan == (trajectory.question,)
        if done >= len(plan):
            return Next(None, trajectory, "no_plan" if whole else "finished", cost)
        asked = _filled(plan[done], trajectory)
        if repeats(asked, trajectory) or (whole and tried(asked, trajectory)):
            return Next(None, trajectory, "no_plan" if whole else "repeated", cost)
        return Next(asked, trajectory, cost=cost)


def decompose(
    decomposer: Decomposer, trajectory: Trajectory, words: int, demos: Callable[[str], tuple[dict[str, Any], ...]]
) -> Decomposition:
    """The next sub-question; where asking for the first one only leads to what was tried, by a plan.

    Args:
        decomposer: Asked first, unless it is :class:`Iterative` and the trajectory has a plan already.
        trajectory: The trajectory.
        words: Words to show of each passage.
        demos: Demos of a predictor, by its name.
    """
    if isinstance(decomposer, Iterative) and trajectory.plan is not None:
        decomposer = Plan()
    found = yield from decomposer.next(trajectory, words, demos(getattr(decomposer, "step", Iterative.step)))
    if not isinstance(decomposer, Iterative) or not _stuck(found, trajectory):
        return found
    planned = yield from Plan().next(found.trajectory, words, demos(Plan.step))
    return replace(planned, cost=found.cost + planned.cost)


def without_draft(told: Told) -> Told:
    """A call that gave a sub-question with a draft, as one that gave the sub-question alone."""

    def bare(output: Any) -> Any:
        return dspy.Prediction(**{name: value for name, value in output.items() if name != "draft"})

    entries = [(predictor, inputs, bare(output)) for predictor, inputs, output in told.entries]
    return replace(told, entries=entries)


def tried(sub_question: str, trajectory: Trajectory) -> bool:
    """Whether a plan that failed begins with a sub-question."""
    first = (plan[0] for plan in trajectory.failed_plans if plan)
    return any(_content(sub_question) == _content(failed) for failed in first)


def judged(told: Told, trajectory: Trajectory) -> Next:
    """What the LM's line for the next sub-question means."""
    asked = _clean(told.text)
    # A small model that has nothing left to ask states what it knows.
    if asked is None or not _asks(asked):
        if not trajectory.hops and not tried(trajectory.question, trajectory):
            return Next(trajectory.question, trajectory, cost=told.cost)
        return Next(None, trajectory, "empty" if told.text is None else "finished", told.cost)
    if repeats(asked, trajectory) or (not trajectory.tasks and tried(asked, trajectory)):
        return Next(None, trajectory, "repeated", told.cost)
    return Next(asked, trajectory, cost=told.cost)


def _stuck(found: Next, trajectory: Trajectory) -> bool:
    """Whether there is no first sub-question though the question alone, or another plan, did not do."""
    return found.sub_question is None and not trajectory.tasks and bool(trajectory.hops or trajectory.failed_plans)


def _first_line(text: str | None) -> str | None:
    return (text or "").strip().split("\n", 1)[0].strip() or None


def _same_plan(plan: tuple[str, ...], failed: tuple[str, ...]) -> bool:
    """Whether a plan is one that failed, whose references to earlier answers may be filled in already."""

    def same(step: str, other: str) -> bool:
        pattern = ".*".join(map(re.escape, re.split(r"#\d+", step.casefold())))
        return re.fullmatch(pattern, other.casefold(), re.DOTALL) is not None

    return len(plan) == len(failed) and all(map(same, plan, failed))


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
        return trajectory.tasks[number - 1].answer if 1 <= number <= len(trajectory.tasks) else match.group()

    return re.sub(r"#(\d+)", answer, sub_question)
