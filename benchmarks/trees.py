"""Decision trees of a program on questions, recorded once: the exact score and cost at every threshold.

    python benchmarks/trees.py record DATA --index INDEX --program escalation --rows 1:60 --leaves 8 \
        --out benchmarks/results/hotpot-train-escalation-trees.jsonl
    python benchmarks/trees.py report benchmarks/results/hotpot-train-escalation-trees.jsonl --apply OTHER.jsonl
    python benchmarks/trees.py transfer --train RAG.jsonl ESCALATED.jsonl --test RAG.jsonl ESCALATED.jsonl
    python benchmarks/trees.py transfer --train-trees TRAIN.jsonl --test-trees TEST.jsonl
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click
import numpy as np
from index_common import table

if TYPE_CHECKING:
    from hopgate.evaluation import Interval
    from hopgate.optimizers import Transfer, Tree
    from hopgate.programs import Step

_FILE = click.Path(path_type=Path, exists=True)


@click.group()
def main() -> None:
    """See the module's description."""


@main.command()
@click.argument("data")
@click.option("--index", "index_path", required=True, help="Folder of the index, or address of an index server.")
@click.option("--program", "name", default="escalation", show_default=True, help="escalation or active, or a state.")
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="A setting of the program.")
@click.option("--split", help="Split of the data.")
@click.option("--rows", help="First and last question, counted from 1: 1:60.")
@click.option("--out", type=click.Path(path_type=Path), required=True)
@click.option("--leaves", default=8, show_default=True, help="Limit on the leaves of a question.")
@click.option("--step", "steps", multiple=True, help="A step to explore; all by default.")
@click.option("--lm", "model", help="The LM; the embedded one by default.")
@click.option("--seconds", type=float, help="Stop between questions after so long; the next call goes on.")
@click.option("--retry-errors", is_flag=True, help="Explore questions again that failed before.")
def record(
    data: str,
    index_path: str,
    name: str,
    settings: tuple[str, ...],
    split: str | None,
    rows: str | None,
    out: Path,
    leaves: int,
    steps: tuple[Step, ...],
    model: str | None,
    seconds: float | None,
    retry_errors: bool,
) -> None:
    """Record trees; a run that was stopped goes on where it was. DSPy's cache is used, so that calls of other programs
    on the same questions are not made again."""
    import dspy

    from hopgate.cli.run_inputs import lm_of, program_of, questions_of
    from hopgate.evaluation import Budget
    from hopgate.lms import CompactAdapter
    from hopgate.optimizers import TreeProgress, record_trees

    first, _, last = (rows or ":").partition(":")
    chosen = (int(first or 1), int(last or 10**9)) if rows else None
    questions, manifest = questions_of(data, split, None, None, 0, None, chosen)
    program = program_of(name, None, settings, index_path, None).program

    def progress(told: TreeProgress) -> None:
        click.echo(
            f"{told.done}/{told.total} questions, {told.leaves} leaves, {told.calls} LM calls, {told.errors} failed, "
            f"{told.seconds:.0f} s",
            err=True,
        )

    with dspy.context(lm=lm_of(model, (), cache=True), adapter=CompactAdapter()):
        trees = record_trees(
            program,
            questions,
            out,
            leaves=leaves,
            steps=steps or None,
            retries=1,
            retry_errors=retry_errors,
            budget=Budget(seconds=seconds),
            data=manifest,
            on_progress=progress,
        )
    if trees.stopped:
        click.echo(f"Stopped: {trees.stopped}; the same command goes on.", err=True)


