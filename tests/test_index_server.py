"""The index server: what it answers, what it refuses, and how it ends."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import dspy
import httpx
import pytest

from hopgate.core import IndexStoreError, InputError, MissingDependencyError, Passage
from hopgate.index import Filter, PassageIndex
from hopgate.index.interface import check_k, check_passages, check_queries, check_query, checked_filter, checked_ids
from hopgate.index.limits import ServerLimits
from hopgate.index.server import IndexServer

CORPUS = [
    Passage("a/1", "Osk Tower", "The Osk Tower was designed by Mira Dol.", None, {"year": 1871}),
    Passage("2", "", "A text without a title | but with a bar."),
    Passage("3", "Bar | title", "日本 🙂 \u2028 text\nwith lines"),
    Passage("4", "Ile", "The river Ile flows north."),
]


class Words(PassageIndex):
    """Counts the words that a query and a passage share; without an encoder, and slow or broken if told to be."""

    def __init__(self, corpus: Sequence[Passage] = CORPUS) -> None:
        super().__init__()
        self.corpus = sorted(corpus, key=lambda passage: passage.id)
        self.gate: threading.Event | None = None
        self.failure: Exception | None = None
        self.entered = threading.Semaphore(0)
        self.running, self.most_running = 0, 0
        self.searched: list[str] = []
        self._lock = threading.Lock()

    def search_many(
        self,
        queries: Sequence[str],
        k: int = 3,
        *,
        filter: Filter | None = None,  # noqa: A002
    ) -> list[list[Passage]]:
        check_queries(queries)
        check_k(k)
        chosen = None if filter is None else checked_filter(filter)
        with self._lock:
            self.running += 1
            self.most_running = max(self.most_running, self.running)
            self.searched += queries
        self.entered.release()
        try:
            if self.gate is not None:
                self.gate.wait(20)
            if self.failure is not None:
                raise self.failure
            allowed = chosen if callable(chosen) else None
            pool = [p for p in self.corpus if chosen is None or (allowed(p.metadata) if allowed else p.id in chosen)]
            return [self.rerank(query, pool)[:k] for query in queries]
        finally:
            with self._lock:
                self.running -= 1

    def rerank(self, query: str, passages: Sequence[Passage]) -> list[Passage]:
        check_query(query)
        check_passages(passages)
        words = set(query.lower().split())
        scored = [p.with_score(float(len(words & set(p.long_text.lower().split())))) for p in passages]
        return sorted(scored, key=lambda p: -(p.score or 0))

    def passages(self, ids: Iterable[str]) -> list[Passage]:
        known = {passage.id: passage for passage in self.corpus}
        for one in (wanted := checked_ids(ids)):
            if one not in known:
                raise InputError(f"no passage with id {one!r} in /secret/folder")
        return [known[one] for one in wanted]

    def info(self) -> dict[str, Any]:
        return {"path": "/secret/folder", "passages": len(self.corpus), "engine": "words"}

    def __len__(self) -> int:
        return len(self.corpus)

    def __copy__(self) -> Words:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Words:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return Words, (self.corpus,)


@pytest.fixture
def words() -> Words:
    return Words()


@pytest.fixture
def server(words: Words) -> Iterator[IndexServer]:
    with IndexServer(words, port=0, limits=ServerLimits(k=150, queries=5, results=300, passages=4, ids=6)) as running:
        yield running


@pytest.fixture
def http(server: IndexServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, trust_env=False, timeout=20) as client:
        yield client


def detail(response: httpx.Response, status: int) -> str:
    """The reason that a refusal gives."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    assert set(response.json()) == {"detail"} and response.json()["detail"]
    return response.json()["detail"]


# --- what it answers --------------------------------------------------------------------------------------------------


