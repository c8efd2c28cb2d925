"""Hand labels of off-topic answers: is an answer, right or wrong, of a kind that the question asks for?

Answers are labelled on a sheet that shows question and answer alone, shuffled: neither the run nor the gold answer nor
any verdict. The labels are kept with the runs, by run, question id and the SHA-256 of the answer as the run file has
it.

    python benchmarks/offtopic_labels.py sheet RUN... --data QUESTIONS --out SHEET.csv
    python benchmarks/offtopic_labels.py keep SHEET.csv RUN... --out benchmarks/results/offtopic-labels.jsonl
    python benchmarks/offtopic_labels.py judge RUN... --data QUESTIONS --labels LABELS --out VERDICTS
    python benchmarks/offtopic_labels.py report RUN... --data QUESTIONS --labels LABELS --verdicts VERDICTS

Of runs of Dr3 the answers of all attempts are on the sheet, and the report has the answers after each of its stages.
"""

from __future__ import annotations

import csv
import hashlib
import random
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from index_common import append, read, table

from hopgate.evaluation import Question, Run, load_questions, off_topic, read_run, score_answer
from hopgate.evaluation.statistics import share_interval
from hopgate.evaluation.tables import share

if TYPE_CHECKING:
    from hopgate.evaluation.records import AttemptRecord

ROOT = Path(__file__).resolve().parent.parent
YES, NO = {"y", "yes", "1", "true"}, {"n", "no", "0", "false"}
STAGES = ("solve", "recompose", "resolve", "redecompose")
RANK = {"off_topic": 0, "undecided": 1, None: 1, "on_topic": 2}
"""As :mod:`hopgate.programs.corrector` tells the best of several attempts."""

Key = tuple[str, str]
"""Question id, and the answer's digest."""

RUNS = click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True))
DATA = click.option("--data", "sources", multiple=True, required=True, help="Questions of the runs: a file or folder.")
LABELS = click.option("--labels", type=click.Path(path_type=Path, exists=True), required=True)


@click.group()
def main() -> None:
    """See the module's description."""


@main.command()
@RUNS
@DATA
@click.option("--out", type=click.Path(path_type=Path), required=True, help="A CSV file outside the repository.")
@click.option("--labels", type=click.Path(path_type=Path, exists=True), help="Leave out what is labelled already.")
@click.option("--count", default=100, show_default=True, help="Answers at most.")
@click.option("--seed", default=0, show_default=True)
def sheet(
    runs: tuple[Path, ...], sources: tuple[str, ...], out: Path, labels: Path | None, count: int, seed: int
) -> None:
    """Write a sheet to fill: y in the column off_topic if no answer of this kind could be right, n otherwise."""
    if ROOT in out.resolve().parents:
        raise click.UsageError(f"{out}: the sheet holds questions of a data set; write it outside {ROOT}")
    if out.exists():
        raise click.UsageError(f"{out}: is there already, and may be filled; name another file")
    asked, known = questions(sources), set(labelled(labels)) if labels else set()
    pairs = {(name, digest(answer)): answer for _, name, answer in answers(runs) if answer.strip()}
    keys = sorted(key for key in pairs if key not in known)
    random.Random(seed).shuffle(keys)
    with out.open("x", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["key", "question", "answer", "off_topic"])
        for name, code in keys[:count]:
            text = asked[name].question
            writer.writerow([f"{name}/{code}", text, pairs[name, code].replace("{question}", text), ""])
    print(f"{min(count, len(keys))} of {len(keys)} different answers are on {out}.")


