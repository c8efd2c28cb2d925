"""Trajectories in the form of a run file, which holds no text of a data set, and back with the texts joined."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeVar, cast, get_args

from ..core import Passage, StateError
from .recorded_texts import LEAST, QUOTED, joined_answer, recorded_answer, shortened, without_question, without_quotes
from .run_schema import RunRecord
from .trajectory_schema import (
    LARGEST,
    AttemptCost,
    AttemptRecord,
    ConfidenceRecord,
    DecisionRecord,
    HopRecord,
    PassageRecord,
    TrajectoryRecord,
    Verdict,
)

if TYPE_CHECKING:
    from ..lms import AnswerConfidence
    from ..programs import StopReason, Trajectory

T = TypeVar("T")

_LONGEST_ERROR = 300

Lookup = Callable[[Sequence[str]], Iterable[Passage]]
"""Takes ids and gives the passages that it has of them, in any order."""


def passages_read(trajectory: Trajectory | None) -> list[Passage]:
    """All passages of a trajectory, those of its hops and of its last reading, each once."""
    if trajectory is None:
        return []
    hops = [*trajectory.hops, *filter(None, [trajectory.open])]
    return list(dict.fromkeys(p.with_score(None) for group in (*hops, trajectory) for p in group.passages))


def trajectory_record(trajectory: Trajectory) -> TrajectoryRecord:
    """A trajectory without the texts of its question and passages.

    A sub-question or query that repeats the question says ``{question}`` in its place; for answers, see
    :func:`recorded_answer`. Sentences of passages that an LM has copied are cut, see :func:`without_quotes`. Of a
    revision whose passages are not in the trajectory, all texts are cut that might be such sentences.
    """
    passages = passages_read(trajectory)
    known = {passage.id: recorded.id for passage, recorded in zip(passages, _ids(passages), strict=True)}

    def clean(text: str) -> str:
        return without_quotes(without_question(text, trajectory.question), passages)

    def kept(text: str) -> str:
        return recorded_answer(text, trajectory.question, passages)

    return TrajectoryRecord(
        hops=tuple(
            HopRecord(
                sub_question=clean(hop.sub_question),
                draft=None if hop.draft is None else kept(hop.draft),
                confidence=_confidence(hop.confidence),
                source=hop.source,
                query=None if hop.query is None else clean(hop.query),
                passages=_ids(hop.passages),
                answer=kept(hop.answer),
                answer_confidence=_confidence(hop.answer_confidence),
                whole=hop.whole,
            )
            for hop in trajectory.hops
        ),
        plan=None if trajectory.plan is None else tuple(clean(step) for step in trajectory.plan),
        passages=_ids(trajectory.passages),
        answer_confidence=_confidence(trajectory.answer_confidence),
        stop_reason=trajectory.stop_reason,
        revisions=tuple(_attempt(revision, known, clean, kept) for revision in trajectory.revisions),
        decisions=tuple(
            DecisionRecord(made.step, made.hop, kept(made.text), _confidence(made.confidence), made.kept)
            for made in trajectory.decisions
        ),
    )


def _attempt(
    revision: Mapping[str, Any], known: Mapping[str, str], clean: Callable[[str], str], kept: Callable[[str], str]
) -> AttemptRecord:
    """An attempt, by those of its entries that a run file keeps; texts of passages are in none of them."""
    read = _strings(revision.get("passages"))
    if not known.keys() >= set(read):
        clean, kept = _then(clean, shortened), _then(kept, shortened)
    spent = revision.get("cost")
    stage, answer, verdict, error = (_of(revision.get(name), str) for name in ("stage", "answer", "verdict", "error"))
    chance = _finite(revision.get("probability"))
    return AttemptRecord(
        stage=stage or "other",
        answer=None if answer is None else kept(answer),
        verdict=cast(Verdict, verdict) if verdict in get_args(Verdict) else None,
        probability=None if chance is None or not 0 <= chance <= 1 else chance,
        hop=_of(revision.get("hop"), int),
        page=_of(revision.get("page"), int),
        kept=revision.get("kept") is True,
        error=None if error is None else clean(error.partition("\n")[0])[:_LONGEST_ERROR],
        sub_questions=tuple(map(clean, _strings(revision.get("sub_questions")))),
        conclusions=tuple(map(kept, _strings(revision.get("conclusions")))),
        passages=tuple(known.get(name, name if len(name) < QUOTED else _digest(name)) for name in read),
        cost=None
        if not isinstance(spent, Mapping)
        else AttemptCost(
            *(int(_amount(spent.get(name))) for name in AttemptCost.__dataclass_fields__ if name != "seconds"),
            seconds=_amount(spent.get("seconds")),
        ),
    )


def _then(first: Callable[[str], str], second: Callable[[str], str]) -> Callable[[str], str]:
    return lambda text: second(first(text))


def _of(value: Any, kind: type[T]) -> T | None:
    return value if isinstance(value, kind) and not isinstance(value, bool) else None


def _finite(value: Any) -> float | None:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return float(value) if -LARGEST <= value <= LARGEST else None


def _amount(value: Any) -> float:
    """A count or seconds within what a run file may hold; 0 for what is none."""
    return min(max(_finite(value) or 0.0, 0.0), float(LARGEST))


def _strings(value: Any) -> tuple[str, ...]:
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list | tuple) else ()


def trajectory_of(record: RunRecord, passages: Lookup, question: str) -> Trajectory:
    """A recorded trajectory with the texts of its question and passages, for viewers.

    What a run file does not keep is not there: notes and the costs of single hops (all of the cost stands outside the
    hops). Of a confidence only ``mean`` and ``min`` are known; ``sum`` and ``first`` are ``None``, and
    ``tokens`` is 1, which says that there are some.

    Args:
        record: The record of a question.
        passages: Takes ids and gives those of these passages that can be found; the others get an empty text.
        question: The question's text.

    Raises:
        StateError: The record has no trajectory.
    """
    from ..programs import Cost, Hop, Trajectory
    from ..programs.trajectory import Decision

    recorded = record.trajectory
    if recorded is None:
        raise StateError(f"question {record.id!r} has no recorded trajectory; its status is {record.status!r}")
    wanted = {item.id: None for item in (*recorded.passages, *(item for hop in recorded.hops for item in hop.passages))}
    known = {passage.id: passage for passage in passages(list(wanted))} if wanted else {}

    def join(text: str) -> str:
        return joined_answer(text, question)

    def texts(items: tuple[PassageRecord, ...]) -> tuple[Passage, ...]:
        return tuple(known.get(item.id, Passage(item.id, "", "")).with_score(item.score) for item in items)

    hops = tuple(
        Hop(
            sub_question=join(hop.sub_question),
            draft=None if hop.draft is None else join(hop.draft),
            confidence=_answer_confidence(hop.confidence),
            source=hop.source,
            query=None if hop.query is None else join(hop.query),
            passages=texts(hop.passages),
            answer=join(hop.answer),
            answer_confidence=_answer_confidence(hop.answer_confidence),
            whole=hop.whole,
        )
        for hop in recorded.hops
    )
    answer = record.answer if record.best_guess is None else record.best_guess
    costs = {name: getattr(record.cost, name) for name in Cost.__dataclass_fields__}
    return Trajectory(
        question=question,
        hops=hops,
        plan=None if recorded.plan is None else tuple(join(step) for step in recorded.plan),
        passages=texts(recorded.passages),
        answer=None if answer is None else join(answer),
        answer_confidence=_answer_confidence(recorded.answer_confidence),
        stop_reason=cast("StopReason | None", recorded.stop_reason),
        revisions=tuple(_revision(attempt, join) for attempt in recorded.revisions),
        decisions=tuple(
            Decision(made.step, made.hop, join(made.text), _answer_confidence(made.confidence), made.kept)
            for made in recorded.decisions
        ),
        other_cost=Cost(**costs),
    )


def _revision(attempt: AttemptRecord, join: Callable[[str], str]) -> dict[str, Any]:
    written = asdict(attempt)
    for name in ("answer", "error"):
        written[name] = None if written[name] is None else join(written[name])
    written["sub_questions"] = [join(text) for text in attempt.sub_questions]
    written["conclusions"] = [join(text) for text in attempt.conclusions]
    written["passages"] = list(attempt.passages)
    return {name: value for name, value in written.items() if value is not None}


def _ids(passages: Iterable[Passage]) -> tuple[PassageRecord, ...]:
    # Retrievers that give bare strings let the text be its own id.
    return tuple(
        PassageRecord(_digest(passage.long_text) if passage.id in _texts(passage) else passage.id, passage.score)
        for passage in passages
    )


def _texts(passage: Passage) -> tuple[str, ...]:
    return (passage.long_text, passage.text) if len(passage.id) > LEAST else ()


def _digest(text: str) -> str:
    import hashlib

    return f"sha256:{hashlib.sha256(text.encode('utf-8', 'replace')).hexdigest()[:32]}"


def _confidence(confidence: AnswerConfidence | None) -> ConfidenceRecord | None:
    # An empty answer has no tokens, and so no log-probabilities.
    if confidence is None or confidence.mean is None:
        return None
    return ConfidenceRecord(confidence.mean, confidence.min)


def _answer_confidence(confidence: ConfidenceRecord | None) -> AnswerConfidence | None:
    from ..lms import AnswerConfidence

    return None if confidence is None else AnswerConfidence(confidence.mean, None, confidence.minimum, None, 1)
