"""Fitting thresholds on recorded decision trees, without an LM call.

Score and cost change at recorded confidences only, so the thresholds of one to three steps are solved exactly: all that
differ in what they do are compared. Where these are too many, Optuna searches them (a seeded TPE sampler; Bergstra et
al. 2011) and what it finds is improved one threshold at a time. A chosen threshold is put into the middle of the gap in
which nothing changes; log-probabilities repeat to about .01, so a gap narrower than .02 is reported as not resolved.

What fitted thresholds are worth is estimated on questions that they were not fitted on, by k-fold cross-validation (all
questions are used for the thresholds that are returned). Where that shows no gain, the original ones are kept.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ..core import InputError
from ..evaluation.statistics import Interval, mean_interval
from .curve import Array, Boxes, Point, Score, Thresholds
from .rules import Rule, check_rule
from .tree_files import Trees
from .tree_schema import Leaf, Node, Tree

RESOLVED = 0.02
"""Nats; a narrower gap between confidences is within the noise of recomputing them."""

SETTING_OF: Mapping[str, str] = {
    "memory": "tau_memory",
    "grounded": "tau_grounded",
    "hop": "tau",
    "final": "tau_final",
}
"""The setting that holds each step's threshold."""

_CELLS = 4_000_000
"""Combinations of thresholds that are compared one and all."""


@dataclass(frozen=True, slots=True)
class Fitted:
    """Thresholds, and what they do.

    Attributes:
        thresholds: The thresholds, each in the middle of its gap; the original ones if those were kept. A step at which
            nothing was decided has none, unless it was fixed.
        gaps: Lower and upper end of each gap, in nats.
        unresolved: Steps whose gap is narrower than :data:`RESOLVED`.
        point: Means on the questions that they were fitted on, which flatters them.
        held_out: Mean score of each fold's questions under thresholds fitted on the others, with a bootstrap interval;
            ``None`` if there was no cross-validation.
        held_out_cost: Mean cost likewise.
        original: Means of the original thresholds; ``None`` if there were none.
        kept_original: Whether the original thresholds were kept, as nothing was gained.
        exact: Whether every tree was explored as far as thresholds lead.
    """

    thresholds: dict[str, float]
    gaps: dict[str, tuple[float, float]]
    unresolved: tuple[str, ...]
    point: Point
    held_out: Interval | None
    held_out_cost: float | None
    original: Point | None
    kept_original: bool
    exact: bool

    @property
    def settings(self) -> dict[str, float]:
        """The thresholds as a program's settings take them: ``program.settings.update(**fitted.settings)``."""
        return {SETTING_OF[step]: tau for step, tau in self.thresholds.items()}

    def to_dict(self) -> dict[str, Any]:
        """A JSON object; an open end of a gap is ``None``."""
        record = asdict(self)
        record["gaps"] = {
            step: [end if math.isfinite(end) else None for end in ends] for step, ends in self.gaps.items()
        }
        return record


