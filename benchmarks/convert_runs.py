"""Bring runs that were recorded before there was `hopgate evaluate` into its form, with no LM asked again.

python benchmarks/convert_runs.py OLD.jsonl NEW.jsonl --questions FOLDER|FILE --name NAME [--index DIR]

Answers, sub-questions, drafts, confidences, decisions, passage ids and costs are taken over; scores are computed again.
What was not recorded stays unknown: passages' scores, the least log-probabilities, versions, the program's state, the
price, and when the run began. The header says `converted` in place of the versions.
"""

from __future__ import annotations

import json
import math
from dataclasses import fields
from pathlib import Path
from typing import Any

import click

from hopgate.evaluation.datasets import load_questions
from hopgate.evaluation.records import (
    ConfidenceRecord,
    DataHeader,
    HopRecord,
    IndexHeader,
    PassageRecord,
    ProgramHeader,
    RunCost,
    RunHeader,
    RunRecord,
    Scores,
    TrajectoryRecord,
    read_run,
    without_question,
    write_run,
)
from hopgate.evaluation.scoring import score_answer
from hopgate.index import read_info

ADAPTERS = {"compact": "CompactAdapter", "chat": "ChatAdapter"}
SEARCHING = ("active", "rag")


def confidence(mean: float | None) -> ConfidenceRecord | None:
    """A confidence of which only the mean was recorded."""
    return None if mean is None else ConfidenceRecord(mean)


def passages(ids: list[str]) -> tuple[PassageRecord, ...]:
    """Passages of which only the ids were recorded."""
    return tuple(PassageRecord(identity) for identity in ids)


def converted(old: dict[str, Any], question: Any) -> RunRecord:
    """An old record in the new form."""

    def clean(text: str | None) -> str | None:
        return None if text is None else without_question(text, question.question)

    hops = tuple(
        HopRecord(
            sub_question=str(clean(hop["sub_question"])),
            draft=clean(hop["draft"]),
            confidence=confidence(hop["confidence"]),
            source=hop["source"],
            passages=passages(hop["passages"]),
            answer=str(clean(hop["answer"])),
            answer_confidence=confidence(hop["answer_confidence"]),
        )
        for hop in old["hops"]
    )
    found = [identity for hop in old["hops"] for identity in hop["passages"]] + old["passages"]
    scores = score_answer(
        question,
        old["answer"],
        normalisation="official",
        passage_ids=found if old["program"] in SEARCHING else None,
    )
    if scores["em"] != old["em"] or not math.isclose(scores["f1"], old["f1"]):
        raise click.ClickException(f"{old['id']}: the scores were {old['em']}, {old['f1']} and are now {scores}")
    known = {field.name for field in fields(RunCost)}
    return RunRecord(
        id=old["id"],
        status="ok",
        answer=clean(old["answer"]),
        type=question.type,
        hops=question.hops,
        scores=Scores(**scores),
        trajectory=TrajectoryRecord(
            hops=hops,
            passages=passages(old["passages"]),
            answer_confidence=confidence(old["confidence"]),
            stop_reason=old["stop_reason"],
        ),
        cost=RunCost(**{name: value for name, value in old["cost"].items() if name in known}),
    )


def index_of(folder: Path | None, program: str) -> IndexHeader | None:
    """The manifest of the index that was searched, if it is still there."""
    if program not in SEARCHING:
        return None
    if folder is None:
        return IndexHeader()
    info = read_info(folder)
    return IndexHeader(**{name: info.get(name) for name in IndexHeader.__dataclass_fields__})


@click.command()
@click.argument("old", type=click.Path(path_type=Path, exists=True))
@click.argument("new", type=click.Path(path_type=Path))
@click.option("--questions", "source", required=True, help="The questions that were asked.")
@click.option("--name", required=True, help="Name of the data set.")
@click.option("--split", help="Its split.")
@click.option("--index", "folder", type=click.Path(path_type=Path, exists=True), help="The index that was searched.")
def main(old: Path, new: Path, source: str, name: str, split: str | None, folder: Path | None) -> None:
    """Convert OLD into NEW."""
    rows = [json.loads(line) for line in old.read_text(encoding="utf-8").splitlines()]
    by_id = {question.id: question for question in load_questions(source, split=split)}
    first = rows[0]
    header = RunHeader(
        name=new.stem,
        program=ProgramHeader(first["program"], settings=first["settings"]),
        # With the options that benchmarks/run.py gave every embedded LM.
        lm={"model": first["model"], "temperature": 0.0, "max_tokens": 512, "cache": False},
        seed=0,
        normalisation="official",
        versions={"converted": "by benchmarks/convert_runs.py"},
        index=index_of(folder, first["program"]),
        data=DataHeader(name, split, ids=tuple(row["id"] for row in rows)),
        adapter=ADAPTERS[first["adapter"]],
    )
    write_run(new, header, [converted(row, by_id[row["id"]]) for row in rows])
    run = read_run(new)
    print(f"{new}: {len(run.records)} records, EM {sum(r.scores.em for r in run.records) / len(run.records):.3f}")


if __name__ == "__main__":
    main()
