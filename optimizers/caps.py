"""How much a whole study may spend, over all its sessions and workers, and what it has spent."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

from ..core import InputError
from ..evaluation.budget import Budget
from .study import SharedStudy

_SPENT = "spent"


@dataclass(frozen=True, slots=True)
class Caps(Budget):
    """Limits of a study; no further candidate is begun once one is reached.

    Calls, tokens and dollars count for the whole study, earlier sessions and other workers included; seconds count from
    the start of the session.

    Attributes:
        calls: LM calls, cached ones included.
        usd: US dollars. Without a known price of the LM, the study stops after its first candidate and says so.
        seconds: Wall time in seconds.
        tokens: Tokens that the LM computed or that are paid for, of prompts and completions.

    Raises:
        InputError: A limit is not a positive number.
    """

    tokens: int | None = None

    def __post_init__(self) -> None:
        Budget.__post_init__(self)
        tokens = self.tokens
        if tokens is not None and (isinstance(tokens, bool) or not isinstance(tokens, int) or tokens <= 0):
            raise InputError(f"budget: `tokens` must be a positive number, got {tokens!r}")


@dataclass(frozen=True, slots=True)
class Spent:
    """What a study has spent.

    Attributes:
        calls: LM calls.
        tokens: Tokens that were computed or paid for.
        usd: US dollars; ``None`` if the price of one call is unknown.
        seconds: Wall time of all its sessions, in seconds.
    """

    calls: int = 0
    tokens: int = 0
    usd: float | None = 0.0
    seconds: float = 0.0

    def __add__(self, other: Spent) -> Spent:
        usd = None if self.usd is None or other.usd is None else self.usd + other.usd
        return Spent(self.calls + other.calls, self.tokens + other.tokens, usd, self.seconds + other.seconds)


class StudySpending:
    """What a study has spent against its caps; kept with the study. Threads may share it.

    Args:
        study: The study.
        caps: The limits.

    Attributes:
        stopped: Which limit was reached, for people.
    """

    def __init__(self, study: SharedStudy, caps: Caps | None = None) -> None:
        self.caps = caps or Caps()
        self.stopped: str | None = None
        self._study = study
        self._own = Spent()
        self._start = time.monotonic()
        self._lock = threading.Lock()

    @property
    def seconds(self) -> float:
        """Wall time of this session, in seconds."""
        return time.monotonic() - self._start

    def add(self, calls: int, tokens: int, usd: float | None) -> None:
        """Count LM calls, their tokens and their price in US dollars (``None``: unknown), and keep that at once."""
        with self._lock:
            self._own += Spent(calls, tokens, usd)
            own = self._own
            self._study.remember(
                f"{_SPENT}:{self._study.worker}",
                {"calls": own.calls, "tokens": own.tokens, "usd": own.usd, "seconds": round(self.seconds, 3)},
            )

    def total(self) -> Spent:
        """What all workers have spent in all sessions."""
        total = Spent()
        for key, kept in self._study.remembered().items():
            if key.startswith(f"{_SPENT}:"):
                total += Spent(**kept)
        return total

    def allows(self) -> bool:
        """Whether a further candidate may be begun; if not, ``stopped`` says why."""
        if self.stopped is None:
            self.stopped = self._reached(self.total())
        return self.stopped is None

    def left(self) -> Budget | None:
        """What a further candidate may spend; ``None`` if nothing is left. (Tokens are only looked at in between.)"""
        if not self.allows():
            return None
        total, caps = self.total(), self.caps
        return Budget(
            calls=None if caps.calls is None else max(1, caps.calls - total.calls),
            usd=None if caps.usd is None or total.usd is None else max(1e-9, caps.usd - total.usd),
            seconds=None if caps.seconds is None else max(1e-3, caps.seconds - self.seconds),
        )

    def _reached(self, total: Spent) -> str | None:
        caps = self.caps
        if caps.calls is not None and total.calls >= caps.calls:
            return f"the study's budget of {caps.calls:,} LM calls is used up ({total.calls:,} were made)"
        if caps.tokens is not None and total.tokens >= caps.tokens:
            return f"the study's budget of {caps.tokens:,} tokens is used up ({total.tokens:,} were used)"
        if caps.usd is not None:
            if total.usd is None:
                return "the LM's price is not known, so a budget in US dollars cannot be kept; limit the LM calls"
            if total.usd >= caps.usd:
                return f"the study's budget of {caps.usd:g} US dollars is used up ({total.usd:.4f} were spent)"
        if caps.seconds is not None and self.seconds >= caps.seconds:
            return f"the budget of {caps.seconds:g} seconds is used up"
        return None
