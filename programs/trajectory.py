"""The trajectory: an immutable record of how a question was answered, from which a solver can resume.

Everything else is built on it: resuming a prefix is the same call as starting; ablations and corrections are other
decisions on the same prefix. A trajectory goes to JSON and back unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cache
from typing import Any, Literal

from pydantic import ConfigDict, TypeAdapter, ValidationError

from ..core import InputError, Passage, StateError
from ..lms.confidence import AnswerConfidence

SCHEMA_VERSION = 1

Source = Literal["memory", "already_read", "search", "calculator"]
"""Where a hop's answer comes from: the LM's own knowledge, passages of an earlier hop, a search of its own, or a
calculation over earlier answers."""

StopReason = Literal["finished", "max_hops", "repeated", "empty", "no_plan", "context", "confident"]
"""Why no further hop followed: the LM asked nothing more; the limit on hops; a repeated or near-identical sub-question;
an empty one; the plan was carried out or could not be read; the context budget was used up; an answer to the whole
question was sure enough."""

Step = Literal["memory", "grounded", "hop", "final"]
"""What a decision is about: an answer to the whole question from memory, or read from its own passages; a hop's draft;
an answer composed after a hop."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What answering took.

    LM calls and tokens are *logical*: a call that a warm cache answered counts like any other, so that figures do not
    depend on what ran before. ``cached_calls`` says how many of them a cache answered, ``billed_tokens`` what was
    really computed or paid for.

    Attributes:
        retrievals: Calls of ``search``.
        lm_calls: LM calls.
        prompt_tokens: Tokens of all prompts.
        completion_tokens: Tokens of all completions.
        prefix_tokens: Those of the prompts' tokens that the backend took from its prefix cache.
        cached_calls: LM calls answered by DSPy's cache.
        billed_tokens: Prompt and completion tokens of the other calls.
        passages_read: Passages put before the LM, once for each call that showed them anew.
        seconds: Wall time.
    """

    retrievals: int = 0
    lm_calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    prefix_tokens: int = 0
    cached_calls: int = 0
    billed_tokens: int = 0
    passages_read: int = 0
    seconds: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(*(getattr(self, item.name) + getattr(other, item.name) for item in fields(Cost)))


@dataclass(frozen=True, slots=True)
class Hop:
    """One sub-question and how it was answered.

    Attributes:
        sub_question: The sub-question.
        draft: The answer from the LM's own knowledge; ``None`` where none was asked for or none came.
        confidence: Log-probabilities of the draft's tokens; ``None`` with a ``note`` where there are none.
        note: Why there is no draft or no confidence.
        source: Where the answer comes from.
        query: What was searched for; ``None`` if nothing was.
        passages: The passages that the hop's own search put before the LM, best first.
        answer: The hop's conclusion.
        answer_confidence: Log-probabilities of the conclusion's tokens, if it was read from passages.
        whole: Whether this is the whole question, answered in a prompt of its own before any sub-question was asked;
            the transcript leaves it out.
        cost: What this hop took.
    """

    sub_question: str
    draft: str | None = None
    confidence: AnswerConfidence | None = None
    note: str | None = None
    source: Source = "memory"
    query: str | None = None
    passages: tuple[Passage, ...] = ()
    answer: str = ""
    answer_confidence: AnswerConfidence | None = None
    whole: bool = False
    cost: Cost = field(default_factory=Cost)


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether an answer was kept, or the program went on: what a curve over thresholds is computed from.

    Attributes:
        step: What it was about.
        hop: Position of the hop that it belongs to, from 0.
        text: The answer at stake.
        confidence: Log-probabilities of its tokens; ``None`` where the backend gives none.
        kept: Whether it was kept.
    """

    step: Step
    hop: int
    text: str
    confidence: AnswerConfidence | None
    kept: bool


