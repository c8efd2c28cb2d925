"""Charts of score against cost that a report page draws beside those of the runs: curves of thresholds, and fronts."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from ..core import InputError


@dataclass(frozen=True, slots=True)
class ChartPoint:
    """A point.

    Attributes:
        retrievals: Searches a question.
        score: Mean score, a share.
        text: What is shown of it where the pointer rests.
    """

    retrievals: float
    score: float
    text: str = ""


@dataclass(frozen=True, slots=True)
class ChartSeries:
    """Points that belong together.

    Attributes:
        name: What they are.
        points: The points, in the order in which a line joins them.
        kind: A ``line``, a line with its points (``dots``), or single ``marks``.
    """

    name: str
    points: tuple[ChartPoint, ...]
    kind: Literal["line", "dots", "marks"] = "line"


@dataclass(frozen=True, slots=True)
class ScoreChart:
    """A chart of a mean score, in percent, against searches a question.

    Attributes:
        title: What it shows.
        label: Name of the score.
        series: What is drawn; those that come first lie below.
        notes: Sentences that belong to it.

    Raises:
        InputError: It has no point, or one is not finite.
    """

    title: str
    label: str
    series: tuple[ChartSeries, ...]
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        points = [point for series in self.series for point in series.points]
        if not points:
            raise InputError(f"chart {self.title!r}: there is no point to draw")
        if not all(math.isfinite(value) for point in points for value in (point.retrievals, point.score)):
            raise InputError(f"chart {self.title!r}: scores and retrievals are finite numbers")


def along(name: str, points: Iterable[tuple[float, float]], kind: Literal["line", "dots"] = "line") -> ChartSeries:
    """A line through points of retrievals and scores."""
    return ChartSeries(name, tuple(ChartPoint(*point) for point in points), kind)