def test_search_speaks_the_protocol_of_the_original_server(http: httpx.Client) -> None:
    query = "who designed the Osk Tower"
    response = http.get("/api/search", params={"query": query, "k": 2})
    assert response.status_code == 200 and response.headers["content-type"] == "application/json"
    answer = response.json()
    assert answer["query"] == query and len(answer["topk"]) == 2
    first, second = answer["topk"]
    text = "Osk Tower | The Osk Tower was designed by Mira Dol."
    assert (first["text"], first["long_text"], first["pid"], first["rank"], first["score"]) == (text, text, "a/1", 1, 4)
    assert (first["id"], first["title"], first["body"]) == ("a/1", "Osk Tower", CORPUS[0].text)
    assert first["metadata"] == {"year": 1871} and second["metadata"] == {} and second["rank"] == 2
    assert first["prob"] + second["prob"] == pytest.approx(1) and first["prob"] > 0.9
    assert http.post("/api/search", json={"query": query, "k": 2}).json() == answer
    assert len(http.get("/api/search", params={"query": query}).json()["topk"]) == 4
    only = http.post("/api/search", json={"query": query, "ids": ["4", "unknown"]}).json()["topk"]
    assert [item["pid"] for item in only] == ["4"] and only[0]["prob"] == 1
    assert http.post("/api/search", json={"query": query, "ids": []}).json()["topk"] == []


@pytest.mark.parametrize("post", [False, True])
@pytest.mark.parametrize("path", ["/api/search", "", "/"])
def test_the_client_of_dspy_works(server: IndexServer, post: bool, path: str) -> None:
    client = dspy.ColBERTv2(url=server.url + path, post_requests=post)
    found: Any = client("the river 日本", k=3)
    assert [item.pid for item in found] == ["4", "3", "a/1"]
    assert found[0].long_text == "Ile | The river Ile flows north." and found[1].text == CORPUS[2].long_text
    assert client("the river Ile", k=1, simplify=True) == ["Ile | The river Ile flows north."]


def test_the_other_paths(http: httpx.Client, words: Words) -> None:
    queries = ["the river", "who designed it"]
    answer = http.post("/search_many", json={"queries": queries, "k": 2}).json()
    expected = words.search_many(queries, 2)
    assert [[Passage.from_dict(one) for one in found] for found in answer["results"]] == expected
    assert http.post("/search_many", json={"queries": [], "k": 2}).json() == {"results": []}

    twice = [CORPUS[3].to_dict(), {"id": "x", "text": "the"}, CORPUS[3].to_dict(), CORPUS[0].to_dict()]
    answer = http.post("/rerank", json={"query": "the Ile", "passages": twice}).json()
    assert [one["index"] for one in answer["results"]] == [0, 2, 1, 3]
    assert [one["score"] for one in answer["results"]] == [2, 2, 1, 1]
    assert http.post("/rerank", json={"query": "x", "passages": []}).json() == {"results": []}

    answer = http.post("/passages", json={"ids": ["3", "a/1", "3"]}).json()
    assert [Passage.from_dict(one) for one in answer["passages"]] == [CORPUS[2], CORPUS[0], CORPUS[2]]
    unknown = detail(http.post("/passages", json={"ids": ["3", "nope"]}), 422)
    assert "'nope'" in unknown and "secret" not in unknown

    info = http.get("/info").json()
    limits = {"version": 1, "max_k": 150, "max_queries": 5, "max_results": 300, "max_passages": 4, "max_body": 8 << 20}
    assert info == {"passages": 4, "engine": "words", "server": limits}
    assert http.get("/healthz").json() == {"status": "ok"}


def test_describes_itself_and_loads_nothing_from_elsewhere(http: httpx.Client) -> None:
    described = http.get("/openapi.json").json()
    assert set(described["paths"]) == {"/api/search", "/search_many", "/rerank", "/passages", "/info", "/healthz"}
    assert set(described["paths"]["/api/search"]) == {"get", "post"}
    assert "long_text" in described["components"]["schemas"]["TopPassage"]["properties"]
    for path in ("/docs", "/redoc", "/", "/?k=3"):
        detail(http.get(path), 404)
    response = http.get("/healthz", headers={"origin": "http://elsewhere.example"})
    assert not [name for name in response.headers if name.startswith("access-control")]


# --- what it refuses --------------------------------------------------------------------------------------------------

BAD_FIELDS: list[tuple[str, Any]] = [
    *(("query", value) for value in ("", " \n", None, 3, True, ["x"], {"x": 1}, "x" * 10_001, "\ud800 x")),
    *(("k", value) for value in (0, -1, 1e9, 10**9, 10**30, 151, True, "5", 2.5, None, [1], float("nan"))),
    *(("ids", value) for value in ("x", 3, [3], [None], {"a": 1}, ["x"] * 7)),
    ("\ud800 unknown", 1),
    ("filter", "x"),
]


