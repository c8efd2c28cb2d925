"""The common part of all programs: steps as a generator of requests, with a synchronous and an asynchronous driver.

A program's steps are written once. They yield what they need, an LM call or a search, and get the outcome back; the
drivers carry the requests out. So ``acall`` needs no second copy of any program.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import dspy
from dspy.utils.exceptions import AdapterParseError

from ..core import ConfidenceError, InputError, Passage, StateError
from ..core.texts import MAX_QUESTION_CHARACTERS, encodable
from ..lms.confidence import answer_confidence
from .memo import Memo
from .metering import Meter
from .requests import Ask, Find, Found, Ran, Reached, Run, Steps, Told
from .retrievers import RetrieverHandle
from .settings import ProgramSettings, Settings, without_gates
from .trajectory import Cost, Trajectory


class Solver(dspy.Module):
    """Base of all programs: ``solver(question=..., trajectory=None) -> dspy.Prediction(answer, trajectory, cost)``.

    Resuming is the same call with a prefix of a trajectory. Subclasses write ``_steps``.

    Args:
        retriever: What to search with; ``None`` for programs that never search.
        settings: The program's settings.

    Attributes:
        memo: What its own requests are first looked up in, if it is given one.
    """

    memo: Memo | None = None

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
            ``answer`` (text), ``trajectory`` (:class:`Trajectory`) and ``cost`` (:class:`Cost`). ``answered`` is false
            where there is no answer, or the program was told to abstain and does; then ``best_guess`` may say more than
            ``answer``.

        Raises:
            InputError: The question is no text, empty, too long, or not the trajectory's.
            ConfidenceError: The gate needs a confidence and the backend gives none.
            RetrievalError: The retriever failed.

        What is raised after the question was checked, an LM's own errors included, has the trajectory so far as its
        attribute ``trajectory``, to resume from.
        """
        drive = _Drive(self._steps, *_checked(question, trajectory))
        while (request := drive.next()) is not None:
            with drive.answering():
                drive.outcome = self._carry_out(request)
        return self._prediction(drive.result())

    async def aforward(self, question: str, trajectory: Trajectory | None = None) -> dspy.Prediction:
        """As :meth:`forward`; LM calls are awaited and searches run in worker threads."""
        drive = _Drive(self._steps, *_checked(question, trajectory))
        while (request := drive.next()) is not None:
            with drive.answering():
                drive.outcome = await self._acarry_out(request)
        return self._prediction(drive.result())

    def load_state(self, state: dict[str, Any], *, allow_unsafe_lm_state: bool = False) -> None:
        """As DSPy's, which passes over what no parameter is there for.

        Raises:
            StateError: The state is for gates that the program does not have, or does not fit.
        """
        known = {name for name, _ in self.named_parameters()}
        lost = [name for name in state if name not in known and _of_gate(name)]
        if lost:
            raise StateError(without_gates(lost))
        super().load_state(state, allow_unsafe_lm_state=allow_unsafe_lm_state)

    def _prediction(self, trajectory: Trajectory) -> dspy.Prediction:
        guess = trajectory.answer or ""
        answered = bool(guess) and self._supported(trajectory)
        told = {"answer": guess if answered else "", "answered": answered, "best_guess": guess}
        return dspy.Prediction(**told, trajectory=trajectory, cost=trajectory.cost)

    def _supported(self, trajectory: Trajectory) -> bool:
        """Whether the program stands by its answer; otherwise it abstains."""
        return True

    def _steps(self, question: str, trajectory: Trajectory) -> Steps:
        raise NotImplementedError

    # --- carrying requests out ----------------------------------------------------------------------------------------

    def _carry_out(self, request: Ask | Find | Run) -> Told | Found | Ran:
        if isinstance(request, Run):
            return self._run(request)
        if self.memo is not None and (known := self.memo.recall(request)) is not None:
            return known
        return self._noted(request, self._ask(request) if isinstance(request, Ask) else self._find(request))

    async def _acarry_out(self, request: Ask | Find | Run) -> Told | Found | Ran:
        if isinstance(request, Run):
            return await self._arun(request)
        if self.memo is not None and (known := self.memo.recall(request)) is not None:
            return known
        return self._noted(request, await (self._aask(request) if isinstance(request, Ask) else self._afind(request)))

    def _noted(self, request: Ask | Find, outcome: Told | Found) -> Told | Found:
        if self.memo is not None:
            self.memo.keep(request, outcome)
        return outcome

    def _call(self, ask: Ask) -> _Call:
        predictor = getattr(self, ask.step)
        arguments: dict[str, Any] = dict(ask.inputs)
        if ask.demos:
            arguments["demos"] = [*ask.demos, *_predict(predictor).demos]
        config = dict(ask.config)
        if ask.confidence or "logprobs" in getattr(lm_of(predictor), "supported_params", ()):
            config["logprobs"] = True
        if config:
            arguments["config"] = config
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
            _clean(prediction)
            text = _text(call, ask.field) or None
            note = None if text else "empty"
        if text is not None and (ask.confidence or hasattr(prediction, "logprobs")):
            try:
                backend = getattr(lm_of(predictor), "model", None)
                confidence = answer_confidence(
                    prediction, ask.field, label=label_of(predictor, ask.field), backend=backend
                )
            except ConfidenceError as error:
                if ask.confidence and self._confidence_required():
                    raise
                note = str(error)
        cost = replace(call.meter.cost(), seconds=time.perf_counter() - call.start)
        others = {name: _text(call, name) for name in ask.also}
        others = {name: value for name, value in others.items() if value}
        told = Told(text, confidence, note, cost, call.entries, others, prediction)
        if not ask.tentative:
            accept(told)
        return told

    def _confidence_required(self) -> bool:
        return True

    def _find(self, find: Find) -> Found:
        if self.retriever is None:
            raise InputError(f"{type(self).__name__} searches, but was made without a retriever")
        find, start = _useful(find, self.retriever), time.perf_counter()
        passages, reranked = self.retriever.search(find.query, find.fetched), None
        if find.rerank_query is not None and len(passages) > 1:
            reranked = self.retriever.rerank(find.rerank_query, passages)
        return _ranked(find, passages, reranked, start)

    async def _afind(self, find: Find) -> Found:
        if self.retriever is None:
            return self._find(find)
        find, start = _useful(find, self.retriever), time.perf_counter()
        passages = await self.retriever.asearch(find.query, find.fetched)
        reranked = None
        if find.rerank_query is not None and len(passages) > 1:
            reranked = await self.retriever.arerank(find.rerank_query, passages)
        return _ranked(find, passages, reranked, start)

    def _run(self, run: Run) -> Ran:
        call = _Call(getattr(self, run.module), run.inputs)
        with call.recorded(), dspy.context(**run.context):
            call.prediction = call.predictor(**call.arguments)
        return _ran(call)

    async def _arun(self, run: Run) -> Ran:
        call = _Call(getattr(self, run.module), run.inputs)
        with call.recorded(), dspy.context(**run.context):
            call.prediction = await call.predictor.acall(**call.arguments)
        return _ran(call)


