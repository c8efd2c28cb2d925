"""Trees from two runs: the same curve as that of the program at every threshold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dspy
import pytest
from tree_worlds import QUESTIONS, lm_of, run_at, search

from hopgate.core import InputError
from hopgate.evaluation import evaluate, read_runs
from hopgate.evaluation.aligned import RecordedRun
from hopgate.optimizers import runs_as_trees
from hopgate.programs import RAG, Escalation, Solver

SEEDS = range(6)


def run(program: Solver, seed: int, path: Path, questions: Any = QUESTIONS) -> RecordedRun:
    with dspy.context(lm=lm_of(seed)):
        evaluate(program, questions, path)
    return read_runs([path])[0]


def on(**changes: Any) -> Escalation:
    return Escalation(search, memory=False, tau_grounded=0, **changes)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_tree_is_what_the_program_does_at_every_threshold(seed: int, tmp_path: Path) -> None:
    kept = run(RAG(search), seed, tmp_path / "rag.jsonl")
    gone_on = run(on(tau=-0.3), seed, tmp_path / "on.jsonl")
    trees = runs_as_trees(kept, gone_on)
    assert [tree.id for tree in trees] == [question.id for question in QUESTIONS]
    program = Escalation(search, memory=False)
    for tree, question in zip(trees, QUESTIONS, strict=True):
        means = [node.mean for node in tree.nodes]
        for tau in (-9.0, 0.0, *means, *(mean - 1e-6 for mean in means), *(min(0.0, mean + 1e-6) for mean in means)):
            thresholds = {"memory": 0.0, "grounded": tau, "hop": -0.3, "final": 0.0}
            answer, (searches, calls, *_) = run_at(program, seed, question, thresholds)
            leaf, exact = tree.leaf_at(thresholds)
            assert exact
            assert (leaf.answer, leaf.retrievals, leaf.lm_calls) == (answer, searches, calls)


def test_runs_that_do_not_belong_together(tmp_path: Path) -> None:
    kept = run(RAG(search), 1, tmp_path / "rag.jsonl")
    gone_on = run(on(), 1, tmp_path / "on.jsonl")
    with pytest.raises(InputError, match="answer at stake"):
        runs_as_trees(run(RAG(search), 2, tmp_path / "other.jsonl"), gone_on)
    with pytest.raises(InputError, match="no decision at the step 'grounded'"):
        runs_as_trees(kept, kept)
    never = run(Escalation(search, memory=False, escalate="never"), 1, tmp_path / "never.jsonl")
    with pytest.raises(InputError, match="keeps the answer"):
        runs_as_trees(kept, never)
    one = run(RAG(search), 1, tmp_path / "one.jsonl", QUESTIONS[:1])
    rest = run(on(), 1, tmp_path / "rest.jsonl", QUESTIONS[1:])
    with pytest.raises(InputError, match="no answered question in common"):
        runs_as_trees(one, rest)
