"""``hopgate index serve`` as a process: what it prints, and how it ends."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner, Result
from test_index_support import make_checkpoint, passages

from hopgate.cli import main
from hopgate.cli.errors import Program
from hopgate.cli.serve import serve
from hopgate.index import ColBERTIndex
from hopgate.lms.testing import scripted_lm

# The command by itself, without the group that it is registered in.
COMMAND = (
    "import sys; from hopgate.cli.errors import Program; from hopgate.cli.serve import serve\n"
    "program = Program('hopgate'); program.add_command(serve); program.main(sys.argv[1:])"
)
LINE = re.compile(r"Serving (\S+) \(20 passages\) on (http://127\.0\.0\.1:\d+); Ctrl\+C stops\.\n")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("index")
    ColBERTIndex.build(passages(20), folder / "index", checkpoint=make_checkpoint(folder / "tiny"))
    return folder


@contextmanager
def serving(folder: Path, *arguments: str, **environment: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The command running on a free port, and its url."""
    command = [sys.executable, "-c", COMMAND, "serve", str(folder / "index"), "--checkpoint", str(folder / "tiny")]
    process = subprocess.Popen(
        [*command, "--port", "0", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        match = LINE.fullmatch(line)
        assert match and match[1] == str(folder / "index"), line + process.stderr.read()
        yield process, match[2]
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_serves_until_it_is_told_to_stop(folder: Path, number: signal.Signals) -> None:
    with serving(folder) as (process, url):
        index = ColBERTIndex.open(folder / "index", checkpoint=folder / "tiny")
        with httpx.Client(base_url=url, trust_env=False, timeout=30) as client:
            answer = client.get("/api/search", params={"query": "who won the war", "k": 3}).json()
            found = [(one["pid"], one["score"]) for one in answer["topk"]]
            assert found == [(one.id, pytest.approx(one.score)) for one in index.search("who won the war", 3)]
            assert client.get("/api/search", params={"query": ""}).status_code == 422
            # A client that stays connected does not keep the server from ending.
            process.send_signal(number)
            out, err = process.communicate(timeout=20)
        assert (process.returncode, out, err) == (0, "", "")


def test_requests_under_way_are_finished(folder: Path) -> None:
    with serving(folder) as (process, url):
        answers: list[int] = []
        queries = [f"the {number} " + "king " * 500 for number in range(60)]

        def ask() -> None:
            body = {"queries": queries, "k": 3}
            answers.append(httpx.post(f"{url}/search_many", json=body, trust_env=False, timeout=60).status_code)

        thread = threading.Thread(target=ask)
        thread.start()
        thread.join(0.3)
        process.send_signal(signal.SIGTERM)
        thread.join()
        out, err = process.communicate(timeout=20)
        assert (answers, process.returncode, out, err) == ([200], 0, "", "")


def test_token(folder: Path, tmp_path: Path) -> None:
    secret = tmp_path / "token"
    secret.write_text("from-file\n")
    with serving(folder, "--token-file", str(secret), HOPGATE_TOKEN="from-environment") as (_, url):
        for token, status in (("from-file", 200), ("from-environment", 401)):
            headers = {"authorization": f"Bearer {token}"}
            assert httpx.get(f"{url}/info", headers=headers, trust_env=False).status_code == status
        assert httpx.get(f"{url}/healthz", trust_env=False).status_code == 200


def test_commands_send_the_token_of_the_environment(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = scripted_lm(lambda prompt: "Paris")
    monkeypatch.setattr("hopgate.lms.lm_from_config", lambda table: found)
    monkeypatch.setenv("NO_PROXY", "*")
    answers: list[Any] = []
    with serving(folder, HOPGATE_TOKEN="s3cret") as (_, url):
        commands = (
            ["index", "search", url, "who won the war", "--json"],
            ["index", "info", url, "--json"],
            ["ask", "Who won the war?", "--program", "rag", "--index", url, "--json"],
        )
        for command in commands:
            for token in ("", "another"):
                result = CliRunner(env={"HOPGATE_TOKEN": token}).invoke(main, command)
                assert (result.exit_code, result.stdout) == (2, "")
                assert "status 401" in result.stderr and "environment variable HOPGATE_TOKEN" in result.stderr
                assert result.stderr.count("\n") == 1
            result = CliRunner(env={"HOPGATE_TOKEN": "two words"}).invoke(main, command)
            assert result.exit_code == 2 and "the token in HOPGATE_TOKEN must be" in result.stderr
            result = CliRunner(env={"HOPGATE_TOKEN": "s3cret"}).invoke(main, command, catch_exceptions=False)
            assert (result.exit_code, result.stderr) == (0, "") and "s3cret" not in result.stdout
            answers.append(json.loads(result.stdout))
    searched, described, asked = answers
    index = ColBERTIndex.open(folder / "index", checkpoint=folder / "tiny")
    assert [p["id"] for p in searched["passages"]] == [p.id for p in index.search("who won the war", 5)]
    assert (described["url"], described["passages"]) == (url, 20) and asked["cost"]["retrievals"] == 1


def test_bad_requests_are_not_told_to_those_who_serve(folder: Path) -> None:
    upgrade = b"GET /info HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: %s\r\n"
    with serving(folder) as (process, url):
        host, port = url.removeprefix("http://").split(":")
        for data in (
            b"\0\0\r\n\r\n",
            b"GET / HTTP/1.1\r\n\r\n",
            b"GET /info HTTP/9.9\r\nhost: x\r\n\r\n",
            *(upgrade % protocol + b"\r\n" for protocol in (b"websocket", b"h2c")),
            upgrade % b"websocket"
            + b"sec-websocket-version: 13\r\nsec-websocket-key: eHh4eHh4eHh4eHh4eHh4eA==\r\n\r\n",
            b"POST /api/search HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9000000000\r\n\r\n",
            b"POST /api/search HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\n\r\nx",
        ):
            with socket.create_connection((host, int(port)), timeout=10) as connection:
                connection.sendall(data)
                connection.shutdown(socket.SHUT_WR)
                connection.recv(4096)
        assert httpx.get(f"{url}/healthz", trust_env=False).status_code == 200
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=20) == ("", "") and process.returncode == 0


def run(*arguments: str | Path, **environment: str) -> Result:
    program = Program("hopgate")
    program.add_command(serve)
    return CliRunner(env={"HOPGATE_TOKEN": "", **environment}).invoke(program, ["serve", *map(str, arguments)])


def test_errors_are_one_line(folder: Path, tmp_path: Path) -> None:
    index = (folder / "index", "--checkpoint", folder / "tiny")
    empty = tmp_path / "empty"
    empty.write_text("\n")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        for arguments, environment, message in (
            (
                (*index, "--port", port),
                {},
                f"port {port} of 127.0.0.1 is in use; choose another, or 0 for any free one",
            ),
            ((*index, "--host", "0.0.0.0"), {}, "set a token (--token-file FILE, or HOPGATE_TOKEN)"),
            ((*index, "--token-file", empty), {}, f"{empty}: the token is empty"),
            ((*index, "--token-file", tmp_path / "nowhere"), {}, "the token cannot be read"),
            (index, {"HOPGATE_TOKEN": "s3cret with space"}, "the token in HOPGATE_TOKEN must be"),
            ((*index, "--port", "70000"), {}, "70000"),
            ((*index, "--token", "x"), {}, "No such option"),
            ((tmp_path / "nothing",), {}, "nothing"),
        ):
            result = run(*arguments, **environment)
            assert result.exit_code == 2 and result.stdout == "", result.output
            assert result.stderr.startswith("Error: ") and message in result.stderr and result.stderr.count("\n") == 1
            assert "s3cret" not in result.stderr


def test_help_is_light() -> None:
    code = (
        "import sys; from hopgate.cli.serve import serve; serve.main(['--help'], standalone_mode=False)\n"
        "print(*({'dspy', 'torch', 'fastapi', 'uvicorn', 'httpx', 'pydantic'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "" and "Serve the index DIR over HTTP, until Ctrl+C." in done.stdout
