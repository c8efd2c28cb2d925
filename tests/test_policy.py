"""The policy gate: the same features live and recorded, decisions as predicted, and state that survives."""

from __future__ import annotations

import copy
import json
import math
import re
import warnings
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, get_args

import dspy
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tree_worlds import QUESTIONS, SETTINGS, STEPS, cost_of, lm_of, recorded, search

from hopgate.core import InputError, Passage, StateError
from hopgate.evaluation import Question
from hopgate.lms import AnswerConfidence
from hopgate.lms.testing import Reply, scripted_lm
from hopgate.optimizers import (
    FEATURES,
    CalibratedGate,
    Node,
    PolicyGate,
    Tree,
    Weight,
    evaluate_policy,
    features,
    leaf_probabilities,
    read_trees,
    record_trees,
)
from hopgate.programs import ActiveQA, Draft, Escalation, Hop, Step, ThresholdGate, Trajectory

PROGRAMS: list[Any] = [
    lambda **given: Escalation(search, max_hops=3, **given),
    lambda **given: Escalation(search, max_hops=2, memory=False, reread=True, check_each_hop=True, **given),
    lambda **given: ActiveQA(search, max_hops=3, **given),
    lambda **given: ActiveQA(search, max_hops=2, check_each_hop=True, fused_hop=True, **given),
]


@dataclass
class Spy:
    """A threshold that notes what it decides on."""

    tau: float
    seen: list[Draft] = field(default_factory=list)
    needs_draft: bool = True
    needs_confidence: bool = True

    def keeps(self, draft: Draft) -> bool:
        if ThresholdGate(-math.inf).keeps(draft):
            self.seen.append(draft)
        return ThresholdGate(self.tau).keeps(draft)


def some_policy(seed: int, steps: tuple[str, ...] = STEPS) -> PolicyGate:
    """A policy that takes both ways, with weights on everything."""
    rng = np.random.default_rng(seed)
    return PolicyGate(
        {name: Weight(*rng.normal(0, 1, 2).tolist(), scale=3.0, missing=rng.normal()) for name in FEATURES}, steps
    )


def draft(mean: float | None = -0.5, text: str = "Ivar", **changes: Any) -> Draft:
    sure = AnswerConfidence(mean, mean, changes.pop("min", -0.7), changes.pop("first", -0.2), 2)
    return replace(Draft(Trajectory("Who is it, then?"), "Who is it?", text, sure), **changes)


def named(decision: Node | Draft) -> dict[str, float]:
    return dict(zip(FEATURES, features(decision).tolist(), strict=True))


@pytest.mark.parametrize("make", PROGRAMS)
@pytest.mark.parametrize("seed", [1, 2])
def test_a_recorded_decision_has_the_features_of_the_live_one(make: Any, seed: int, tmp_path: Path) -> None:
    recorded(make(), seed, tmp_path / "t.jsonl", QUESTIONS[:2], leaves=30)
    compared = 0
    for tree, question in zip(read_trees(tmp_path / "t.jsonl").trees, QUESTIONS, strict=False):
        for tau in (-9.0, -0.305, -0.2, 0.0):
            leaf, exact = tree.leaf_at(dict.fromkeys(STEPS, tau))
            assert exact
            spy, program = Spy(tau), make()
            program.gates = dict.fromkeys(program.steps, spy)
            with dspy.context(lm=lm_of(seed)):
                program(question=question.question)
            assert len(spy.seen) == len(leaf.path)
            for live, (place, _) in zip(spy.seen, leaf.path, strict=True):
                np.testing.assert_array_equal(features(live), features(tree.nodes[place]))
                assert features(tree.nodes[place])[FEATURES.index(f"mean_{live.step}")] == tree.nodes[place].mean
                compared += 1
    assert compared > 5


