"""``hopgate score``, end to end."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hopgate.cli.errors import Program
from hopgate.cli.score import score
from hopgate.evaluation.sample import sample_questions


@pytest.fixture
def gold(tmp_path: Path) -> Path:
    path = tmp_path / "gold.jsonl"
    rows = [("1", "Which year?", ["July 5, 1984"]), ("2", "Who?", ["Ann Lee", "A. Lee"]), ("3", "Who?", ["Bob"])]
    names = ("id", "question", "answers")
    path.write_text("".join(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows))
    return path


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(Program("hopgate", commands={"score": score}), ["score", *map(str, arguments)])


def predictions(folder: Path, answers: dict[str, str]) -> Path:
    path = folder / "predictions.json"
    path.write_text(json.dumps(answers))
    return path


def test_json(gold: Path, tmp_path: Path) -> None:
    path = predictions(tmp_path, {"1": "5 July 1984", "2": "the a lee", "x": "?"})
    result = run(path, "--gold", gold, "--json")
    assert result.exit_code == 0
    assert result.stdout.count("\n") == 1
    record = json.loads(result.stdout)
    assert record["n"] == 3 and record["missing"] == 1 and record["unknown"] == 1
    assert record["em"] == pytest.approx(1 / 3) and record["f1"] == pytest.approx(2 / 3)
    assert record["cover_em"] == pytest.approx(1 / 3) and record["cover_em_tokens"] == pytest.approx(2 / 3)
    assert record["normalisation"] == "official"
    assert result.stderr.splitlines() == [
        "Warning: 1 prediction left out, for ids that the gold data does not have (the first is x).",
        "Warning: 1 question without a prediction counted as wrong (the first is 3).",
    ]
    strict = json.loads(run(path, "--gold", gold, "--json", "--normalisation", "strict").stdout)
    assert strict["em"] == pytest.approx(2 / 3) and strict["normalisation"] == "strict"


def test_for_people(tmp_path: Path) -> None:
    answers = {question.id: question.answer for question in sample_questions("test")}
    result = run(predictions(tmp_path, answers), "--gold", "sample", "--split", "test")
    assert result.exit_code == 0 and result.stderr == ""
    assert "sample: 24 questions, official normalisation" in result.stdout
    for label in ("exact match", "F1", "cover EM (substring)", "cover EM (token recall)"):
        (line,) = (line for line in result.stdout.splitlines() if label in line)
        assert "100.0" in line
    (line,) = (line for line in result.stdout.splitlines() if "off-topic" in line)
    assert " 0.0" in line


@pytest.mark.parametrize(
    ("answers", "extra", "message"),
    [
        ({"x": "y"}, [], "Error: none of the 1 predictions is for a question of gold"),
        ({}, [], "holds no predictions"),
        ({"1": "y"}, ["--accents", "fold"], "the official normalisation keeps accents"),
        ({"1": "y"}, ["--split", "dev"], "has no `split`"),
        ({"1": "y"}, ["--config", "x"], "no configurations"),
        ({"1": "y"}, ["--normalisation", "loose"], "loose"),
    ],
)
def test_errors_are_one_line(
    gold: Path, tmp_path: Path, answers: dict[str, str], extra: list[str], message: str
) -> None:
    result = run(predictions(tmp_path, answers), "--gold", gold, *extra)
    assert result.exit_code == 2 and result.stdout == ""
    assert result.stderr.count("\n") == 1 and message in result.stderr


def test_missing_files(gold: Path, tmp_path: Path) -> None:
    made = predictions(tmp_path, {"1": "x"})
    for arguments in ([tmp_path / "none", "--gold", gold], [made, "--gold", tmp_path / "none"]):
        result = run(*arguments)
        assert result.exit_code == 2 and "no such file" in result.stderr and result.stderr.count("\n") == 1


def test_scoring_loads_nothing_heavy(gold: Path, tmp_path: Path) -> None:
    path = predictions(tmp_path, {"1": "x"})
    code = f"""
import sys
from hopgate.cli.score import score
assert not any(name.startswith("hopgate.evaluation") for name in sys.modules)
score([{str(path)!r}, "--gold", {str(gold)!r}, "--json"], standalone_mode=False)
assert not {{"dspy", "torch", "datasets"}} & sys.modules.keys()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
