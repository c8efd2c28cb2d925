"""The client of an index server: results, retries, bad answers, the token, and original ColBERT servers."""

from __future__ import annotations

import asyncio
import copy
import json
import os
import pickle
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import dspy
import pytest
from test_index_server import CORPUS, Words

from hopgate.core import InputError, Passage, RemoteIndexError, RetrievalError
from hopgate.index.limits import ServerLimits
from hopgate.index.remote import RemoteIndex
from hopgate.index.remote_http import Call
from hopgate.index.server import IndexServer
from hopgate.programs import RetrieverHandle

Answer = tuple[int, dict[str, str], bytes]
SERVER = {"version": 1, "max_k": 9, "max_queries": 2, "max_results": 12, "max_passages": 2, "max_body": 9000}
INFO: Answer = (200, {}, json.dumps({"passages": 4, "server": SERVER}).encode())


@contextmanager
def scripted(answer: Callable[[str, Any], Answer]) -> Iterator[tuple[str, list[tuple[str, Any, dict[str, str]]]]]:
    """A server that answers what a function of path and body (or parameters) says; gives its url and its requests."""
    requests: list[tuple[str, Any, dict[str, str]]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            self.reply(parts.path, {name: values[0] for name, values in parse_qs(parts.query).items()})

        def do_POST(self) -> None:
            self.reply(self.path, json.loads(self.rfile.read(int(self.headers["content-length"]))))

        def reply(self, path: str, given: Any) -> None:
            requests.append((path, given, {name.lower(): value for name, value in self.headers.items()}))
            status, headers, body = answer(path, given)
            self.send_response(status)
            for name, value in {"content-length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", requests
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def original(path: str, given: Any) -> Answer:
    """What the original ColBERT server answers for a collection of 300 passages."""
    if path != "/api/search":
        return 404, {"content-type": "text/html"}, b"<!doctype html><title>404 Not Found</title>"
    count = min(int(given.get("k", 10)), 100)
    topk = [
        {"text": f"Title {n} | Text | {given['query']}", "pid": n, "rank": n + 1, "score": 30.5 - n, "prob": 0.1}
        for n in range(count)
    ]
    topk[-1]["text"] = "no title"
    return 200, {"content-type": "application/json"}, json.dumps({"query": given["query"], "topk": topk}).encode()


def small(body: Any) -> Answer:
    return 200, {}, json.dumps(body).encode()


@pytest.fixture
def words() -> Words:
    return Words()


@pytest.fixture
def server(words: Words) -> Iterator[IndexServer]:
    limits = ServerLimits(k=200, queries=3, results=200, passages=2, body=10_000)
    with IndexServer(words, port=0, limits=limits) as running:
        yield running


@pytest.fixture
def remote(server: IndexServer) -> Iterator[RemoteIndex]:
    with RemoteIndex(server.url, retries=0) as client:
        yield client


# --- results ----------------------------------------------------------------------------------------------------------


def test_gives_what_the_index_gives(remote: RemoteIndex, words: Words) -> None:
    queries = [f"the river {number}" for number in range(7)] + ["日本 🙂", "the river 0"]
    assert remote.search_many(queries, 4) == words.search_many(queries, 4)
    assert remote.search("who designed it", 2) == words.search("who designed it", 2)
    assert remote.search("the", 4, filter=["3", "a/1"]) == words.search("the", 4, filter=["3", "a/1"])
    many = [Passage(f"x{number}", "", f"the {number}", 3.0, {"n": number}) for number in range(5)] + CORPUS
    assert remote.rerank("the river 3", many) == words.rerank("the river 3", many)
    assert remote.passages(["3", "a/1", "2", "4", "3"]) == words.passages(["3", "a/1", "2", "4", "3"])
    assert len(remote) == 4 and bool(remote)
    info = remote.info()
    assert (info["passages"], info["engine"], info["url"]) == (4, "words", remote.url) and "path" not in info
    assert remote("the river") == [passage.long_text for passage in words.search("the river")]
    assert dspy.Tool(remote).name == "search_passages"


def test_k_may_exceed_100_and_the_passages(server: IndexServer, words: Words) -> None:
    words.corpus = [Passage(f"p{number:03}", "", f"the {number}") for number in range(180)]
    with RemoteIndex(server.url) as remote:
        assert len(remote.search("the", 150)) == 150
        assert remote.search("the", 10**12) == words.search("the", 180)
        words.corpus += [Passage(f"q{number:03}", "", f"the {number}") for number in range(180)]
        with pytest.raises(InputError, match="gives at most 200 passages for a query"):
            remote.search("the", 300)


def test_large_requests_are_sent_in_parts(remote: RemoteIndex, words: Words) -> None:
    queries = [f"{number} " + "x" * 4000 for number in range(5)]
    assert remote.search_many(queries, 2) == words.search_many(queries, 2)
    long = [Passage(f"{number}", "", "the " * 1000) for number in range(5)]
    assert remote.rerank("the", long) == words.rerank("the", long)
    with pytest.raises(InputError, match="refuses the request: a body may have at most 10,000 bytes"):
        remote.rerank("the", [Passage("1", "", "the " * 5000)])


def test_what_the_server_refuses(remote: RemoteIndex) -> None:
    with pytest.raises(InputError, match="no passage with id 'nope' in the index"):
        remote.passages(["nope"])
    for metadata in ({"x": object()}, {"x": float("nan")}):
        with pytest.raises(InputError, match="metadata"):
            remote.rerank("x", [Passage("1", "", "x", None, metadata)])
    with pytest.raises(
        InputError, match=r"a predicate cannot be sent to a server: give ids, or search where the index"
    ):
        remote.search("x", filter=lambda metadata: True)


def test_asynchronously(remote: RemoteIndex, words: Words) -> None:
    async def several() -> list[list[Passage]]:
        return await asyncio.gather(*(remote.asearch(f"the river {number}", 2) for number in range(6)))

    for _ in range(2):  # Another event loop is no problem.
        remote.clear_cache()
        assert asyncio.run(several()) == [words.search(f"the river {number}", 2) for number in range(6)]
    queries = [f"the {number}" for number in range(7)]
    assert asyncio.run(remote.asearch_many(queries, 2, filter=["4"])) == words.search_many(queries, 2, filter=["4"])
    with pytest.raises(InputError):
        asyncio.run(remote.asearch(""))


def test_inside_a_program(remote: RemoteIndex, words: Words) -> None:
    handle = RetrieverHandle(remote)
    assert list(handle.search("the river", 3)) == words.search("the river", 3)
    assert list(asyncio.run(handle.asearch("the Ile", 3))) == words.search("the Ile", 3)
    assert list(handle.rerank("the", CORPUS) or ()) == words.rerank("the", CORPUS)


# --- the cache, threads, copies and pickles ---------------------------------------------------------------------------


def test_keeps_results(server: IndexServer, words: Words) -> None:
    with RemoteIndex(server.url, cache_size=3) as remote:
        found = remote.search("the osk tower", 1)
        found[0].metadata["year"] = 0  # type: ignore
        found.clear()
        assert remote.search("the osk tower", 1)[0].metadata == {"year": 1871}
        assert words.searched == ["the osk tower"]
        remote.search("the osk tower", 2)
        remote.search("the osk tower", 1, filter=["4"])
        assert remote.search_many(["the osk tower", "new", "new"], 1)[0][0].id == "a/1"
        assert words.searched == ["the osk tower"] * 3 + ["new"]
        remote.search("the osk tower", 2)  # Was used least recently, so that it had to make room.
        assert words.searched[-1] == "the osk tower" and len(words.searched) == 5
        remote.clear_cache()
        remote.search("the osk tower", 2)
        assert len(words.searched) == 6
    with RemoteIndex(server.url, cache_size=0) as remote:
        assert remote.search("the osk tower", 2) == remote.search("the osk tower", 2)
        assert len(words.searched) == 8


def test_threads(server: IndexServer, words: Words) -> None:
    queries = [f"the river {number % 10}" for number in range(60)]
    with RemoteIndex(server.url, cache_size=4) as remote, ThreadPoolExecutor(8) as pool:
        assert list(pool.map(remote.search, queries)) == [words.search(query) for query in queries]


def test_copies_and_pickles(words: Words, monkeypatch: pytest.MonkeyPatch) -> None:
    with IndexServer(words, port=0, token="s3cret") as server:
        remote = RemoteIndex(server.url, token="s3cret", timeout=7, cache_size=0, retries=1)
        assert copy.copy(remote) is remote and copy.deepcopy([remote])[0] is remote
        expected = remote.search("the river")
        data = pickle.dumps(remote)
        assert b"s3cret" not in data and "s3cret" not in repr(remote) + repr(vars(remote))
        monkeypatch.setenv("HOPGATE_TOKEN", "s3cret")
        again = pickle.loads(data)
        assert again.search("the river") == expected and again._settings == remote._settings
        monkeypatch.delenv("HOPGATE_TOKEN")
        with pytest.raises(RemoteIndexError, match="HOPGATE_TOKEN") as caught:
            pickle.loads(data).search("the river")
        assert caught.value.status == 401
    # An object without a token does not get one.
    monkeypatch.setenv("HOPGATE_TOKEN", "s3cret")
    with scripted(original) as (url, requests):
        pickle.loads(pickle.dumps(RemoteIndex(url))).search("x")
        assert requests and not any("authorization" in headers for _, _, headers in requests)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no processes are forked here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_forked_processes_do_not_share_a_connection() -> None:
    def slow(path: str, given: Any) -> Answer:
        if path == "/info":
            return INFO
        time.sleep(0.1)
        return small({"results": [[{"id": query, "title": "", "text": "x", "score": 1}] for query in given["queries"]]})

    def wrong(remote: RemoteIndex, who: str) -> int:
        queries = [f"{who} {number}" for number in range(4)]
        return sum([passage.id for passage in remote.search(query, 1)] != [query] for query in queries)

    with scripted(slow) as (url, _), RemoteIndex(url, timeout=5, retries=0) as remote:
        assert wrong(remote, "before") == 0
        # Held while forking, as by other threads that are searching.
        with remote._lock, remote._http._lock:
            child = os.fork()
            if not child:
                outcome = 99
                try:
                    outcome = wrong(remote, "child")
                finally:
                    os._exit(outcome)
        assert wrong(remote, "parent") == 0
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_closing(server: IndexServer) -> None:
    with RemoteIndex(server.url) as remote:
        remote.search("the")
    remote.close()
    with pytest.raises(InputError, match="has been closed"):
        remote.search("another")
    with pytest.raises(InputError, match="has been closed"):
        asyncio.run(remote.asearch("another"))


# --- failures ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_tries_again(status: int) -> None:
    left = 2

    def answer(path: str, given: Any) -> Answer:
        nonlocal left
        if path == "/info":
            return INFO
        left -= 1
        return (status, {}, b"busy") if left >= 0 else small({"results": [[]]})

    with scripted(answer) as (url, requests):
        assert RemoteIndex(url, backoff=0.01).search("x") == []
        assert [path for path, _, _ in requests] == ["/info"] + ["/search_many"] * 3
        left = 2
        assert asyncio.run(RemoteIndex(url, backoff=0.01).asearch("x")) == []
        left = 9
        with pytest.raises(RemoteIndexError, match=f"answered with status {status}") as caught:
            RemoteIndex(url, retries=2, backoff=0.01).search("x")
        assert caught.value.status == status and left == 6


def test_heeds_retry_after_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("tenacity.nap.time.sleep", pauses.append)
    after = "2"

    def answer(path: str, given: Any) -> Answer:
        return INFO if path == "/info" else (503, {"retry-after": after}, b"")

    with scripted(answer) as (url, _):
        for value, least, most in (
            ("2", 2, 2.1),
            ("100000", 10, 10),
            ("9" * 500, 10, 10),
            ("Wed, 21 Oct 2015 07:28:00 GMT", 0, 0.1),
            ("Wed, 21 Oct 2115 07:28:00 GMT", 10, 10),
            ("soon", 0.05, 0.1),
        ):
            after = value
            pauses.clear()
            with pytest.raises(RemoteIndexError):
                RemoteIndex(url, retries=1, backoff=0.1).search("x")
            assert len(pauses) == 1 and least <= pauses[0] <= most


@pytest.mark.parametrize("status", [301, 307, 400, 401, 403, 404, 418, 500])
def test_does_not_try_again_what_will_not_pass(status: int) -> None:
    def answer(path: str, given: Any) -> Answer:
        if path == "/info":
            return INFO
        return status, {"location": "/elsewhere"}, json.dumps({"detail": "why\x1b[31m\nnot"}).encode()

    with scripted(answer) as (url, requests):
        with pytest.raises(
            RemoteIndexError, match=rf"{url}/search_many: answered with status {status} \(why"
        ) as caught:
            RemoteIndex(url, token="s3cret").search("x")
        assert caught.value.status == status and isinstance(caught.value, RetrievalError)
        assert str(caught.value).isprintable() and "s3cret" not in str(caught.value)
        # A redirect is not followed, least of all with the token.
        assert [path for path, _, _ in requests] == ["/info", "/search_many"]


def test_nobody_answers() -> None:
    with scripted(original) as (url, _):
        pass
    start = time.monotonic()
    with pytest.raises(RemoteIndexError, match=r"cannot be reached .*; is the server running\?") as caught:
        RemoteIndex(url, retries=2, backoff=0.01).search("x")
    assert caught.value.status is None and time.monotonic() - start < 5
    with pytest.raises(RemoteIndexError, match="cannot be reached"):
        asyncio.run(RemoteIndex(url, retries=1, backoff=0.01).asearch("x"))


def test_slow_and_endless_answers() -> None:
    release = threading.Event()

    def slow(path: str, given: Any) -> Answer:
        release.wait(5)
        return INFO

    with scripted(slow) as (url, requests):
        with pytest.raises(RemoteIndexError, match=r"no whole answer within 0\.1 seconds; give a larger `timeout`"):
            RemoteIndex(url, timeout=0.1, retries=1, backoff=0.01).search("x")
        assert len(requests) == 2
        release.set()
    big = json.dumps({"passages": 4, "more": "x" * 200_000}).encode()
    with scripted(lambda path, given: (200, {}, big)) as (url, _):
        remote = RemoteIndex(url, max_bytes=100_000)
        with pytest.raises(
            RemoteIndexError, match="more than 100,000 bytes; ask for less, or give a larger `max_bytes`"
        ):
            remote.info()
    with (
        scripted(lambda path, given: (200, {"content-encoding": "gzip"}, b"\x1f\x8b")) as (url, _),
        pytest.raises(RemoteIndexError, match="compressed"),
    ):
        RemoteIndex(url).info()


@contextmanager
def raw(head: bytes, dripped: bytes, pause: float) -> Iterator[str]:
    """A server that sends some bytes, and then others again and again with pauses, for as long as they are taken."""
    listening = socket.create_server(("127.0.0.1", 0))
    ended = threading.Event()

    def serve() -> None:
        while not ended.is_set():
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            with connection:
                try:
                    connection.recv(1 << 16)
                    connection.sendall(head)
                    while not ended.wait(pause):
                        connection.sendall(dripped)
                except OSError:
                    pass

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        ended.set()
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join()


STARTED = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize(
    ("head", "dripped", "pause"),
    [
        (b"", b"", 0.05),
        (STARTED + b"x: ", b"y", 0.05),
        (b"", b"HTTP/1.1 103 Early Hints\r\n\r\n", 0.05),
        (b"", b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" * 100, 0),
        (STARTED + b"transfer-encoding: chunked\r\n\r\n1;", b"x", 0.05),
        (STARTED + b"transfer-encoding: chunked\r\n\r\n", b"1\r\n \r\n", 0.05),
        (STARTED + b"transfer-encoding: chunked\r\n\r\n0\r\nx: ", b"y", 0.05),
        (STARTED + b"content-length: 100000\r\n\r\n", b" ", 0.05),
    ],
)
def test_a_server_cannot_put_the_end_off(head: bytes, dripped: bytes, pause: float) -> None:
    with raw(head, dripped, pause) as url:
        for call in (lambda remote: remote.search("x"), lambda remote: asyncio.run(remote.asearch("x"))):
            start = time.monotonic()
            with RemoteIndex(url, timeout=0.4, retries=0) as remote, pytest.raises(RemoteIndexError, match="no whole"):
                call(remote)
            assert 0.3 < time.monotonic() - start < 3


def test_a_server_that_does_not_read_cannot_put_the_end_off() -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    with listening, RemoteIndex(f"http://127.0.0.1:{listening.getsockname()[1]}", timeout=0.4, retries=0) as remote:
        start = time.monotonic()
        call = Call(f"{remote.url}/rerank", body={"x": "y" * 50_000_000})
        with pytest.raises(RemoteIndexError, match="no whole"):
            remote._http.send(call)
        assert time.monotonic() - start < 5


def test_a_deadline_is_for_one_attempt(server: IndexServer, words: Words) -> None:
    with RemoteIndex(server.url, timeout=0.6, retries=0) as remote:
        for number in range(4):
            time.sleep(0.2)
            assert remote.search(f"the river {number}") == words.search(f"the river {number}")


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = {"x": value}
    return value


GOOD = {"id": "1", "title": "T", "text": "x", "score": 1.5}


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        (b"<html>", "the answer is not JSON"),
        (b"[" * 100_000, "the answer is not JSON"),
        (b'{"results": [[{"id": "1", "title": "", "text": "\xff"}]]}', "the answer is not JSON"),
        (None, "has no `results`"),
        ({}, "has no `results`"),
        ({"results": {}}, "`results` is no list"),
        ({"results": []}, "`results` has 0 lists for 1 queries"),
        ({"results": [[], []]}, "`results` has 2 lists"),
        ({"results": [3]}, r"`results\[0\]` is no list"),
        ({"results": [[GOOD] * 3]}, r"`results\[0\]` has 3 passages, where 2 were asked for"),
        ({"results": [["x"]]}, r"`results\[0\]\[0\]` has no `id`"),
        ({"results": [[GOOD, {**GOOD, "id": 1}]]}, r"`results\[0\]\[1\]` has `id` that is no text"),
        ({"results": [[{**GOOD, "text": "\ud800"}]]}, r"`results\[0\]\[0\]` has `text` that is no text"),
        ({"results": [[{**GOOD, "title": None}]]}, "has `title` that is no text"),
        ({"results": [[{**GOOD, "metadata": 1}]]}, "has `metadata` that cannot be used: it must be a JSON object"),
        *(
            ({"results": [[{**GOOD, "metadata": value}]]}, "has `metadata` that cannot be used")
            for value in (nested(800), {"x": float("nan")}, {"x": [float("inf")]}, {"x": "\ud800"}, {"x": 1 << 64})
        ),
        ({"results": [[GOOD, {**GOOD, "id": "2", "score": None}]]}, r"`results\[0\]\[1\]` has no `score`"),
        ({"results": [[{"id": "1", "title": "", "text": "x"}]]}, r"`results\[0\]\[0\]` has no `score`"),
        (
            {"results": [[GOOD, {**GOOD, "id": "2", "score": 1.6}]]},
            r"`results\[0\]\[1\]` is better than the one before",
        ),
        ({"results": [[GOOD, GOOD]]}, r"`results\[0\]\[1\]` has the id '1' a second time"),
        *(({"results": [[{**GOOD, "score": s}]]}, "no finite number") for s in ("x", True, 10**400, float("nan"))),
    ],
)
def test_malformed_results(answer: Any, fault: str) -> None:
    body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
    with scripted(lambda path, given: INFO if path == "/info" else (200, {}, body)) as (url, _):
        remote = RemoteIndex(url)
        with pytest.raises(RemoteIndexError, match=f"{url}/search_many: .*{fault}"):
            remote.search("x", 2)


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        ([], "has no `passages`"),
        ({"passages": "4", "server": SERVER}, "`passages` is '4'"),
        ({"passages": -1, "server": SERVER}, "`passages` is -1"),
        ({"passages": 4}, "`server` is no object"),
        ({"passages": 4, "server": {**SERVER, "version": 2}}, "this client knows 1"),
        *(({"passages": 4, "server": {**SERVER, "max_k": v}}, "`server.max_k`") for v in (0, True, 2.5, None, 10**300)),
    ],
)
def test_malformed_info(answer: Any, fault: str) -> None:
    with scripted(lambda path, given: small(answer)) as (url, _):
        for call in (lambda: RemoteIndex(url).search("x"), lambda: len(RemoteIndex(url))):
            with pytest.raises(RemoteIndexError, match=f"{url}/info: malformed answer: .*{fault}"):
                call()


