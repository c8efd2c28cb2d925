"""Training a policy on recorded decision trees by policy gradient, without an LM call.

The reward of answering a question is ``score - penalty * retrievals``, and the policy is raised along the gradient of
its expectation (REINFORCE; Williams 1992), which recorded trees give exactly (:mod:`hopgate.optimizers.policy_trees`);
Adam (Kingma and Ba 2015) makes the steps. Training starts from fitted thresholds, of which the first policy is a
softened form that decides alike, so that it can only be improved on. A bonus for entropy keeps decisions open at first,
and a pull towards the start keeps weights small that the data do not ask for.

Questions are few, so some of them are held out: the weights are those of the epoch with the highest expected reward on
them, the best of several seeds is taken, and if its decisions are not better there than those of the thresholds, the
thresholds are kept, in the form of a policy.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ..core import InputError
from .curve import Array, Boxes, Score, Thresholds
from .fitting import Fitted, fit_tau
from .policy import PolicyGate
from .policy_design import Design
from .policy_split import check_decisions, split
from .policy_trees import Decisions
from .rules import Tradeoff
from .tree_files import Trees, check_alike
from .tree_schema import Tree

_ALIKE = 1e-9

_LARGEST = 1e6
"""Of arguments: far above what makes sense, and far below what overflows."""

_SPREAD = 0.1
"""Standard deviation of what later seeds add to weights at the start."""


@dataclass(frozen=True, slots=True)
class PolicyEpoch:
    """One point of a learning curve; rewards are means a question, at the full penalty.

    Attributes:
        seed: The seed.
        epoch: Steps made so far; at 0 the policy is the start.
        expected: Reward on the questions to train on where decisions are drawn.
        value: Reward there where the policy decides.
        validation_expected: As ``expected``, on the questions held out; ``None`` if there are none.
        validation: As ``value``, likewise.
        entropy: Mean entropy of a question's leaves on the questions to train on, in nats.
    """

    seed: int
    epoch: int
    expected: float
    value: float
    validation_expected: float | None
    validation: float | None
    entropy: float


@dataclass(frozen=True, slots=True)
class TrainedPolicy:
    """A policy and how it was come by.

    Attributes:
        gate: The policy; the thresholds in the form of one if they were kept.
        start: The thresholds in the form of a policy.
        thresholds: The thresholds that training started from, in nats.
        penalty: What a retrieval costs.
        kept_start: Whether the thresholds were kept, as nothing was gained.
        chosen: The best epoch of the best seed.
        started: The first epoch: the thresholds' values.
        curve: All epochs of all seeds.
        questions: Questions trained on, and held out.
        exact: Whether every tree was complete, so that expectations were exact.
        unexplored: Mean probability that the chosen policy gives to leaves that were not explored.
    """

    gate: PolicyGate
    start: PolicyGate
    thresholds: dict[str, float]
    penalty: float
    kept_start: bool
    chosen: PolicyEpoch
    started: PolicyEpoch
    curve: tuple[PolicyEpoch, ...]
    questions: tuple[int, int]
    exact: bool
    unexplored: float

    @property
    def gates(self) -> dict[Any, PolicyGate]:
        """The policy for each step that it decides at: ``Escalation(retriever, gates=trained.gates)``."""
        return dict.fromkeys(self.gate.steps, self.gate)

    @property
    def best_of_seeds(self) -> tuple[PolicyEpoch, ...]:
        """The best epoch of each seed."""
        seeds = dict.fromkeys(epoch.seed for epoch in self.curve)
        return tuple(max((epoch for epoch in self.curve if epoch.seed == seed), key=_drawn) for seed in seeds)

    def to_dict(self) -> dict[str, Any]:
        """A JSON object."""
        record = {"gate": self.gate.dump_state(), "start": self.start.dump_state()}
        record |= {name: getattr(self, name) for name in ("thresholds", "penalty", "kept_start", "exact", "unexplored")}
        record |= {name: asdict(getattr(self, name)) for name in ("chosen", "started")}
        return {**record, "questions": list(self.questions), "curve": [asdict(epoch) for epoch in self.curve]}


def train_policy(
    trees: Trees | Iterable[Tree],
    *,
    penalty: float,
    score: Score = "em",
    validation: Trees | Iterable[Tree] | float | None = 0.25,
    start: Fitted | Thresholds | None = None,
    features: Iterable[str] | None = None,
    epochs: int = 300,
    learning_rate: float = 0.05,
    entropy: float = 0.01,
    warm_up: int = 0,
    shrinkage: float = 0.001,
    patience: int = 100,
    seeds: Sequence[int] = (0, 1, 2),
) -> TrainedPolicy:
    """Train a policy on recorded trees.

    Args:
        trees: Recorded trees.
        penalty: What one retrieval is worth in score (lambda); 0 or more.
        score: As of :func:`hopgate.optimizers.evaluate_at`.
        validation: Trees of other questions, or the share of the questions to hold out; ``None`` holds none out, and
            training values decide in their place, which flatters the policy.
        start: The thresholds to start from and to beat; by default the best of all ``trees`` for the penalty.
        features: Those of :data:`hopgate.optimizers.FEATURES` that are used beside the confidence and the step, which
            always are; by default all.
        epochs: Steps of the gradient for each seed.
        learning_rate: Of Adam.
        entropy: Weight of the entropy bonus, in score a nat; it falls to 0 over the epochs.
        warm_up: Epochs over which the penalty rises to its full size.
        shrinkage: Weight of the squared distance of the weights from the start.
        patience: A seed ends after so many epochs in which nothing got better.
        seeds: The first starts from the thresholds; others move the weights of the further features a little at first,
            and take other ways.

    Raises:
        InputError: There are no trees, no decision was explored both ways, a confidence is no number of at most 0, an
            argument is out of range, or the trees held out share a question or have a step that the others lack.
    """
    _check(penalty=penalty, entropy=entropy, shrinkage=shrinkage, learning_rate=learning_rate)
    _check_whole(epochs=(epochs, 1), warm_up=(warm_up, 0), patience=(patience, 1))
    if isinstance(seeds, str) or not isinstance(seeds, Sequence):
        raise InputError(f"`seeds` takes a list of whole numbers, got {seeds!r:.60}")
    _check_whole(**{f"seeds[{place}]": (seed, 0) for place, seed in enumerate(seeds)})
    if not seeds or len(set(seeds)) < len(seeds):
        raise InputError(f"`seeds` must be different whole numbers, and one at least, got {list(seeds)!r}")
    everything = Boxes(trees, score)
    check_decisions(everything)
    check_alike(trees, validation, "validation")
    train, held = split(everything, validation, score, seeds[0])
    thresholds = _start(everything, start, penalty, score)
    design = Design(train.nodes, everything.steps, features)
    known = [node for tree in everything.trees for node in tree.nodes] + (held.nodes if held else [])
    trainer = _Trainer(design, design.start(thresholds, known), train, held, float(penalty))
    runs = [
        trainer.run(seed, place > 0, epochs, learning_rate, entropy, warm_up, shrinkage, patience)
        for place, seed in enumerate(seeds)
    ]
    started = runs[0].curve[0]
    best = max(runs, key=lambda run: (_decided(run.best), _drawn(run.best)))
    gained = _decided(best.best) > _decided(started) + _ALIKE
    gate = design.gate(best.weights if gained else trainer.start)
    judged = held or train
    return TrainedPolicy(
        gate=gate,
        start=design.gate(trainer.start),
        thresholds={step: float(thresholds[step]) for step in everything.steps},
        penalty=float(penalty),
        kept_start=not gained,
        chosen=best.best,
        started=started,
        curve=tuple(epoch for run in runs for epoch in run.curve),
        questions=(len(train.boxes.trees), len(held.boxes.trees) if held else 0),
        exact=all(tree.complete for tree in everything.trees),
        unexplored=judged.value(gate.logits(judged.nodes)).unexplored,
    )


@dataclass(frozen=True, slots=True)
class _Run:
    """A seed's learning curve, its best epoch, and the weights then."""

    curve: list[PolicyEpoch]
    best: PolicyEpoch
    weights: Array


