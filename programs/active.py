"""ActiveQA: multi-hop question answering that searches only when the LM does not already know.

At each hop the program asks for the next sub-question, drafts an answer from the LM's own knowledge and reads the
draft's confidence. A draft that the gate keeps is the hop's answer. Otherwise the program searches, reranks and answers
from the passages. At the end it reads the best few passages once more with the question.

The confidence of a draft is the mean log-probability of its tokens, as in FLARE (Jiang et al. 2023, section 3.2) but
over the answer span alone; the search query carries the answers so far, as iterative retrieval does (Trivedi et al.
2023, IRCoT, section 3).
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import replace
from typing import Any, ClassVar

import dspy
from dspy.predict.parameter import Parameter

from ..core import InputError, Passage
from ..signatures import (
    ComposeAnswer,
    DraftConclusion,
    NextSubQuestion,
    NextWithDraft,
    PlanSubQuestions,
    ReadConclusion,
    WriteExpression,
)
from .abstaining import supported
from .composing import composed, conclusions
from .decomposers import Decomposer, Decomposition, Fused, Iterative, Next, Plan, decompose, same_question, tried
from .gates import Draft, Gate, ThresholdGate, gate_of, keeps_final
from .hops import Hopper, best_passages, words_shown
from .requests import Ask, Reached, Steps, Told
from .settings import ActiveSettings, validated
from .solver import Solver, accept
from .trajectory import Cost, Decision, Hop, Step, Trajectory
from .transcript import found, hint, transcript
from .worked_examples import DEFAULT_EXAMPLES, step_demos


class ActiveQA(Solver):
    """Answer a multi-hop question, searching only where the gate does not keep the LM's own draft.

    Args:
        retriever: An index or anything with ``search(query, k)``.
        gate: A name, which is a setting, or a gate of your own, which then decides in its place.
        gates: Gates of your own by step (``hop``, which is ``gate``, and ``final``); one that needs no draft spares the
            call that would make it.
        decomposer: A name, which is a setting, or a decomposer of your own.
        **settings: See :class:`hopgate.programs.ActiveSettings`.

    Besides ``answer``, ``trajectory`` and ``cost``, its predictions have ``answered`` and ``best_guess``, which is the
    answer even where the setting ``abstain`` keeps it back.

    Raises:
        InputError: A setting is unknown or out of range, or a step is.

    Example:
        >>> dspy.configure(lm=lm_from_config("embedded/qwen2.5-coder-1.5b"), adapter=CompactAdapter())  # doctest: +SKIP
        >>> ActiveQA(ColBERTIndex.open("index"), tau=-0.3)(question="...").answer  # doctest: +SKIP
    """

    _settings_of: type[ActiveSettings] = ActiveSettings
    steps: ClassVar[tuple[Step, ...]] = ("hop", "final")
    """Where it decides on keeping an answer."""

    def __init__(
        self,
        retriever: Any,
        *,
        gate: str | Gate | None = None,
        gates: Mapping[Step, Gate] | None = None,
        decomposer: str | Decomposer | None = None,
        **settings: Any,
    ) -> None:
        if not isinstance(gates, Mapping | None):
            raise InputError(f"`gates` takes a mapping of steps to gates, not a {type(gates).__name__}")
        own = dict(gates or {})
        if unknown := [step for step in own if step not in self.steps]:
            raise InputError(f"`gates`: there is no step {unknown[0]!r}; there are {', '.join(self.steps)}")
        if gate is not None and "hop" in own:
            raise InputError("`gate` and the hop's own in `gates` are the same; give one of them")
        named = {"gate": gate, "decomposer": decomposer}
        settings.update({name: value for name, value in named.items() if isinstance(value, str)})
        super().__init__(retriever, validated(self._settings_of, settings))
        self.gate = None if isinstance(gate, str) else checked("gate", gate, Gate)
        self.gates: dict[str, Gate] = {step: checked(f"gates[{step!r}]", one, Gate) for step, one in own.items()}
        self.decomposer = None if isinstance(decomposer, str) else checked("decomposer", decomposer, Decomposer)
        self.next_sub_question = dspy.Predict(NextSubQuestion)
        self.next_with_draft = dspy.Predict(NextWithDraft)
        self.plan = dspy.Predict(PlanSubQuestions)
        self.draft = dspy.Predict(DraftConclusion)
        self.express = dspy.Predict(WriteExpression)
        self.read = dspy.Predict(ReadConclusion)
        self.compose = dspy.Predict(ComposeAnswer)

    def named_parameters(self) -> list[tuple[str, Parameter]]:
        """As DSPy's. Modules around it ask here when they are saved or loaded, so the settings know its gates."""
        given = {"gate": self.gate, **self.gates}
        self.settings.own_gates = tuple(step for step, gate in given.items() if isinstance(gate, Parameter))
        return super().named_parameters()

    @property
    def tau(self) -> float:
        """The threshold on a draft's mean log-probability, in nats."""
        return self.settings.values.tau

    def _confidence_required(self) -> bool:
        return self.settings.values.without_confidence == "raise"

    def _supported(self, trajectory: Trajectory) -> bool:
        settings: ActiveSettings = self.settings.values
        return not settings.abstain or supported(trajectory, settings.tau_abstain)

    def _steps(self, question: str, trajectory: Trajectory) -> Steps:
        if trajectory.answer is not None:
            return trajectory
        settings: ActiveSettings = self.settings.values
        hopper = Hopper(settings, self.gate_at("hop"), self._demos)
        last_check: Told | None = None
        if trajectory.open is not None:
            trajectory = yield from hopper.read(trajectory, trajectory.open)
            yield Reached(trajectory)
        while trajectory.stop_reason is None:
            if settings.check_each_hop and trajectory.tasks:
                trajectory, last_check = yield from self._check(trajectory, settings)
                if trajectory.answer is not None:
                    return trajectory
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
                    hop = Hop(asked.sub_question, cost=asked.cost)
                    trajectory = yield from hopper.take(trajectory, hop, asked.drafted)
                yield Reached(trajectory)
        return (yield from self._finish(trajectory, settings, last_check))

    def gate_at(self, step: Step) -> Gate:
        """What decides at a step: a gate of its own, or the settings."""
        if step in self.gates:
            return self.gates[step]
        settings: ActiveSettings = self.settings.values
        return ThresholdGate(settings.tau_final) if step == "final" else self.gate or gate_of(settings)

    def _next(self, trajectory: Trajectory, settings: ActiveSettings) -> Decomposition:
        decomposer = self.decomposer or (Iterative() if settings.decomposer == "iterative" else Plan())
        gate = self.gate_at("hop")
        if settings.fused_hop and isinstance(decomposer, Iterative) and gate.needs_draft:
            decomposer = Fused(confidence=gate.needs_confidence)
        first = settings.start == "question" and not trajectory.hops and not isinstance(decomposer, Plan)
        if first and not tried(trajectory.question, trajectory):
            return Next(trajectory.question, trajectory)
        return (yield from decompose(decomposer, trajectory, settings.passage_words, self._demos))

    # --- the last step ------------------------------------------------------------------------------------------------

    def _check(
        self, trajectory: Trajectory, settings: ActiveSettings
    ) -> Generator[Any, Any, tuple[Trajectory, Told | None]]:
        """Compose an answer after a hop: the trajectory, finished if it is kept, and the call if one was made."""
        gate, last, told = self.gate_at("final"), len(trajectory.hops) - 1, None
        made = trajectory.decision("final", last)
        if made is None:
            if not gate.needs_draft:
                return trajectory, None
            needed = gate.needs_confidence or settings.abstain
            told = yield self._composing(trajectory, settings, confidence=needed, tentative=True)
            made = Decision("final", last, told.text or "", told.confidence, kept=False)
            hop = trajectory.hops[last]
            hop = replace(hop, cost=hop.cost + told.cost + Cost(passages_read=len(self._shown(trajectory, settings))))
            trajectory = replace(trajectory, hops=(*trajectory.hops[:last], hop))
        draft = Draft(trajectory, trajectory.question, made.text, made.confidence, "final")
        made = replace(made, kept=keeps_final(gate, draft))
        trajectory = trajectory.with_decision(made)
        yield Reached(trajectory)
        if not made.kept:
            return trajectory, told
        if told is not None:
            accept(told)
        passages, confidence = self._shown(trajectory, settings), made.confidence
        changes: dict[str, Any] = {"answer": made.text, "answer_confidence": confidence, "stop_reason": "confident"}
        return replace(trajectory, passages=passages, **changes), told

    def _finish(self, trajectory: Trajectory, settings: ActiveSettings, last_check: Told | None) -> Steps:
        """Compose the answer, unless that was done after the last hop."""
        passages = self._shown(trajectory, settings)
        made = trajectory.decision("final", len(trajectory.hops) - 1) if settings.check_each_hop else None
        if made is not None and made.text and made.text not in trajectory.rejected:
            if last_check is not None:
                accept(last_check)
            return replace(trajectory, passages=passages, answer=made.text, answer_confidence=made.confidence)
        told: Told = yield self._composing(trajectory, settings, confidence=settings.abstain)
        told = replace(told, cost=told.cost + Cost(passages_read=len(passages)))
        examples = settings.worked_examples(DEFAULT_EXAMPLES)
        return composed(trajectory, told, others=conclusions(trajectory), passages=passages, examples=examples)

    def _composing(
        self, trajectory: Trajectory, settings: ActiveSettings, *, confidence: bool, tentative: bool = False
    ) -> Ask:
        words = settings.passage_words
        if _read_already(trajectory):
            lines = [transcript(trajectory, words=words)]
        else:
            lines = [transcript(trajectory, words=None), *found(self._shown(trajectory, settings), words)]
        lines += hint(trajectory)
        inputs = {"question": trajectory.question, "trajectory": "\n".join(filter(None, lines))}
        return Ask("compose", "answer", inputs, self._demos("compose"), confidence, tentative)

    def _shown(self, trajectory: Trajectory, settings: ActiveSettings) -> tuple[Passage, ...]:
        return () if _read_already(trajectory) else best_passages(trajectory, settings.final_passages)

    def _demos(self, step: str) -> tuple[dict[str, Any], ...]:
        settings: ActiveSettings = self.settings.values
        examples = settings.worked_examples(DEFAULT_EXAMPLES)
        return tuple(demo for example in examples for demo in step_demos(example, step, settings.passage_words))


def checked(name: str, given: Any, kind: type) -> Any:
    """An object given in place of a setting; ``None`` if none is.

    Raises:
        InputError: It is not of its kind.
    """
    if given is not None and (isinstance(given, type) or not isinstance(given, kind)):
        raise InputError(f"`{name}` is neither a name nor an object like hopgate.programs.{kind.__name__}")
    return given


def _read_already(trajectory: Trajectory) -> bool:
    """Whether the only hop was the question itself: it is read already, so the same text simply goes on."""
    return len(trajectory.hops) == len(trajectory.tasks) == 1 and same_question(
        trajectory.tasks[0].sub_question, trajectory.question
    )