@pytest.mark.parametrize(("field", "value"), BAD_FIELDS)
def test_bad_fields(http: httpx.Client, field: str, value: Any) -> None:
    headers = {"content-type": "application/json"}
    bad = json.dumps({"query": "who", "k": 2, field: value})
    detail(http.post("/api/search", content=bad, headers=headers), 422)
    bad = json.dumps(
        {"queries": ["who", value if field == "query" else "x"], **({} if field == "query" else {field: value})}
    )
    detail(http.post("/search_many", content=bad, headers=headers), 422)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/search_many", {"queries": "who"}),
        ("/search_many", {"queries": ["who"] * 6}),
        ("/search_many", {"queries": ["who"] * 3, "k": 101}),
        ("/search_many", {"k": 2}),
        ("/rerank", {"query": "who", "passages": [CORPUS[3].to_dict()] * 5}),
        ("/rerank", {"query": "who", "passages": [{"id": 1, "text": "x"}]}),
        ("/rerank", {"query": "who", "passages": [{"id": "1", "text": "\ud800"}]}),
        ("/rerank", {"query": "who", "passages": [{"id": "1", "text": "x", "metadata": [1]}]}),
        ("/rerank", {"query": "", "passages": []}),
        ("/rerank", {"query": "who", "passages": ["x"]}),
        ("/passages", {"ids": ["2"] * 5}),
        ("/passages", {"ids": "2"}),
        ("/passages", {}),
        ("/passages", []),
    ],
)
def test_bad_requests(http: httpx.Client, path: str, body: Any) -> None:
    content = json.dumps(body)
    detail(http.post(path, content=content, headers={"content-type": "application/json"}), 422)


MANY = 300_000
WRONG: list[tuple[str, Any]] = [
    ("/api/search", {"query": "who", "ids": [1] * MANY}),
    ("/api/search", {"query": "who", "ids": ["1"] * 6 + [[]] * MANY}),
    ("/api/search", {"query": "who", **{f"x{number}": 1 for number in range(MANY)}}),
    ("/search_many", {"queries": [1] * MANY}),
    ("/rerank", {"query": "who", "passages": [{}] * MANY}),
    ("/rerank", {"query": "who", "passages": [{"id": "1", "text": "x", **dict.fromkeys(map(str, range(MANY)))}]}),
    ("/passages", {"ids": [None] * MANY}),
]
TOO_MANY: list[tuple[str, Any]] = [
    ("/search_many", {"queries": ["who"] * MANY}),
    ("/rerank", {"query": "who", "passages": [{"id": "1", "text": "x"}] * MANY}),
    ("/passages", {"ids": ["1"] * MANY}),
]


@pytest.mark.parametrize(
    ("path", "body", "most"), [*((*one, 10**6) for one in WRONG), *((*one, 100) for one in WRONG + TOO_MANY)]
)
def test_many_faults_at_once_do_not_hold_up_others(words: Words, path: str, body: Any, most: int) -> None:
    limits = ServerLimits(queries=most, passages=most, ids=most)
    with IndexServer(words, port=0, limits=limits) as server, ThreadPoolExecutor(1) as pool:
        named: Any = {"content": json.dumps(body), "headers": {"content-type": "application/json"}}
        refused = pool.submit(httpx.post, server.url + path, **named, trust_env=False, timeout=60)
        longest, began = 0.0, time.monotonic()
        with httpx.Client(base_url=server.url, trust_env=False, timeout=60) as http:
            while not refused.done():
                start = time.monotonic()
                assert http.get("/healthz").status_code == 200
                longest = max(longest, time.monotonic() - start)
        assert len(detail(refused.result(), 422)) < 300
        # What is left is the time of the JSON parser; on a busy machine, a part of the whole.
        assert longest < max(2.0, (time.monotonic() - began) / 2)


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"", "application/json"),
        (b"{", "application/json"),
        (b'{"query": "who"} x', "application/json"),
        (b"\xff\xfe", "application/json"),
        (b'{"query": "\xff"}', "application/json"),
        (b"[" * 100_000, "application/json"),
        (b'{"query":' + b'{"a":' * 50_000 + b"1" + b"}" * 50_001, "application/json"),
        (b'{"query": "who", "k": ' + b"9" * 5_000 + b"}", "application/json"),
        (b"null", "application/json"),
        (b'"who"', "application/json"),
        (b'{"query": "who"}', "text/plain"),
        (b"query=who", "application/x-www-form-urlencoded"),
        (b'{"query": "who"}', "application/json; charset=\xff"),
        (b'--x\r\ncontent-disposition: form-data; name="query"\r\n\r\nwho\r\n--x--', "multipart/form-data; boundary=x"),
    ],
)
def test_bad_bodies(http: httpx.Client, content: bytes, kind: str) -> None:
    for path in ("/api/search", "/search_many", "/rerank", "/passages"):
        response = http.post(path, content=content, headers=[(b"content-type", kind.encode("latin-1"))])
        if kind.startswith("application/json;") and path == "/api/search":
            assert response.status_code in (200, 400, 422)
        else:
            assert detail(response, response.status_code) and response.status_code in (400, 422)