@dataclass(slots=True)
class _Adam:
    """Adam with its usual constants. Importing torch takes longer than all of training, for these few lines."""

    rate: float
    mean: Array
    square: Array
    made: int = 0

    def next(self, gradient: Array) -> Array:
        """The step to make along a gradient."""
        self.made += 1
        self.mean = 0.9 * self.mean + 0.1 * gradient
        self.square = 0.999 * self.square + 0.001 * gradient**2
        unbiased = self.mean / (1 - 0.9**self.made), self.square / (1 - 0.999**self.made)
        return self.rate * unbiased[0] / (np.sqrt(unbiased[1]) + 1e-8)


@dataclass(frozen=True, slots=True)
class _Trainer:
    design: Design
    start: Array
    train: Decisions
    held: Decisions | None
    penalty: float

    def run(
        self,
        seed: int,
        moved: bool,
        epochs: int,
        learning_rate: float,
        entropy: float,
        warm_up: int,
        shrinkage: float,
        patience: int,
    ) -> _Run:
        """Train with one seed."""
        weights = self.start.copy()
        if moved:
            noise = np.random.default_rng(seed).normal(0.0, _SPREAD, len(weights))
            weights += noise * self.design.varying
        learnt = self.design.varying | ~self.design.further
        columns = self.design.columns(self.train.nodes)
        held_columns = None if self.held is None else self.design.columns(self.held.nodes)
        steps = _Adam(learning_rate, np.zeros_like(weights), np.zeros_like(weights))
        boxes, curve = self.train.boxes, []
        best = PolicyEpoch(seed, 0, -math.inf, -math.inf, None, None, 0.0)
        kept = weights.copy()
        for epoch in range(epochs + 1):
            logits = columns @ weights
            told = self._epoch(seed, epoch, logits, None if held_columns is None else held_columns @ weights)
            curve.append(told)
            if _drawn(told) > _drawn(best) + _ALIKE:
                best, kept = told, weights.copy()
            if epoch - best.epoch >= patience or epoch == epochs:
                break
            rewards = boxes.score - self.penalty * min(1.0, (epoch + 1) / (warm_up + 1)) * boxes.costs["retrievals"]
            gradient = columns.T @ self.train.gradient(logits, rewards, entropy * (1 - epoch / epochs))
            gradient -= 2 * shrinkage * (weights - self.start)
            weights += steps.next(gradient * learnt)
        return _Run(curve, best, kept)

    def _epoch(self, seed: int, epoch: int, logits: Array, held_logits: Array | None) -> PolicyEpoch:
        drawn, decided = self._rewards(self.train, logits)
        held = (None, None)
        if self.held is not None and held_logits is not None:
            held = self._rewards(self.held, held_logits)
        return PolicyEpoch(seed, epoch, drawn, decided, *held, self.train.entropy(logits))

    def _rewards(self, record: Decisions, logits: Array) -> tuple[float, float]:
        value = record.value(logits)
        drawn, decided = (point.score - self.penalty * point.retrievals for point in (value.expected, value.point))
        return drawn, decided


