"""``hopgate ablate``: all runs and their table with one command, resumed, with a scripted LM on a tiny index."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dspy
import pytest
from click.testing import CliRunner, Result
from test_index_support import make_checkpoint
from test_programs_conformance import QUESTION, script

from hopgate.cli import main
from hopgate.core import InputError, Passage
from hopgate.evaluation.ablations import ABLATIONS, chosen, search_rate
from hopgate.evaluation.records import read_run
from hopgate.index import ColBERTIndex
from hopgate.lms.testing import scripted_lm


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A data file, a tiny index and its checkpoint."""
    folder = tmp_path_factory.mktemp("ablate")
    tiny = make_checkpoint(folder / "tiny")
    corpus = [
        Passage("1", "Osk Tower", "The Osk Tower was designed by Mira Dol in the town of Varn."),
        Passage("2", "Mira Dol", "Mira Dol was born in 1871 and built three towers."),
    ]
    ColBERTIndex.build(corpus, folder / "index", checkpoint=tiny)
    data = folder / "towers.jsonl"
    steps = [{"question": "Who designed it?", "answer": "Ann Ort"}, {"question": "When was #1 born?", "answer": "1871"}]
    rows = [
        {"id": "a", "question": QUESTION, "answers": ["1871"], "decomposition": steps},
        {"id": "b", "question": f"{QUESTION} Say it.", "answers": ["1999"]},
    ]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return {"data": str(data), "index": str(folder / "index"), "checkpoint": str(tiny)}


@pytest.fixture(autouse=True)
def lms(monkeypatch: pytest.MonkeyPatch) -> list[dspy.LM]:
    """The LMs that were declared; each is unsure of every draft."""
    seen: list[dspy.LM] = []

    def declared(table: dict[str, Any]) -> dspy.LM:
        seen.append(scripted_lm(script()))
        return seen[-1]

    monkeypatch.setattr("hopgate.lms.lm_from_config", declared)
    return seen


@pytest.fixture
def ablate(files: dict[str, str], tmp_path: Path) -> Callable[..., Result]:
    def run(*options: str, where: str = files["index"]) -> Result:
        fixed = [files["data"], "--index", where, "--checkpoint", files["checkpoint"], "--out", str(tmp_path / "out")]
        return CliRunner().invoke(main, ["ablate", *fixed, *options], catch_exceptions=False)

    return run


def test_all_runs_and_the_table(ablate: Callable[..., Result], tmp_path: Path, lms: list[dspy.LM]) -> None:
    result = ablate()
    assert result.exit_code == 0, result.output
    folder = tmp_path / "out"
    runs = {name: read_run(folder / f"{name}.jsonl") for name in ABLATIONS}
    assert all(len(run.answered) == 2 for run in runs.values())
    text = (folder / "ablation.md").read_text()
    for name in ABLATIONS:
        assert f"\n| {name} |" in text and name in result.stdout
    figures = json.loads((folder / "ablation.json").read_text())
    assert figures["baseline"] == "rag" and [run["name"] for run in figures["runs"]] == list(ABLATIONS)
    assert [gate["name"] for gate in figures["gates"]] == ["active"]  # never and always are its counterparts

    def searches(name: str) -> list[int]:
        return [record.cost.retrievals for record in runs[name].records]

    # Both drafts are unsure, so the random gate always searches; the oracle keeps the first draft of the first
    # question, which the steps say is right.
    assert runs["random"].header.program.settings["search_rate"] == 1.0
    assert searches("never") == [0, 0] and searches("always") == searches("active") == searches("random") == [2, 2]
    assert searches("oracle") == [1, 2] and searches("rag") == [1, 1]
    assert runs["oracle"].header.program.settings["gate"] == "oracle" and runs["oracle"].header.program.state is None
    assert runs["oracle"].header.index == runs["active"].header.index
    settings = {name: runs[name].header.program.settings for name in ABLATIONS}
    assert settings["no-chain"]["query"] == "sub_question" and settings["no-rerank"]["rerank"] == "none"
    assert settings["static"]["decomposer"] == "plan" and settings["fused"]["fused_hop"]
    before = {name: (folder / f"{name}.jsonl").read_bytes() for name in ABLATIONS}
    assert ablate().exit_code == 0
    assert lms[-1].engine.prompts == []
    assert before == {name: (folder / f"{name}.jsonl").read_bytes() for name in ABLATIONS}
    assert "made with something else" in ablate("--set", "tau=-0.1", "--programs", "active").stderr


