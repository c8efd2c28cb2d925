"""AUROC of a draft's confidence for its correctness, hop by hop, along gold chains of MuSiQue.

Two kinds of draft for each sub-question: ``fork`` (question and conclusions alone, as ActiveQA drafts) and ``passages``
(as ``fork``, with the passages in view that a search for the whole question finds). A draft is right if the gold answer
and the draft contain each other as whole words.

    python benchmarks/gate.py run --data DIR --index DIR --out benchmarks/results/gate.jsonl
    python benchmarks/gate.py report benchmarks/results/gate.jsonl
    python benchmarks/gate.py fit benchmarks/results/sample-train-drafts.jsonl
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import dspy
import numpy as np
from records import questions, read
from scipy.stats import mannwhitneyu

from hopgate.evaluation.metrics import cover_em
from hopgate.index import ColBERTIndex
from hopgate.lms import CompactAdapter, answer_confidence, lm_from_config
from hopgate.optimizers import fit_tau
from hopgate.programs.gates import echoes
from hopgate.programs.trajectory import Hop, Trajectory
from hopgate.programs.transcript import found, line, transcript, worked_example
from hopgate.programs.worked_examples import DEFAULT_EXAMPLES
from hopgate.signatures import DraftConclusion

KINDS = ("fork", "passages")


@click.group()
def main() -> None:
    """See the module's description."""


@main.command()
@click.option(
    "--data", type=click.Path(path_type=Path, exists=True), help="Folder of questions.jsonl; else the sample."
)
@click.option("--split", type=click.Choice(["train", "test"]), help="Half of the sample.")
@click.option("--index", "index_path", type=click.Path(path_type=Path, exists=True), help="For the kind `passages`.")
@click.option("--out", type=click.Path(path_type=Path), required=True)
@click.option("--lm", "model", default="embedded/qwen2.5-coder-1.5b", show_default=True)
@click.option("--first", default=60, show_default=True, help="Only so many questions.")
@click.option("--kind", "kinds", type=click.Choice(KINDS), multiple=True, default=KINDS, show_default=True)
def run(
    data: Path | None,
    split: str | None,
    index_path: Path | None,
    out: Path,
    model: str,
    first: int,
    kinds: tuple[str, ...],
) -> None:
    """Record drafts and confidences; a run that was stopped goes on where it was."""
    done = {(r["id"], r["hop"], r["kind"]) for r in read(out)}
    index = ColBERTIndex.open(index_path) if index_path else None
    if index is None and "passages" in kinds:
        raise click.UsageError("the kind `passages` needs --index")
    demos = [{"question": "", "transcript": worked_example(example, words=70)} for example in DEFAULT_EXAMPLES]
    out.parent.mkdir(parents=True, exist_ok=True)
    lm = lm_from_config({"model": model, "logprobs": True})
    with dspy.context(lm=lm, adapter=CompactAdapter()), out.open("a") as file:
        for row in questions(data, split, first):
            for number, (sub_question, gold, prefix) in enumerate(_chain(row), 1):
                for kind in kinds:
                    if (row["id"], number, kind) in done:
                        continue
                    draft, confidence = _draft(kind, sub_question, prefix, number, demos, index)
                    right = cover_em(draft, [gold]) or cover_em(gold, [draft])
                    record = {
                        "id": row["id"], "hop": number, "kind": kind, "draft": draft, "right": right,
                        "echo": echoes(draft, sub_question),
                        "mean": confidence.mean, "sum": confidence.sum, "min": confidence.min,
                        "first": confidence.first, "tokens": confidence.tokens,
                    }  # fmt: skip
                    file.write(json.dumps(record) + "\n")
                    file.flush()


def _chain(row: dict[str, Any]) -> Iterator[tuple[str, str, Trajectory]]:
    """(sub-question, gold answer, gold trajectory before it) for each hop."""
    answers: list[str] = []
    hops: tuple[Hop, ...] = ()
    for step in row["decomposition"]:
        sub_question = step["question"]
        for number, answer in enumerate(answers, 1):
            sub_question = sub_question.replace(f"#{number}", answer)
        yield sub_question, step["answer"], Trajectory(row["question"], hops)
        hops = (*hops, Hop(sub_question, answer=step["answer"]))
        answers.append(step["answer"])


def _draft(
    kind: str,
    sub_question: str,
    prefix: Trajectory,
    number: int,
    demos: list[dict[str, Any]],
    index: ColBERTIndex | None,
) -> tuple[str, Any]:
    seen = found(index.search(prefix.question, 3), 70) if index is not None and kind == "passages" else []
    lines = [*seen, transcript(prefix, words=None), line(f"Task {number}:", sub_question)]
    prediction = dspy.Predict(DraftConclusion)(
        question=prefix.question, trajectory="\n".join(filter(None, lines)), demos=demos
    )
    return str(prediction.draft), answer_confidence(prediction, "draft")


@main.command()
@click.argument("path", type=click.Path(path_type=Path, exists=True))
def report(path: Path) -> None:
    """Print a Markdown table of AUROCs with 95 % bootstrap intervals over questions."""
    records = read(path)
    print("| draft | hops | n | right | AUROC mean | min | sum | first | above -.3: share, right |")
    print("|---|---|---|---|---|---|---|---|---|")
    for kind in KINDS:
        for name, wanted in (
            ("1", lambda hop: hop == 1),
            ("2 or later", lambda hop: hop > 1),
            ("all", lambda hop: True),
        ):
            rows = [r for r in records if r["kind"] == kind and wanted(r["hop"])]
            cells = [_interval(rows, measure) for measure in ("mean", "min", "sum", "first")]
            kept = [r for r in rows if r["mean"] is not None and r["mean"] >= -0.3]
            right = f"{_share(kept):.2f}" if kept else "-"
            print(
                f"| {kind} | {name} | {len(rows)} | {_share(rows):.2f} | {' | '.join(cells)} | "
                f"{len(kept) / max(1, len(rows)):.2f}, {right} |"
            )


@main.command()
@click.argument("path", type=click.Path(path_type=Path, exists=True))
def fit(path: Path) -> None:
    """Fit tau on the drafts of kind `fork`."""
    rows = [r for r in read(path) if r["kind"] == "fork"]
    # The gate never keeps an echo, so an echo is no evidence on where tau should be.
    print(fit_tau([None if r["echo"] else r["mean"] for r in rows], [r["right"] for r in rows]))


def _share(rows: list[dict[str, Any]]) -> float:
    return float(np.mean([r["right"] for r in rows])) if rows else float("nan")


def _auroc(rows: list[dict[str, Any]], measure: str) -> float:
    score = np.array([-1e9 if r[measure] is None else r[measure] for r in rows])
    right = np.array([r["right"] for r in rows], dtype=bool)
    if right.all() or not right.any():
        return float("nan")
    return float(mannwhitneyu(score[right], score[~right]).statistic / (right.sum() * (~right).sum()))


def _interval(rows: list[dict[str, Any]], measure: str) -> str:
    # Hops of one question are not independent: whole questions are drawn.
    by_question: dict[str, list[dict[str, Any]]] = {}
    for record in rows:
        by_question.setdefault(record["id"], []).append(record)
    groups, rng = list(by_question.values()), np.random.default_rng(0)
    draws = [
        _auroc([r for i in rng.integers(0, len(groups), len(groups)) for r in groups[i]], measure) for _ in range(1000)
    ]
    low, high = np.nanpercentile(draws, [2.5, 97.5])
    return f"{_auroc(rows, measure):.2f} [{low:.2f}, {high:.2f}]"


if __name__ == "__main__":
    main()