def _drawn(epoch: PolicyEpoch) -> float:
    return epoch.expected if epoch.validation_expected is None else epoch.validation_expected


def _decided(epoch: PolicyEpoch) -> float:
    return epoch.value if epoch.validation is None else epoch.validation


def _start(everything: Boxes, start: Fitted | Thresholds | None, penalty: float, score: Score) -> Thresholds:
    if start is None:
        return fit_tau(everything.trees, Tradeoff(penalty), original={}, folds=0, score=score).thresholds
    thresholds = start.thresholds if isinstance(start, Fitted) else start
    if not isinstance(thresholds, Mapping):
        raise InputError(f"`start` takes what fit_tau gives, or a threshold for each step, got {start!r:.60}")
    everything.checked(thresholds)
    return thresholds


def _check(**values: float) -> None:
    for name, value in values.items():
        wrong = isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _LARGEST
        if wrong or (name == "learning_rate" and value == 0):
            least = "above 0" if name == "learning_rate" else "of 0 or more"
            raise InputError(f"`{name}` must be a number {least} and up to {_LARGEST:g}, got {value!r:.60}")


def _check_whole(**values: tuple[int, int]) -> None:
    for name, (value, least) in values.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise InputError(f"`{name}` must be a whole number of at least {least}, got {value!r}")
