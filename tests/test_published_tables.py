"""Published tables are what the recorded files give, which are small and hold no text of a data set."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from hopgate.cli import main as hopgate
from hopgate.evaluation import read_run
from hopgate.optimizers import read_trees

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
README = ROOT / "benchmarks" / "README.md"
DATA = ROOT.parent / "shared" / "data"

LARGEST, LARGEST_IN_ALL = 3_000_000, 12_000_000
"""Bytes of a recorded file, and of all of them."""
LONGEST = 300
"""Characters of a text in a record: LMs write short answers and sub-questions, passages are longer."""
QUOTED = 100
"""Characters from which on a text that stands in a passage word for word is the data set's."""
OF_DATA_SETS = {"text", "texts", "title", "context", "contexts", "question", "answers", "gold", "supporting_titles"}

FILES = sorted(RESULTS.glob("[!.]*.json*"))


def remake(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "benchmarks" / "tables.py"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def records(path: Path) -> Iterator[dict[str, Any]]:
    """The JSON objects of a file but for the header of runs and trees, whose own form keeps texts out."""
    text = path.read_text(encoding="utf-8")
    found = [json.loads(text)] if path.suffix == ".json" else [json.loads(line) for line in text.splitlines()]
    yield from found[1:] if found[0].get("kind") in ("run", "trees") else found


def texts(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Every text within a JSON value, with the key that it stands under."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield from texts(item, name)
    elif isinstance(value, list):
        for item in value:
            yield from texts(item, key)
    elif isinstance(value, str):
        yield key, value


def kind_of(path: Path) -> str | None:
    """``run``, ``trees``, or ``None`` for files of other forms."""
    if path.suffix != ".jsonl":
        return None
    with path.open(encoding="utf-8") as file:
        return json.loads(file.readline()).get("kind")


def test_every_published_table_is_what_the_recorded_files_give() -> None:
    names = set(re.findall(r"<!-- table: ([\w-]+) -->", README.read_text(encoding="utf-8")))
    assert {"hotpot", "sample", "worlds", "gate", "adapters", "prefix-cache", "recall"} <= names
    result = remake("--check")
    assert result.returncode == 0, result.stderr
    assert "skipped" not in result.stderr or not DATA.exists()


def test_a_figure_that_was_changed_is_found_and_mended(tmp_path: Path) -> None:
    right = README.read_text(encoding="utf-8")
    block = re.search(r"<!-- table: prefix-cache -->\n.*?<!-- /table -->", right, re.DOTALL)
    assert block is not None
    last = block[0].rindex("1.")
    wrong = right.replace(block[0], f"{block[0][:last]}7.{block[0][last + 2 :]}")
    document = tmp_path / "README.md"
    document.write_text(wrong, encoding="utf-8")
    checked = remake("prefix-cache", "--check", "--document", document)
    assert checked.returncode == 1 and "prefix-cache: differs" in checked.stderr
    assert document.read_text(encoding="utf-8") == wrong
    assert remake("prefix-cache", "--document", document).returncode == 0
    assert document.read_text(encoding="utf-8") == right


def test_without_the_data_tables_of_gold_labels_are_skipped_aloud(tmp_path: Path) -> None:
    before = README.read_bytes()
    result = remake("recall", "rerank", "--data", tmp_path)
    assert result.returncode == 0
    assert "recall: skipped" in result.stderr and "rerank: skipped" in result.stderr
    assert README.read_bytes() == before


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("<!-- table: best -->\n<!-- /table -->\n", "no table is called 'best'"),
        ("<!-- table: gate -->\n", "missing"),
        ("<!-- table: gate -->\n<!-- /table -->\n" * 2, "twice"),
    ],
)
def test_documents_that_cannot_be_written(tmp_path: Path, text: str, part: str) -> None:
    document = tmp_path / "README.md"
    document.write_text(text)
    result = remake("--document", document)
    assert result.returncode == 1 and part in result.stderr and "Traceback" not in result.stderr
    assert document.read_text() == text


def test_runs_of_published_comparisons_are_finished_and_make_a_page(tmp_path: Path) -> None:
    commands = re.findall(r"^`hopgate compare (.+)`$", README.read_text(encoding="utf-8"), re.MULTILINE)
    assert commands
    for number, command in enumerate(commands):
        paths = [README.parent / word for word in command.split() if word.startswith("results/")]
        for path in paths:
            assert not read_run(path).missing, f"{path} is not finished"
        page = tmp_path / f"{number}.html"
        result = CliRunner().invoke(hopgate, ["report", *map(str, paths), "--out", str(page)])
        assert result.exit_code == 0, result.output
        assert all(path.stem in page.read_text(encoding="utf-8") for path in paths)


def test_recorded_files_are_small() -> None:
    sizes = {path.name: path.stat().st_size for path in FILES}
    assert all(size <= LARGEST for size in sizes.values()), sizes
    assert sum(sizes.values()) <= LARGEST_IN_ALL


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_recorded_files_hold_no_texts_of_data_sets(path: Path) -> None:
    kind = kind_of(path)
    if kind == "run":
        run = read_run(path)  # refuses fields that a run file does not have
        assert run.records and run.header.data.ids
    if kind == "trees":
        assert read_trees(path).trees  # likewise
    for record in records(path):
        for key, text in texts(record):
            # In runs and trees that is the answer at stake in a decision; their schemas have no other.
            known = key == "text" and kind in ("run", "trees")
            assert known or key not in OF_DATA_SETS, f"{path.name}: `{key}` is a data set's own"
            assert len(text) <= LONGEST, f"{path.name}: `{key}` is as long as a passage: {text[:80]}"


@pytest.mark.skipif(not DATA.exists(), reason="the data sets are not on this machine")
def test_recorded_files_quote_neither_questions_nor_passages() -> None:
    def lines(name: str) -> Iterator[dict[str, Any]]:
        for path in sorted(DATA.glob(f"*/{name}")):
            yield from map(json.loads, path.read_text(encoding="utf-8").splitlines())

    questions = {row["question"] for row in lines("questions.jsonl")}
    passages = "\n".join(row["text"] for row in lines("corpus.jsonl"))
    assert questions and passages
    for path in FILES:
        content = path.read_text(encoding="utf-8")
        for question in questions:
            assert json.dumps(question, ensure_ascii=False)[1:-1] not in content, f"{path.name}: {question}"
        for record in records(path):
            for _, text in texts(record):
                assert len(text) < QUOTED or text not in passages, f"{path.name}: {text}"
