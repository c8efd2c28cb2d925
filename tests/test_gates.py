"""Gates: thresholds, rates, gold answers; what they decide and what may be saved."""

from __future__ import annotations

import copy
import math
import pickle
from pathlib import Path
from typing import Any

import dspy
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopgate.core import InputError, StateError
from hopgate.evaluation import exact_match
from hopgate.lms.confidence import AnswerConfidence
from hopgate.lms.testing import Reply, scripted_lm
from hopgate.programs import (
    ActiveQA,
    ConstantGate,
    Draft,
    Escalation,
    Gate,
    OracleGate,
    RandomGate,
    Step,
    ThresholdGate,
    Trajectory,
)

QUESTION = "When was the designer of the Osk Tower born?"


def draft(text: str = "1871", mean: float | None = -0.5, *, step: Step = "hop", sub_question: str = "When?") -> Draft:
    confidence = None if mean is None else AnswerConfidence(mean, mean, mean, mean, 1)
    return Draft(Trajectory(QUESTION), sub_question, text, confidence, step)


@given(st.floats(-20, 0), st.floats(-20, 0), st.floats(-20, 0))
def test_raising_a_threshold_never_keeps_more(low: float, high: float, mean: float) -> None:
    low, high = sorted((low, high))
    assert ThresholdGate(low).keeps(draft(mean=mean)) >= ThresholdGate(high).keeps(draft(mean=mean))


@pytest.mark.parametrize(("step", "kept"), [("hop", False), ("memory", False), ("grounded", True), ("final", True)])
def test_only_what_comes_from_memory_may_not_repeat_the_question(step: Step, kept: bool) -> None:
    repeating = draft("the Osk Tower", -0.01, step=step, sub_question="Who designed the Osk Tower?")
    assert ThresholdGate(-0.1).keeps(repeating) is kept


def test_a_draft_without_confidence_is_not_kept() -> None:
    assert not ThresholdGate(-5.0).keeps(draft(mean=None))


# --- at random --------------------------------------------------------------------------------------------------------


@given(st.floats(0, 1), st.floats(0, 1), st.integers(), st.text())
def test_a_higher_rate_never_keeps_more(low: float, high: float, seed: int, sub_question: str) -> None:
    low, high = sorted((low, high))
    asked = draft(sub_question=sub_question)
    assert RandomGate(low, seed).keeps(asked) >= RandomGate(high, seed).keeps(asked)


@pytest.mark.parametrize("rate", [0.0, 0.3, 0.8, 1.0])
def test_the_rate_is_kept(rate: float) -> None:
    searched = sum(not RandomGate(rate, seed=4).keeps(draft(sub_question=str(n))) for n in range(2000))
    assert searched / 2000 == pytest.approx(rate, abs=0.0 if rate in (0, 1) else 0.04)


def test_decisions_repeat_and_depend_on_seed_step_and_both_questions() -> None:
    def decisions(seed: int = 0, step: Step = "hop", question: str = QUESTION, end: str = "") -> list[bool]:
        drafts = (Draft(Trajectory(question), f"{n}{end}", "1871", None, step) for n in range(64))
        return [RandomGate(0.5, seed).keeps(one) for one in drafts]

    first = decisions()
    assert decisions() == first
    for other in (decisions(seed=1), decisions(step="memory"), decisions(question="Who?"), decisions(end="?")):
        assert other != first


@pytest.mark.parametrize("rate", [-0.1, 1.1, float("nan")])
def test_a_rate_out_of_range_is_refused(rate: float) -> None:
    with pytest.raises(InputError, match="rate"):
        RandomGate(rate)


def script(prompt: str) -> Reply:
    label = prompt.rsplit("\n", 1)[-1].removeprefix("assistant: ")
    if label.startswith("Task"):
        return Reply(
            {"Task 1:": "Who designed the Osk Tower?", "Task 2:": "When was Mira Dol born?"}.get(label, "none")
        )
    read = "\nFound:" in prompt.rsplit("Task", 1)[1]
    said = {"Conclusion 1:": ("Ann Ort", "Mira Dol"), "Conclusion 2:": ("1871", "1902")}
    return Reply(said[label][read] if label in said else "1871", -0.1)


def answered(program: ActiveQA) -> Trajectory:
    with dspy.context(lm=scripted_lm(script)):
        return program(question=QUESTION).trajectory


@pytest.mark.parametrize(("rate", "source"), [(0.0, "memory"), (1.0, "search")])
def test_random_is_a_setting(index: Any, rate: float, source: str) -> None:
    trajectory = answered(ActiveQA(index, gate="random", search_rate=rate))
    assert {hop.source for hop in trajectory.hops} == {source}
    assert [made.kept for made in trajectory.decisions] == [rate == 0.0] * 2


# --- with gold answers ------------------------------------------------------------------------------------------------


def test_the_oracle_keeps_what_is_right(index: Any) -> None:
    gate = OracleGate(exact_match, {QUESTION: ["1871"]}, {QUESTION: ["Mira Dol"]})
    assert isinstance(gate, Gate)
    assert [hop.source for hop in answered(ActiveQA(index, gate=gate)).hops] == ["search", "memory"]


