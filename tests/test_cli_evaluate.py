"""``hopgate evaluate``: runs, resumed and repeated runs, and what it refuses, with a scripted LM on a tiny index."""

from __future__ import annotations

import errno
import json
import os
import re
from pathlib import Path
from typing import Any

import dspy
import pytest
from click.testing import CliRunner, Result
from test_index_support import make_checkpoint

from hopgate.cli.errors import Program
from hopgate.cli.evaluate import evaluate as command
from hopgate.cli.programs import NAMES, SEARCHING, named_values
from hopgate.core import InputError, Passage, StateError
from hopgate.evaluation.records import line_of, read_run
from hopgate.index import ColBERTIndex
from hopgate.lms.config import lm_from_config
from hopgate.lms.testing import Reply, scripted_lm
from hopgate.optimizers.compiled import program_of_state, read_program
from hopgate.programs import Direct
from hopgate.programs.registry import PROGRAMS, make_program

main = Program("hopgate", commands={"evaluate": command})


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A data file, a tiny index and its checkpoint."""
    folder = tmp_path_factory.mktemp("evaluate")
    corpus = [
        Passage("p1", "Paris", "Paris is a city on the river Seine."),
        Passage("p2", "London", "London is a city on the river Thames."),
    ]
    tiny = make_checkpoint(folder / "tiny")
    ColBERTIndex.build(corpus, folder / "index", checkpoint=tiny)
    ColBERTIndex.build(corpus[:1], folder / "other", checkpoint=tiny)
    rows = [
        {"id": "a", "question": "Which river flows through Paris?", "answers": ["Seine"]},
        {"id": "b", "question": "Which river flows through London?", "answers": ["Thames"]},
        {"id": "c", "question": "Which river flows through Rome?", "answers": ["Tiber"]},
    ]
    data = folder / "rivers.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return {
        "data": str(data),
        "index": str(folder / "index"),
        "other": str(folder / "other"),
        "checkpoint": str(tiny),
    }


@pytest.fixture(autouse=True)
def tables(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The LM tables that the command declares; every LM knows the Seine only."""
    seen: list[Any] = []

    def declared(table: dict[str, Any]) -> dspy.LM:
        seen.append(table)
        options = {name: value for name, value in table.items() if name != "model"}
        return scripted_lm(lambda prompt: Reply("Seine"), **options)

    monkeypatch.setattr("hopgate.lms.lm_from_config", declared)
    return seen


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["evaluate", *arguments], catch_exceptions=False)


def failure(*arguments: str) -> str:
    result = run(*arguments)
    assert result.exit_code == 2 and result.stderr.count("\n") == 1, result.output
    return result.stderr


def test_a_run(files: dict[str, str], tmp_path: Path, tables: list[Any]) -> None:
    out = tmp_path / "runs" / "direct.jsonl"
    result = run(files["data"], "--program", "direct", "--out", str(out), "--first", "2", "--workers", "2")
    assert result.exit_code == 0, result.output
    assert "2 of 2 questions answered, 0 failed: EM 0.500" in result.stdout and "USD unknown" in result.stdout
    found = read_run(out)
    assert (found.header.data.name, found.header.data.ids) == ("rivers", ("a", "b"))
    assert tables == [{"model": "embedded/qwen2.5-coder-1.5b", "cache": False}]
    assert "flows through" not in out.read_text()
    again = run(files["data"], "--program", "direct", "--out", str(out), "--first", "2", "--json")
    summary = json.loads(again.stdout)
    assert (summary["n"], summary["answered"], summary["em"], summary["usd"]) == (2, 2, 0.5, None)
    assert summary["lm_calls"] == 2 and summary["stopped"] is None


