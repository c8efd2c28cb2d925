"""The outcome of a diagnosis: which replacements mended an answer, what it is charged to, and the tables of it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

from pydantic import ConfigDict

from .run_schema import Failure, RunCost, RunHeader
from .statistics import Interval, share_interval
from .tables import Table, share
from .trajectory_schema import Share

SCHEMA = 1

Replacement = Literal[
    "gold_sub_questions", "search_always", "search_never", "gold_passages", "gold_sub_questions_and_passages",
    "undivided", "gold_answers",
]  # fmt: skip
"""What was put in the place of the program's own, in the order in which errors are charged."""

Charge = Literal[
    "decomposition", "gate", "retrieval", "decomposition and retrieval", "reading", "composition",
    "reading or composition", "unexplained", "failed",
]  # fmt: skip
"""What an error is charged to; ``failed`` where the program failed on a replacement before one mended the answer."""

CHARGED: Mapping[Replacement, Charge] = {
    "gold_sub_questions": "decomposition",
    "search_always": "gate",
    "search_never": "gate",
    "gold_passages": "retrieval",
    "gold_sub_questions_and_passages": "decomposition and retrieval",
    "undivided": "decomposition and retrieval",
    "gold_answers": "reading",
}

CONVENTION = (
    "An error is charged to the first stage, in the order decomposition, gate, retrieval, decomposition and retrieval "
    "together, reading, whose replacement by gold makes the answer right. The order is a convention: an error that two "
    "replacements would mend is charged to the earlier one."
)

_DESCRIBED: Mapping[Replacement, str] = {
    "gold_sub_questions": "gold sub-questions",
    "search_always": "a search at every hop",
    "search_never": "every draft kept",
    "gold_passages": "gold passages at every search",
    "gold_sub_questions_and_passages": "gold sub-questions and passages",
    "undivided": "the whole question read at once from the gold passages",
    "gold_answers": "gold sub-questions, passages and intermediate answers",
}


@dataclass(frozen=True, slots=True)
class Trial:
    """The program's answer with one thing replaced.

    Attributes:
        replaced: What was replaced.
        answer: The answer; ``None`` if the program failed.
        em: Whether it is right.
        f1: Token F1.
        cost: What the trial took: what was resumed from is not counted.
        error: Why there is no answer.
    """

    replaced: Replacement
    answer: str | None
    em: bool
    f1: Share
    cost: RunCost = field(default_factory=RunCost)
    error: Failure | None = None


@dataclass(frozen=True, slots=True)
class DiagnosisRecord:
    """One wrong answer.

    Attributes:
        id: Id of the question.
        charged: What it is charged to.
        trials: What was tried, in order.
        off_topic: Whether the wrong answer was off-topic, by the run's own record.
    """

    id: str
    charged: Charge
    trials: tuple[Trial, ...]
    off_topic: bool | None = None


@dataclass(frozen=True, slots=True)
class DiagnosisHeader:
    """What a diagnosis was made with.

    Attributes:
        run: Header of the diagnosed run.
        lm: The LM of the trials.
        every: Whether every replacement was tried, or only those up to the first that mended the answer.
        schema: Version of the file.
        kind: ``diagnosis``.
    """

    run: RunHeader
    lm: dict[str, Any]
    every: bool = False
    schema: int = SCHEMA
    kind: Literal["diagnosis"] = "diagnosis"


