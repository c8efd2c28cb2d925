"""Escalation: the confidence decides not only between memory and a search, but how far to go.

1. The whole question is answered from memory, as :class:`~hopgate.programs.Direct` does; a sure answer is kept.
2. Otherwise the whole question is searched for and answered from its passages, as standard RAG does, in the same LM
   call; a sure answer is kept. The mean log-probability of a grounded answer tells well whether it is right, and most
   questions that standard RAG gets right need nothing more.
3. Otherwise the question is decomposed, as :class:`~hopgate.programs.ActiveQA` does, hop by hop with a gate of its own
   for each. The question's own passages are among those of the last reading, but its reading is no task of the
   transcript: a small model that sees the whole question as a task copies it.

Each decision has a threshold, or a gate of its own, and is recorded on the trajectory. The idea of spending more
retrieval on harder questions is that of Adaptive-RAG (Jeong et al. 2024), which trains a classifier for it; here the
answers' own confidences decide. Without the first two steps this is ActiveQA.

::

    recall ─► memory? ─ no ─► search ─► respond ─► grounded? ─ no ─► ActiveQA ─► [final?] ─► compose
                │ yes                                 │ yes           (hop by hop)  │ yes
                ▼                                     ▼                             ▼
              answer                                answer                        answer
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Literal, get_args

import dspy

from ..lms.confidence import AnswerConfidence
from ..signatures import AnswerDirectly, AnswerFromPassages
from .active import ActiveQA
from .baselines import answer_demos
from .composing import says_something
from .decomposers import Decomposer, tried
from .gates import ConstantGate, Draft, Gate, RandomGate, ThresholdGate, keeps_final
from .requests import Ask, Find, Found, Reached, Steps, Told
from .settings import EscalationSettings
from .solver import accept
from .trajectory import Cost, Decision, Hop, Step, Trajectory
from .transcript import shorten
from .worked_examples import DEFAULT_EXAMPLES

_Stage = Generator[Any, Any, tuple[Trajectory, Told | None]]


class Escalation(ActiveQA):
    """Answer from memory, else from one search, else by sub-questions, as far as the confidence requires.

    The whole question's own step is the first hop, marked ``whole``.

    Args:
        retriever: An index or anything with ``search(query, k)``.
        gate: As of :class:`hopgate.programs.ActiveQA`, for the drafts of hops.
        gates: Gates of your own by step (``memory``, ``grounded``, ``hop``, ``final``), which then decide in place of
            the settings; one that needs no draft spares the call that would make it.
        decomposer: As of :class:`hopgate.programs.ActiveQA`.
        **settings: See :class:`hopgate.programs.EscalationSettings`.

    Raises:
        InputError: A setting is unknown or out of range, or a step is.

    Example:
        >>> Escalation(ColBERTIndex.open("index"), tau_grounded=-0.1)(question="...").answer  # doctest: +SKIP
    """

    _settings_of = EscalationSettings
    steps: ClassVar[tuple[Step, ...]] = get_args(Step)

    def __init__(
        self,
        retriever: Any,
        *,
        gate: str | Gate | None = None,
        gates: Mapping[Step, Gate] | None = None,
        decomposer: str | Decomposer | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(retriever, gate=gate, gates=gates, decomposer=decomposer, **settings)
        self.recall = dspy.Predict(AnswerDirectly)
        self.respond = dspy.Predict(AnswerFromPassages)

    def gate_at(self, step: Step) -> Gate:
        """What decides at a step: a gate of its own, or the settings."""
        settings: EscalationSettings = self.settings.values
        if step in self.gates:
            return self.gates[step]
        if step == "memory":
            return ThresholdGate(settings.tau_memory)
        if step != "grounded":
            return super().gate_at(step)
        if settings.escalate == "threshold":
            return ThresholdGate(settings.tau_grounded)
        if settings.escalate == "random":
            return RandomGate(settings.escalation_rate, settings.seed)
        return ConstantGate(search=settings.escalate == "always")

    def _steps(self, question: str, trajectory: Trajectory) -> Steps:
        settings: EscalationSettings = self.settings.values
        read: Told | None = None
        started = trajectory.tasks or trajectory.stop_reason or (trajectory.open and not trajectory.open.whole)
        if trajectory.answer is None and not started:
            trajectory, read = yield from self._whole(trajectory, settings)
        if trajectory.answer is not None:
            return trajectory
        trajectory = yield from super()._steps(question, trajectory)
        return trajectory if settings.prefer == "last" else _preferred(trajectory, read, settings)

    # --- the whole question -------------------------------------------------------------------------------------------

    def _whole(self, trajectory: Trajectory, settings: EscalationSettings) -> _Stage:
        """The first two steps: the trajectory with the whole question's hop, answered if one of them is kept, and the
        call that read the question's passages, if there was one just now."""
        given, told = trajectory.open, None
        if settings.memory and given is None:
            trajectory = yield from self._from_memory(trajectory, settings)
        if not settings.grounded or trajectory.answer is not None:
            return trajectory, None
        gate = self.gate_at("grounded")
        hop = given or (trajectory.hops[0] if trajectory.hops else Hop(trajectory.question, whole=True))
        to_read = given is not None or hop.query is None
        if given is None and hop.query is None:
            searched: Found = yield Find(trajectory.question, settings.k)
            cost = hop.cost + searched.cost
            hop = replace(hop, query=trajectory.question, passages=searched.passages, cost=cost)
        if to_read and gate.needs_draft:
            # Standard RAG's own call, so that a cache answers it for both.
            shown = [shorten(passage.long_text, settings.passage_words) for passage in hop.passages]
            inputs = {"passages": shown, "question": trajectory.question}
            told = yield self._asking("respond", inputs, gate, settings, "passages")
            cost = hop.cost + told.cost + Cost(passages_read=len(shown))
            hop = replace(hop, answer=told.text or "", answer_confidence=told.confidence, cost=cost)
        trajectory = _with(trajectory, replace(hop, source="search"))
        yield Reached(trajectory)
        if not gate.needs_draft:
            return trajectory, None
        trajectory, kept = self._decided(trajectory, "grounded", gate, hop.answer, hop.answer_confidence)
        if not kept:
            return trajectory, told
        if told is not None:
            accept(told)
        trajectory = replace(trajectory, answer=hop.answer, answer_confidence=hop.answer_confidence)
        return replace(trajectory, passages=hop.passages, stop_reason="confident"), told

    def _from_memory(self, trajectory: Trajectory, settings: EscalationSettings) -> Steps:
        gate, told = self.gate_at("memory"), None
        if not gate.needs_draft:
            return trajectory
        if not trajectory.hops:
            told = yield self._asking("recall", {"question": trajectory.question}, gate, settings)
            hop = Hop(trajectory.question, told.text, told.confidence, told.note, whole=True, cost=told.cost)
            trajectory = _with(trajectory, hop)
            yield Reached(trajectory)
        hop = trajectory.hops[0]
        if hop.draft is None:
            return trajectory
        trajectory, kept = self._decided(trajectory, "memory", gate, hop.draft, hop.confidence)
        if hop.query is None:
            trajectory = _with(trajectory, replace(hop, answer=hop.draft if kept else ""))
        if not kept:
            return trajectory
        if told is not None:
            accept(told)
        return replace(trajectory, answer=hop.draft, answer_confidence=hop.confidence, stop_reason="confident")

    def _asking(
        self,
        step: str,
        inputs: dict[str, Any],
        gate: Gate,
        settings: EscalationSettings,
        part: Literal["passages"] | None = None,
    ) -> Ask:
        demos = answer_demos(settings, part)
        needed = gate.needs_confidence or settings.abstain
        return Ask(step, "answer", inputs, demos, confidence=needed, tentative=True)

    def _decided(
        self, trajectory: Trajectory, step: Step, gate: Gate, text: str, confidence: AnswerConfidence | None
    ) -> tuple[Trajectory, bool]:
        kept = keeps_final(gate, Draft(trajectory, trajectory.question, text, confidence, step))
        # What never goes on keeps even an empty answer.
        kept = kept or (isinstance(gate, ConstantGate) and not gate.search)
        # A plan that was the question itself has failed, so another is wanted.
        kept = kept and not tried(trajectory.question, trajectory)
        return trajectory.with_decision(Decision(step, 0, text, confidence, kept)), kept


def _with(trajectory: Trajectory, hop: Hop) -> Trajectory:
    return replace(trajectory, hops=(hop,), open=None)


def _preferred(trajectory: Trajectory, read: Told | None, settings: EscalationSettings) -> Trajectory:
    """The trajectory with the grounded answer, if that is surer than the last one and was not rejected.

    If only one of them says something, it is that one.
    """
    whole = next((hop for hop in trajectory.hops if hop.whole), None)
    sure, last = whole and whole.answer_confidence, trajectory.answer_confidence
    if whole is None or not whole.answer or whole.answer in trajectory.rejected or not sure or sure.mean is None:
        return trajectory
    if trajectory.failed_plans:  # other sub-questions were asked for because no answer so far would do
        return trajectory
    examples = settings.worked_examples(DEFAULT_EXAMPLES)
    tells, last_tells = (says_something(text, trajectory, examples) for text in (whole.answer, trajectory.answer or ""))
    surer = not trajectory.answer or (last is not None and last.mean is not None and last.mean < sure.mean)
    if not (tells if tells != last_tells else surer):
        return trajectory
    if read is not None:
        accept(read)
    return replace(trajectory, answer=whole.answer, answer_confidence=sure, passages=whole.passages)
