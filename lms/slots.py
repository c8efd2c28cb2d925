"""Which slot of an embedded model takes a prompt."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

# What the least recently used text is worth, against the most recently used one.
_STALE = 0.2
# Reading a known prefix into a slot for the first time pays: it serves all later forks.
_INVESTED = 0.1


class Slots:
    """Which slot of the server takes a prompt, so that as little as possible has to be read again.

    A program's steps grow one text, while its drafts fork off it: sent to one slot, each fork would cut the passages
    from it, to be read again at the next step. So what a slot would lose counts as much as what it would have to read;
    less so for slots that were not used lately, since their texts belong to questions that are answered. Positions are
    counted in characters; the server counts tokens.
    """

    def __init__(self, count: int) -> None:
        self._texts: list[str] = [""] * count
        self._free = set(range(count))
        # Least recently used first.
        self._order = list(range(count))
        self._changed = threading.Condition()

    @contextmanager
    def taken(self, text: str) -> Iterator[int]:
        """Wait for a free slot, and hold the best one for this prompt while the body runs."""
        with self._changed:
            self._changed.wait_for(lambda: self._free)
            slot = self._best(text)
            self._free.discard(slot)
            self._texts[slot] = text
            self._order.remove(slot)
            self._order.append(slot)
        try:
            yield slot
        finally:
            with self._changed:
                self._free.add(slot)
                self._changed.notify()

    def _best(self, text: str) -> int:
        age = {slot: rank / max(1, len(self._order) - 1) for rank, slot in enumerate(self._order)}

        shared = [len(os.path.commonprefix([text, held])) for held in self._texts]  # noqa: RUF071 - characters are meant

        def cost(slot: int) -> float:
            held = self._texts[slot]
            if not held:
                return len(text) - max(shared) + _INVESTED * max(shared)
            return len(text) - shared[slot] + max(_STALE, age[slot]) * (len(held) - shared[slot])

        return min(sorted(self._free), key=cost)
