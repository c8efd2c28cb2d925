"""How much an index server does for one request, and for all of them at once."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from ..core import InputError


@dataclass(frozen=True)
class ServerLimits:
    """Limits of an index server; a request that asks for more is refused.

    Attributes:
        k: Passages for one query.
        queries: Queries in one request.
        results: Passages in one answer: the number of queries times ``k``.
        passages: Passages to rerank, or to look up, in one request.
        ids: Ids of a filter in one request.
        connections: Open connections, and at most half the files that the process may open. One more takes the place
            of the one without a request that has waited longest.
        head_seconds: Seconds in which a request's first line and headers must have arrived.
        body: Bytes of a request's body.
        body_seconds: Seconds in which the body must have arrived.
        searches: Requests that are worked on at the same time.
        waiting: Further requests that wait for their turn; more are sent away with status 503.
        patience: Seconds that a request waits for its turn, before it is sent away with status 503.

    Raises:
        InputError: A limit is not a positive number, or not a whole one where things are counted.
    """

    k: int = 1000
    queries: int = 100
    results: int = 10_000
    passages: int = 1000
    ids: int = 100_000
    connections: int = 1000
    head_seconds: float = 10.0
    body: int = 8 << 20
    body_seconds: float = 30.0
    searches: int = 4
    waiting: int = 64
    patience: float = 10.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            kind = int | float if field.name in ("head_seconds", "body_seconds", "patience") else int
            if isinstance(value, bool) or not isinstance(value, kind) or not math.isfinite(value) or value <= 0:
                # A server may refuse to let anything wait.
                if field.name == "waiting" and value == 0 and not isinstance(value, bool):
                    continue
                raise InputError(f"the limit `{field.name}` must be a positive number, got {value!r:.80}")

    def check_k(self, k: int, queries: int = 1) -> None:
        """Raise InputError if so many passages may not be asked for."""
        if k > self.k:
            raise InputError(f"k may be at most {self.k:,} on this server")
        if k * queries > self.results:
            raise InputError(
                f"{queries:,} queries with {k:,} passages each are more than {self.results:,} passages; ask in parts"
            )

    def check_count(self, count: int, what: str, most: int) -> None:
        """Raise InputError if a list in a request is too long."""
        if count > most:
            raise InputError(f"a request may hold at most {most:,} {what}, and this one holds {count:,}; send parts")
