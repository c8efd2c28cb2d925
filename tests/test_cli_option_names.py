"""Messages of the library name arguments; on the command line they are options."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result
from test_index_support import make_checkpoint, passages, write_corpus

from hopgate.cli import main
from hopgate.cli.option_names import asked_command, with_options

BUILD = asked_command(main, ["index", "build"])


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def refused(result: Result, *parts: str) -> None:
    assert result.exit_code == 2 and result.stderr.startswith("Error: "), result.output
    for part in parts:
        assert part in result.stderr, result.stderr


@pytest.mark.parametrize("option", [one for one in BUILD.params if isinstance(one, click.Option)], ids=str)
def test_every_option_is_named_where_its_argument_is(option: click.Option) -> None:
    shown = max(option.opts, key=len)
    name = shown.removeprefix("--").replace("-", "_")
    if option.is_flag:
        assert with_options(f"do it with {name}=True.", BUILD) == f"do it with {shown}."
        for other in option.secondary_opts:
            assert with_options(f"do it with {name}=False.", BUILD) == f"do it with {other}."
    else:
        assert with_options(f"use {name}='a'; or {name}=\"a b\"", BUILD) == f"use {shown} a; or {shown} 'a b'"
    assert with_options(f"name it as `{name}` or not", BUILD) == f"name it with {shown} or not"
    assert with_options(f"{name} must be other", BUILD) == f"{shown} must be other"
    if "_" in name:
        assert with_options(f"that needs {name}, too", BUILD) == f"that needs {shown}, too"


@pytest.mark.parametrize(
    "message",
    [
        "corpus.jsonl:3: `text` must be a string, and `split` too; `checkpoint` is 'x'",
        "/tmp/text_field/engine: no such file",
        "/tmp/text_field.csv:2: no `text_field` in 'text_field'",
        "the format of the file: engine, split and text; k is missing",
        "the server says reengine='x' and my_engine='x'",
        "use without_confidence='search'",
    ],
)
def test_what_is_no_argument_stays_as_it_is(message: str) -> None:
    assert with_options(message, BUILD) == message


def test_each_command_has_its_own_options() -> None:
    search = asked_command(main, ["--debug", "index", "search", "index", "build", "--json"])
    assert search.name == "search"
    assert with_options("k must be positive", search) == "-k must be positive"
    assert with_options("k must be positive", BUILD) == "k must be positive"
    assert with_options("build it with hybrid=True", search, BUILD) == "build it with --hybrid"
    assert with_options("replace it with replace=True", BUILD) == "replace it with --force"


def test_errors_of_the_library_name_options(tmp_path: Path) -> None:
    tiny, index = make_checkpoint(tmp_path / "tiny"), tmp_path / "index"
    corpus = write_corpus(tmp_path / "c.jsonl", [passage.to_dict() for passage in passages(4)])
    other = write_corpus(tmp_path / "other.jsonl", [{"id": "1", "body": "x"}])
    build = ("--out", index, "--checkpoint", tiny)
    refused(run("index", "build", corpus, *build, "--engine", "plaid", "--nbits", "8"), "--nbits")
    refused(run("index", "build", other, *build), "say which field is the text: --text-field NAME")
    refused(run("index", "build", corpus, *build, "--overlap-words", "3"), "--overlap-words needs --passage-words")
    refused(run("index", "build", corpus, *build, "--text-field", ""), "--text-field must be the name of a field")
    assert run("index", "build", corpus, *build).exit_code == 0
    refused(run("index", "search", index, "king"), "name its folder with --checkpoint")


def test_an_index_is_replaced_if_that_is_said(tmp_path: Path) -> None:
    tiny, index = make_checkpoint(tmp_path / "tiny"), tmp_path / "index"
    corpus = write_corpus(tmp_path / "c.jsonl", [passage.to_dict() for passage in passages(4)])
    build = ("index", "build", corpus, "--out", index, "--checkpoint", tiny)
    assert run(*build).exit_code == 0
    assert run("index", "delete", index, "p1", "--checkpoint", tiny).exit_code == 0
    refused(run(*build), "was changed since it was built", "name another folder, or replace it with --force")
    assert "3 passages" in run("index", "verify", index).stderr
    result = run(*build, "--force")
    assert result.exit_code == 0 and "4 passages" in result.stderr
    assert "4 passages" in run("index", "verify", index).stderr


@pytest.mark.parametrize(
    ("name", "content", "parts"),
    [
        ("c.csv", "id;title;text\n1;a;b\n", ("'id;title;text'", "separated by `;`", "by commas")),
        ("c.csv", "id|text\n1|b\n", ("separated by `|`", "by commas")),
        ("c.csv", "id\ttext\n1\tb\n", ("separated by tabs", "read it with --format tsv")),
        ("c.tsv", "id,text\n1,b\n", ("separated by commas", "read it with --format csv")),
    ],
)
@pytest.mark.parametrize("option", [(), ("--text-field", "text"), ("--metadata", "title")])
def test_another_separator_than_the_format_has(
    tmp_path: Path, name: str, content: str, parts: tuple[str, ...], option: tuple[str, ...]
) -> None:
    (tmp_path / name).write_text(content)
    refused(run("index", "build", tmp_path / name, "--out", tmp_path / "index", *option), f"{name}:1: ", *parts)


def test_questions_with_another_separator(tmp_path: Path) -> None:
    (tmp_path / "q.csv").write_text("id;question;answers\n1;Who?;Ann\n")
    (tmp_path / "p.json").write_text('{"1": "Ann"}')
    refused(run("score", tmp_path / "p.json", "--gold", tmp_path / "q.csv"), "q.csv:1: ", "separated by `;`")
