"""Why answers are wrong: what a data set says should have happened is put in, one thing at a time.

Each wrong answer of a recorded run is answered again by the same program, resumed from the same prefix, with one thing
replaced:

- *decomposition*: the gold sub-questions;
- *gate*: a search at every hop, then every draft kept (both, since either decision may have been the wrong one);
- *retrieval*: every search finds the gold passages first;
- *decomposition and retrieval*: both at once; where the data has no gold sub-questions, the whole question read at once
  from the gold passages;
- *reading*: the gold sub-questions, passages and intermediate answers, so that only composing is left.

An error is charged to the first of these that makes the answer right. The order is a convention, and so the counts are
not independent causes: an error that two replacements would mend is charged to the earlier one, and "gate" has two
chances. What nothing mends is charged to composition where even the intermediate answers were given, to "reading or
composition" where a program without sub-questions was given the passages, and is unexplained otherwise, as with data
that has no gold sub-questions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core import InputError, Passage
from ..programs import ConstantGate, Trajectory
from .attempts import QuestionMeter, answer_question
from .budget import Budget, Spending
from .diagnosis import Diagnosis, DiagnosisHeader, DiagnosisRecord, Replacement, Trial, charge
from .diagnosis_files import appending
from .gold import (
    gated,
    gold_sub_questions,
    gold_trajectory,
    solvers_of,
    take_gold_steps,
    undivided,
    with_gate,
    with_gold_passages,
)
from .provenance import describe_lm
from .question_digest import check_questions
from .questions import Question
from .recorded_texts import recorded_answer
from .recorded_trajectories import Lookup, passages_read, trajectory_of
from .records import Run
from .run_schema import RunRecord
from .scoring import score_answer

OnProgress = Callable[[int, int], None]
"""Told how many of the wrong answers are done, and how many there are."""

Answer = Callable[[], Any]
"""Answers a question once more, with something replaced."""


@dataclass(frozen=True, slots=True)
class _Case:
    """A wrong answer, and what is known about its question.

    Attributes:
        question: The question.
        trajectory: How it was answered.
        passages: Its gold passages; empty where they are not known, or not all of them can be found.
        divided: Whether it was answered in hops.
    """

    question: Question
    trajectory: Trajectory
    passages: tuple[Passage, ...]
    divided: bool


def diagnose(
    program: Any,
    run: Run,
    questions: Iterable[Question],
    passages: Lookup,
    out: str | Path,
    *,
    every: bool = False,
    retries: int = 0,
    backoff: float = 1.0,
    on_progress: OnProgress | None = None,
) -> Diagnosis:
    """Say what the wrong answers of a run come from; see the module for how.

    The LM and the adapter are those of ``dspy.settings``. A file that was stopped goes on where it was.

    Args:
        program: The run's program.
        run: The run.
        questions: The data set's questions.
        passages: Takes ids and gives those passages that it has of them.
        out: The file to write or to resume.
        every: Try every replacement that the data allows, rather than up to the first that mends the answer.
        retries: See :func:`~hopgate.evaluation.runner.evaluate`.
        backoff: Likewise.
        on_progress: Called at the beginning and after each question.

    Raises:
        InputError: Questions of the run are missing or have other texts, or the file was made with something else.
        StateError: The file is damaged.
        OSError: It cannot be written.
    """
    import dspy

    by_id = {question.id: question for question in questions}
    check_questions(run.header.data, by_id.values(), run.header.name)
    wrong = [record for record in run.answered if not record.scores.em]
    lost = [record.id for record in wrong if record.id not in by_id]
    if lost:
        raise InputError(
            f"{len(lost):,} of the run's {len(wrong):,} wrong answers are to questions that were not given (the first "
            f"is {lost[0]!r}); name the questions that the run was made with"
        )
    wrong = [record for record in wrong if by_id[record.id].answerable]
    # The hops of a program that never searches are samples, not sub-questions.
    divided = any(solver.retriever is not None for solver in solvers_of(program)) and any(
        record.trajectory is not None and record.trajectory.hops for record in run.answered
    )
    header = DiagnosisHeader(run.header, describe_lm(dspy.settings.lm), every)
    spending = Spending(Budget(), (), errors_in_row=None)
    with appending(out, header) as (before, append):
        records = {record.id: before[record.id] for record in wrong if record.id in before}
        if on_progress is not None:
            on_progress(len(records), len(wrong))
        for record in wrong:
            if record.id in records:
                continue
            case = _case(record, by_id[record.id], passages, divided)
            trials: list[Trial] = []
            for name, answer in _replacements(program, case):
                trials.append(_trial(name, answer, case, run, spending, retries=retries, backoff=backoff))
                if trials[-1].em and not every:
                    break
            records[record.id] = _judged(record, case, trials)
            append(records[record.id])
            if on_progress is not None:
                on_progress(len(records), len(wrong))
    return Diagnosis(header, tuple(records[record.id] for record in wrong), len(run.answered))


def _case(record: RunRecord, question: Question, passages: Lookup, divided: bool) -> _Case:
    wanted = question.supporting_ids
    found = {passage.id: passage for passage in (*question.contexts, *passages(wanted))} if wanted else {}
    gold = tuple(found[key] for key in wanted if key in found)
    if record.trajectory is None:
        trajectory = Trajectory(question.question)
    else:
        trajectory = trajectory_of(record, passages, question.question)
    return _Case(question, trajectory, gold if len(gold) == len(wanted) else (), divided)


def _replacements(program: Any, case: _Case) -> Iterable[tuple[Replacement, Answer]]:
    """The replacements that the data and the program allow, in order."""
    question, trajectory, gold = case.question, case.trajectory, case.passages
    steps = case.divided and len(question.decomposition) > 0
    searching = [number for number, hop in enumerate(trajectory.hops) if hop.source == "search"]
    if steps:
        yield "gold_sub_questions", lambda: take_gold_steps(program, question)
    if gated(program):
        kept = [number for number, hop in enumerate(trajectory.hops) if hop.source == "memory"]
        kept += [made.hop for made in trajectory.decisions if made.kept]
        if kept:
            always = with_gate(program, ConstantGate(search=True))
            yield "search_always", lambda: _resumed(always, trajectory, min(kept))
        if searching:
            never = with_gate(program, ConstantGate(search=False))
            yield "search_never", lambda: _resumed(never, trajectory, searching[0])
    searched = searching or trajectory.passages
    if gold and searched:
        given = with_gold_passages(program, gold)
        start = searching[0] if searching else 0
        yield "gold_passages", lambda: _resumed(given, trajectory, start)
        if steps:
            yield "gold_sub_questions_and_passages", lambda: take_gold_steps(given, question)
        elif case.divided:
            yield "undivided", lambda: _called(given, undivided(question, gold))
    if steps and gold_sub_questions(question):
        handle = next((solver.retriever for solver in solvers_of(program) if solver.retriever is not None), None)
        whole = gold_trajectory(question, gold, handle)
        yield "gold_answers", lambda: _called(program, whole)


def _resumed(program: Any, trajectory: Trajectory, hops: int) -> Any:
    return _called(program, trajectory.prefix(min(hops, len(trajectory.hops))))


def _called(program: Any, trajectory: Trajectory) -> Any:
    return program(question=trajectory.question, trajectory=trajectory)


def _trial(
    name: Replacement, answer: Answer, case: _Case, run: Run, spending: Spending, *, retries: int, backoff: float
) -> Trial:
    question = case.question
    outcome = answer_question(
        lambda question: answer(), question.question, QuestionMeter(spending), retries=retries, backoff=backoff
    )
    if outcome.fatal is not None:
        raise outcome.fatal
    scores = score_answer(question, outcome.answer, normalisation=run.header.normalisation)
    read = passages_read(outcome.trajectory)
    text = None if outcome.answer is None else recorded_answer(outcome.answer, question.question, read)
    return Trial(name, text, scores["em"], scores["f1"], outcome.cost, outcome.failure)


def _judged(record: RunRecord, case: _Case, trials: list[Trial]) -> DiagnosisRecord:
    names = {trial.replaced for trial in trials}
    charged = charge(
        trials,
        passages="gold_passages" in names,
        answers="gold_answers" in names,
        divided=case.divided,
    )
    return DiagnosisRecord(record.id, charged, tuple(trials), record.scores.off_topic)