@dataclass(frozen=True, slots=True)
class Trajectory:
    """A question, the hops taken so far, and at the end the answer.

    Attributes:
        question: The question.
        hops: The hops, in order.
        plan: All sub-questions at once, if the decomposer plans; ``None`` otherwise.
        passages: The passages of the last reading.
        answer: The final answer; ``None`` while there is none.
        answer_confidence: Log-probabilities of the final answer's tokens, where the backend gives them.
        stop_reason: Why no further hop followed.
        open: A hop whose passages are given and whose answer is not read yet: resuming reads it and goes on from there.
        rejected: Final answers that were judged off-topic, oldest first; composing avoids the last of them.
        failed_plans: Plans, or the sub-questions of hops, that led to no accepted answer; decomposing avoids the last
            of them.
        revisions: Attempts that were given up, as JSON objects, oldest first.
        decisions: Where an answer was at stake, and what was decided, oldest first.
        other_cost: What was spent outside the hops: planning, asking whether to go on, the last reading.
    """

    question: str
    hops: tuple[Hop, ...] = ()
    plan: tuple[str, ...] | None = None
    passages: tuple[Passage, ...] = ()
    answer: str | None = None
    answer_confidence: AnswerConfidence | None = None
    stop_reason: StopReason | None = None
    open: Hop | None = None
    rejected: tuple[str, ...] = ()
    failed_plans: tuple[tuple[str, ...], ...] = ()
    revisions: tuple[dict[str, Any], ...] = ()
    decisions: tuple[Decision, ...] = ()
    other_cost: Cost = field(default_factory=Cost)

    @property
    def cost(self) -> Cost:
        """What the whole trajectory took, its hops included."""
        total = self.other_cost
        for hop in self.hops:
            total = total + hop.cost
        return total

    @property
    def tasks(self) -> tuple[Hop, ...]:
        """The hops that are sub-questions of the transcript: all but the whole question's own."""
        return tuple(hop for hop in self.hops if not hop.whole)

    def decision(self, step: Step, hop: int) -> Decision | None:
        """What was decided at a step of a hop; ``None`` if nothing was."""
        return next((made for made in self.decisions if (made.step, made.hop) == (step, hop)), None)

    def with_decision(self, decision: Decision) -> Trajectory:
        """The trajectory with a decision, in place of an earlier one about the same."""
        place = (decision.step, decision.hop)
        if self.decision(*place) is None:
            return replace(self, decisions=(*self.decisions, decision))
        made = (decision if (old.step, old.hop) == place else old for old in self.decisions)
        return replace(self, decisions=tuple(made))

    def prefix(self, hops: int) -> Trajectory:
        """The trajectory after its first ``hops`` hops, without an answer, to resume from.

        Raises:
            InputError: There are fewer hops, or ``hops`` is no integer.
        """
        if not isinstance(hops, int) or isinstance(hops, bool):
            raise InputError(f"a prefix is of a number of hops, not {hops!r:.60}")
        if not 0 <= hops <= len(self.hops):
            raise InputError(f"a prefix of {hops} hops was asked for, the trajectory has {len(self.hops)}")
        # A plan was paid for by the first sub-question's hop, and is made anew without it.
        plan = self.plan if any(not hop.whole for hop in self.hops[:hops]) else None
        told = {"rejected": self.rejected, "failed_plans": self.failed_plans, "revisions": self.revisions}
        decisions = tuple(made for made in self.decisions if made.hop < hops)
        return Trajectory(self.question, self.hops[:hops], plan, decisions=decisions, **told)

    def with_hop(self, hop: Hop) -> Trajectory:
        """The trajectory with one more hop; none is open then."""
        return replace(self, hops=(*self.hops, hop), open=None)

    def to_dict(self) -> dict[str, Any]:
        """A JSON object; :meth:`from_dict` is the inverse."""
        record = asdict(self)
        record["version"] = SCHEMA_VERSION
        record["passages"] = [passage.to_dict() for passage in self.passages]
        for hop, written in zip(self.hops, record["hops"], strict=True):
            written["passages"] = [passage.to_dict() for passage in hop.passages]
        if self.open is not None:
            record["open"]["passages"] = [passage.to_dict() for passage in self.open.passages]
        for name in ("hops", "plan", "rejected", "revisions", "decisions"):
            record[name] = None if record[name] is None else list(record[name])
        record["failed_plans"] = [list(plan) for plan in self.failed_plans]
        return record

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Trajectory:
        """Read what :meth:`to_dict` wrote.

        Raises:
            StateError: The object is of a newer version or has a field that a trajectory has not.
        """
        if not isinstance(record, Mapping):
            raise StateError(f"not a trajectory: a JSON object is expected, got {type(record).__name__}")
        version = record.get("version", SCHEMA_VERSION)
        if version != SCHEMA_VERSION:
            raise StateError(f"the trajectory has version {version!r}; this hopgate reads version {SCHEMA_VERSION}")
        data = {key: value for key, value in record.items() if key != "version"}
        try:
            return _adapter().validate_python(data)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise StateError(f"not a trajectory: `{where}`: {first['msg']}") from error


@cache
def _adapter() -> TypeAdapter[Trajectory]:
    return TypeAdapter(Trajectory)


# Not in the class bodies, where they would become fields of the dataclasses.
for _class in (Cost, Decision, Hop, Trajectory):
    _class.__pydantic_config__ = ConfigDict(extra="forbid", allow_inf_nan=False)  # type: ignore[attr-defined]
