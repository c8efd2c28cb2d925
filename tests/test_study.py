"""Studies: what is asked, recorded, refused and resumed."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable
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

from hopgate.core import HopgateError, InputError, StateError
from hopgate.optimizers import FinishedTrial, SharedStudy, StudySpec, Trial

Sampler = Callable[[int], optuna.samplers.BaseSampler]


def random_sampler(seed: int) -> optuna.samplers.BaseSampler:
    return optuna.samplers.RandomSampler(seed=seed)


def nsga(seed: int) -> optuna.samplers.BaseSampler:
    return optuna.samplers.NSGAIISampler(seed=seed, population_size=4)


def opened(storage: str | Path | None = None, sampler: Sampler = random_sampler, **changes: Any) -> SharedStudy:
    return SharedStudy.open(storage, workers.spec(**changes), sampler=sampler)


def asked(study: SharedStudy) -> Trial:
    trial = study.ask()
    assert trial is not None
    return trial


def go_on(study: SharedStudy, trials: int) -> tuple[FinishedTrial, ...]:
    for _ in range(trials):
        trial = asked(study)
        study.tell(trial, workers.values(trial))
    return study.finished()


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


def test_what_is_remembered_is_shared_and_replaced(tmp_path: Path) -> None:
    journal = tmp_path / "study.log"
    with opened(journal) as one, opened(journal) as other:
        one.remember("spent", {"calls": 1})
        one.remember("spent", {"calls": 2})
        other.remember("best", None)
        assert other.remembered() == one.remembered() == {"spent": {"calls": 2}, "best": None}
        with pytest.raises(InputError, match="'bad' must be JSON"):
            one.remember("bad", {1, 2})


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


# What is refused


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"name": " "}, "name must be a text"),
        ({"directions": ()}, "`directions` must be"),
        ({"directions": ("up",)}, "`directions` must be"),
        ({"seed": -1}, "`seed` must be"),
        ({"space": {}}, "at least one parameter"),
        ({"space": {"k": ()}}, "'k': needs at least one choice"),
        ({"space": {"k": "13"}}, "'k': needs at least one choice"),
        ({"space": {"k": (1, [2])}}, "'k': a choice must be"),
        ({"space": {"k": (1, math.nan)}}, "'k': a choice must be"),
        ({"space": {"k": (1, True)}}, "'k': two of its choices are equal"),
        ({"fingerprint": {"metric": len}}, "`fingerprint` must be JSON"),
        ({"first": ({"demos": 0},)}, "but its space has"),
        ({"first": ({"demos": 3, "k": 1, "form": None},)}, "3 is no choice of 'demos'"),
        ({"first": ({"demos": 0, "k": 1, "form": None},) * 2}, "the same parameters twice"),
    ],
)
def test_a_spec_that_cannot_be_used_is_refused(changes: dict[str, Any], match: str) -> None:
    with pytest.raises(InputError, match=match):
        workers.spec(**changes)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"space": {**workers.SPACE, "k": (1, 3)}}, r"parameter `k` \[1, 3, 5\], now \[1, 3\]"),
        ({"space": {**workers.SPACE, "depth": (1,)}}, r"parameter `depth` absent, now \[1\]"),
        ({"directions": ("maximize", "maximize")}, r'directions \["maximize", "minimize"\], now'),
        ({"fingerprint": {"program": "active", "data": {"name": "sample"}}}, "`data.questions` 20, now absent"),
        ({"fingerprint": {"program": "self-ask", "data": {}}}, '`program` "active", now "self-ask"'),
        ({"seed": 12}, "seed 11, now 12"),
    ],
)
def test_another_study_of_that_name_is_refused(tmp_path: Path, changes: dict[str, Any], match: str) -> None:
    journal = tmp_path / "study.log"
    opened(journal).close()
    before = journal.read_bytes()
    with pytest.raises(InputError, match=match) as error:
        opened(journal, **{"first": (), **changes})
    assert str(journal) in str(error.value) and "another name or storage" in str(error.value)
    assert journal.read_bytes() == before
    opened(journal, name="another", **{"first": (), **changes}).close()


def test_studies_of_newer_versions_and_of_others_are_refused(tmp_path: Path) -> None:
    journal = tmp_path / "study.log"
    opened(journal).close()
    journal.write_text(journal.read_text().replace('"schema":1', '"schema":2'))
    with pytest.raises(InputError, match="newer version of hopgate"):
        opened(journal)
    storage = JournalStorage(JournalFileBackend(str(tmp_path / "other.log")))
    other = optuna.create_study(storage=storage, study_name="scripted", directions=["maximize", "minimize"])
    other.ask()
    with pytest.raises(InputError, match="not made by hopgate"):
        opened(tmp_path / "other.log")


def test_a_trial_that_something_else_added_is_refused(tmp_path: Path) -> None:
    journal = tmp_path / "study.log"
    with opened(journal) as study:
        go_on(study, 1)
        storage = JournalStorage(JournalFileBackend(str(journal)))
        optuna.load_study(study_name="scripted", storage=storage).ask()
        with pytest.raises(StateError, match="trial 1 of study 'scripted' was not added by hopgate"):
            study.ask()


@pytest.mark.parametrize(
    "damage",
    [
        lambda lines: [*lines[:2], lines[2][:40], *lines[3:]],
        lambda lines: [*lines[:2], b"\0" * 40, *lines[3:]],
        lambda lines: [*lines[:2], b'{"question": "Who?"}', *lines[3:]],
        lambda lines: [*lines[:2], b'{"op_code": 77, "study_id": 0}', *lines[3:]],
        lambda lines: [*lines[:2], b'{"op_code": 4}', *lines[3:]],
        lambda lines: [*lines[:-1], lines[-1][:40]],
    ],
)
def test_a_damaged_journal_is_told_and_left_as_it_is(
    tmp_path: Path, damage: Callable[[list[bytes]], list[bytes]]
) -> None:
    journal = tmp_path / "study.log"
    with opened(journal) as study:
        go_on(study, 2)
    journal.write_bytes(b"\n".join(damage(journal.read_bytes().splitlines())) + b"\n")
    before = journal.read_bytes()
    with pytest.raises(StateError, match="restore a copy, or name another file") as error:
        opened(journal)
    assert str(journal) in str(error.value)
    assert journal.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == [".study.log.lock", "study.log"]


@pytest.mark.parametrize("cut", [1, 20, -1])
def test_a_last_line_that_was_cut_costs_that_line_alone(tmp_path: Path, cut: int) -> None:
    journal = tmp_path / "study.log"
    with opened(journal) as study:
        done = go_on(study, 3)
        whole = journal.read_bytes()
        line = whole.splitlines()[-1]
        with journal.open("ab") as file:
            file.write(line[:cut])  # of another worker that was killed, while this one lives
        study.tell(asked(study), [1.0, 2.0])
    with opened(journal) as study:
        assert study.finished()[:3] == done and len(study.finished()) == 4
    journal.write_bytes(whole[:-cut] if cut > 0 else whole[:-1])
    with opened(journal) as study:
        assert study.finished() == done[:2]
        assert asked(study).parameters == done[2].parameters


def test_paths_and_urls_that_hold_no_study_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for storage, match in (
        (tmp_path, "is a folder"),
        (tmp_path / "file" / "study.log", "cannot be used as a journal"),
        ("", "must not be empty"),
        ("sqlite:///study.db", "postgresql://user@host/database"),
    ):
        with pytest.raises(InputError, match=match):
            opened(storage)
    for seconds in (0, -1.0, math.nan, True):
        with pytest.raises(InputError, match="`stale_after` must be"):
            SharedStudy.open(None, workers.spec(), stale_after=seconds)


@pytest.mark.parametrize("again", [True, False])
def test_a_journal_that_is_taken_away_is_told(tmp_path: Path, again: bool) -> None:
    journal = tmp_path / "study.log"
    with opened(journal) as study:
        trial = asked(study)
        journal.rename(tmp_path / "moved.log")
        if again:
            journal.write_bytes((tmp_path / "moved.log").read_bytes())
        with pytest.raises(HopgateError, match="was replaced" if again else "No such file"):
            study.tell(trial, [1.0, 2.0])
        (tmp_path / "moved.log").replace(journal)
        study.tell(trial, [1.0, 2.0])
        assert len(study.finished()) == 1


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
