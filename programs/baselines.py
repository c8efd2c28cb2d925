"""Programs that answer in one call: direct, chain of thought, standard RAG."""

from __future__ import annotations

from typing import Any

import dspy

from ..signatures import AnswerDirectly, AnswerFromPassages
from .requests import Ask, Find, Found, Steps, Told
from .settings import ProgramSettings, validated
from .solver import Solver
from .trajectory import Cost, Trajectory
from .transcript import shorten


class Direct(Solver):
    """Answer from the LM's own knowledge, in one call."""

    def __init__(self) -> None:
        super().__init__(None, ProgramSettings())
        self.respond = dspy.Predict(AnswerDirectly)

    def _steps(self, question: str, trajectory: Trajectory) -> Steps:
        return (yield from _one_call(trajectory, {"question": question}))


class ChainOfThought(Solver):
    """Reason, then answer, from the LM's own knowledge (Wei et al. 2022)."""

    def __init__(self) -> None:
        super().__init__(None, ProgramSettings())
        self.respond = dspy.ChainOfThought(AnswerDirectly)

    def _steps(self, question: str, trajectory: Trajectory) -> Steps:
        return (yield from _one_call(trajectory, {"question": question}))


class RAG(Solver):
    """Search once with the whole question and answer from the passages (Lewis et al. 2020).

    Args:
        retriever: An index or anything with ``search(query, k)``.
        **settings: See :class:`hopgate.programs.ProgramSettings`.
    """

    def __init__(self, retriever: Any, **settings: Any) -> None:
        super().__init__(retriever, validated(ProgramSettings, settings))
        self.respond = dspy.Predict(AnswerFromPassages)

    def _steps(self, question: str, trajectory: Trajectory) -> Steps:
        if trajectory.answer is not None:
            return trajectory
        settings: ProgramSettings = self.settings.values
        searched: Found = yield Find(question, settings.k)
        shown = [shorten(passage.long_text, settings.passage_words) for passage in searched.passages]
        cost = searched.cost + Cost(passages_read=len(shown))
        started = Trajectory(question, passages=searched.passages, other_cost=cost)
        return (yield from _one_call(started, {"passages": shown, "question": question}))


def _one_call(trajectory: Trajectory, inputs: dict[str, Any]) -> Steps:
    if trajectory.answer is not None:
        return trajectory
    told: Told = yield Ask("respond", "answer", inputs)
    return Trajectory(
        trajectory.question,
        passages=trajectory.passages,
        answer=told.text or "",
        answer_confidence=told.confidence,
        stop_reason="finished" if told.text else "empty",
        other_cost=trajectory.other_cost + told.cost,
    )
