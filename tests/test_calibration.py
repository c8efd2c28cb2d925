"""Calibrators: what they map to, how good that is, and a gate that decides by them."""

from __future__ import annotations

import copy
import itertools
import json
import math
from pathlib import Path
from typing import Any

import dspy
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tree_worlds import QUESTIONS, lm_of, recorded, search

from hopgate.core import InputError, StateError
from hopgate.lms.confidence import confidence_of
from hopgate.optimizers import CalibratedGate, Calibrator, calibrate, calibration, fit_calibrator, quality
from hopgate.programs import Draft, Escalation, ThresholdGate, Trajectory

METHODS = ("platt", "isotonic", "temperature")


@pytest.mark.parametrize("method", METHODS)
def test_a_calibrator_learns_how_often_answers_are_right(method: Any) -> None:
    rng = np.random.default_rng(0)
    means = -rng.exponential(0.8, 600)
    true = np.exp(means / 0.3) if method == "temperature" else 1 / (1 + np.exp(-(3 * means + 1)))
    right = rng.random(len(means)) < true
    fitted = fit_calibrator(means[:400].tolist(), right[:400].tolist(), method=method)
    told = [fitted(mean) for mean in means[400:]]
    assert np.mean(np.abs(np.array(told) - true[400:])) < 0.06
    after, before = quality(told, right[400:].tolist()), quality(np.exp(means[400:]).tolist(), right[400:].tolist())
    assert after.ece < min(0.1, before.ece)
    assert after.brier < before.brier
    assert fitted.n == 400


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.floats(-20, 0), st.booleans()), min_size=2, max_size=20).filter(
        lambda rows: len({right for _, right in rows}) == 2
    ),
    st.sampled_from(METHODS),
    st.lists(st.floats(-30, 0), min_size=2, max_size=10),
    st.floats(0, 1),
)
def test_it_never_falls_and_a_threshold_says_the_same(
    rows: list[tuple[float, bool]], method: Any, points: list[float], probability: float
) -> None:
    fitted = fit_calibrator([mean for mean, _ in rows], [right for _, right in rows], method=method)
    told = [fitted(mean) for mean in sorted(points)]
    assert all(0 <= value <= 1 for value in told)
    assert all(one <= other + 1e-12 for one, other in itertools.pairwise(told))
    gate = CalibratedGate(probability, {"hop": fitted})
    tau = gate.tau("hop")
    for mean in points:
        draft = Draft(Trajectory("q"), "Who?", "b", confidence_of([mean]))
        if tau is None or abs(mean - tau) > 1e-6:
            assert gate.keeps(draft) is (tau is not None and ThresholdGate(tau).keeps(draft))


def test_quality_of_known_probabilities() -> None:
    found = quality([0.9, 0.9, 0.1, 0.1], [True, False, False, False])
    assert found.ece == pytest.approx((0.4 + 0.1) / 2)
    assert found.brier == pytest.approx((0.01 + 0.81 + 0.01 + 0.01) / 4)
    assert found.auroc == pytest.approx(5 / 6)
    assert found.risk_coverage == ((0.5, 0.5), (1.0, 0.75))
    assert quality([0.5], [True]).auroc is None
    assert json.loads(json.dumps(found.to_dict()))["n"] == 4
    for wrong in (([], []), ([0.5], []), ([1.5], [True]), ([math.nan], [True])):
        with pytest.raises(InputError):
            quality(*wrong)


@pytest.mark.parametrize("wrong", [([], []), ([-1.0], [True]), ([-1.0, -2.0], [True]), ([0.5, -1.0], [True, False]),
                                   ([-math.inf, -1.0], [True, False]), ([-1.0, -2.0], [True, True])])  # fmt: skip
def test_what_cannot_be_fitted_is_said(wrong: Any) -> None:
    for method in METHODS:
        with pytest.raises(InputError):
            fit_calibrator(*wrong, method=method)
    with pytest.raises(InputError, match="method"):
        fit_calibrator([-1.0, -2.0], [True, False], method="beta")  # type: ignore[arg-type]