def test_only_some_runs(ablate: Callable[..., Result], tmp_path: Path) -> None:
    options = ["--programs", "react-plus", "--programs", "active", "--programs", "rag"]
    result = ablate(*options, "--baseline", "active", "--first", "1", "--set", "tau=-5")
    assert result.exit_code == 0, result.output
    assert sorted(path.name for path in (tmp_path / "out").glob("*.jsonl")) == [
        "active.jsonl", "rag.jsonl", "react-plus.jsonl",
    ]  # fmt: skip
    run = read_run(tmp_path / "out" / "active.jsonl")
    assert run.header.program.settings["tau"] == -5.0 and run.records[0].cost.retrievals == 0
    assert search_rate(run) == 0.0
    assert json.loads((tmp_path / "out" / "ablation.json").read_text())["baseline"] == "active"


def test_a_dry_run_says_what_would_be_run(ablate: Callable[..., Result], tmp_path: Path, lms: list[dspy.LM]) -> None:
    result = ablate("--dry-run")
    assert result.exit_code == 0, result.output
    assert lms == [] and not (tmp_path / "out").exists()
    assert "11 runs of 2 questions, about 142 LM calls" in result.stdout
    assert ablate("--programs", "active", "--first", "1").exit_code == 0
    again = ablate("--programs", "active", "--programs", "rag", "--first", "1", "--dry-run").stdout
    assert "8.0 (measured)" in again and "1.0 (typical)" in again and "about 1 LM calls" in again


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (["--programs", "best"], "there are rag, never, always"),
        (["--programs", "random"], "needs the rate of active"),
        (["--set", "colour=red"], "none of rag, never"),
        (["--set", "tau=1"], "tau"),
        *(
            (["--programs", "active", "--set", given], "differ in")
            for given in ("gate=always", "query=sub_question", "rerank=none", "search_rate=0.1", "seed=3")
        ),
        (["--programs", "rag", "--set", "tau=-1"], "none of rag has it"),
        (["--programs", "rag", "--baseline", "active"], "there are rag"),
    ],
)
def test_refused(ablate: Callable[..., Result], tmp_path: Path, options: list[str], part: str) -> None:
    result = ablate(*options)
    assert result.exit_code == 2 and result.stderr.count("\n") == 1, result.output
    assert part in result.stderr
    assert not list(tmp_path.glob("out/*.jsonl"))


def test_an_index_that_is_none(ablate: Callable[..., Result], tmp_path: Path) -> None:
    result = ablate("--dry-run", where=str(tmp_path / "nothing"))
    assert result.exit_code == 2 and result.stderr.count("\n") == 1, result.output


def test_the_rate_is_of_a_whole_run(ablate: Callable[..., Result]) -> None:
    assert ablate("--programs", "active", "--first", "1").exit_code == 0
    result = ablate("--programs", "random")
    assert result.exit_code == 2 and "does not answer all of these questions" in result.stderr
    assert ablate("--programs", "rag").exit_code == 0


def test_chosen_keeps_the_order_of_the_table() -> None:
    assert [item.name for item in chosen(["oracle", "cot", "never"])] == ["never", "oracle", "cot"]
    assert [item.name for item in chosen([])] == list(ABLATIONS)
    with pytest.raises(InputError):
        chosen(["active", "best"])