def test_features_say_what_they_mean() -> None:
    passages = tuple(Passage(str(n), "T", "x", score=9.0 - n) for n in range(3))
    read = Hop("Who?", answer="x", query="Who?", passages=passages)
    trajectory = Trajectory("When was the tower of Osk built, and by whom?", hops=(read, Hop("And?")))
    found = named(draft(trajectory=trajectory, sub_question="When was it built?", text="not so long ago at all"))
    assert {name: value for name, value in found.items() if not math.isnan(value) and value} == {
        "mean_hop": -0.5, "at_hop": 1, "min": -0.7, "first": -0.2, "hop": 2, "tokens": 2, "words": 6,
        "asked_words": 4, "question_words": 10, "passages": 3, "score": 9.0, "asks_date": 1,
    }  # fmt: skip
    plain = {"trajectory": trajectory, "step": "final", "sub_question": "Was it built in Osk?"}
    yes, no_kind, echo = (named(draft(text=text, **plain)) for text in ("yes", "Ivar", "built in Osk"))
    assert (yes["fits"], yes["off_topic"], yes["hop"], yes["asks_yes_no"]) == (1, 0, 1, 1)
    assert (no_kind["fits"], no_kind["off_topic"], no_kind["echo"]) == (0, 1, 0)
    assert echo["echo"] == 1
    bare = named(draft(min=None, first=math.nan, sub_question="Tell."))
    assert all(math.isnan(bare[name]) for name in ("min", "first", "score", "off_topic", "mean_final"))


def test_older_files_load_and_lack_features(tmp_path: Path) -> None:
    recorded(PROGRAMS[0](), 1, tmp_path / "t.jsonl", QUESTIONS[:2])
    new = ("words", "question_words", "passages", "kind", "fits", "echo")
    header, *lines = (tmp_path / "t.jsonl").read_text().splitlines()
    trees = [json.loads(line) for line in lines]
    for tree in trees:
        for node in tree["nodes"]:
            for name in new:
                del node[name]
    (tmp_path / "old.jsonl").write_text("\n".join([header, *map(json.dumps, trees)]) + "\n")
    gate = some_policy(0)
    old, fresh = (read_trees(tmp_path / name).trees for name in ("old.jsonl", "t.jsonl"))
    for before, after in zip(old, fresh, strict=True):
        for one, other in zip(before.nodes, after.nodes, strict=True):
            known = [FEATURES.index(name) for name in ("min", "hop", "tokens", "score", "words", "at_hop", "off_topic")]
            np.testing.assert_array_equal(features(one)[known], features(other)[known])
            assert math.isnan(named(one)["echo"])
    assert evaluate_policy(old, gate).point.n == 2


@pytest.mark.parametrize("make", PROGRAMS)
@pytest.mark.parametrize("seed", range(3))
def test_a_program_with_the_policy_does_what_its_trees_predict(make: Any, seed: int, tmp_path: Path) -> None:
    trees, _ = recorded(make(), seed, tmp_path / "t.jsonl", QUESTIONS[:2], leaves=100)
    assert all(tree.complete for tree in trees.trees)
    gate = some_policy(seed)
    told = evaluate_policy(trees, gate)
    assert told.point.nearest == 0
    for tree, question, searches in zip(trees.trees, QUESTIONS, told.retrievals, strict=False):
        (taken,) = (
            leaf for leaf in tree.leaves if all(kept_by(gate, tree, place) is kept for place, kept in leaf.path)
        )
        program = make(gates={})
        program.gates = dict.fromkeys(program.steps, gate)
        with dspy.context(lm=lm_of(seed)):
            answered = program(question=question.question)
        assert (answered.answer, cost_of(answered.cost)) == (taken.answer, cost_of(taken))
        assert searches == taken.retrievals


def kept_by(gate: PolicyGate, tree: Tree, place: int) -> bool:
    return gate.probability(tree.nodes[place]) < 0.5


def test_expected_values_are_those_of_the_leaves(tmp_path: Path) -> None:
    gate = some_policy(4)
    for leaves in (2, 100):
        trees, _ = recorded(PROGRAMS[0](), 4, tmp_path / f"{leaves}.jsonl", leaves=leaves)
        told = evaluate_policy(trees, gate)
        both = [leaf_probabilities(tree, gate.probability) for tree in trees.trees]
        searches = [
            chances @ [leaf.retrievals for leaf in tree.leaves]
            for tree, (chances, _) in zip(trees.trees, both, strict=True)
        ]
        assert told.expected.retrievals == pytest.approx(np.mean(searches))
        assert told.unexplored == pytest.approx(np.mean([missing for _, missing in both]))
        assert (told.unexplored > 0.01) is (told.expected.nearest > 0) is (leaves == 2)


