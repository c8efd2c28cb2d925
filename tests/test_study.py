"""Studies: what is asked, recorded, refused and resumed."""

from __future__ import annotations

import json
import logging
import math
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import optuna
import pytest
import study_workers as workers
from hypothesis import given, settings
from hypothesis import strategies as st
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from study_workers import Sampler, asked, go_on, opened, random_sampler

from hopgate.core import InputError, StateError
from hopgate.optimizers import FinishedTrial, StudySpec, Trial


def nsga(seed: int) -> optuna.samplers.BaseSampler:
    return optuna.samplers.NSGAIISampler(seed=seed, population_size=4)


# What is asked


def test_every_set_is_asked_once_the_first_ones_first_and_then_none() -> None:
    with opened() as study:
        seen = []
        while (trial := study.ask()) is not None:
            assert trial.number == len(seen)
            seen.append(tuple(trial.parameters.values()))
            study.tell(trial, workers.values(trial))
        assert seen[0] == (0, 3, None)
        assert len(seen) == len(set(seen)) == study.spec.size == 36
        assert study.ask() is None


def test_the_seed_decides_and_start_up_draws_differ_from_each_other() -> None:
    with opened() as one, opened() as same, opened(seed=12) as other:
        sets = go_on(one, 8)
        assert sets == go_on(same, 8)
        assert [each.parameters for each in sets] != [each.parameters for each in go_on(other, 8)]
    assert len({str(each.parameters) for each in sets}) == 8


@pytest.mark.parametrize("sampler", [random_sampler, workers.sampler, nsga])
def test_a_study_that_is_opened_for_each_trial_equals_one_session(tmp_path: Path, sampler: Sampler) -> None:
    journal = tmp_path / "study.log"
    for _ in range(10):
        with opened(journal, sampler) as study:
            asked(study)  # left untold
        with opened(journal, sampler) as study:
            go_on(study, 1)
    with opened(None, sampler) as whole, opened(journal, sampler) as pieces:
        assert go_on(whole, 10) == pieces.finished()


def test_each_trial_has_a_sampler_with_a_seed_of_its_own(tmp_path: Path) -> None:
    seeds: list[int] = []

    def noting(seed: int) -> optuna.samplers.BaseSampler:
        seeds.append(seed)
        return random_sampler(seed)

    with opened(None, noting) as study:
        go_on(study, 6)
    whole = seeds[:]
    assert len(set(whole)) == 5  # the first set of the spec needs none
    for _ in range(6):
        with opened(tmp_path / "study.log", noting) as study:
            go_on(study, 1)
    assert seeds[5:] == whole


def test_what_a_sampler_notes_is_kept_for_its_later_trials(tmp_path: Path) -> None:
    journal = tmp_path / "study.log"
    for _ in range(14):
        with opened(journal, nsga) as study:
            go_on(study, 1)
    storage = JournalStorage(JournalFileBackend(str(journal)))
    trials = optuna.load_study(study_name="scripted", storage=storage).trials
    assert max(value for trial in trials for value in trial.system_attrs.values()) == 3  # generations of four


def test_a_trial_that_is_not_told_goes_to_the_next_worker(tmp_path: Path) -> None:
    journal = tmp_path / "study.log"
    with pytest.raises(KeyError), opened(journal) as study:
        left = asked(study)
        raise KeyError
    with opened(journal) as study:
        assert asked(study) == left
    with pytest.raises(StateError, match="is closed"):
        study.ask()


def test_a_trial_that_was_given_up_is_not_asked_again(tmp_path: Path) -> None:
    journal = tmp_path / "study.log"
    with opened(journal) as study:
        bad = asked(study)
        study.give_up(bad, "the metric raised")
    with opened(journal) as study:
        trial = asked(study)
        assert trial.number == 1 and trial.parameters != bad.parameters
        study.tell(trial, [1.0, 2.0])
        assert [done.number for done in study.finished()] == [1]
    assert "the metric raised" in journal.read_text()


def test_two_studies_of_one_process_do_not_take_each_other_s_trials(tmp_path: Path) -> None:
    journal = tmp_path / "study.log"
    with opened(journal) as one, opened(journal) as other:
        trials = [asked(one), asked(other), asked(one), asked(other)]
        assert [trial.number for trial in trials] == [0, 1, 2, 3]
        other.tell(trials[1], [1.0, 1.0])
        assert [trial.number for trial in one.finished()] == [1]
        with pytest.raises(InputError, match="did not ask for it"):
            other.tell(trials[0], [1.0, 1.0])


def test_threads_share_a_study(tmp_path: Path) -> None:
    with opened(tmp_path / "study.log") as study, ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: go_on(study, 3), range(4)))
        done = study.finished()
    assert [trial.number for trial in done] == list(range(12))
    assert len({str(trial.parameters) for trial in done}) == 12
    assert all(list(trial.values) == workers.values(Trial(trial.number, trial.parameters)) for trial in done)


# What is told


