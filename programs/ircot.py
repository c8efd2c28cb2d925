"""IRCoT: interleaving retrieval with chain-of-thought reasoning (Trivedi et al. 2023).

::

    question ──► search ──► passages ──► next sentence ──► "answer is"? ──yes──► reader ──► answer
                               ▲               │ no
                               └─── search ◄───┘

The question is searched for first (section 3.1). Then two steps alternate: *reason* writes the next sentence from the
question, all passages so far and the sentences so far, of which only the first new one is kept; *retrieve* searches
with that sentence and adds what it finds. It ends when a sentence states the answer, or at a limit. A separate reader
then answers from all passages (section 3.2).

Other than in the paper, passages are shown in the order in which they were found, not shuffled; the limit on
paragraphs (15 there) is a budget of words, as in the other programs; and a sentence that repeats an earlier one ends
the reasoning, since it would search for the same again.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from typing import Any, Literal

import dspy

from ..core import Passage
from ..signatures import AnswerFromFound, NextSentence
from .chains import (
    CHAIN_EXAMPLES,
    ChainSettings,
    chain_demos,
    chain_text,
    distinct,
    finishes,
    first_sentence,
    stated_answer,
    words_of,
)
from .composing import composed
from .decomposers import same_question
from .requests import Ask, Find, Found, Reached, Steps, Told
from .settings import validated
from .solver import Solver
from .trajectory import Cost, Hop, StopReason, Trajectory
from .transcript import failed_plan, hint


class IRCoTSettings(ChainSettings):
    """Settings of :class:`IRCoT`.

    Attributes:
        reader: What the reader is shown: the ``passages`` alone, as in the paper, or the ``chain`` of sentences too.
    """

    reader: Literal["passages", "chain"] = "passages"


class IRCoT(Solver):
    """Search with the question, then with each sentence of the reasoning.

    A hop is one sentence: its query (the question, or the sentence before), the passages found for it, and the sentence
    that followed.

    Args:
        retriever: An index or anything with ``search(query, k)``.
        **settings: See :class:`IRCoTSettings`.

    Raises:
        InputError: A setting is unknown or out of range.
    """

    def __init__(self, retriever: Any, **settings: Any) -> None:
        super().__init__(retriever, validated(IRCoTSettings, settings))
        self.think = dspy.Predict(NextSentence)
        self.respond = dspy.Predict(AnswerFromFound)

    def _steps(self, question: str, trajectory: Trajectory) -> Steps:
        if trajectory.answer is not None:
            return trajectory
        settings: IRCoTSettings = self.settings.values
        if trajectory.open is not None:
            trajectory = yield from self._think(trajectory, trajectory.open, settings)
        while trajectory.stop_reason is None:
            if reason := _reason_to_stop(trajectory, settings):
                trajectory = replace(trajectory, stop_reason=reason)
                yield Reached(trajectory)
            else:
                query = trajectory.hops[-1].answer if trajectory.hops else question
                searched: Found = yield Find(query, settings.k)
                hop = Hop(query, source="search", query=query, passages=searched.passages, cost=searched.cost)
                yield Reached(replace(trajectory, open=hop))
                trajectory = yield from self._think(trajectory, hop, settings)
        return (yield from self._respond(trajectory, settings))

    def _think(self, trajectory: Trajectory, hop: Hop, settings: IRCoTSettings) -> Generator[Any, Any, Trajectory]:
        """The sentence that follows a search."""
        before = _collected(trajectory)
        passages = distinct((*before, *hop.passages))
        thoughts = [done.answer for done in trajectory.hops]
        lines = [*failed_plan(trajectory), chain_text(passages, thoughts, settings.passage_words)]
        inputs = {"question": trajectory.question, "trajectory": "\n".join(filter(None, lines))}
        told: Told = yield Ask("think", "sentence", inputs, self._demos("think", settings))
        cost = hop.cost + told.cost + Cost(passages_read=len(passages) - len(before))
        hop = replace(hop, answer=first_sentence(told.text), answer_confidence=told.confidence, cost=cost)
        trajectory = trajectory.with_hop(hop)
        yield Reached(trajectory)
        return trajectory

    def _respond(self, trajectory: Trajectory, settings: IRCoTSettings) -> Steps:
        passages = _collected(trajectory)
        said = [hop.answer for hop in trajectory.hops if hop.answer]
        text = chain_text(passages, said if settings.reader == "chain" else (), settings.passage_words)
        lines = "\n".join(filter(None, [text, *hint(trajectory)]))
        inputs = {"question": trajectory.question, "trajectory": lines}
        told: Told = yield Ask("respond", "answer", inputs, self._demos("answer", settings))
        others = [(stated_answer(said[-1]), None)] if said else []
        examples = settings.worked_examples(CHAIN_EXAMPLES)
        return composed(trajectory, told, others=others, passages=passages, examples=examples)

    def _demos(self, step: str, settings: IRCoTSettings) -> tuple[dict[str, Any], ...]:
        examples = settings.worked_examples(CHAIN_EXAMPLES)
        return tuple(demo for example in examples for demo in chain_demos(example, step, settings.passage_words))


def _collected(trajectory: Trajectory) -> tuple[Passage, ...]:
    return distinct(passage for hop in trajectory.hops for passage in hop.passages)


def _reason_to_stop(trajectory: Trajectory, settings: IRCoTSettings) -> StopReason | None:
    if not trajectory.hops:
        return None
    last = trajectory.hops[-1].answer
    if not last:
        return "empty"
    if finishes(last):
        return "finished"
    if any(same_question(last, hop.answer) for hop in trajectory.hops[:-1]) or same_question(last, trajectory.question):
        return "repeated"
    if len(trajectory.hops) >= settings.max_hops:
        return "max_hops"
    spent = words_of(_collected(trajectory), settings.passage_words)
    return "context" if spent > settings.context_words else None
