"""LM calls and searches of the exact tau curve, against trials that answer the questions once for each threshold.

    python benchmarks/trees.py record DATA --index INDEX --program active --rows 1:20 --out TREES.jsonl
    python benchmarks/curve_calls.py count TREES.jsonl --first 20
    hopgate evaluate DATA --first 10 --index INDEX --program active --set tau=-0.4 --out RUN.jsonl
    python benchmarks/curve_calls.py check TREES.jsonl RUN.jsonl

``count`` replays recorded trees: what the program takes at a threshold is the recorded cost of the leaf that it leads
to. ``check`` compares this, question by question, with a run of the program that used no cache.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import click
import numpy as np
from index_common import table

if TYPE_CHECKING:
    from hopgate.optimizers import Tree
    from hopgate.optimizers.tree_schema import Leaf

_FILE = click.Path(path_type=Path, exists=True)
_STEP = "hop"


@click.group()
def main() -> None:
    """See the module's description."""


@dataclass
class Replay:
    """What trying thresholds takes, one after the other.

    Attributes:
        trees: The trees, one a question.
        calls: LM calls so far, without a cache.
        retrievals: Searches so far; DSPy's cache does not spare them.
        tried: EM and searches a question by threshold, in the order of trying.
        reached: The leaves that were reached, by question.
    """

    trees: list[Tree]
    calls: int = 0
    retrievals: int = 0
    tried: dict[float, tuple[float, float]] = field(default_factory=dict)
    reached: dict[str, set[int]] = field(default_factory=dict)

    def run(self, tau: float) -> tuple[float, float]:
        """Answer every question at a threshold: EM and searches a question."""
        right = searches = 0
        for tree in self.trees:
            leaf = leaf_of(tree, tau)
            self.calls += leaf.lm_calls
            self.retrievals += leaf.retrievals
            self.reached.setdefault(tree.id, set()).add(tree.leaves.index(leaf))
            right, searches = right + leaf.em, searches + leaf.retrievals
        self.tried[tau] = (right / len(self.trees), searches / len(self.trees))
        return self.tried[tau]

    def distinct_calls(self) -> int:
        """LM calls so far if each distinct one is made once, as with DSPy's cache."""
        return sum(distinct_calls(tree, self.reached.get(tree.id, set())) for tree in self.trees)

    def best(self, penalty: float) -> tuple[float, float, float]:
        """The best objective with its EM and searches a question."""
        return max((em - penalty * searches, em, searches) for em, searches in self.tried.values())


def leaf_of(tree: Tree, tau: float) -> Leaf:
    leaf, exact = tree.leaf_at({_STEP: tau})
    if not exact:
        raise click.UsageError(f"question {tree.id}: the leaf at tau {tau:.3f} was not explored; record more leaves")
    return leaf


def distinct_calls(tree: Tree, reached: Iterable[int]) -> int:
    """Distinct LM calls on the way to some leaves of a tree.

    A leaf shares its first calls with the one that it branched off from, and made the others anew.
    """
    needed = [0] * len(tree.leaves)  # of each leaf's own calls, counted from its root
    for place in reached:
        needed[place] = tree.leaves[place].lm_calls
    total = 0
    for place in range(len(tree.leaves) - 1, -1, -1):
        leaf = tree.leaves[place]
        shared = leaf.lm_calls - leaf.new_calls
        if needed[place]:
            total += max(0, needed[place] - shared)
            if place:
                parent = max(range(place), key=lambda other: _common(tree.leaves[other], leaf))
                needed[parent] = max(needed[parent], min(shared, needed[place]))
    return total


def _common(one: Leaf, other: Leaf) -> int:
    return next(
        (place for place, (a, b) in enumerate(zip(one.path, other.path, strict=False)) if a != b), len(one.path)
    )