@pytest.mark.parametrize(
    "query",
    [
        "",
        "k=2",
        "query=",
        "query=%20",
        "query=who&k=",
        *(f"query=who&k={k}" for k in ("0", "-1", "1e9", "2.5", "true", "x", "9" * 40, "9" * 5000, "151", "%00")),
        "query=" + "x" * 10_001,
    ],
)
def test_bad_urls(http: httpx.Client, query: str) -> None:
    detail(http.get(f"/api/search?{query}"), 422)


def test_odd_but_sound_requests(server: IndexServer, http: httpx.Client) -> None:
    for query in ("%00", "%ff%fe", "a&query=b", "x" * 10_000):
        assert http.get(f"/api/search?query={query}&k=1").status_code == 200
    # The longest query, in the longest form; and what is too long for any.
    for query, statuses in (("%F0%9F%99%82" * 10_000, {200}), ("x" * 300_000, {400, 414, 422, 431})):
        connection = HTTPConnection(server.url.removeprefix("http://"), timeout=20)
        connection.request("GET", f"/api/search?query={query}&k=1")
        assert connection.getresponse().status in statuses
        connection.close()
    content = json.dumps({"query": "who", "ids": ["\ud800"]})
    response = http.post("/api/search", content=content, headers={"content-type": "application/json"})
    assert response.status_code == 200 and response.json()["topk"] == []
    response = http.post("/passages", content='{"ids": ["\\ud800"]}', headers={"content-type": "application/json"})
    assert "ud800" in detail(response, 422)


def test_other_methods_and_paths(http: httpx.Client) -> None:
    for method in ("PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "TRACE", "BREW"):
        assert http.request(method, "/api/search", params={"query": "who"}).status_code == 405
    detail(http.post("/info"), 405)
    detail(http.get("/rerank"), 405)
    for path in ("/api/search/", "/%00", "/..%2f..%2fetc/passwd", "//", "/api"):
        assert http.get(path).status_code == 404


def test_what_is_no_http(server: IndexServer, http: httpx.Client) -> None:
    host, port = server.url.removeprefix("http://").split(":")
    for junk in (
        b"\0\0\0\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET /info HTTP/9.9\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01",
    ):
        with socket.create_connection((host, int(port)), timeout=5) as connection:
            connection.sendall(junk)
            connection.shutdown(socket.SHUT_WR)
            answer = connection.recv(4096)
            assert not answer or answer.split()[1].startswith(b"4")
    assert http.get("/healthz").status_code == 200


def test_strange_hosts(server: IndexServer, http: httpx.Client) -> None:
    for host in ("evil.example", "evil.example:80", "127.0.0.1.evil.example", "[", "", "localhost@evil.example"):
        assert "Host header" in detail(http.get("/info", headers={"host": host}), 400)
    port = server.url.rpartition(":")[2]
    for host in ("localhost", f"LOCALHOST:{port}", f"127.0.0.1:{port}", f"[::1]:{port}"):
        assert http.get("/info", headers={"host": host}).status_code == 200


def test_large_bodies(words: Words) -> None:
    limits = ServerLimits(body=1000, body_seconds=0.5)
    with IndexServer(words, port=0, limits=limits) as server:
        assert httpx.post(f"{server.url}/api/search", json={"query": "x" * 900}, trust_env=False).status_code == 200
        reason = detail(httpx.post(f"{server.url}/api/search", json={"query": "x" * 1000}, trust_env=False), 413)
        assert "1,000 bytes" in reason
        sent = 0

        def endless() -> Iterator[bytes]:
            nonlocal sent
            for _ in range(10_000):
                sent += 1
                yield b"x" * 10_000

        # In chunks, without a length.
        assert "1,000 bytes" in detail(httpx.post(f"{server.url}/api/search", content=endless(), trust_env=False), 413)
        assert sent < 10_000
        host, port = server.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=5) as connection:
            head = f"POST /api/search HTTP/1.1\r\nhost: {host}\r\ncontent-length: 50\r\n\r\n"
            connection.sendall(head.encode() + b"{")
            assert connection.recv(4096).startswith(b"HTTP/1.1 408 ")
        with socket.create_connection((host, int(port)), timeout=5) as connection:
            connection.sendall(head.replace(" 50", f" {10**25}").encode())
            assert connection.recv(4096).split()[1] in (b"413", b"400")


