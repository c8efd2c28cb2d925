"""``hopgate ask`` and its rendering, end to end with a scripted LM on a tiny index."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from typing import Any

import dspy
import pytest
from click.testing import CliRunner, Result
from rich.console import Console
from test_index_support import make_checkpoint
from test_programs_conformance import QUESTION as ASKED
from test_programs_conformance import script as conforming

from hopgate.cli import main
from hopgate.cli.programs import NAMES, SEARCHING
from hopgate.cli.show import show_prediction
from hopgate.core import Passage
from hopgate.index import ColBERTIndex
from hopgate.lms import AnswerConfidence
from hopgate.lms.testing import Reply, scripted_lm
from hopgate.programs import Cost, Hop, Trajectory

QUESTION = "Which river flows through the capital of France?"


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The options that name a tiny index."""
    folder = tmp_path_factory.mktemp("ask")
    tiny = make_checkpoint(folder / "tiny")
    corpus = [
        Passage("p1", "Paris", "Paris is a city on the river Seine. \x1b[31mred [bold]not markup[/bold]"),
        Passage("p2", "London", "London is a city in England."),
    ]
    ColBERTIndex.build(corpus, folder / "index", checkpoint=tiny)
    return ["--index", str(folder / "index"), "--checkpoint", str(tiny)]


def script(prompt: str) -> Reply:
    """Knows the capital, is unsure of the river, and reads it from what was found."""
    last = prompt.rstrip().splitlines()[-1]
    asked = prompt[prompt.rindex(QUESTION) :]
    if "Answer" in last:
        return Reply("Seine")
    if "Task" in last:
        number = len(re.findall(r"Conclusion \d+:", asked))
        return Reply(["What is the capital of France?", "Which river flows through Paris?", "none"][number])
    if "Conclusion 1" in last:
        return Reply("Paris", -0.01)
    return Reply("Seine", -0.2) if "Found" in asked else Reply("Loire", -1.5)


@pytest.fixture
def lm(monkeypatch: pytest.MonkeyPatch) -> dspy.LM:
    found = scripted_lm(script)
    monkeypatch.setattr("hopgate.lms.lm_from_config", lambda table: found)
    return found


def run(*arguments: str, **options: Any) -> Result:
    return CliRunner().invoke(main, ["ask", *arguments], catch_exceptions=False, **options)


@pytest.mark.usefixtures("lm")
def test_json(local: list[str]) -> None:
    result = run(QUESTION, *local, "--json", "--tau", "-0.5", "-k", "1")
    assert result.exit_code == 0, result.output
    record = json.loads(result.stdout)
    assert result.stdout.count("\n") == 1 and result.stderr == ""
    assert list(record) == ["question", "answer", "answered", "best_guess", "trajectory", "cost"]
    assert (record["question"], record["answer"]) == (QUESTION, "Seine")
    trajectory = Trajectory.from_dict(record["trajectory"])
    assert [hop.source for hop in trajectory.hops] == ["memory", "search"]
    assert len(trajectory.hops[1].passages) == 1
    assert record["cost"] == {name: getattr(trajectory.cost, name) for name in Cost.__dataclass_fields__}
    assert record["cost"]["retrievals"] == 1


@pytest.mark.usefixtures("lm")
def test_for_people(local: list[str]) -> None:
    result = run("-", *local, "--tau", "-0.5", "-k", "1", input=f"{QUESTION}\n")
    assert result.exit_code == 0 and result.stderr == "", result.output
    for part in (
        "Hop 1: What is the capital of France?",
        "draft: Paris (confidence -0.01 nats, at least tau -0.50: kept)",
        "source: memory, no search",
        "answer: Paris",
        "Hop 2: Which river flows through Paris?",
        "draft: Loire (confidence -1.50 nats, below tau -0.50: not kept)",
        "source: search for: Which river flows through Paris?",
        "Stopped: nothing more to ask",
        "\nAnswer: Seine\n",
        "Cost: 1 retrieval, ",
        " LM calls, ",
        " prompt and ",
        " completion tokens, ",
        " seconds",
    ):
        assert part in result.stdout, result.stdout
    assert "[Paris] Paris is a city" in result.stdout or "[London] London is" in result.stdout
    assert "\x1b" not in result.stdout


@pytest.mark.usefixtures("lm")
def test_gates(local: list[str]) -> None:
    result = run(QUESTION, *local, "--gate", "always", "--json")
    assert {hop["source"] for hop in json.loads(result.stdout)["trajectory"]["hops"]} == {"search"}
    result = run(QUESTION, *local, "--gate", "never")
    assert "source: search" not in result.stdout and "tau" not in result.stdout
    assert "draft: Loire (confidence -1.50 nats, kept)" in result.stdout