def threshold_policy(taus: dict[str, float]) -> PolicyGate:
    found = {f"mean_{step}": Weight(-5.0, mean=-1.0) for step in taus}
    return PolicyGate({**found, **{f"at_{s}": Weight(5.0 * (tau + 1.0)) for s, tau in taus.items()}}, taus)


@pytest.mark.parametrize("kind", [Escalation, ActiveQA])
def test_it_is_saved_loaded_and_copied_with_a_program_also_inside_another(kind: Any, tmp_path: Path) -> None:
    taus = {step: tau for step, tau in zip(get_args(Step), (-0.2, -0.2, -0.5, -0.1), strict=True) if step in kind.steps}
    gate = threshold_policy(taus)
    plain = kind(search, check_each_hop=True, **{SETTINGS[step]: tau for step, tau in taus.items()})

    class Outer(dspy.Module):
        def __init__(self, gate: PolicyGate) -> None:
            super().__init__()
            self.inner = kind(search, check_each_hop=True, gates=dict.fromkeys(taus, gate))

        def forward(self, question: str) -> dspy.Prediction:
            return self.inner(question=question)

    outer = Outer(gate)
    outer.save(tmp_path / "outer.json")
    outer.inner.save(tmp_path / "inner.json")
    fresh, inner = Outer(PolicyGate()), kind(search, gates=dict.fromkeys(taus, PolicyGate()))
    fresh.load(tmp_path / "outer.json")
    inner.load(tmp_path / "inner.json")
    for made in (fresh, copy.deepcopy(outer), outer.reset_copy()):
        assert made.inner.gates["hop"].dump_state() == gate.dump_state()
        assert made.inner.gates["hop"].weights is not gate.weights
    with dspy.context(lm=lm_of(5)):
        for question in QUESTIONS[:3]:
            expected = plain(question=question.question)
            for made in (outer, fresh, inner, copy.deepcopy(inner), inner.reset_copy()):
                told = made(question=question.question)
                assert (told.answer, cost_of(told.cost)) == (expected.answer, cost_of(expected.cost))


def test_what_it_never_keeps() -> None:
    eager = PolicyGate({"at_hop": Weight(-50.0), "at_final": Weight(-50.0)}, ["hop", "final"])
    assert eager.keeps(draft())
    for wrong in (draft(None), draft(math.nan), draft(-math.inf), replace(draft(), confidence=None)):
        assert not eager.keeps(wrong)
        assert eager.probability(wrong) == 1.0
        with pytest.raises(InputError, match="without a confidence"):
            features(wrong)
    assert not eager.keeps(draft(text="it"))
    assert eager.keeps(draft(text="it", step="final"))
    even = PolicyGate({"at_hop": Weight(0.0)}, ["hop"])
    assert even.probability(draft()) == 0.5
    assert not even.keeps(draft())


def test_what_it_cannot_decide_or_be() -> None:
    with dspy.context(lm=lm_of(1)), pytest.raises(InputError, match="step 'memory': it is empty"):
        Escalation(search, gates={"memory": PolicyGate()})(question="Who is it?")
    with pytest.raises(InputError, match="step 'final': it was trained for hop"):
        PolicyGate({"at_hop": Weight(1.0)}, ["hop"]).keeps(draft(step="final"))
    with pytest.raises(InputError, match="no feature 'mood'"):
        PolicyGate({"mood": Weight(1.0)}, ["hop"])
    with pytest.raises(InputError, match="no step 'hops'"):
        PolicyGate({"at_hop": Weight(1.0)}, ["hops"])
    for wrong in ({"weight": math.nan}, {"weight": 1.0, "scale": 0.0}, {"weight": 1.0, "missing": math.inf}):
        with pytest.raises(InputError, match=f"`{list(wrong)[-1]}` of a feature is a number"):
            Weight(**wrong)