def test_rows_settings_and_the_index(files: dict[str, str], tmp_path: Path) -> None:
    out, index = tmp_path / "rag.jsonl", ["--index", files["index"], "--checkpoint", files["checkpoint"]]
    result = run(files["data"], "--program", "rag", *index, "--rows", "2:3", "--set", "k=1", "--out", str(out))
    assert result.exit_code == 0, result.output
    header = read_run(out).header
    assert header.data.ids == ("b", "c") and header.program.settings["k"] == 1
    assert header.index is not None and header.index.passages == 2 and header.index.corpus_fingerprint
    assert len(read_run(out).records[0].trajectory.passages) == 1  # type: ignore[union-attr]


def test_a_budget_stops_and_the_file_goes_on(files: dict[str, str], tmp_path: Path) -> None:
    out = tmp_path / "a.jsonl"
    start = (files["data"], "--program", "direct", "--out", str(out))
    result = run(*start, "--max-calls", "1")
    assert result.exit_code == 1
    assert "Stopped: the budget of 1 LM call is used up (1 made). 2 questions are left" in result.stderr
    assert run(*start).exit_code == 0 and len(read_run(out).records) == 3


def test_repeated(files: dict[str, str], tmp_path: Path, tables: list[Any]) -> None:
    first, second = tmp_path / "first.jsonl", tmp_path / "second.jsonl"
    index = ["--index", files["index"], "--checkpoint", files["checkpoint"]]
    made = run(
        files["data"], "--program", "rag", *index, "--set", "k=1", "--lm", "openai/x", "--lm-set", "temperature=0.5",
        "--rows", "2:3", "--out", str(first),
    )  # fmt: skip
    assert made.exit_code == 0, made.output
    again = ("--repeat", str(first), "--out", str(second))
    assert "questions of 'rivers'; name their file" in failure(*again, *index)
    assert "searched an index of 2 passages" in failure(files["data"], *again)
    other = failure(files["data"], *again, "--index", files["other"], "--checkpoint", files["checkpoint"])
    assert "no repetition of the run 'first'" in other and "corpus_fingerprint" in other
    assert "name what it was made with" in other
    assert "leave it out" in failure(files["data"], *again, *index, "--set", "k=2")
    assert "made with the program 'rag'" in failure(files["data"], *again, *index, "--program", "direct")
    assert not second.exists()
    result = run(files["data"], *again, *index)
    assert result.exit_code == 0, result.output
    assert tables[-1]["temperature"] == 0.5 and tables[-1]["cache"] is False
    old, new = read_run(first), read_run(second)
    assert new.header.data == old.header.data and new.header.program == old.header.program
    assert [r.answer for r in new.records] == [r.answer for r in old.records]


def test_the_sample_is_found_by_its_name(tmp_path: Path) -> None:
    first, second = tmp_path / "first.jsonl", tmp_path / "second.jsonl"
    made = run("sample", "--split", "test", "--sample", "3", "--seed", "1", "--program", "cot", "--out", str(first))
    assert made.exit_code == 0, made.output
    assert run("--repeat", str(first), "--out", str(second)).exit_code == 0
    assert read_run(second).header.data == read_run(first).header.data
    # Another's questions are not the run's.
    first.write_bytes(first.read_bytes().replace(b'"split":"test"', b'"split":"train"'))
    assert "3 of the run's 3 questions are not in sample" in failure("--repeat", str(first), "--out", str(second))


def test_saved_states(files: dict[str, str], tmp_path: Path) -> None:
    saved, out = tmp_path / "direct.json", tmp_path / "a.jsonl"
    program = Direct()
    program.respond.signature = program.respond.signature.with_instructions("Answer with a river.")
    program.save(saved)
    assert run(files["data"], "--program", "direct", "--state", str(saved), "--out", str(out)).exit_code == 0
    header = read_run(out).header
    assert header.program.name == "direct" and header.program.file is not None
    assert header.program.state is not None and "Answer with a river." in json.dumps(header.program.state)
    # The file alone says the program, and a repetition takes the state from the header.
    assert run(files["data"], "--program", str(saved), "--out", str(out)).exit_code == 0
    assert run(files["data"], "--repeat", str(out), "--out", str(tmp_path / "b.jsonl")).exit_code == 0
    assert "state" in failure(files["data"], "--program", "direct", "--out", str(out))
    assert "not the state of ChainOfThought" in failure(
        files["data"], "--program", "cot", "--state", str(saved), "--out", str(tmp_path / "c.jsonl")
    )


