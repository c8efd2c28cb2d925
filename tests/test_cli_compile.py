"""``hopgate compile``, and programs that it wrote in ``ask`` and ``evaluate``, with a scripted LM."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import dspy
import pytest
from click.testing import CliRunner, Result
from tree_worlds import World, search

from hopgate.cli import main
from hopgate.evaluation.records import read_run
from hopgate.index import read_info
from hopgate.lms.testing import Reply, scripted_lm
from hopgate.optimizers import (
    CalibratedGate,
    PolicyGate,
    evaluate_policy,
    load_program,
    read_program,
    read_trees,
    save_program,
)
from hopgate.programs import Direct, Escalation

N = 8
FEW = ("--leaves", "3")
"""Leaves are what takes time here."""


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The options that name a stand-in for an index."""

    monkeypatch.setattr("hopgate.index.read_info", lambda where: None if where == "stand-in" else read_info(where))
    monkeypatch.setattr("hopgate.cli.run_inputs.open_index", lambda where, checkpoint: search)
    return ["--index", "stand-in"]


@pytest.fixture(autouse=True)
def lms(monkeypatch: pytest.MonkeyPatch) -> list[dspy.LM]:
    """The LMs that commands declare; each is a world in which sure answers are right more often."""
    made: list[dspy.LM] = []

    def declared(table: Any) -> dspy.LM:
        lm = scripted_lm(World(7))
        made.append(lm)
        return lm

    monkeypatch.setattr("hopgate.lms.lm_from_config", declared)
    return made


@pytest.fixture
def data(tmp_path: Path) -> str:
    rows = [{"id": str(n), "question": f"Who is the uncle of number {n}?", "answers": ["abc"[n % 3]]} for n in range(N)]
    path = tmp_path / "uncles.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments), catch_exceptions=False)


def calls(lms: list[dspy.LM]) -> int:
    engines: list[Any] = [lm.engine for lm in lms]
    return sum(len(engine.prompts) for engine in engines)


def failure(*arguments: str) -> str:
    result = run(*arguments)
    assert result.exit_code == 2 and result.stderr.count("\n") == 1 and "Traceback" not in result.stderr, result.output
    return result.stderr


def test_thresholds(data: str, index: list[str], tmp_path: Path, lms: list[dspy.LM]) -> None:
    out = tmp_path / "program.json"
    command = ("compile", data, *index, "--out", str(out), "--first", "6", *FEW, "--lm", "openai/x", "--within", "0.02")
    dry = run(*command, "--dry-run")
    assert dry.exit_code == 0 and not lms and not out.exists(), dry.output
    assert "6 training and 0 validation questions, 0 of them recorded: at most 18 leaves" in dry.stdout
    result = run(*command)
    assert result.exit_code == 0, result.output
    for part in ("Thresholds: tau_memory -", "Compiled, on the training questions, ", "EM 0.", "retrievals ", "n = 6",
                 "Original, on", "Original kept: ", f"Written to {out}."):  # fmt: skip
        assert part in result.stdout, result.stdout
    manifest = read_program(out).manifest
    assert manifest is not None and manifest.train is not None
    assert (manifest.program, manifest.optimizer, manifest.metric) == ("escalation", "tau", "em")
    assert (manifest.train.name, manifest.train.n) == ("uncles", 6)
    assert manifest.options["rule"] == "WithinBest" and manifest.options["slack"] == 0.02 and manifest.front
    assert manifest.lm == "scripted/lm" and "uncle of" not in out.read_text()
    # Given again, or with another rule, nothing is asked again.
    before = calls(lms)
    again = run(*command[:-2], "--budget-retrievals", "1", "--json")
    assert again.exit_code == 0 and calls(lms) == before, again.output
    record = json.loads(again.stdout)
    assert record["out"] == str(out) and record["options"]["budget"] == 1.0 and record["result"]["held_out"]["n"] == 6
    loaded = load_program(out, search)
    assert {name: getattr(loaded.settings.values, name) for name in record["result"]["settings"]} == (
        record["result"]["settings"]
    )
    assert "about 0 LM calls" in run(*command, "--dry-run").stdout


