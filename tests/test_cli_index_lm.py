"""``hopgate index`` and ``hopgate lm``: what they print and do."""

from __future__ import annotations

import hashlib
import json
import logging
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from test_index_support import make_checkpoint, passages, write_corpus

from hopgate.cli import main
from hopgate.core import IndexStoreError, Passage
from hopgate.core.known_weights import WEIGHTS, WeightFile, Weights
from hopgate.index import BuildEstimate, ColBERTIndex, chunks
from hopgate.lms.testing import Reply, ScriptedEngine, scripted_lm


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments], catch_exceptions=False)


# --- index ------------------------------------------------------------------------------------------------------------


def test_build_search_info(tmp_path: Path) -> None:
    tiny = make_checkpoint(tmp_path / "tiny")
    corpus = write_corpus(tmp_path / "corpus.jsonl", [passage.to_dict() for passage in passages(12)])
    index = tmp_path / "index"
    build = ("index", "build", corpus, "--out", index, "--checkpoint", tiny)
    result = run(*build, "--engine", "exact", "--nbits", "4")
    assert result.exit_code == 0 and result.stdout == ""
    assert re.fullmatch(
        r"12 passages: about \S+ kB on the disk\.\nBuilt \S+: 12 passages, \d+ vectors, \S+ kB, engine exact "
        r"\(asked for\), in [\d.]+ seconds, loading included\.\n",
        result.stderr,
    ), result.stderr
    result = run(*build, "--engine", "exact", "--nbits", "4")
    assert result.exit_code == 0 and result.stderr == f"{index} is already the index of this corpus.\n"

    result = run("index", "search", index, "the king", "-k", "3", "--checkpoint", tiny, "--json")
    found = json.loads(result.stdout)
    assert result.exit_code == 0 and result.stderr == "" and found["query"] == "the king"
    assert len(found["passages"]) == 3 and set(found["passages"][0]) == {"id", "title", "text", "score"}
    result = run("index", "search", index, "the king", "--checkpoint", tiny)
    assert result.exit_code == 0 and result.stderr == ""
    assert [line.split()[0] for line in result.stdout.splitlines()[1:] if line[0:1].strip()] == [
        "1",
        "2",
        "3",
        "4",
        "5",
    ]
    for passage in found["passages"]:
        assert passage["title"] in result.stdout and f"{passage['score']:.2f}" in result.stdout

    record = json.loads(run("index", "info", index, "--json").stdout)
    assert (record["passages"], record["engine"], record["checkpoint"]) == (12, "exact", "tiny")
    text = run("index", "info", index).stdout
    assert "passages" in text and "12" in text and record["corpus_fingerprint"] in text

    result = run("index", "verify", index)
    assert result.exit_code == 0 and "is whole: 12 passages" in result.stderr
    vectors = index / "vectors" / "00000.npy"
    vectors.write_bytes(vectors.read_bytes()[:-1] + b"?")
    result = run("index", "verify", index)
    assert result.exit_code == 2 and "00000.npy: does not have the checksum" in result.stderr


HOSTILE = "one\x1b[2J\x1b]0;title\x07\ntwo\r\x9b31m\u202ethree"


def test_what_files_say_cannot_move_the_cursor(tmp_path: Path) -> None:
    tiny, index = make_checkpoint(tmp_path / "tiny"), tmp_path / "index"
    records = [{"id": f"{n}{HOSTILE}", "title": HOSTILE, "text": f"{HOSTILE} the king", "x": HOSTILE} for n in range(3)]
    corpus = write_corpus(tmp_path / "corpus.jsonl", records)
    printed = [run("index", "build", corpus, "--out", index, "--checkpoint", tiny)]
    printed.append(run("index", "search", index, "the king", "--checkpoint", tiny))
    assert printed[1].stdout.count("\n") == 4  # One for each passage, and the names of the columns.
    printed.append(run("index", "search", index, "the king", "--checkpoint", tiny, "--json"))
    path = index / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["versions"] = {**manifest["versions"], HOSTILE: HOSTILE}
    manifest["checkpoint"] = manifest["engine_reason"] = HOSTILE
    path.write_text(json.dumps(manifest))
    for options in ((), ("--json",)):
        printed.append(run("index", "info", index, *options))
        assert printed[-1].exit_code in (0, 2)
    printed.append(run("index", "search", index, "the king", "--checkpoint", tiny))
    for result in printed:
        for text in (result.stdout, result.stderr):
            assert all(line.isprintable() for line in text.split("\n")), text