def fit_tau(
    trees: Trees | Iterable[Tree],
    rule: Rule,
    *,
    original: Thresholds | None = None,
    fixed: Thresholds | None = None,
    score: Score = "em",
    folds: int = 5,
    trials: int = 500,
    seed: int = 0,
) -> Fitted:
    """Choose thresholds by a rule.

    Args:
        trees: Recorded trees.
        rule: :class:`Tradeoff`, :class:`WithinBest` or :class:`WithinBudget`.
        original: The thresholds to beat; by default those that the trees' program had. If empty, there are none.
        fixed: Thresholds of steps that are not to be fitted.
        score: As of :func:`hopgate.optimizers.evaluate_at`.
        folds: Folds of the cross-validation; with 0, or fewer than two questions, there is none and nothing is kept.
        trials: Trials of Optuna, where the combinations are too many to compare.
        seed: Of the folds and of Optuna.

    Raises:
        InputError: There are no trees, two are of one question, the rule is none, nothing is left to fit, no decision
            was recorded, or an argument is out of range.
    """
    for name, value, least in (("folds", folds, 0), ("trials", trials, 1)):
        if isinstance(value, bool) or not isinstance(value, int) or value < least or (name == "folds" and value == 1):
            raise InputError(f"`{name}` must be a whole number of at least {max(least, 2)}, got {value!r}")
    check_rule(rule)
    boxes, fixed = Boxes(trees, score), dict(fixed or {})
    if original is None and isinstance(trees, Trees):
        original = _of_the_program(trees, boxes.steps)
    if not any(tree.nodes for tree in boxes.trees):
        raise InputError("no decision was recorded: no answer at stake had a confidence that a threshold could keep")
    search = _Search(boxes, rule, fixed, trials, seed)
    everything = np.arange(len(boxes.trees))
    thresholds, gaps = search.best(everything)
    before = {**original, **fixed} if original else None
    old = None if before is None else boxes.point(*boxes.rows(before))
    held_out, held_cost, kept = None, None, False
    if folds and len(boxes.trees) >= 2:
        scores, costs = search.held_out(min(folds, len(boxes.trees)))
        held_out, held_cost = mean_interval(scores.tolist()), float(costs.mean())
        if before is not None and old is not None:
            kept = not rule.gains(float(scores.mean()), held_cost, old.score, float(getattr(old, rule.cost)))
            if kept:
                thresholds, gaps = {step: float(before[step]) for step in boxes.steps}, search.gaps_at(before)
    return Fitted(
        thresholds=thresholds,
        gaps=gaps,
        unresolved=tuple(step for step, (low, high) in gaps.items() if high - low < RESOLVED),
        point=boxes.point(*boxes.rows(thresholds)),
        held_out=held_out,
        held_out_cost=held_cost,
        original=old,
        kept_original=kept,
        exact=all(tree.exact for tree in boxes.trees),
    )


def drafts_as_trees(confidences: Sequence[float | None], right: Sequence[bool]) -> tuple[Tree, ...]:
    """Labelled drafts as trees of one decision each, where no trees of a program were recorded.

    Searching is taken to give the right answer at the cost of one retrieval. With ``Tradeoff(0.5)`` a threshold then
    keeps right drafts and leaves wrong ones, both counting alike; a higher weight searches less.

    Args:
        confidences: Mean log-probability of each draft in nats; ``None`` for a draft that no threshold may keep.
        right: Whether each draft is right.

    Raises:
        InputError: There are no drafts, the two lists differ in length, or a confidence is positive.

    Example:
        >>> fit_tau(drafts_as_trees([-0.1, -0.2, -0.9, None], [True, True, False, False]), Tradeoff(0.5)).thresholds
        {'hop': -0.55}
    """
    if len(confidences) != len(right) or not confidences:
        raise InputError(f"fitting needs as many labels as drafts, and some: {len(confidences)} and {len(right)}")
    if any(value is not None and not value <= 0 for value in confidences):
        raise InputError("confidences are log-probabilities, at most 0")
    trees = []
    for number, (mean, correct) in enumerate(zip(confidences, right, strict=True)):
        counts = dict.fromkeys(
            ("lm_calls", "prompt_tokens", "completion_tokens", "passages_read", "new_calls", "new_retrievals"), 0
        )
        path = () if mean is None else ((0, False),)
        searched = Leaf(path=path, answer="", em=True, f1=1.0, retrievals=1, **counts)
        kept = Leaf(path=((0, True),), answer="", em=bool(correct), f1=float(correct), retrievals=0, **counts)
        nodes = () if mean is None else (Node("hop", 0, "", float(mean), right=bool(correct)),)
        leaves = (searched,) if mean is None else (kept, searched)
        trees.append(Tree(str(number), nodes, leaves, exact=True, complete=True))
    return tuple(trees)


