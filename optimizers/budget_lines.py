"""What decisions can do at every budget of searches: the lines that a curve of thresholds is drawn between."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from ..core import InputError
from .curve import Boxes, Point, Score, Thresholds
from .references import always, never, oracle, random_at
from .tree_files import Trees
from .tree_schema import Tree

Line = tuple[tuple[float, float], ...]
"""Searches a question and mean score, by searches."""


@dataclass(frozen=True, slots=True)
class BudgetLines:
    """Lines and ends on the same questions.

    Attributes:
        oracle: The best that decisions could do within a budget of searches, knowing which answers are right.
        random: Going on at random, at every rate; expectations.
        always: Going on wherever thresholds can.
        never: Keeping every answer that can be kept.
    """

    oracle: Line
    random: Line
    always: Point
    never: Point


def budget_lines(
    trees: Trees | Iterable[Tree], *, fixed: Thresholds | None = None, score: Score = "em", points: int = 25
) -> BudgetLines:
    """The lines that a curve is measured against.

    Args:
        trees: Recorded trees.
        fixed: Thresholds of other steps, as of :func:`hopgate.optimizers.tau_curve`; at these, chance does not decide.
        score: As of :func:`hopgate.optimizers.evaluate_at`.
        points: Points of each line, evenly apart.

    Raises:
        InputError: As of :func:`hopgate.optimizers.tau_curve`, or there are fewer than two points.
    """
    if points < 2:
        raise InputError(f"`points` must be 2 or more, got {points!r}")
    given = trees if isinstance(trees, Trees) else tuple(trees)
    boxes, fixed = Boxes(given, score), dict(fixed or {})
    drawn = [step for step in boxes.steps if step not in fixed]
    searches = boxes.costs["retrievals"]
    least, most = (
        float(np.mean([end(searches[boxes.tree == place]) for place in range(len(boxes.trees))]))
        for end in (np.min, np.max)
    )

    def random(budget: float) -> tuple[float, float]:
        found = random_at(given, budget, steps=drawn, thresholds=fixed, score=score)
        return float(found.retrievals.mean()), float(found.score.mean())

    # What no rate gives is met by the nearest: keeping everything, and going on wherever it can.
    ends = random(least - 1), random(most + 1)
    inner = [random(float(budget)) for budget in np.linspace(ends[0][0], ends[1][0], points)[1:-1]]
    budgets = [float(budget) for budget in np.linspace(least, most, points)]
    return BudgetLines(
        oracle=tuple((budget, oracle(given, budget, score=score).score) for budget in dict.fromkeys(budgets)),
        random=tuple(sorted({*ends, *inner})),
        always=always(given, score=score),
        never=never(given, score=score),
    )