def test_lines_are_whole_where_nobody_looks(tmp_path: Path) -> None:
    tiny, index = make_checkpoint(tmp_path / "tiny"), tmp_path / "index"
    title = "A title of many words " * 20
    records = [{"id": f"{n}", "title": title, "text": "the king of the sea " * 20} for n in range(3)]
    run("index", "build", write_corpus(tmp_path / "c.jsonl", records), "--out", index, "--checkpoint", tiny)
    lines = run("index", "search", index, "the king", "--checkpoint", tiny).stdout.splitlines()
    assert len(lines) == 4 and all(title.strip() in line for line in lines[1:])


def test_a_build_that_fails_ends_with_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = make_checkpoint(tmp_path / "tiny")
    corpus = write_corpus(tmp_path / "corpus.jsonl", [passage.to_dict() for passage in passages(12)])

    def build(source: Any, folder: Any, *, on_progress: Any, **named: Any) -> Any:
        on_progress(5, 12)
        raise IndexStoreError("the disk is full")

    monkeypatch.setattr("hopgate.index.ColBERTIndex.build", build)
    result = run("index", "build", corpus, "--out", tmp_path / "index", "--checkpoint", tiny)
    assert (result.exit_code, result.stdout, result.stderr) == (2, "", "Error: the disk is full\n")


def test_progress_is_shown_on_terminals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny, index = make_checkpoint(tmp_path / "tiny"), tmp_path / "index"
    corpus = write_corpus(tmp_path / "corpus.jsonl", [passage.to_dict() for passage in passages(12)])
    monkeypatch.setenv("FORCE_COLOR", "1")  # by which rich takes any stream for a terminal
    shown = run("index", "build", corpus, "--out", index, "--checkpoint", tiny).stderr
    assert "12/12" in shown and "passages/s" in shown
    monkeypatch.delenv("FORCE_COLOR")
    told = run("index", "build", corpus, "--out", tmp_path / "other", "--checkpoint", tiny).stderr
    assert "12/12" not in told and all(line.isprintable() for line in told.splitlines())


def test_one_passage_is_no_passages(tmp_path: Path) -> None:
    tiny, index = make_checkpoint(tmp_path / "tiny"), tmp_path / "index"
    one, two, three = ([passage.to_dict()] for passage in passages(3))
    local = ("--checkpoint", tiny)
    told = [run("index", "build", write_corpus(tmp_path / "1.jsonl", one), "--out", index, *local)]
    told.append(run("index", "verify", index))
    told.append(run("index", "add", index, write_corpus(tmp_path / "2.jsonl", two), *local))
    told.append(run("index", "delete", index, "p1", *local))
    assert all(result.exit_code == 0 for result in told)
    whole = "".join(result.stderr for result in told)
    assert whole.count("1 passage") == 5 and "1 passages" not in whole  # the estimate and four notes
    told = [run("index", "add", index, write_corpus(tmp_path / "3.jsonl", [*two, *three]), *local)]
    assert told[0].stderr == f"Added 2 passages to {index}, which holds 3 now.\n"


@pytest.mark.parametrize(("seconds", "told"), [(None, ""), (1.0, ""), (9.9, ""), (12.4, "12 seconds"), (7200, "2.0 h")])
def test_short_encoding_is_not_announced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float | None, told: str
) -> None:
    corpus = write_corpus(tmp_path / "corpus.jsonl", [passage.to_dict() for passage in passages(12)])

    def build(source: Any, folder: Any, *, on_estimate: Any, **named: Any) -> Any:
        on_estimate(BuildEstimate(12, 100, 1000, 10**9, seconds))
        raise IndexStoreError("enough")

    monkeypatch.setattr("hopgate.index.ColBERTIndex.build", build)
    lines = run("index", "build", corpus, "--out", tmp_path / "index").stderr.splitlines()
    assert lines[0].startswith("12 passages: about 1 kB on the disk") and lines[1] == "Error: enough"
    assert (f", encoding for about {told}" if told else "disk.") in lines[0] and ("encoding" in lines[0]) is bool(told)


