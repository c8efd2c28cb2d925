"""The common part of all programs: steps as a generator of requests, with a synchronous and an asynchronous driver.

A program's steps are written once. They yield what they need, an LM call or a search, and get the outcome back; the
drivers carry the requests out. So ``acall`` needs no second copy of any program.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import dspy
from dspy.utils.exceptions import AdapterParseError

from ..core import ConfidenceError, InputError, Passage
from ..lms.confidence import AnswerConfidence, answer_confidence
from .metering import Meter
from .retrievers import RetrieverHandle
from .settings import ProgramSettings, Settings
from .trajectory import Cost, Trajectory

MAX_QUESTION_CHARACTERS = 8000


@dataclass(frozen=True, slots=True)
class Ask:
    """Request: call one of the program's predictors.

    Attributes:
        step: Name of the predictor.
        field: Its output.
        inputs: Its inputs.
        demos: Demos that go before the predictor's own.
        confidence: Whether the output's log-probabilities are needed; a backend without them then is an error. If they
            are not needed, they are asked for where the LM says that it has them.
        tentative: Whether the call joins the trace only once it is accepted.
    """

    step: str
    field: str
    inputs: dict[str, Any]
    demos: tuple[dict[str, Any], ...] = ()
    confidence: bool = False
    tentative: bool = False


@dataclass(frozen=True, slots=True)
class Find:
    """Request: search, and rerank what was found.

    Attributes:
        query: The query.
        k: Passages to return.
        depth: Passages to fetch before reranking.
        rerank_query: What to rerank by; ``None`` keeps the search's order.
        fused: Whether the two rankings are fused by reciprocal rank.
    """

    query: str
    k: int
    depth: int | None = None
    rerank_query: str | None = None
    fused: bool = False

    @property
    def fetched(self) -> int:
        """Passages to ask the retriever for."""
        return self.k if self.rerank_query is None else max(self.k, self.depth or 0)


@dataclass(frozen=True, slots=True)
class Told:
    """Outcome of an :class:`Ask`.

    Attributes:
        text: The output, ``None`` if the LM gave none that could be read.
        confidence: Log-probabilities of its tokens, if they could be had.
        note: Why there is no text or no confidence.
        cost: What the call took.
        entries: The trace of the call.
    """

    text: str | None
    confidence: AnswerConfidence | None
    note: str | None
    cost: Cost
    entries: list[Any] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Found:
    """Outcome of a :class:`Find`."""

    passages: tuple[Passage, ...]
    cost: Cost


Steps = Generator[Ask | Find, Any, Trajectory]


class Solver(dspy.Module):
    """Base of all programs: ``solver(question=..., trajectory=None) -> dspy.Prediction(answer, trajectory, cost)``.

    Resuming is the same call with a prefix of a trajectory. Subclasses write ``_steps``.

    Args:
        retriever: What to search with; ``None`` for programs that never search.
        settings: The program's settings.
    """

    def __init__(self, retriever: Any, settings: ProgramSettings) -> None:
        super().__init__()
        self.retriever = None if retriever is None else RetrieverHandle(retriever)
        self.settings: Settings[Any] = Settings(settings)

    def forward(self, question: str, trajectory: Trajectory | None = None) -> dspy.Prediction:
        """Answer a question.

        Args:
            question: The question.
            trajectory: A prefix of a trajectory of the same question to resume from.

        Returns:
            ``answer`` (text), ``trajectory`` (:class:`Trajectory`) and ``cost`` (:class:`Cost`).

        Raises:
            InputError: The question is empty, too long, or not the trajectory's.
            ConfidenceError: The gate needs a confidence and the backend gives none.
            RetrievalError: The retriever failed.
        """
        steps = self._steps(*_checked(question, trajectory))
        outcome: Any = None
        while True:
            try:
                request = steps.send(outcome)
            except StopIteration as stop:
                return _prediction(stop.value)
            outcome = self._ask(request) if isinstance(request, Ask) else self._find(request)

    async def aforward(self, question: str, trajectory: Trajectory | None = None) -> dspy.Prediction:
        """As :meth:`forward`; LM calls are awaited and searches run in worker threads."""
        steps = self._steps(*_checked(question, trajectory))
        outcome: Any = None
        while True:
            try:
                request = steps.send(outcome)
            except StopIteration as stop:
                return _prediction(stop.value)
            if isinstance(request, Ask):
                outcome = await self._aask(request)
            else:
                outcome = await self._afind(request)

    def _steps(self, question: str, trajectory: Trajectory) -> Steps:
        raise NotImplementedError

    # --- carrying requests out ----------------------------------------------------------------------------------------

    def _call(self, ask: Ask) -> _Call:
        predictor = getattr(self, ask.step)
        arguments: dict[str, Any] = dict(ask.inputs)
        if ask.demos:
            arguments["demos"] = [*ask.demos, *_predict(predictor).demos]
        if ask.confidence or "logprobs" in getattr(_lm_of(predictor), "supported_params", ()):
            arguments["config"] = {"logprobs": True}
        return _Call(predictor, arguments)

    def _ask(self, ask: Ask) -> Told:
        call = self._call(ask)
        with call.recorded():
            call.prediction = call.predictor(**call.arguments)
        return self._told(ask, call)

    async def _aask(self, ask: Ask) -> Told:
        call = self._call(ask)
        with call.recorded():
            call.prediction = await call.predictor.acall(**call.arguments)
        return self._told(ask, call)

    def _told(self, ask: Ask, call: _Call) -> Told:
        predictor, prediction, note = call.predictor, call.prediction, call.note
        text, confidence = None, None
        if prediction is not None:
            text = str(getattr(prediction, ask.field) or "").strip() or None
            note = None if text else "empty"
        if text is not None and (ask.confidence or hasattr(prediction, "logprobs")):
            try:
                backend = getattr(_lm_of(predictor), "model", None)
                confidence = answer_confidence(
                    prediction, ask.field, label=_label(predictor, ask.field), backend=backend
                )
            except ConfidenceError as error:
                if ask.confidence and self._confidence_required():
                    raise
                note = str(error)
        cost = replace(call.meter.cost(), seconds=time.perf_counter() - call.start)
        told = Told(text, confidence, note, cost, call.entries)
        if not ask.tentative:
            accept(told)
        return told

    def _confidence_required(self) -> bool:
        return True

    def _find(self, find: Find) -> Found:
        if self.retriever is None:
            raise InputError(f"{type(self).__name__} searches, but was made without a retriever")
        find, start = _useful(find, self.retriever), time.perf_counter()
        return self._ranked(find, self.retriever.search(find.query, find.fetched), start)

    async def _afind(self, find: Find) -> Found:
        if self.retriever is None:
            return self._find(find)
        find, start = _useful(find, self.retriever), time.perf_counter()
        passages = await self.retriever.asearch(find.query, find.fetched)
        return await asyncio.to_thread(self._ranked, find, passages, start)

    def _ranked(self, find: Find, passages: tuple[Passage, ...], start: float) -> Found:
        if self.retriever is not None and find.rerank_query is not None and len(passages) > 1:
            reranked = self.retriever.rerank(find.rerank_query, passages)
            if reranked is not None:
                passages = _fuse(passages, reranked) if find.fused else reranked
        return Found(passages[: find.k], Cost(retrievals=1, seconds=time.perf_counter() - start))


@dataclass(slots=True)
class _Call:
    """One call of a predictor while it is carried out: what it takes, what comes of it, and what it cost."""

    predictor: Any
    arguments: dict[str, Any]
    prediction: Any = None
    note: str | None = None
    meter: Meter = field(default_factory=Meter)
    entries: list[Any] = field(default_factory=list)
    start: float = field(default_factory=time.perf_counter)

    @contextmanager
    def recorded(self) -> Iterator[None]:
        """Meter the call, keep its trace apart, and note a completion that cannot be read."""
        with self.meter.active(), dspy.context(trace=self.entries):
            try:
                yield
            except AdapterParseError as error:
                self.note = _unreadable(error)


def accept(told: Told) -> None:
    """Let a call join the trace that teleprompters learn from."""
    trace, limit = dspy.settings.trace, dspy.settings.max_trace_size
    if trace is not None and limit > 0:
        # Log-probabilities are no field of a demo: they would only bloat saved programs.
        trace.extend((predictor, inputs, _without_logprobs(output)) for predictor, inputs, output in told.entries)
        del trace[: max(0, len(trace) - limit)]


def _predict(module: Any) -> Any:
    """The predictor that writes a module's outputs: itself, or the last one inside."""
    return module if isinstance(module, dspy.Predict) else module.predictors()[-1]


