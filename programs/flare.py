"""FLARE: forward-looking active retrieval, FLARE-direct (Jiang et al. 2023).

::

    question ──► search ──► look-ahead sentence ──► a token below theta? ──no──► kept ──────────┐
                               ▲                        │ yes                                   │
                               │                 search with the tokens above beta              │
                               │                        ▼                                       ▼
                               │                 the sentence anew, from passages ──► does it state the answer?
                               └───────────────────── no ────────────────────────────────┘   │ yes
                                                                                             └──► answer

A temporary next sentence looks ahead (section 3.2). If every token of it has at least the probability theta it is
kept; otherwise it is the query, without the tokens whose probability is below beta ("implicit queries by masking"), and
the sentence is written anew from what is found. The passages of the last search stay in view until the next one
replaces them, and the question itself is searched for first: both as in figure 3 and the authors' own configuration for
multi-hop questions, as are theta = .8 and beta = .4.

The last step only gives the stated answer in its short form.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Any, Literal

import dspy
from pydantic import Field

from ..core import ConfidenceError, Passage
from ..lms.confidence import AnswerConfidence, answer_tokens, confidence_of
from ..signatures import AnswerFromFound, NextSentence
from .chains import (
    CHAIN_EXAMPLES,
    ChainSettings,
    chain_demos,
    chain_text,
    finishes,
    first_sentence,
    stated_answer,
    words_of,
)
from .composing import composed
from .decomposers import same_question
from .requests import Ask, Find, Found, Reached, Steps, Told
from .settings import validated
from .solver import Solver, accept, label_of
from .trajectory import Cost, Hop, StopReason, Trajectory
from .transcript import failed_plan, hint


class FLARESettings(ChainSettings):
    """Settings of :class:`FLARE`.

    Attributes:
        theta: Probability that every token of a look-ahead must have for it to be kept; 0 never searches for a
            sentence, 1 practically always.
        beta: Probability below which a token of the look-ahead is no part of the query.
        start: Whether the ``question`` is searched for first, or ``nothing``.
        without_confidence: What to do where the backend gives no usable log-probabilities: ``raise``, or ``search``
            with the whole look-ahead.
    """

    theta: float = Field(default=0.8, ge=0, le=1)
    beta: float = Field(default=0.4, ge=0, le=1)
    start: Literal["question", "nothing"] = "question"
    without_confidence: Literal["raise", "search"] = "raise"


@dataclass(frozen=True, slots=True)
class _LookAhead:
    """A temporary sentence: its text, its confidence, and what to search for if it is not sure enough."""

    sentence: str
    confidence: AnswerConfidence | None
    query: str


class FLARE(Solver):
    """Write sentence by sentence, and search where a look-ahead sentence has an unlikely token.

    A hop is one sentence. Its ``draft`` is the look-ahead, its ``confidence`` the look-ahead's; without a search the
    look-ahead is the sentence. The search with the question is a hop without a sentence.

    Args:
        retriever: An index or anything with ``search(query, k)``.
        **settings: See :class:`FLARESettings`.

    Raises:
        InputError: A setting is unknown or out of range.
    """

    def __init__(self, retriever: Any, **settings: Any) -> None:
        super().__init__(retriever, validated(FLARESettings, settings))
        self.think = dspy.Predict(NextSentence)
        self.respond = dspy.Predict(AnswerFromFound)

    def _confidence_required(self) -> bool:
        return self.settings.values.without_confidence == "raise"

    def _steps(self, question: str, trajectory: Trajectory) -> Steps:
        if trajectory.answer is not None:
            return trajectory
        settings: FLARESettings = self.settings.values
        if trajectory.open is not None:
            trajectory = yield from self._read(trajectory, trajectory.open, settings)
        elif not trajectory.hops and trajectory.stop_reason is None and settings.start == "question":
            hop = yield from _search(Hop(question), question, settings)
            trajectory = trajectory.with_hop(hop)
            yield Reached(trajectory)
        while trajectory.stop_reason is None:
            if reason := _reason_to_stop(trajectory, settings):
                trajectory = replace(trajectory, stop_reason=reason)
                yield Reached(trajectory)
            else:
                trajectory = yield from self._hop(trajectory, settings)
        return (yield from self._respond(trajectory, settings))

    # --- one sentence -------------------------------------------------------------------------------------------

    def _hop(self, trajectory: Trajectory, settings: FLARESettings) -> Generator[Any, Any, Trajectory]:
        in_view = _in_view(trajectory)
        told: Told = yield self._next_sentence(trajectory, in_view, settings, confidence=True)
        ahead = self._look_ahead(told, settings)
        if not ahead.sentence and trajectory.hops:
            cost = trajectory.other_cost + told.cost
            trajectory = replace(trajectory, stop_reason="empty", other_cost=cost)
            yield Reached(trajectory)
            return trajectory
        hop = Hop(
            ahead.sentence or trajectory.question,
            draft=ahead.sentence or None,
            confidence=ahead.confidence,
            note=told.note,
            answer=ahead.sentence,
            cost=told.cost,
        )
        if ahead.sentence and _sure(ahead.confidence, settings.theta):
            accept(told)
            trajectory = trajectory.with_hop(hop)
            yield Reached(trajectory)
            return trajectory
        hop = yield from _search(replace(hop, answer=""), ahead.query or trajectory.question, settings)
        yield Reached(replace(trajectory, open=hop))
        return (yield from self._read(trajectory, hop, settings))

    def _read(self, trajectory: Trajectory, hop: Hop, settings: FLARESettings) -> Generator[Any, Any, Trajectory]:
        """The sentence anew, from the passages found with its look-ahead."""
        told: Told = yield self._next_sentence(trajectory, hop.passages, settings)
        accept(told)
        # Where nothing can be written from the passages, the look-ahead is still the best there is.
        sentence = first_sentence(told.text) or hop.draft or ""
        cost = hop.cost + told.cost
        hop = replace(hop, source="search", answer=sentence, answer_confidence=told.confidence, cost=cost)
        trajectory = trajectory.with_hop(hop)
        yield Reached(trajectory)
        return trajectory

    def _next_sentence(
        self,
        trajectory: Trajectory,
        passages: tuple[Passage, ...],
        settings: FLARESettings,
        *,
        confidence: bool = False,
    ) -> Ask:
        lines = [*failed_plan(trajectory), chain_text(passages, _said(trajectory), settings.passage_words)]
        inputs = {"question": trajectory.question, "trajectory": "\n".join(filter(None, lines))}
        demos = self._demos("think", settings)
        return Ask("think", "sentence", inputs, demos, confidence=confidence, tentative=True)

    def _look_ahead(self, told: Told, settings: FLARESettings) -> _LookAhead:
        sentence = first_sentence(told.text)
        if not sentence:
            return _LookAhead("", None, "")
        try:
            tokens = answer_tokens(told.prediction, "sentence", label=label_of(self.think, "sentence"))
        except ConfidenceError:
            # Had it been needed, the call itself would have raised.
            return _LookAhead(sentence, None, sentence)
        tokens = _of_sentence(tokens, sentence)
        # A sentence that is unlikely throughout still says more than no query.
        query = _masked(sentence, tokens, settings.beta) or sentence
        return _LookAhead(sentence, confidence_of([logprob for _, logprob in tokens]), query)

    # --- the last step ------------------------------------------------------------------------------------------

    def _respond(self, trajectory: Trajectory, settings: FLARESettings) -> Steps:
        passages, said = _in_view(trajectory), _said(trajectory)
        lines = [chain_text(passages, said, settings.passage_words), *hint(trajectory)]
        inputs = {"question": trajectory.question, "trajectory": "\n".join(filter(None, lines))}
        told: Told = yield Ask("respond", "answer", inputs, self._demos("answer", settings))
        others = [(stated_answer(said[-1]), None)] if said else []
        examples = settings.worked_examples(CHAIN_EXAMPLES)
        return composed(trajectory, told, others=others, passages=passages, examples=examples)

    def _demos(self, step: str, settings: FLARESettings) -> tuple[dict[str, Any], ...]:
        examples = settings.worked_examples(CHAIN_EXAMPLES)
        return tuple(demo for example in examples for demo in chain_demos(example, step, settings.passage_words))


def _search(hop: Hop, query: str, settings: FLARESettings) -> Generator[Any, Any, Hop]:
    searched: Found = yield Find(query, settings.k)
    cost = hop.cost + searched.cost + Cost(passages_read=len(searched.passages))
    return replace(hop, source="search", query=query, passages=searched.passages, cost=cost)


def _in_view(trajectory: Trajectory) -> tuple[Passage, ...]:
    """The passages of the last search."""
    return next((hop.passages for hop in reversed(trajectory.hops) if hop.query is not None), ())


def _said(trajectory: Trajectory) -> list[str]:
    return [hop.answer for hop in trajectory.hops if hop.answer]


def _sure(confidence: AnswerConfidence | None, theta: float) -> bool:
    return confidence is not None and confidence.min is not None and math.exp(confidence.min) >= theta


def _of_sentence(tokens: list[tuple[bytes, float]], sentence: str) -> list[tuple[bytes, float]]:
    """The tokens of the first sentence of what they spell."""
    length, seen = len("".join(sentence.split()).encode()), 0
    for number, (piece, _) in enumerate(tokens):
        if seen >= length:
            return tokens[:number]
        seen += len(b"".join(piece.split()))
    return tokens


def _masked(sentence: str, tokens: list[tuple[bytes, float]], beta: float) -> str:
    """The sentence without its unlikely tokens. White space stays: a token of it alone has no part in the answer."""
    data, kept, position = sentence.encode(), b"", 0
    for piece, logprob in tokens:
        start = data.find(piece.strip(), position)
        if start >= 0:
            end = start + len(piece.strip())
            kept += data[position:start] + (data[start:end] if math.exp(logprob) >= beta else b"")
            position = end
    return " ".join(kept.decode("utf-8", "ignore").split())


def _reason_to_stop(trajectory: Trajectory, settings: FLARESettings) -> StopReason | None:
    said = _said(trajectory)
    if said and finishes(said[-1]):
        return "finished"
    if not all(hop.answer for hop in trajectory.hops[1:]):
        return "empty"  # Only the search with the question is a hop without a sentence.
    if any(same_question(said[-1], earlier) for earlier in said[:-1]):
        return "repeated"
    if len(said) >= settings.max_hops:
        return "max_hops"
    shown = words_of(_in_view(trajectory), settings.passage_words)
    return "context" if shown > settings.context_words else None
