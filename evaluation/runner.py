"""Evaluating a program on questions, written as it goes, so that a run that was stopped goes on where it was."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..core import InputError, user_path
from .attempts import HISTORY, Outcome, QuestionMeter, answer_question, global_history, trim_history
from .budget import Budget, Spending
from .provenance import describe_data, describe_run, knows_gold_passages
from .question_digest import questions_digest
from .questions import Question
from .recorded_texts import recorded_answer
from .recorded_trajectories import passages_read, trajectory_record
from .records import Appender, Run, appending, differences, read_run
from .run_schema import DataHeader, Normalisation, RunHeader, RunRecord, Scores
from .scoring import score_answer
from .workers import Workers

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is, earlier sessions included.

    Attributes:
        done: Questions that have a record.
        total: Questions in all.
        errors: Those of the records that are failures.
        em: Share of exact matches among the others; ``None`` while there are none.
        calls: LM calls.
        usd: US dollars; ``None`` where a price is unknown.
        seconds: Wall time of this session.
    """

    done: int
    total: int
    errors: int
    em: float | None
    calls: int
    usd: float | None
    seconds: float


OnProgress = Callable[[Progress], None]


def evaluate(
    program: Any,
    questions: Iterable[Question],
    out: str | Path,
    *,
    workers: int = 1,
    timeout: float | None = None,
    retries: int = 0,
    backoff: float = 1.0,
    budget: Budget | None = None,
    normalisation: Normalisation = "official",
    errors_in_row: int | None = 20,
    retry_errors: bool = False,
    seed: int = 0,
    name: str | None = None,
    data: DataHeader | None = None,
    state_file: str | None = None,
    same_as: RunHeader | None = None,
    on_progress: OnProgress | None = None,
) -> Run:
    """Answer questions with a program, score the answers, and write one line a question as it finishes.

    The LM and the adapter are those of ``dspy.settings``. Stopped in any way, even by ``kill -9``, a run goes on when
    it is called again with the same arguments; only questions that were under way are asked again. A question that
    fails is recorded as an error and counted apart from wrong answers. What would meet every question (no access to
    the LM, a missing index) is raised instead, as are bugs of a metric; the file can then be resumed.

    The LM and the index are loaded by the first questions of a session, whose seconds include it.

    Memory does not grow with the number of questions until the end, when the file is read: of DSPy's histories the
    last 100 entries are kept meanwhile, and each question has a trace of its own.

    Args:
        program: A DSPy module, called as ``program(question=...)`` by all workers at once; or any callable.
        questions: The questions; their ids are unique.
        out: The run file to write or to resume.
        workers: Questions that are answered at a time, each in a thread of its own.
        timeout: Seconds that a question may take, attempts and pauses included. One that takes longer is recorded as an
            error of type ``Timeout``. Its thread cannot be killed: it ends with its LM call under way, or when the
            program returns, and uses the LM until then, beside the thread that takes its place.
        retries: Further attempts after transient failures of the LM (rate limits, HTTP 5xx, timeouts, connections).
        backoff: Seconds of the first pause between attempts; it doubles each time, up to a minute.
        budget: Limits; the run stops between questions when one is reached. Questions under way are finished.
        normalisation: ``official`` (SQuAD, HotpotQA) or ``strict``.
        errors_in_row: The run stops after so many failures without an answer in between; ``None`` sets no limit.
        retry_errors: Ask questions again whose record is an error; the later record counts.
        seed: Recorded in the header, for programs and LMs that were made with one.
        name: Name of the run; by default the file's name without its ending.
        data: Which questions they are; by default what the collection says.
        state_file: SHA-256 of the file that the program's state was loaded from.
        same_as: The header of a run that this one repeats: it is refused if anything differs, versions aside.
        on_progress: Called in this thread at the beginning and after each question.

    Returns:
        The run, with ``stopped`` saying why it ended early, if it did.

    Raises:
        InputError: An argument cannot be used, or the file was made with something else; the message says what differs.
        HopgateError: Another process writes the file.
        StateError: The file is damaged.
        OSError: The file cannot be written.
    """
    _check(workers=workers, timeout=timeout, retries=retries, backoff=backoff, errors_in_row=errors_in_row)
    asked = list(questions)
    data = data or describe_data(questions, [question.id for question in asked])
    if [question.id for question in asked] != list(data.ids):
        raise InputError("`data` must have the ids of the questions, in their order")
    data = replace(data, questions_sha256=questions_digest(asked))
    target = user_path(out)
    header = describe_run(
        program, data, name=name or target.stem, seed=seed, normalisation=normalisation, state_file=state_file
    )
    if same_as is not None:
        _check_same(same_as, header)
    kept_history = max(HISTORY, global_history())
    with appending(target, header) as file:
        _note_versions(file.header, header)
        spending = Spending(budget or Budget(), file.before.values(), errors_in_row=errors_in_row)
        tally = _Tally(file, len(asked), spending)
        todo = [q for q in asked if q.id not in file.before or (retry_errors and tally.failed(q.id))]
        recalls = not todo or (header.index is not None and knows_gold_passages(program, asked))
        if header.index is not None and not recalls:
            _LOG.warning("retrieval recall is not measured: the index has none of the passages that the questions name")
        tally.report(on_progress)

        def work(question: Question, meter: QuestionMeter) -> Outcome:
            outcome = answer_question(program, question.question, meter, retries=retries, backoff=backoff)
            if not meter.given_up.is_set():
                spending.finished(outcome.failure)
            return outcome

        pool: Workers[Question] = Workers(
            work,
            lambda: QuestionMeter(spending),
            spending.allows,
            spending.finished,
            workers=min(workers, max(1, len(todo))),
            timeout=timeout,
        )
        for question, outcome in pool.outcomes(todo):
            if outcome.fatal is not None:
                raise outcome.fatal
            record = _record(question, outcome, normalisation, recalls=recalls)
            file.append(record)
            tally.add(record)
            trim_history(kept_history)
            tally.report(on_progress)
    run = read_run(target)
    return Run(run.header, run.records, run.path, spending.stopped if run.missing else None)


