"""Thresholds of a candidate, solved on its record: the whole front of score against cost, and its place in a race."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from ..core import InputError
from ..evaluation.statistics import Interval, mean_interval
from .curve import Array, Boxes, Cost, Point, Score, Thresholds
from .fitting import SETTING_OF, fit_tau
from .racing import Standing
from .rules import Rule, WithinBudget
from .tree_schema import Tree

T = TypeVar("T")

_TRIALS = 100
"""Of Optuna, where thresholds are too many to compare all."""

UNLIMITED = sys.float_info.max
"""A budget that nothing exceeds."""


@dataclass(frozen=True, slots=True)
class Solved:
    """Thresholds and what they do.

    Attributes:
        thresholds: By step; empty for programs without decisions.
        point: Means on the questions that they were fitted on.
        interval: Bootstrap interval of its score.
        held_out: Mean score under thresholds fitted on other questions.
        held_out_cost: Mean cost likewise, in the unit of the rule.
    """

    thresholds: dict[str, float]
    point: Point
    interval: Interval
    held_out: float
    held_out_cost: float


class Record:
    """The trees of a candidate on the racing questions, in their order.

    Args:
        trees: One a question; none failed.
        original: Thresholds that the program has.
        score: What is averaged.
    """

    def __init__(self, trees: Sequence[Tree], original: Thresholds, score: Score) -> None:
        self.trees = tuple(trees)
        self._score: Score = score
        self.boxes = Boxes(self.trees, score)
        self.original = {step: original[step] for step in self.boxes.steps}
        self.decides = any(tree.nodes for tree in self.trees)

    def at(self, thresholds: Thresholds) -> Solved:
        """What thresholds do; those of steps that were not met do not matter."""
        chosen = {step: thresholds.get(step, self.original[step]) for step in self.boxes.steps}
        rows, nearest = self.boxes.rows(chosen)
        point = self.boxes.point(rows, nearest)
        interval = mean_interval(self.boxes.score[rows].tolist())
        return Solved(chosen, point, interval, point.score, point.retrievals)

    def fit(self, rule: Rule, *, seed: int) -> Solved:
        """The thresholds that a rule chooses; the original ones where others gain nothing on other questions."""
        if not self.decides:
            found = self.at(self.original)
            return Solved({}, found.point, found.interval, found.point.score, float(getattr(found.point, rule.cost)))
        fitted = fit_tau(self.trees, rule, original=self.original, score=self._score, seed=seed, trials=_TRIALS)
        found = self.at(fitted.thresholds)
        if fitted.kept_original or fitted.held_out is None or fitted.held_out.value is None:
            score, cost = found.point.score, float(getattr(found.point, rule.cost))
        else:
            score, cost = fitted.held_out.value, fitted.held_out_cost or 0.0
        return Solved(found.thresholds, found.point, found.interval, score, cost)

    def front(self, cost: Cost, *, points: int = 12) -> tuple[Solved, ...]:
        """The best thresholds for each of some budgets from the cheapest to the dearest, dominated ones left out."""
        if not self.decides:
            return (self.at(self.original),)
        found = [self._within(self.trees, budget, cost) for budget in (*self.budgets(cost, points=points), UNLIMITED)]
        solved = {tuple(sorted(thresholds.items())): thresholds for thresholds in found}
        return undominated([self.at(thresholds) for thresholds in solved.values()], _objectives)

    def budgets(self, cost: Cost, *, points: int = 4) -> tuple[float, ...]:
        """Budgets from the cheapest that thresholds can do to where they always go on, evenly apart."""
        rows, nearest = self.boxes.rows(dict.fromkeys(self.boxes.steps, 0.0))
        dearest = float(getattr(self.boxes.point(rows, nearest), cost))
        cheapest = self._cheapest(cost)
        if dearest <= cheapest:
            return (cheapest,)
        return tuple(float(budget) for budget in np.linspace(cheapest, dearest, points))

    def standing(self, budgets: Sequence[float], cost: Cost, *, folds: int = 5, seed: int = 0) -> Standing:
        """What the candidate does at budgets, each question under thresholds that were fitted on others.

        Args:
            budgets: Mean cost a question; besides these there is one without a limit.
            cost: The cost.
            folds: Folds of the cross-validation.
            seed: Of the folds.
        """
        limits = (*budgets, UNLIMITED)
        cheapest = self._cheapest(cost)
        reached = np.array([cheapest <= budget + 1e-9 for budget in limits])
        scores = np.stack([self._held_out(budget, cost, folds, seed) for budget in limits])
        return Standing(scores, reached)

    def _cheapest(self, cost: Cost) -> float:
        thresholds = self._within(self.trees, 0.0, cost)
        return float(getattr(self.at(thresholds).point, cost))

    def _held_out(self, budget: float, cost: Cost, folds: int, seed: int) -> Array:
        n = len(self.trees)
        scores = np.zeros(n)
        shuffled = np.random.default_rng(seed).permutation(n)
        for fold in np.array_split(shuffled, min(folds, n) if n > 1 else 1):
            others = [self.trees[place] for place in range(n) if place not in set(fold.tolist())]
            thresholds = {**self.original, **self._within(others or self.trees, budget, cost)}
            rows, _ = self.boxes.rows({step: thresholds[step] for step in self.boxes.steps})
            scores[fold] = self.boxes.score[rows][fold]
        return scores

    def _within(self, trees: Sequence[Tree], budget: float, cost: Cost) -> dict[str, float]:
        """The best thresholds within a budget; the original ones where nothing was decided."""
        if not any(tree.nodes for tree in trees):
            return dict(self.original)
        rule = WithinBudget(budget, cost)
        return fit_tau(trees, rule, original={}, score=self._score, folds=0, trials=_TRIALS).thresholds


def undominated(items: Sequence[T], objectives: Callable[[T], Sequence[float]]) -> tuple[T, ...]:
    """Those that no other one beats or equals in all objectives; of equal ones the first.

    Args:
        items: What is compared.
        objectives: Of each, more being better.
    """
    values = np.array([objectives(item) for item in items], dtype=float)
    kept: list[T] = []
    for place, own in enumerate(values):
        at_least = (values >= own).all(axis=1)
        better = at_least & (values > own).any(axis=1)
        if not better.any() and not at_least[:place].any():
            kept.append(items[place])
    return tuple(kept)


def _objectives(solved: Solved) -> tuple[float, ...]:
    point = solved.point
    return point.score, -point.retrievals, -point.tokens


def thresholds_of(settings: object, steps: Sequence[str]) -> dict[str, float]:
    """The thresholds that settings hold for steps.

    Raises:
        InputError: A step has none there.
    """
    found = {}
    for step in steps:
        value = getattr(settings, SETTING_OF.get(step, ""), None)
        if value is None:
            raise InputError(f"the settings hold no threshold for the step {step!r}")
        found[step] = float(value)
    return found
