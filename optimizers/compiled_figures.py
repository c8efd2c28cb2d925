"""What a compiled program is worth, and how that was measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from ..evaluation.statistics import Interval, mean_interval
from ..programs import Solver
from .compiled_manifest import ManifestPoint
from .curve import Array, Boxes, Point
from .tree_files import Trees

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


def at_thresholds(trees: Trees, thresholds: Mapping[str, float], metric: Metric) -> tuple[Array, Array]:
    """Score and searches of each question at thresholds."""
    boxes = Boxes(trees, metric)
    rows, _ = boxes.rows({step: thresholds[step] for step in boxes.steps})
    return boxes.score[rows], boxes.costs["retrievals"][rows]


def measured(scores: Array, retrievals: Array) -> Measured:
    """Means with their intervals."""
    return Measured(mean_interval(scores.tolist()), mean_interval(retrievals.tolist()), len(scores))
