"""What a client asks of an index server, and what the answers mean; how requests travel is left to the caller."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import Any, TypeAlias, TypeVar

from ..core import InputError, Passage, RemoteIndexError
from .remote_answers import (
    ORIGINAL_MAX_K,
    ServerDescription,
    count_of,
    description_of,
    found_of,
    passages_of,
    plain_topk,
    scores_of,
)
from .remote_http import Call, encoded

T = TypeVar("T")
Steps: TypeAlias = Generator[Call, Any, T]
"""Yields requests, is sent their answers, and returns a result: the same for waiting and for asynchronous callers."""

_NO_SUCH_PATH = {404, 405, 501}


class ServerProtocol:
    """The two protocols, and which of them the server speaks. Threads may share it.

    Args:
        url: The server, for messages.
        base: Where the paths of a hopgate server begin.
        plain_url: Where an original ColBERT server searches.
        protocol: ``auto``, ``hopgate`` or ``colbert``.

    The methods raise InputError if the server cannot do what is asked or does not allow so much, and RemoteIndexError
    if an answer is malformed.
    """

    def __init__(self, url: str, base: str, plain_url: str, protocol: str) -> None:
        self._url = url
        self._base = base
        self._plain_url = plain_url
        self._protocol = protocol
        self._server = ServerDescription(is_plain=True) if protocol == "colbert" else None

    def search(self, queries: list[str], k: int, ids: tuple[str, ...] | None) -> Steps[list[list[Passage]]]:
        """For each query its passages."""
        server = yield from self._description()
        searching = self._search_plain if server.is_plain else self._search_hopgate
        return (yield from searching(server, queries, k, ids))

    def _search_hopgate(
        self, server: ServerDescription, queries: list[str], k: int, ids: tuple[str, ...] | None
    ) -> Steps[list[list[Passage]]]:
        if k > server.max_k:
            # What counts is how many there are.
            k = max(1, min(k, (yield from self.info())["passages"]))
            if k > server.max_k:
                raise InputError(f"{self._url} gives at most {server.max_k:,} passages for a query; ask for fewer")
        url, found = f"{self._base}/search_many", []
        for batch in _batches(queries, min(server.max_queries, max(1, server.max_results // k)), server.max_body):
            body = {"queries": batch, "k": k, "ids": None if ids is None else list(ids)}
            found += found_of((yield Call(url, body=body)), len(batch), k, url)
        return found

    def _search_plain(
        self, server: ServerDescription, queries: list[str], k: int, ids: tuple[str, ...] | None
    ) -> Steps[list[list[Passage]]]:
        if ids is not None:
            raise self._cannot("filter")
        found: list[list[Passage]] = []
        for query in queries:
            answer = yield Call(self._plain_url, {"query": query, "k": str(k)})
            found.append(plain_topk(answer, k, self._plain_url))
            if len(found[-1]) == ORIGINAL_MAX_K < k:
                raise InputError(f"{self._url} gives at most {ORIGINAL_MAX_K} passages for a query; ask for fewer")
        return found

    def rerank(self, query: str, passages: list[Passage]) -> Steps[list[Passage]]:
        """The passages with their scores, best first."""
        if not passages:
            return []
        server = yield from self._described("rerank")
        url, scores = f"{self._base}/rerank", []
        try:
            batches = list(_batches([passage.to_dict() for passage in passages], server.max_passages, server.max_body))
        except (TypeError, ValueError, RecursionError) as error:
            raise InputError(f"the metadata of a passage cannot be written as JSON ({error}); correct it") from error
        for batch in batches:
            scores += scores_of((yield Call(url, body={"query": query, "passages": batch})), len(batch), url)
        # Sorting is stable: of equal scores the order given stays.
        order = sorted(range(len(passages)), key=lambda place: -scores[place])
        return [passages[place].with_score(scores[place]) for place in order]

    def passages(self, ids: list[str]) -> Steps[list[Passage]]:
        """The passages with these ids."""
        if not ids:
            return []
        server = yield from self._described("look passages up")
        url, found = f"{self._base}/passages", []
        for batch in _batches(ids, server.max_passages, server.max_body):
            found += passages_of((yield Call(url, body={"ids": batch})), batch, url)
        return found

    def info(self) -> Steps[dict[str, Any]]:
        """What the server says about its index."""
        yield from self._described("say what it holds")
        url = f"{self._base}/info"
        info = yield Call(url)
        count_of(info, url)
        return info

    def _described(self, what: str) -> Steps[ServerDescription]:
        server = yield from self._description()
        if server.is_plain:
            raise self._cannot(what)
        return server

    def _cannot(self, what: str) -> InputError:
        return InputError(
            f"{self._url} is an original ColBERT server, which cannot {what}; "
            "serve the index with `hopgate index serve`"
        )

    def _description(self) -> Steps[ServerDescription]:
        # Threads that come first at the same time all ask, and get the same answer.
        if self._server is None:
            url = f"{self._base}/info"
            try:
                self._server = description_of((yield Call(url)), url)
            except RemoteIndexError as error:
                if error.status not in _NO_SUCH_PATH or self._protocol == "hopgate":
                    raise
                self._server = ServerDescription(is_plain=True)
        return self._server


def _batches(items: Sequence[T], count: int, size: int) -> Iterator[list[T]]:
    """Cut a list into parts of at most so many items, and of at most half of so many bytes if an item allows it."""
    batch: list[T] = []
    used = 0
    for item in items:
        length = len(encoded(item)) + 2
        if batch and (len(batch) == count or used + length > size // 2):
            yield batch
            batch, used = [], 0
        batch.append(item)
        used += length
    if batch:
        yield batch