def test_the_program_is_asked_and_evaluated(data: str, index: list[str], tmp_path: Path) -> None:
    out, trained, evaluated = tmp_path / "p.json", tmp_path / "p.work" / "trees.jsonl", tmp_path / "run.jsonl"
    made = run("compile", data, *index, "--out", str(out), "--optimizer", "policy", "--penalty", "0.1")
    assert made.exit_code == 0 and "Policy, trained from the thresholds: " in made.stdout, made.output
    assert "held out" in made.stdout and len(read_trees(trained).explored) == N
    loaded = load_program(out, search)
    assert isinstance(loaded, Escalation)
    assert any(isinstance(gate, PolicyGate) and gate.weights for gate in loaded.gates.values())
    asked = run("ask", "Who is the uncle of number 3?", "--program", str(out), *index, "--json")
    assert asked.exit_code == 0 and json.loads(asked.stdout)["answer"], asked.output
    assert "--index DIR" in failure("ask", "Who?", "--program", str(out))
    done = run("evaluate", data, "--program", str(out), *index, "--out", str(evaluated))
    assert done.exit_code == 0, done.output
    # What the recorded trees say is what the program does.
    gate = next(gate for gate in loaded.gates.values() if isinstance(gate, PolicyGate))
    value, records = evaluate_policy(read_trees(trained), gate), read_run(evaluated).records
    assert [record.scores.em for record in records] == [bool(score) for score in value.scores]
    assert [record.cost.retrievals for record in records] == value.retrievals.tolist()
    again = ("evaluate", data, "--repeat", str(evaluated), *index, "--out", str(tmp_path / "again.jsonl"))
    assert "has gates of its own" in failure(*again)
    assert run(*again, "--state", str(out)).exit_code == 0


def test_validation_questions(data: str, index: list[str], tmp_path: Path) -> None:
    out = tmp_path / "p.json"
    command = ("compile", data, *index, "--out", str(out), "--rows", "1:5", *FEW, "--json", "--valid-rows", "6:8")
    for optimizer in ("tau", "policy"):
        result = run(*command, "--optimizer", optimizer)
        assert result.exit_code == 0, result.output
        record = json.loads(result.stdout)
        assert record["result"]["measured_on"] == "the validation questions" and record["valid"]["n"] == 3
        assert record["result"]["held_out"]["n"] == record["result"]["original"]["n"] == 3
        assert record["result"]["train"]["n"] == 5
    assert "also trained on" in failure(*command[:-1], "5:8")