class _Search:
    """All thresholds of the steps that are to be fitted, as cells between recorded confidences."""

    def __init__(self, boxes: Boxes, rule: Rule, fixed: dict[str, float], trials: int, seed: int) -> None:
        self.boxes, self.rule, self.fixed = boxes, rule, fixed
        self._trials, self._seed = trials, seed
        self.free = tuple(step for step in boxes.steps if step not in fixed)
        if not self.free:
            raise InputError("all steps are fixed: nothing is left to fit")
        point = boxes.checked({**dict.fromkeys(self.free, 0.0), **fixed})
        self.edges = [boxes.edges(step) for step in self.free]
        self.shape = tuple(len(edges) - 1 for edges in self.edges)
        columns = [boxes.steps.index(step) for step in self.free]
        others = [column for column in range(len(boxes.steps)) if column not in columns]
        # The rows that the fixed thresholds allow, and the cells of each of them: from the first up to before the last.
        inside = (boxes.low[:, others] < point[others]) & (point[others] <= boxes.high[:, others])
        self.rows = np.flatnonzero(inside.all(axis=1) & (boxes.low < boxes.high)[:, columns].all(axis=1))
        pairs = list(zip(columns, self.edges, strict=True))
        self.first = np.stack([np.searchsorted(edges, boxes.low[self.rows, c]) for c, edges in pairs], axis=1)
        self.last = np.stack([np.searchsorted(edges, boxes.high[self.rows, c]) for c, edges in pairs], axis=1)

    def best(self, trees: Array) -> tuple[dict[str, float], dict[str, tuple[float, float]]]:
        """The rule's thresholds on some of the trees, and their gaps."""
        rows = np.isin(self.boxes.tree[self.rows], trees)
        cell = (
            self._exhaustive(rows, len(trees)) if math.prod(self.shape) <= _CELLS else self._sampled(rows, len(trees))
        )
        return self._middle(cell, rows)

    def held_out(self, folds: int) -> tuple[Array, Array]:
        """Score and cost of each tree under thresholds that were fitted without its fold."""
        n = len(self.boxes.trees)
        scores, costs = np.zeros(n), np.zeros(n)
        shuffled = np.random.default_rng(self._seed).permutation(n)
        for fold in np.array_split(shuffled, folds):
            thresholds, _ = self.best(np.setdiff1d(shuffled, fold))
            rows, _ = self.boxes.rows(thresholds)
            scores[fold], costs[fold] = self.boxes.score[rows][fold], self.boxes.costs[self.rule.cost][rows][fold]
        return scores, costs

    def gaps_at(self, thresholds: Thresholds) -> dict[str, tuple[float, float]]:
        """The gaps that given thresholds lie in."""
        pairs = zip(self.free, self.edges, strict=True)
        cell = [int(np.searchsorted(edges[1:], thresholds[step], side="left")) for step, edges in pairs]
        return self._gaps(cell, np.ones(len(self.rows), dtype=bool))[1]

    def _values(self, cells: Array, rows: Array, n: int) -> tuple[Array, Array]:
        """Mean score and cost at cells, shape [cells, steps]."""
        first, last = self.first[rows], self.last[rows]
        inside = ((first <= cells[:, None, :]) & (cells[:, None, :] < last)).all(axis=2)
        score, cost = self._columns(rows)
        return inside @ score / n, inside @ cost / n

    def _columns(self, rows: Array) -> tuple[Array, Array]:
        own = self.rows[rows]
        return self.boxes.score[own], self.boxes.costs[self.rule.cost][own]

    def _exhaustive(self, rows: Array, n: int) -> list[int]:
        """The best of all cells. Each leaf adds to a box of them, so sums of differences give all at once."""
        first, last = self.first[rows], self.last[rows]
        totals = []
        for column in self._columns(rows):
            change = np.zeros(tuple(size + 1 for size in self.shape))
            for corner in np.ndindex(*(2,) * len(self.shape)):
                places = np.where(np.array(corner, dtype=bool), last, first)
                np.add.at(change, tuple(places.T), column * (-1) ** sum(corner))
            for axis in range(len(self.shape)):
                change = change.cumsum(axis=axis)
            totals.append(change[tuple(slice(size) for size in self.shape)] / n)
        chosen = np.argwhere(self.rule.best(*totals))
        # Of equally good ones the widest, so that the choice does not hang on the noise of one confidence.
        narrowest = np.min([self._widths(axis)[chosen[:, axis]] for axis in range(len(self.shape))], axis=0)
        return [int(place) for place in chosen[int(narrowest.argmax())]]

    def _sampled(self, rows: Array, n: int) -> list[int]:
        """The best of the cells that Optuna tries."""
        import optuna

        names = list(self.free)
        tried: list[list[int]] = []

        def objective(trial: optuna.Trial) -> tuple[float, float]:
            tried.append([trial.suggest_int(name, 0, size - 1) for name, size in zip(names, self.shape, strict=True)])
            score, cost = self._values(np.array(tried[-1:]), rows, n)
            return float(score[0]), float(cost[0])

        logger = logging.getLogger("optuna")
        level = logger.level
        logger.setLevel(logging.WARNING)
        try:
            sampler = optuna.samplers.TPESampler(seed=self._seed, multivariate=True, group=False)
            study = optuna.create_study(directions=["maximize", "minimize"], sampler=sampler)
            for end in (0, 1):  # never and always are among them
                study.enqueue_trial({name: end * (size - 1) for name, size in zip(names, self.shape, strict=True)})
            study.optimize(objective, n_trials=self._trials)
        finally:
            logger.setLevel(level)
        return self._polished(np.array(tried), rows, n)

    def _polished(self, cells: Array, rows: Array, n: int) -> list[int]:
        """The best of some cells, and of all that differ from it in one threshold, until nothing is better."""
        scores, costs = self._values(cells, rows, n)
        seen: set[tuple[int, ...]] = set()
        while True:
            place = int(np.flatnonzero(self.rule.best(scores, costs))[0])
            chosen = tuple(int(part) for part in cells[place])
            if chosen in seen:
                return list(chosen)
            seen.add(chosen)
            lines = np.concatenate([self._line(chosen, axis) for axis in range(len(self.shape))])
            more = self._values(lines, rows, n)
            cells = np.concatenate([cells, lines])
            scores, costs = np.concatenate([scores, more[0]]), np.concatenate([costs, more[1]])

    def _line(self, cell: Sequence[int], axis: int) -> Array:
        """The cells that differ from one along one axis, that one included."""
        line = np.tile(np.array(cell), (self.shape[axis], 1))
        line[:, axis] = np.arange(self.shape[axis])
        return line

    def _middle(self, cell: list[int], rows: Array) -> tuple[dict[str, float], dict[str, tuple[float, float]]]:
        found, gaps = self._gaps(cell, rows)
        return {step: found[step] if step in found else self.fixed[step] for step in self.boxes.steps}, gaps

    def _gaps(self, cell: list[int], rows: Array) -> tuple[dict[str, float], dict[str, tuple[float, float]]]:
        """The middle of each step's gap, and the gaps; one after the other, so that together they change nothing."""
        middle: dict[str, float] = {}
        gaps: dict[str, tuple[float, float]] = {}
        cell = list(cell)
        for axis, step in enumerate(self.free):
            score, cost = self._values(self._line(cell, axis), rows, 1)
            same = np.isclose(score, score[cell[axis]], atol=1e-9) & np.isclose(cost, cost[cell[axis]], atol=1e-9)
            start = stop = cell[axis]
            while start > 0 and same[start - 1]:
                start -= 1
            while stop + 1 < len(same) and same[stop + 1]:
                stop += 1
            low, high = float(self.edges[axis][start]), float(self.edges[axis][stop + 1])
            middle[step] = (low + high) / 2 if math.isfinite(low) else high - 1.0
            cell[axis] = int(np.searchsorted(self.edges[axis][1:], middle[step], side="left"))
            gaps[step] = (low, high)
        return middle, gaps

    def _widths(self, axis: int) -> Array:
        return np.minimum(np.diff(self.edges[axis]), 1.0)


def _of_the_program(trees: Trees, steps: Sequence[str]) -> dict[str, float]:
    settings = trees.header.run.program.settings
    found = {step: settings.get(SETTING_OF[step]) for step in steps}
    return {step: float(tau) for step, tau in found.items() if tau is not None} if None not in found.values() else {}
