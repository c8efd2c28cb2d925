"""Workers that are killed, and workers that share a study."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
import study_workers as workers

from hopgate.optimizers import FinishedTrial, SharedStudy

# The first two writes begin the study; then each trial is begun, gets its notes, and is finished. A session that finds
# a dead worker's trial first writes two lines about it.
MOMENTS = [
    (1, "half way"),
    (1, "after"),
    (3, "half way"),
    (3, "after"),
    (2, "after"),
    (4, "half way"),
    (5, "before"),
    (5, "after"),
    (9, "half way"),
    (10, "after"),
    (6, "before"),
]


def finished(journal: Path) -> tuple[FinishedTrial, ...]:
    with SharedStudy.open(journal, workers.spec()) as study:
        return study.finished()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[FinishedTrial, ...]:
    journal = tmp_path_factory.mktemp("undisturbed") / "study.log"
    workers.work(journal)
    return finished(journal)


def test_a_study_killed_at_many_moments_equals_an_undisturbed_one(
    tmp_path: Path, undisturbed: tuple[FinishedTrial, ...]
) -> None:
    journal, log = tmp_path / "study.log", tmp_path / "evaluations.txt"
    log.touch()
    before: tuple[FinishedTrial, ...] = ()
    for write, moment in MOMENTS:
        logged = len(log.read_text().splitlines())
        assert workers.run(workers.killed, journal, log, write, moment) == -9
        again = {int(line.split()[1]) for line in log.read_text().splitlines()[logged:]}
        assert not again & {trial.number for trial in before}, "a finished trial was evaluated again"
        now = finished(journal)
        assert now[: len(before)] == before, "a finished trial was lost"
        before = now
    assert 3 < len(before) < workers.TRIALS, "the kills should be spread over the study"
    assert workers.run(workers.work, journal, log) == 0
    assert finished(journal) == undisturbed
    assert sorted(path.name for path in tmp_path.glob("*study*")) == [".study.log.lock", "study.log"]
    evaluated = Counter(int(line.split()[1]) for line in log.read_text().splitlines())
    assert max(evaluated.values()) > 1, "no kill hit an evaluation"


def test_a_dead_worker_s_trial_is_given_to_the_next_and_a_live_one_s_is_not(tmp_path: Path) -> None:
    journal = tmp_path / "study.log"
    first, second, release = tmp_path / "first.json", tmp_path / "second.json", tmp_path / "release"
    with workers.started(workers.hold, journal, first, release) as dying:
        of_the_dead = json.loads(workers.appears(first))
        with workers.started(workers.hold, journal, second, release) as living:
            of_the_living = json.loads(workers.appears(second))
            dying.kill()
            dying.join()
            with SharedStudy.open(journal, workers.spec(), sampler=workers.sampler) as study:
                trials = [study.ask() for _ in range(3)]
                asked = [trial.parameters for trial in trials if trial is not None]
                assert asked[0] == of_the_dead
                assert of_the_living not in asked and len({str(each) for each in asked}) == 3
                release.touch()
                living.join(60)
                assert living.exitcode == 0
                assert [trial.parameters for trial in study.finished()] == [of_the_living]


def test_two_workers_share_a_study(tmp_path: Path) -> None:
    journal, log = tmp_path / "study.log", tmp_path / "evaluations.txt"
    workers.two_share(journal, log, trials=20, seconds=0.02)
    assert 20 <= len(finished(journal)) <= 21  # each may be at its last one when the other reaches the count
