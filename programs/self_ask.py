"""Self-Ask (Press et al. 2023): the LM asks itself follow up questions before it answers.

::

    question ──► follow up needed? ──"Yes. Follow up: ..."──► search ──► intermediate answer ──┐
                   ▲      │ "No."                                                               │
                   │      └──► final answer                                                     │
                   └────────────────────────────────────────────────────────────────────────────┘

The lines are the paper's (section 3): ``Are follow up questions needed here: Yes. Follow up: ...``, ``Intermediate
answer: ...``, ``So the final answer is: ...``. The first of them is written for each follow up question, not only for
the first, so that one line says whether there is a further one. With a search engine (figure 3) the paper takes the
engine's answer for the intermediate answer; a retriever gives passages, from which the LM reads it. As in the paper,
only the intermediate answers stay in the prompt.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import Any

import dspy
from pydantic import Field

from ..signatures import AnswerFromFollowUps, FollowUp, IntermediateAnswer
from .composing import composed, conclusions
from .decomposers import repeats
from .requests import Ask, Find, Found, Reached, Steps, Told
from .settings import ExampleSettings, validated
from .solver import Solver
from .trajectory import Cost, Hop, StopReason, Trajectory
from .transcript import failed_plan, found, hint, line
from .worked_examples import DEFAULT_EXAMPLES

_NEEDED, _INTERMEDIATE, _FINAL = (
    "Are follow up questions needed here:",
    "Intermediate answer:",
    "So the final answer is:",
)
_FOLLOW_UP = re.compile(r"(yes\b[.,:;!]?)?\s*(follow[ -]?up(?: question)?:)?\s*(.*)", re.IGNORECASE | re.DOTALL)
_NO = re.compile(r"no\b\s*(?:[.,:;!]|$)", re.IGNORECASE)


class SelfAskSettings(ExampleSettings):
    """Settings of :class:`SelfAsk`.

    Attributes:
        search: Whether intermediate answers are read from passages; else the LM knows them or not.
        max_hops: Limit on follow up questions.
    """

    search: bool = True
    max_hops: int = Field(default=4, ge=1, le=20)


class SelfAsk(Solver):
    """Ask follow up questions, answer each, then the question.

    A hop is one follow up question with its intermediate answer.

    Args:
        retriever: An index or anything with ``search(query, k)``.
        **settings: See :class:`SelfAskSettings`.

    Raises:
        InputError: A setting is unknown or out of range.
    """

    def __init__(self, retriever: Any, **settings: Any) -> None:
        super().__init__(retriever, validated(SelfAskSettings, settings))
        self.follow_up = dspy.Predict(FollowUp)
        self.read = dspy.Predict(IntermediateAnswer)
        self.respond = dspy.Predict(AnswerFromFollowUps)

    def _steps(self, question: str, trajectory: Trajectory) -> Steps:
        if trajectory.answer is not None:
            return trajectory
        settings: SelfAskSettings = self.settings.values
        if trajectory.open is not None:
            trajectory = yield from self._read(trajectory, trajectory.open, settings)
        while trajectory.stop_reason is None:
            if len(trajectory.hops) >= settings.max_hops:
                trajectory = replace(trajectory, stop_reason="max_hops")
                yield Reached(trajectory)
            else:
                trajectory = yield from self._hop(trajectory, settings)
        return (yield from self._respond(trajectory, settings))

    def _hop(self, trajectory: Trajectory, settings: SelfAskSettings) -> Generator[Any, Any, Trajectory]:
        lines = [*failed_plan(trajectory), *_lines(trajectory.hops)]
        inputs = {"question": trajectory.question, "trajectory": "\n".join(lines)}
        told: Told = yield Ask("follow_up", "follow_up", inputs, self._demos("follow_up", settings))
        asked, reason = _asked(told.text, trajectory)
        if reason is not None:
            cost = trajectory.other_cost + told.cost
            trajectory = replace(trajectory, stop_reason=reason, other_cost=cost)
            yield Reached(trajectory)
            return trajectory
        hop = Hop(asked, cost=told.cost)
        if settings.search:
            searched: Found = yield Find(asked, settings.k)
            read = Cost(passages_read=len(searched.passages))
            cost = hop.cost + searched.cost + read
            hop = replace(hop, source="search", query=asked, passages=searched.passages, cost=cost)
            yield Reached(replace(trajectory, open=hop))
        return (yield from self._read(trajectory, hop, settings))

    def _read(self, trajectory: Trajectory, hop: Hop, settings: SelfAskSettings) -> Generator[Any, Any, Trajectory]:
        lines = [*_lines(trajectory.hops), _asking(hop), *found(hop.passages, settings.passage_words)]
        inputs = {"question": trajectory.question, "trajectory": "\n".join(lines)}
        told: Told = yield Ask("read", "intermediate_answer", inputs, self._demos("read", settings))
        cost = hop.cost + told.cost
        hop = replace(hop, answer=told.text or "", answer_confidence=told.confidence, cost=cost)
        trajectory = trajectory.with_hop(hop)
        yield Reached(trajectory)
        return trajectory

    def _respond(self, trajectory: Trajectory, settings: SelfAskSettings) -> Steps:
        lines = [*_lines(trajectory.hops), line(_NEEDED, "No."), *hint(trajectory)]
        inputs = {"question": trajectory.question, "trajectory": "\n".join(lines)}
        told: Told = yield Ask("respond", "answer", inputs, self._demos("respond", settings))
        examples = settings.worked_examples(DEFAULT_EXAMPLES)
        return composed(trajectory, told, others=conclusions(trajectory), examples=examples)

    def _demos(self, step: str, settings: SelfAskSettings) -> tuple[dict[str, Any], ...]:
        examples = settings.worked_examples(DEFAULT_EXAMPLES)
        return tuple(demo for example in examples for demo in _demos(example, step, settings.passage_words))


def _asked(text: str | None, trajectory: Trajectory) -> tuple[str, StopReason | None]:
    """The follow up question that a line asks, or why it asks none."""
    line_ = " ".join((text or "").split())
    if not line_:
        return "", "empty"
    match = _FOLLOW_UP.match(line_)
    yes, label, asked = match.groups() if match else (None, None, line_)
    if not asked:
        return "", "empty"
    if not label and (_NO.match(asked) or (not yes and "?" not in asked)):
        return "", "finished"  # Whatever else the LM states in place of a question, it has none.
    return asked, "repeated" if repeats(asked, trajectory) else None


def _asking(hop: Hop) -> str:
    return line(_NEEDED, f"Yes. Follow up: {hop.sub_question}")


def _lines(hops: Sequence[Hop]) -> list[str]:
    return [text for hop in hops for text in (_asking(hop), line(_INTERMEDIATE, hop.answer))]


def _demos(example: Trajectory, step: str, words: int) -> list[dict[str, Any]]:
    """A worked example as demos of one step, as ``worked_examples.step_demos`` makes them."""
    shown = [[_asking(hop), *found(hop.passages, words), line(_INTERMEDIATE, hop.answer)] for hop in example.hops]
    ends = [line(_NEEDED, "No."), line(_FINAL, example.answer or "")]
    whole = [line("Question:", example.question), *(text for lines in shown for text in lines), *ends]
    shared = {"question": example.question, "transcript": "\n".join(whole)}
    before = [_lines(example.hops[:number]) for number in range(len(example.hops) + 1)]
    if step == "respond":
        return [{**shared, "trajectory": "\n".join([*before[-1], ends[0]]), "answer": example.answer}]
    if step == "read":
        opened = [[*before[number], *lines[:-1]] for number, lines in enumerate(shown)]
        return [
            {**shared, "trajectory": "\n".join(lines), "intermediate_answer": hop.answer}
            for lines, hop in zip(opened, example.hops, strict=True)
        ]
    written = [*(f"Yes. Follow up: {hop.sub_question}" for hop in example.hops), "No."]
    return [
        {**shared, "trajectory": "\n".join(lines), "follow_up": text}
        for lines, text in zip(before, written, strict=True)
    ]
