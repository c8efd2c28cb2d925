"""Whether confidence means what it says: reliability diagrams of recorded runs."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ..core import InputError
from .run_schema import RunRecord
from .statistics import Interval, share_interval

BINS = 10


@dataclass(frozen=True, slots=True)
class Bin:
    """Answers of similar confidence.

    Attributes:
        low: Lower bound of the confidence, inclusive.
        high: Upper bound, exclusive but for the last bin.
        confidence: Mean confidence of its answers.
        right: Share of its answers that are an exact match, with Wilson's interval.
    """

    low: float
    high: float
    confidence: float
    right: Interval


@dataclass(frozen=True, slots=True)
class Reliability:
    """Confidence of final answers against how many are right.

    Attributes:
        n: Answers with a confidence.
        without: Answers without one, which take no part.
        bins: The bins that are not empty.
        error: Expected calibration error: mean distance of confidence and share right over the bins, weighted by their
            answers; ``None`` where no answer has a confidence.
    """

    n: int
    without: int
    bins: tuple[Bin, ...]
    error: float | None

    def to_dict(self) -> dict[str, Any]:
        """A JSON object."""
        return asdict(self)


def reliability(records: Iterable[RunRecord], *, bins: int = BINS) -> Reliability:
    """Bin the final answers by confidence (Guo et al. 2017, section 2).

    The confidence is exp(mean log-probability) of the final answer's tokens, the geometric mean of their probabilities,
    between 0 and 1. It is no calibrated probability; the diagram shows how far from one it is.

    Args:
        records: Records of a run; failures take no part.
        bins: Number of bins of equal width.

    Raises:
        InputError: There is less than one bin.
    """
    if bins < 1:
        raise InputError(f"`bins` must be 1 or more, got {bins!r}")
    answered = [record for record in records if record.status == "ok"]
    known: list[tuple[float, bool]] = []
    for record in answered:
        confidence = None if record.trajectory is None else record.trajectory.answer_confidence
        if confidence is not None:
            known.append((min(1.0, math.exp(min(0.0, confidence.mean))), record.scores.em))
    places = [min(bins - 1, int(value * bins)) for value, _ in known]
    found: list[Bin] = []
    for place in sorted(set(places)):
        inside = [pair for pair, other in zip(known, places, strict=True) if other == place]
        mean = float(np.mean([value for value, _ in inside]))
        right = share_interval(sum(hit for _, hit in inside), len(inside))
        found.append(Bin(place / bins, (place + 1) / bins, mean, right))
    gaps = [abs(item.confidence - (item.right.value or 0.0)) * item.right.n for item in found]
    return Reliability(len(known), len(answered) - len(known), tuple(found), sum(gaps) / len(known) if known else None)