def _lm_of(module: Any) -> Any:
    return _predict(module).lm or dspy.settings.lm


def _label(module: Any, name: str) -> str | None:
    field = _predict(module).signature.output_fields.get(name)
    return None if field is None else field.json_schema_extra["prefix"]


def _without_logprobs(output: Any) -> Any:
    if not isinstance(output, dspy.Prediction) or "logprobs" not in output:
        return output
    return dspy.Prediction(**{name: value for name, value in output.items() if name != "logprobs"})


def _checked(question: str, trajectory: Trajectory | None) -> tuple[str, Trajectory]:
    if not isinstance(question, str) or not question.strip():
        raise InputError("the question is empty")
    if len(question) > MAX_QUESTION_CHARACTERS:
        raise InputError(f"the question has {len(question)} characters; at most {MAX_QUESTION_CHARACTERS} are read")
    if any("\ud800" <= character <= "\udfff" for character in question):
        raise InputError("the question holds half of a character (a lone surrogate); repair the text first")
    if trajectory is None:
        return question, Trajectory(question)
    if not isinstance(trajectory, Trajectory):
        raise InputError(f"`trajectory` is a {type(trajectory).__name__}; read one from JSON by Trajectory.from_dict")
    if trajectory.question != question:
        raise InputError(f"the trajectory to resume is of another question: {trajectory.question[:80]!r}")
    return question, trajectory


def _prediction(trajectory: Trajectory) -> dspy.Prediction:
    return dspy.Prediction(answer=trajectory.answer or "", trajectory=trajectory, cost=trajectory.cost)


def _unreadable(error: AdapterParseError) -> str:
    response = str(error.lm_response or "")
    # DSPy renders the empty output as text in this message; to the reader it is simply no answer.
    return "empty" if "empty or null" in str(error) else f"unreadable: {response[:200]}"


def _useful(find: Find, retriever: RetrieverHandle) -> Find:
    """The request without a rerank that could only repeat or undo the order of the search."""
    return replace(find, rerank_query=None) if retriever.ranks_alike and find.rerank_query == find.query else find


def _fuse(first: Sequence[Passage], second: Sequence[Passage], constant: int = 60) -> tuple[Passage, ...]:
    """Reciprocal rank fusion (Cormack et al. 2009)."""
    gain: dict[str, float] = {}
    for ranking in (first, second):
        for rank, passage in enumerate(ranking, 1):
            gain[passage.id] = gain.get(passage.id, 0.0) + 1.0 / (constant + rank)
    return tuple(sorted(first, key=lambda passage: -gain[passage.id]))
