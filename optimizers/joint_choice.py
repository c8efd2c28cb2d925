"""Which program is taken at the end, and the account of all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import dspy
import numpy as np

from .candidates import uncompiled
from .joint_front import Solved, undominated
from .joint_manifest import metric_name
from .joint_record import Asked, CandidateFailed, Stopped, score_of
from .joint_result import CandidateSummary, FrontPoint, JointResult
from .joint_work import Work
from .rules import Rule
from .study import FinishedTrial


def choose(
    work: Work,
    finished: Sequence[FinishedTrial],
    val: Asked | None,
    importances: dict[str, float],
    stopped: str | None,
    *,
    finalists: int,
    metric: Any,
) -> tuple[dspy.Module, JointResult]:
    """The program by the rule, and the account of all.

    The candidates that answered all racing questions are compared by what their thresholds do on questions that they
    were not fitted on: the validation questions, which the best ``finalists`` answer, or else the other folds of a
    cross-validation. The best one is taken if by the rule it gains on the unchanged program.

    Args:
        work: The optimisation.
        finished: Its trials.
        val: Validation questions.
        importances: Of the study's parameters.
        stopped: Why it ended early.
        finalists: Candidates to validate.
        metric: The metric.
    """
    candidates, questions = summaries(finished), work.race.rungs[-1]
    left = ranked([one for one in candidates if not one.dropped and one.questions == questions], work.rule)
    start = next((trial for trial in finished if trial.number == 0), None)
    original = None if start is None else FrontPoint(**start.notes["original"])
    base = None if original is None else (original.score, float(getattr(original, work.rule.cost)))
    if val is not None and start is not None and left:
        try:
            left, base = _validate(work, left, val, start.notes["candidate"], finalists, score_of(metric, val))
        except Stopped as stop:
            stopped = stopped or f"{stop}; the choice was made without the validation questions"
    chosen, kept = original, True
    if left and base is not None:
        best = ranked(left, work.rule)[0]
        if work.rule.gains(*on_others(best), *base):
            chosen, kept = best.chosen, False
    known = {one.candidate: one for one in left}
    result = JointResult(
        front=front_of(finished, questions),
        candidates=tuple(known.get(one.candidate, one) for one in candidates),
        chosen=chosen,
        original=original,
        kept_original=kept,
        importances=importances,
        rule=repr(work.rule),
        metric=metric_name(metric),
        spent=work.ledger.spent,
        stopped=stopped,
    )
    return (uncompiled(work.student) if chosen is None or kept else work.program(chosen)), result


def _validate(
    work: Work, left: Sequence[CandidateSummary], val: Asked, original: str, finalists: int, score: Any
) -> tuple[list[CandidateSummary], tuple[float, float]]:
    """The best candidates on the validation questions, and what the unchanged program does there."""
    own = next((one for one in left if one.candidate == original), None)
    checked: list[CandidateSummary] = []
    plain = work.validate_original(original, val, score).point
    for one in left:
        if len(checked) >= finalists and one is not own:
            continue
        try:
            checked.append(validated(one, work.validate(one, val, score), work.rule))
        except CandidateFailed:
            continue  # it answered the racing questions, and does not answer these
    return checked, (plain.score, float(getattr(plain, work.rule.cost)))


def summaries(finished: Sequence[FinishedTrial]) -> tuple[CandidateSummary, ...]:
    """Finished trials as candidates, each once."""
    found: dict[str, CandidateSummary] = {}
    for trial in finished:
        notes = trial.notes
        if notes["candidate"] not in found:
            found[notes["candidate"]] = CandidateSummary(
                candidate=notes["candidate"],
                trial=trial.number,
                parameters=dict(trial.parameters),
                questions=notes["questions"],
                dropped=notes["dropped"],
                chosen=FrontPoint(**notes["chosen"]),
                held_out=notes["held_out"],
                held_out_cost=notes["held_out_cost"],
            )
    return tuple(found.values())


def front_of(finished: Sequence[FinishedTrial], questions: int) -> tuple[FrontPoint, ...]:
    """The front over the candidates that answered all racing questions."""
    points = [
        FrontPoint(**point)
        for trial in finished
        if not trial.notes["dropped"] and trial.notes["questions"] == questions
        for point in trial.notes["front"]
    ]
    if not points:
        return ()
    kept = undominated(points, lambda point: (point.score, -point.retrievals, -point.tokens))
    return tuple(sorted(kept, key=lambda point: (point.retrievals, point.tokens)))


def ranked(candidates: Sequence[CandidateSummary], rule: Rule) -> list[CandidateSummary]:
    """Candidates from the best to the worst: the rule's choice, its choice among the others, and so on."""
    left, order = list(candidates), []
    while left:
        scores = np.array([on_others(one)[0] for one in left])
        costs = np.array([on_others(one)[1] for one in left])
        order.append(left.pop(int(np.flatnonzero(rule.best(scores, costs))[0])))
    return order


def on_others(one: CandidateSummary) -> tuple[float, float]:
    """Score and cost of a candidate on other questions than its thresholds were fitted on: validation, if there was."""
    if one.validated is not None and one.validated_cost is not None:
        return one.validated, one.validated_cost
    return one.held_out, one.held_out_cost


def validated(one: CandidateSummary, solved: Solved, rule: Rule) -> CandidateSummary:
    """A candidate with what it did on the validation questions."""
    return replace(one, validated=solved.point.score, validated_cost=float(getattr(solved.point, rule.cost)))
