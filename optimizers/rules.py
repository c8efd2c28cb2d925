"""Rules that choose thresholds by score and cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, get_args

import numpy as np

from ..core import InputError
from .curve import Array, Cost

_ALIKE = 1e-9


class Rule(Protocol):
    """Chooses among thresholds by what they score and cost.

    Attributes:
        cost: The cost that counts.
    """

    @property
    def cost(self) -> Cost:
        """The cost that counts."""
        ...

    def best(self, scores: Array, costs: Array) -> Array:
        """Which are equally the best, as a mask.

        Args:
            scores: Mean scores, any shape.
            costs: Mean costs a question, same shape.
        """
        ...

    def gains(self, score: float, cost: float, old_score: float, old_cost: float) -> bool:
        """Whether new thresholds are better than old ones, by estimates of both on questions that they were not
        fitted on."""
        ...


@dataclass(frozen=True, slots=True)
class Tradeoff:
    """The highest ``score - weight * cost``.

    Attributes:
        weight: What one unit of cost a question is worth in score; 0 or more.
        cost: The cost.

    Raises:
        InputError: The weight is negative or not finite, or there is no such cost.
    """

    weight: float
    cost: Cost = "retrievals"

    def __post_init__(self) -> None:
        _check(weight=self.weight)
        _check_cost(self.cost)

    def best(self, scores: Array, costs: Array) -> Array:
        """See :class:`Rule`."""
        values = scores - self.weight * costs
        return _cheapest(values >= values.max() - _ALIKE, costs)

    def gains(self, score: float, cost: float, old_score: float, old_cost: float) -> bool:
        """See :class:`Rule`."""
        return score - self.weight * cost > old_score - self.weight * old_cost + _ALIKE


@dataclass(frozen=True, slots=True)
class WithinBest:
    """The lowest cost with a score of at most so much below the best.

    Attributes:
        slack: How much, as a fraction: .02 for two points; 0 or more.
        cost: The cost.

    Raises:
        InputError: The slack is negative or not finite, or there is no such cost.
    """

    slack: float
    cost: Cost = "retrievals"

    def __post_init__(self) -> None:
        _check(slack=self.slack)
        _check_cost(self.cost)

    def best(self, scores: Array, costs: Array) -> Array:
        """See :class:`Rule`."""
        enough = _cheapest(scores >= scores.max() - self.slack - _ALIKE, costs)
        return enough & (scores >= scores[enough].max() - _ALIKE)

    def gains(self, score: float, cost: float, old_score: float, old_cost: float) -> bool:
        """See :class:`Rule`: a lower cost at a score that is near enough, or a score so much higher."""
        cheaper = cost < old_cost - _ALIKE and score >= old_score - self.slack - _ALIKE
        return cheaper or score > old_score + self.slack + _ALIKE


@dataclass(frozen=True, slots=True)
class WithinBudget:
    """The best score within a budget; where nothing is, the lowest cost.

    Attributes:
        budget: Cost a question, on average; 0 or more.
        cost: The cost.

    Raises:
        InputError: The budget is negative or not finite, or there is no such cost.
    """

    budget: float
    cost: Cost = "retrievals"

    def __post_init__(self) -> None:
        _check(budget=self.budget)
        _check_cost(self.cost)

    def best(self, scores: Array, costs: Array) -> Array:
        """See :class:`Rule`."""
        within = costs <= max(self.budget, float(costs.min())) + _ALIKE
        return _cheapest(within & (scores >= scores[within].max() - _ALIKE), costs)

    def gains(self, score: float, cost: float, old_score: float, old_cost: float) -> bool:
        """See :class:`Rule`. Thresholds that keep to a budget exceed it a little on other questions as often as not, so
        only the old ones are held to it."""
        if old_cost > self.budget + _ALIKE:
            return cost < old_cost - _ALIKE
        return score > old_score + _ALIKE


def check_rule(rule: object) -> None:
    """Refuse what is no :class:`Rule`, before anything is spent on what it should choose among.

    Raises:
        InputError: It is none; the message says how to write one.
    """
    if isinstance(rule, type) or not all(callable(getattr(rule, name, None)) for name in ("best", "gains")):
        number = isinstance(rule, int | float) and not isinstance(rule, bool)
        raise InputError(
            f"`rule` takes a rule such as Tradeoff({rule if number else 0.05!r}), WithinBest(0.02) or "
            f"WithinBudget(1.5), got {rule!r:.60}"
        )
    _check_cost(getattr(rule, "cost", None))


def _check_cost(cost: object) -> None:
    if cost not in get_args(Cost):
        raise InputError(f"the `cost` of a rule is one of {', '.join(get_args(Cost))}, got {cost!r:.60}")


def _cheapest(among: Array, costs: Array) -> Array:
    return among & (costs <= costs[among].min() + _ALIKE)


def _check(**values: float) -> None:
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < np.inf:
            raise InputError(f"`{name}` must be a number of 0 or more, got {value!r}")
