"""What a program's steps ask for, and what they get back: the seam between programs and their drivers."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from dataclasses import field as made
from typing import Any

from ..core import Passage
from ..lms.confidence import AnswerConfidence
from .trajectory import Cost, Trajectory


@dataclass(frozen=True, slots=True)
class Ask:
    """Request: call one of the program's predictors.

    Attributes:
        step: Name of the predictor.
        field: Its output.
        inputs: Its inputs.
        demos: Demos that go before the predictor's own.
        confidence: Whether the output's log-probabilities are needed; a backend without them then is an error. If they
            are not needed, they are asked for where the LM says that it has them.
        tentative: Whether the call joins the trace only once it is accepted.
        also: Further outputs to read.
        config: What the call changes in the LM's options, such as ``temperature`` and ``rollout_id``.
    """

    step: str
    field: str
    inputs: dict[str, Any]
    demos: tuple[dict[str, Any], ...] = ()
    confidence: bool = False
    tentative: bool = False
    also: tuple[str, ...] = ()
    config: dict[str, Any] = made(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Find:
    """Request: search, and rerank what was found.

    Attributes:
        query: The query.
        k: Passages to return.
        depth: Passages to fetch before reranking.
        rerank_query: What to rerank by; ``None`` keeps the search's order.
        fused: Whether the two rankings are fused by reciprocal rank.
    """

    query: str
    k: int
    depth: int | None = None
    rerank_query: str | None = None
    fused: bool = False

    @property
    def fetched(self) -> int:
        """Passages to ask the retriever for."""
        return self.k if self.rerank_query is None else max(self.k, self.depth or 0)


@dataclass(frozen=True, slots=True)
class Run:
    """Request: call a module inside the program, a solver or any other, through its ``__call__`` or ``acall``.

    The call joins the trace only once it is accepted.

    Attributes:
        module: Name of the attribute that holds it.
        inputs: Its inputs.
        context: What ``dspy.context`` is given for the call, such as an LM with another ``rollout_id``.
    """

    module: str
    inputs: dict[str, Any]
    context: dict[str, Any] = made(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reached:
    """Notice: the trajectory has come so far. If a later request fails, its exception carries the last of these."""

    trajectory: Trajectory


@dataclass(frozen=True, slots=True)
class Told:
    """Outcome of an :class:`Ask`.

    Attributes:
        text: The output, ``None`` if the LM gave none that could be read.
        confidence: Log-probabilities of its tokens, if they could be had.
        note: Why there is no text or no confidence.
        cost: What the call took.
        entries: The trace of the call.
        others: The further outputs, by name, also of a completion that lacks other fields; those that are empty or
            could not be read are left out.
        prediction: What the predictor returned; ``None`` if it could not be read.
    """

    text: str | None
    confidence: AnswerConfidence | None
    note: str | None
    cost: Cost
    entries: list[Any] = made(default_factory=list)
    others: dict[str, str] = made(default_factory=dict)
    prediction: Any = None


@dataclass(frozen=True, slots=True)
class Found:
    """Outcome of a :class:`Find`."""

    passages: tuple[Passage, ...]
    cost: Cost


@dataclass(frozen=True, slots=True)
class Ran:
    """Outcome of a :class:`Run`.

    Attributes:
        prediction: What the module returned.
        cost: What the call took: a solver's own account, or else what was metered.
        entries: The trace of the call.
    """

    prediction: Any
    cost: Cost
    entries: list[Any] = made(default_factory=list)


Request = Ask | Find | Run | Reached
Steps = Generator[Request, Any, Trajectory]
"""A program's steps. What a request raises is raised where it was yielded, so steps may catch it."""