def test_intermediate_answers_count_for_hops_alone() -> None:
    gate = OracleGate(exact_match, {QUESTION: ["1871"]}, {QUESTION: ["Mira Dol"]})
    steps: tuple[Step, ...] = ("hop", "memory", "grounded", "final")
    assert [gate.keeps(draft("Mira Dol", step=step)) for step in steps] == [True, False, False, False]
    assert [gate.keeps(draft("1871", step=step)) for step in steps] == [True] * 4
    assert not OracleGate(exact_match, {QUESTION: ["1871"]}).keeps(draft("Mira Dol"))


def test_the_oracle_needs_the_gold_answer_of_the_question(index: Any) -> None:
    with pytest.raises(InputError, match="gold answer"):
        answered(ActiveQA(index, gate=OracleGate(exact_match, {"Who?": ["1871"]})))
    with pytest.raises(InputError, match="intermediate"):
        OracleGate(exact_match, {}, {QUESTION: "1871"})


class Mine(dspy.Module):
    def __init__(self, program: ActiveQA) -> None:
        super().__init__()
        self.qa = program


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("step", ["hop", "grounded"])
def test_a_program_with_an_oracle_cannot_be_saved(index: Any, tmp_path: Path, nested: bool, step: Step) -> None:
    solver = Escalation(index, gates={step: OracleGate(exact_match, {QUESTION: ["1871"]})})
    program = Mine(solver) if nested else solver
    with pytest.raises(StateError, match="oracle"):
        program.save(tmp_path / "program.json")
    assert not (tmp_path / "program.json").exists()
    with pytest.raises(StateError, match="oracle"):
        pickle.dumps(program)
    state = ActiveQA(index).dump_state()
    with pytest.raises(StateError, match="oracle"):
        ActiveQA(index, gate=OracleGate(exact_match, {})).load_state({**state, "gate": {}})


@pytest.mark.parametrize("copied", ["deepcopy", "reset_copy"])
def test_a_program_with_an_oracle_can_be_copied(index: Any, copied: str) -> None:
    program = ActiveQA(index, gate=OracleGate(exact_match, {QUESTION: ["1871"]}))
    again = getattr(program, copied)()
    assert again.gate is program.gate
    assert copy.copy(program).gate is program.gate
    assert [hop.source for hop in answered(again).hops] == ["search", "memory"]


def test_no_name_gives_an_oracle(index: Any) -> None:
    with pytest.raises(InputError, match="gate"):
        ActiveQA(index, gate="oracle")


_NO_NUMBERS = ["x", "-0.3", None, True, [0.5], math.nan, 1j, {}]


@pytest.mark.parametrize("value", _NO_NUMBERS)
def test_a_threshold_or_a_rate_is_a_number(value: Any) -> None:
    for make in (ThresholdGate, RandomGate):
        with pytest.raises(InputError, match=r"number|rate"):
            make(value)


@pytest.mark.parametrize("tau", [-0.3, 0, -math.inf, np.float32(-0.3), np.float64(-0.3)])
def test_any_kind_of_number_is_a_threshold(tau: Any) -> None:
    assert not ThresholdGate(tau).keeps(Draft(Trajectory("q"), "q", "x", None))


@pytest.mark.parametrize("value", ["yes", None, 5, 0.5, []])
def test_a_constant_gate_takes_a_truth_value(value: Any) -> None:
    with pytest.raises(InputError, match="search"):
        ConstantGate(value)


@pytest.mark.parametrize("seed", ["1", None, 0.5])
def test_a_seed_is_an_integer(seed: Any) -> None:
    with pytest.raises(InputError, match="seed"):
        RandomGate(0.5, seed)


@pytest.mark.parametrize("value", [5, "Who?", ["a"], {"Who?": "Ivar"}, {"Who?": 5}, {"Who?": None}])
def test_gold_answers_are_lists_by_question(value: Any) -> None:
    for told in ({"answers": value}, {"answers": {}, "intermediate": value}):
        with pytest.raises(InputError, match=r"answers|intermediate"):
            OracleGate(lambda text, golds: True, **told)
    with pytest.raises(InputError, match="right"):
        OracleGate(value, {})


@pytest.mark.parametrize("gates", [5, "hop", ["hop"], [("hop", ConstantGate(search=True))], True, ConstantGate])
def test_gates_that_are_no_mapping_are_refused(index: Any, gates: Any) -> None:
    for program in (ActiveQA, Escalation):
        with pytest.raises(InputError, match="`gates`"):
            program(index, gates=gates)


@pytest.mark.parametrize("steps", [[5], [None], ["nowhere", 5], [("hop",)], ["memory"]])
def test_gates_of_steps_that_are_not_there_are_refused(index: Any, steps: list[Any]) -> None:
    with pytest.raises(InputError, match="`gates`: there is no step"):
        ActiveQA(index, gates=dict.fromkeys(steps, ConstantGate(search=True)))