@pytest.mark.parametrize(
    ("weights", "steps", "message"),
    [
        ({"min": 1.0}, ["hop"], "'min' takes a Weight"),
        ([1], ["hop"], "`weights` takes a Weight for each"),
        ([], ["hop"], "`weights` takes a Weight for each"),
        ({"min": Weight(1.0)}, 3, "`steps` takes a list"),
        ({"min": Weight(1.0)}, "hop", "`steps` takes a list"),
        ({"min": Weight(1.0)}, [1], "no step 1"),
    ],
)
def test_what_is_no_policy_is_refused_when_it_is_made(weights: Any, steps: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        PolicyGate(weights, steps)


@pytest.mark.parametrize("field", ["weight", "mean", "scale", "missing"])
@pytest.mark.parametrize(
    "value",
    ["x", "1", True, None, [1.0], math.nan, math.inf, -math.inf, 1e308, -1e308, 10**400],
    ids=lambda value: f"{value!r:.9}",
)
def test_a_weight_is_a_number_in_bounds(field: str, value: Any) -> None:
    given: dict[str, Any] = {"weight": 1.0, field: value}
    with pytest.raises(InputError, match=f"`{field}` of a feature is a number"):
        Weight(**given)
    gate = threshold_policy({"hop": -0.3})
    before = gate.dump_state()
    with pytest.raises(StateError, match=rf"`features\.min\.{field}`"):
        gate.load_state({**before, "features": {"min": given}})
    assert gate.dump_state() == before


@pytest.mark.parametrize("gate", [PolicyGate(), CalibratedGate()])
@pytest.mark.parametrize("state", [[], None, "x", 1, {}, {"version": 0}])
def test_what_is_no_saved_gate_is_refused(gate: Any, state: Any) -> None:
    with pytest.raises(StateError, match="version"):
        gate.load_state(state)


bounded = st.floats(-1e15, 1e15)


@given(
    st.dictionaries(
        st.sampled_from(FEATURES), st.builds(Weight, bounded, bounded, st.floats(1e-12, 1e12), bounded), max_size=9
    ),
    st.floats(-1e6, 0),
)
def test_a_policy_in_bounds_decides_without_overflow(weights: dict[str, Weight], mean: float) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert 0 <= PolicyGate(weights, ["hop"]).probability(Node("hop", 0, "x", mean, score=1e6)) <= 1


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2}, {"version": None}, {"version": True}, {"steps": ["hops"]}, {"steps": None}, {"features": None},
        {"features": {"mood": {"weight": 1.0}}}, {"features": {"min": {"weight": math.nan}}},
        {"features": {"min": {"weight": 1.0, "scale": -1.0}}}, {"features": {"min": {"weight": 1.0, "z": 1.0}}},
    ],
)  # fmt: skip
def test_a_state_that_does_not_fit_is_refused_and_changes_nothing(change: dict[str, Any]) -> None:
    gate = threshold_policy({"hop": -0.3})
    before = gate.dump_state()
    with pytest.raises(StateError, match="this hopgate reads up to 1" if "version" in change else "does not fit"):
        gate.load_state({**before, **change})
    assert gate.dump_state() == before == json.loads(json.dumps(before))


def test_the_documentation_runs_and_names_every_feature(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = Path(__file__).parents[1]
    text = (root / "docs" / "policy.md").read_text()
    (tmp_path / "benchmarks").symlink_to(root / "benchmarks")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", text, re.S):
        exec(block, names)
    for made in ("fresh", "loaded"):
        assert names[made].gates["grounded"].dump_state() == names["trained"].gate.dump_state()
    assert all(f"`{name}`" in text for name in FEATURES)


def test_an_answer_that_holds_the_beginning_of_its_question_is_recorded_as_it_is(tmp_path: Path) -> None:
    question = Question("1", "Who is the uncle of the keeper of the lighthouse at Osk?", ("b",))
    beginning = question.question[:45]
    reply = Reply(f"{beginning}, that is Ivar; {question.question}", -0.1)
    with dspy.context(lm=scripted_lm(lambda prompt: reply)):
        (tree,) = record_trees(Escalation(search), [question], tmp_path / "t.jsonl", leaves=1).trees
    text = f"{beginning}, that is Ivar; {{question}}"
    assert tree.leaves[0].answer == tree.nodes[0].text == text
    assert tree.nodes[0].words == len(reply.text.split())
