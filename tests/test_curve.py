"""The exact curve, thresholds of several steps, and what they are measured against."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tree_worlds import QUESTIONS, STEPS, recorded, run_at, search

from hopgate.core import InputError
from hopgate.evaluation import exact_match
from hopgate.evaluation.records import Failure
from hopgate.optimizers import (
    Leaf,
    Node,
    Tree,
    always,
    evaluate_at,
    leaf_probabilities,
    never,
    oracle,
    random_at,
    scored_by,
    tau_curve,
)
from hopgate.programs import ActiveQA, Escalation, Memo

few = settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))


TWO = QUESTIONS[:2]


def means(program: Any, seed: int, thresholds: dict[str, float]) -> tuple[float, float, float]:
    """Exact match, retrievals and LM calls of the program itself on two questions."""
    found = [run_at(program, seed, question, thresholds) for question in TWO]
    right = [exact_match(answer, question.answers) for (answer, _), question in zip(found, TWO, strict=True)]
    costs = np.array([cost for _, cost in found])
    return float(np.mean(right)), float(costs[:, 0].mean()), float(costs[:, 1].mean())


@few
@given(st.integers(0, 10**6), st.lists(st.floats(-5, 0), min_size=4, max_size=4))
def test_the_curve_is_what_the_program_does_at_every_tau(
    tmp_path_factory: pytest.TempPathFactory, seed: int, points: list[float]
) -> None:
    program = ActiveQA(search, max_hops=3)
    trees, _ = recorded(program, seed, tmp_path_factory.mktemp("t") / "t.jsonl", TWO, leaves=100)
    curve = tau_curve(trees, fixed={"final": -1.0})
    assert curve.steps == ("hop",)
    assert not curve.nearest.any()
    for tau in [*curve.edges[1:], *points]:
        at = curve.at(tau)
        assert (at.score, at.retrievals, at.lm_calls) == pytest.approx(means(program, seed, {"hop": tau}))


def test_the_curve_is_exact_at_a_thousand_taus(tmp_path: Path) -> None:
    program = ActiveQA(search, max_hops=3)
    trees, _ = recorded(program, 11, tmp_path / "t.jsonl", QUESTIONS[:1], leaves=100)
    curve = tau_curve(trees, fixed={"final": -1.0})
    program.memo = Memo()  # that it changes nothing is tested with the trees
    for tau in np.linspace(-5, 0, 1000):
        answer, cost = run_at(program, 11, QUESTIONS[0], {"hop": float(tau)})
        at = curve.at(float(tau))
        assert (at.score, at.retrievals, at.lm_calls) == (exact_match(answer, ("b",)), cost[0], cost[1])


@few
@given(st.integers(0, 10**6), st.booleans())
def test_several_thresholds_equal_a_grid(tmp_path_factory: pytest.TempPathFactory, seed: int, check: bool) -> None:
    program = Escalation(search, max_hops=2, check_each_hop=check)
    trees, _ = recorded(program, seed, tmp_path_factory.mktemp("t") / "t.jsonl", TWO, leaves=200)
    for taus in itertools.product((-4.5, -0.1, 0.0), (-1.0, -0.1), (-2.0, -0.3), (-0.9, 0.0) if check else (-1.0,)):
        thresholds = dict(zip(STEPS, taus, strict=True))
        at = evaluate_at(trees, thresholds)
        assert at.nearest == 0
        assert (at.score, at.retrievals, at.lm_calls) == pytest.approx(means(program, seed, thresholds))


def test_steps_that_are_not_fixed_share_the_threshold(tmp_path: Path) -> None:
    program = Escalation(search)
    trees, _ = recorded(program, 4, tmp_path / "t.jsonl", leaves=100)
    curve = tau_curve(trees)
    assert curve.steps == STEPS[:3]
    assert curve.at(-0.5) == evaluate_at(trees, dict.fromkeys(STEPS, -0.5))
    part = tau_curve(trees, fixed={"memory": 0.0, "final": 0.0})
    assert part.at(-0.5) == evaluate_at(trees, {"memory": 0.0, "grounded": -0.5, "hop": -0.5, "final": 0.0})


@few
@given(st.integers(0, 10**6), st.integers(1, 6))
def test_what_was_not_explored_is_taken_from_the_nearest_and_counted(
    tmp_path_factory: pytest.TempPathFactory, seed: int, limit: int
) -> None:
    folder = tmp_path_factory.mktemp("t")
    cut, _ = recorded(Escalation(search), seed, folder / "cut.jsonl", TWO, leaves=limit)
    full, _ = recorded(Escalation(search), seed, folder / "full.jsonl", TWO, leaves=100)
    for taus in itertools.product((-4.5, -0.31, 0.0), repeat=3):
        thresholds = dict(zip(STEPS, (*taus, 0.0), strict=True))
        found = [tree.leaf_at(thresholds) for tree in cut.trees]
        at = evaluate_at(cut, thresholds)
        assert at.nearest == sum(not exact for _, exact in found)
        assert at.score == pytest.approx(np.mean([leaf.em for leaf, _ in found]))
        for (leaf, exact), tree in zip(found, full.trees, strict=True):
            assert (leaf.path == tree.leaf_at(thresholds)[0].path) is exact


# --- what it is measured against --------------------------------------------------------------------------------------


def leaf(path: tuple[tuple[int, bool], ...], em: bool, retrievals: int) -> Leaf:
    return Leaf(path, "b" if em else "c", em, float(em), retrievals, 1, 0, 0, 0, 0, 0)


def tree_of(mean: float, kept: bool, on: tuple[bool, int], identity: str) -> Tree:
    """One decision: whether the answer kept is right; whether the one after going on is, and its searches."""
    leaves = (leaf(((0, True),), kept, 0), leaf(((0, False),), *on))
    return Tree(identity, (Node("hop", 0, "b", mean),), leaves, exact=True, complete=True)


TREES = [
    tree_of(-0.1, True, (True, 1), "0"),
    tree_of(-0.5, False, (True, 2), "1"),
    tree_of(-0.9, False, (False, 1), "2"),
]


def test_always_never_and_the_oracle() -> None:
    assert (never(TREES).score, never(TREES).retrievals) == (pytest.approx(1 / 3), 0)
    assert (always(TREES).score, always(TREES).retrievals) == (pytest.approx(2 / 3), pytest.approx(4 / 3))
    best = oracle(TREES)
    assert (best.score, best.retrievals, best.nearest) == (pytest.approx(2 / 3), pytest.approx(2 / 3), 0)
    assert oracle(TREES, 0.5).score == pytest.approx(1 / 3)
    assert oracle(TREES, 0).retrievals == 0
    with pytest.raises(InputError, match="budget"):
        oracle(TREES, -1)


@few
@given(st.lists(st.tuples(st.booleans(), st.booleans(), st.integers(0, 3)), min_size=1, max_size=6), st.floats(0, 3))
def test_the_oracle_is_the_best_of_all_choices(drawn: list[tuple[bool, bool, int]], budget: float) -> None:
    trees = [tree_of(-0.5, kept, (on, n), str(place)) for place, (kept, on, n) in enumerate(drawn)]
    within = [
        (sum(one.em for one in chosen) / len(trees), -sum(one.retrievals for one in chosen) / len(trees))
        for chosen in itertools.product(*(tree.leaves for tree in trees))
        if sum(one.retrievals for one in chosen) <= budget * len(trees) + 1e-9
    ]
    found = oracle(trees, budget)
    assert (found.score, -found.retrievals) == pytest.approx(max(within))


def test_chance_at_equal_retrievals_is_an_expectation() -> None:
    for retrievals in (0.0, 0.4, 1.0, 4 / 3):
        found = random_at(TREES, retrievals)
        assert found.retrievals.mean() == pytest.approx(retrievals)
        assert found.rate == pytest.approx(retrievals * 3 / 4)
        assert found.score.mean() == pytest.approx((1 + found.rate) / 3)
        assert found.unexplored == 0
    assert random_at(TREES, 9).rate == 1
    assert random_at(TREES, -1).rate == 0


@pytest.mark.parametrize("retrievals", [math.inf, -math.inf, math.nan])
def test_chance_needs_a_number_of_searches(retrievals: float) -> None:
    with pytest.raises(InputError, match="searches a question"):
        random_at(TREES, retrievals)


@few
@given(st.integers(0, 10**6), st.floats(0, 1))
@example(3700, 0.21040423148152848)  # products that sum to more than 1
def test_probabilities_of_leaves_sum_to_one(tmp_path_factory: pytest.TempPathFactory, seed: int, rate: float) -> None:
    trees, _ = recorded(Escalation(search), seed, tmp_path_factory.mktemp("t") / "t.jsonl", QUESTIONS[:1], leaves=5)
    for tree in trees.trees:
        chances, missing = leaf_probabilities(tree, lambda node: rate)
        assert chances.sum() == pytest.approx(1)
        assert 0 <= missing <= 1
        assert missing == pytest.approx(0) or not tree.complete
        if tree.complete:
            ways = [math.prod(1 - rate if kept else rate for _, kept in one.path) for one in tree.leaves]
            assert chances == pytest.approx(ways)


def test_chance_may_decide_at_one_step_alone(tmp_path: Path) -> None:
    trees, _ = recorded(Escalation(search), 8, tmp_path / "t.jsonl", leaves=200)
    thresholds = {"memory": 0.0, "hop": -0.3, "final": -1.0}
    ends = [evaluate_at(trees, {**thresholds, "grounded": tau}) for tau in (-math.inf, -0.01)]
    for end, rate in zip(ends, (0.0, 1.0), strict=True):
        found = random_at(trees, end.retrievals, thresholds=thresholds)
        assert found.rate == pytest.approx(rate)
        assert (found.score.mean(), found.retrievals.mean()) == pytest.approx((end.score, end.retrievals))


# --- scores and bad input ---------------------------------------------------------------------------------------------


def test_a_metric_of_ones_own(tmp_path: Path) -> None:
    trees, _ = recorded(Escalation(search), 8, tmp_path / "t.jsonl")
    thresholds = dict.fromkeys(STEPS, -0.4)

    def metric(example: Any, prediction: Any, trace: Any = None) -> bool:
        return exact_match(prediction.answer, example.answers)

    assert evaluate_at(trees, thresholds, score=scored_by(metric, QUESTIONS)) == evaluate_at(trees, thresholds)
    assert evaluate_at(trees, thresholds, score="f1").score >= evaluate_at(trees, thresholds).score
    for value in (math.nan, math.inf):
        with pytest.raises(InputError, match="finite"):
            tau_curve(trees, score=lambda tree, leaf, value=value: value)
    with pytest.raises(InputError, match="id '0'"):
        tau_curve(trees, score=scored_by(metric, QUESTIONS[1:]))


def test_bad_input_is_said() -> None:
    assert evaluate_at(TREES, {"hop": -1.0, "grounded": -1.0}) == evaluate_at(TREES, {"hop": -1.0})
    for wrong in ({}, {"hop": 0.1}, {"hop": math.nan}, {"hop": -1.0, "first": -1.0}, {"grounded": -1.0}):
        with pytest.raises(InputError, match=r"threshold|step"):
            evaluate_at(TREES, wrong)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="no trees"):
        tau_curve([])
    failed = Tree("0", (), (), exact=False, complete=False)
    with pytest.raises(InputError, match="at most 0"):
        tau_curve(TREES).at(0.1)
    with pytest.raises(InputError, match="nothing is left"):
        tau_curve(TREES, fixed={"hop": -1.0})
    with pytest.raises(InputError, match="all failed"):
        tau_curve([replace(failed, error=Failure("X", "x"))])