class _Tally:
    """Running sums over the records of a file, each question's last record counted."""

    def __init__(self, file: Appender, total: int, spending: Spending) -> None:
        self._exact: dict[str, bool | None] = {
            identity: _exact(record) for identity, record in file.before.items()
        }  # fmt: skip
        self._total = total
        self._spending = spending
        self._matches = sum(value is True for value in self._exact.values())
        self._errors = sum(value is None for value in self._exact.values())
        self._start = time.monotonic()

    def failed(self, identity: str) -> bool:
        return self._exact[identity] is None

    def add(self, record: RunRecord) -> None:
        for value, sign in ((self._exact.get(record.id, False), -1), (_exact(record), 1)):
            self._matches += sign * (value is True)
            self._errors += sign * (value is None)
        self._exact[record.id] = _exact(record)

    def report(self, on_progress: OnProgress | None) -> None:
        if on_progress is None:
            return
        done, spending = len(self._exact), self._spending
        answered = done - self._errors
        on_progress(
            Progress(
                done=done,
                total=self._total,
                errors=self._errors,
                em=self._matches / answered if answered else None,
                calls=spending.calls,
                usd=spending.usd,
                seconds=time.monotonic() - self._start,
            )
        )


def _exact(record: RunRecord) -> bool | None:
    return record.scores.em if record.status == "ok" else None


def _record(question: Question, outcome: Outcome, normalisation: Normalisation, *, recalls: bool) -> RunRecord:
    trajectory = outcome.trajectory
    found: list[str] | None = None
    if recalls and trajectory is not None:
        found = [passage.id for hop in trajectory.hops for passage in hop.passages]
        found += [passage.id for passage in trajectory.passages]
    scores = score_answer(question, outcome.answer, normalisation=normalisation, passage_ids=found)
    read = passages_read(trajectory)
    return RunRecord(
        id=question.id,
        status="ok" if outcome.failure is None else "error",
        answer=None if outcome.answer is None else recorded_answer(outcome.answer, question.question, read),
        type=question.type,
        hops=question.hops,
        scores=Scores(**scores),
        trajectory=None if trajectory is None else trajectory_record(trajectory),
        cost=outcome.cost,
        error=outcome.failure,
        attempts=outcome.attempts,
        answered=outcome.best_guess is None,
        best_guess=None if outcome.best_guess is None else recorded_answer(outcome.best_guess, question.question, read),
    )


def _note_versions(old: RunHeader, new: RunHeader) -> None:
    for package in sorted({*old.versions, *new.versions}):
        was, now = old.versions.get(package), new.versions.get(package)
        if was != now:
            _LOG.warning("the run was begun with %s %s and goes on with %s", package, was, now)


def _check_same(old: RunHeader, new: RunHeader) -> None:
    other = differences(old, new)
    if other:
        raise InputError(
            f"this would be no repetition of the run {old.name!r}: {'; '.join(other)}; name what it was made with, or "
            "make it as a new run"
        )


def _check(**values: Any) -> None:
    least = {"workers": 1, "retries": 0, "errors_in_row": 1}
    for name, value in values.items():
        if value is None and name in ("timeout", "errors_in_row"):
            continue
        if name in least:
            if not isinstance(value, int) or isinstance(value, bool) or value < least[name]:
                raise InputError(f"`{name}` must be a whole number of at least {least[name]}, got {value!r}")
        elif not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < float("inf"):
            raise InputError(f"`{name}` must be a positive number of seconds, got {value!r}")
