"""Abstaining: whether anything supports a final answer."""

from __future__ import annotations

from .composing import confidence_in
from .trajectory import Hop, Trajectory


def supported(trajectory: Trajectory, tau: float) -> bool:
    """Whether memory or passages support the final answer: its own confidence is at least ``tau``.

    Where the final answer has no confidence, the least sure of the hops' answers decides. Without any confidence, or
    without an answer, there is no support.

    Args:
        trajectory: A finished trajectory.
        tau: Threshold on the mean log-probability of the answer's tokens, in nats.
    """
    if not trajectory.answer:
        return False
    final = trajectory.answer_confidence
    if final is not None:
        return final.mean is not None and final.mean >= tau
    means = [_kept(hop) for hop in trajectory.hops if hop.source != "calculator"]
    return bool(means) and all(mean is not None and mean >= tau for mean in means)


def _kept(hop: Hop) -> float | None:
    """The mean log-probability of a hop's answer; ``None`` for an empty answer, or one without confidence."""
    confidence = confidence_in(hop)
    return None if confidence is None or not hop.answer else confidence.mean
