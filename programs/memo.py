"""A memo of requests, so that what was asked once is not asked again."""

from __future__ import annotations

from .requests import Ask, Find, Found, Told
from .trajectory import Cost


class Memo:
    """Outcomes of LM calls and searches by what was asked.

    Given to a solver as its ``memo``, it lets the same question be answered several times under different decisions:
    what an earlier answer came by already is taken from it, with the text, the confidence and the cost recorded then,
    so that a trajectory is the one that answering afresh would give and only new requests are carried out. It is meant
    for exploring: outcomes that it gives do not join the trace that teleprompters learn from. Modules that a solver
    runs are always called; they may have a memo of their own.

    Attributes:
        made: What carrying out took so far; LM calls and retrievals that were answered from the memo are not in it.
    """

    def __init__(self) -> None:
        self.made = Cost()
        self._outcomes: dict[str, Told | Found] = {}

    def recall(self, request: Ask | Find) -> Told | Found | None:
        """The outcome of an equal request; ``None`` if there was none."""
        return self._outcomes.get(repr(request))

    def keep(self, request: Ask | Find, outcome: Told | Found) -> None:
        """Note what carrying out a request gave."""
        self._outcomes[repr(request)] = outcome
        self.made = self.made + outcome.cost