@main.command()
@click.argument("path", type=_FILE)
@click.option("--apply", "other", type=_FILE, help="Trees of other questions.")
def report(path: Path, other: Path | None) -> None:
    """Print what was explored, the ends, what each rule chooses, and how thresholds do on other questions."""
    from hopgate.optimizers import (
        Tradeoff,
        WithinBest,
        WithinBudget,
        always,
        fit_tau,
        never,
        oracle,
        read_trees,
        transfer,
    )

    trees = read_trees(path)
    found = trees.explored
    leaves = [len(tree.leaves) for tree in found]
    calls = [sum(leaf.new_calls for leaf in tree.leaves) for tree in found]
    rows = [[
        len(trees.trees), sum(tree.error is not None for tree in trees.trees), sum(tree.exact for tree in found),
        sum(tree.complete for tree in found), f"{np.mean(leaves):.1f} (at most {max(leaves)})", f"{np.mean(calls):.1f}",
    ]]  # fmt: skip
    table(["questions", "failed", "exact", "complete", "leaves", "LM calls"], rows)
    rows = []
    for name, point in (("never", never(trees)), ("always", always(trees)), ("oracle", oracle(trees))):
        rows.append([name, "", f"{point.score:.3f}", f"{point.retrievals:.2f}", f"{point.lm_calls:.2f}", "", ""])
    rules = {
        "EM - .05 a search": Tradeoff(0.05),
        "within 2 points of the best": WithinBest(0.02),
        "within 1 search": WithinBudget(1.0),
        "within 1.5 searches": WithinBudget(1.5),
        "within 2 searches": WithinBudget(2.0),
    }
    for name, rule in rules.items():
        fitted = fit_tau(trees, rule)
        point, held = fitted.point, fitted.held_out
        shown = ", ".join(f"{step} {tau:.3f}" for step, tau in fitted.thresholds.items())
        rows.append([
            name, shown + (" (the original)" if fitted.kept_original else ""), f"{point.score:.3f}",
            f"{point.retrievals:.2f}", f"{point.lm_calls:.2f}", "-" if held is None else _shown(held),
            ", ".join(fitted.unresolved) or "none",
        ])  # fmt: skip
    table(["rule", "thresholds", "EM", "searches", "LM calls", "EM held out", "not resolved"], rows)
    if other is None:
        return
    _print(transfer(trees, read_trees(other)))


@main.command("transfer")
@click.option("--train", nargs=2, multiple=True, metavar="KEPT GONE_ON", help="Two runs to fit on, as trees.")
@click.option("--test", nargs=2, multiple=True, metavar="KEPT GONE_ON", help="Likewise to apply to.")
@click.option("--train-trees", multiple=True, type=_FILE, metavar="TREES", help="Recorded trees to fit on.")
@click.option("--test-trees", multiple=True, type=_FILE, metavar="TREES", help="Likewise to apply to.")
def transfer_to_others(
    train: tuple[tuple[str, str], ...],
    test: tuple[tuple[str, str], ...],
    train_trees: tuple[Path, ...],
    test_trees: tuple[Path, ...],
) -> None:
    """Fit thresholds for several budgets on some questions, and apply them to others.

    KEPT is a run of rag, GONE_ON one of escalation with memory=false and tau_grounded=0.
    """
    from hopgate.optimizers import transfer

    fitted_on, applied_to = trees_from(train_trees, train), trees_from(test_trees, test)
    if not fitted_on or not applied_to:
        raise click.UsageError("questions to fit on and others to apply to are needed: --train or --train-trees, ...")
    print(f"Fitted on {len(fitted_on)} questions, applied to {len(applied_to)} others.\n")
    _print(transfer(fitted_on, applied_to))


def trees_from(files: Iterable[Path], runs: Iterable[tuple[str, str]]) -> list[Tree]:
    """All explored trees of files, and those that pairs of runs amount to."""
    from hopgate.evaluation import read_runs
    from hopgate.optimizers import read_trees, runs_as_trees

    found = [tree for path in files for tree in read_trees(path).explored]
    return found + [tree for pair in runs for tree in runs_as_trees(*read_runs(pair))]


def _print(moved: Transfer) -> None:
    rows = [
        [
            row.budget, ", ".join(f"{step} {tau:.3f}" for step, tau in row.fitted.thresholds.items()),
            f"{row.fitted.point.score:.3f} at {row.fitted.point.retrievals:.2f}", _shown(row.score),
            _shown(row.retrievals), _shown(row.random), _shown(row.gain), f"{row.oracle.score:.3f}", row.nearest,
        ]
        for row in moved.rows
    ]  # fmt: skip
    for name, point in (("always", moved.always), ("never", moved.never)):
        rows.append([name, "", "", f"{point.score:.3f}", f"{point.retrievals:.2f}", "", "", "", point.nearest])
    header = ["budget", "thresholds", "EM where fitted", "EM on others", "searches", "random", "gain", "oracle"]
    table([*header, "nearest"], rows)


def _shown(found: Interval) -> str:
    ends = "" if found.low is None or found.high is None else f" [{found.low:.3f}, {found.high:.3f}]"
    return f"{found.value:.3f}{ends}"


if __name__ == "__main__":
    main()
