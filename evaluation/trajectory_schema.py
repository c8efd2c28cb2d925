"""What a run file holds of a trajectory: hops, decisions and attempts without texts of questions and passages.

:mod:`hopgate.evaluation.recorded_trajectories` writes it, and joins the texts again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

LARGEST = 10**15
"""Bound of all counts, seconds and prices: what is above was never measured, and would overflow sums."""

Count = Annotated[int, Field(ge=0, le=LARGEST)]
Amount = Annotated[float, Field(ge=0, le=LARGEST)]
Share = Annotated[float, Field(ge=0, le=1)]
LogProbability = Annotated[float, Field(ge=-LARGEST, le=1)]
"""Nats; backends may round to slightly above 0."""

Verdict = Literal["on_topic", "off_topic", "undecided"]


@dataclass(frozen=True, slots=True)
class ConfidenceRecord:
    """Log-probabilities of an answer's tokens, in nats.

    Attributes:
        mean: Their mean.
        minimum: The least of them; ``None`` where it was not recorded.
    """

    mean: LogProbability
    minimum: LogProbability | None = None


@dataclass(frozen=True, slots=True)
class PassageRecord:
    """A passage that was found: its id in the corpus, and the score that the retriever gave it."""

    id: str
    score: float | None = None


@dataclass(frozen=True, slots=True)
class HopRecord:
    """One hop; the fields are those of :class:`hopgate.programs.Hop`, with the passages' texts left out."""

    sub_question: str
    draft: str | None = None
    confidence: ConfidenceRecord | None = None
    source: Literal["memory", "already_read", "search", "calculator"] = "memory"
    query: str | None = None
    passages: tuple[PassageRecord, ...] = ()
    answer: str = ""
    answer_confidence: ConfidenceRecord | None = None
    whole: bool = False


@dataclass(frozen=True, slots=True)
class DecisionRecord:
    """Whether an answer was kept, or the program went on; fields as in ``hopgate.programs.trajectory.Decision``."""

    step: Literal["memory", "grounded", "hop", "final"]
    hop: int
    text: str
    confidence: ConfidenceRecord | None
    kept: bool


@dataclass(frozen=True, slots=True)
class AttemptCost:
    """What one attempt took; fields as in :class:`RunCost`, of which it is a part."""

    retrievals: Count = 0
    lm_calls: Count = 0
    prompt_tokens: Count = 0
    completion_tokens: Count = 0
    seconds: Amount = 0.0


@dataclass(frozen=True, slots=True)
class AttemptRecord:
    """One attempt of a corrector, or of another program that judges what it answered.

    Attributes:
        stage: What was tried: ``solve``, ``recompose``, ``resolve``, ``redecompose``; ``other`` where it was not told.
        answer: The answer that came of it; ``None`` if none did.
        verdict: How it was judged; ``None`` if it was not.
        probability: Probability of being on-topic, as the judge gives it.
        hop: The hop that was tried again, from 1.
        page: Which page of the ranking its passages came from, from 1 (the first).
        kept: Whether its answer is the program's.
        error: Why it failed, or was not begun.
        sub_questions: Those of its hops.
        conclusions: Answers of its hops.
        passages: Ids of the passages that its hops read.
        cost: What it took; ``None`` where it was not told.
    """

    stage: str
    answer: str | None = None
    verdict: Verdict | None = None
    probability: Share | None = None
    hop: int | None = None
    page: int | None = None
    kept: bool = False
    error: str | None = None
    sub_questions: tuple[str, ...] = ()
    conclusions: tuple[str, ...] = ()
    passages: tuple[str, ...] = ()
    cost: AttemptCost | None = None


class _OrZero:
    """Lets the number 0 stand for an empty tuple: older run files have the number of attempts, which was always 0."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        none = core_schema.no_info_after_validator_function(lambda _: (), core_schema.literal_schema([0]))
        return core_schema.union_schema([handler(source), none], mode="left_to_right")


@dataclass(frozen=True, slots=True)
class TrajectoryRecord:
    """A trajectory without texts of questions and passages; see :class:`hopgate.programs.Trajectory`.

    Attributes:
        revisions: The attempts that were made, oldest first.
        decisions: Where an answer was at stake, and what was decided, oldest first.
    """

    hops: tuple[HopRecord, ...] = ()
    plan: tuple[str, ...] | None = None
    passages: tuple[PassageRecord, ...] = ()
    answer_confidence: ConfidenceRecord | None = None
    stop_reason: str | None = None
    revisions: Annotated[tuple[AttemptRecord, ...], _OrZero()] = ()
    decisions: tuple[DecisionRecord, ...] = ()


_CLASSES = (
    ConfidenceRecord, PassageRecord, HopRecord, DecisionRecord, AttemptCost, AttemptRecord, TrajectoryRecord,
)  # fmt: skip
# Not in the class bodies, where they would become fields of the dataclasses.
for _class in _CLASSES:
    _class.__pydantic_config__ = ConfigDict(  # type: ignore[attr-defined]
        extra="forbid", allow_inf_nan=False, strict=True, ser_json_inf_nan="constants"
    )