def test_probabilities_are_carried_to_another_lm(
    data: str, index: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    made = run("compile", data, *index, "--out", str(first), *FEW, "--calibrate", "platt", "--set", "k=2")
    assert made.exit_code == 0, made.output
    before = load_program(first, search)
    monkeypatch.setattr("hopgate.lms.lm_from_config", lambda table: scripted_lm(World(11)))
    command = ("compile", data, *index, "--program", str(first), "--optimizer", "calibration", *FEW, "--out",
               str(second))  # fmt: skip
    result = run(*command, "--rows", "1:6", "--valid-rows", "7:8")
    assert result.exit_code == 0 and "Probabilities: probability_" in result.stdout, result.output
    assert "Compiled, on the validation questions: EM " in result.stdout
    after = load_program(second, search)
    assert isinstance(before, Escalation) and isinstance(after, Escalation) and after.settings.values.k == 2
    gates = [{step: gate for step, gate in program.gates.items() if isinstance(gate, CalibratedGate)}
             for program in (before, after)]  # fmt: skip
    assert gates[0] and gates[0].keys() == gates[1].keys()
    for step, gate in gates[0].items():
        assert gate.probability == gates[1][step].probability and gate.calibrators != gates[1][step].calibrators
    assert "no calibrated gates" in failure(*command, "--program", "escalation")
    assert "leave --penalty out" in failure(*command, "--penalty", "1")
    assert "--calibrate is an option of" in failure("compile", data, *index, "--out", str(tmp_path / "x.json"),
                                                    "--optimizer", "policy", "--calibrate", "platt")  # fmt: skip


def test_a_policy_is_replaced(data: str, index: list[str], tmp_path: Path) -> None:
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    assert run("compile", data, *index, "--out", str(first), *FEW, "--optimizer", "policy").exit_code == 0
    result = run("compile", data, *index, "--out", str(second), "--program", str(first), *FEW)
    # The policy is no thresholds to beat, and is still measured.
    assert result.exit_code == 0 and "Original, on" in result.stdout, result.output
    assert "Original kept: no" in result.stdout
    loaded = load_program(second, search)
    assert isinstance(loaded, Escalation) and not loaded.gates


def test_joint(data: str, index: list[str], tmp_path: Path, lms: list[dspy.LM]) -> None:
    out = tmp_path / "p.json"
    command = ("compile", data, *index, "--out", str(out), "--optimizer", "joint", "--trials", "2", "--racing", "3,4",
               "--demo-sets", "1", "--leaves", "3", "--rows", "1:6", "--valid-rows", "7:8")  # fmt: skip
    dry = run(*command, "--dry-run")
    assert dry.exit_code == 0 and "2 candidates" in dry.stdout and not lms and list(tmp_path.iterdir()) == [Path(data)]
    stopped = run(*command, "--max-calls", "60")
    assert stopped.exit_code == 1 and "Stopped: " in stopped.stderr, stopped.output
    result = run(*command)
    assert result.exit_code == 0, result.output
    for part in ("Chosen: ", "EM 0.", "Original kept: ", f"Written to {out}."):
        assert part in result.stdout, result.stdout
    manifest = read_program(out).manifest
    assert manifest is not None and manifest.optimizer == "joint" and manifest.front
    assert manifest.options["trials"] == 2 and manifest.options["racing"] == [3, 4]
    before = calls(lms)
    assert run(*command, "--json").exit_code == 0 and calls(lms) == before
    asked = run("ask", "Who is the uncle of number 3?", "--program", str(out), *index, "--json")
    assert asked.exit_code == 0, asked.output
    assert "option of --optimizer joint" in failure(*command, "--optimizer", "tau")
    assert "growing numbers" in failure(*command, "--racing", "4,3")


def test_a_budget_stops_with_the_best_so_far(data: str, index: list[str], tmp_path: Path, lms: list[dspy.LM]) -> None:
    out = tmp_path / "p.json"
    command = ("compile", data, *index, *FEW, "--out", str(out))
    result = run(*command, "--max-calls", "30")
    assert result.exit_code == 1 and "Stopped: the budget of 30 LM calls" in result.stderr, result.output
    recorded = len(read_trees(tmp_path / "p.work" / "trees.jsonl").explored)
    assert 0 < recorded < N and f"{N - recorded} of {N} training questions" in result.stderr
    manifest = read_program(out).manifest
    assert manifest is not None and manifest.result["stopped"]
    before = read_program(out).state
    message = failure(*command, "--first", "3")
    assert "8 questions of uncles, now 3 of uncles" in message and message.endswith("another file: --work DIR\n")
    assert read_program(out).state == before
    assert run(*command).exit_code == 0
    disturbed = calls(lms)
    undisturbed = tmp_path / "q.json"
    lms.clear()
    assert run(*command[:-1], str(undisturbed)).exit_code == 0
    assert calls(lms) == disturbed
    assert read_program(out).state == read_program(undisturbed).state


def test_interrupted(data: str, index: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world, left = World(7), [40]

    def stopping(prompt: str) -> Reply | str:
        left[0] -= 1
        if left[0] == 0:
            raise KeyboardInterrupt
        return world(prompt)

    monkeypatch.setattr("hopgate.lms.lm_from_config", lambda table: scripted_lm(stopping))
    command = ("compile", data, *index, *FEW, "--out", str(tmp_path / "p.json"))
    result = run(*command)
    assert result.exit_code == 130 and " of 8 questions are done; what is done is kept" in result.stderr
    assert run(*command).exit_code == 0
    left[0] = 4
    command = ("evaluate", data, "--program", "direct", "--out", str(tmp_path / "r.jsonl"))
    result = run(*command)
    assert result.exit_code == 130 and "Interrupted: 3 of 8 questions are done" in result.stderr, result.stderr
    assert run(*command).exit_code == 0


def test_ask_takes_states_and_settings(index: list[str], tmp_path: Path) -> None:
    saved = tmp_path / "direct.json"
    program = Direct()
    program.respond.signature = program.respond.signature.with_instructions("Answer with one letter, please.")
    program.save(saved)
    seen: list[str] = []
    for options in (["--program", str(saved)], ["--program", "direct", "--state", str(saved)]):
        result = run("ask", "Who is it?", *options, "--json")
        assert result.exit_code == 0, result.output
        seen.append(json.loads(result.stdout)["answer"])
    assert seen[0] == seen[1]
    result = run("ask", "Who is it?", *index, "--set", "max_hops=1", "--set", "gate=always", "--json")
    assert result.exit_code == 0 and len(json.loads(result.stdout)["trajectory"]["hops"]) == 1, result.output
    assert "given twice" in failure("ask", "Who?", *index, "--set", "tau=-1", "--tau", "-1")
    assert "setting `hops`" in failure("ask", "Who?", *index, "--set", "hops=1")
    assert "both name a saved program" in failure("ask", "Who?", "--program", str(saved), "--state", str(saved))
    assert "holds the program" not in failure("ask", "Who?", "--program", "cot", "--state", str(saved))


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (["--out", "OUT"], "--index DIR"),
        (["--out", "OUT", "--index", "none"], "no such index folder"),
        (["--out", "OUT", "INDEX", "--penalty", "-1"], "--penalty: `weight`"),
        (["--out", "OUT", "INDEX", "--within", "nan"], "--within: `slack`"),
        (["--out", "OUT", "INDEX", "--budget-retrievals", "-1"], "--budget-retrievals: `budget`"),
        (["--out", "OUT", "INDEX", "--within", "0", "--penalty", "1"], "different rules"),
        (["--out", "OUT", "INDEX", "--within", "0", "--optimizer", "policy"], "--penalty in place of --within"),
        (["--out", "OUT", "INDEX", "--max-calls", "0"], "--max-calls"),
        (["--out", "OUT", "INDEX", "--max-tokens", "-1"], "--max-tokens"),
        (["--out", "OUT", "INDEX", "--program", "best"], "there are active"),
        (["--out", "OUT", "INDEX", "--program", "ircot"], "has no thresholds to fit"),
        (["--out", "OUT", "INDEX", "--program", "always"], "nothing to fit"),
        (["--out", "OUT", "INDEX", "--set", "tau=1"], "setting `tau`"),
        (["--out", "OUT", "INDEX", "--rows", "99:100"], "has 8 questions"),
        (["--out", "DATA", "INDEX"], "is there and no compiled program"),
        (["--out", "STATE", "INDEX"], "is there and no compiled program"),
        (["--out", "DATA/p.json", "INDEX"], "no folder that may be written to"),
        (["--out", ".", "INDEX"], "is a folder"),
        (["--out", "OUT", "INDEX", "--work", "DATA"], "no folder that may be written to"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else value,
)
def test_refused_before_an_lm_is_loaded(
    data: str, index: list[str], tmp_path: Path, lms: list[dspy.LM], options: list[str], part: str
) -> None:
    state = tmp_path / "state.json"
    Direct().save(state)
    files = {"OUT": str(tmp_path / "p.json"), "DATA": data, "DATA/p.json": f"{data}/p.json", "STATE": str(state)}
    arguments: list[str] = []
    for option in options:
        arguments += index if option == "INDEX" else [files.get(option, option)]
    before = sorted(path.name for path in tmp_path.rglob("*"))
    assert part in failure("compile", data, *arguments)
    assert not lms and sorted(path.name for path in tmp_path.rglob("*")) == before


def test_questions_that_all_fail(data: str, index: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(prompt: str) -> Reply:
        raise ValueError("out of order")

    monkeypatch.setattr("hopgate.lms.lm_from_config", lambda table: scripted_lm(broken))
    message = failure("compile", data, *index, "--out", str(tmp_path / "p.json"))
    assert "no question could be recorded" in message and "out of order" in message
    assert not (tmp_path / "p.json").exists()


def test_without_log_probabilities(
    data: str, index: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, asked = World(7), []

    def mute(prompt: str) -> Reply:
        asked.append(prompt)
        reply = world(prompt)
        return Reply(reply.text if isinstance(reply, Reply) else str(reply), None)

    monkeypatch.setattr("hopgate.lms.lm_from_config", lambda table: scripted_lm(mute))
    out = tmp_path / "p.json"
    message = failure("compile", data, *index, "--out", str(out), "--set", 'without_confidence="search"')
    assert "question '0': no answer at stake has a confidence" in message and "name one that does" in message
    assert not out.exists() and not any("number 1" in prompt for prompt in asked)


@pytest.mark.parametrize("part", ["\\ud800", '", "instructions": "'])
def test_damaged_program_files(data: str, index: list[str], tmp_path: Path, part: str) -> None:
    path = tmp_path / "p.json"
    save_program(Escalation(search), path)
    path.write_text(path.read_text().replace('"instructions": "', f'"instructions": "{part}', 1))
    for command in (
        ["ask", "Who?"],
        ["compile", data, "--out", str(tmp_path / "q.json")],
        ["evaluate", data, "--out", str(tmp_path / "r.jsonl")],
    ):
        message = failure(*command, *index, "--program", str(path))
        assert str(path) in message and "instructions" in message


def test_gates_without_a_manifest(data: str, index: list[str], tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    Escalation(search, gates={"memory": PolicyGate()}).save(path)
    for options in (["--program", str(path)], ["--program", "escalation", "--state", str(path)]):
        message = failure("ask", "Who?", *index, *options)
        assert "does not say which gates they are; save the program with `save_program`" in message


@pytest.mark.parametrize("optimizer", ["tau", "policy"])
def test_one_question(data: str, index: list[str], tmp_path: Path, optimizer: str) -> None:
    out = tmp_path / "p.json"
    result = run("compile", data, *index, "--out", str(out), "--first", "1", "--optimizer", optimizer)
    assert result.exit_code == 0 and "There are no questions that it was not fitted on" in result.stdout, result.output
    assert read_program(out).manifest is not None