@pytest.mark.parametrize("size", [100_000, 5_000_000])
def test_whoever_sends_too_much_is_told_so_while_still_sending(words: Words, size: int) -> None:
    with IndexServer(words, port=0, limits=ServerLimits(body=1000), token="x") as server:
        address = server.url.removeprefix("http://")
        for headers, status in (({"authorization": "Bearer x"}, 413), ({}, 401)):
            for chunked in (False, True):
                connection = HTTPConnection(address, timeout=20)
                body = (b"x" * 50_000 for _ in range(size // 50_000)) if chunked else b"x" * size
                connection.request("POST", "/api/search", body, headers, encode_chunked=chunked)
                assert connection.getresponse().status == status
                connection.close()


def test_token(words: Words) -> None:
    with IndexServer(words, port=0, token="s3cret") as server:
        for headers in (
            {},
            {"authorization": "Bearer wrong"},
            {"authorization": "Bearer"},
            {"authorization": "Basic s3cret"},
            {"authorization": "s3cret"},
            {"authorization": "Bearer s3cret x"},
        ):
            for path in ("/info", "/api/search?query=x", "/openapi.json", "/nowhere"):
                response = httpx.get(server.url + path, headers=headers, trust_env=False)
                assert "s3cret" not in detail(response, 401) and response.headers["www-authenticate"] == "Bearer"
            assert httpx.get(f"{server.url}/healthz", headers=headers, trust_env=False).status_code == 200
        for scheme in ("Bearer", "bearer"):
            good = httpx.get(f"{server.url}/info", headers={"authorization": f"{scheme} s3cret"}, trust_env=False)
            assert good.status_code == 200
        twice = [("authorization", "Bearer s3cret"), ("authorization", "Bearer wrong")]
        assert httpx.get(f"{server.url}/info", headers=twice, trust_env=False).status_code == 401
        described = httpx.get(f"{server.url}/openapi.json", headers={"authorization": "Bearer s3cret"}, trust_env=False)
        assert described.json()["components"]["securitySchemes"]["HTTPBearer"]["scheme"] == "bearer"


# --- load, failures and the end ---------------------------------------------------------------------------------------


def wait_until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_works_on_so_many_requests_at_once_and_sends_the_rest_away(words: Words) -> None:
    words.gate = threading.Event()
    limits = ServerLimits(searches=2, waiting=2)
    with IndexServer(words, port=0, limits=limits) as server, ThreadPoolExecutor(8) as pool:
        url = f"{server.url}/api/search?query=who"
        pending = [pool.submit(httpx.get, url, trust_env=False, timeout=20) for _ in range(8)]
        wait_until(lambda: sum(future.done() for future in pending) == 4)
        assert httpx.get(f"{server.url}/healthz", trust_env=False).status_code == 200
        words.gate.set()
        answers = [future.result() for future in pending]
        refused = [answer for answer in answers if answer.status_code != 200]
        assert len(refused) == 4 and words.most_running == 2
        for answer in refused:
            assert "try again" in detail(answer, 503) and answer.headers["retry-after"] == "1"


def test_waits_for_a_limited_time(words: Words) -> None:
    words.gate = threading.Event()
    limits = ServerLimits(searches=1, patience=0.2)
    with IndexServer(words, port=0, limits=limits) as server, ThreadPoolExecutor(2) as pool:
        url = f"{server.url}/api/search?query=who"
        first = pool.submit(httpx.get, url, trust_env=False, timeout=20)
        assert words.entered.acquire(timeout=10)
        detail(httpx.get(url, trust_env=False), 503)
        words.gate.set()
        assert first.result().status_code == 200
        assert httpx.get(url, trust_env=False).status_code == 200


def connected(server: IndexServer, data: bytes = b"") -> socket.socket:
    host, port = server.url.removeprefix("http://").split(":")
    connection = socket.create_connection((host, int(port)), timeout=10)
    connection.sendall(data)
    return connection


def is_open(connection: socket.socket, seconds: float = 0.05) -> bool:
    """Whether the server has neither closed a connection nor sent anything."""
    connection.settimeout(seconds)
    try:
        connection.recv(1)
    except TimeoutError:
        return True
    except ConnectionError:
        pass
    return False


def answer_of(connection: socket.socket) -> bytes:
    """The answer to a request for ``/healthz``."""
    answer = b""
    while not answer.endswith(b"}"):
        answer += connection.recv(4096) or b"}"
    return answer


GET = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n"


@pytest.mark.parametrize("dripped", [b"", b"x", b"\r\n", b"x: y\r\n"])
@pytest.mark.parametrize("head", [b"", GET, GET + b"\r\n"])
def test_a_head_must_come_in_time(words: Words, head: bytes, dripped: bytes) -> None:
    with IndexServer(words, port=0, limits=ServerLimits(head_seconds=0.6)) as server, connected(server) as connection:
        if head.endswith(b"\r\n\r\n"):  # A whole request, and then another that is not.
            connection.sendall(head)
            assert answer_of(connection).startswith(b"HTTP/1.1 200")
            head = b"GET"
        start = time.monotonic()
        with contextlib.suppress(ConnectionError):
            connection.sendall(head)
            while is_open(connection, 0.1) and time.monotonic() - start < 5:
                connection.sendall(dripped)
        assert time.monotonic() - start < 3


def test_whoever_asks_again_stays_connected(words: Words) -> None:
    with IndexServer(words, port=0, limits=ServerLimits(head_seconds=0.4)) as server, connected(server) as connection:
        for _ in range(3):
            connection.sendall(GET)
            time.sleep(0.2)
            connection.sendall(b"\r\n")
            assert answer_of(connection).startswith(b"HTTP/1.1 200")
        assert is_open(connection, 0.8)


def test_a_slow_search_is_no_idle_connection(words: Words) -> None:
    words.gate = threading.Event()
    limits = ServerLimits(head_seconds=0.2, connections=2)
    with IndexServer(words, port=0, limits=limits) as server, contextlib.ExitStack() as stack:
        search = b"GET /api/search?query=x HTTP/1.1\r\nhost: localhost\r\n\r\n"
        pending = [stack.enter_context(connected(server, search)) for _ in range(2)]
        assert words.entered.acquire(timeout=10) and words.entered.acquire(timeout=10)
        # No room for a third.
        assert not is_open(stack.enter_context(connected(server)), 5)
        time.sleep(0.5)
        words.gate.set()
        for connection in pending:
            assert connection.recv(4096).startswith(b"HTTP/1.1 200")


def test_idle_connections_make_room(words: Words) -> None:
    with IndexServer(words, port=0, limits=ServerLimits(connections=5)) as server, contextlib.ExitStack() as stack:
        idle = [stack.enter_context(connected(server, data)) for data in (b"", GET, b"", GET + b"\r\n", b"")]
        assert answer_of(idle[3]).startswith(b"HTTP/1.1 200")
        assert httpx.get(f"{server.url}/healthz", trust_env=False).status_code == 200
        assert [is_open(connection) for connection in idle] == [False, True, True, True, True]
        with httpx.Client(base_url=server.url, trust_env=False) as http:
            for _ in range(3):
                assert http.get("/healthz").status_code == 200
        for _ in range(20):
            stack.enter_context(connected(server))
        assert httpx.get(f"{server.url}/healthz", trust_env=False).status_code == 200


def test_more_idle_clients_than_files() -> None:
    resource = pytest.importorskip("resource")
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    script = (
        f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (160, {most}))\n"
        "from test_index_server import *\n"
        "server = IndexServer(Words(), port=0, limits=ServerLimits(head_seconds=1.0))\n"
        "server.run(lambda: print(server.url, flush=True))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        cwd=Path(__file__).parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        host, port = url.removeprefix("http://").split(":")
        with contextlib.ExitStack() as stack:
            for number in range(200):
                connection = stack.enter_context(socket.create_connection((host, int(port)), timeout=10))
                connection.sendall(GET if number % 2 else b"")
            assert httpx.get(f"{url}/healthz", trust_env=False, timeout=10).status_code == 200
        process.terminate()
        assert process.communicate(timeout=20)[1] == ""
    finally:
        process.kill()
        process.communicate()


def test_an_answer_that_nobody_reads_does_not_stay(words: Words, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hopgate.index.server._IDLE_SECONDS", 0.3)
    words.corpus = [Passage("1", "", "x" * 20_000_000)]
    with IndexServer(words, port=0) as server:
        for request in (b"GET /api/search?query=x HTTP/1.1\r\n", b"GET /api/search?query=x HTTP/1.0\r\n"):
            with connected(server, request + b"host: localhost\r\n\r\n") as connection:
                assert words.entered.acquire(timeout=10)
                wait_until(lambda: server._server is not None and not server._server.server_state.connections)
                connection.settimeout(10)
                size = 0
                with contextlib.suppress(ConnectionError):
                    while data := connection.recv(1 << 20):
                        size += len(data)
                assert size < 20_000_000


def test_a_broken_index_is_said_to_be_broken(
    http: httpx.Client, words: Words, caplog: pytest.LogCaptureFixture
) -> None:
    words.failure = IndexStoreError("/secret/folder: the vectors are damaged; build the index again")
    assert detail(http.get("/api/search?query=x"), 500) == "the index: the vectors are damaged; build the index again"
    words.failure = ZeroDivisionError("secret")
    assert "secret" not in detail(http.get("/api/search?query=x"), 500)
    wait_until(lambda: "ZeroDivisionError" in caplog.text)
    words.failure = None
    assert http.get("/api/search?query=x").status_code == 200


def test_finishes_what_it_has_begun(words: Words) -> None:
    words.gate = threading.Event()
    with ThreadPoolExecutor(2) as pool:
        with IndexServer(words, port=0) as server:
            pending = pool.submit(httpx.get, f"{server.url}/api/search?query=who", trust_env=False, timeout=20)
            assert words.entered.acquire(timeout=10)
            threading.Timer(0.3, words.gate.set).start()
        assert pending.done() and pending.result().status_code == 200
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{server.url}/healthz", trust_env=False)
    with pytest.raises(InputError, match="runs only once"):
        server.run()


def test_ports_and_addresses(words: Words) -> None:
    first = IndexServer(words, port=0)
    port = int(first.url.rpartition(":")[2])
    with pytest.raises(InputError, match=f"port {port} of 127.0.0.1 is in use; choose another"):
        IndexServer(words, port=port)
    first.stop()
    # A port that was never served is free again.
    IndexServer(words, port=port).stop()
    for host in ("0.0.0.0", "::"):
        with pytest.raises(InputError, match="can be reached from other machines: set a token"):
            IndexServer(words, host=host, port=0)
    with pytest.raises(InputError, match=r"192\.0\.2\.1 is no address of this machine"):
        IndexServer(words, host="192.0.2.1", port=0, token="x")
    with pytest.raises(InputError, match="is no address or name"):
        IndexServer(words, host="no such name", port=0)
    for bad in (-1, 65536, True, "80"):
        with pytest.raises(InputError, match="a port is a whole number"):
            IndexServer(words, port=bad)  # type: ignore
    for token in ("", "with space", "ü", "line\n"):
        with pytest.raises(InputError, match="the token"):
            IndexServer(words, port=0, token=token)
    for host in (["x"], None, "", 3, b"127.0.0.1", "x\0y"):
        with pytest.raises(InputError, match=r"a host must be an address|is no address or name"):
            IndexServer(words, host=host, port=0)  # type: ignore
    with IndexServer(words, host="0.0.0.0", port=0, token="x") as server:
        url = server.url.replace("0.0.0.0", "127.0.0.1")
        # Beyond this machine a server has names that it does not know.
        headers = {"authorization": "Bearer x", "host": "index.example"}
        assert httpx.get(f"{url}/info", headers=headers, trust_env=False).status_code == 200


def test_limits() -> None:
    assert ServerLimits(waiting=0).waiting == 0
    for bad in (
        {"k": 0},
        {"k": True},
        {"k": 2.5},
        {"patience": 0},
        {"patience": float("nan")},
        {"waiting": -1},
        {"head_seconds": 0},
    ):
        with pytest.raises(InputError, match="the limit `"):
            ServerLimits(**bad)  # type: ignore


def test_without_the_packages_for_serving(words: Words, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "fastapi", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'hopgate\[serve\]'"):
        IndexServer(words, port=0)
