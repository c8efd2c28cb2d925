"""What a joint optimisation found: the front, all candidates, and the program that was chosen."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from ..core import InputError, StateError, user_path, write_atomic
from .joint_front import Solved
from .joint_spending import Spent

SCHEMA = 1
"""Version of the file; a reader refuses others."""


@dataclass(frozen=True, slots=True)
class FrontPoint:
    """One candidate at certain thresholds.

    Attributes:
        candidate: Name of the candidate, and of its folder.
        parameters: What was chosen for it.
        thresholds: By step, in nats; empty for programs without decisions.
        score: Mean score on the questions that the thresholds were fitted on, which flatters it.
        low: Lower end of its bootstrap interval; ``None`` where resampling says nothing.
        high: Upper end.
        retrievals: Searches a question.
        tokens: Tokens a question.
        lm_calls: LM calls a question.
        n: Questions.
    """

    candidate: str
    parameters: dict[str, Any]
    thresholds: dict[str, float]
    score: float
    low: float | None
    high: float | None
    retrievals: float
    tokens: float
    lm_calls: float
    n: int


@dataclass(frozen=True, slots=True)
class CandidateSummary:
    """A candidate that took part.

    Attributes:
        candidate: Its name.
        trial: Number of its trial in the study; that of the original is 0.
        parameters: What was chosen for it.
        questions: Questions that it answered.
        dropped: Whether it was clearly worse than others after these.
        chosen: The thresholds of the rule, and what they do.
        held_out: Mean score with thresholds fitted on other questions.
        held_out_cost: Mean cost likewise, in the unit of the rule.
        validated: Mean score of the validation questions with the chosen thresholds; ``None`` if they were not asked.
        validated_cost: Mean cost likewise.
    """

    candidate: str
    trial: int
    parameters: dict[str, Any]
    questions: int
    dropped: bool
    chosen: FrontPoint
    held_out: float
    held_out_cost: float
    validated: float | None = None
    validated_cost: float | None = None


@dataclass(frozen=True, slots=True)
class JointResult:
    """The outcome.

    Attributes:
        front: Points that no other one beats in score, retrievals and tokens, over all candidates that were not
            dropped and all thresholds; by retrievals.
        candidates: All candidates that were evaluated, by trial.
        chosen: The chosen program; ``None`` if nothing was evaluated.
        original: The unchanged program with its own thresholds; ``None`` if it was not evaluated.
        kept_original: Whether the unchanged program was returned, as nothing was gained.
        importances: Share of each parameter in the variance of the score, by Optuna.
        rule: The rule that chose.
        metric: Name of the metric.
        spent: What all sessions took.
        stopped: Which limit ended it early; ``None`` if none did.
        schema: Version of the file.
    """

    front: tuple[FrontPoint, ...]
    candidates: tuple[CandidateSummary, ...]
    chosen: FrontPoint | None
    original: FrontPoint | None
    kept_original: bool
    importances: dict[str, float]
    rule: str
    metric: str
    spent: Spent
    stopped: str | None = None
    schema: int = SCHEMA

    def to_dict(self) -> dict[str, Any]:
        """A JSON object."""
        return asdict(self)

    def save(self, path: str | Path) -> None:
        """Write it as JSON."""
        write_atomic(user_path(path), json.dumps(self.to_dict(), indent=1) + "\n")

    @classmethod
    def load(cls, path: str | Path) -> JointResult:
        """Read what :meth:`save` wrote.

        Raises:
            InputError: The file is missing.
            StateError: It is no such result, or of another version.
        """
        target = user_path(path)
        try:
            record = json.loads(target.read_text())
        except FileNotFoundError as error:
            raise InputError(f"{target}: there is no such file") from error
        except ValueError as error:
            raise StateError(f"{target}: is no JSON ({error})") from error
        if not isinstance(record, dict) or record.get("schema") != SCHEMA:
            raise StateError(f"{target}: is no result of a joint optimisation that this version of hopgate reads")
        try:
            return TypeAdapter(cls).validate_python(record)
        except ValidationError as error:
            raise StateError(f"{target}: is damaged: {error.errors()[0]['msg']}") from error


def front_point(candidate: str, parameters: dict[str, Any], solved: Solved) -> FrontPoint:
    """A candidate's solved thresholds as a point."""
    point, interval = solved.point, solved.interval
    return FrontPoint(
        candidate=candidate,
        parameters=dict(parameters),
        thresholds=dict(solved.thresholds),
        score=point.score,
        low=interval.low,
        high=interval.high,
        retrievals=point.retrievals,
        tokens=point.tokens,
        lm_calls=point.lm_calls,
        n=point.n,
    )
