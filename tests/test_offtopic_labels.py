"""Hand labels of off-topic answers: from a sheet without verdicts to the figures, with no text of a data set kept."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from hopgate.evaluation.records import (
    AttemptRecord,
    DataHeader,
    ProgramHeader,
    RunCost,
    RunHeader,
    RunRecord,
    Scores,
    TrajectoryRecord,
    write_run,
)

ROOT = Path(__file__).parents[1]
QUESTION = "In which year was the designer of the Osk Tower in Varn born?"


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    from offtopic_labels import main  # type: ignore[import-not-found]

    def run(*arguments: Any) -> Result:
        return CliRunner().invoke(main, [str(argument) for argument in arguments], catch_exceptions=False)

    return run


def record(identity: str, answer: str, *attempts: AttemptRecord) -> RunRecord:
    path = TrajectoryRecord(revisions=attempts)
    return RunRecord(identity, "ok", answer, None, 2, Scores(False, 0.0, False, False), path, RunCost())


def header(name: str) -> RunHeader:
    data = DataHeader("toy", ids=("q1", "q2", "q3"))
    return RunHeader(name, ProgramHeader(name), {"model": "scripted/lm"}, 0, "official", {}, None, data)


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """A run of Dr3 and one of another program, and the questions: q1 was corrected, q2 not, q3 is right at once."""
    found = {name: tmp_path / f"{name}.jsonl" for name in ("dr3", "rag", "data")}
    one = record(
        "q1", "1871",
        AttemptRecord("solve", "Varn", "off_topic", 0.1),
        AttemptRecord("recompose", "Osk", "off_topic", 0.2),
        AttemptRecord("resolve", "1871", "on_topic", 0.9, kept=True),
    )  # fmt: skip
    two = record("q2", "Ile", AttemptRecord("solve", "Ile", "on_topic", 0.8, kept=True))
    three = record("q3", "1999", AttemptRecord("solve", "1999", "on_topic", 0.8, kept=True))
    write_run(found["dr3"], header("dr3"), [one, two, three])
    write_run(found["rag"], header("rag"), [record("q1", "Varn"), record("q2", "{question}"), record("q3", "1999")])
    rows = [{"id": name, "question": f"{QUESTION} ({name})", "answers": ["1871"]} for name in ("q1", "q2")]
    rows.append({"id": "q3", "question": f"{QUESTION} (q3)", "answers": ["1999"]})
    found["data"].write_text("".join(json.dumps(row) + "\n" for row in rows))
    return found


def filled(path: Path, marks: dict[str, str]) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows({**row, "off_topic": marks.get(row["answer"], "")} for row in rows)
    return rows


def test_from_the_sheet_to_the_figures(command: Any, files: dict[str, Path], tmp_path: Path) -> None:
    runs, sheet, labels = [files["dr3"], files["rag"]], tmp_path / "sheet.csv", tmp_path / "labels.jsonl"
    assert command("sheet", *runs, "--data", files["data"], "--out", sheet).exit_code == 0
    repeated = f"{QUESTION} (q2)"
    rows = filled(sheet, {"Varn": "y", "Osk": "yes", "1871": "n", "Ile": "Y", "1999": "no"})
    assert sorted(row["answer"] for row in rows) == sorted(["Varn", "Osk", "1871", "Ile", "1999", repeated])
    text = sheet.read_text()
    assert not any(word in text for word in ("dr3", "rag", "on_topic", "off-topic", "0.9"))
    result = command("keep", sheet, *runs, "--out", labels)
    assert "5 labels, 3 of them off-topic; 1 rows are not filled" in result.stdout
    kept = [json.loads(line) for line in labels.read_text().splitlines()]
    assert len(kept) == 7  # Varn and 1999 are answers of both runs
    assert {record["run"] for record in kept} == {"dr3", "rag"}
    assert QUESTION not in labels.read_text() and "Varn" not in labels.read_text()
    assert command("keep", sheet, *runs, "--out", labels).exit_code == 0
    assert len(labels.read_text().splitlines()) == 7  # nothing twice
    by_answer = {row["answer"]: row["key"].split("/") for row in rows}
    verdicts = tmp_path / "verdicts.jsonl"
    judged = {"Varn": "off_topic", "Osk": "on_topic", "1871": "off_topic", "Ile": "off_topic", "1999": "undecided"}
    verdicts.write_text(
        "".join(
            json.dumps({"id": by_answer[text][0], "answer_sha256": by_answer[text][1], "verdict": verdict}) + "\n"
            for text, verdict in judged.items()
        )
    )
    options = ["--data", files["data"], "--labels", labels, "--verdicts", verdicts]
    result = command("report", *runs, *options)
    assert result.exit_code == 0, result.output
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in result.stdout.splitlines() if "|" in line]
    told = {row[0]: row for row in lines}
    # 3 are off-topic and 3 are flagged, 2 rightly; of the flagged one is right.
    assert told["5"][:4] == ["5", "3", "3", "1"] and told["5"][6] == "2 of 3"
    assert told["5"][4].startswith("66.7") and told["5"][5].startswith("66.7")
    shown = {name: (row[2].split()[0], row[3]) for name, row in told.items() if name.startswith(("dr3", "rag"))}
    assert shown["dr3, up to solve"][0] == shown["dr3, up to recompose"][0] == "33.3"
    assert shown["dr3, up to resolve"][0] == shown["dr3"][0] == "66.7"
    assert shown["dr3, up to recompose"][1].startswith("66.7") and shown["dr3"][1].startswith("33.3")
    assert shown["rag"][1].endswith("of 2")


def test_the_sheet_is_the_same_for_a_seed_and_leaves_labelled_answers_out(
    command: Any, files: dict[str, Path], tmp_path: Path
) -> None:
    made = []
    for number, seed in enumerate([1, 1, 2]):
        out = tmp_path / f"{number}.csv"
        command("sheet", files["dr3"], "--data", files["data"], "--out", out, "--seed", seed)
        made.append(out.read_text())
    assert made[0] == made[1] != made[2]
    labels = tmp_path / "labels.jsonl"
    filled(tmp_path / "0.csv", {"Varn": "y", "Ile": "y"})
    command("keep", tmp_path / "0.csv", files["dr3"], "--out", labels)
    command("sheet", files["dr3"], "--data", files["data"], "--out", tmp_path / "rest.csv", "--labels", labels)
    with (tmp_path / "rest.csv").open(newline="") as file:
        assert sorted(row["answer"] for row in csv.DictReader(file)) == ["1871", "1999", "Osk"]


def test_refused(command: Any, files: dict[str, Path], tmp_path: Path) -> None:
    inside = ROOT / "benchmarks" / "results" / "sheet.csv"
    result = command("sheet", files["rag"], "--data", files["data"], "--out", inside)
    assert result.exit_code == 2 and "outside" in result.output and not inside.exists()
    sheet, labels = tmp_path / "sheet.csv", tmp_path / "labels.jsonl"
    command("sheet", files["dr3"], "--data", files["data"], "--out", sheet)
    again = command("sheet", files["dr3"], "--data", files["data"], "--out", sheet)
    assert again.exit_code == 2 and "is there already" in again.output
    filled(sheet, {"Osk": "perhaps"})
    result = command("keep", sheet, files["dr3"], "--out", labels)
    assert result.exit_code == 2 and "'perhaps'; write y or n" in result.output
    filled(sheet, {"Osk": "y"})
    result = command("keep", sheet, files["rag"], "--out", labels)
    assert result.exit_code == 2 and "in none of the runs" in result.output and not labels.exists()
    command("keep", sheet, files["dr3"], "--out", labels)
    labels.write_text(labels.read_text() + labels.read_text().replace("true", "false"))
    result = command("report", files["dr3"], "--data", files["data"], "--labels", labels)
    assert result.exit_code == 2 and "two different labels" in result.output