@dataclass(frozen=True)
class Diagnosis:
    """All of a diagnosis file.

    Attributes:
        header: What it was made with.
        records: One a wrong answer.
        answered: Questions of the run that have an answer, right or wrong.
    """

    header: DiagnosisHeader
    records: tuple[DiagnosisRecord, ...]
    answered: int

    def charged(self) -> dict[Charge, Interval]:
        """Share of the diagnosed errors that is charged to each stage, with Wilson's interval."""
        total = len(self.records)
        return {
            stage: share_interval(sum(record.charged == stage for record in self.records), total)
            for stage in get_args(Charge)
        }

    def mended(self) -> dict[Replacement, Interval]:
        """Share of the trials of each replacement that gave a right answer, over those that were made."""
        trials = [trial for record in self.records for trial in record.trials if trial.error is None]
        made = {name: [trial.em for trial in trials if trial.replaced == name] for name in get_args(Replacement)}
        return {name: share_interval(sum(right), len(right)) for name, right in made.items() if right}

    def off_topic(self) -> dict[Charge, tuple[int, int]]:
        """Of the errors of each stage, how many answers were off-topic, and of how many that is known."""
        known = [record for record in self.records if record.off_topic is not None]
        return {
            stage: (
                sum(bool(record.off_topic) for record in known if record.charged == stage),
                sum(record.charged == stage for record in known),
            )
            for stage in get_args(Charge)
        }

    def to_dict(self) -> dict[str, Any]:
        """A JSON object of the figures; shares are fractions."""
        return {
            "schema": SCHEMA,
            "kind": "diagnosis",
            "run": self.header.run.name,
            "answered": self.answered,
            "errors": len(self.records),
            "convention": CONVENTION,
            "charged": {name: asdict(value) for name, value in self.charged().items()},
            "off_topic": {name: {"off_topic": hits, "known": n} for name, (hits, n) in self.off_topic().items()},
            "mended": {name: asdict(value) for name, value in self.mended().items()},
        }

    def to_json(self) -> str:
        """The figures as JSON, with a newline at the end."""
        return json.dumps(self.to_dict(), indent=1, ensure_ascii=False, allow_nan=False) + "\n"

    def tables(self) -> list[Table]:
        """What the errors are charged to, and what each replacement mends."""
        total, off_topic = len(self.records), self.off_topic()
        rows = []
        for stage, found in self.charged().items():
            hits, known = off_topic[stage]
            count = sum(record.charged == stage for record in self.records)
            if count:
                rows.append((stage, str(count), share(found), f"{hits} of {known}"))
        notes = (
            f"{total:,} wrong answers of {self.answered:,}. {CONVENTION} In brackets Wilson's 95 % intervals.",
            "Unexplained: no replacement that the data allows mends it. Reading or composition: all passages were "
            "given, and there was nothing else to replace.",
        )
        causes = Table(
            f"What the errors of {self.header.run.name} are charged to",
            ("stage", "errors", "% of errors", "off-topic"),
            tuple(rows),
            notes,
        )
        tried = "" if self.header.every else " Replacements were tried up to the first that mended an answer."
        trials = Table(
            "Right answers with one thing replaced",
            ("replaced", "tried on", "% right"),
            tuple((_DESCRIBED[name], str(found.n), share(found)) for name, found in self.mended().items()),
            (f"Of the wrong answers that allow the replacement.{tried}",),
        )
        return [causes, trials]

    def to_markdown(self) -> str:
        """The tables in Markdown, with a newline at the end."""
        return "\n\n".join(table.to_markdown() for table in self.tables()) + "\n"


def charge(trials: Sequence[Trial], *, passages: bool, answers: bool, divided: bool) -> Charge:
    """What an error is charged to, see :data:`CONVENTION`.

    Args:
        trials: What was tried, in order.
        passages: Whether gold passages were among what was put in.
        answers: Whether gold intermediate answers were.
        divided: Whether the program asks sub-questions, so that their choice may be what went wrong.
    """
    for trial in trials:
        if trial.error is not None:
            return "failed"  # it might have been the first to mend the answer
        if trial.em:
            return CHARGED[trial.replaced]
    if answers:
        return "composition"
    return "reading or composition" if passages and not divided else "unexplained"


# Not in the class bodies, where they would become fields of the dataclasses.
_CLASSES: Iterable[type] = (Trial, DiagnosisRecord, DiagnosisHeader)
for _class in _CLASSES:
    _class.__pydantic_config__ = ConfigDict(extra="forbid", allow_inf_nan=False, strict=True)  # type: ignore[attr-defined]
