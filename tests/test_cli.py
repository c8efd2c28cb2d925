"""The command line as a program: what it imports, its exit codes, and one line for each mistake."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dspy
import pytest
from click.testing import CliRunner, Result
from test_index_support import make_checkpoint, passages, write_corpus

from hopgate.cli import main
from hopgate.core.known_weights import WEIGHTS
from hopgate.index import ColBERTIndex
from hopgate.lms.testing import scripted_lm

GOOD = {"id": "1", "title": "T", "text": "some text"}


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two checkpoints, and an index made with the first."""
    folder = tmp_path_factory.mktemp("cli")
    tiny, other = make_checkpoint(folder / "tiny"), make_checkpoint(folder / "other", seed=1)
    ColBERTIndex.build(passages(8), folder / "index", checkpoint=tiny)
    return {"tiny": tiny, "other": other, "index": folder / "index", "corpus": write_corpus(folder / "c.jsonl", [GOOD])}


def run(*arguments: str | Path, **options: Any) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments], **options)


def run_program(*arguments: str, code: str | None = None) -> subprocess.CompletedProcess[str]:
    start = ["-m", "hopgate.cli"] if code is None else ["-c", code]
    return subprocess.run([sys.executable, *start, *arguments], capture_output=True, text=True, check=False)


def refused(result: Result, *parts: str) -> None:
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    assert result.stderr.startswith("Error: ")
    assert result.stderr.count("\n") == 1 and len(result.stderr) < 1100, result.stderr
    for part in parts:
        assert part in result.stderr


# --- mistakes ---------------------------------------------------------------------------------------------------------


def test_corpus_is_missing(tmp_path: Path, places: dict[str, Path]) -> None:
    arguments = ("--out", tmp_path / "i", "--checkpoint", places["tiny"])
    refused(run("index", "build", tmp_path / "none.jsonl", *arguments), "none.jsonl", "no such corpus file")


@pytest.mark.parametrize(
    ("records", "parts"),
    [
        ([], ["holds no passages"]),
        ([GOOD, "{broken"], ["corpus.jsonl:2", "not JSON"]),
        ([GOOD, GOOD], ["corpus.jsonl:2", "'1' occurs a second time"]),
        ([GOOD, {"id": "2", "title": "T"}], ["corpus.jsonl:2", "no `text`"]),
        ([GOOD, {"id": "2", "text": " "}], ["corpus.jsonl:2", "no `text`"]),
    ],
)
def test_corpus_is_wrong(tmp_path: Path, places: dict[str, Path], records: list[Any], parts: list[str]) -> None:
    corpus = write_corpus(tmp_path / "corpus.jsonl", records)
    result = run("index", "build", corpus, "--out", tmp_path / "i", "--checkpoint", places["tiny"])
    refused(result, *parts)
    assert not (tmp_path / "i").exists()


def test_index_of_another_checkpoint(places: dict[str, Path]) -> None:
    refused(run("index", "search", places["index"], "who", "--checkpoint", places["other"]), "another checkpoint")
    refused(run("index", "search", places["index"], "who"), "local checkpoint 'tiny'")


def test_checkpoint_with_code(tmp_path: Path, places: dict[str, Path]) -> None:
    folder = Path(shutil.copytree(places["tiny"], tmp_path / "code"))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "auto_map": {"AutoModel": "evil.Model"}}))
    result = run("index", "build", places["corpus"], "--out", tmp_path / "i", "--checkpoint", folder)
    refused(result, "auto_map")


def test_checkpoint_with_corrupt_weights(tmp_path: Path, places: dict[str, Path]) -> None:
    folder = Path(shutil.copytree(places["tiny"], tmp_path / "corrupt"))
    (folder / "model.safetensors").write_bytes(b"\xff" * 1000)
    result = run("index", "build", places["corpus"], "--out", tmp_path / "i", "--checkpoint", folder)
    refused(result, "not a ColBERT checkpoint")


