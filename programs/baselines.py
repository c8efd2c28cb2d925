"""Programs that answer in one call: direct, chain of thought, standard RAG.

::

    Direct           question ──────────────────────────► answer
    ChainOfThought   question ──► reasoning ────────────► answer
    RAG              question ──► search ──► passages ──► answer

They show the worked examples that multi-hop programs show, in a form of their own.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import dspy

from ..signatures import AnswerDirectly, AnswerFromPassages
from .chains import CHAIN_EXAMPLES, distinct, sentences
from .requests import Ask, Find, Found, Reached, Steps, Told
from .settings import ExampleSettings, validated
from .solver import Solver
from .trajectory import Cost, Trajectory
from .transcript import shorten


class Direct(Solver):
    """Answer from the LM's own knowledge, in one call.

    Args:
        **settings: See :class:`hopgate.programs.ExampleSettings`.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(None, validated(ExampleSettings, settings))
        self.respond = dspy.Predict(AnswerDirectly)

    def _steps(self, question: str, trajectory: Trajectory) -> Steps:
        demos = answer_demos(self.settings.values)
        return (yield from _one_call(trajectory, {"question": question}, demos))


class ChainOfThought(Solver):
    """Reason, then answer, from the LM's own knowledge (Wei et al. 2022).

    Args:
        **settings: See :class:`hopgate.programs.ExampleSettings`.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(None, validated(ExampleSettings, settings))
        self.respond = dspy.ChainOfThought(AnswerDirectly)

    def _steps(self, question: str, trajectory: Trajectory) -> Steps:
        demos = answer_demos(self.settings.values, "reasoning")
        return (yield from _one_call(trajectory, {"question": question}, demos))


class RAG(Solver):
    """Search once with the whole question and answer from the passages (Lewis et al. 2020).

    Args:
        retriever: An index or anything with ``search(query, k)``.
        **settings: See :class:`hopgate.programs.ExampleSettings`.
    """

    def __init__(self, retriever: Any, **settings: Any) -> None:
        super().__init__(retriever, validated(ExampleSettings, settings))
        self.respond = dspy.Predict(AnswerFromPassages)

    def _steps(self, question: str, trajectory: Trajectory) -> Steps:
        if trajectory.answer is not None:
            return trajectory
        settings: ExampleSettings = self.settings.values
        if not trajectory.passages:
            searched: Found = yield Find(question, settings.k)
            cost = trajectory.other_cost + searched.cost + Cost(passages_read=len(searched.passages))
            trajectory = replace(trajectory, passages=searched.passages, other_cost=cost)
            yield Reached(trajectory)
        shown = [shorten(passage.long_text, settings.passage_words) for passage in trajectory.passages]
        inputs = {"passages": shown, "question": question}
        return (yield from _one_call(trajectory, inputs, answer_demos(settings, "passages")))


def answer_demos(
    settings: ExampleSettings, part: Literal["reasoning", "passages"] | None = None
) -> tuple[dict[str, Any], ...]:
    """The worked examples as demos of a call that answers at once.

    Args:
        settings: The program's settings; they say which examples, and how many words to show of a passage.
        part: What a demo has beside question and answer.
    """
    return tuple(_demo(example, part, settings) for example in settings.worked_examples(CHAIN_EXAMPLES))


def _demo(example: Trajectory, part: str | None, settings: ExampleSettings) -> dict[str, Any]:
    demo: dict[str, Any] = {"question": example.question, "answer": example.answer}
    if part == "reasoning":
        demo["reasoning"] = " ".join(sentences(example))
    elif part == "passages":
        passages = distinct((*example.passages, *(passage for hop in example.hops for passage in hop.passages)))
        demo["passages"] = [shorten(passage.long_text, settings.passage_words) for passage in passages]
    return demo


def _one_call(trajectory: Trajectory, inputs: dict[str, Any], demos: tuple[dict[str, Any], ...]) -> Steps:
    if trajectory.answer is not None:
        return trajectory
    told: Told = yield Ask("respond", "answer", inputs, demos)
    return replace(
        trajectory,
        answer=told.text or "",
        answer_confidence=told.confidence,
        stop_reason="finished" if told.text else "empty",
        other_cost=trajectory.other_cost + told.cost,
    )
