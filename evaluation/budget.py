"""How much a run may spend, and what it has spent."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass

from ..core import InputError
from ..core.texts import counted
from .run_schema import Failure, RunRecord


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits of a run. No further question is begun once one is reached; those under way are finished.

    Calls, tokens and dollars count for the whole run file, earlier sessions included, so that a command that is given
    again does not spend again; seconds count from the start of the session.

    Attributes:
        calls: LM calls, cached ones included.
        usd: US dollars; the embedded LM costs none. Without a known price of the LM, the run stops after its first
            question and says so.
        seconds: Wall time in seconds.
        tokens: Tokens of prompts and completions, cached ones included.

    Raises:
        InputError: A limit is not a positive number.
    """

    calls: int | None = None
    usd: float | None = None
    seconds: float | None = None
    tokens: int | None = None

    def __post_init__(self) -> None:
        for name in ("calls", "usd", "seconds", "tokens"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not math.isfinite(value) or value <= 0):
                raise InputError(f"budget: `{name}` must be a positive number, got {value!r}")


class Spending:
    """What a run has spent; threads may share it.

    Args:
        budget: The limits.
        before: Records of earlier sessions.
        errors_in_row: The run stops after so many failures without an answer in between; ``None`` sets no limit.

    Attributes:
        calls: LM calls.
        usd: US dollars, ``None`` as soon as one call's price is unknown.
        tokens: Tokens of prompts and completions.
        stopped: Which limit was reached, or why the run ends early, for people.
    """

    def __init__(self, budget: Budget, before: Iterable[RunRecord] = (), *, errors_in_row: int | None = None) -> None:
        self.budget = budget
        self._errors_in_row = errors_in_row
        self._failures = 0
        self.calls = 0
        self.usd: float | None = 0.0
        self.tokens = 0
        self.stopped: str | None = None
        self._start = time.monotonic()
        self._lock = threading.Lock()
        for record in before:
            cost = record.cost
            self.add(cost.lm_calls, cost.usd, cost.prompt_tokens + cost.completion_tokens)

    @property
    def seconds(self) -> float:
        """Wall time of this session."""
        return time.monotonic() - self._start

    def add(self, calls: int, usd: float | None, tokens: int) -> None:
        """Count LM calls, their price in US dollars (``None``: unknown) and their tokens."""
        with self._lock:
            self.calls += calls
            self.tokens += tokens
            self.usd = None if self.usd is None or usd is None else self.usd + usd

    def finished(self, failure: Failure | None) -> None:
        """Note that a question has an answer, or why it has none."""
        with self._lock:
            self._failures = 0 if failure is None else self._failures + 1
            limit = self._errors_in_row
            if failure is not None and limit is not None and self._failures >= limit and self.stopped is None:
                self.stopped = f"{limit} questions in a row failed, the last with {failure.type}: {failure.message}"

    def allows(self) -> bool:
        """Whether a further question may be begun; if not, ``stopped`` says why."""
        if self.stopped is None:
            self.stopped = self._reached()
        return self.stopped is None

    def _reached(self) -> str | None:
        budget = self.budget
        if budget.calls is not None and self.calls >= budget.calls:
            return f"the budget of {counted(budget.calls, 'LM call')} is used up ({self.calls:,} made)"
        if budget.tokens is not None and self.tokens >= budget.tokens:
            return f"the budget of {counted(budget.tokens, 'token')} is used up ({self.tokens:,} taken)"
        if budget.usd is not None:
            if self.usd is None:
                return "the LM's price is not known, so a budget in US dollars cannot be kept; limit the LM calls"
            if self.usd >= budget.usd:
                return f"the budget of {budget.usd:g} US dollars is used up ({self.usd:.4f} spent)"
        if budget.seconds is not None and self.seconds >= budget.seconds:
            return f"the budget of {budget.seconds:g} seconds is used up"
        return None
