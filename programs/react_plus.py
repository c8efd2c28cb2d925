"""ReAct+: a plan, then hops of task, action, observation and conclusion, then a composition of the answer.

It is the solver that Dr3 corrects (Gao et al. 2024, section 3.2): ReAct (Yao et al. 2023) with an initial
decomposition, a search in every hop, a conclusion after every observation, and a last step that composes the answer.

::

    plan ─► next_task (task and action) ─► search ─► read (conclusion) ─┐
                ▲          │ none                                       │
                │          ▼                                            │
                │       compose ─► answer                               │
                └───────────────────────────────────────────────────────┘
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from typing import Any

import dspy
from pydantic import Field

from ..signatures import ComposeAnswer, NextTask, PlanSubQuestions, ReadConclusion
from .composing import composed, conclusions
from .decomposers import Plan, judged, same_question
from .hops import best_passages, words_shown
from .requests import Ask, Find, Found, Reached, Steps, Told
from .settings import ExampleSettings, validated
from .solver import Solver, accept
from .trajectory import Cost, Hop, Trajectory
from .transcript import NO_MORE, found, hint, hop_lines, line
from .worked_examples import DEFAULT_EXAMPLES, step_demos

_HopSteps = Generator[Any, Any, Trajectory]


class ReActPlusSettings(ExampleSettings):
    """Settings of :class:`ReActPlus`.

    Attributes:
        max_hops: Limit on hops.
        final_passages: Passages that the last step reads once more with the question.
        context_words: Words of passages that a trajectory may hold before no further hop follows.
    """

    max_hops: int = Field(default=4, ge=1, le=20)
    final_passages: int = Field(default=4, ge=0, le=100)
    context_words: int = Field(default=1500, ge=50)


class ReActPlus(Solver):
    """Answer a multi-hop question by a plan and one search a hop.

    Args:
        retriever: An index or anything with ``search(query, k)``.
        **settings: See :class:`ReActPlusSettings`.

    Raises:
        InputError: A setting is unknown or out of range.

    Example:
        >>> ReActPlus(ColBERTIndex.open("index"), k=3)(question="...").answer  # doctest: +SKIP
    """

    def __init__(self, retriever: Any, **settings: Any) -> None:
        super().__init__(retriever, validated(ReActPlusSettings, settings))
        self.plan = dspy.Predict(PlanSubQuestions)
        self.next_task = dspy.Predict(NextTask)
        self.read = dspy.Predict(ReadConclusion)
        self.compose = dspy.Predict(ComposeAnswer)

    def _steps(self, question: str, trajectory: Trajectory) -> Steps:
        if trajectory.answer is not None:
            return trajectory
        settings: ReActPlusSettings = self.settings.values
        if trajectory.open is not None:
            trajectory = yield from self._read(trajectory, trajectory.open, settings)
            yield Reached(trajectory)
        while trajectory.stop_reason is None:
            if len(trajectory.hops) >= settings.max_hops:
                trajectory = replace(trajectory, stop_reason="max_hops")
            elif words_shown(trajectory, settings.passage_words) > settings.context_words:
                trajectory = replace(trajectory, stop_reason="context")
            else:
                trajectory = yield from self._hop(trajectory, settings)
                yield Reached(trajectory)
        return (yield from self._compose(trajectory, settings))

    def _hop(self, trajectory: Trajectory, settings: ReActPlusSettings) -> _HopSteps:
        """The trajectory with one more hop, or with the reason why there is none."""
        words, cost = settings.passage_words, Cost()
        if trajectory.plan is None:
            planned = yield from Plan().next(trajectory, words, self._demos(Plan.step))
            trajectory, cost = planned.trajectory, planned.cost
        inputs = {"question": trajectory.question, "trajectory": _text(trajectory, words=words)}
        told: Told = yield Ask("next_task", "task", inputs, self._demos("next_task"), tentative=True, also=("action",))
        # Another adapter may have left the lines that a model wrote after its task.
        asked = judged(replace(told, text=_first_line(told.text)), trajectory)
        action = _first_line(told.others.get("action"))
        nothing = asked.sub_question is None or same_question(asked.sub_question, trajectory.question)
        if nothing and not trajectory.hops:
            # The plan's first step asks for less than the whole question.
            asked, action = (yield from Plan().next(trajectory, words, ())), None
        else:
            accept(told)
        cost = cost + told.cost
        if asked.sub_question is None:
            return replace(trajectory, stop_reason=asked.reason, other_cost=trajectory.other_cost + cost)
        query = action if action and action.casefold() != NO_MORE else asked.sub_question
        searched: Found = yield Find(query, settings.k)
        hop = Hop(asked.sub_question, query=query, passages=searched.passages, cost=cost + searched.cost)
        return (yield from self._read(trajectory, hop, settings))

    def _read(self, trajectory: Trajectory, hop: Hop, settings: ReActPlusSettings) -> _HopSteps:
        opened = _text(trajectory, words=settings.passage_words, opened=hop)
        inputs = {"question": trajectory.question, "trajectory": opened}
        told: Told = yield Ask("read", "conclusion", inputs, self._demos("read"))
        cost = hop.cost + told.cost + Cost(passages_read=len(hop.passages))
        hop = replace(hop, source="search", answer=told.text or "", answer_confidence=told.confidence, cost=cost)
        return trajectory.with_hop(hop)

    def _compose(self, trajectory: Trajectory, settings: ReActPlusSettings) -> Steps:
        passages = best_passages(trajectory, settings.final_passages)
        lines = [_text(trajectory, words=None), *found(passages, settings.passage_words), *hint(trajectory)]
        inputs = {"question": trajectory.question, "trajectory": "\n".join(filter(None, lines))}
        told: Told = yield Ask("compose", "answer", inputs, self._demos("compose"))
        told = replace(told, cost=told.cost + Cost(passages_read=len(passages)))
        examples = settings.worked_examples(DEFAULT_EXAMPLES)
        return composed(trajectory, told, others=conclusions(trajectory), passages=passages, examples=examples)

    def _demos(self, step: str) -> tuple[dict[str, Any], ...]:
        settings: ReActPlusSettings = self.settings.values
        examples = settings.worked_examples(DEFAULT_EXAMPLES)
        return tuple(demo for example in examples for demo in _step_demos(example, step, settings.passage_words))


# --- how a trajectory is written --------------------------------------------------------------------------------------


def _text(trajectory: Trajectory, *, words: int | None, opened: Hop | None = None) -> str:
    """Plan, tasks, actions, passages and conclusions so far; without ``words``, plan, tasks and conclusions alone."""
    lines = [line("Plan:", " | ".join(trajectory.plan))] if trajectory.plan else []
    for number, hop in enumerate(trajectory.hops, 1):
        lines += _hop_lines(hop, number, words)
    if opened is not None:
        lines += _hop_lines(opened, len(trajectory.hops) + 1, words, conclusion=False)
    return "\n".join(lines)


def _hop_lines(hop: Hop, number: int, words: int | None, *, conclusion: bool = True) -> list[str]:
    task, *rest = hop_lines(hop, number, words=words, conclusion=conclusion)
    action = [] if words is None else [line(f"Action {number}:", hop.query or hop.sub_question)]
    return [task, *action, *rest]


def _first_line(text: str | None) -> str | None:
    return next(iter((text or "").strip().splitlines()), "").strip() or None


def _step_demos(example: Trajectory, step: str, words: int) -> list[dict[str, Any]]:
    """A worked example as demos of one step, as ``worked_examples.step_demos`` makes them."""
    plan = step_demos(example, Plan.step, words)[0]["plan"]
    example = replace(example, plan=example.plan or tuple(plan.split(" | ")))
    before = [replace(example, hops=example.hops[:number]) for number in range(len(example.hops) + 1)]
    moments: list[tuple[str, dict[str, str]]]
    if step == Plan.step:
        moments = [("", {"plan": " | ".join(example.plan or ())})]
    elif step == "next_task":
        asked = [(hop.sub_question, hop.query or hop.sub_question) for hop in example.hops]
        texts = [_text(earlier, words=words) for earlier in before]
        written = [{"task": task, "action": action} for task, action in [*asked, (NO_MORE, NO_MORE)]]
        moments = list(zip(texts, written, strict=True))
    elif step == "read":
        moments = [
            (_text(earlier, words=words, opened=hop), {"conclusion": hop.answer})
            for earlier, hop in zip(before, example.hops, strict=False)
            if hop.passages
        ]
    else:
        moments = [
            ("\n".join([_text(example, words=None), *found(example.passages, words)]), {"answer": _answer(example)})
        ]
    whole = _worked_example(example, words)
    if not moments:
        return [{"question": example.question, "transcript": whole}]
    return [{"question": example.question, "trajectory": text, **out, "transcript": whole} for text, out in moments]


def _worked_example(example: Trajectory, words: int) -> str:
    lines = [line("Question:", example.question), _text(example, words=words)]
    lines += [line(f"Task {len(example.hops) + 1}:", NO_MORE), line("Answer:", _answer(example))]
    return "\n".join(lines)


def _answer(example: Trajectory) -> str:
    return example.answer or ""
