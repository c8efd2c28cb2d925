"""What thresholds are measured against, from the same record: always, never, an oracle, and chance at equal retrievals.

*Always* and *never* are the two ends of all thresholds. The *oracle* knows which answers are right: of each question's
explored leaves it may take any, and takes those that give the best mean score within a budget of retrievals (solved
exactly as a knapsack). *Random* goes on with one probability at each decision of some steps, whatever the confidence;
its values are expectations over the tree and not drawn. Where a tree was not explored to the end, the probability of
what is missing falls to the branch beside it, and the mean of it is told.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..core import InputError
from .curve import Array, Boxes, Point, Score, Thresholds
from .tree_files import Trees
from .tree_schema import Node, Tree


@dataclass(frozen=True, slots=True)
class Chance:
    """What going on at random gives, question by question.

    Attributes:
        rate: Probability to go on.
        score: Expected score of each question, shape [questions].
        retrievals: Expected searches of each question.
        unexplored: Mean probability of decisions whose outcome was not explored.
    """

    rate: float
    score: Array
    retrievals: Array
    unexplored: float


def leaf_probabilities(tree: Tree, going_on: Callable[[Node], float]) -> tuple[Array, float]:
    """How likely each leaf is under a policy.

    Args:
        tree: The tree.
        going_on: Probability to go on at a decision.

    Returns:
        Probabilities of the leaves in their order, and the probability of decisions whose outcome was not explored,
        which falls to the branch beside it.
    """
    chances = np.zeros(len(tree.leaves))
    exact = 0.0

    def descend(places: list[int], depth: int, chance: float, explored: float) -> None:
        nonlocal exact
        path = tree.leaves[places[0]].path
        if len(path) <= depth:
            chances[places[0]] = chance
            exact += explored
            return
        on = going_on(tree.nodes[path[depth][0]])
        kept = [place for place in places if tree.leaves[place].path[depth][1]]
        gone = [place for place in places if not tree.leaves[place].path[depth][1]]
        for inside, share in ((kept, 1 - on), (gone, on)):
            if inside:
                descend(inside, depth + 1, chance * share if kept and gone else chance, explored * share)

    descend(list(range(len(tree.leaves))), 0, 1.0, 1.0)
    return chances, max(0.0, 1.0 - exact)  # a sum of products may be a little above 1


def going_on_at(rate: float, steps: Iterable[str], thresholds: Thresholds) -> Callable[[Node], float]:
    """The policy that goes on with a probability at some steps, and by thresholds at the others."""
    drawn = set(steps)
    return lambda node: rate if node.step in drawn else float(node.mean < thresholds[node.step])


def random_at(
    trees: Trees | Iterable[Tree],
    retrievals: float,
    *,
    steps: Iterable[str] | None = None,
    thresholds: Thresholds | None = None,
    score: Score = "em",
) -> Chance:
    """Going on at random, at the rate that gives so many retrievals a question.

    Args:
        trees: Recorded trees.
        retrievals: Searches a question to match; where no rate gives them, the nearest one is taken.
        steps: The steps at which chance decides; by default those without a threshold.
        thresholds: What decides at the others.
        score: As of :func:`hopgate.optimizers.evaluate_at`.

    Raises:
        InputError: There are no trees, a step that chance does not decide at has no threshold, or ``retrievals`` is not
            finite.
    """
    if not math.isfinite(retrievals):
        raise InputError(f"`retrievals` is a number of searches a question, not {retrievals!r}")
    boxes, fixed = Boxes(trees, score), dict(thresholds or {})
    drawn = set(boxes.steps) - set(fixed) if steps is None else set(steps)
    boxes.checked({**fixed, **dict.fromkeys(drawn & set(boxes.steps), 0.0)})
    searches = boxes.costs["retrievals"]

    def at(rate: float) -> Chance:
        policy = going_on_at(rate, drawn, fixed)
        found = [leaf_probabilities(tree, policy) for tree in boxes.trees]
        chances = np.concatenate([chances for chances, _ in found])
        n = len(boxes.trees)
        score, taken = (np.bincount(boxes.tree, chances * column, minlength=n) for column in (boxes.score, searches))
        return Chance(rate, score, taken, float(np.mean([missing for _, missing in found])))

    def excess(rate: float) -> float:
        return float(at(rate).retrievals.mean()) - retrievals

    ends = (excess(0.0), excess(1.0))
    if ends[0] * ends[1] >= 0:
        return at(0.0 if abs(ends[0]) <= abs(ends[1]) else 1.0)
    from scipy.optimize import brentq

    rate: Any = brentq(excess, 0.0, 1.0, xtol=1e-9)
    return at(float(rate))


def always(trees: Trees | Iterable[Tree], *, score: Score = "em") -> Point:
    """Going on at every decision that a threshold can do so at; raises as :func:`hopgate.optimizers.evaluate_at`."""
    boxes = Boxes(trees, score)
    return boxes.point(*boxes.rows(dict.fromkeys(boxes.steps, 0.0)))


def never(trees: Trees | Iterable[Tree], *, score: Score = "em") -> Point:
    """Keeping every answer that can be kept; raises as :func:`hopgate.optimizers.evaluate_at`."""
    boxes = Boxes(trees, score)
    return boxes.point(*boxes.rows(dict.fromkeys(boxes.steps, -math.inf)))


def oracle(trees: Trees | Iterable[Tree], retrievals: float = math.inf, *, score: Score = "em") -> Point:
    """The best that decisions can do within a budget, knowing which answers are right.

    Args:
        trees: Recorded trees.
        retrievals: Budget of searches a question, on average over the questions.
        score: As of :func:`hopgate.optimizers.evaluate_at`.

    Returns:
        The means; of choices that score alike, one with the fewest searches. Where trees are not complete, further
        leaves could be better; ``nearest`` counts them.

    Raises:
        InputError: There are no trees, or the budget is below what the cheapest leaves take.
    """
    boxes = Boxes(trees, score)
    n = len(boxes.trees)
    searches = boxes.costs["retrievals"].astype(int)
    most = int(sum(searches[boxes.tree == place].max() for place in range(n)))
    limit = most if not math.isfinite(retrievals) else min(most, math.floor(retrievals * n + 1e-9))
    if limit < sum(searches[boxes.tree == place].min() for place in range(n)):
        raise InputError(f"no decisions take only {retrievals!r} searches a question; give a larger budget")
    # best[b]: the best sum of scores of the questions so far with b searches in all.
    best = np.full(limit + 1, -math.inf)
    best[0] = 0.0
    chosen: list[Array] = []
    for place in range(n):
        rows = np.flatnonzero(boxes.tree == place)
        sums = np.full((len(rows), limit + 1), -math.inf)
        for line, row in enumerate(rows):
            taken = searches[row]
            if taken <= limit:
                sums[line, taken:] = best[: limit + 1 - taken] + boxes.score[row]
        chosen.append(rows[sums.argmax(axis=0)])
        best = sums.max(axis=0)
    left = int(np.flatnonzero(best >= best.max() - 1e-9)[0])
    picked: list[int] = []
    for options in reversed(chosen):
        picked.append(int(options[left]))
        left -= int(searches[picked[-1]])
    open_ended = sum(not tree.complete for tree in boxes.trees)
    return boxes.point(np.array(picked[::-1]), open_ended)