@pytest.mark.parametrize("program", [["ask", "--program", "direct", "Who?", "--lm"], ["lm", "check"]])
def test_corrupt_lm_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: list[str]) -> None:
    monkeypatch.setenv("HOPGATE_CACHE", str(tmp_path))
    weights = WEIGHTS["smollm2-135m"]
    folder = tmp_path / "weights" / weights.name
    folder.mkdir(parents=True)
    refused(run(*program, "embedded/smollm2-135m"), "hopgate lm fetch smollm2-135m")
    (folder / weights.files[0].name).write_bytes(b"GGUF partial")
    refused(run(*program, "embedded/smollm2-135m"), "12 bytes instead of", "hopgate lm fetch smollm2-135m")
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"no model")
    refused(run(*program, f"embedded/{broken}"), "not a GGUF file")


@pytest.mark.parametrize("model", ["nosuch", "embedded/nosuch", "embedded//nosuch/x.gguf", ""])
def test_unknown_model(places: dict[str, Path], model: str) -> None:
    local = ("--checkpoint", places["tiny"])
    if model:
        refused(run("ask", "Who?", "--index", places["index"], *local, "--lm", model), model.split("/")[-1])
        refused(run("lm", "check", model))
    refused(run("ask", "Who?", "--program", "direct", "--lm", model or "provider/"))


def test_unknown_weights() -> None:
    refused(run("lm", "fetch", "nosuch"), "unknown weights 'nosuch'", "minilm")


@pytest.mark.parametrize("question", ["", "  \n"])
def test_empty_question(places: dict[str, Path], question: str) -> None:
    refused(run("ask", question, "--index", places["index"]), "the question is empty")
    refused(run("ask", "-", "--index", places["index"], input=question), "the question is empty")
    refused(run("index", "search", places["index"], question), "the query is empty")


def test_k_is_zero(places: dict[str, Path]) -> None:
    refused(run("ask", "Who?", "--index", places["index"], "-k", "0"), "'-k'", "hopgate ask --help")
    refused(run("ask", "Who?", "--index", places["index"], "-k", "101"), "'-k'")
    refused(run("index", "search", places["index"], "Who?", "-k", "0"), "'-k'")


def test_long_question(places: dict[str, Path]) -> None:
    local = ("--checkpoint", places["tiny"])
    refused(run("ask", "x" * 100_000, "--index", places["index"], *local), "100,000 characters")
    refused(run("ask", "-", "--program", "direct", input="x" * 100_000), "100,000 characters")
    refused(run("index", "search", places["index"], "x" * 100_000, *local), "100,000 characters")


def test_question_that_is_not_utf8(places: dict[str, Path]) -> None:
    refused(run("ask", "-", "--index", places["index"], input=b"caf\xe9"), "not UTF-8")


@pytest.mark.parametrize("tau", ["0.5", "nan", "-inf"])
def test_tau_is_no_log_probability(places: dict[str, Path], tau: str) -> None:
    refused(run("ask", "Who?", "--index", places["index"], "--tau", tau), "'--tau'")


@pytest.mark.parametrize("program", ["active", "rag"])
def test_index_is_needed(tmp_path: Path, program: str) -> None:
    refused(run("ask", "Who?", "--program", program), "hopgate index build CORPUS --out DIR")
    refused(run("ask", "Who?", "--program", program, "--index", tmp_path / "none"), "no such index folder")
    refused(run("ask", "Who?", "--program", program, "--index", tmp_path), "manifest.json")


@pytest.mark.parametrize(
    "arguments", [["nosuch"], ["ask"], ["index", "build", "x"], ["ask", "Who?", "--program", "x"], ["--nosuch"]]
)
def test_wrong_arguments_are_one_line(arguments: list[str]) -> None:
    refused(run(*arguments), "--help")


# --- other ends -------------------------------------------------------------------------------------------------------


