"""Studies, storages and journals that cannot be used, and what is said of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna
import pytest
import study_workers as workers
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from study_workers import asked, go_on, opened

from hopgate.core import HopgateError, InputError, StateError
from hopgate.optimizers import SharedStudy


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
        ({"first": ({"demos": 0, "k": 1, "form": None}, {"demos": 0.0, "k": 1, "form": None})}, "parameters twice"),
        ({"first": ({"demos": False, "k": 1, "form": None},)}, "False is no choice of 'demos'"),
        ({"space": {"f": (True, False)}, "first": ({"f": 1},)}, "1 is no choice of 'f'"),
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
        ({"fingerprint": {"program": "a" * 64, "data": {}}}, '`program` "active", now "aaa'),
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
    for seconds in (0, -1.0, math.nan, math.inf, True, "x", None):
        with pytest.raises(InputError, match="`stale_after` must be"):
            SharedStudy.open(None, workers.spec(), stale_after=seconds)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "storage",
    [
        "postgresql:/u:SECRET@h/x",
        "postgresql:u:SECRET@h/x",
        "postgres:SECRET",
        "PostgreSQL://u:SECRET@h/x",
        "postgresql+psycopg2://u:SECRET@h/x",
        "mysql://u:SECRET@h/x",
        "user:SECRET@h/x",
        "u:SECRET@h/x",
        "u://SECRET@h/x",
        "://SECRET",
        "folder://SECRET",
        Path("postgresql://u:SECRET@h/x"),
        "postgresql://u:SEC@SECRET@h/x",
        "postgresql://u/SECRET:SECRET@h/x",
        "postgresql://u:SECRET@SECRET@h:1/x?a=b",
        "postgresql://h:5432/x?password=SEC@SECRET",
    ],
)
def test_an_address_that_cannot_be_used_is_never_a_file_nor_told(
    storage: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="postgresql://user") as error:
        opened(storage)
    assert "SEC" not in str(error.value)
    assert not list(tmp_path.iterdir())


def test_a_path_with_a_colon_is_a_path_where_it_is_plain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for storage in ("./a:1.log", tmp_path / "b:2.log"):
        with opened(storage) as study:
            go_on(study, 1)
    with opened("a:1.log") as study:  # it is there
        assert len(study.finished()) == 1
    with opened("C:\\study.log") as study:
        assert study.storage == "C:\\study.log"


@pytest.mark.parametrize(
    ("told", "match"),
    [
        ([10**5000, 1], "value 1 is a whole number beyond"),
        (0.5, "`values` takes a list"),
        (None, "`values` takes a list"),
        ("12", "`values` takes a list"),
        ([1, "x"], "value 2 must be a finite number"),
    ],
)
def test_values_that_are_none_are_refused(told: Any, match: str) -> None:
    with opened() as study:
        trial = asked(study)
        with pytest.raises(InputError, match=match):
            study.tell(trial, told)
        study.tell(trial, [1, 2])


@pytest.mark.parametrize("trial", [None, 0, "x", {}])
def test_what_is_no_trial_is_refused(trial: Any) -> None:
    with opened() as study:
        for told in (lambda: study.tell(trial, [1, 2]), lambda: study.give_up(trial, "bad")):
            with pytest.raises(InputError, match="a trial is what"):
                told()
        with pytest.raises(InputError, match="`reason` must be a text"):
            study.give_up(asked(study), object())  # type: ignore[arg-type]
    with pytest.raises(InputError, match="`spec` must be"):
        SharedStudy.open(None, None)  # type: ignore[arg-type]


def test_digests_that_differ_are_told_in_words(tmp_path: Path) -> None:
    opened(tmp_path / "log", fingerprint={"data": "a" * 64}).close()
    with pytest.raises(InputError, match="fingerprint `data` is another") as error:
        opened(tmp_path / "log", fingerprint={"data": "b" * 64})
    assert "aaaa" not in str(error.value)


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
