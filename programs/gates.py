"""The gate: whether a draft is kept, or the program searches."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from ..lms.confidence import AnswerConfidence
from .settings import ActiveSettings
from .trajectory import Trajectory


@dataclass(frozen=True, slots=True)
class Draft:
    """What a gate decides on.

    Attributes:
        trajectory: The trajectory before this hop.
        sub_question: The open sub-question.
        text: The draft.
        confidence: Log-probabilities of its tokens; ``None`` where the backend gives none.
    """

    trajectory: Trajectory
    sub_question: str
    text: str
    confidence: AnswerConfidence | None


@runtime_checkable
class Gate(Protocol):
    """Decides on each draft."""

    @property
    def needs_draft(self) -> bool:
        """Whether a draft must be made before the decision."""
        ...

    @property
    def needs_confidence(self) -> bool:
        """Whether the draft's log-probabilities are needed; a backend without them then is an error."""
        ...

    def keeps(self, draft: Draft) -> bool:
        """Whether the draft is the hop's answer; otherwise the program searches."""
        ...


@dataclass(frozen=True, slots=True)
class ThresholdGate:
    """Keeps a draft whose mean log-probability (nats a token) is at least ``tau``.

    A draft that only repeats words of the sub-question is not kept, however confident: copying is always likely, and
    tells nothing of what the LM knows.
    """

    tau: float
    needs_draft: bool = True
    needs_confidence: bool = True

    def keeps(self, draft: Draft) -> bool:
        """See :class:`Gate`. A draft without confidence is not kept."""
        mean = None if draft.confidence is None else draft.confidence.mean
        return mean is not None and mean >= self.tau and not echoes(draft.text, draft.sub_question)


def echoes(text: str, sub_question: str) -> bool:
    """Whether an answer consists of words of the sub-question alone, which then does not offer them as a choice.

    Example:
        >>> echoes("the Osk Tower", "Who designed the Osk Tower?"), echoes("1911", "Which is earlier, 1911 or 1974?")
        (True, False)
    """
    asked = re.findall(r"\w+", sub_question.casefold())
    words = re.findall(r"\w+", text.casefold())
    return bool(words) and "or" not in asked and set(words) <= set(asked)


@dataclass(frozen=True, slots=True)
class ConstantGate:
    """Always searches, or never: the two ends that a threshold is measured against."""

    search: bool

    @property
    def needs_draft(self) -> bool:
        """Only what is kept needs to be drafted."""
        return not self.search

    @property
    def needs_confidence(self) -> bool:
        """The decision is made already."""
        return False

    def keeps(self, draft: Draft) -> bool:
        """See :class:`Gate`."""
        return not self.search


def gate_of(settings: ActiveSettings) -> Gate:
    """The gate that the settings name."""
    if settings.gate == "threshold":
        return ThresholdGate(settings.tau)
    return ConstantGate(search=settings.gate == "always")