def failing(error: BaseException) -> Callable[..., Any]:
    def fail(*_: Any, **__: Any) -> Any:
        raise error

    return fail


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (FileNotFoundError(2, "No such file", "/some/file"), "Error: /some/file: No such file\n"),
        (OSError(28, "No space left on device"), "Error: No space left on device\n"),
        (dspy.LMAuthError("the key is wrong\n  To fix:\n  - another key"), "Error: the key is wrong\n"),
        (
            dspy.LMTransportError("failed to connect to 127.0.0.1:9"),
            "Error: failed to connect to 127.0.0.1:9; start the LM's server, or connect to the network\n",
        ),
    ],
)
def test_errors_of_files_and_lms(monkeypatch: pytest.MonkeyPatch, error: Exception, message: str) -> None:
    monkeypatch.setattr("hopgate.lms.lm_from_config", failing(error))
    result = run("ask", "Who?", "--program", "direct")
    refused(result)
    assert result.stderr == message
    debug = run("--debug", "ask", "Who?", "--program", "direct")
    assert debug.exit_code == 2 and "Traceback" in debug.stderr and debug.stderr.endswith(message)


def test_lm_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    from hopgate.core import ModelError

    for error in (ModelError("needs a restart"), RuntimeError("needs a restart\nof all")):
        lm = scripted_lm(failing(error))
        monkeypatch.setattr("hopgate.lms.lm_from_config", lambda table, lm=lm: lm)
        refused(run("ask", "Who?", "--program", "direct"), "needs a restart")


def test_bugs_keep_their_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hopgate.lms.lm_from_config", failing(KeyError("a bug")))
    result = run("ask", "Who?", "--program", "direct")
    assert isinstance(result.exception, KeyError)


def test_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hopgate.lms.lm_from_config", failing(KeyboardInterrupt()))
    result = run("ask", "Who?", "--program", "direct")
    assert (result.exit_code, result.stdout, result.stderr) == (130, "", "Interrupted.\n")


def test_reader_that_leaves() -> None:
    # The reading end is closed before anything is written.
    code = (
        "import os, sys, hopgate.cli; r, w = os.pipe(); os.close(r); os.dup2(w, 1); "
        "hopgate.cli.main(['lm', 'list', '--json'], prog_name='hopgate')"
    )
    done = run_program(code=code)
    assert (done.returncode, done.stderr) == (1, "")


def test_help_and_version() -> None:
    for arguments in ([], ["--help"], ["-h"]):
        result = run(*arguments)
        assert result.exit_code == 0
        assert all(name in result.stdout for name in ("ask", "index", "lm"))
    for group in ("index", "lm"):
        assert run(group).exit_code == run(group, "--help").exit_code == 0
    result = run("--version")
    assert result.exit_code == 0 and result.stdout.startswith("hopgate, version 0.")


# --- what is imported -------------------------------------------------------------------------------------------------

HEAVY = {"dspy", "torch", "transformers", "numpy", "rich", "litellm", "pydantic", "huggingface_hub"}


def imported(code: str) -> set[str]:
    report = "import atexit, sys; atexit.register(lambda: print(*sys.modules, file=sys.stderr)); "
    done = run_program(code=report + code)
    assert done.returncode == 0, done.stderr
    return {name.partition(".")[0] for name in done.stderr.split()}


@pytest.mark.parametrize(
    "arguments", [["--help"], ["ask", "--help"], ["compile", "--help"], ["index", "build", "--help"], ["lm"]]
)
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    code = f"from hopgate.cli import main; main({arguments!r}, prog_name='hopgate')"
    assert not imported(code) & HEAVY


def test_info_imports_no_torch(places: dict[str, Path]) -> None:
    code = f"from hopgate.cli import main; main(['index', 'info', {str(places['index'])!r}], prog_name='hopgate')"
    assert not imported(code) & {"torch", "dspy", "transformers"}


def test_list_imports_nothing_heavy() -> None:
    code = "from hopgate.cli import main; main(['lm', 'list', '--json'], prog_name='hopgate')"
    assert not imported(code) & HEAVY


def test_signatures_import_no_torch() -> None:
    assert "torch" not in imported("import hopgate.signatures")


def test_program_in_a_process() -> None:
    done = run_program("--help")
    assert done.returncode == 0 and "Usage: hopgate" in done.stdout and done.stderr == ""
    done = run_program("ask", "", "--program", "direct")
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "Error: the question is empty\n")
    done = run_program("ask", "Who?", "--program", "direct", "--lm", "foo/bar")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    assert done.stderr.startswith("Error: ") and "foo/bar" in done.stderr
