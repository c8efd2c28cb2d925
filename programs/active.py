"""ActiveQA: multi-hop question answering that searches only when the LM does not already know.

At each hop the program asks for the next sub-question, drafts an answer from the LM's own knowledge and reads the
draft's confidence. A draft that the gate keeps is the hop's answer. Otherwise the program searches, reranks and answers
from the passages. At the end it reads the best few passages once more with the question.

The confidence of a draft is the mean log-probability of its tokens, as in FLARE (Jiang et al. 2023, section 3.2) but
over the answer span alone; the search query carries the answers so far, as iterative retrieval does (Trivedi et al.
2023, IRCoT, section 3).
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import Any

import dspy

from ..core import InputError, Passage
from ..signatures import ComposeAnswer, DraftConclusion, NextSubQuestion, PlanSubQuestions, ReadConclusion
from .decomposers import Decomposer, Iterative, Plan, same_question
from .gates import ConstantGate, Draft, Gate, gate_of
from .requests import Ask, Find, Found, Steps, Told
from .settings import ActiveSettings, validated
from .solver import Solver, accept
from .trajectory import Cost, Hop, StopReason, Trajectory
from .transcript import found, hop_lines, line, shorten, transcript
from .worked_examples import DEFAULT_EXAMPLES, step_demos


class ActiveQA(Solver):
    """Answer a multi-hop question, searching only where the gate does not keep the LM's own draft.

    Args:
        retriever: An index or anything with ``search(query, k)``.
        gate: A name, which is a setting, or a gate of your own, which then decides in its place.
        decomposer: A name, which is a setting, or a decomposer of your own.
        **settings: See :class:`hopgate.programs.ActiveSettings`.

    Raises:
        InputError: A setting is unknown or out of range.

    Example:
        >>> dspy.configure(lm=lm_from_config("embedded/qwen2.5-coder-1.5b"), adapter=CompactAdapter())  # doctest: +SKIP
        >>> ActiveQA(ColBERTIndex.open("index"), tau=-0.3)(question="...").answer  # doctest: +SKIP
    """

    def __init__(
        self,
        retriever: Any,
        *,
        gate: str | Gate | None = None,
        decomposer: str | Decomposer | None = None,
        **settings: Any,
    ) -> None:
        named = {"gate": gate, "decomposer": decomposer}
        settings.update({name: value for name, value in named.items() if isinstance(value, str)})
        super().__init__(retriever, validated(ActiveSettings, settings))
        self.gate = None if isinstance(gate, str) else gate
        self.decomposer = None if isinstance(decomposer, str) else decomposer
        for name, given, kind in (("gate", self.gate, Gate), ("decomposer", self.decomposer, Decomposer)):
            if given is not None and (isinstance(given, type) or not isinstance(given, kind)):
                raise InputError(f"`{name}` is neither a name nor an object like hopgate.programs.{kind.__name__}")
        self.next_sub_question = dspy.Predict(NextSubQuestion)
        self.plan = dspy.Predict(PlanSubQuestions)
        self.draft = dspy.Predict(DraftConclusion)
        self.read = dspy.Predict(ReadConclusion)
        self.compose = dspy.Predict(ComposeAnswer)

    @property
    def tau(self) -> float:
        """The threshold on a draft's mean log-probability, in nats."""
        return self.settings.values.tau

    def _confidence_required(self) -> bool:
        return self.settings.values.without_confidence == "raise"

    def _steps(self, question: str, trajectory: Trajectory) -> Steps:
        if trajectory.answer is not None:
            return trajectory
        settings: ActiveSettings = self.settings.values
        reason: StopReason | None = None
        while reason is None:
            if len(trajectory.hops) >= settings.max_hops:
                reason = "max_hops"
            elif _words_shown(trajectory, settings) > settings.context_words:
                reason = "context"
            else:
                trajectory, sub_question, reason, cost = yield from self._next(trajectory, settings)
                if sub_question is None:
                    trajectory = replace(trajectory, other_cost=trajectory.other_cost + cost)
                else:
                    hop = yield from self._hop(trajectory, sub_question, settings)
                    trajectory = trajectory.with_hop(replace(hop, cost=cost + hop.cost))
        return (yield from self._compose(replace(trajectory, stop_reason=reason), settings))

    def _next(
        self, trajectory: Trajectory, settings: ActiveSettings
    ) -> Generator[Ask, Told, tuple[Trajectory, str | None, StopReason | None, Cost]]:
        decomposer = self.decomposer or (Iterative() if settings.decomposer == "iterative" else Plan())
        if settings.start == "question" and not trajectory.hops and not isinstance(decomposer, Plan):
            return trajectory, trajectory.question, None, Cost()
        demos = self._demos(getattr(decomposer, "step", "next_sub_question"))
        found_next = yield from decomposer.next(trajectory, settings.passage_words, demos)
        return found_next.trajectory, found_next.sub_question, found_next.reason, found_next.cost

    # --- one hop ------------------------------------------------------------------------------------------------

    def _hop(self, trajectory: Trajectory, sub_question: str, settings: ActiveSettings) -> Generator[Any, Any, Hop]:
        gate = self.gate or gate_of(settings)
        hop = Hop(sub_question)
        if gate.needs_draft:
            hop, kept = yield from self._draft(trajectory, hop, gate)
            if kept or (isinstance(gate, ConstantGate) and not gate.search):
                return hop
        if settings.reread and any(earlier.passages for earlier in trajectory.hops):
            told = yield from self._read(trajectory, hop, settings)
            hop = replace(hop, cost=hop.cost + told.cost)
            mean = told.confidence.mean if told.confidence else None
            if told.text and mean is not None and mean >= settings.tau_read:
                accept(told)
                return replace(hop, source="already_read", answer=told.text, answer_confidence=told.confidence)
        query = _query(trajectory, sub_question, settings)
        # Other evidence than the search: the sub-question alone, without the answers that the query carries.
        by = None if settings.rerank == "none" else sub_question
        fused = settings.rerank == "fused"
        searched: Found = yield Find(query, settings.k, settings.depth, by, fused)
        hop = replace(hop, source="search", query=query, passages=searched.passages, cost=hop.cost + searched.cost)
        told = yield from self._read(trajectory, hop, settings)
        accept(told)
        read = Cost(passages_read=len(hop.passages))
        # Where nothing can be read from the passages, the draft is still the best there is.
        answer = told.text or hop.draft or ""
        return replace(hop, answer=answer, answer_confidence=told.confidence, cost=hop.cost + told.cost + read)

    def _draft(self, trajectory: Trajectory, hop: Hop, gate: Gate) -> Generator[Ask, Told, tuple[Hop, bool]]:
        lines = [transcript(trajectory, words=None), line(f"Task {len(trajectory.hops) + 1}:", hop.sub_question)]
        inputs = {"question": trajectory.question, "trajectory": "\n".join(filter(None, lines))}
        told = yield Ask(
            "draft", "draft", inputs, self._demos("draft"), confidence=gate.needs_confidence, tentative=True
        )
        hop = replace(hop, draft=told.text, confidence=told.confidence, note=told.note, cost=told.cost)
        if told.text is None:
            return hop, False
        kept = gate.keeps(Draft(trajectory, hop.sub_question, told.text, told.confidence))
        if kept:
            accept(told)
            hop = replace(hop, answer=told.text)
        return hop, kept

    def _read(self, trajectory: Trajectory, hop: Hop, settings: ActiveSettings) -> Generator[Ask, Told, Told]:
        words = settings.passage_words
        opened = hop_lines(hop, len(trajectory.hops) + 1, words=words, conclusion=False)
        lines = [transcript(trajectory, words=words), *opened]
        inputs = {"question": trajectory.question, "trajectory": "\n".join(filter(None, lines))}
        return (yield Ask("read", "conclusion", inputs, self._demos("read"), tentative=True))

    # --- the last step ------------------------------------------------------------------------------------------

    def _compose(self, trajectory: Trajectory, settings: ActiveSettings) -> Steps:
        passages = _best(trajectory, settings.final_passages)
        words = settings.passage_words
        if len(trajectory.hops) == 1 and same_question(trajectory.hops[0].sub_question, trajectory.question):
            # The only hop was the question itself: it is read already, so the same text simply goes on.
            text, passages = transcript(trajectory, words=words), ()
        else:
            text = "\n".join(filter(None, [transcript(trajectory, words=None), *found(passages, words)]))
        inputs = {"question": trajectory.question, "trajectory": text}
        told: Told = yield Ask("compose", "answer", inputs, self._demos("compose"))
        fallback = next((hop.answer for hop in reversed(trajectory.hops) if hop.answer), "")
        cost = told.cost + Cost(passages_read=len(passages))
        return replace(
            trajectory,
            passages=passages,
            answer=told.text or fallback,
            answer_confidence=told.confidence,
            other_cost=trajectory.other_cost + cost,
        )

    def _demos(self, step: str) -> tuple[dict[str, Any], ...]:
        settings: ActiveSettings = self.settings.values
        given = settings.examples
        examples = DEFAULT_EXAMPLES if given is None else [Trajectory.from_dict(record) for record in given]
        return tuple(demo for example in examples for demo in step_demos(example, step, settings.passage_words))


def _query(trajectory: Trajectory, sub_question: str, settings: ActiveSettings) -> str:
    if settings.query == "sub_question":
        return sub_question
    known = sub_question.casefold()
    carried = [hop.answer for hop in trajectory.hops if hop.answer and hop.answer.casefold() not in known]
    return " ".join([sub_question, *dict.fromkeys(carried)])


def _best(trajectory: Trajectory, limit: int) -> tuple[Passage, ...]:
    """The best passages of the hops, taken in turn: each hop's first, then each one's second."""
    chosen: dict[str, Passage] = {}
    searched = [hop.passages for hop in trajectory.hops if hop.passages]
    for rank in range(max(map(len, searched), default=0)):
        for passages in searched:
            if rank < len(passages) and len(chosen) < limit:
                chosen.setdefault(passages[rank].id, passages[rank])
    return tuple(chosen.values())


def _words_shown(trajectory: Trajectory, settings: ActiveSettings) -> int:
    texts: Sequence[str] = [passage.long_text for hop in trajectory.hops for passage in hop.passages]
    return sum(len(shorten(text, settings.passage_words).split()) for text in texts)
