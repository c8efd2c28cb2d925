"""What a policy does on recorded trees: the probability of each leaf, expected values, and their gradient.

A leaf is reached with the product of the probabilities of the decisions on its path. Where a tree is complete, sums
over its leaves are exact expectations, so that the gradient of policy gradient methods (Williams 1992) need not be
sampled and has no variance for a baseline to reduce. Where it was not explored to the end, a decision that was explored
one way only is taken to go that way: probabilities are those of the explored leaves, and what is missing is told.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from .curve import Array, Boxes, Point, Score
from .policy import PolicyGate
from .tree_files import Trees
from .tree_schema import Tree

_LIKELY = 0.01


@dataclass(frozen=True, slots=True)
class PolicyValue:
    """What a policy gives on trees.

    Attributes:
        point: Means of the leaves that the policy leads to when it decides; where one was not explored, the explored
            leaf that shares most decisions with it from the root on, as for thresholds; ``nearest`` counts these.
        expected: Means where each decision is drawn with the policy's probability; ``nearest`` counts the questions of
            which unexplored leaves have a probability above .01.
        scores: Score of each question's leaf, shape [questions], in the order of the trees that did not fail.
        retrievals: Searches of each question's leaf.
        unexplored: Mean probability of leaves that were not explored, where decisions are drawn.
    """

    point: Point
    expected: Point
    scores: Array
    retrievals: Array
    unexplored: float


def evaluate_policy(trees: Trees | Iterable[Tree], gate: PolicyGate, *, score: Score = "em") -> PolicyValue:
    """Score and cost of a policy on recorded trees, without an LM call.

    Args:
        trees: Recorded trees.
        gate: The policy, which decides at all steps that were explored.
        score: As of :func:`hopgate.optimizers.evaluate_at`.

    Raises:
        InputError: There are no trees, or the policy was not trained for a step that was explored.
    """
    record = Decisions(Boxes(trees, score))
    return record.value(gate.logits(record.nodes))


class Decisions:
    """The decisions of many trees, flat, and the leaves that they lead to.

    Args:
        boxes: The trees with their leaves.

    Attributes:
        boxes: As given.
        nodes: The decisions of all trees.
        tree: Position of each decision's tree, shape [decisions].
        forks: Whether each decision was explored both ways.
    """

    def __init__(self, boxes: Boxes) -> None:
        self.boxes = boxes
        self.nodes = [node for tree in boxes.trees for node in tree.nodes]
        sizes = [len(tree.nodes) for tree in boxes.trees]
        self.tree = np.repeat(np.arange(len(sizes)), sizes)
        first = np.cumsum([0, *sizes])
        leaves = [(place, leaf) for place, tree in enumerate(boxes.trees) for leaf in tree.leaves]
        entries = [
            (row, first[place] + node, not kept) for row, (place, leaf) in enumerate(leaves) for node, kept in leaf.path
        ]
        self._row, self._node, gone = (
            (np.array(column, dtype=int) for column in zip(*entries, strict=True))
            if (entries)
            else (np.zeros(0, dtype=int),) * 3
        )
        self._gone = gone.astype(bool)
        n = len(self.nodes)
        ways = np.bincount(self._node[self._gone], minlength=n), np.bincount(self._node[~self._gone], minlength=n)
        self.forks = (ways[0] > 0) & (ways[1] > 0)
        self._fork = self.forks[self._node]

    def chances(self, logits: Array) -> Array:
        """The probability of each explored leaf, shape [leaves]; those of a tree sum to 1.

        Args:
            logits: Log-odds of going on at each decision, shape [decisions].
        """
        return np.exp(self._log_chances(logits, self._fork))

    def gradient(self, logits: Array, rewards: Array, entropy: float = 0.0) -> Array:
        """The derivative of the mean over questions of the expected reward, by the logits, shape [decisions].

        Args:
            logits: Log-odds of going on at each decision.
            rewards: Reward of each leaf.
            entropy: Weight of the entropy of each question's leaves, in nats, which is added to the reward.
        """
        from scipy.special import expit

        logs = self._log_chances(logits, self._fork)
        chances = np.exp(logs)
        # d/dp of p (r - entropy log p), times p; d log p / dz is 1 - P(on) where the path goes on, else -P(on).
        pull = chances * (rewards - entropy * (logs + 1.0))
        row, node, gone = self._row[self._fork], self._node[self._fork], self._gone[self._fork]
        return np.bincount(node, pull[row] * (gone - expit(logits)[node]), len(self.nodes)) / len(self.boxes.trees)

    def entropy(self, logits: Array) -> float:
        """Mean entropy of a question's leaves, in nats."""
        logs = self._log_chances(logits, self._fork)
        return float(-(np.exp(logs) * logs).sum() / len(self.boxes.trees))

    def rows(self, logits: Array) -> tuple[Array, int]:
        """The leaf of each tree that deciding leads to, shape [trees], and how many stand for one not explored."""
        other = (logits[self._node] >= 0) != self._gone
        n = len(self.boxes.tree)
        rows = np.flatnonzero(np.bincount(self._row[self._fork], other[self._fork], n) == 0)
        return rows, int((np.bincount(self._row, other, n)[rows] > 0).sum())

    def value(self, logits: Array) -> PolicyValue:
        """What a policy with these log-odds gives."""
        rows, nearest = self.rows(logits)
        chances, n = self.chances(logits), len(self.boxes.trees)
        everything = np.exp(self._log_chances(logits, np.ones(len(self._row), dtype=bool)))
        one_way = np.bincount(self.tree[~self.forks], minlength=n) > 0
        missing = np.where(one_way, np.clip(1.0 - np.bincount(self.boxes.tree, everything, n), 0.0, 1.0), 0.0)
        costs = {name: float((chances * column).sum() / n) for name, column in self.boxes.costs.items()}
        likely = int((missing > _LIKELY).sum())
        return PolicyValue(
            point=self.boxes.point(rows, nearest),
            expected=Point(float((chances * self.boxes.score).sum() / n), **costs, nearest=likely, n=n),
            scores=self.boxes.score[rows],
            retrievals=self.boxes.costs["retrievals"][rows],
            unexplored=float(missing.mean()),
        )

    def _log_chances(self, logits: Array, among: Array) -> Array:
        from scipy.special import log_expit

        taken = log_expit(np.where(self._gone, logits[self._node], -logits[self._node]))
        return np.bincount(self._row[among], taken[among], len(self.boxes.tree))
