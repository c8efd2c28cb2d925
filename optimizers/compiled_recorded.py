"""Compiling a program on recorded decision trees: thresholds, or a policy that starts from them.

The training questions, and those to validate on, are recorded in one file first; all that follows takes no LM call.
What the compiled program is worth is measured on questions that it was not fitted on: the validation questions, else by
cross-validation (thresholds) or on a quarter of the questions that is held out (a policy).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np

from ..core import InputError
from ..evaluation.questions import Question
from ..evaluation.run_schema import DataHeader
from ..evaluation.statistics import Interval, mean_interval
from ..programs import ActiveQA, Solver
from .compiled_manifest import ManifestPoint
from .compiled_recording import Recorder, solver_with_thresholds, thresholds_of
from .curve import Array, Boxes, Point
from .fitting import Fitted, fit_tau
from .policy_training import train_policy
from .policy_trees import evaluate_policy
from .references import always, never
from .rules import Rule, Tradeoff, WithinBudget
from .tree_files import Trees

FRONT = 9
"""Budgets of retrievals, from never to always, at which the front is told."""

_HELD_OUT = 4  # one question of so many is held out of a policy's training
Metric = Literal["em", "f1"]


@dataclass(frozen=True, slots=True)
class Measured:
    """What a program does on some questions.

    Attributes:
        score: Mean score with its bootstrap interval.
        retrievals: Searches a question likewise.
        n: Questions.
    """

    score: Interval
    retrievals: Interval
    n: int


@dataclass(frozen=True, slots=True)
class Compiled:
    """A compiled program, and what it is worth.

    Attributes:
        program: The program, a copy of the one that was given.
        settings: The thresholds that it has now, and what else was chosen for it.
        kept_original: Whether nothing was gained, so that the original is kept.
        measured_on: Which questions the next two are from.
        held_out: What the compiled program does on questions that it was not fitted on; ``None`` if there are none.
        original: What the original one does there, or on ``original_on``.
        train: What the compiled one does on the training questions, which flatters it.
        front: What else thresholds could do, on the training questions.
        notes: What limits these figures, for people.
        stopped: Why recording ended early, if it did.
        original_on: Which questions ``original`` is from, if they are others.
    """

    program: Solver
    settings: dict[str, Any]
    kept_original: bool
    measured_on: str
    held_out: Measured | None
    original: Measured | None
    train: Point
    front: tuple[ManifestPoint, ...]
    notes: tuple[str, ...] = ()
    stopped: str | None = None
    original_on: str | None = None

    def result(self) -> dict[str, Any]:
        """The figures as a JSON object."""
        named = ("settings", "kept_original", "measured_on", "original_on", "notes", "stopped")
        figures = {name: getattr(self, name) for name in named} | {"notes": list(self.notes)}
        for name in ("held_out", "original", "train"):
            value = getattr(self, name)
            figures[name] = None if value is None else asdict(value)
        return figures


def compile_recorded(
    program: Solver,
    train: Iterable[Question],
    recorder: Recorder,
    *,
    data: DataHeader,
    valid: Iterable[Question] = (),
    optimizer: Literal["tau", "policy"] = "tau",
    rule: Rule | None = None,
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
        optimizer: ``tau`` fits thresholds, ``policy`` trains a policy.
        rule: What to choose thresholds by; a policy takes a :class:`Tradeoff` only. By default that of .05 a retrieval.
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
    recorded = recorder.record(program, asked, replace(data, ids=ids, questions_sha256=None))
    trained = _of(recorded, train)
    if not trained.explored:
        raise InputError(f"{recorder.path}: none of the training questions could be recorded")
    held = _of(recorded, valid)
    make = _with_policy if optimizer == "policy" else _with_thresholds
    compiled = make(program, trained, held, rule, metric, folds, seed)
    return replace(compiled, notes=(*compiled.notes, *_notes(trained, len(train))), stopped=recorded.stopped)


def _with_thresholds(
    program: Solver, train: Trees, valid: Trees, rule: Rule, metric: Metric, folds: int, seed: int
) -> Compiled:
    before = thresholds_of(program)
    folds = min(folds, len(train.explored)) if len(train.explored) > 1 else 0
    fitted = fit_tau(train, rule, original=before, score=metric, folds=folds, seed=seed)
    made, solver = _decided_by_settings(program, train)
    solver.settings.update(**fitted.settings)
    held, original, where = None, None, "no questions that it was not fitted on"
    if valid.explored:
        after = {**before, **fitted.thresholds}
        held, original = (_measured(*_at(valid, thresholds, metric)) for thresholds in (after, before))
        where = "the validation questions"
    elif fitted.held_out is not None and fitted.held_out_cost is not None:
        where = f"the training questions, {folds}-fold cross-validation"
        if fitted.kept_original:
            held = original = _measured(*_at(train, before, metric))
        else:
            cost = Interval(fitted.held_out_cost, None, None, fitted.held_out.n)
            held, original = Measured(fitted.held_out, cost, fitted.held_out.n), _measured(*_at(train, before, metric))
    notes = _unresolved(fitted)
    front = _front(train, metric, seed)
    return Compiled(
        made, fitted.settings, fitted.kept_original, where, held, original, fitted.point, front, tuple(notes)
    )


def _with_policy(
    program: Solver, train: Trees, valid: Trees, rule: Rule, metric: Metric, folds: int, seed: int
) -> Compiled:
    if not isinstance(rule, Tradeoff) or rule.cost != "retrievals":
        raise InputError("a policy is trained for a penalty on retrievals; give it a Tradeoff of them")
    fit, held = (train, valid) if valid.explored else _split(train, seed)
    before = thresholds_of(program)
    folds = min(folds, len(fit.explored)) if len(fit.explored) > 1 else 0
    fitted = fit_tau(fit, rule, original=before, score=metric, folds=folds, seed=seed)
    trained = train_policy(
        fit, penalty=rule.weight, score=metric, validation=held if held.explored else None, start=fitted.thresholds,
        seeds=range(seed, seed + 3),
    )  # fmt: skip
    made, solver = _decided_by_settings(program, train)
    solver.settings.update(**fitted.settings)
    solver.gates.update(trained.gates)
    value = evaluate_policy(fit, trained.gate, score=metric)
    measured, original, where = None, None, "no questions that it was not fitted on"
    if held.explored:
        found = evaluate_policy(held, trained.gate, score=metric)
        measured, original = _measured(found.scores, found.retrievals), _measured(*_at(held, before, metric))
        where = "the validation questions" if valid.explored else "training questions that were held out"
    notes = [*_unresolved(fitted), "the number of steps of training was chosen by the questions that it is measured on"]
    if trained.kept_start:
        notes.append("the policy gained nothing over thresholds, which it keeps")
    kept = trained.kept_start and fitted.kept_original
    front = _front(fit, metric, seed)
    return Compiled(made, fitted.settings, kept, where, measured, original, value.point, front, tuple(notes))


def _decided_by_settings(program: Solver, trees: Trees) -> tuple[Solver, ActiveQA]:
    """A copy of a program in which settings decide at the steps that were explored, and the solver with them."""
    made: Solver = program.deepcopy()
    solver = solver_with_thresholds(made)
    for step in trees.header.steps:
        solver.gates.pop(step, None)
    if "hop" in trees.header.steps:
        solver.gate = None
    return made, solver


def _at(trees: Trees, thresholds: Mapping[str, float], metric: Metric) -> tuple[Array, Array]:
    """Score and searches of each question at thresholds."""
    boxes = Boxes(trees, metric)
    rows, _ = boxes.rows({step: thresholds[step] for step in boxes.steps})
    return boxes.score[rows], boxes.costs["retrievals"][rows]


def _measured(scores: Array, retrievals: Array) -> Measured:
    return Measured(mean_interval(scores.tolist()), mean_interval(retrievals.tolist()), len(scores))


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
    return fit, apart


def _front(trees: Trees, metric: Metric, seed: int) -> tuple[ManifestPoint, ...]:
    """The best thresholds within budgets from never to always, without those that another beats."""
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
