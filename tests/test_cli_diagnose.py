"""``hopgate diagnose``: from a recorded run to a table, and what it refuses, with a scripted LM on a tiny index."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from test_index_support import make_checkpoint

from hopgate.cli import main
from hopgate.core import Passage
from hopgate.index import ColBERTIndex
from hopgate.lms.testing import Reply, scripted_lm

QUESTION = "Which river flows through Rome?"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A data file, a tiny index and its checkpoint."""
    folder = tmp_path_factory.mktemp("diagnose")
    tiny = make_checkpoint(folder / "tiny")
    ColBERTIndex.build(
        [
            Passage("p1", "Paris", "Paris is a city on the river Seine."),
            Passage("p2", "Rome", "Rome is a city on the river Tiber."),
        ],
        folder / "index",
        checkpoint=tiny,
    )
    data = folder / "rivers.jsonl"
    data.write_text(json.dumps({"id": "a", "question": QUESTION, "answers": ["Tiber"], "supporting_ids": ["p2"]}))
    return {"data": str(data), "index": str(folder / "index"), "checkpoint": str(tiny)}


@pytest.fixture(autouse=True)
def lm(monkeypatch: pytest.MonkeyPatch) -> None:
    """An LM that only sees the river of the first passage, unless there are two."""

    def reply(prompt: str) -> Reply:
        passages = prompt.count("is a city on the river")
        return Reply("Tiber" if passages == 1 and "river Tiber" in prompt else "Seine")

    def declared(table: dict[str, Any]) -> Any:
        return scripted_lm(reply, **{name: value for name, value in table.items() if name != "model"})

    monkeypatch.setattr("hopgate.lms.lm_from_config", declared)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments, catch_exceptions=False)


def test_a_table_and_a_file(files: dict[str, str], tmp_path: Path) -> None:
    out = tmp_path / "rag.jsonl"
    index = ["--index", files["index"], "--checkpoint", files["checkpoint"]]
    made = run("evaluate", files["data"], "--program", "rag", "--set", "k=2", *index, "--out", str(out))
    assert made.exit_code == 0, made.output
    command = ("diagnose", str(out), "--data", files["data"], *index)
    result = run(*command)
    assert result.exit_code == 0, result.output
    assert "reading or composition" in result.stdout and "1 wrong answers of 1" in result.stdout
    written = tmp_path / "rag.diagnosis.jsonl"
    assert str(written) in result.stderr
    assert QUESTION not in written.read_text() and "is a city" not in written.read_text()
    before = written.read_bytes()
    figures = json.loads(run(*command, "--format", "json").stdout)
    assert (figures["errors"], figures["charged"]["reading or composition"]["value"]) == (1, 1.0)
    assert run(*command, "--format", "markdown").stdout.startswith("**What the errors of rag are charged to**")
    assert written.read_bytes() == before


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (["none.jsonl"], "no such run file"),
        (["RUN", "--index", "http://localhost:1"], "name that"),
        (["RUN", "--index", "INDEX"], "QUESTIONS"),
        (["RUN", "--data", "DATA"], "--index"),
        (["RUN", "--data", "DATA", "--index", "INDEX", "--out", "RUN"], "not the header of a diagnosis"),
    ],
)
def test_refused(files: dict[str, str], tmp_path: Path, options: list[str], part: str) -> None:
    out = tmp_path / "rag.jsonl"
    index = ["--index", files["index"], "--checkpoint", files["checkpoint"]]
    assert run("evaluate", files["data"], "--program", "rag", *index, "--out", str(out)).exit_code == 0
    before = out.read_bytes()
    places = {"RUN": str(out), "DATA": files["data"], "INDEX": files["index"]}
    checkpoint = ["--checkpoint", files["checkpoint"]]
    result = run("diagnose", *(places.get(option, option) for option in options), *checkpoint)
    assert result.exit_code == 2 and result.stderr.count("\n") == 1, result.output
    assert part in result.stderr
    assert out.read_bytes() == before


def test_other_questions_with_the_same_ids_are_refused(files: dict[str, str], tmp_path: Path) -> None:
    out, other = tmp_path / "rag.jsonl", tmp_path / "other.jsonl"
    index = ["--index", files["index"], "--checkpoint", files["checkpoint"]]
    assert run("evaluate", files["data"], "--program", "rag", *index, "--out", str(out)).exit_code == 0
    rows = [json.loads(line) for line in Path(files["data"]).read_text().splitlines()]
    rows[0]["answers"] = ["Something else"]
    other.write_text("".join(json.dumps(row) + "\n" for row in rows))
    again = ["evaluate", str(other), "--repeat", str(out), "--out", str(tmp_path / "again.jsonl"), *index]
    page = ["report", str(out), "--data", str(other), "--out", str(tmp_path / "page.html")]
    for command in (["diagnose", str(out), "--data", str(other), *index], again, page):
        result = run(*command)
        assert result.exit_code == 2 and result.stderr.count("\n") == 1, result.output
        assert "have the ids of the run 'rag', and other texts or gold answers" in result.stderr
    assert sorted(path.name for path in tmp_path.iterdir() if path.suffix != ".lock") == ["other.jsonl", "rag.jsonl"]