@pytest.mark.parametrize(
    "results",
    [
        None,
        [],
        [{"index": 0, "score": 1}],
        [{"index": 0, "score": 1}] * 2,
        [{"index": 0, "score": 1}, {"index": 2, "score": 1}],
        [{"index": 0, "score": 1}, {"index": True, "score": 1}],
        [{"index": 0, "score": 1}, {"index": 1, "score": None}],
        [{"index": 0, "score": 1}, 7],
    ],
)
def test_malformed_scores_and_passages(results: Any) -> None:
    answer: Any = {"results": results, "passages": [GOOD, {**GOOD, "id": "3"}]}
    with scripted(lambda path, given: INFO if path == "/info" else small(answer)) as (url, _):
        with pytest.raises(RemoteIndexError, match=f"{url}/rerank: malformed answer"):
            RemoteIndex(url).rerank("x", CORPUS[:2])
        with pytest.raises(RemoteIndexError, match=f"{url}/passages: malformed answer: `passages` are not those"):
            RemoteIndex(url).passages(["1", "2"])
        answer["passages"] = [{**GOOD, "metadata": nested(800)}]
        with pytest.raises(RemoteIndexError, match=f"{url}/passages: malformed answer: .*`metadata` that cannot be"):
            RemoteIndex(url).passages(["1"])


