"""Training a policy: exact values and gradients, a start that equals thresholds, and gains alone are kept."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tree_worlds import STEPS, recorded, search

from hopgate.core import InputError
from hopgate.evaluation.run_schema import Failure
from hopgate.optimizers import (
    Leaf,
    Node,
    Tradeoff,
    Tree,
    drafts_as_trees,
    evaluate_at,
    evaluate_policy,
    fit_tau,
    leaf_probabilities,
    tau_curve,
    train_policy,
)
from hopgate.optimizers.curve import Boxes
from hopgate.optimizers.policy_trees import Decisions
from hopgate.programs import Escalation

few = settings(max_examples=40, deadline=None)
PENALTY = 0.3


def leaf(path: tuple[tuple[int, bool], ...], score: float, retrievals: int) -> Leaf:
    none = dict.fromkeys(("lm_calls", "prompt_tokens", "completion_tokens", "passages_read", "new_calls"), 0)
    return Leaf(path, "", score == 1.0, score, retrievals, **none, new_retrievals=0)


def two_features(n: int, seed: int, name: str = "q") -> list[Tree]:
    """Questions whose draft is right where the mean and the least token together are high enough; a search always is.

    Neither tells it alone.
    """
    rng = np.random.default_rng(seed)
    trees = []
    for number in range(n):
        mean, least = (-rng.uniform(0.1, 2.0, 2)).tolist()
        right = mean + least > -2.0
        node = Node("hop", 0, "x", mean, least, right=right)
        leaves = (leaf(((0, True),), float(right), 0), leaf(((0, False),), 1.0, 1))
        trees.append(Tree(f"{name}{number}", (node,), leaves, exact=True, complete=True))
    return trees


@st.composite
def random_trees(draw: st.DrawFn) -> list[Tree]:
    """Trees of up to three decisions in a row; some leaves are missing."""
    confidence = st.floats(-5, 0).map(lambda value: round(value, 3))
    trees = []
    for number in range(draw(st.integers(1, 3))):
        nodes: list[Node] = []
        leaves: list[Leaf] = []
        complete = True

        def grow(path: tuple[tuple[int, bool], ...], nodes: list[Node], leaves: list[Leaf]) -> bool:
            if len(path) == 3 or draw(st.integers(0, 3)) == 0:
                leaves.append(leaf(path, draw(st.sampled_from([0.0, 1.0, 0.5])), draw(st.integers(0, 4))))
                return True
            place = len(nodes)
            nodes.append(Node(draw(st.sampled_from(STEPS)), len(path), "x", draw(confidence), draw(confidence)))
            ways = draw(st.sampled_from([(True, False), (True, False), (True,), (False,)]))
            whole = [grow((*path, (place, kept)), nodes, leaves) for kept in ways]
            return all(whole) and len(ways) == 2

        complete = grow((), nodes, leaves)
        trees.append(Tree(str(number), tuple(nodes), tuple(leaves), exact=complete, complete=complete))
    return trees


def value(trees: Any, gate: Any) -> float:
    point = evaluate_policy(trees, gate).point
    return point.score - PENALTY * point.retrievals


def test_where_two_features_matter_it_beats_every_threshold() -> None:
    train, others = two_features(60, 0), two_features(300, 1)
    trained = train_policy(train, penalty=PENALTY)
    assert not trained.kept_start
    curve = tau_curve(others)
    best = float((curve.score - PENALTY * curve.retrievals).max())
    assert value(others, trained.gate) > best + 0.03
    assert value(others, trained.start) <= best
    assert trained.chosen.validation is not None
    assert trained.started.validation is not None
    assert trained.chosen.validation > trained.started.validation
    assert trained.questions == (45, 15)
    assert trained.exact
    assert trained.unexplored == 0.0
    assert set(trained.gates) == {"hop"}
    json.dumps(trained.to_dict(), allow_nan=False)


def test_without_the_second_feature_it_cannot() -> None:
    trained = train_policy(two_features(60, 0), penalty=PENALTY, features=["first"])
    assert set(trained.gate.weights) == {"mean_hop", "at_hop"}
    others = two_features(300, 1)
    curve = tau_curve(others)
    assert value(others, trained.gate) <= float((curve.score - PENALTY * curve.retrievals).max())


@few
@given(random_trees(), st.integers(0, 2**32 - 1), st.sampled_from([0.0, 0.3]))
def test_the_gradient_is_that_of_the_expected_reward(trees: list[Tree], seed: int, bonus: float) -> None:
    record = Decisions(Boxes(trees))
    rng = np.random.default_rng(seed)
    logits, rewards = rng.normal(0, 1.5, len(record.nodes)), rng.normal(0, 1, len(record.boxes.tree))

    def objective(at: Any) -> float:
        return float((record.chances(at) * rewards).sum() / len(trees)) + bonus * record.entropy(at)

    found = record.gradient(logits, rewards, bonus)
    for place in range(len(logits)):
        step = np.zeros_like(logits)
        step[place] = 1e-5
        slope = (objective(logits + step) - objective(logits - step)) / 2e-5
        assert found[place] == pytest.approx(slope, abs=1e-7)


@few
@given(random_trees(), st.integers(0, 2**32 - 1))
def test_expected_values_lie_between_the_leaves(trees: list[Tree], seed: int) -> None:
    record = Decisions(Boxes(trees, "f1"))
    logits = np.random.default_rng(seed).normal(0, 3, len(record.nodes))
    chances = record.chances(logits)
    first = np.cumsum([0, *(len(tree.nodes) for tree in trees)])
    for place, tree in enumerate(trees):
        own = chances[record.boxes.tree == place]
        assert own.sum() == pytest.approx(1)
        going_on = {id(node): 1 / (1 + math.exp(-logits[first[place] + n])) for n, node in enumerate(tree.nodes)}
        np.testing.assert_allclose(own, leaf_probabilities(tree, lambda node, on=going_on: on[id(node)])[0])
    told = record.value(logits)
    ends = [[pick(leaf.f1 for leaf in tree.leaves) for tree in trees] for pick in (min, max)]
    assert np.mean(ends[0]) - 1e-9 <= told.expected.score <= np.mean(ends[1]) + 1e-9
    assert np.mean(ends[0]) <= told.point.score <= np.mean(ends[1])
    sure = record.value(1e3 * np.where(logits < 0, -1.0, 1.0))
    assert sure.expected.score == pytest.approx(sure.point.score)
    assert sure.point == told.point


@few
@given(random_trees(), st.fixed_dictionaries(dict.fromkeys(STEPS, st.floats(-6, 0) | st.sampled_from([-1.0, 0.0]))))
def test_the_start_decides_as_the_thresholds(trees: list[Tree], taus: dict[str, float]) -> None:
    record = Decisions(Boxes(trees))
    if not record.forks.any():
        with pytest.raises(InputError, match="nothing to learn"):
            train_policy(trees, penalty=0.1, start=taus, validation=None)
        return
    # A logit cannot tell a threshold from a confidence beside it in the last digits.
    means = [node.mean for node in record.nodes]
    taus = {step: next((mean for mean in means if abs(mean - tau) < 1e-9), tau) for step, tau in taus.items()}
    trained = train_policy(trees, penalty=0.1, start=taus, validation=None, epochs=2)
    told, expected = evaluate_policy(trees, trained.start), [tree.leaf_at(taus) for tree in trees]
    assert told.retrievals.tolist() == [leaf.retrievals for leaf, _ in expected]
    assert told.point.nearest == sum(not exact for _, exact in expected)
    assert trained.exact is all(tree.complete for tree in trees)
    reward = told.point.score - 0.1 * told.point.retrievals
    assert (trained.started.value, trained.started.validation) == (pytest.approx(reward), None)


def test_seeds_repeat_and_differ() -> None:
    trees = two_features(30, 2)
    one, again = (train_policy(trees, penalty=PENALTY, epochs=40) for _ in range(2))
    assert one.to_dict() == again.to_dict()
    assert {epoch.seed for epoch in one.curve} == {0, 1, 2}
    other = train_policy(trees, penalty=PENALTY, epochs=40, seeds=[0, 7])
    assert [epoch for epoch in other.curve if epoch.seed == 0] == [epoch for epoch in one.curve if epoch.seed == 0]
    starts = [epoch.expected for epoch in one.curve if epoch.epoch == 0]
    assert len(set(starts)) == 3
    assert len(one.best_of_seeds) == 3
    assert one.chosen in (*one.best_of_seeds, one.started)


def test_training_raises_the_reward_and_ends_early() -> None:
    trees = two_features(40, 3)
    full = train_policy(trees, penalty=PENALTY, validation=None, seeds=[0], shrinkage=0.0)
    assert full.curve[-1].expected > full.curve[0].expected + 0.05
    assert [epoch.epoch for epoch in full.curve] == list(range(301))
    # What is held out goes against what is learnt, so nothing gets better there.
    against = [
        replace(tree, leaves=(replace(tree.leaves[0], em=not tree.leaves[0].em), tree.leaves[1]))
        for tree in two_features(40, 4, "v")
    ]
    short = train_policy(trees, penalty=PENALTY, validation=against, patience=5, learning_rate=0.5)
    assert all(len([epoch for epoch in short.curve if epoch.seed == seed]) < 100 for seed in (0, 1, 2))
    assert short.questions == (40, 40)


def test_the_bonus_for_entropy_and_the_schedule_of_the_penalty() -> None:
    trees = two_features(40, 3)
    given: dict[str, Any] = {"validation": None, "seeds": [0], "epochs": 30, "start": {"hop": -1.0}}
    entropies = [train_policy(trees, penalty=0.1, entropy=bonus, **given).curve[10].entropy for bonus in (0.0, 1.0)]
    assert entropies[0] < entropies[1]
    at_once, later = (train_policy(trees, penalty=2.0, warm_up=steps, **given).curve[5] for steps in (0, 30))
    assert at_once.expected > later.expected  # the full penalty counts in both, and one of them was told of it late


@pytest.mark.parametrize("right", [True, False])
def test_all_right_or_all_wrong(right: bool) -> None:
    trees = [
        replace(tree, leaves=tuple(replace(leaf, em=right) for leaf in tree.leaves)) for tree in two_features(20, 1)
    ]
    trained = train_policy(trees, penalty=0.1, start={"hop": 0.0}, epochs=100)
    assert evaluate_policy(trees, trained.gate).point.retrievals == 0
    assert train_policy(trees, penalty=0.1, epochs=5).kept_start  # the best threshold does so already
    free = train_policy(trees, penalty=0.0, epochs=5)
    assert free.kept_start
    assert free.gate.dump_state() == free.start.dump_state()


def test_confidences_that_are_all_equal_or_missing() -> None:
    alike = [replace(tree, nodes=(replace(tree.nodes[0], mean=-0.5, min=None),)) for tree in two_features(20, 1)]
    assert train_policy(alike, penalty=0.1, epochs=20).gate.steps == ("hop",)
    none = [replace(tree, nodes=(), leaves=(replace(tree.leaves[1], path=()),)) for tree in alike]
    with pytest.raises(InputError, match="nothing to learn"):
        train_policy(none, penalty=0.1)
    odd = [replace(tree, nodes=(replace(tree.nodes[0], min=math.nan, score=math.inf),)) for tree in two_features(20, 1)]
    assert np.isfinite(train_policy(odd, penalty=0.1, epochs=20).curve[-1].expected)


def test_fitted_thresholds_are_taken_and_what_was_not_explored_is_said(tmp_path: Path) -> None:
    program = Escalation(search, max_hops=2, prefer="confident")
    trees, _ = recorded(program, 5, tmp_path / "t.jsonl", leaves=4)
    fitted = fit_tau(trees, Tradeoff(0.05), original={})
    trained = train_policy(trees, penalty=0.05, start=fitted, epochs=30)
    assert trained.thresholds == fitted.thresholds
    assert not trained.exact
    assert trained.unexplored > 0
    told = evaluate_policy(trees, trained.start).point
    assert told == evaluate_at(trees, fitted.thresholds)
    assert evaluate_policy(trees, trained.start).expected.nearest > 0


GOOD = two_features(4, 0)
BAD: list[tuple[str, Any, dict[str, Any]]] = [
    ("there are no trees", [], {}),
    ("all failed", [Tree("1", (), (), True, True, Failure("X", "no"))], {}),
    ("one question cannot be split", GOOD[:1], {}),
    ("`penalty` must be a number of 0 or more", GOOD, {"penalty": -0.1}),
    ("`penalty`", GOOD, {"penalty": math.nan}),
    ("`penalty`", GOOD, {"penalty": True}),
    ("`learning_rate` must be a number above 0", GOOD, {"learning_rate": 0}),
    ("`entropy`", GOOD, {"entropy": -1}),
    ("`epochs` must be a whole number of at least 1", GOOD, {"epochs": 0}),
    ("`patience`", GOOD, {"patience": 0}),
    ("`warm_up`", GOOD, {"warm_up": 1.5}),
    ("`seeds`", GOOD, {"seeds": []}),
    ("`seeds`", GOOD, {"seeds": [1, 1]}),
    ("seeds\\[0\\]", GOOD, {"seeds": [-1]}),
    ("`seeds`", GOOD, {"seeds": 3}),
    ("`seeds`", GOOD, {"seeds": "12"}),
    ("`penalty`", GOOD, {"penalty": 1e308}),
    ("`learning_rate`", GOOD, {"learning_rate": 1e300}),
    ("`start` takes what fit_tau gives", GOOD, {"start": "x"}),
    ("`validation` takes recorded trees", GOOD, {"validation": "x"}),
    ("as a share is above 0", GOOD, {"validation": 1.0}),
    ("as a share is above 0", GOOD, {"validation": True}),
    ("4 questions are also trained on, such as 'q0'", GOOD, {"validation": GOOD}),
    ("at the step 'final'", GOOD,
     {"validation": [replace(GOOD[0], id="v", nodes=(replace(GOOD[0].nodes[0], step="final"),))]}),
    ("threshold is needed for each step", GOOD, {"start": {}}),
    ("must be at most 0", GOOD, {"start": {"hop": 0.5}}),
    ("no feature 'mood'", GOOD, {"features": ["mood"]}),
    ("a list of names", GOOD, {"features": "min"}),
    ("question 'q0': a confidence is", [replace(GOOD[0], nodes=(replace(GOOD[0].nodes[0], mean=math.nan),))], {}),
    ("must be a finite number", GOOD, {"score": lambda tree, leaf: math.nan}),
]  # fmt: skip


@pytest.mark.parametrize(("message", "trees", "given"), BAD)
def test_what_cannot_be_trained_on_is_said(message: str, trees: Any, given: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=message):
        train_policy(trees, **{"penalty": 0.1, **given})


def test_a_policy_for_another_step_cannot_be_evaluated() -> None:
    trained = train_policy(GOOD, penalty=0.1, epochs=2)
    with pytest.raises(InputError, match="step 'final': it was trained for hop"):
        evaluate_policy([replace(GOOD[0], nodes=(replace(GOOD[0].nodes[0], step="final"),))], trained.gate)
    with pytest.raises(InputError, match="there are no trees"):
        evaluate_policy([], trained.gate)
    one = train_policy(drafts_as_trees([-0.5], [True]), penalty=0.1, validation=None, epochs=2)
    assert one.questions == (1, 0)
