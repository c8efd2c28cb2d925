"""Abstaining: which answers are kept back, and that nothing else changes."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import Any

import dspy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopgate.core import ConfidenceError, InputError
from hopgate.lms.confidence import AnswerConfidence
from hopgate.lms.testing import Reply, scripted_lm
from hopgate.programs import ActiveQA, Escalation, Hop, Trajectory
from hopgate.programs.abstaining import supported

QUESTION = "When was the designer of the Osk Tower born?"


UNSURE = Reply("1902", -3.0)


def script(answer: Reply | str, memory: Reply | str = UNSURE) -> Any:
    def reply(prompt: str) -> Reply | str:
        label = prompt.rsplit("\n", 1)[-1].removeprefix("assistant: ")
        if label.startswith("Task"):
            return "Who designed the Osk Tower?" if label == "Task 1:" else "none"
        if label.startswith("Answer"):
            return answer if "Example:" in prompt else memory
        return Reply("Mira Dol" if "\nFound:" in prompt.rsplit("Task", 1)[1] else "Ann Ort", -2.0)

    return reply


def run(program: Any, answer: Reply | str, trajectory: Trajectory | None = None, **said: Any) -> dspy.Prediction:
    with dspy.context(lm=scripted_lm(script(answer, **said))):
        return program(question=QUESTION, trajectory=trajectory)


@pytest.fixture(params=[ActiveQA, partial(Escalation, prefer="last")], ids=["ActiveQA", "Escalation"])
def kind(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.mark.parametrize(("mean", "answered"), [(-0.1, True), (-1.0, True), (-1.01, False), (-5.0, False)])
def test_an_answer_below_the_threshold_is_kept_back(index: Any, kind: Any, mean: float, answered: bool) -> None:
    result = run(kind(index, abstain=True, tau_abstain=-1.0), Reply("1871", mean))
    assert (result.answered, result.answer, result.best_guess) == (answered, "1871" if answered else "", "1871")


@pytest.mark.parametrize("mean", [-0.1, -5.0, None])
def test_it_is_off_by_default(index: Any, kind: Any, mean: float | None) -> None:
    result = run(kind(index), Reply("1871", mean))
    assert (result.answered, result.answer, result.best_guess) == (True, "1871", "1871")


def test_no_answer_at_all_is_no_answer_in_either_case(index: Any, kind: Any) -> None:
    for abstain in (False, True):
        with dspy.context(lm=scripted_lm(lambda prompt: "")):
            result = kind(index, abstain=abstain)(question=QUESTION)
        assert (result.answered, result.answer, result.best_guess) == (False, "", "")


def test_the_trajectory_is_scored_either_way(index: Any, kind: Any) -> None:
    kept, plain = run(kind(index, abstain=True), Reply("1871", -5.0)), run(kind(index), Reply("1871", -5.0))
    assert (kept.answered, plain.answered) == (False, True)
    assert (kept.trajectory.answer, kept.trajectory.decisions) == ("1871", plain.trajectory.decisions)
    assert kept.cost.lm_calls == plain.cost.lm_calls
    for abstain in (True, False):
        again = run(kind(index, abstain=abstain), "unused", trajectory=kept.trajectory)
        assert again.answered is not abstain
        assert again.trajectory == kept.trajectory


def test_an_answer_from_memory_is_judged_by_its_own_confidence(index: Any) -> None:
    for mean in (-0.5, -2.0):
        program = Escalation(index, abstain=True, tau_memory=-3.0, tau_abstain=-1.0)
        result = run(program, "unused", memory=Reply("1902", mean))
        assert (result.answered, result.best_guess) == (mean > -1.0, "1902")


def test_acall_abstains_too(index: Any) -> None:
    with dspy.context(lm=scripted_lm(script(Reply("1871", -5.0)))):
        result = asyncio.run(ActiveQA(index, abstain=True).acall(question=QUESTION))
    assert (result.answered, result.best_guess) == (False, "1871")


def test_without_logprobs_it_says_so_or_has_no_support(index: Any) -> None:
    with pytest.raises(ConfidenceError):
        run(ActiveQA(index, gate="always", abstain=True), Reply("1871", None))
    result = run(ActiveQA(index, gate="always", abstain=True, without_confidence="search"), Reply("1871", None))
    assert (result.answered, result.best_guess) == (False, "1871")  # the hop's own answer is unsure as well


def test_the_setting_is_checked_and_saved(index: Any) -> None:
    with pytest.raises(InputError, match="tau_abstain"):
        ActiveQA(index, tau_abstain=0.1)
    program, fresh = ActiveQA(index, abstain=True, tau_abstain=-2.0), ActiveQA(index)
    fresh.load_state(program.dump_state())
    assert (fresh.settings.values.abstain, fresh.settings.values.tau_abstain) == (True, -2.0)


# --- what supports an answer ------------------------------------------------------------------------------------------


def sure(mean: float) -> AnswerConfidence:
    return AnswerConfidence(mean, mean, mean, mean, 1)


READ = Hop("a?", source="search", answer="x", answer_confidence=sure(-0.2))
KNOWN = Hop("b?", confidence=sure(-0.4), answer="y")
SUMMED = Hop("c?", source="calculator", answer="7")


@pytest.mark.parametrize(
    ("hops", "support"),
    [
        ((READ,), True), ((READ, KNOWN), True), ((KNOWN, SUMMED), True),
        ((READ, replace(KNOWN, confidence=sure(-0.9))), False), ((replace(READ, answer_confidence=sure(-0.9)),), False),
        ((READ, replace(KNOWN, answer="")), False), ((READ, replace(KNOWN, confidence=None)), False),
        ((SUMMED,), False), ((), False),
    ],
    ids=str,
)  # fmt: skip
def test_without_a_final_confidence_the_least_sure_hop_decides(hops: tuple[Hop, ...], support: bool) -> None:
    assert supported(Trajectory(QUESTION, hops, answer="z"), -0.5) is support
    assert not supported(Trajectory(QUESTION, hops, answer=""), -0.5)
    assert supported(Trajectory(QUESTION, hops, answer="z", answer_confidence=sure(-0.1)), -0.5)
    assert not supported(Trajectory(QUESTION, hops, answer="z", answer_confidence=sure(-0.7)), -0.5)


@given(st.floats(-9, 0), st.floats(-9, 0), st.floats(-9, 0))
def test_raising_the_threshold_never_answers_more(low: float, high: float, mean: float) -> None:
    low, high = sorted((low, high))
    trajectory = Trajectory(QUESTION, answer="z", answer_confidence=sure(mean))
    assert supported(trajectory, low) >= supported(trajectory, high)