@main.command()
@click.argument("path", type=click.Path(path_type=Path, exists=True), metavar="SHEET")
@RUNS
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Labels (JSON Lines); added to.")
def keep(path: Path, runs: tuple[Path, ...], out: Path) -> None:
    """Keep the labels of a filled sheet, without its texts."""
    told: dict[Key, bool] = {}
    empty = 0
    with path.open(newline="", encoding="utf-8") as file:
        for number, row in enumerate(csv.DictReader(file), 2):
            mark = (row.get("off_topic") or "").strip().lower()
            if mark and mark not in YES | NO:
                raise click.UsageError(f"{path}, line {number}: off_topic is {mark!r}; write y or n, or leave it empty")
            name, _, code = row["key"].rpartition("/")
            empty += not mark
            if mark:
                told[name, code] = mark in YES
    known = {(record["run"], record["id"], record["answer_sha256"]) for record in read(out)}
    found = {(run, name, digest(answer)) for run, name, answer in answers(runs)}
    lost = set(told) - {(name, code) for _, name, code in found}
    if lost:
        raise click.UsageError(
            f"{path}: {len(lost)} answers are in none of the runs (the first is of {min(lost)[0]!r})"
        )
    for run, name, code in sorted(found - known):
        if (name, code) in told:
            append(out, {"run": run, "id": name, "answer_sha256": code, "off_topic": told[name, code]})
    print(f"{len(told)} labels, {sum(told.values())} of them off-topic; {empty} rows are not filled.")


@main.command()
@RUNS
@DATA
@LABELS
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Verdicts (JSON Lines); gone on with.")
@click.option("--lm", "model", default="embedded/qwen2.5-coder-1.5b", show_default=True)
def judge(runs: tuple[Path, ...], sources: tuple[str, ...], labels: Path, out: Path, model: str) -> None:
    """Record the discriminator's verdict on each labelled answer; a run that was stopped goes on where it was."""
    import dspy

    from hopgate.lms import CompactAdapter, lm_from_config
    from hopgate.programs import Discriminator

    asked, wanted = questions(sources), labelled(labels)
    done = {(record["id"], record["answer_sha256"]) for record in read(out)}
    texts = {(name, digest(answer)): answer for _, name, answer in answers(runs)}
    discriminator = Discriminator()
    with dspy.context(lm=lm_from_config(model), adapter=CompactAdapter(), trace=[]):
        for name, code in sorted(set(wanted) & set(texts) - done):
            question = asked[name].question
            judged = discriminator(question=question, answer=texts[name, code].replace("{question}", question))
            found = {"verdict": judged.verdict, "probability": judged.probability}
            append(out, {"id": name, "answer_sha256": code, **found})


@main.command()
@RUNS
@DATA
@LABELS
@click.option("--verdicts", type=click.Path(path_type=Path, exists=True), help="Verdicts of `judge`.")
def report(runs: tuple[Path, ...], sources: tuple[str, ...], labels: Path, verdicts: Path | None) -> None:
    """Print Markdown tables: the discriminator by the labels, each run, and Dr3 after each stage."""
    asked, truth = questions(sources), labelled(labels)
    opened = [read_run(path) for path in runs]
    if verdicts is not None:
        texts = {(name, digest(answer)): answer for _, name, answer in answers(runs)}
        judged = {(record["id"], record["answer_sha256"]): record["verdict"] for record in read(verdicts)}
        discriminator_table({key: judged[key] for key in truth if key in judged and key in texts}, truth, texts, asked)
    columns = ["run", "answers", "EM", "off-topic by labels", "off-topic by the rule"]
    table(columns, [[run.header.name, *figures(final_answers(run), truth, asked)] for run in opened])
    corrected = [run for run in opened if any(attempts(record) for record in run.answered)]
    if corrected:
        rows = [
            [f"{run.header.name}, up to {stage}", *figures(answers_after(run, number), truth, asked)]
            for run in corrected
            for number, stage in enumerate(STAGES, 1)
        ]
        table(["Dr3", *columns[1:]], rows)
    print("In percent; in brackets Wilson's 95 % intervals. Off-topic: of the answers that are labelled, or that the")
    print("rule can tell.")