@pytest.mark.parametrize(
    ("values", "notes", "match"),
    [
        ([1.0], {}, "1 values for 2 objectives"),
        ([1.0, math.nan], {}, "value 2 must be a finite number, got nan"),
        ([math.inf, 1.0], {}, "value 1 must be a finite number"),
        (["high", 1.0], {}, "value 1 must be a finite number, got 'high'"),
        ([1.0, 1.0], {"program": object()}, "notes must be JSON"),
        ([1.0, 1.0], {"confidence": math.nan}, "notes must be JSON"),
    ],
)
def test_unusable_results_are_refused_and_the_trial_stays(values: Any, notes: Any, match: str) -> None:
    with opened() as study:
        trial = asked(study)
        with pytest.raises(InputError, match=match):
            study.tell(trial, values, notes)
        study.tell(trial, [1, 2], {"kept": [None, "ü"]})
        assert study.finished() == (FinishedTrial(0, trial.parameters, (1.0, 2.0), {"kept": [None, "ü"]}),)
        for again in (lambda: study.tell(trial, [1, 2]), lambda: study.give_up(trial, "late")):
            with pytest.raises(InputError, match="or has told it already"):
                again()


vectors = st.lists(st.tuples(*[st.integers(0, 3).map(float)] * 2), min_size=1, max_size=8)


@settings(max_examples=25, deadline=None)
@given(vectors)
def test_the_front_is_that_of_optuna(values: list[tuple[float, float]]) -> None:
    theirs = optuna.study.create_study(directions=["maximize", "minimize"])
    with opened() as study:
        for pair in values:
            study.tell(asked(study), pair)
            theirs.add_trial(optuna.trial.create_trial(values=pair))
        assert [trial.number for trial in study.front()] == [trial.number for trial in theirs.best_trials]


def test_importances_name_the_parameter_that_matters() -> None:
    with opened(directions=("maximize",), space={"a": (1, 2, 3), "b": (1, 2, 3), "c": ("only",)}, first=()) as study:
        assert study.importances() == {}
        study.tell(asked(study), [1.0])
        assert study.importances() == {}
        while (trial := study.ask()) is not None:
            study.tell(trial, [float(trial.parameters["a"])])
        shares = study.importances()
        assert next(iter(shares)) == "a" and shares["a"] > 0.9 and sum(shares.values()) == pytest.approx(1)
        assert study.importances() == shares


@pytest.mark.parametrize("direction", ["maximize", "minimize"])
@pytest.mark.parametrize("choices", [3, 200])
def test_importances_of_many_choices_are_not_left_to_fanova(
    choices: int, direction: Any, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    trees: list[int] = []
    evaluator = optuna.importance.FanovaImportanceEvaluator

    def noted(**given: Any) -> Any:
        trees.append(given["n_trees"])
        return evaluator(**given)

    monkeypatch.setattr(optuna.importance, "FanovaImportanceEvaluator", noted)
    sign = 1.0 if direction == "maximize" else -1.0
    space = {"a": (0, 1), "b": tuple(range(choices)), "c": ("only",)}
    with opened(directions=(direction,), space=space, first=()) as study:
        for _ in range(20):
            if (trial := study.ask()) is not None:
                study.tell(trial, [sign * trial.parameters["a"]])
        shares = study.importances()
    assert next(iter(shares)) == "a" and sum(shares.values()) == pytest.approx(1)
    assert all(count * (choices + 3) <= 12_000 for count in trees)
    assert bool(trees) is (choices < 200) and not recwarn.list


def test_a_first_set_is_asked_as_its_choices_are_written() -> None:
    with opened(space={"a": (1, 2.0, False)}, first=({"a": 1.0}, {"a": 2})) as study:
        assert [repr(asked(study).parameters["a"]) for _ in range(3)] == ["1", "2.0", "False"]


# What is left behind


def test_a_journal_is_json_and_a_closed_study_leaves_its_lock_alone(tmp_path: Path) -> None:
    journal = tmp_path / "new" / "study.jsonl"
    with opened(str(journal), workers.sampler) as study:
        go_on(study, 7)
        study.importances()
    assert sorted(path.name for path in journal.parent.iterdir()) == [".study.jsonl.lock", "study.jsonl"]
    assert all(isinstance(json.loads(line), dict) for line in journal.read_bytes().splitlines())


def test_optuna_s_log_is_quiet_and_as_it_was(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    loggers = [logging.getLogger(name) for name in ("optuna", "optuna.study.study", "optuna.storages._in_memory")]
    before = [(logger.level, list(logger.filters), list(logger.handlers)) for logger in loggers]
    with opened(tmp_path / "study.log", workers.sampler) as study:
        go_on(study, 7)
        study.importances()
    assert capfd.readouterr() == ("", "")
    assert [(logger.level, logger.filters, logger.handlers) for logger in loggers] == before


@given(st.dictionaries(st.text(min_size=1), st.sets(st.integers(), min_size=1).map(tuple), min_size=1, max_size=4))
def test_places_number_the_sets(space: dict[str, tuple[int, ...]]) -> None:
    spec = StudySpec("any", ("maximize",), space, {})
    for place in {0, spec.size // 2, spec.size - 1}:
        assert spec.place(spec.at(place)) == place
