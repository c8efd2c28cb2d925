"""Answering one question: what it takes is metered, and transient failures of the LM are tried again."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import dspy
from dspy.clients import base_lm
from dspy.utils.exceptions import is_retryable_lm_error

from ..core import (
    CheckpointError,
    HopgateError,
    IndexStoreError,
    InputError,
    MissingDependencyError,
    ModelError,
    WeightsError,
)
from ..lms.config import EMBEDDED_PREFIX
from ..programs import Cost, Trajectory
from ..programs.metering import Meter
from .budget import Spending
from .recorded_texts import without_question
from .run_schema import Failure, RunCost

HISTORY = 100
"""Entries of DSPy's histories that are kept while a run goes on; 10,000 would be its own choice."""

_COUNTS = [name for name in Cost.__dataclass_fields__ if name != "seconds"]
_LONGEST_MESSAGE = 300
_LONGEST_PAUSE = 60.0
_TRANSIENT_STATUS = {408, 429, 500, 502, 503, 504, 529}
# These would meet every further question too.
_FATAL = (CheckpointError, IndexStoreError, MissingDependencyError, ModelError, WeightsError)
_FATAL_LM = ("LMAuthError", "LMBillingError", "LMConfigurationError", "LMUnsupportedModelError")


class GivenUp(BaseException):
    """Ends the thread of a question that was given up; programs do not catch it."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a question.

    Attributes:
        answer: The answer; ``None`` if there is none.
        trajectory: How it was answered, if the program says it.
        cost: What it took, over all attempts; pauses between them are not counted.
        attempts: How often it was tried.
        failure: Why there is no answer.
        fatal: What was raised, if it would meet every further question too.
        best_guess: What the program would have answered, if it abstained.
    """

    answer: str | None
    trajectory: Trajectory | None
    cost: RunCost
    attempts: int
    failure: Failure | None = None
    fatal: BaseException | None = None
    best_guess: str | None = None


class QuestionMeter:
    """Counts the LM calls made for one question, and stops a question that was given up.

    DSPy appends an entry for each LM call to the ``history`` of every module that the call was made in. The meter takes
    part as the outermost of these, for all attempts, and keeps sums only. Where the question was given up, the next
    entry ends its thread: a thread cannot be stopped from outside.

    Args:
        spending: What the run has spent, counted along.

    Attributes:
        given_up: Set to give the question up.
        attempts: How often the question was tried so far.
    """

    def __init__(self, spending: Spending) -> None:
        self.history: Any = self
        self.given_up = threading.Event()
        self.attempts = 0
        self._spending = spending
        self._cost, self._usd = Cost(), 0.0
        self._priced = True
        self._start = time.perf_counter()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        # Nothing is kept, so DSPy never has to make room.
        return 0

    def append(self, entry: dict[str, Any]) -> None:
        """Count one LM call."""
        single = Meter()
        single.history.append(entry)
        cost = single.cost()
        # A call that a cache answered costs nothing, though its entry still says what it once did; an LM in this
        # process has no price at all.
        free = cost.cached_calls or str(entry.get("model")).startswith(EMBEDDED_PREFIX)
        usd = 0.0 if free else entry.get("cost")
        self._spending.add(cost.lm_calls, usd, cost.prompt_tokens + cost.completion_tokens)
        with self._lock:
            self._cost = self._cost + cost
            self._priced = self._priced and usd is not None
            self._usd += usd or 0.0
        if self.given_up.is_set():
            raise GivenUp

    def cost(self, seconds: float | None = None) -> RunCost:
        """What was counted so far; without ``seconds``, the wall time since the question was begun."""
        with self._lock:
            counted, usd = self._cost, self._usd if self._priced else None
        sums = {name: getattr(counted, name) for name in _COUNTS}
        return RunCost(**sums, seconds=time.perf_counter() - self._start if seconds is None else seconds, usd=usd)

    def pause(self, seconds: float) -> None:
        """Wait between two attempts."""
        if self.given_up.wait(seconds):
            raise GivenUp


