"""Compiling a program on recorded decision trees: thresholds, or a policy that starts from them.

The training questions, and those to validate on, are recorded in one file first; all that follows takes no LM call.
What the compiled program is worth is measured on questions that it was not fitted on: the validation questions, else by
cross-validation (thresholds) or on a quarter of the questions that is held out (a policy).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from ..core import InputError
from ..evaluation.question_digest import questions_digest
from ..evaluation.questions import Question
from ..evaluation.run_schema import DataHeader
from ..evaluation.statistics import Interval
from ..programs import Solver
from .calibration import Method, calibrate
from .compiled_calibration import as_probabilities, recalibrated
from .compiled_figures import Compiled, Measured, Metric, measure, value_of
from .compiled_manifest import ManifestPoint
from .compiled_recording import (
    Recorder,
    decided_by_settings,
    solver_with_thresholds,
    thresholds_of,
)
from .fitting import Fitted, fit_tau
from .policy_training import train_policy
from .references import always, never
from .rules import Rule, Tradeoff, WithinBudget
from .tree_files import Trees

FRONT = 9
"""Budgets of retrievals, from never to always, at which the front is told."""

_HELD_OUT = 4  # one question of so many is held out of a policy's training


def compile_recorded(
    program: Solver,
    train: Iterable[Question],
    recorder: Recorder,
    *,
    data: DataHeader,
    valid: Iterable[Question] = (),
    optimizer: Literal["tau", "policy", "calibration"] = "tau",
    rule: Rule | None = None,
    calibration: Method | None = None,
    metric: Metric = "em",
    folds: int = 5,
    seed: int = 0,
) -> Compiled:
    """Record a program's decisions on questions, and fit what it decides by.

    The LM and the adapter are those of ``dspy.settings``.

    Args:
        program: The program; it is not changed.
        train: The training questions.
        recorder: Where the decisions are recorded.
        data: Which training questions they are.
        valid: Questions to measure on; a policy's training also stops by them.
        optimizer: ``tau`` fits thresholds, ``policy`` trains a policy; ``calibration`` keeps the probabilities of a
            program with calibrated gates and fits these anew for another LM.
        rule: What to choose thresholds by; a policy takes a :class:`Tradeoff` only. By default that of .05 a retrieval.
        calibration: Of ``tau``: states the thresholds as probabilities, by calibrators that are fitted so, where that
            changes no recorded decision; of ``calibration``: another method than before.
        metric: The score.
        folds: Of the cross-validation, where there are no validation questions.
        seed: Of the folds, Optuna, and the questions held out.

    Raises:
        InputError: The program has no thresholds, questions to validate on are trained on, or there is nothing to fit.
        HopgateError: As :meth:`Recorder.record`.
    """
    solver_with_thresholds(program)
    rule = Tradeoff(0.05) if rule is None else rule
    train, valid = list(train), list(valid)
    if shared := {question.id for question in train} & {question.id for question in valid}:
        raise InputError(f"{len(shared)} of the validation questions are also trained on, such as {min(shared)!r}")
    asked = [*train, *valid]
    ids = tuple(question.id for question in asked)
    recorded = recorder.record(program, asked, replace(data, ids=ids, questions_sha256=questions_digest(asked)))
    trained = _of(recorded, train)
    if not trained.explored:
        raise InputError(f"{recorder.path}: none of the training questions could be recorded")
    if not any(tree.nodes for tree in trained.explored):
        raise InputError(
            f"{recorder.path}: no decision was recorded on {len(trained.explored):,} training questions: no answer at "
            "stake had a confidence, or each only repeated its question; name an LM that gives log-probabilities, or "
            "more questions, and another file"
        )
    held = _of(recorded, valid)
    how = _How(rule, metric, folds, seed, calibration)
    if optimizer == "calibration":
        compiled = recalibrated(program, trained, held, metric, calibration)
    else:
        compiled = (_with_policy if optimizer == "policy" else _with_thresholds)(program, trained, held, how)
    return replace(compiled, notes=(*compiled.notes, *_notes(trained, len(train))), stopped=recorded.stopped)


@dataclass(frozen=True, slots=True)
class _How:
    """How to fit; see :func:`compile_recorded`."""

    rule: Rule
    metric: Metric
    folds: int
    seed: int
    calibration: Method | None

    def folds_of(self, trees: Trees) -> int:
        """As many folds as there are questions, at most; none for one question."""
        return min(self.folds, len(trees.explored)) if len(trees.explored) > 1 else 0


def _with_thresholds(program: Solver, train: Trees, valid: Trees, how: _How) -> Compiled:
    fitted = _fitted(train, thresholds_of(program), how)
    notes = _unresolved(fitted)
    if fitted.kept_original:
        made: Solver = program.deepcopy()
        if how.calibration is not None:
            notes.append("the original is kept, so its thresholds are not stated as probabilities")
    else:
        made, solver = decided_by_settings(program, train)
        solver.settings.update(**fitted.settings)
        if how.calibration is not None:
            calibrators = calibrate(train, method=how.calibration)
            record = (*train.explored, *valid.explored)
            if left := as_probabilities(solver, fitted.thresholds, calibrators, record):
                notes.append(
                    f"{', '.join(left)}: decided by the threshold, which the calibrator cannot state as a probability "
                    "that decides the same"
                )
    value = value_of(made, train, how.metric)
    held, original, where = None, None, "no questions that it was not fitted on"
    if valid.explored:
        held, original = measure(made, valid, how.metric), measure(program, valid, how.metric)
        where = "the validation questions"
    elif fitted.held_out is not None and fitted.held_out_cost is not None:
        where = f"the training questions, {how.folds_of(train)}-fold cross-validation"
        n = fitted.held_out.n
        original = measure(program, train, how.metric)
        held = Measured(fitted.held_out, Interval(fitted.held_out_cost, None, None, n), n)
        held = original if fitted.kept_original else held
    point = fitted.point if value is None else value.point
    front = _front(train, how)
    return Compiled(made, fitted.settings, fitted.kept_original, where, held, original, point, front, tuple(notes))


def _fitted(trees: Trees, before: Mapping[str, float] | None, how: _How) -> Fitted:
    return fit_tau(
        trees, how.rule, original=before or {}, score=how.metric, folds=how.folds_of(trees), seed=how.seed
    )  # fmt: skip


def _with_policy(program: Solver, train: Trees, valid: Trees, how: _How) -> Compiled:
    rule = how.rule
    if not isinstance(rule, Tradeoff) or rule.cost != "retrievals":
        raise InputError("a policy is trained for a penalty on retrievals; give it a Tradeoff of them")
    fit, held = (train, valid) if valid.explored else _split(train, how.seed)
    fitted = _fitted(fit, thresholds_of(program), how)
    trained = train_policy(
        fit, penalty=rule.weight, score=how.metric, validation=held if held.explored else None,
        start=fitted.thresholds, seeds=range(how.seed, how.seed + 3),
    )  # fmt: skip
    notes = [*_unresolved(fitted), "the number of steps of training was chosen by the questions that it is measured on"]
    if trained.kept_start:
        notes.append("the policy gained nothing over thresholds, which it keeps")
    kept = trained.kept_start and fitted.kept_original
    if kept:
        made: Solver = program.deepcopy()
    else:
        made, solver = decided_by_settings(program, train)
        solver.settings.update(**fitted.settings)
        solver.gates.update(trained.gates)
    value = value_of(made, fit, how.metric)
    point = fitted.point if value is None else value.point
    there, original, where = None, None, "no questions that it was not fitted on"
    if held.explored:
        there, original = measure(made, held, how.metric), measure(program, held, how.metric)
        where = "the validation questions" if valid.explored else "training questions that were held out"
    front = _front(fit, how)
    return Compiled(made, fitted.settings, kept, where, there, original, point, front, tuple(notes))


def _of(trees: Trees, questions: Iterable[Question]) -> Trees:
    wanted = {question.id for question in questions}
    return replace(trees, trees=tuple(tree for tree in trees.trees if tree.id in wanted))


def _split(trees: Trees, seed: int) -> tuple[Trees, Trees]:
    """The trees to train a policy on, and a quarter of them that is held out if there are four or more."""
    explored = trees.explored
    order = np.random.default_rng(seed).permutation(len(explored)).tolist()
    held = {explored[place].id for place in order[: len(explored) // _HELD_OUT]}
    parts = ([tree for tree in explored if (tree.id in held) is kept] for kept in (False, True))
    fit, apart = (replace(trees, trees=tuple(part)) for part in parts)
    steps, others = ({node.step for tree in part.explored for node in tree.nodes} for part in (fit, apart))
    # What is decided on the questions held out alone could not be learned.
    return (fit, apart) if others <= steps else (trees, replace(trees, trees=()))


def _front(trees: Trees, how: _How) -> tuple[ManifestPoint, ...]:
    """The best thresholds within budgets from never to always, without those that another beats."""
    metric, seed = how.metric, how.seed
    ends = (never(trees, score=metric).retrievals, always(trees, score=metric).retrievals)
    found: dict[tuple[float, float], ManifestPoint] = {}
    for budget in np.linspace(min(ends), max(ends), FRONT).tolist():
        fitted = fit_tau(trees, WithinBudget(budget), original={}, score=metric, folds=0, trials=200, seed=seed)
        point = fitted.point
        told = ManifestPoint(point.score, point.retrievals, point.lm_calls, point.tokens, dict(fitted.settings))
        found[point.score, point.retrievals] = told
    points = sorted(found.values(), key=lambda point: (point.retrievals, -point.score))
    best, front = -math.inf, []
    for point in points:
        if point.score > best:
            best = point.score
            front.append(point)
    return tuple(front)


def _unresolved(fitted: Fitted) -> list[str]:
    if not fitted.unresolved:
        return []
    return [f"the threshold of {', '.join(fitted.unresolved)} lies in a gap within the noise of log-probabilities"]


def _notes(trees: Trees, n: int) -> list[str]:
    notes = []
    if len(trees.explored) < n:
        notes.append(f"{n - len(trees.explored):,} of {n:,} training questions failed or were not asked")
    inexact = sum(not tree.exact for tree in trees.explored)
    if inexact:
        notes.append(f"{inexact:,} of {len(trees.explored):,} questions were not explored to the end")
    return notes
