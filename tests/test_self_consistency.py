"""Self-consistency: sampling, the vote, its share, and resuming."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import dspy
import pytest

from hopgate.core import InputError
from hopgate.lms.testing import Reply, scripted_lm
from hopgate.programs import DEFAULT_EXAMPLES, SelfConsistency, Trajectory

QUESTION = "When was Mira Dol born?"


def script(*answers: str) -> Callable[[str], Reply]:
    """The answers of one sample after the other."""
    given = iter(answers)
    return lambda prompt: Reply(f" Because.\nAnswer: {next(given)}")


def run(program: SelfConsistency, lm: dspy.LM, trajectory: Trajectory | None = None) -> dspy.Prediction:
    with dspy.context(lm=lm):
        return program(question=QUESTION, trajectory=trajectory)


@pytest.mark.parametrize(
    ("answers", "expected", "share"),
    [
        (["1871", "1902", "1902"], "1902", 2 / 3),
        (["Mira Dol", "Ann Ort", "the mira dol."], "Mira Dol", 2 / 3),
        (["b", "c", "d"], "b", 1 / 3),
        (["c", "b", "b", "c"], "c", 1 / 2),
        (["1871"], "1871", 1.0),
        (["", "", "1871"], "1871", 1 / 3),
        (["", ""], "", 0.0),
        (["?!", "?!", "x"], "?!", 2 / 3),
    ],
)
def test_the_most_frequent_answer_wins(answers: list[str], expected: str, share: float) -> None:
    result = run(SelfConsistency(samples=len(answers)), scripted_lm(script(*answers)))
    assert result.answer == result.trajectory.answer == expected
    assert result.confidence == pytest.approx(share)
    assert [hop.answer for hop in result.trajectory.hops] == answers
    assert result.cost.lm_calls == len(answers)
    assert result.cost.retrievals == 0
    assert result.trajectory.stop_reason == ("finished" if expected else "empty")


def configs(lm: dspy.LM) -> list[dict[str, Any]]:
    return [entry["kwargs"] for entry in lm.history]


def test_each_sample_is_another_rollout_at_a_temperature() -> None:
    lm = scripted_lm(script("1871", "1902", "1902"))
    run(SelfConsistency(samples=3, temperature=0.9), lm)
    assert [config["temperature"] for config in configs(lm)] == [0.9] * 3
    assert [config["rollout_id"] for config in configs(lm)] == [1, 2, 3]
    assert [config["seed"] for config in configs(lm)] == [1, 2, 3]


def test_another_rollout_of_the_lm_gives_other_samples() -> None:
    lm = scripted_lm(script(*["1871"] * 6))
    run(SelfConsistency(samples=3), lm)
    again = lm.copy(rollout_id=1, temperature=1.0)
    run(SelfConsistency(samples=3), again)
    used = [config["rollout_id"] for config in configs(lm) + configs(again)]
    assert len(set(used)) == 6


def test_samples_differ_with_a_warm_cache() -> None:
    before = dspy.cache
    dspy.configure_cache(enable_disk_cache=False, enable_memory_cache=True)
    try:
        lm = scripted_lm(script("1871", "1902", "1902"), cache=True)
        first, second = (run(SelfConsistency(samples=3), lm) for _ in range(2))
    finally:
        dspy.cache = before
    assert first.answer == second.answer == "1902"
    assert len(lm.engine.prompts) == 3
    assert (first.cost.cached_calls, second.cost.cached_calls) == (0, 3)


def test_only_the_winning_sample_joins_the_trace() -> None:
    program = SelfConsistency(samples=3)
    with dspy.context(lm=scripted_lm(script("1871", "1902", "1902")), trace=[]):
        asyncio.run(program.acall(question=QUESTION))
        assert [entry[2].answer for entry in dspy.settings.trace] == ["1902"]


def test_an_unreadable_sample_is_no_vote() -> None:
    replies = iter([" nothing but words", " Because.\nAnswer: 1871"])
    result = run(SelfConsistency(samples=2), scripted_lm(lambda prompt: Reply(next(replies))))
    assert (result.answer, result.confidence) == ("1871", 0.5)
    assert result.trajectory.hops[0].note


def timeless(trajectory: Trajectory) -> Trajectory:
    hops = tuple(replace(hop, cost=replace(hop.cost, seconds=0)) for hop in trajectory.hops)
    return replace(trajectory, hops=hops, other_cost=replace(trajectory.other_cost, seconds=0))


def test_resuming_a_prefix_takes_the_other_samples() -> None:
    answers, program = ("1871", "1902", "1902"), SelfConsistency(samples=3)
    lm = scripted_lm(script(*answers))
    whole = run(program, lm).trajectory
    for hops in range(4):
        rest = scripted_lm(script(*answers[hops:]))
        prefix = Trajectory.from_dict(whole.prefix(hops).to_dict())
        assert timeless(run(program, rest, prefix).trajectory) == timeless(whole)
        assert [config["rollout_id"] for config in configs(rest)] == list(range(hops + 1, 4))


def test_an_error_carries_the_samples_so_far() -> None:
    lm = scripted_lm(script("1871", "1902"))
    with pytest.raises(dspy.LMError) as caught:
        run(SelfConsistency(samples=3), lm)
    assert [hop.answer for hop in caught.value.trajectory.hops] == ["1871", "1902"]  # type: ignore[attr-defined]


def test_a_rejected_answer_does_not_win() -> None:
    lm = scripted_lm(script("The 1902", "1902", "1871"))
    assert run(SelfConsistency(samples=3), lm, Trajectory(QUESTION, rejected=("1902",))).answer == "1871"


def test_worked_examples_are_shown_unless_there_are_to_be_none() -> None:
    lm = scripted_lm(script("1871", "1871"))
    run(SelfConsistency(samples=1), lm)
    run(SelfConsistency(samples=1, examples=[]), lm)
    assert DEFAULT_EXAMPLES[0].question in lm.engine.prompts[0]
    assert "Reasoning: The architect of the Halden Lighthouse was Ivar Brenne." in lm.engine.prompts[0]
    assert DEFAULT_EXAMPLES[0].question not in lm.engine.prompts[1]


def test_settings_are_checked() -> None:
    for wrong in ({"samples": 0}, {"temperature": 0}, {"temperature": 3}, {"tau": -1}):
        with pytest.raises(InputError, match=next(iter(wrong))):
            SelfConsistency(**wrong)