# --- original ColBERT servers -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["", "/", "/api/search"])
def test_an_original_server(ending: str) -> None:
    with scripted(original) as (url, requests):
        remote = RemoteIndex(url + ending)
        found = remote.search("who?&x=1", 3)
        assert found == [
            Passage("0", "Title 0", "Text | who?&x=1", 30.5),
            Passage("1", "Title 1", "Text | who?&x=1", 29.5),
            Passage("2", "", "no title", 28.5),
        ]
        assert [path for path, _, _ in requests] == ["/info", "/api/search"]
        assert requests[1][1] == {"query": "who?&x=1", "k": "3"}
        assert [len(one) for one in remote.search_many(["a", "b", "a"], 5)] == [5, 5, 5]
        assert len(requests) == 4 and len(remote.search("x", 100)) == 100
        assert len(asyncio.run(remote.asearch("y", 2))) == 2
        with pytest.raises(InputError, match="at most 100 passages"):
            remote.search("x", 101)
        for what, call in (
            ("filter", lambda: remote.search("x", filter=["1"])),
            ("rerank", lambda: remote.rerank("x", CORPUS)),
            ("look passages up", lambda: remote.passages(["1"])),
            ("say what it holds", lambda: len(remote)),
            ("say what it holds", remote.info),
        ):
            with pytest.raises(InputError, match=f"original ColBERT server, which cannot {what}; serve the index with"):
                call()
        with pytest.raises(InputError, match="does not fit into an address"):
            remote.search("🙂" * 9_000)
        assert RetrieverHandle(remote).search("z", 2)[0].title == "Title 0"


