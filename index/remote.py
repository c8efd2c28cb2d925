"""An index on another machine, or in another process, behind the same interface."""

from __future__ import annotations

import copy
import os
import threading
import weakref
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, TypeVar

from ..core import InputError, Passage, RemoteIndexError
from .bearer import checked_token, token_of_environment
from .interface import (
    Filter,
    PassageIndex,
    check_k,
    check_passages,
    check_queries,
    check_query,
    checked_filter,
    checked_ids,
)
from .remote_http import Http
from .remote_protocol import ServerProtocol, Steps
from .remote_settings import RemoteSettings, addresses, checked_settings, is_here, url_parts

if TYPE_CHECKING:
    from cachetools import LRUCache

T = TypeVar("T")


class RemoteIndex(PassageIndex):
    """Searches an index over HTTP: one of ``hopgate index serve``, or an original ColBERT server.

    An original server searches only: no filter, no ``rerank``, ``passages`` or ``len``, and at most 100 passages for
    a query. Its ids are its numbers as strings, and its texts are split into title and text at the first `` | ``.

    Threads may share it, and processes that are forked: each has its own connections and results. Copies (``copy``,
    ``deepcopy``) are the object itself. A pickle holds the address and the settings but never the token: an object that
    had one takes it, when it is unpickled, from the environment variable ``HOPGATE_TOKEN``. As a callable it is a tool
    for ``dspy.ReAct`` that returns texts. Nothing is sent before it is used for the first time.

    Args:
        url: Where the server is: ``http://127.0.0.1:8893``. If it ends in ``/api/search`` it is the address at which
            an original server searches.
        timeout: Seconds for an attempt, from connecting to the end of the answer.
        retries: Further attempts after connections that fail, timeouts, and the statuses 429, 502, 503 and 504.
        backoff: Seconds of the first pause between attempts; it doubles each time, and is at most 10 seconds, even if
            the server asks for more (``Retry-After``).
        token: Sent as ``Authorization: Bearer ...``. Without TLS (``https``) others in the network can read it.
        cache_size: Number of searches whose results are kept in memory; 0 for none. They are not searched for again
            even if the server's index changes, until :meth:`clear_cache`.
        protocol: ``auto`` asks the server what it is; ``hopgate`` and ``colbert`` say it.
        max_bytes: Bytes that an answer may have.

    Raises:
        InputError: An argument has no possible value.
    """

    def __init__(
        self,
        url: str,
        *,
        timeout: float = 30.0,
        retries: int = 3,
        backoff: float = 0.25,
        token: str | None = None,
        cache_size: int = 1024,
        protocol: str = "auto",
        max_bytes: int = 64 << 20,
    ) -> None:
        super().__init__()
        parts = url_parts(url)
        self.url = url
        self._settings = checked_settings(RemoteSettings(timeout, retries, backoff, cache_size, protocol, max_bytes))
        self._protocol = ServerProtocol(url, *addresses(parts, protocol), protocol)
        self._has_token = token is not None
        self._http = Http(
            timeout=float(timeout),
            retries=retries,
            backoff=float(backoff),
            token=None if token is None else checked_token(token),
            max_bytes=max_bytes,
            use_proxies=not is_here(parts.hostname or ""),
        )
        self._cache: LRUCache[Hashable, tuple[Passage, ...]] | None = None
        self._lock = threading.Lock()
        _alive.add(self)

    def search_many(
        self,
        queries: Sequence[str],
        k: int = 3,
        *,
        filter: Filter | None = None,  # noqa: A002
    ) -> list[list[Passage]]:
        """Search for several queries, in as few requests as the server allows; see :meth:`PassageIndex.search`.

        Args:
            queries: Questions or keywords, each at most 10,000 characters.
            k: How many passages for each, at least 1; all if there are fewer.
            filter: Ids of the passages that may be found. A predicate cannot be sent to a server.

        Returns:
            For each query, in the order given, its passages, best first.

        Raises:
            InputError: An argument has no possible value, or the server does not allow so much or cannot do it.
            RemoteIndexError: The server cannot be reached, fails, or answers with nonsense.
        """
        return self._run(self._search(queries, k, filter))

    async def asearch(self, query: str, k: int = 3, *, filter: Filter | None = None) -> list[Passage]:  # noqa: A002
        """As :meth:`search`, asynchronously."""
        return (await self.asearch_many([query], k, filter=filter))[0]

    async def asearch_many(
        self,
        queries: Sequence[str],
        k: int = 3,
        *,
        filter: Filter | None = None,  # noqa: A002
    ) -> list[list[Passage]]:
        """As :meth:`search_many`, asynchronously."""
        steps = self._search(queries, k, filter)
        answer: Any = None
        failure: RemoteIndexError | None = None
        while True:
            try:
                call = steps.send(answer) if failure is None else steps.throw(failure)
            except StopIteration as stop:
                return stop.value
            answer, failure = None, None
            try:
                answer = await self._http.asend(call)
            except RemoteIndexError as error:
                failure = error

    def rerank(self, query: str, passages: Sequence[Passage]) -> list[Passage]:
        """Order passages, of the server's index or from elsewhere, by their full-precision score for a query.

        Returns:
            The same passages with their scores, best first; of equal scores in the order given.

        Raises:
            InputError: An argument has no possible value, or the server cannot rerank.
            RemoteIndexError: The server cannot be reached, fails, or answers with nonsense.
        """
        check_query(query)
        check_passages(passages)
        return self._run(self._protocol.rerank(query, list(passages)))

    def passages(self, ids: Iterable[str]) -> list[Passage]:
        """The passages with these ids, in the order given, without scores.

        Raises:
            InputError: There is no passage with one of the ids, they are no list of strings, or the server cannot look
                passages up.
            RemoteIndexError: The server cannot be reached, fails, or answers with nonsense.
        """
        return self._run(self._protocol.passages(checked_ids(ids)))

    def info(self) -> dict[str, Any]:
        """What the server's index holds and was made with, asked for anew, and ``url``.

        Raises:
            InputError: The server is an original ColBERT server, which cannot say it.
            RemoteIndexError: The server cannot be reached, fails, or answers with nonsense.
        """
        return {**self._run(self._protocol.info()), "url": self.url}

    def __len__(self) -> int:
        """Number of passages, asked for anew; see :meth:`info`."""
        return self.info()["passages"]

    def __bool__(self) -> bool:
        """True, without asking the server how many passages it has."""
        return True

    def clear_cache(self) -> None:
        """Forget the results that were kept, for instance since the server's index has changed."""
        with self._lock:
            self._cache = None

    def close(self) -> None:
        """Close the connections. The object cannot be used any more."""
        self._http.close()

    def __enter__(self) -> RemoteIndex:
        """Itself; :meth:`close` follows at the end of the block."""
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"RemoteIndex({self.url!r})"

    def __copy__(self) -> RemoteIndex:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> RemoteIndex:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _reconnect, (self.url, asdict(self._settings), self._has_token)

    def _start_anew(self) -> None:
        self._lock = threading.Lock()
        self._cache = None
        self._http.start_anew()

    def _run(self, steps: Steps[T]) -> T:
        answer: Any = None
        failure: RemoteIndexError | None = None
        while True:
            try:
                call = steps.send(answer) if failure is None else steps.throw(failure)
            except StopIteration as stop:
                return stop.value
            answer, failure = None, None
            try:
                answer = self._http.send(call)
            except RemoteIndexError as error:
                failure = error

    def _search(self, queries: Sequence[str], k: int, chosen: Filter | None) -> Steps[list[list[Passage]]]:
        check_queries(queries)
        check_k(k)
        ids = None if chosen is None else checked_filter(chosen)
        if callable(ids):
            raise InputError("a predicate cannot be sent to a server: give ids, or search where the index lies")
        k, only = int(k), None if ids is None else tuple(dict.fromkeys(ids))
        wanted = {query: self._kept((query, k, only)) for query in queries}
        missing = [query for query, kept in wanted.items() if kept is None]
        if missing:
            found = yield from self._protocol.search(missing, k, only)
            for query, passages in zip(missing, found, strict=True):
                wanted[query] = kept = tuple(passages)
                self._keep((query, k, only), kept)
        return [[_own(passage) for passage in wanted[query] or ()] for query in queries]

    def _kept(self, key: Hashable) -> tuple[Passage, ...] | None:
        with self._lock:
            return None if self._cache is None else self._cache.get(key)

    def _keep(self, key: Hashable, passages: tuple[Passage, ...]) -> None:
        if not self._settings.cache_size:
            return
        from cachetools import LRUCache

        with self._lock:
            if self._cache is None:
                self._cache = LRUCache(self._settings.cache_size)
            self._cache[key] = passages


_alive: weakref.WeakSet[RemoteIndex] = weakref.WeakSet()


def _after_fork() -> None:
    # Only in the new process.
    for index in list(_alive):
        index._start_anew()


if hasattr(os, "register_at_fork"):  # Not on Windows, which has no fork.
    os.register_at_fork(after_in_child=_after_fork)


def _own(passage: Passage) -> Passage:
    """A passage that its owner may change without changing what is kept."""
    return replace(passage, metadata=copy.deepcopy(passage.metadata)) if passage.metadata else passage


def _reconnect(url: str, settings: dict[str, Any], has_token: bool) -> RemoteIndex:
    return RemoteIndex(url, token=token_of_environment() if has_token else None, **settings)
