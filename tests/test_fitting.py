"""Fitting thresholds on trees: by each rule, exactly, in the middle of gaps, checked on held-out questions."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_curve import tree_of
from tree_worlds import QUESTIONS, STEPS, recorded, search

from hopgate.core import InputError
from hopgate.optimizers import (
    Leaf,
    Node,
    Tradeoff,
    Tree,
    WithinBest,
    WithinBudget,
    always,
    calibrate,
    drafts_as_trees,
    evaluate_at,
    fit_tau,
    fitting,
    tau_curve,
    train_policy,
    transfer,
)
from hopgate.programs import ActiveQA, Escalation

few = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
confidence = st.sampled_from([-0.1, -0.11, -0.3, -0.5, -2.0, 0.0]) | st.floats(-3, 0)
decisions = st.tuples(confidence, st.booleans(), st.booleans(), st.integers(0, 3))
rules = (
    st.builds(Tradeoff, st.floats(0, 1))
    | st.builds(WithinBest, st.floats(0, 0.5))
    | st.builds(WithinBudget, st.floats(0, 3))
)


def chains(drawn: list[tuple[float, bool, bool, int]]) -> list[Tree]:
    return [tree_of(mean, kept, (on, n), str(place)) for place, (mean, kept, on, n) in enumerate(drawn)]


def two_steps(drawn: tuple[float, float, bool, bool, bool], identity: str) -> Tree:
    """Two decisions at steps of their own, one after the other."""
    first, second, *right = drawn
    paths = (((0, True),), ((0, False), (1, True)), ((0, False), (1, False)))
    leaves = tuple(
        Leaf(path, "", em, float(em), searches, 1, 0, 0, 0, 0, 0)
        for path, em, searches in zip(paths, right, (0, 1, 3), strict=True)
    )
    nodes = (Node("memory", 0, "", first), Node("grounded", 0, "", second))
    return Tree(identity, nodes, leaves, exact=True, complete=True)


pairs = st.lists(
    st.tuples(confidence, confidence, st.booleans(), st.booleans(), st.booleans()), min_size=2, max_size=7
).map(lambda many: [two_steps(one, str(place)) for place, one in enumerate(many)])


@few
@given(st.lists(decisions, min_size=1, max_size=8), rules)
def test_the_rule_is_kept_to_at_every_threshold_there_is(drawn: list[Any], rule: Any) -> None:
    trees = chains(drawn)
    found = fit_tau(trees, rule, folds=0)
    (tau,) = found.thresholds.values()
    assert found.point == evaluate_at(trees, found.thresholds)
    curve = tau_curve(trees)
    scores, costs = curve.score, curve.retrievals
    got = (found.point.score, found.point.retrievals)
    if isinstance(rule, Tradeoff):
        assert got[0] - rule.weight * got[1] == pytest.approx(max(scores - rule.weight * costs))
    elif isinstance(rule, WithinBest):
        assert got[0] >= max(scores) - rule.slack - 1e-9
        assert got[1] == pytest.approx(min(costs[scores >= max(scores) - rule.slack - 1e-9]))
    else:
        allowed = max(rule.budget, min(costs)) + 1e-9
        assert got[1] <= allowed
        assert got[0] == pytest.approx(max(scores[costs <= allowed]))
    low, high = found.gaps["hop"]
    assert tau == pytest.approx((low + high) / 2 if math.isfinite(low) else high - 1.0)
    assert (high - low < 0.02) is bool(found.unresolved)
    for inside in np.linspace(max(low, high - 3), high, 7):
        if low < inside <= high:
            assert evaluate_at(trees, {"hop": float(inside)}) == found.point


@few
@given(pairs, rules)
def test_several_thresholds_are_as_good_as_any_on_a_grid(trees: list[Tree], rule: Any) -> None:
    found = fit_tau(trees, rule, folds=0)
    means = sorted({node.mean for tree in trees for node in tree.nodes} | {-9.0, 0.0})
    grid = [evaluate_at(trees, {"memory": one, "grounded": other}) for one, other in itertools.product(means, repeat=2)]
    scores, costs = np.array([at.score for at in grid]), np.array([at.retrievals for at in grid])
    best = int(np.flatnonzero(rule.best(scores, costs))[0])
    assert (found.point.score, found.point.retrievals) == pytest.approx((scores[best], costs[best]))


@settings(few, max_examples=5)
@given(pairs, rules)
def test_optuna_repeats_and_finds_nothing_better(trees: list[Tree], rule: Any) -> None:
    exact = fit_tau(trees, rule, folds=0).point
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fitting, "_CELLS", 0)
        found = fit_tau(trees, rule, folds=0, trials=40)
        assert fit_tau(trees, rule, folds=0, trials=40) == found
    both = np.array([exact.score, found.point.score]), np.array([exact.retrievals, found.point.retrievals])
    assert rule.best(*both)[0]
    assert found.point == evaluate_at(trees, found.thresholds)


def test_no_single_threshold_improves_what_optuna_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trees, _ = recorded(Escalation(search, check_each_hop=True), 21, tmp_path / "t.jsonl", leaves=60)
    exact = fit_tau(trees, Tradeoff(0.05), folds=0).point
    monkeypatch.setattr(fitting, "_CELLS", 0)
    found = fit_tau(trees, Tradeoff(0.05), folds=0, trials=30)
    value = found.point.score - 0.05 * found.point.retrievals
    assert value <= exact.score - 0.05 * exact.retrievals + 1e-9
    for step in STEPS:
        curve = tau_curve(trees, fixed={other: tau for other, tau in found.thresholds.items() if other != step})
        assert value >= max(curve.score - 0.05 * curve.retrievals) - 1e-9


def test_fixed_steps_stay(tmp_path: Path) -> None:
    trees, _ = recorded(Escalation(search), 21, tmp_path / "t.jsonl", leaves=60)
    fixed = {"memory": 0.0, "hop": -0.3, "final": -1.0}
    found = fit_tau(trees, Tradeoff(0.05), fixed=fixed, folds=0)
    assert {**found.thresholds, "final": -1.0} == {**fixed, "grounded": found.thresholds["grounded"]}
    curve = tau_curve(trees, fixed=fixed)
    assert found.point.score - 0.05 * found.point.retrievals == pytest.approx(
        max(curve.score - 0.05 * curve.retrievals)
    )
    with pytest.raises(InputError, match="nothing is left"):
        fit_tau(trees, Tradeoff(0.05), fixed={**fixed, "grounded": -1.0})


# --- held out ---------------------------------------------------------------------------------------------------------

SIGNAL = chains([(-0.1 - place / 1000, True, False, 1) for place in range(20)] + [(-1.0, False, True, 1)] * 20)
_DRAWN = np.random.default_rng(1).random((40, 3))
NOISE = chains([(-float(mean), bool(kept < 0.5), bool(on < 0.5), 1) for mean, kept, on in _DRAWN])


def test_what_is_gained_is_told_from_questions_that_were_held_out() -> None:
    found = fit_tau(SIGNAL, Tradeoff(0.1), original={"hop": 0.0})
    assert not found.kept_original
    assert -1.0 < found.thresholds["hop"] < -0.119
    assert found.held_out is not None
    assert found.held_out.value == found.point.score == 1.0
    assert found.held_out_cost == pytest.approx(0.5)
    assert found.original is not None
    assert found.original.score == 0.5
    assert fit_tau(SIGNAL, Tradeoff(0.1), original={"hop": 0.0}, seed=3).thresholds == found.thresholds


def test_the_original_is_kept_where_nothing_is_gained() -> None:
    original = {"hop": -0.5}
    found = fit_tau(NOISE, Tradeoff(0.0), original=original)
    assert found.kept_original
    assert found.thresholds == original
    assert found.point == evaluate_at(NOISE, original) == found.original
    low, high = found.gaps["hop"]
    assert low < -0.5 <= high
    unchecked = fit_tau(NOISE, Tradeoff(0.0), original=original, folds=0)
    assert not unchecked.kept_original
    assert unchecked.point.score > found.point.score
    assert unchecked.held_out is None


def test_thresholds_of_the_recorded_program_are_the_ones_to_beat(tmp_path: Path) -> None:
    program = Escalation(search, tau_grounded=-0.6, check_each_hop=True)
    trees, _ = recorded(program, 3, tmp_path / "t.jsonl", leaves=60)
    found = fit_tau(trees, Tradeoff(1.0))
    assert found.original == evaluate_at(trees, {"memory": -0.05, "grounded": -0.6, "hop": -0.3, "final": -0.05})
    program.settings.update(**found.settings)
    assert [program.gate_at(step).tau for step in STEPS] == [found.thresholds[step] for step in STEPS]
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False))["point"]["n"] == 6


def test_a_budget_that_the_original_exceeds_is_no_reason_to_keep_it() -> None:
    found = fit_tau(SIGNAL, WithinBudget(0.3), original={"hop": 0.0})
    assert not found.kept_original
    assert found.point.retrievals <= 0.3


# --- drafts, and other questions --------------------------------------------------------------------------------------


def test_labelled_drafts_are_enough_for_a_threshold() -> None:
    drafts = drafts_as_trees([-0.1, -0.2, -0.21, -0.9, None], [True, True, False, False, False])
    found = fit_tau(drafts, Tradeoff(0.5), folds=0)
    assert found.thresholds["hop"] == pytest.approx(-0.205)
    assert found.unresolved == ("hop",)
    assert fit_tau(drafts, Tradeoff(0.0), folds=0).point.retrievals == pytest.approx(3 / 5)
    assert fit_tau(drafts, Tradeoff(5.0), folds=0).point.retrievals == pytest.approx(1 / 5)
    for wrong in (([], []), ([-1.0], []), ([0.1], [True]), ([math.nan], [True])):
        with pytest.raises(InputError, match=r"drafts|log-prob"):
            drafts_as_trees(*wrong)


def test_thresholds_are_applied_to_other_questions() -> None:
    train = [*SIGNAL]
    drawn = [(-0.1 - place / 1000, True, (False, 1)) for place in range(10)]
    drawn += [(-1.0, False, (True, 1))] * 9 + [(-1.0, False, (False, 1))]
    test = [tree_of(*one, f"other {place}") for place, one in enumerate(drawn)]
    found = transfer(train, test, budgets=(0.0, 0.5, 2.0))
    assert [row.score.value for row in found.rows] == [0.5, 0.95, 0.95]
    assert [row.retrievals.value for row in found.rows] == [0.0, 0.5, 0.5]
    assert [row.random.value for row in found.rows] == pytest.approx([0.5, 0.475, 0.475])
    assert found.rows[1].gain.value == pytest.approx(0.475)
    assert found.rows[1].gain.low is not None
    assert [row.oracle.score for row in found.rows] == [0.5, 0.95, 0.95]
    assert (found.always.score, found.never.score) == (0.45, 0.5)
    assert found.always == always(test)
    with pytest.raises(InputError, match="both sets"):
        transfer(train, train)
    other = [Tree("x", (Node("final", 0, "", -1.0),), test[0].leaves, exact=True, complete=True)]
    with pytest.raises(InputError, match="'final'"):
        transfer(train, other)


# --- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", [Tradeoff, WithinBest, WithinBudget])
def test_rules_are_checked(rule: Any) -> None:
    for wrong in (-0.1, math.nan, math.inf, True, "1"):
        with pytest.raises(InputError, match="0 or more"):
            rule(wrong)


@pytest.mark.parametrize("rule", [0.05, "x", None, Tradeoff, True, {}])
def test_what_is_no_rule_is_refused_with_the_remedy(rule: Any) -> None:
    with pytest.raises(InputError, match=r"such as Tradeoff\(0\.05\)"):
        fit_tau(SIGNAL, rule)


@pytest.mark.parametrize("rule", [Tradeoff, WithinBest, WithinBudget])
def test_a_rule_has_a_cost_that_there_is(rule: Any) -> None:
    with pytest.raises(InputError, match="one of retrievals, lm_calls, tokens, got 'x'"):
        rule(0.1, "x")


TAKES_TREES: dict[str, Any] = {
    "fit_tau": lambda trees: fit_tau(trees, Tradeoff(0.1)),
    "tau_curve": tau_curve,
    "evaluate_at": lambda trees: evaluate_at(trees, dict.fromkeys(STEPS, -1.0)),
    "calibrate": calibrate,
    "train_policy": lambda trees: train_policy(trees, penalty=0.1),
    "validation": lambda trees: train_policy(
        [replace(tree, id=f"t{tree.id}") for tree in SIGNAL], penalty=0.1, validation=trees
    ),
}


@pytest.mark.parametrize("take", TAKES_TREES)
@pytest.mark.parametrize("wrong", ["t.jsonl", Path("t.jsonl"), [1], ["x"], [[]], 3])
def test_what_is_no_trees_is_refused_with_the_remedy(take: str, wrong: Any) -> None:
    message = "`validation`" if isinstance(wrong, int) and take == "validation" else r"read_trees\(path\)"
    with pytest.raises(InputError, match=message):
        TAKES_TREES[take](wrong)


@pytest.mark.parametrize("take", TAKES_TREES)
def test_two_trees_of_one_question_are_refused(take: str) -> None:
    with pytest.raises(InputError, match=rf"two trees of the question '{SIGNAL[2].id}'"):
        TAKES_TREES[take]([*SIGNAL, SIGNAL[2]])


@pytest.mark.parametrize("score", ["x", None, 1, ["em"]])
def test_there_is_no_other_score(score: Any) -> None:
    with pytest.raises(InputError, match="`score` is em, f1"):
        fit_tau(SIGNAL, Tradeoff(0.1), score=score)


def test_trees_of_other_programs_are_not_held_out(tmp_path: Path) -> None:
    train, _ = recorded(Escalation(search), 1, tmp_path / "one.jsonl")
    others = [replace(question, id=f"o{question.id}") for question in QUESTIONS]
    other, _ = recorded(ActiveQA(search), 1, tmp_path / "two.jsonl", others)
    same, _ = recorded(Escalation(search, tau_memory=-1.0), 1, tmp_path / "three.jsonl", others)
    with pytest.raises(InputError, match=r"`validation`: was recorded with the program active.* with escalation"):
        train_policy(train, penalty=0.1, validation=other, epochs=1)
    with pytest.raises(InputError, match="give one `Trees`"):
        fit_tau([train, same], Tradeoff(0.1))  # type: ignore[list-item]
    assert train_policy(train, penalty=0.1, validation=same, epochs=1).questions == (6, 6)


def test_little_to_learn_from_is_said_or_falls_back(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no trees"):
        fit_tau([], Tradeoff(0.1))
    empty = drafts_as_trees([None, None], [False, False])
    with pytest.raises(InputError, match="no decision"):
        fit_tau(empty, Tradeoff(0.1))
    for wrong in ({"folds": 1}, {"folds": -1}, {"folds": True}, {"trials": 0}):
        with pytest.raises(InputError, match=next(iter(wrong))):
            fit_tau(SIGNAL, Tradeoff(0.1), **wrong)
    one = fit_tau(SIGNAL[:1], Tradeoff(0.1), original={"hop": -5.0})
    assert (one.held_out, one.kept_original) == (None, False)
    wrong_all = chains([(-place / 10, False, False, 1) for place in range(1, 9)])
    assert fit_tau(wrong_all, Tradeoff(0.0), folds=0).point.retrievals == 0
    alike = chains([(-0.5, True, False, 1), (-0.5, False, True, 1)] * 4)
    found = fit_tau(alike, Tradeoff(0.0), folds=0)
    assert found.point.score == 0.5
    trees, _ = recorded(ActiveQA(search), 3, tmp_path / "t.jsonl")
    assert fit_tau(trees, Tradeoff(0.1)).point.n == 6