def test_protocols_that_are_said() -> None:
    with scripted(lambda path, given: original("/api/search", given)) as (url, requests):
        assert len(RemoteIndex(f"{url}/wiki17_abstracts", protocol="colbert").search("x", 2)) == 2
        assert len(RemoteIndex(url, protocol="colbert").search("x", 2)) == 2
        assert [path for path, _, _ in requests] == ["/wiki17_abstracts", "/api/search"]
    with scripted(original) as (url, _):
        with pytest.raises(RemoteIndexError) as caught:
            RemoteIndex(url, protocol="hopgate").search("x")
        assert caught.value.status == 404


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        ({}, "has no `topk`"),
        ({"topk": {}}, "`topk` is no list"),
        ({"topk": [{"text": "x", "score": 1}]}, r"`topk\[0\]` has no `pid`"),
        ({"topk": [{"text": "x", "score": 1, "pid": 1.5}]}, r"`topk\[0\]` has the pid 1.5"),
        ({"topk": [{"text": "x", "score": 1, "pid": 10**400}]}, "64 bits"),
        ({"topk": [{"text": 3, "score": 1, "pid": 1}]}, "has `text` that is no text"),
        ({"topk": [{"text": "x", "score": float("inf"), "pid": 1}]}, "no finite number"),
        ({"error": True, "message": "overloaded"}, "the server says that it failed: 'overloaded'"),
    ],
)
def test_malformed_answers_of_an_original_server(answer: Any, fault: str) -> None:
    with scripted(lambda path, given: small(answer)) as (url, _):
        remote = RemoteIndex(url, protocol="colbert")
        with pytest.raises(RemoteIndexError, match=f"{url}/api/search: .*{fault}"):
            remote.search("x")