@pytest.mark.parametrize(("done", "kept"), [(None, "nothing"), (7, "0"), (9, "8"), (12, "12")])
@pytest.mark.parametrize("command", ["build", "add"])
def test_interrupted_work_on_an_index_says_what_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, done: int | None, kept: str, command: str
) -> None:
    tiny, index = make_checkpoint(tmp_path / "tiny"), tmp_path / "index"
    corpus = write_corpus(tmp_path / "corpus.jsonl", [passage.to_dict() for passage in passages(12)])
    ColBERTIndex.build([Passage("x", "", "who")], index, checkpoint=tiny)
    monkeypatch.setattr(chunks, "CHUNK", 8)

    def stopped(*_: Any, on_progress: Any, **named: Any) -> Any:
        if done is not None:
            on_progress(done, 12)
        raise KeyboardInterrupt

    monkeypatch.setattr(f"hopgate.index.ColBERTIndex.{command}", stopped)
    arguments = (corpus, "--out", index) if command == "build" else (index, corpus)
    result = run("index", command, *arguments, "--checkpoint", tiny)
    count = "nothing was done in this call" if done is None else f"{kept} of 12 passages are done"
    assert (result.exit_code, result.stdout) == (130, "")
    assert result.stderr == f"Interrupted: {count}; what is done is kept, and the same command goes on from there.\n"


