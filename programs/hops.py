"""One hop of ActiveQA: a sub-question is answered from memory, from passages at hand, or from a search of its own."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from typing import Any

from ..core import Passage
from .calculator import calculable, calculated
from .decomposers import without_draft
from .gates import ConstantGate, Draft, Gate
from .requests import Ask, Find, Found, Told
from .settings import ActiveSettings
from .solver import accept
from .trajectory import Cost, Decision, Hop, Trajectory
from .transcript import found, hop_lines, opened, shorten, transcript
from .worked_examples import CALCULATIONS

HopSteps = Generator[Any, Any, Trajectory]


@dataclass(frozen=True, slots=True)
class Hopper:
    """Takes hops; all methods are generators of the solver's requests that return the trajectory with the hop.

    Attributes:
        settings: The program's settings.
        gate: Decides whether a draft is kept.
        demos: Demos of a predictor, by its name.
    """

    settings: ActiveSettings
    gate: Gate
    demos: Callable[[str], tuple[dict[str, Any], ...]]

    def take(self, trajectory: Trajectory, hop: Hop, drafted: Told | None = None) -> HopSteps:
        """Answer a hop of which only the sub-question is known, and what finding it cost.

        Args:
            trajectory: The trajectory before the hop.
            hop: The hop.
            drafted: The call that gave its draft together with the sub-question, if one did.
        """
        if self.settings.calculator and calculable(hop.sub_question, trajectory):
            hop, answered = yield from calculated(trajectory, hop, CALCULATIONS)
            if answered:
                if drafted is not None:
                    accept(without_draft(drafted))
                return trajectory.with_hop(hop)
        if self.gate.needs_draft:
            trajectory, hop, kept = yield from self._draft(trajectory, hop, drafted)
            if kept or (isinstance(self.gate, ConstantGate) and not self.gate.search):
                return trajectory.with_hop(hop)
        if self.settings.reread and any(earlier.passages for earlier in trajectory.hops):
            told = yield from self._conclude(trajectory, hop, again=True)
            hop = replace(hop, cost=hop.cost + told.cost)
            mean = told.confidence.mean if told.confidence else None
            if told.text and mean is not None and mean >= self.settings.tau_read:
                accept(told)
                hop = replace(hop, source="already_read", answer=told.text, answer_confidence=told.confidence)
                return trajectory.with_hop(hop)
        return (yield from self._search(trajectory, hop))

    def read(self, trajectory: Trajectory, hop: Hop) -> HopSteps:
        """Answer a hop whose passages are given."""
        told = yield from self._conclude(trajectory, hop)
        accept(told)
        cost = hop.cost + told.cost + Cost(passages_read=len(hop.passages))
        # Where nothing can be read from the passages, the draft is still the best there is.
        answer = told.text or hop.draft or ""
        hop = replace(hop, source="search", answer=answer, answer_confidence=told.confidence, cost=cost)
        return trajectory.with_hop(hop)

    def _search(self, trajectory: Trajectory, hop: Hop) -> HopSteps:
        settings = self.settings
        query = _query(trajectory, hop.sub_question, settings)
        # Other evidence than the search: the sub-question alone, without the answers that the query carries.
        by = None if settings.rerank == "none" else hop.sub_question
        searched: Found = yield Find(query, settings.k, settings.depth, by, settings.rerank == "fused")
        hop = replace(hop, query=query, passages=searched.passages, cost=hop.cost + searched.cost)
        return (yield from self.read(trajectory, hop))

    def _draft(
        self, trajectory: Trajectory, hop: Hop, drafted: Told | None
    ) -> Generator[Ask, Told, tuple[Trajectory, Hop, bool]]:
        if (told := drafted) is None:
            inputs = {"question": trajectory.question, "trajectory": opened(trajectory, hop)}
            needed = self.gate.needs_confidence
            told = yield Ask("draft", "draft", inputs, self.demos("draft"), confidence=needed, tentative=True)
            hop = replace(hop, cost=hop.cost + told.cost)
        notes = "; ".join(filter(None, [hop.note, told.note]))
        hop = replace(hop, draft=told.text, confidence=told.confidence, note=notes or None)
        kept = False
        if told.text is not None:
            kept = self.gate.keeps(Draft(trajectory, hop.sub_question, told.text, told.confidence))
            decision = Decision("hop", len(trajectory.hops), told.text, told.confidence, kept)
            trajectory = trajectory.with_decision(decision)
        if kept:
            accept(told)
            hop = replace(hop, answer=told.text or "")
        elif drafted is not None:
            accept(without_draft(drafted))
        return trajectory, hop, kept

    def _conclude(self, trajectory: Trajectory, hop: Hop, *, again: bool = False) -> Generator[Ask, Told, Told]:
        words = self.settings.passage_words
        lines = [transcript(trajectory, words=words)]
        if again:
            # The question's own passages are no part of the transcript.
            lines = [*found(_of_the_question(trajectory), words), *lines]
        lines += hop_lines(hop, len(trajectory.tasks) + 1, words=words, conclusion=False)
        inputs = {"question": trajectory.question, "trajectory": "\n".join(filter(None, lines))}
        return (yield Ask("read", "conclusion", inputs, self.demos("read"), tentative=True))


def best_passages(trajectory: Trajectory, limit: int) -> tuple[Passage, ...]:
    """The passages for the last reading: each hop's best and the question's own best two, then the hops' seconds.

    Args:
        trajectory: The trajectory.
        limit: How many.
    """
    own = _of_the_question(trajectory)
    searched = [hop.passages for hop in trajectory.tasks if hop.passages]
    ranks = range(max(map(len, searched), default=0))
    in_turn = [[passages[rank] for passages in searched if rank < len(passages)] for rank in ranks]
    order = [*(in_turn[0] if in_turn else ()), *own[:2], *(item for row in in_turn[1:] for item in row), *own[2:]]
    chosen = {passage.id: passage for passage in reversed(order)}
    return tuple(chosen[name] for name in dict.fromkeys(passage.id for passage in order))[:limit]


def words_shown(trajectory: Trajectory, words: int) -> int:
    """Words of passages that a transcript holds.

    Args:
        trajectory: The trajectory.
        words: Words shown of each passage.
    """
    texts = [passage.long_text for hop in trajectory.tasks for passage in hop.passages]
    return sum(len(shorten(text, words).split()) for text in texts)


def _of_the_question(trajectory: Trajectory) -> tuple[Passage, ...]:
    return tuple(passage for hop in trajectory.hops if hop.whole for passage in hop.passages)


def _query(trajectory: Trajectory, sub_question: str, settings: ActiveSettings) -> str:
    if settings.query == "sub_question":
        return sub_question
    known = sub_question.casefold()
    carried = [hop.answer for hop in trajectory.tasks if hop.answer and hop.answer.casefold() not in known]
    return " ".join([sub_question, *dict.fromkeys(carried)])
