"""What a run file holds: a header and one record a question, as frozen dataclasses checked by pydantic.

A run file is JSON Lines in UTF-8. Its first line is the header, each further line the record of one question. It holds
ids, sub-questions, drafts, confidences, decisions, passage ids, answers, scores and costs, and never a data set's own
text, so that it may be published. :mod:`hopgate.evaluation.records` reads and writes it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, TypeAdapter

from .trajectory_schema import Amount, Count, Share, TrajectoryRecord

SCHEMA = 1
"""Version of the run file; a reader refuses others."""

QUESTION = "{question}"
"""Stands in a run file for the text of the record's own question."""


def _with_model(lm: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(lm.get("model"), str) or not lm["model"]:
        raise ValueError("`model` must be the name of the LM")
    return lm


Normalisation = Literal["official", "strict"]


@dataclass(frozen=True, slots=True)
class Scores:
    """Scores of an answer; those of a question without an answer are the lowest.

    Attributes:
        em: Exact match with one of the gold answers.
        f1: Token F1, between 0 and 1, with the closest gold answer.
        cover_em: Whether a gold answer stands in the answer, as a substring.
        cover_em_tokens: Whether all tokens of a gold answer stand in the answer (token recall of 1).
        retrieval_recall: Share of the supporting passages that were found; ``None`` where the data set names none,
            the program cannot search, or the index has none of those that the questions name.
        off_topic: Whether the answer is not of the kind that was asked for; ``None`` where it was not judged.
    """

    em: bool
    f1: Share
    cover_em: bool
    cover_em_tokens: bool
    retrieval_recall: Share | None = None
    off_topic: bool | None = None


@dataclass(frozen=True, slots=True)
class RunCost:
    """What a question took, over all its attempts: the fields of :class:`hopgate.programs.Cost`, and the price.

    Attributes:
        usd: US dollars of the LM calls that no cache answered, by the provider's price table; 0 for the embedded LM
            (``None`` in older files), ``None`` where a price is unknown.
    """

    retrievals: Count = 0
    lm_calls: Count = 0
    prompt_tokens: Count = 0
    completion_tokens: Count = 0
    prefix_tokens: Count = 0
    cached_calls: Count = 0
    billed_tokens: Count = 0
    passages_read: Count = 0
    seconds: Amount = 0.0
    usd: Amount | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a question has no answer.

    Attributes:
        type: Name of the exception's class, or ``Timeout``.
        message: The first line of its message, shortened, without the question's text.
    """

    type: str
    message: str


@dataclass(frozen=True, slots=True)
class RunRecord:
    """The outcome of one question.

    Attributes:
        id: Id of the question in its data set.
        status: ``ok``, or ``error`` if there is no answer; then ``error`` says why. A wrong answer is ``ok``.
        answer: The answer; ``None`` if there is none.
        type: Type of the question, as its data set names it.
        hops: Number of hops that the data set says the question needs.
        scores: The scores.
        trajectory: How it was answered; ``None`` for programs that do not say it and for errors.
        cost: What it took.
        error: Why there is no answer.
        attempts: How often it was tried.
        answered: Whether the program gave an answer; ``False`` where it abstained, and then ``answer`` is empty.
        best_guess: What it would have answered, if it abstained.
    """

    id: str
    status: Literal["ok", "error"]
    answer: str | None
    type: str | None
    hops: Count | None
    scores: Scores
    trajectory: TrajectoryRecord | None
    cost: RunCost
    error: Failure | None = None
    attempts: Count = 1
    answered: bool = True
    best_guess: str | None = None


@dataclass(frozen=True, slots=True)
class FileHeader:
    """A file that a run was made with, known by its checksum only."""

    sha256: str


@dataclass(frozen=True, slots=True)
class ProgramHeader:
    """The program.

    Attributes:
        name: ``active``, ``rag``, ``direct``, ``cot``, or the name of another program's class.
        file: The saved state that it was loaded from, if it was.
        settings: Its settings, worked examples aside.
        state: Its whole state (``program.dump_state()``), unless that holds demos or worked examples, which may be a
            data set's own text: then ``None``.
        state_sha256: SHA-256 of the whole state as JSON with sorted keys; ``None`` where it was not recorded.
    """

    name: str | None
    file: FileHeader | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    state: dict[str, Any] | None = None
    state_sha256: str | None = None


@dataclass(frozen=True, slots=True)
class IndexHeader:
    """The index, by its manifest; fields that a retriever does not tell are ``None``.

    Attributes:
        engine: ``exact``, ``plaid``, or the name of another retriever's class.
        checkpoint: Name of the encoder's checkpoint.
        checkpoint_fingerprint: Which weights it has.
        corpus_fingerprint: Which passages it holds.
        passages: How many.
        revision: Number of updates since the index was built.
        hybrid: Whether searches are fused with BM25.
    """

    engine: str | None = None
    checkpoint: str | None = None
    checkpoint_fingerprint: str | None = None
    corpus_fingerprint: str | None = None
    passages: Count | None = None
    revision: Count | None = None
    hybrid: bool | None = None


@dataclass(frozen=True, slots=True)
class DataHeader:
    """Which questions were asked: their ids in order, and how they were chosen.

    Attributes:
        name: Name of the data set.
        split: Its split.
        seed: Seed of the sample.
        sample: Size of the sample; ``None`` if the questions were not drawn.
        ids: Ids of the questions.
        questions_sha256: Digest of ids, questions and gold answers, see
            :func:`~hopgate.evaluation.question_digest.questions_digest`; ``None`` where it was not recorded.
    """

    name: str
    split: str | None = None
    seed: int | None = None
    sample: int | None = None
    ids: tuple[str, ...] = ()
    questions_sha256: str | None = None


@dataclass(frozen=True, slots=True)
class RunHeader:
    """What is needed to know a run, to resume and to repeat it.

    Attributes:
        name: Name of the run.
        program: The program.
        lm: ``model`` and the LM's other declared options, without secrets.
        seed: Seed of the run.
        normalisation: How answers were normalised before they were compared.
        versions: Versions of Python and of the packages that take part.
        index: What was searched; ``None`` for programs that do not search.
        data: The questions.
        started: When the run began, as ISO 8601 with the zone; ``None`` where it was not recorded.
        adapter: Class name of the DSPy adapter that rendered the prompts; ``None`` where it was not recorded.
        schema: Version of the run file.
        kind: ``run``.
    """

    name: str
    program: ProgramHeader
    lm: Annotated[dict[str, Any], AfterValidator(_with_model)]
    seed: int
    normalisation: Normalisation
    versions: dict[str, str]
    index: IndexHeader | None
    data: DataHeader
    started: str | None = None
    adapter: str | None = None
    schema: int = SCHEMA
    kind: Literal["run"] = "run"


@cache
def header_adapter() -> TypeAdapter[RunHeader]:
    """Checks and reads a header."""
    return TypeAdapter(RunHeader)


@cache
def record_adapter() -> TypeAdapter[RunRecord]:
    """Checks and reads a record."""
    return TypeAdapter(Annotated[RunRecord, AfterValidator(_consistent)])


def _consistent(record: RunRecord) -> RunRecord:
    if record.status == "ok" and record.answer is None:
        raise ValueError("`answer` must be a text where `status` is ok")
    if record.status == "ok" and record.error is not None:
        raise ValueError("`error` must be null where `status` is ok")
    if record.status == "error" and (record.answer is not None or record.error is None):
        raise ValueError("`answer` must be null where `status` is error, and `error` must say why")
    return record


_CLASSES = (Scores, RunCost, Failure, RunRecord, FileHeader, ProgramHeader, IndexHeader, DataHeader, RunHeader)
# Not in the class bodies, where they would become fields of the dataclasses.
for _class in _CLASSES:
    _class.__pydantic_config__ = ConfigDict(  # type: ignore[attr-defined]
        extra="forbid", allow_inf_nan=False, strict=True, ser_json_inf_nan="constants"
    )
