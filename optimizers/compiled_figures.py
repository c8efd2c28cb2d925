"""What a compiled program is worth, and how that was measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from ..evaluation.statistics import Interval, mean_interval
from ..programs import ConstantGate, Gate, Solver, ThresholdGate
from .calibration import CalibratedGate
from .compiled_manifest import ManifestPoint
from .curve import Array, Boxes, Point
from .nested import decider_in
from .policy import PolicyGate
from .policy_trees import Decisions, PolicyValue
from .tree_files import Trees
from .tree_schema import Node

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


def value_of(program: Solver, trees: Trees, metric: Metric) -> PolicyValue | None:
    """What a program does on recorded trees with the gates that it has; ``None`` if one of them is of another kind.

    Each recorded decision is the gate's own, so that no rounding of a threshold stands between this and the program.
    """
    record = Decisions(Boxes(trees, metric))
    solver = decider_in(program)
    on = np.ones(len(record.nodes))
    steps = np.array([node.step for node in record.nodes], dtype=object)
    for step in record.boxes.steps:
        places = np.flatnonzero(steps == step)
        kept = None if solver is None else kept_by(solver.gate_at(step), [record.nodes[place] for place in places])  # type: ignore[arg-type]
        if kept is None:
            return None
        on[places] = np.where(kept, -1.0, 1.0)
    return record.value(on)


def kept_by(gate: Gate, nodes: Sequence[Node]) -> Array | None:
    """Which recorded answers at stake of one step a gate keeps; ``None`` if that cannot be told of its kind."""
    means = [node.mean for node in nodes]
    if isinstance(gate, ThresholdGate):
        return np.array([mean >= gate.tau for mean in means], dtype=bool)
    if isinstance(gate, ConstantGate):
        return np.full(len(nodes), not gate.search)
    if isinstance(gate, PolicyGate) and {node.step for node in nodes} <= set(gate.steps):
        return gate.logits(nodes) < 0
    if isinstance(gate, CalibratedGate) and {node.step for node in nodes} <= set(gate.calibrators):
        chances = [gate.calibrators[node.step](node.mean) for node in nodes]
        return np.array([chance >= gate.probability for chance in chances], dtype=bool)
    return None


def measure(program: Solver, trees: Trees, metric: Metric) -> Measured | None:
    """As :func:`value_of`, with intervals; ``None`` also if there are no trees."""
    value = value_of(program, trees, metric) if trees.explored else None
    return None if value is None else measured(value.scores, value.retrievals)


def measured(scores: Array, retrievals: Array) -> Measured:
    """Means with their intervals."""
    return Measured(mean_interval(scores.tolist()), mean_interval(retrievals.tolist()), len(scores))