def test_another_corpus_does_not_drop_an_interrupted_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny, index = make_checkpoint(tmp_path / "tiny"), tmp_path / "index"
    large = write_corpus(tmp_path / "large.jsonl", [passage.to_dict() for passage in passages(12)])
    small = write_corpus(tmp_path / "small.jsonl", [passage.to_dict() for passage in passages(3)])
    monkeypatch.setattr(chunks, "CHUNK", 8)
    with monkeypatch.context() as patch:
        patch.setattr("hopgate.index.build.finish", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        result = run("index", "build", large, "--out", index, "--checkpoint", tiny)
        assert result.exit_code == 130 and "12 of 12 passages are done" in result.stderr
    result = run("index", "build", small, "--out", index, "--checkpoint", tiny)
    assert result.exit_code == 2 and "which would be lost" in result.stderr and "drop it with --force" in result.stderr
    with monkeypatch.context() as patch:
        patch.setattr(chunks, "_write_chunk", lambda *_: pytest.fail("encoded again"))
        assert run("index", "build", large, "--out", index, "--checkpoint", tiny).exit_code == 0
    assert run("index", "build", small, "--out", index, "--checkpoint", tiny, "--force").exit_code == 0


@pytest.mark.parametrize("command", ["search", "info", "verify", "add", "delete", "compact", "serve", "build"])
def test_addresses_where_folders_are_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    monkeypatch.chdir(tmp_path)
    corpus = write_corpus(tmp_path / "corpus.jsonl", [passage.to_dict() for passage in passages(3)])
    others = {"search": ["who"], "add": [corpus], "delete": ["p1"], "build": ["--out", "ftp://host/ix"]}
    result = run("index", command, corpus if command == "build" else "ftp://host/ix", *others.get(command, []))
    assert result.exit_code == 2 and result.stderr.count("\n") == 1
    assert "ftp://host/ix: is an address" in result.stderr and "http://" in result.stderr


# --- lm list and fetch ------------------------------------------------------------------------------------------------


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Weights of a few bytes and an empty cache; returns the file that they are."""
    monkeypatch.setenv("HOPGATE_CACHE", str(tmp_path / "cache"))
    source = tmp_path / "small.gguf"
    source.write_bytes(b"GGUF and more")
    file = WeightFile("small.gguf", source.stat().st_size, hashlib.sha256(source.read_bytes()).hexdigest())
    monkeypatch.setitem(WEIGHTS, "small", Weights("small", "lm", "for tests", "MIT", (file,), hub_repo="o/small"))
    return source


def listed() -> dict[str, Any]:
    return {row["name"]: row for row in json.loads(run("lm", "list", "--json").stdout)}


def test_list_and_fetch_from_a_path(small: Path) -> None:
    before = listed()
    assert set(before) == set(WEIGHTS)
    assert not before["small"]["fetched"] and before["small"]["model"] == "embedded/small"
    assert before["minilm"]["kind"] == "encoder" and before["minilm"]["model"] is None
    result = run("lm", "fetch", "embedded/small", "--from", small)
    assert result.exit_code == 0 and result.stdout == "" and "small is complete and checked: " in result.stderr
    assert listed()["small"]["fetched"]
    assert "already in" in run("lm", "fetch", "small").stderr
    text = run("lm", "list").stdout
    for part in ("small", "encoder", "MIT", "1.12 GB", "13 bytes", "yes", "no"):
        assert part in text


def test_fetch_says_how_much_and_shows_progress(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def from_hub(repo: str, files: list[WeightFile], staging: Path, on_progress: Any) -> None:
        for file in files:
            (staging / file.name).write_bytes(small.read_bytes())
            on_progress(file.size, file.size)

    monkeypatch.setattr("hopgate.core.weights.fetch_from_hub", from_hub)
    result = run("lm", "fetch", "small")
    assert result.exit_code == 0 and result.stdout == ""
    first, *between, last = result.stderr.strip().splitlines()
    assert first == "Downloading 13 bytes for small from the model hub."
    assert any("13/13 bytes" in line for line in between)
    assert last.startswith("small is complete and checked: ")


def test_fetch_that_fails(small: Path, tmp_path: Path) -> None:
    small.write_bytes(b"GGUF and less")
    result = run("lm", "fetch", "small", "--from", small)
    assert result.exit_code == 2 and "not the expected file" in result.stderr and "Traceback" not in result.stderr
    assert not listed()["small"]["fetched"]
    for source in (tmp_path / "none", "carriers"):
        result = run("lm", "fetch", "small", "--from", source)
        assert result.exit_code == 2 and result.stderr.splitlines()[-1].startswith("Error: ")


# --- lm check ---------------------------------------------------------------------------------------------------------


def check(monkeypatch: pytest.MonkeyPatch, reply: Reply, *options: str) -> tuple[Result, list[Any]]:
    tables: list[Any] = []

    def declared(table: Any) -> Any:
        tables.append(table)
        return scripted_lm(lambda prompt: reply)

    monkeypatch.setattr("hopgate.lms.lm_from_config", declared)
    return run("lm", "check", *options), tables


def test_check(monkeypatch: pytest.MonkeyPatch) -> None:
    result, tables = check(monkeypatch, Reply("Paris it is", -0.25))
    assert result.exit_code == 0 and result.stderr == ""
    assert tables == [{"model": "embedded/qwen2.5-coder-1.5b", "cache": False}]
    for part in ("scripted/lm", "log-probabilities", "yes", "Paris it is (confidence -0.25 nats)", "tokens/s"):
        assert part in result.stdout
    result, tables = check(monkeypatch, Reply("Paris"), "openai/x", "--json")
    record = json.loads(result.stdout)
    assert result.exit_code == 0 and tables[0]["model"] == "openai/x"
    assert record["log_probabilities"] and record["confidence"] == pytest.approx(-0.1)
    assert record["prompt_tokens_per_second"] > 0


def test_check_does_not_warn_of_what_it_cuts_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    complete = ScriptedEngine.complete
    monkeypatch.setattr(
        ScriptedEngine, "complete", lambda self, request: replace(complete(self, request), finish_reason="length")
    )
    told: list[str] = []
    logger = logging.getLogger("dspy.clients.lm")
    handler = logging.Handler()
    handler.emit = lambda record: told.append(record.getMessage())
    logger.addHandler(handler)
    try:
        result, _ = check(monkeypatch, Reply("Paris it is", -0.25))
        assert result.exit_code == 0 and result.stderr == "" and told == []
        scripted_lm(lambda prompt: "Paris")("Where?")  # DSPy does warn, and does so again
        assert len(told) == 1 and "truncated" in told[0]
    finally:
        logger.removeHandler(handler)


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (Reply("Paris", None), "no log-probabilities"),
        (Reply("Paris it is", 0.0), "cannot be used (all are 0)"),
        (Reply("Paris", -9999.0), "cannot be used"),
    ],
)
def test_check_without_log_probabilities(monkeypatch: pytest.MonkeyPatch, reply: Reply, reason: str) -> None:
    result, _ = check(monkeypatch, reply)
    assert result.exit_code == 2 and "usable for the gate  no" in result.stdout
    assert result.stderr.startswith("Error: ") and reason in result.stderr and result.stderr.count("\n") == 1
    result, _ = check(monkeypatch, reply, "--json")
    assert result.exit_code == 2 and json.loads(result.stdout)["log_probabilities"] is False