class _Drive:
    """Steps under way: which request comes next, and where its outcome goes."""

    def __init__(self, steps: Callable[[str, Trajectory], Steps], question: str, trajectory: Trajectory) -> None:
        self._steps = steps(question, trajectory)
        self._trajectory = trajectory
        self._result: Trajectory | None = None
        self._error: Exception | None = None
        self.outcome: Any = None

    def next(self) -> Ask | Find | Run | None:
        """The next request; ``None`` at the end."""
        while True:
            error, self._error = self._error, None
            outcome, self.outcome = self.outcome, None
            try:
                request = self._steps.send(outcome) if error is None else self._steps.throw(error)
            except StopIteration as stop:
                self._result = stop.value
                return None
            except Exception as error:
                if getattr(error, "trajectory", None) is None:
                    error.trajectory = self._trajectory  # type: ignore[attr-defined]
                raise
            if not isinstance(request, Reached):
                return request
            self._trajectory = request.trajectory

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Let the steps have what carrying out a request raises."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - the steps get it, and raise what they do not handle
            self._error = error

    def result(self) -> Trajectory:
        """The finished trajectory."""
        if self._result is None:
            raise RuntimeError("the steps have not ended")
        return self._result


@dataclass(slots=True)
class _Call:
    """One call of a predictor while it is carried out: what it takes, what comes of it, and what it cost."""

    predictor: Any
    arguments: dict[str, Any]
    prediction: Any = None
    note: str | None = None
    partial: Mapping[str, Any] = field(default_factory=dict)
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
                self.partial = error.parsed_result if isinstance(error.parsed_result, Mapping) else {}


