"""Which slot of an embedded model takes a prompt."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

# Losing fewer characters than this is cheaper than filling a slot that was never used.
_WORTH_A_SLOT = 80


class Slots:
    """Which slot of the server takes a prompt, so that as little as possible of what the slots hold is lost.

    A program's steps grow one text, while its drafts fork off it: sent to one slot, each fork would cut the passages
    from it, to be read again at the next step. Positions are counted in characters; the server counts tokens.
    """

    def __init__(self, count: int) -> None:
        self._texts: list[str] = [""] * count
        self._free = set(range(count))
        self._changed = threading.Condition()

    @contextmanager
    def taken(self, text: str) -> Iterator[int]:
        """Wait for a free slot, and hold the best one for this prompt while the body runs."""
        with self._changed:
            self._changed.wait_for(lambda: self._free)
            slot = self._best(text)
            self._free.discard(slot)
            self._texts[slot] = text
        try:
            yield slot
        finally:
            with self._changed:
                self._free.add(slot)
                self._changed.notify()

    def _best(self, text: str) -> int:
        def shared(slot: int) -> int:
            return len(os.path.commonprefix([text, self._texts[slot]]))  # noqa: RUF071 - characters are meant

        def lost(slot: int) -> int:
            return len(self._texts[slot]) - shared(slot)

        best = max(sorted(self._free), key=lambda slot: shared(slot) - lost(slot))
        unused = [slot for slot in sorted(self._free) if not self._texts[slot]]
        if unused and lost(best) > _WORTH_A_SLOT:
            return unused[0]
        return best