def answer_question(program: Any, question: str, meter: QuestionMeter, *, retries: int, backoff: float) -> Outcome:
    """Call a program with one question.

    Args:
        program: Called with ``question=``; returns a prediction with ``answer`` and, if it has them, ``trajectory``
            and ``cost``.
        question: The question's text.
        meter: A new meter.
        retries: Further attempts after transient failures of the LM: rate limits, timeouts, failures of the server or
            of the connection.
        backoff: Seconds of the first pause; it doubles each time up to a minute, with some jitter. What the LM's server
            asks for goes before.

    Returns:
        The outcome. Whatever the program raises is part of it.
    """
    spent, wasted, prediction, error = 0.0, RunCost(), None, None
    with dspy.context(
        trace=[],
        disable_history=False,
        max_history_size=HISTORY,
        caller_modules=[*(dspy.settings.caller_modules or []), meter],
    ):
        while True:
            if error is not None:
                wasted = meter.cost(spent)
                meter.pause(_pause(error, meter.attempts, backoff))
            meter.attempts += 1
            start = time.perf_counter()
            try:
                prediction, error = program(question=question), None
            except Exception as failure:  # noqa: BLE001 - it goes into the record, or the runner raises it
                error = failure
            spent += time.perf_counter() - start
            if error is None or meter.attempts > retries or not _is_transient(error):
                break
    if error is not None:
        fatal = error if _is_fatal(error) else None
        return Outcome(None, None, meter.cost(spent), meter.attempts, failure_of(error, question), fatal)
    answer = getattr(prediction, "answer", None)
    if not isinstance(answer, str):
        wrong = InputError(
            f"the program must return a prediction with a string `answer`, got {type(prediction).__name__} with "
            f"{type(answer).__name__}"
        )
        return Outcome(None, None, meter.cost(spent), meter.attempts, failure_of(wrong, question), wrong)
    trajectory = getattr(prediction, "trajectory", None)
    abstained = getattr(prediction, "answered", True) is False
    return Outcome(
        answer,
        trajectory if isinstance(trajectory, Trajectory) else None,
        _whole_cost(getattr(prediction, "cost", None), wasted, meter.cost(spent)),
        meter.attempts,
        best_guess=str(getattr(prediction, "best_guess", None) or "") if abstained else None,
    )


def failure_of(error: BaseException, question: str) -> Failure:
    """An exception for a run file: without the question's text, and only the first line of its message.

    Args:
        error: What was raised; where DSPy wraps an error of hopgate, that one counts.
        question: The question.
    """
    reason = next((cause for cause in _causes(error) if isinstance(cause, HopgateError)), error)
    message = str(reason).strip().partition("\n")[0].strip()
    return Failure(type(reason).__name__, without_question(message, question)[:_LONGEST_MESSAGE])


def trim_history(kept: int) -> None:
    """Drop the oldest entries of DSPy's global history, which no setting limits, down to ``kept``."""
    history = base_lm.GLOBAL_HISTORY
    if len(history) > kept:
        del history[: len(history) - kept]


def global_history() -> int:
    """Entries in DSPy's global history."""
    return len(base_lm.GLOBAL_HISTORY)


def _pause(error: BaseException, attempt: int, backoff: float) -> float:
    """Seconds to wait before the next attempt."""
    asked = getattr(error, "retry_after", None)
    if isinstance(asked, int | float) and asked >= 0:
        return min(float(asked), _LONGEST_PAUSE)
    # Jitter, so that the workers do not all come back at once.
    return min(backoff * 2.0 ** (attempt - 1), _LONGEST_PAUSE) + random.uniform(0, backoff)


def _is_transient(error: BaseException) -> bool:
    if not isinstance(error, dspy.LMError):
        return False
    return is_retryable_lm_error(error) or getattr(error, "status", None) in _TRANSIENT_STATUS


def _is_fatal(error: BaseException) -> bool:
    return any(
        isinstance(cause, _FATAL) or any(base.__name__ in _FATAL_LM for base in type(cause).__mro__)
        for cause in _causes(error)
    )


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__


def _whole_cost(told: Any, wasted: RunCost, metered: RunCost) -> RunCost:
    """What the program says that it took, and what attempts before that one took, at the metered price."""
    if not isinstance(told, Cost):
        return metered
    sums = {name: getattr(told, name) + getattr(wasted, name) for name in (*_COUNTS, "seconds")}
    return RunCost(**sums, usd=metered.usd)
