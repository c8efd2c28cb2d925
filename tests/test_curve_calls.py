"""What trying thresholds takes, counted by replaying trees, is what the program takes when it is run at them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dspy
import pytest
from click.testing import CliRunner, Result
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tree_worlds import QUESTIONS, lm_of, recorded, search

from hopgate.evaluation import evaluate
from hopgate.programs import ActiveQA

ROOT = Path(__file__).parents[1]
few = settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import curve_calls  # type: ignore[import-not-found]

    return curve_calls


def called(benchmark: Any, *arguments: Any) -> Result:
    return CliRunner().invoke(benchmark.main, [str(argument) for argument in arguments])


@few
@given(st.integers(0, 10**6), st.lists(st.floats(-4.5, 0), min_size=1, max_size=5))
def test_counts_are_those_of_the_program_with_and_without_a_cache(
    benchmark: Any, tmp_path_factory: pytest.TempPathFactory, seed: int, taus: list[float]
) -> None:
    path = tmp_path_factory.mktemp("t") / "trees.jsonl"
    trees, _ = recorded(ActiveQA(search, max_hops=3), seed, path, QUESTIONS[:3], leaves=100)
    replay, lm = benchmark.Replay(list(trees.explored)), lm_of(seed)
    program = ActiveQA(search, max_hops=3)
    retrievals = 0
    for tau in taus:
        replay.run(tau)
        program.settings.update(tau=tau)
        with dspy.context(lm=lm):
            retrievals += sum(program(question=one.question).cost.retrievals for one in QUESTIONS[:3])
    prompts = lm.engine.prompts
    assert (replay.calls, replay.retrievals) == (len(prompts), retrievals)
    # Here a prompt that is met on two branches is counted for both, which a cache answers once.
    assert len(set(prompts)) <= replay.distinct_calls() <= len(prompts)


def test_the_curve_makes_each_call_once_and_is_at_least_as_good(benchmark: Any, tmp_path: Path) -> None:
    recorded(ActiveQA(search, max_hops=3), 3, tmp_path / "trees.jsonl", leaves=100)
    told = called(benchmark, "count", tmp_path / "trees.jsonl", "--first", "6")
    assert told.exit_code == 0, told.output
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in told.output.splitlines() if "|" in line][2:]
    curve, *others = rows
    assert len(others) == 4
    for row in others:
        assert int(row[1]) > int(curve[1]) or "no cache" not in row[0]
        assert float(row[4]) <= float(curve[4])


def test_a_run_without_a_cache_takes_what_the_trees_tell(benchmark: Any, tmp_path: Path) -> None:
    recorded(ActiveQA(search, max_hops=3), 3, tmp_path / "trees.jsonl", leaves=100)
    with dspy.context(lm=lm_of(3)):
        evaluate(ActiveQA(search, max_hops=3, tau=-0.5), QUESTIONS, tmp_path / "run.jsonl")
    told = called(benchmark, "check", tmp_path / "trees.jsonl", tmp_path / "run.jsonl")
    assert told.exit_code == 0, told.output
    assert "6 of 6 questions with the same calls, searches and answer" in told.output
    with dspy.context(lm=lm_of(4)):  # another world
        evaluate(ActiveQA(search, max_hops=3, tau=-0.5), QUESTIONS, tmp_path / "other.jsonl")
    told = called(benchmark, "check", tmp_path / "trees.jsonl", tmp_path / "other.jsonl")
    assert "6 of 6" not in told.output


def test_trees_of_several_thresholds_are_refused(benchmark: Any, tmp_path: Path) -> None:
    recorded(ActiveQA(search, max_hops=2, check_each_hop=True), 3, tmp_path / "trees.jsonl", leaves=9)
    told = called(benchmark, "count", tmp_path / "trees.jsonl")
    assert told.exit_code == 2
    assert "one threshold is wanted" in told.output
