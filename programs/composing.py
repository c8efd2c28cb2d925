"""The last step of the programs that reason over several hops."""

from __future__ import annotations

from dataclasses import replace

from ..core import Passage
from .requests import Told
from .trajectory import Trajectory


def composed(
    trajectory: Trajectory, told: Told, *, fallback: str = "", passages: tuple[Passage, ...] = ()
) -> Trajectory:
    """The finished trajectory.

    Args:
        trajectory: The trajectory with all its hops.
        told: The last step's outcome.
        fallback: The answer if the LM gave none that could be read: the best so far.
        passages: The passages of the last reading.
    """
    return replace(
        trajectory,
        passages=passages,
        answer=told.text or fallback,
        answer_confidence=told.confidence,
        other_cost=trajectory.other_cost + told.cost,
    )