def test_demos_are_named_again(files: dict[str, str], tmp_path: Path) -> None:
    saved, out, again = tmp_path / "direct.json", tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    program = Direct()
    program.respond.demos = [{"question": "Which river flows through Bonn?", "answer": "Rhine"}]
    program.save(saved)
    assert run(files["data"], "--program", "direct", "--state", str(saved), "--out", str(out)).exit_code == 0
    assert "Rhine" not in out.read_text()
    assert "has demos" in failure(files["data"], "--repeat", str(out), "--out", str(again))
    assert run(files["data"], "--repeat", str(out), "--state", str(saved), "--out", str(again)).exit_code == 0
    program.respond.demos[0]["answer"] = "Elbe"
    program.save(saved)
    again.unlink()
    assert "demos" in failure(files["data"], "--repeat", str(out), "--state", str(saved), "--out", str(again))


def test_the_names_are_those_of_the_registry() -> None:
    assert set(NAMES) == set(PROGRAMS) and len(set(NAMES)) == len(NAMES)
    assert set(SEARCHING) == {name for name, entry in PROGRAMS.items() if entry.searches}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_state_tells_its_program(tmp_path: Path, name: str) -> None:
    program = make_program(name, k=2)
    program.save(tmp_path / "a.json")
    state = read_program(tmp_path / "a.json").state
    try:
        found = program_of_state(state, "a.json")
    except StateError as error:
        # Programs whose states are of one shape: the message names them.
        assert re.search(rf"fits .*\b{name}\b.*--program NAME --state a\.json", str(error))
        found = name
    again = make_program(found)
    again.load_state(state)
    assert type(again) is type(program) and again.dump_state() == program.dump_state()


@pytest.mark.parametrize("change", [{"another": {}}, {"settings": {"unheard_of": 1}}], ids=str)
def test_a_state_of_no_program(change: dict[str, Any]) -> None:
    state = {**Direct().dump_state(), **change}
    with pytest.raises(StateError, match=r"fits none of the programs.*--program NAME --state a\.json"):
        program_of_state(state, "a.json")


def test_settings_of_the_command_line() -> None:
    assert named_values(["k=3", "gate=always", 'examples=[{"a": 1}]', "tau=-0.5", "x=a=b"]) == {
        "k": 3, "gate": "always", "examples": [{"a": 1}], "tau": -0.5, "x": "a=b",
    }  # fmt: skip
    for pairs in (["k"], ["=3"], ["k=1", "k=2"]):
        with pytest.raises(InputError):
            named_values(pairs)


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (["--out", "OUT"], "name the questions"),
        (["DATA", "--out", "OUT"], "--index DIR"),
        (["DATA", "--out", "OUT", "--program", "best"], "there are active, always, "),
        (["DATA", "--out", "OUT", "--program", "none.json"], "none.json: no such file"),
        (["DATA", "--out", "OUT", "--program", "direct", "--set", "tau=-1"], "tau"),
        (["DATA", "--out", "OUT", "--program", "direct", "--first", "1", "--rows", "1:2"], "--first and --rows"),
        (["DATA", "--out", "OUT", "--program", "direct", "--rows", "2:1"], "A:B"),
        (["DATA", "--out", "OUT", "--program", "direct", "--rows", "7:9"], "has 3 questions"),
        (["DATA", "--out", "OUT", "--program", "direct", "--max-usd", "0"], "usd"),
        (["DATA", "--out", "OUT", "--program", "direct", "--timeout", "0"], "timeout"),
        (["none.jsonl", "--out", "OUT", "--program", "direct"], "none.jsonl"),
        (["DATA", "--out", "DATA", "--program", "direct"], "not the header of a run file"),
        (["--repeat", "DATA", "--out", "OUT"], "not the header of a run file"),
        (["DATA", "--program", "direct", "--out", ""], "must not be empty"),
        (["DATA", "--program", "direct", "--out", "."], "is a folder"),
        (["DATA", "--program", "direct", "--out", "OUT", "--state", ""], "must not be empty"),
        (["DATA", "--program", "", "--out", "OUT"], "--program '': there are active"),
        (["DATA", "--program", "rag", "--out", "OUT", "--index", ""], "--index is empty"),
        (["", "--program", "direct", "--out", "OUT"], "must not be empty"),
        (["DATA", "--out", "OUT", "--repeat", ""], "must not be empty"),
    ],
)
def test_refused(files: dict[str, str], tmp_path: Path, options: list[str], part: str) -> None:
    before = Path(files["data"]).read_bytes()
    places = {"OUT": str(tmp_path / "out.jsonl"), "DATA": files["data"]}
    assert part in failure(*(places.get(option, option) for option in options))
    assert not (tmp_path / "out.jsonl").exists() and Path(files["data"]).read_bytes() == before


