"""``hopgate compare`` and ``hopgate report``, end to end on run files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from test_comparison import gated_runs, make_run, record
from test_report import data_in

from hopgate.cli.compare import compare
from hopgate.cli.errors import Program
from hopgate.cli.report import report
from hopgate.evaluation.records import Run, write_run


def run(*arguments: str | Path) -> Result:
    # As the program is put together in hopgate.cli, errors included.
    program = Program("hopgate", commands={"compare": compare, "report": report})
    return CliRunner().invoke(program, [str(item) for item in arguments])


def written(folder: Path, *runs: Run) -> list[Path]:
    paths = [folder / f"{item.header.name}.jsonl" for item in runs]
    for path, item in zip(paths, runs, strict=True):
        write_run(path, item.header, list(item.records))
    return paths


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    return written(tmp_path, *gated_runs([(True, 1, True, 1, True), (False, 0, True, 1, False)] * 6))


def test_table(files: list[Path]) -> None:
    result = run("compare", *files)
    assert result.exit_code == 0, result.output
    for text in ("Scores", "Difference to gated", "The gate of gated", "oracle"):
        assert text in result.stdout


def test_markdown_is_the_same_each_time(files: list[Path]) -> None:
    first, second = (run("compare", *files, "--format", "markdown", "--baseline", "resting") for _ in range(2))
    assert first.exit_code == 0 and first.stdout == second.stdout
    assert "**Difference to resting**" in first.stdout and "questions to see 5 points" in first.stdout


def test_json(files: list[Path]) -> None:
    result = run("compare", *files, "--format", "json", "--metric", "f1", "--difference", "2.5")
    found = json.loads(result.stdout)
    assert (found["metric"], found["target"], found["n"]) == ("f1", 0.025, 12)
    assert [gate["name"] for gate in found["gates"]] == ["gated"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--baseline", "none"], "no run is called 'none'"),
        (["--metric", "bleu"], "'bleu' is not one of"),
        (["--difference", "0"], "0"),
        (["--always", "none"], "no run is called 'none'"),
    ],
)
def test_mistakes_are_one_line(files: list[Path], arguments: list[str], message: str) -> None:
    result = run("compare", *files, *arguments)
    assert result.exit_code == 2
    assert message in result.stderr and len(result.stderr.strip().splitlines()) == 1


def test_files_that_are_no_runs(tmp_path: Path, files: list[Path]) -> None:
    (tmp_path / "bad.jsonl").write_text("{}\n")
    for path in (tmp_path / "bad.jsonl", tmp_path / "none.jsonl"):
        for command in (["compare"], ["report", "--out", str(tmp_path / "page.html")]):
            result = run(*command, *files, path)
            assert result.exit_code == 2 and path.name in result.stderr
            assert len(result.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "page.html").exists()


def test_report(tmp_path: Path, files: list[Path]) -> None:
    page = tmp_path / "page.html"
    result = run("report", *files, "--out", page, "--title", "Three gates")
    assert result.exit_code == 0, result.output
    assert "36 trajectories" in result.stderr
    text = page.read_text("utf-8")
    assert "<title>Three gates</title>" in text
    assert [item["name"] for item in data_in(text)["runs"]] == ["gated", "searching", "resting"]


def test_a_report_replaces_none_of_its_inputs(tmp_path: Path, files: list[Path]) -> None:
    questions, link, other = tmp_path / "questions.jsonl", tmp_path / "link.jsonl", tmp_path / "notes.txt"
    questions.write_text(json.dumps({"id": "a", "question": "Who?", "answers": ["Mira Dol"]}) + "\n")
    link.symlink_to(files[0])
    other.write_text("mine\n")
    before = {path: path.read_bytes() for path in (*files, questions, other)}
    for out in (*files, questions, link, other):
        result = run("report", *files, "--data", questions, "--out", out)
        assert result.exit_code == 2 and len(result.stderr.strip().splitlines()) == 1, result.output
        message = "is not a page that hopgate wrote" if out == other else "is what the page is made from"
        assert message in result.stderr
    assert before == {path: path.read_bytes() for path in before}


def test_report_joins_local_questions(tmp_path: Path) -> None:
    (path,) = written(tmp_path, make_run("r", [record("a"), record("b", False)]))
    questions = tmp_path / "questions.jsonl"
    questions.write_text(
        json.dumps({"id": "a", "question": "Who built the Osk Tower?", "answers": ["Mira Dol"]}) + "\n"
    )
    result = run("report", path, "--out", tmp_path / "page.html", "--data", questions)
    assert result.exit_code == 0, result.output
    assert "1 of 2 questions are not in" in result.stderr
    found = data_in((tmp_path / "page.html").read_text("utf-8"))["questions"]
    assert found["a"]["question"] == "Who built the Osk Tower?" and list(found["a"]["answers"]) == ["Mira Dol"]