def discriminator_table(
    judged: dict[Key, str], truth: dict[Key, bool], texts: dict[Key, str], asked: dict[str, Question]
) -> None:
    """Precision and recall of "off-topic", and how many of the flagged answers are wrong."""
    flagged = [key for key, verdict in judged.items() if verdict == "off_topic"]
    off = [key for key in judged if truth[key]]
    hits = sum(truth[key] for key in flagged)
    wrong = sum(not right(asked[key[0]], texts[key]) for key in flagged)
    undecided = sum(verdict == "undecided" for verdict in judged.values())
    table(
        ["answers", "off-topic", "flagged", "undecided", "precision", "recall", "flagged that are wrong"],
        [
            [
                len(judged), len(off), len(flagged), undecided, share(share_interval(hits, len(flagged))),
                share(share_interval(hits, len(off))), f"{wrong} of {len(flagged)}",
            ]
        ],
    )  # fmt: skip


def figures(given: dict[str, str], truth: dict[Key, bool], asked: dict[str, Question]) -> list[Any]:
    """Count, EM, off-topic rate by the labels and by the cheap rule, of answers by question id."""
    marks = [truth[key] for name, answer in given.items() if (key := (name, digest(answer))) in truth]
    joined = {name: answer.replace("{question}", asked[name].question) for name, answer in given.items()}
    ruled = [found for name, answer in joined.items() if (found := off_topic(asked[name].question, answer)) is not None]
    exact = sum(right(asked[name], answer) for name, answer in given.items())
    return [
        len(given),
        share(share_interval(exact, len(given))),
        f"{share(share_interval(sum(marks), len(marks)))} of {len(marks)}",
        f"{share(share_interval(sum(ruled), len(ruled)))} of {len(ruled)}",
    ]


# --- answers and labels -----------------------------------------------------------------------------------------------


def questions(sources: Iterable[str]) -> dict[str, Question]:
    """The questions by id."""
    return {question.id: question for source in sources for question in load_questions(source)}


def right(question: Question, answer: str) -> bool:
    """Whether an answer is an exact match."""
    return score_answer(question, answer.replace("{question}", question.question))["em"]


def answers(paths: Iterable[Path]) -> Iterator[tuple[str, str, str]]:
    """Run, question id and answer as the file has it, of all answers and attempts."""
    for path in paths:
        run = read_run(path)
        for record in run.answered:
            texts = [record.answer, *(attempt.answer for attempt in attempts(record))]
            for text in dict.fromkeys(text for text in texts if text):
                yield run.header.name, record.id, text


def attempts(record: Any) -> tuple[AttemptRecord, ...]:
    """The attempts of a record, oldest first."""
    return record.trajectory.revisions if record.trajectory is not None else ()


def final_answers(run: Run) -> dict[str, str]:
    """The answers by question id."""
    return {record.id: record.answer or "" for record in run.answered}


def answers_after(run: Run, stages: int) -> dict[str, str]:
    """The answers by question id had Dr3 only its first stages; the solver's own run is the first."""
    found = final_answers(run)
    for record in run.answered:
        made = [attempt for attempt in attempts(record) if attempt.stage in STAGES[:stages] and not attempt.error]
        if made:
            # Of several that are equally good the first is kept, as `max` does.
            best = max(made, key=lambda one: (RANK[one.verdict], one.probability or 0.0, bool(one.answer)))
            found[record.id] = best.answer or ""
    return found


def labelled(path: Path) -> dict[Key, bool]:
    """The labels; of several of one answer they must agree."""
    found: dict[Key, bool] = {}
    for record in read(path):
        key = record["id"], record["answer_sha256"]
        if found.setdefault(key, record["off_topic"]) != record["off_topic"]:
            raise click.UsageError(f"{path}: an answer to {key[0]!r} has two different labels; remove one of them")
    return found


def digest(answer: str) -> str:
    """The beginning of an answer's SHA-256."""
    return hashlib.sha256(answer.encode("utf-8", "replace")).hexdigest()[:32]


if __name__ == "__main__":
    main()