# --- arguments --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        *(
            "",
            "127.0.0.1:8893",
            "ftp://x",
            "file:///etc/passwd",
            "http://",
            "http://x:port",
            "http://x:99999",
            "http://[",
        ),
        *("http://x/?q=1", "http://x/#y", "http://a b", "http://x/\n", "http://ü.example/\0", 3, None),
    ],
)
def test_bad_urls(url: Any) -> None:
    with pytest.raises(InputError, match="url"):
        RemoteIndex(url)


def test_bad_arguments() -> None:
    with pytest.raises(InputError, match="no user or password; give a `token`") as caught:
        RemoteIndex("http://user:s3cret@x")
    assert "s3cret" not in str(caught.value)
    for settings in (
        *({"timeout": value} for value in (0, -1, None, "3", True, float("nan"))),
        *({"retries": value} for value in (-1, 1.5, None)),
        *({"cache_size": value} for value in (-1, "x", True)),
        *({"backoff": -1.0}, {"max_bytes": 0}, {"protocol": "grpc"}),
    ):
        name = next(iter(settings))
        bad: Any = settings
        with pytest.raises(InputError, match=name):
            RemoteIndex("http://x", **bad)
    for token in ("", "s3cret x", "s3cret\r\nx: y", "s3cret\u00fc"):
        with pytest.raises(InputError, match="the token") as caught:
            RemoteIndex("http://x", token=token)
        assert "s3cret" not in str(caught.value)


def test_import_is_light() -> None:
    code = "import sys, hopgate.index.remote, hopgate.index.server, hopgate.cli.serve; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"torch", "transformers", "dspy", "fastapi", "httpx", "uvicorn", "tenacity", "cachetools", "pydantic"}
    assert not heavy & set(done.stdout.split())
