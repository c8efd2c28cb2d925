"""ActiveQA: multi-hop question answering that searches only when the LM does not already know.

At each hop the program asks for the next sub-question, drafts an answer from the LM's own knowledge and reads the
draft's confidence. A draft that the gate keeps is the hop's answer. Otherwise the program searches, reranks and answers
from the passages. At the end it reads the best few passages once more with the question.

The confidence of a draft is the mean log-probability of its tokens, as in FLARE (Jiang et al. 2023, section 3.2) but
over the answer span alone; the search query carries the answers so far, as iterative retrieval does (Trivedi et al.
2023, IRCoT, section 3).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import dspy

from ..core import InputError
from ..signatures import ComposeAnswer, DraftConclusion, NextSubQuestion, PlanSubQuestions, ReadConclusion
from .decomposers import Decomposer, Decomposition, Iterative, Next, Plan, decompose, same_question, tried
from .gates import Gate, gate_of
from .hops import Hopper, best_passages, words_shown
from .requests import Ask, Reached, Steps, Told
from .settings import ActiveSettings, validated
from .solver import Solver
from .trajectory import Cost, Hop, Step, Trajectory
from .transcript import found, hint, transcript
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
        hopper = Hopper(settings, self._gate("hop"), self._demos)
        if trajectory.open is not None:
            trajectory = yield from hopper.read(trajectory, trajectory.open)
            yield Reached(trajectory)
        while trajectory.stop_reason is None:
            if len(trajectory.tasks) >= settings.max_hops:
                trajectory = replace(trajectory, stop_reason="max_hops")
            elif words_shown(trajectory, settings.passage_words) > settings.context_words:
                trajectory = replace(trajectory, stop_reason="context")
            else:
                asked = yield from self._next(trajectory, settings)
                trajectory = replace(asked.trajectory, stop_reason=asked.reason)
                if asked.sub_question is None:
                    trajectory = replace(trajectory, other_cost=trajectory.other_cost + asked.cost)
                else:
                    trajectory = yield from hopper.take(trajectory, Hop(asked.sub_question, cost=asked.cost))
                yield Reached(trajectory)
        return (yield from self._compose(trajectory, settings))

    def _gate(self, step: Step) -> Gate:
        """What decides at a step."""
        return self.gate or gate_of(self.settings.values)

    def _next(self, trajectory: Trajectory, settings: ActiveSettings) -> Decomposition:
        decomposer = self.decomposer or (Iterative() if settings.decomposer == "iterative" else Plan())
        first = settings.start == "question" and not trajectory.hops and not isinstance(decomposer, Plan)
        if first and not tried(trajectory.question, trajectory):
            return Next(trajectory.question, trajectory)
        return (yield from decompose(decomposer, trajectory, settings.passage_words, self._demos))

    def _compose(self, trajectory: Trajectory, settings: ActiveSettings) -> Steps:
        passages = best_passages(trajectory, settings.final_passages)
        words = settings.passage_words
        if [same_question(hop.sub_question, trajectory.question) and not hop.whole for hop in trajectory.hops] == [True]:
            # The only hop was the question itself: it is read already, so the same text simply goes on.
            lines, passages = [transcript(trajectory, words=words)], ()
        else:
            lines = [transcript(trajectory, words=None), *found(passages, words)]
        lines += hint(trajectory)
        inputs = {"question": trajectory.question, "trajectory": "\n".join(filter(None, lines))}
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