def _of_gate(parameter: str) -> bool:
    """Whether a saved parameter belongs to a gate, of the program or of one inside."""
    last = parameter.rpartition(".")[2]
    return last == "gate" or last.startswith("gates[")


def accept(told: Told | Ran) -> None:
    """Let a call join the trace that teleprompters learn from."""
    trace, limit = dspy.settings.trace, dspy.settings.max_trace_size
    if trace is not None and limit > 0:
        # Log-probabilities are no field of a demo: they would only bloat saved programs.
        trace.extend((predictor, inputs, _without_logprobs(output)) for predictor, inputs, output in told.entries)
        del trace[: max(0, len(trace) - limit)]


def _ran(call: _Call) -> Ran:
    cost = getattr(call.prediction, "cost", None)
    if not isinstance(cost, Cost):
        cost = replace(call.meter.cost(), seconds=time.perf_counter() - call.start)
    return Ran(call.prediction, cost, call.entries)


def _predict(module: Any) -> Any:
    """The predictor that writes a module's outputs: itself, or the last one inside."""
    return module if isinstance(module, dspy.Predict) else module.predictors()[-1]


def lm_of(module: Any) -> Any:
    """The LM that a predictor would call."""
    return _predict(module).lm or dspy.settings.lm


def label_of(module: Any, name: str) -> str | None:
    """The line label of a predictor's output."""
    field = _predict(module).signature.output_fields.get(name)
    return None if field is None else field.json_schema_extra["prefix"]


def _clean(prediction: dspy.Prediction) -> None:
    """Make the texts of a prediction ones that later prompts, and the demos that it may become, can hold."""
    for name, value in prediction.items():
        if isinstance(value, str) and (text := encodable(value)) != value:
            prediction[name] = text


def _text(call: _Call, name: str) -> str:
    """An output as text that can stand in a later prompt; empty if the LM gave none."""
    value = call.partial.get(name) if call.prediction is None else getattr(call.prediction, name, None)
    text = encodable(str(value or "")).strip()
    # DSPy turns a null that stands for a text into the word; only the completion tells which of the two was written.
    return "" if text == "None" and re.search(rf'"{name}"\s*:\s*null\b', call.meter.completion()) else text


def _without_logprobs(output: Any) -> Any:
    if not isinstance(output, dspy.Prediction) or "logprobs" not in output:
        return output
    return dspy.Prediction(**{name: value for name, value in output.items() if name != "logprobs"})


def _checked(question: str, trajectory: Trajectory | None) -> tuple[str, Trajectory]:
    if not isinstance(question, str):
        raise InputError(f"the question must be a text, got a {type(question).__name__}")
    if not question.strip():
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


def _unreadable(error: AdapterParseError) -> str:
    response = str(error.lm_response or "")
    # DSPy renders the empty output as text in this message; to the reader it is simply no answer.
    return "empty" if "empty or null" in str(error) else f"unreadable: {response[:200]}"


def _useful(find: Find, retriever: RetrieverHandle) -> Find:
    """The request without a rerank that could only repeat or undo the order of the search."""
    return replace(find, rerank_query=None) if retriever.ranks_alike and find.rerank_query == find.query else find


def _ranked(find: Find, passages: tuple[Passage, ...], reranked: tuple[Passage, ...] | None, start: float) -> Found:
    if reranked is not None:
        passages = _fuse(passages, reranked) if find.fused else reranked
    return Found(passages[: find.k], Cost(retrievals=1, seconds=time.perf_counter() - start))


def _fuse(first: Sequence[Passage], second: Sequence[Passage], constant: int = 60) -> tuple[Passage, ...]:
    """Reciprocal rank fusion (Cormack et al. 2009)."""
    gain: dict[str, float] = {}
    for ranking in (first, second):
        for rank, passage in enumerate(ranking, 1):
            gain[passage.id] = gain.get(passage.id, 0.0) + 1.0 / (constant + rank)
    return tuple(sorted(first, key=lambda passage: -gain[passage.id]))
