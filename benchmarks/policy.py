"""A learned policy against thresholds, on recorded decision trees and without an LM call.

    python benchmarks/policy.py train --train TRAIN-trees.jsonl --test TEST-trees.jsonl --penalty 0.05 --penalty 0.1 \
        --out policy.json
    python benchmarks/policy.py train --train-runs RAG.jsonl ESCALATED.jsonl --test-runs RAG.jsonl ESCALATED.jsonl
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from index_common import table
from trees import trees_from

if TYPE_CHECKING:
    import numpy as np

    from hopgate.evaluation import Interval
    from hopgate.optimizers import TrainedPolicy, Tree

    Array = np.ndarray[Any, np.dtype[Any]]

_FILE = click.Path(path_type=Path, exists=True)


@click.group()
def main() -> None:
    """See the module's description."""


@main.command()
@click.option("--train", multiple=True, type=_FILE, metavar="TREES", help="Trees to train on.")
@click.option("--test", multiple=True, type=_FILE, metavar="TREES", help="Trees of other questions.")
@click.option("--train-runs", nargs=2, multiple=True, metavar="KEPT GONE_ON", help="Two runs as trees to train on.")
@click.option("--test-runs", nargs=2, multiple=True, metavar="KEPT GONE_ON", help="Likewise of other questions.")
@click.option(
    "--penalty",
    "penalties",
    multiple=True,
    type=float,
    default=(0.05,),
    show_default=True,
    help="What a search is worth in EM.",
)
@click.option("--feature", "features", multiple=True, help="Features beside confidence and step; all by default.")
@click.option("--seeds", default=5, show_default=True, help="How many.")
@click.option("--validation", default=0.25, show_default=True, help="Share of the questions to hold out.")
@click.option("--out", type=click.Path(path_type=Path), help="File for policies, learning curves and figures.")
def train(
    train: tuple[Path, ...],
    test: tuple[Path, ...],
    train_runs: tuple[tuple[str, str], ...],
    test_runs: tuple[tuple[str, str], ...],
    penalties: tuple[float, ...],
    features: tuple[str, ...],
    seeds: int,
    validation: float,
    out: Path | None,
) -> None:  # fmt: skip
    """Train a policy for each penalty, and compare it on other questions with the fitted thresholds that it started
    from, chance and an oracle at as many searches, always, and never. Seconds go to standard error and to the file."""
    from hopgate.core import write_atomic
    from hopgate.optimizers import evaluate_policy, train_policy

    fitted_on, applied_to = _trees(train, train_runs), _trees(test, test_runs)
    if shared := {tree.id for tree in fitted_on} & {tree.id for tree in applied_to}:
        raise click.UsageError(f"{len(shared)} questions are in both sets, such as {min(shared)!r}")
    complete = [sum(tree.complete for tree in trees) for trees in (fitted_on, applied_to)]
    print(
        f"Trained on {len(fitted_on)} questions ({complete[0]} complete trees), applied to {len(applied_to)} others "
        f"({complete[1]} complete).\n"
    )
    records: list[dict[str, Any]] = []
    for penalty in penalties:
        start = time.perf_counter()
        trained = train_policy(
            fitted_on,
            penalty=penalty,
            features=features or None,
            validation=validation or None,
            seeds=range(seeds),
        )
        seconds = time.perf_counter() - start
        click.echo(f"penalty {penalty}: {len(trained.curve)} epochs of {seeds} seeds in {seconds:.1f} s", err=True)
        rows = _compared(trained, applied_to)
        where = evaluate_policy(fitted_on, trained.gate).point
        shown = ", ".join(f"{step} {tau:.3f}" for step, tau in trained.thresholds.items())
        kept = " Nothing was gained on the questions held out: the thresholds are kept." if trained.kept_start else ""
        print(
            f"Penalty {penalty}: thresholds {shown}; the policy has EM {where.score:.3f} at {where.retrievals:.2f} "
            f"searches where it was trained; reward on the {trained.questions[1]} questions held out "
            f"{_plain(trained.started.validation)} at first, {_plain(trained.chosen.validation)} in the end.{kept}\n"
        )
        table(["", "EM", "searches", "EM - penalty x searches", "less that of the thresholds", "nearest"], rows)
        records.append({"seconds": seconds, "trained": trained.to_dict(), "table": rows})
    if out is not None:
        write_atomic(out, json.dumps(records, indent=1) + "\n")


def _trees(files: Sequence[Path], runs: Sequence[tuple[str, str]]) -> list[Tree]:
    found = trees_from(files, runs)
    if not found:
        raise click.UsageError(
            "trees are needed to train on and to apply to: --train or --train-runs, and so for --test"
        )
    return found


def _compared(trained: TrainedPolicy, trees: list[Tree]) -> list[list[str]]:
    import math

    from hopgate.optimizers import always, evaluate_policy, never, oracle, random_at
    from hopgate.optimizers.curve import Boxes

    boxes, penalty = Boxes(trees), trained.penalty
    policy, start = evaluate_policy(trees, trained.gate), evaluate_policy(trees, trained.start)
    chance = random_at(trees, policy.point.retrievals)
    ideal = oracle(trees, policy.point.retrievals)
    base = start.scores - penalty * start.retrievals

    def row(name: str, scores: Array, searches: Array, nearest: Any) -> list[str]:
        rewards = scores - penalty * searches
        return [name, *map(_interval, (scores, searches, rewards, rewards - base)), str(nearest)]

    def at(tau: float) -> tuple[Array, Array]:
        rows, _ = boxes.rows(dict.fromkeys(boxes.steps, tau))
        return boxes.score[rows], boxes.costs["retrievals"][rows]

    reward = ideal.score - penalty * ideal.retrievals
    return [
        row("fitted thresholds", start.scores, start.retrievals, start.point.nearest),
        row("policy", policy.scores, policy.retrievals, policy.point.nearest),
        row("random, as many searches", chance.score, chance.retrievals, f"{chance.unexplored:.2f}"),
        ["oracle, at most as many", f"{ideal.score:.3f}", f"{ideal.retrievals:.2f}", f"{reward:.3f}",
         f"{reward - base.mean():.3f}", str(ideal.nearest)],
        row("always", *at(0.0), always(trees).nearest),
        row("never", *at(-math.inf), never(trees).nearest),
    ]  # fmt: skip


def _interval(values: Iterable[float]) -> str:
    from hopgate.evaluation.statistics import mean_interval

    found: Interval = mean_interval([float(value) for value in values])
    ends = "" if found.low is None or found.high is None else f" [{found.low:.3f}, {found.high:.3f}]"
    return f"{found.value:.3f}{ends}"


def _plain(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


if __name__ == "__main__":
    main()
