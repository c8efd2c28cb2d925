"""Threads that answer questions side by side, one of which can be given up when its question takes too long."""

from __future__ import annotations

import contextvars
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from .attempts import GivenUp, Outcome, QuestionMeter
from .run_schema import Failure

Q = TypeVar("Q")


@dataclass(eq=False, slots=True)
class _Job(Generic[Q]):
    question: Q
    meter: QuestionMeter
    started: float = field(default_factory=time.monotonic)


@dataclass(frozen=True, slots=True)
class _Broken:
    error: BaseException


class Workers(Generic[Q]):
    """Answers questions in threads, which take over the caller's context: DSPy's settings and callbacks.

    A thread cannot be killed. One whose question has taken too long is left alone: its outcome does not count, it ends
    with its LM call under way, or when the program returns, and another thread takes its place. Until then it goes on
    using the LM. All threads are daemons: none keeps the process from ending.

    Args:
        work: Answers one question; called in the threads.
        meter: Makes a meter for a question.
        allows: Whether a further question may be begun.
        late: Told of each question that was given up.
        workers: Number of questions that are answered at a time.
        timeout: Seconds that a question may take; ``None`` sets no limit.
    """

    def __init__(
        self,
        work: Callable[[Q, QuestionMeter], Outcome],
        meter: Callable[[], QuestionMeter],
        allows: Callable[[], bool],
        late: Callable[[Failure], None],
        *,
        workers: int,
        timeout: float | None,
    ) -> None:
        self._work = work
        self._meter = meter
        self._allows = allows
        self._told_late = late
        self._workers = workers
        self._timeout = timeout
        self._done: queue.SimpleQueue[tuple[_Job[Q], Outcome] | _Broken | None] = queue.SimpleQueue()
        self._running: dict[int, _Job[Q]] = {}
        self._lock = threading.Lock()
        self._closed = False
        self._questions: Iterator[Q] = iter(())

    def outcomes(self, questions: Iterable[Q]) -> Iterator[tuple[Q, Outcome]]:
        """The questions with their outcomes, in the order in which they finish.

        Raises:
            BaseException: What ``work`` raised; the other questions are given up then, as they are when the caller
                stops to iterate.
        """
        self._questions = iter(questions)
        try:
            for _ in range(self._workers):
                self._start()
            ends = 0
            while ends < self._workers:
                try:
                    item = self._done.get(timeout=self._patience())
                except queue.Empty:
                    for job in self._overdue():
                        yield job.question, self._late(job)
                        self._start()
                    continue
                if isinstance(item, _Broken):
                    raise item.error
                if item is None:
                    ends += 1
                else:
                    yield item[0].question, item[1]
        finally:
            self.close()
            with self._lock:
                for job in self._running.values():
                    job.meter.given_up.set()
                self._running.clear()

    def close(self) -> None:
        """Begin no further question; those under way are finished."""
        self._closed = True

    def _start(self) -> None:
        context = contextvars.copy_context()
        threading.Thread(target=context.run, args=(self._run,), name="hopgate-evaluate", daemon=True).start()

    def _run(self) -> None:
        try:
            while (job := self._next()) is not None:
                outcome = self._work(job.question, job.meter)
                with self._lock:
                    if self._running.pop(id(job), None) is None:
                        return  # given up
                self._done.put((job, outcome))
        except GivenUp:
            return
        except BaseException as error:  # noqa: BLE001 - raised again by the thread that iterates
            self._done.put(_Broken(error))
            return
        self._done.put(None)

    def _next(self) -> _Job[Q] | None:
        with self._lock:
            if self._closed or not self._allows():
                return None
            for question in self._questions:
                job = _Job(question, self._meter())
                self._running[id(job)] = job
                return job
            return None

    def _patience(self) -> float | None:
        """Seconds until the first question has taken too long."""
        if self._timeout is None:
            return None
        now = time.monotonic()
        with self._lock:
            first = min((job.started for job in self._running.values()), default=now)
        return max(0.0, first + self._timeout - now)

    def _overdue(self) -> list[_Job[Q]]:
        now, found = time.monotonic(), []
        with self._lock:
            for key, job in list(self._running.items()):
                if self._timeout is not None and now - job.started >= self._timeout:
                    del self._running[key]
                    job.meter.given_up.set()
                    found.append(job)
        return found

    def _late(self, job: _Job[Q]) -> Outcome:
        failure = Failure("Timeout", f"no answer within {self._timeout:g} seconds")
        self._told_late(failure)
        return Outcome(None, None, job.meter.cost(), max(1, job.meter.attempts), failure)