@main.command()
@click.argument("path", type=_FILE)
@click.option("--first", default=20, show_default=True, help="Questions to count on.")
@click.option("--trials", default=20, show_default=True, help="Of Optuna.")
@click.option("--candidates", default=40, show_default=True, help="Of the sweep.")
@click.option("--penalty", default=0.05, show_default=True, help="What a search is worth in EM.")
@click.option("--seed", default=0, show_default=True)
def count(path: Path, first: int, trials: int, candidates: int, penalty: float, seed: int) -> None:
    """Print what each way of choosing tau takes, and the best that it finds."""
    from hopgate.optimizers import read_trees, tau_curve

    trees = list(read_trees(path).explored)[:first]
    if any(node.step != _STEP for tree in trees for node in tree.nodes):
        raise click.UsageError(f"{path}: one threshold is wanted, that of hops; record the trees of `active`")
    curve = tau_curve(trees)
    exact = max(
        (float(em - penalty * searches), float(em), float(searches))
        for em, searches in zip(curve.score, curve.retrievals, strict=True)
    )
    # Leaves that no threshold leads to are recorded for other gates, and are not part of the curve.
    reached = [[place for place, leaf in enumerate(tree.leaves) if tree.possible(leaf.path)] for tree in trees]
    calls = sum(distinct_calls(tree, places) for tree, places in zip(trees, reached, strict=True))
    searches = sum(tree.leaves[p].new_retrievals for tree, places in zip(trees, reached, strict=True) for p in places)
    optuna = _optuna(trees, trials, penalty, seed)
    sweep = _sweep(trees, candidates)
    rows = [["the exact curve", calls, searches, "1.00", *_best(exact)]]
    for name, replay, made in (
        (f"Optuna, {trials} trials, no cache", optuna, optuna.calls),
        (f"Optuna, {trials} trials, DSPy's cache", optuna, optuna.distinct_calls()),
        (f"sweep of {len(sweep.tried)} candidates, no cache", sweep, sweep.calls),
        (f"sweep of {len(sweep.tried)} candidates, DSPy's cache", sweep, sweep.distinct_calls()),
    ):
        rows.append([name, made, replay.retrievals, f"{calls / made:.2f}", *_best(replay.best(penalty))])
    leaves = sum(map(len, reached))
    print(f"{len(trees)} questions, {leaves} leaves; {len(curve.score)} different thresholds in all.\n")
    header = [
        "",
        "LM calls",
        "searches",
        "curve's share of the calls",
        f"EM - {penalty:g} x searches",
        "EM",
        "a question",
    ]
    table(header, rows)


def _best(best: tuple[float, float, float]) -> list[str]:
    return [f"{best[0]:.3f}", f"{best[1]:.3f}", f"{best[2]:.2f}"]


def _optuna(trees: list[Tree], trials: int, penalty: float, seed: int) -> Replay:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    replay = Replay(trees)
    low = min(node.mean for tree in trees for node in tree.nodes)

    def objective(trial: optuna.Trial) -> float:
        em, searches = replay.run(trial.suggest_float("tau", low, 0.0))
        return em - penalty * searches

    optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed)).optimize(
        objective, n_trials=trials
    )
    return replay


def _sweep(trees: list[Tree], candidates: int, start: float = -0.3) -> Replay:
    """As ``dspy.experimental.ReAnchor`` does: the program is run as it is, and then at thresholds between the
    confidences that were met on the way, thinned out to so many."""
    replay = Replay(trees)
    replay.run(start)
    met = sorted({tree.nodes[node].mean for tree in trees for node, _ in leaf_of(tree, start).path})
    middles = [-math.inf, *((a + b) / 2 for a, b in itertools.pairwise(met)), 0.0]
    if len(middles) > candidates - 1:
        places = np.linspace(0, len(middles) - 1, candidates - 1).round().astype(int)
        middles = [middles[place] for place in sorted(set(places.tolist()))]
    for tau in middles:
        replay.run(tau)
    return replay


@main.command()
@click.argument("path", type=_FILE)
@click.argument("run_path", metavar="RUN", type=_FILE)
def check(path: Path, run_path: Path) -> None:
    """Compare the recorded costs at a run's threshold with what that run took."""
    from hopgate.evaluation import read_run
    from hopgate.optimizers import read_trees

    trees = {tree.id: tree for tree in read_trees(path).explored}
    run = read_run(run_path)
    tau = float(run.header.program.settings["tau"])  # type: ignore[arg-type]
    rows, told, made = [], [0, 0], [0, 0]
    for record in run.records:
        leaf = leaf_of(trees[record.id], tau)
        pairs = [(leaf.lm_calls, record.cost.lm_calls), (leaf.retrievals, record.cost.retrievals)]
        told = [total + pair[0] for total, pair in zip(told, pairs, strict=True)]
        made = [total + pair[1] for total, pair in zip(made, pairs, strict=True)]
        rows.append(all(one == other for one, other in pairs) and leaf.answer == record.answer)
    print(f"{len(rows)} questions at tau {tau:g} without a cache.\n")
    table(["", "LM calls", "searches"], [["by the trees", *map(str, told)], ["by the run", *map(str, made)]])
    print(f"\n{sum(rows)} of {len(rows)} questions with the same calls, searches and answer.")


if __name__ == "__main__":
    main()