def test_a_confidence_that_tells_nothing_gives_the_share_of_right_answers() -> None:
    fitted = fit_calibrator([-0.1, -0.2, -3.0, -4.0], [False, False, True, False])
    assert fitted(-0.1) == fitted(-9.0) == pytest.approx(0.25)


def test_each_step_has_its_own(tmp_path: Path) -> None:
    trees, _ = recorded(Escalation(search), 5, tmp_path / "t.jsonl")
    found = calibrate(trees)
    stakes = calibration.answers_at_stake(trees)
    assert "hop" not in stakes  # these questions have no steps to judge a draft by
    assert set(found) == {step for step, (_, right) in stakes.items() if len(set(right)) == 2} != set()
    assert {step: fitted.n for step, fitted in found.items()} == {step: len(stakes[step][0]) for step in found}
    with pytest.raises(InputError, match="more questions"):
        calibrate([])


@pytest.mark.parametrize("method", METHODS)
def test_the_gate_is_saved_loaded_and_copied_with_a_program(tmp_path: Path, method: Any) -> None:
    fitted = fit_calibrator([-0.1, -0.2, -3.0, -0.15], [True, True, False, False], method=method)
    gate = CalibratedGate(0.6, {"memory": fitted, "grounded": fitted})
    program = Escalation(search, gates={"memory": gate, "grounded": gate})
    program.save(tmp_path / "program.json")
    fresh = Escalation(search, gates=dict.fromkeys(("memory", "grounded"), CalibratedGate()))
    fresh.load(tmp_path / "program.json")
    again = fresh.gates["memory"]
    assert isinstance(again, CalibratedGate)
    assert (again.calibrators, again.probability) == (gate.calibrators, 0.6)
    thresholds = {"tau_memory": gate.tau("memory"), "tau_grounded": gate.tau("grounded")}
    plain = Escalation(search, **thresholds)
    with dspy.context(lm=lm_of(5)):
        for question in QUESTIONS:
            expected = plain(question=question.question).answer
            for made in (program, fresh, copy.deepcopy(program), program.reset_copy()):
                assert made(question=question.question).answer == expected


def test_the_gate_refuses_what_it_cannot_decide(tmp_path: Path) -> None:
    with dspy.context(lm=lm_of(1)), pytest.raises(InputError, match="calibrator for the step 'memory'"):
        Escalation(search, gates={"memory": CalibratedGate()})(question="Who is it?")
    for wrong in (-0.1, 1.1, math.nan, True, "0.5"):
        with pytest.raises(InputError, match="probability"):
            CalibratedGate(wrong)  # type: ignore[arg-type]
    good = CalibratedGate(0.5, {"hop": Calibrator("temperature", (), (1.0,), 4)}).dump_state()
    fitted = good["calibrators"]["hop"]
    for change in (
        {"version": 2}, {"version": None}, {"probability": 3}, {"calibrators": None},
        {"calibrators": {"hop": {**fitted, "y": []}}}, {"calibrators": {"hop": {**fitted, "y": [-1.0]}}},
        {"calibrators": {"hop": {**fitted, "y": [math.nan]}}}, {"calibrators": {"hop": {**fitted, "z": 1}}},
        {"calibrators": {"hop": {**fitted, "y": [True]}}}, {"calibrators": {"hop": {**fitted, "y": ["1"]}}},
        {"calibrators": {"hop": {**fitted, "n": True}}},
        {"calibrators": {"hop": {**fitted, "method": "platt"}}},
        {"calibrators": {"hop": {**fitted, "method": "isotonic", "x": [0.0, -1.0], "y": [0.1, 0.2]}}},
    ):  # fmt: skip
        gate = CalibratedGate()
        with pytest.raises(StateError):
            gate.load_state({**good, **change})
        assert gate.calibrators == {}