def test_a_run_in_which_every_question_fails(
    files: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = {"Rome", "Paris", "London"}

    def reply(prompt: str) -> Reply:
        if any(name in prompt for name in failing):
            raise ValueError("no")
        return Reply("Seine")

    monkeypatch.setattr("hopgate.lms.lm_from_config", lambda table: scripted_lm(reply))
    command = (files["data"], "--program", "direct", "--out", str(tmp_path / "a.jsonl"))
    for _ in range(2):  # the second has nothing left to ask
        result = run(*command)
        assert result.exit_code == 1 and "Every question failed" in result.stderr, result.output
        assert "0 of 3 questions answered, 3 failed" in result.stdout
    failing.remove("Paris")
    result = run(*command, "--retry-errors")
    assert result.exit_code == 0 and "1 of 3 questions answered, 2 failed" in result.stdout, result.output


@pytest.mark.parametrize("name", ["first.jsonl", "link.jsonl"])
def test_a_run_is_not_repeated_into_itself(files: dict[str, str], tmp_path: Path, name: str) -> None:
    first = tmp_path / "first.jsonl"
    assert run(files["data"], "--program", "direct", "--out", str(first)).exit_code == 0
    (tmp_path / "link.jsonl").symlink_to(first)
    before = first.read_bytes()
    message = failure(files["data"], "--repeat", str(first), "--out", str(tmp_path / name))
    assert "is the run that --repeat does again" in message and first.read_bytes() == before


def test_programs_of_others_are_repeated_in_python(files: dict[str, str], tmp_path: Path) -> None:
    out = tmp_path / "a.jsonl"
    assert run(files["data"], "--program", "direct", "--out", str(out)).exit_code == 0
    out.write_bytes(out.read_bytes().replace(b'"name":"direct"', b'"name":"Mine"', 1))
    message = failure(files["data"], "--repeat", str(out), "--out", str(tmp_path / "b.jsonl"))
    assert "'Mine'" in message and "same_as" in message
    assert line_of(read_run(out).header).startswith(b'{"schema":1')


def test_help_is_light() -> None:
    import subprocess
    import sys

    code = (
        "import sys, hopgate.cli.evaluate as e\n"
        "sys.exit(any(name in sys.modules for name in ('dspy', 'torch', 'pydantic', 'rich')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("option", ["--max-calls", "--max-usd", "--max-seconds", "--timeout"])
@pytest.mark.parametrize("value", ["0", "-5", "much"])
def test_limits_that_cannot_be_are_named_by_their_option(
    files: dict[str, str], tmp_path: Path, option: str, value: str
) -> None:
    out = tmp_path / "a.jsonl"
    message = failure(files["data"], "--program", "direct", "--out", str(out), option, value)
    assert f"Invalid value for '{option}'" in message and value in message and not out.exists()


@pytest.mark.parametrize(
    "option", ["temperature=hot", "top_p=2", "max_tokens=many", "n=0", "seed=x", "stop=5", "logprobs=maybe"]
)
def test_options_of_the_lm_are_checked_before_any_question(
    files: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    monkeypatch.setattr("hopgate.lms.lm_from_config", lm_from_config)
    out, (name, _, value) = tmp_path / "a.jsonl", option.partition("=")
    options = ("--program", "direct", "--lm", "openai/x", "--lm-set", option, "--out", str(out))
    message = failure(files["data"], *options)
    assert f"`{name}` must be " in message and value in message and not out.exists()


def test_another_program_is_all_that_differs(files: dict[str, str], tmp_path: Path) -> None:
    out = tmp_path / "a.jsonl"
    index = ("--index", files["index"], "--checkpoint", files["checkpoint"])
    assert run(files["data"], "--program", "rag", *index, "--out", str(out)).exit_code == 0
    message = failure(files["data"], "--program", "direct", "--out", str(out), "--seed", "3")
    assert 'resumed: program "rag", now "direct"; give what it was made with' in message


def test_the_server_that_was_not_reached_is_named(
    files: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = (files["data"], "--program", "direct", "--retries", "0")
    with monkeypatch.context() as patched:
        patched.setattr("hopgate.lms.lm_from_config", lm_from_config)
        patched.setenv("OPENAI_API_KEY", "none")
        # No server listens at the port that only ever discarded what it was sent.
        server = ("--lm", "openai/x", "--lm-set", "api_base=http://127.0.0.1:9/v1", "--lm-set", "num_retries=0")
        told = run(*command, *server, "--out", str(tmp_path / "a.jsonl"))
    assert told.exit_code == 1 and "reached at http://127.0.0.1:9/v1: start it" in told.stderr, told.output

    def unreachable(prompt: str) -> Reply:
        raise dspy.LMTransportError("Connection error", model="openai/x")

    monkeypatch.setattr("hopgate.lms.lm_from_config", lambda table: scripted_lm(unreachable))
    told = run(*command, "--out", str(tmp_path / "b.jsonl"))
    assert "could not be reached: connect to the network" in told.stderr and "api_base=URL" in told.stderr


def test_counts_of_one(files: dict[str, str], tmp_path: Path) -> None:
    result = run(files["data"], "--program", "direct", "--first", "1", "--out", str(tmp_path / "a.jsonl"))
    assert "1 of 1 question answered" in result.stdout and "1 LM call, USD unknown" in result.stdout


def test_the_embedded_lm_costs_nothing(files: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lm = scripted_lm(lambda prompt: Reply("Seine"))
    lm.model = "embedded/tiny@0123456789ab"
    monkeypatch.setattr("hopgate.lms.lm_from_config", lambda table: lm)
    command = (files["data"], "--program", "direct", "--out", str(tmp_path / "a.jsonl"), "--max-usd", "0.01")
    result = run(*command)
    assert result.exit_code == 0 and "3 LM calls, USD 0, " in result.stdout, result.output
    assert json.loads(run(*command, "--json").stdout)["usd"] == 0


@pytest.mark.parametrize("reason", [errno.EPERM, errno.EACCES, errno.EROFS])
def test_a_folder_that_cannot_be_written(
    files: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: int
) -> None:
    out, opened = tmp_path / "a.jsonl", os.open

    def refusing(path: Any, *arguments: Any, **options: Any) -> int:
        if str(path).startswith(str(tmp_path)):
            raise OSError(reason, os.strerror(reason), str(path))
        return opened(path, *arguments, **options)

    monkeypatch.setattr(os, "open", refusing)
    message = failure(files["data"], "--program", "direct", "--out", str(out))
    assert f"{out}: cannot be written ({os.strerror(reason)}); name a file in a folder that you may" in message
    assert ".lock" not in message
