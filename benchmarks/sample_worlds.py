"""The gate on the sample's two worlds: real facts, which an LM may know, and invented ones, which it cannot know.

    python benchmarks/sample_worlds.py results/sample-test-active.jsonl --labels results/sample-test-memory-labels.json

Reads a run file of ``hopgate evaluate sample`` and prints, for each world, how many hops search and how many answers
from memory are right. LABELS is a JSON object of ``id/hop``: whether that answer from memory is right, judged by hand.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import numpy as np
from index_common import table

from hopgate.evaluation import RunRecord, mean_interval, read_run, sample_questions
from hopgate.evaluation.statistics import LEVEL, RESAMPLES, SEED, Interval, bootstrap_interval
from hopgate.evaluation.tables import figure

WORLDS = ("real", "invented")


@click.command()
@click.argument("path", type=click.Path(path_type=Path, exists=True), metavar="RUN")
@click.option("--labels", type=click.Path(path_type=Path, exists=True), required=True)
def main(path: Path, labels: Path) -> None:
    """See the module's description."""
    judged = json.loads(labels.read_text(encoding="utf-8"))
    world_of = {question.id: question.world for question in sample_questions()}
    records = {world: [r for r in read_run(path).answered if world_of[r.id] == world] for world in WORLDS}
    hops = {world: searches(own) for world, own in records.items()}
    rows = []
    for world, own in records.items():
        memory = [
            judged[f"{record.id}/{number}"]
            for record in own
            for number, hop in enumerate(record.trajectory.hops if record.trajectory else (), 1)
            if hop.source == "memory"
        ]
        rows.append(
            [
                world,
                len(own),
                int(hops[world][1].sum()),
                figure(bootstrap_interval(hops[world], share)),
                f"{sum(memory)} of {len(memory)}",
                figure(mean_interval([float(record.scores.em) for record in own])),
            ]
        )
    table(["world", "questions", "hops", "hops that search", "answers from memory that are right", "EM"], rows)
    more = figure(share_difference(hops["invented"], hops["real"]))
    print(
        f"Hops of the invented world search more often by {more}. {100 * LEVEL:g} % bootstrap intervals over questions."
    )


def searches(records: list[RunRecord]) -> np.ndarray:
    """Hops that search, and all hops, of each question: shape (2, questions)."""
    found = [[hop.source == "search" for hop in record.trajectory.hops] for record in records if record.trajectory]
    return np.array([[sum(hops) for hops in found], [len(hops) for hops in found]], dtype=float)


def share(hits: Any, of: Any, axis: int = -1) -> Any:
    """Share over all hops of the questions drawn; hops of one question are drawn together."""
    return np.sum(hits, axis) / np.sum(of, axis)


def share_difference(one: np.ndarray, other: np.ndarray) -> Interval:
    """Difference of the shares in two separate groups of questions."""
    from scipy.stats import bootstrap

    def statistic(i: Any, j: Any, axis: int = -1) -> Any:
        return share(*one[:, i], axis=axis) - share(*other[:, j], axis=axis)

    questions = np.arange(one.shape[1]), np.arange(other.shape[1])
    drawn = bootstrap(
        questions,
        statistic,
        n_resamples=RESAMPLES,
        vectorized=True,
        method="percentile",
        confidence_level=LEVEL,
        rng=np.random.default_rng(SEED),
    ).confidence_interval
    return Interval(float(statistic(*questions)), float(drawn.low), float(drawn.high), one.shape[1] + other.shape[1])


if __name__ == "__main__":
    main()
