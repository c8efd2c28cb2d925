"""Score and cost at every threshold, exactly, from recorded decision trees and without an LM call.

Each leaf of a tree is reached for thresholds in a box: above one confidence and up to another, for each step. The boxes
of a tree do not overlap and leave nothing out. So a mean over questions is a step function of the thresholds, and it is
computed at all of them. Where a tree was not explored to the end, the thresholds of an unexplored leaf fall to the
explored one that shares most decisions with it, and such questions are counted.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from ..core import InputError
from ..evaluation.questions import Question
from ..evaluation.run_schema import QUESTION
from ..programs import Step
from .tree_files import Trees, trees_of
from .tree_schema import Leaf, Tree

Thresholds = Mapping[str, float]
"""Threshold on the mean log-probability at each step, in nats; at most 0."""

Cost = Literal["retrievals", "lm_calls", "tokens"]
Score = Literal["em", "f1"] | Callable[[Tree, Leaf], float]
"""What is averaged over questions: a recorded score, or one of your own."""

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class Point:
    """Means over questions.

    Attributes:
        score: The score.
        retrievals: Searches a question.
        lm_calls: LM calls a question.
        tokens: Tokens of prompts and completions a question.
        nearest: Questions whose leaf was not explored and stands for another.
        n: Questions.
    """

    score: float
    retrievals: float
    lm_calls: float
    tokens: float
    nearest: int
    n: int


@dataclass(frozen=True, slots=True)
class Curve:
    """Means over questions at every value of one threshold.

    Between two neighbouring ``edges`` nothing changes: the values at position i hold for thresholds above
    ``edges[i]`` up to ``edges[i + 1]``.

    Attributes:
        steps: The steps that the threshold is for.
        edges: From minus infinity to 0, ascending, shape [values + 1].
        score: Mean score, shape [values], as those that follow.
        retrievals: Searches a question.
        lm_calls: LM calls a question.
        tokens: Tokens a question.
        nearest: Questions whose leaf stands for one that was not explored.
        n: Questions.
    """

    steps: tuple[str, ...]
    edges: Array
    score: Array
    retrievals: Array
    lm_calls: Array
    tokens: Array
    nearest: Array
    n: int

    def at(self, tau: float) -> Point:
        """The values at a threshold.

        Raises:
            InputError: It is above 0, or no number.
        """
        if not tau <= 0:
            raise InputError(f"a threshold on log-probabilities is at most 0, got {tau!r}")
        place = int(np.searchsorted(self.edges[1:], tau, side="left"))
        score, retrievals, calls, tokens = (
            float(column[place]) for column in (self.score, self.retrievals, self.lm_calls, self.tokens)
        )
        return Point(score, retrievals, calls, tokens, int(self.nearest[place]), self.n)


class Boxes:
    """The leaves of many trees with the thresholds that lead to them.

    Args:
        trees: The trees; those of questions that failed are left out.
        score: What is averaged.

    Attributes:
        trees: The trees that take part.
        steps: The steps at which there was a decision.
        low: Thresholds lead to a leaf above these, shape [leaves, steps].
        high: And up to these.
        tree: Position of each leaf's tree, shape [leaves], as those that follow.
        costs: Cost of each leaf by name.
        score: Score of each leaf.

    Raises:
        InputError: There is no tree with leaves, two are of one question, or a score is no finite number.
    """

    def __init__(self, trees: Trees | Iterable[Tree], score: Score = "em") -> None:
        given = trees_of(trees)
        if not callable(score) and score not in ("em", "f1"):
            raise InputError(f"`score` is em, f1, or a function of a tree and a leaf, got {score!r:.60}")
        self.trees = tuple(tree for tree in given if tree.error is None)
        if not self.trees:
            raise InputError(
                f"there are no explored trees ({len(given)} questions, all failed)" if given else "there are no trees"
            )
        met = {node.step for tree in self.trees for node in tree.nodes}
        self.steps: tuple[str, ...] = tuple(step for step in get_args(Step) if step in met)
        leaves = [(place, leaf) for place, tree in enumerate(self.trees) for leaf in tree.leaves]
        self.low = np.full((len(leaves), len(self.steps)), -math.inf)
        self.high = np.zeros((len(leaves), len(self.steps)))
        self.tree = np.array([place for place, _ in leaves])
        self.score = np.array([_score(self.trees[place], leaf, score) for place, leaf in leaves])
        self.costs: dict[Cost, Array] = {
            "retrievals": np.array([leaf.retrievals for _, leaf in leaves], dtype=float),
            "lm_calls": np.array([leaf.lm_calls for _, leaf in leaves], dtype=float),
            "tokens": np.array([leaf.prompt_tokens + leaf.completion_tokens for _, leaf in leaves], dtype=float),
        }
        columns = {step: column for column, step in enumerate(self.steps)}
        first = 0
        for tree in self.trees:
            forks = _forks(tree)
            for row, leaf in enumerate(tree.leaves, first):
                for node, kept in leaf.path:
                    column, mean = columns[tree.nodes[node].step], tree.nodes[node].mean
                    if node not in forks:
                        continue
                    if kept:
                        self.high[row, column] = min(self.high[row, column], mean)
                    else:
                        self.low[row, column] = max(self.low[row, column], mean)
            first += len(tree.leaves)
        self._strict = self._strict_boxes()

    def _strict_boxes(self) -> tuple[Array, Array]:
        low, high = self.low.copy(), self.high.copy()
        columns = {step: column for column, step in enumerate(self.steps)}
        row = 0
        for tree in self.trees:
            for leaf in tree.leaves:
                for step, (above, up_to) in tree.intervals(leaf.path).items():
                    low[row, columns[step]], high[row, columns[step]] = above, up_to
                row += 1
        return low, high

    def rows(self, thresholds: Thresholds) -> tuple[Array, int]:
        """The leaf of each tree at thresholds, shape [trees], and how many stand for one that was not explored.

        Raises:
            InputError: A step has no threshold, or one above 0.
        """
        point = self.checked(thresholds)
        rows = np.flatnonzero(((self.low < point) & (point <= self.high)).all(axis=1))
        low, high = self._strict
        exact = ((low[rows] < point) & (point <= high[rows])).all(axis=1)
        return rows, int((~exact).sum())

    def checked(self, thresholds: Thresholds) -> Array:
        """Thresholds in the order of the steps, shape [steps]; raises as :meth:`rows`.

        Those of steps at which nothing was decided change nothing.
        """
        if absent := [step for step in self.steps if step not in thresholds]:
            raise InputError(f"a threshold is needed for each step that was explored; there is none for {absent[0]!r}")
        if unknown := [step for step in thresholds if step not in get_args(Step)]:
            raise InputError(f"there is no step {unknown[0]!r}; there are {', '.join(get_args(Step))}")
        for step, tau in thresholds.items():
            if not tau <= 0:
                raise InputError(f"the threshold for {step!r} must be at most 0, as log-probabilities are, got {tau!r}")
        # Below everything is the same as anything below all confidences.
        return np.maximum(np.array([thresholds[step] for step in self.steps], dtype=float), -sys.float_info.max)

    def edges(self, step: str) -> Array:
        """Where the threshold of a step changes something: minus infinity, the confidences, and 0; ascending."""
        means = {node.mean for tree in self.trees for node in tree.nodes if node.step == step and node.mean < 0}
        return np.array([-math.inf, *sorted(means), 0.0])

    def point(self, rows: Array, nearest: int) -> Point:
        """Means over the leaves of all trees."""
        retrievals, calls, tokens = (float(column[rows].mean()) for column in self.costs.values())
        return Point(float(self.score[rows].mean()), retrievals, calls, tokens, nearest, len(rows))


def evaluate_at(trees: Trees | Iterable[Tree], thresholds: Thresholds, *, score: Score = "em") -> Point:
    """Score and cost at thresholds.

    Args:
        trees: Recorded trees.
        thresholds: One for each step that was explored.
        score: ``em``, ``f1``, or a function of a tree and a leaf, see :func:`scored_by`.

    Raises:
        InputError: There are no trees, or a threshold is missing or above 0.
    """
    boxes = Boxes(trees, score)
    return boxes.point(*boxes.rows(thresholds))


def tau_curve(trees: Trees | Iterable[Tree], *, fixed: Thresholds | None = None, score: Score = "em") -> Curve:
    """Score and cost at every value of a threshold.

    Args:
        trees: Recorded trees.
        fixed: Thresholds of other steps. The steps that are not among them share the one that varies.
        score: As of :func:`evaluate_at`.

    Raises:
        InputError: There are no trees, all steps are fixed, or a threshold is above 0 or of no step that was explored.
    """
    boxes, fixed = Boxes(trees, score), dict(fixed or {})
    free = tuple(step for step in boxes.steps if step not in fixed)
    if not free:
        raise InputError("all steps are fixed: nothing is left to vary")
    boxes.checked({**dict.fromkeys(free, 0.0), **fixed})
    edges = np.unique(np.concatenate([boxes.edges(step) for step in free]))
    found = [boxes.point(*boxes.rows({**fixed, **dict.fromkeys(free, float(tau))})) for tau in edges[1:]]
    columns = {name: np.array([getattr(point, name) for point in found]) for name in _COLUMNS}
    return Curve(free, edges, **columns, n=len(boxes.trees))


def scored_by(metric: Callable[..., Any], questions: Iterable[Question]) -> Callable[[Tree, Leaf], float]:
    """A score of leaves by a DSPy metric.

    Args:
        metric: Called as ``metric(example, prediction)``, with a prediction that has the ``answer`` alone.
        questions: The questions of the trees.
    """
    import dspy

    by_id = {question.id: question for question in questions}

    def score(tree: Tree, leaf: Leaf) -> float:
        if tree.id not in by_id:
            raise InputError(f"no question has the id {tree.id!r}; give the questions that the trees were recorded on")
        question = by_id[tree.id]
        answer = leaf.answer.replace(QUESTION, question.question)
        return float(metric(question.to_example(), dspy.Prediction(answer=answer)))

    return score


_COLUMNS = ("score", "retrievals", "lm_calls", "tokens", "nearest")


def _score(tree: Tree, leaf: Leaf, score: Score) -> float:
    value = float(score(tree, leaf)) if callable(score) else float(getattr(leaf, score))
    if not math.isfinite(value):
        raise InputError(f"question {tree.id!r}: the score of an answer must be a finite number, got {value!r}")
    return value


def _forks(tree: Tree) -> set[int]:
    """The decisions that were explored both ways."""
    ways: dict[int, set[bool]] = {}
    for leaf in tree.leaves:
        for node, kept in leaf.path:
            ways.setdefault(node, set()).add(kept)
    return {node for node, seen in ways.items() if len(seen) == 2}