def test_one_call_programs(monkeypatch: pytest.MonkeyPatch, local: list[str]) -> None:
    found = scripted_lm(lambda prompt: "Reasoning: so\nAnswer: Seine" if "easoning" in prompt else "Seine")
    monkeypatch.setattr("hopgate.lms.lm_from_config", lambda table: found)
    for program in ("direct", "cot"):
        result = run(QUESTION, "--program", program)
        assert (
            result.exit_code == 0 and "Answer: Seine" in result.stdout and "0 retrievals, 1 LM call," in result.stdout
        )
    result = run(QUESTION, "--program", "rag", *local, "--tau", "-1", "-k", "2")
    assert result.exit_code == 0 and result.stderr == "Note: this program does not use tau.\n"
    assert "[Paris] Paris is a city" in result.stdout and "[London] London is" in result.stdout
    assert "red [bold]not markup[/bold]" in result.stdout and "\x1b" not in result.stdout


def test_no_log_probabilities(monkeypatch: pytest.MonkeyPatch, local: list[str]) -> None:
    silent = scripted_lm(lambda prompt: replace(script(prompt), logprob=None))
    monkeypatch.setattr("hopgate.lms.lm_from_config", lambda table: silent)
    result = run(QUESTION, *local)
    assert result.exit_code == 2 and result.stderr.count("\n") == 1
    assert "no log-probabilities" in result.stderr and "lm check" in result.stderr


# --- rendering --------------------------------------------------------------------------------------------------------


def shown(trajectory: Trajectory, tau: float | None = None, *, width: int = 60, terminal: bool = False) -> str:
    stream = io.StringIO()
    console = Console(file=stream, width=width, force_terminal=terminal, color_system=None)
    prediction = dspy.Prediction(answer=trajectory.answer or "", trajectory=trajectory, cost=trajectory.cost)
    show_prediction(prediction, tau, console)
    return stream.getvalue()


def test_all_sources_and_missing_parts() -> None:
    passage = Passage("p1", "", "text " * 100)
    text = shown(
        Trajectory(
            "q",
            (
                Hop("s1", note="empty", source="search", query="s1 more", passages=(passage,), answer="a1"),
                Hop("s2", draft="d2", note="none given", source="already_read", answer="a2"),
                Hop("s3", draft="d3", confidence=AnswerConfidence(-0.123, -1, -1, -1, 3), source="search"),
            ),
            passages=(passage,),
            stop_reason="max_hops",
            other_cost=Cost(1, 2000, 3000, 40, cached_calls=7, seconds=1.25),
        ),
        tau=-0.1,
        width=200,
    )
    for part in (
        "draft: none (empty)",
        "source: search for: s1 more",
        "[p1] text text",
        "draft: d2 (no confidence, not kept)",
        "source: already read, in the passages of an earlier hop",
        "draft: d3 (confidence -0.12 nats, below tau -0.10: not kept)",
        "answer: (none)",
        "Read with the question:\n    [p1]\n",
        "Stopped: the limit on hops was reached",
        "Answer: (none)",
        "Cost: 1 retrieval, 2,000 LM calls (7 from the cache), 3,000 prompt and 40 completion tokens, 1.2 seconds",
    ):
        assert part in text, text


def test_attempts_are_shown_with_their_verdicts() -> None:
    attempts: tuple[dict[str, Any], ...] = (
        {"stage": "solve", "answer": "the\nRhine", "verdict": "off_topic"},
        {"stage": "resolve", "hop": 2, "answer": "1871", "verdict": "on_topic", "kept": True},
        {"stage": "redecompose", "answer": None, "error": "not begun: the budget is used up"},
        {"why": "unknown"},
    )
    hops = (Hop("q", source="search", query="q", whole=True), Hop("s1", source="calculator", answer="3"))
    text = shown(Trajectory("q", hops, revisions=attempts, stop_reason="confident"), width=200)
    for part in (
        "Whole question: q",
        "source: calculated, from earlier answers",
        "Stopped: an answer to the whole question was sure enough",
        "Attempt: solve: the Rhine (off-topic)",
        "Attempt: resolve: 1871 (on-topic, kept)",
        "Attempt: redecompose: (none) (not begun: the budget is used up)",
        "Attempt: other: (none) (not judged)",
    ):
        assert part in text, text


@pytest.mark.parametrize("program", NAMES)
def test_every_program_can_be_asked(monkeypatch: pytest.MonkeyPatch, local: list[str], program: str) -> None:
    monkeypatch.setattr("hopgate.lms.lm_from_config", lambda table: scripted_lm(conforming()))
    index = local if program in SEARCHING else []
    result = run(ASKED, "--program", program, *index, "-k", "1")
    assert result.exit_code == 0, result.output
    assert "Answer: 1871" in result.stdout
    assert ("does not use k" in result.stderr) == (program not in SEARCHING)
    record = json.loads(run(ASKED, "--program", program, *index, "--json").stdout)
    assert Trajectory.from_dict(record["trajectory"]).answer == record["answer"] == "1871"


def test_text_of_others_is_plain_and_fits() -> None:
    hostile = "a\x1b[2J\r\n[red]b[/red]\ud800 :smile: " + "long " * 40
    text = shown(Trajectory("q", (Hop(hostile, draft=hostile, answer=hostile),), answer="x"), width=60, terminal=True)
    assert "[red]b[/red]" in text and ":smile:" in text and "\x1b[2J" not in text
    assert max(map(len, text.splitlines())) <= 60
    indented = [line for line in text.splitlines() if line.startswith("  ")]
    assert len(indented) > 4
