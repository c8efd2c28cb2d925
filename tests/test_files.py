"""What writers refuse to replace: devices, pipes, folders, and files that are not theirs."""

from __future__ import annotations

import errno
import os
import socket
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from test_comparison import make_run, record

from hopgate.core import HopgateError, IndexStoreError, InputError, Passage, locked, user_path, write_atomic
from hopgate.evaluation.ablations import check_tables
from hopgate.evaluation.diagnosis import DiagnosisHeader
from hopgate.evaluation.diagnosis_files import appending as appending_diagnosis
from hopgate.evaluation.records import appending, write_run
from hopgate.evaluation.report import write_report
from hopgate.evaluation.report_data import report_data
from hopgate.index.folders import check_target, held

RUN = make_run("r", [record("a")])


def pipe(path: Path) -> None:
    os.mkfifo(path)


def link_to_a_pipe(path: Path) -> None:
    os.mkfifo(path.with_name("pipe"))
    path.symlink_to("pipe")


def a_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        before = Path.cwd()
        os.chdir(path.parent)  # the name of a socket must be short
        try:
            one.bind(path.name)
        finally:
            os.chdir(before)


def a_folder(path: Path) -> None:
    path.mkdir()


def _atomic(path: Path) -> None:
    write_atomic(path, "text")


def _lock(path: Path) -> None:
    with locked(path, busy=""):
        pass


def _run(path: Path) -> None:
    write_run(path, RUN.header, [])


def _append(path: Path) -> None:
    with appending(path, RUN.header):
        pass


def _diagnosis(path: Path) -> None:
    with appending_diagnosis(path, DiagnosisHeader(RUN.header, {"model": "m"}, False)):
        pass


def _page(path: Path) -> None:
    write_report(path, report_data([RUN]))


@pytest.mark.parametrize("make", [pipe, link_to_a_pipe, a_socket, a_folder])
@pytest.mark.parametrize("write", [_atomic, _lock, _run, _append, _diagnosis, _page])
def test_only_regular_files_are_written(
    tmp_path: Path, make: Callable[[Path], None], write: Callable[[Path], None]
) -> None:
    target = tmp_path / "target"
    make(target)
    before = {path.name: stat.S_IFMT(path.lstat().st_mode) for path in tmp_path.iterdir()}
    with pytest.raises(InputError, match=r"target: is a (device, pipe or socket|folder)"):
        write(target)
    assert {path.name: stat.S_IFMT(path.lstat().st_mode) for path in tmp_path.iterdir()} == before


def _build(path: Path) -> None:
    from hopgate.index import ColBERTIndex

    ColBERTIndex.build([Passage("p", "", "A text.")], path, checkpoint=path.parent / "none")


def _held(path: Path) -> None:
    with held(path, ("part",)):
        pass


@pytest.mark.parametrize("make", [pipe, link_to_a_pipe, a_socket])
@pytest.mark.parametrize("write", [check_target, _held, _build])
def test_an_index_is_a_folder(tmp_path: Path, make: Callable[[Path], None], write: Callable[[Path], None]) -> None:
    target = tmp_path / "target"
    make(target)
    before = sorted(path.name for path in tmp_path.iterdir())
    with pytest.raises(HopgateError):
        write(target)
    if write is not _build:
        with pytest.raises(IndexStoreError, match=r"target: is (not a folder|a file, device or pipe)"):
            write(target)
    assert sorted(path.name for path in tmp_path.iterdir()) == before and not stat.S_ISREG(target.stat().st_mode)


def test_a_page_replaces_pages_only(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    for _ in range(2):
        write_report(page, report_data([RUN]))
    text = page.read_text()
    # Pages of older versions do not say who wrote them.
    page.write_text(text.replace('<meta name="generator" content="hopgate report">\n', ""))
    write_report(page, report_data([RUN]))
    assert page.read_text() == text
    page.write_text("")
    write_report(page, report_data([RUN]))
    for other in ("a,b\n", "<!DOCTYPE html>\n<html></html>", '{"id": "a"}\n', text[1:]):
        page.write_text(other)
        with pytest.raises(InputError, match="not a page that hopgate wrote"):
            write_report(page, report_data([RUN]))
        assert page.read_text() == other


def test_tables_replace_tables_only(tmp_path: Path) -> None:
    assert [path.name for path in check_tables(tmp_path / "new")] == ["ablation.md", "ablation.json"]
    for name in ("ablation.md", "ablation.json"):
        path = tmp_path / name
        path.write_text("# Mine\n")
        with pytest.raises(InputError, match=f"{name}: exists and is not a table"):
            check_tables(tmp_path)
        path.unlink()
        os.mkfifo(path)
        with pytest.raises(InputError, match=f"{name}: is a device, pipe"):
            check_tables(tmp_path)
        path.unlink()
    with pytest.raises(InputError, match="is no folder"):
        check_tables(__file__)


def test_an_empty_path_is_none() -> None:
    with pytest.raises(InputError, match="a path must not be empty"):
        user_path("")
    assert user_path(Path()) == Path()


@pytest.mark.parametrize(
    ("reason", "remedy"),
    [(errno.EPERM, "that you may write to"), (errno.EROFS, "that you may write to"), (errno.ENOSPC, "free some space")],
)
def test_what_cannot_be_written_is_named_as_it_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: int, remedy: str
) -> None:
    def refusing(*_: object, **options: object) -> None:
        raise OSError(reason, os.strerror(reason), f"{options['dir']}/.page.html.x.part")

    monkeypatch.setattr(tempfile, "mkstemp", refusing)
    with pytest.raises(OSError, match=remedy) as caught:
        write_atomic(tmp_path / "page.html", "x")
    assert (caught.value.errno, caught.value.filename) == (reason, str(tmp_path / "page.html"))
    assert ".part" not in str(caught.value)
