"""What a joint optimisation has spent, over all its sessions and workers together."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import dspy

from ..core import StateError, write_atomic
from ..evaluation.attempts import QuestionMeter
from ..evaluation.budget import Budget, Spending


@dataclass(frozen=True, slots=True)
class Spent:
    """Sums.

    Attributes:
        calls: LM calls, cached ones included.
        tokens: Tokens of prompts and completions.
        usd: US dollars; ``None`` where a price is unknown.
        seconds: Wall time in seconds; of several workers the sum.
    """

    calls: int = 0
    tokens: int = 0
    usd: float | None = 0.0
    seconds: float = 0.0

    def __add__(self, other: Spent) -> Spent:
        usd = None if self.usd is None or other.usd is None else self.usd + other.usd
        return Spent(self.calls + other.calls, self.tokens + other.tokens, usd, self.seconds + other.seconds)


class BudgetReached(BaseException):
    """Ends a teleprompter under way at its next LM call; programs and DSPy do not catch it."""


class Ledger:
    """Counts what is spent while it is active, and keeps it in a folder, one file a session.

    Args:
        folder: Where the files are.
        budget: The limits.
    """

    def __init__(self, folder: Path, budget: Budget) -> None:
        self._folder = folder
        self._budget = budget
        self._own = folder / f"{uuid.uuid4().hex}.json"
        self._spending = Spending(Budget())
        self._strict = False

    @contextmanager
    def active(self) -> Iterator[None]:
        """Count the LM calls made in the body."""
        meter = _Meter(self)
        with dspy.context(
            disable_history=False, caller_modules=[*(dspy.settings.caller_modules or []), meter], trace=[]
        ):
            try:
                yield
            finally:
                self.save()

    @contextmanager
    def strict(self) -> Iterator[None]:
        """Raise :class:`BudgetReached` at an LM call beyond the budget; elsewhere work stops between questions."""
        self._strict = True
        try:
            yield
        finally:
            self._strict = False

    @property
    def spent(self) -> Spent:
        """What all sessions have spent."""
        others = [_read(path) for path in sorted(self._folder.glob("*.json")) if path != self._own]
        return sum(others, self._session)

    @property
    def _session(self) -> Spent:
        spending = self._spending
        return Spent(spending.calls, spending.tokens, spending.usd, spending.seconds)

    def save(self) -> None:
        """Write down what this session has spent so far."""
        write_atomic(self._own, json.dumps(asdict(self._session)) + "\n")

    def stopped(self) -> str | None:
        """Which limit is reached, for people; ``None`` if none is."""
        spent, budget = self.spent, self._budget
        if budget.seconds is not None and spent.seconds >= budget.seconds:
            return f"the budget of {budget.seconds:g} seconds is used up"
        total = Spending(replace(budget, seconds=None))
        total.add(spent.calls, spent.usd, spent.tokens)
        return None if total.allows() else total.stopped

    def left(self) -> Budget:
        """What may still be spent; ask :meth:`stopped` first."""
        spent, budget = self.spent, self._budget
        dollars = None if budget.usd is None else max(budget.usd - (spent.usd or 0.0), 1e-9)
        return Budget(
            calls=None if budget.calls is None else max(1, budget.calls - spent.calls),
            tokens=None if budget.tokens is None else max(1, budget.tokens - spent.tokens),
            usd=dollars,
            seconds=None if budget.seconds is None else max(1e-9, budget.seconds - spent.seconds),
        )

    def check(self) -> None:
        """Raise if strict and a limit is reached."""
        if self._strict and self.stopped() is not None:
            raise BudgetReached


class _Meter(QuestionMeter):
    def __init__(self, ledger: Ledger) -> None:
        super().__init__(ledger._spending)
        self._ledger = ledger

    def append(self, entry: dict[str, Any]) -> None:
        super().append(entry)
        self._ledger.check()


def _read(path: Path) -> Spent:
    try:
        return Spent(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError) as error:
        raise StateError(f"{path}: cannot be read as what a session has spent ({error})") from error
