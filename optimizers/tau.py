"""Fitting the gate's threshold on drafts whose correctness is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..core import InputError


@dataclass(frozen=True, slots=True)
class FittedTau:
    """A threshold and what it does on the drafts that it was fitted on.

    Attributes:
        tau: Threshold on the mean log-probability, in nats; in the middle of its gap between two drafts.
        gap: Width of that gap in nats; log-probabilities repeat to about .01, so a narrower gap is not resolved.
        kept: Share of the drafts that are kept.
        precision: Share of the kept drafts that are right; ``None`` if none is kept.
        drafts: How many drafts it was fitted on.
    """

    tau: float
    gap: float
    kept: float
    precision: float | None
    drafts: int


def fit_tau(confidences: Sequence[float | None], right: Sequence[bool], *, wrong_cost: float = 1.0) -> FittedTau:
    """The threshold that decides best: it keeps right drafts and searches in place of wrong ones.

    Every threshold between two drafts is tried; the score is the number of right drafts kept minus ``wrong_cost`` times
    the number of wrong drafts kept. Of equal ones the highest, which searches most, is taken.

    Args:
        confidences: Mean log-probability of each draft in nats; ``None`` for a draft that was empty.
        right: Whether each draft is right.
        wrong_cost: What keeping a wrong draft costs, in right drafts.

    Raises:
        InputError: There are no drafts, the two lists differ in length, a confidence is positive, or ``wrong_cost`` is
            not positive.

    Example:
        >>> fit_tau([-0.1, -0.2, -0.9, None], [True, True, False, False]).tau
        -0.55
    """
    if len(confidences) != len(right) or not confidences:
        raise InputError(f"fitting needs as many labels as drafts, and some: {len(confidences)} and {len(right)}")
    if wrong_cost <= 0 or any(value is not None and not value <= 0 for value in confidences):
        raise InputError("`wrong_cost` must be positive and confidences are log-probabilities, at most 0")
    known = [(value, label) for value, label in zip(confidences, right, strict=True) if value is not None]
    values = sorted({value for value, _ in known}, reverse=True)
    # Above the best draft nothing is kept; below the worst everything is.
    edges = [0.0, *values, (values[-1] if values else 0.0) - 1.0]
    best, best_score = 0, 0.0
    for position in range(1, len(edges) - 1):
        kept = [label for value, label in known if value >= edges[position]]
        score = sum(kept) - wrong_cost * (len(kept) - sum(kept))
        if score > best_score:
            best, best_score = position, score
    high, low = edges[best], edges[best + 1]
    tau = (high + low) / 2
    kept = [label for value, label in known if value >= tau]
    precision = sum(kept) / len(kept) if kept else None
    return FittedTau(tau, high - low, len(kept) / len(confidences), precision, len(confidences))
