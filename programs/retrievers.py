"""What a program accepts as a retriever, and the handle that it keeps it in."""

from __future__ import annotations

import asyncio
import inspect
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, runtime_checkable

from ..core import HopgateError, InputError, Passage, RetrievalError
from ..core.texts import encodable

_ASYNCHRONOUS = "the retriever's {} is asynchronous: call the program with `acall`"


@runtime_checkable
class Retriever(Protocol):
    """Anything that finds passages: a :class:`hopgate.index.ColBERTIndex`, a remote client, a few lines of your own."""

    def search(self, query: str, k: int) -> Sequence[Passage]:
        """The ``k`` best passages for a query, best first."""
        ...


class RetrieverHandle:
    """Holds a retriever inside a program.

    Copies of the program share the retriever (an index is large, and says itself how it is pickled). Optimizers walk
    over a program's attributes; a handle gives them nothing to iterate over.

    Args:
        retriever: Has ``search(query, k)``, or is a callable that takes a query and ``k``. Strings, dictionaries with
            ``long_text`` or ``text``, and predictions with ``passages`` are turned into passages. With ``rerank(query,
            passages)`` it also reranks; an attribute ``ranks_alike`` that is true says that reranking by the query that
            was searched for tells nothing new, as with an index and unlike with a cross-encoder.

    Raises:
        InputError: It is neither.
    """

    def __init__(self, retriever: Any) -> None:
        search = getattr(retriever, "search", None)
        self._search: Any = search if callable(search) else retriever
        if not callable(self._search):
            raise InputError(
                f"a retriever has `search(query, k)` or is a callable, got {type(retriever).__name__}; "
                "open an index with ColBERTIndex.open(DIR)"
            )
        self.retriever = retriever
        self.ranks_alike = bool(getattr(retriever, "ranks_alike", False))
        self._is_async = inspect.iscoroutinefunction(self._search)
        self._takes_k = _takes_k(self._search)
        asynchronous = getattr(retriever, "asearch", None)
        self._async_search: Any = self._search if self._is_async else None
        if self._async_search is None and inspect.iscoroutinefunction(asynchronous):
            self._async_search = asynchronous

    def search(self, query: str, k: int) -> tuple[Passage, ...]:
        """At most ``k`` passages, best first.

        Raises:
            RetrievalError: The retriever raised, is asynchronous, or returned something that is no list of passages.
        """
        if self._is_async:
            raise RetrievalError(_ASYNCHRONOUS.format("search"))
        with _failures("searching", query):
            found = _at_once(self._search(query, **self._arguments(k)), "search")
        return as_passages(found)[:k]

    async def asearch(self, query: str, k: int) -> tuple[Passage, ...]:
        """As :meth:`search`; an asynchronous ``search`` or ``asearch`` is awaited, else a worker thread searches.

        What that returns is awaited too if it can be, such as that of ``lambda query, k: client.asearch(query, k)``.
        """
        with _failures("searching", query):
            found = await _called(self._async_search or self._search, query, **self._arguments(k))
        return as_passages(found)[:k]

    def _arguments(self, k: int) -> dict[str, int]:
        # Retrievers such as dspy.Embeddings were told how many to return when they were made.
        return {"k": k} if self._takes_k else {}

    def rerank(self, query: str, passages: Sequence[Passage]) -> tuple[Passage, ...] | None:
        """The passages in the order that the retriever's own ``rerank`` gives them; ``None`` if it has none."""
        rerank = getattr(self.retriever, "rerank", None)
        if not callable(rerank):
            return None
        with _failures("reranking", query):
            return as_passages(_at_once(rerank(query, list(passages)), "rerank"))

    async def arerank(self, query: str, passages: Sequence[Passage]) -> tuple[Passage, ...] | None:
        """As :meth:`rerank`; an asynchronous one is awaited, else a worker thread reranks."""
        rerank = getattr(self.retriever, "rerank", None)
        if not callable(rerank):
            return None
        with _failures("reranking", query):
            return as_passages(await _called(rerank, query, list(passages)))

    def __deepcopy__(self, memo: dict[int, Any]) -> RetrieverHandle:
        return self

    def __repr__(self) -> str:
        return f"RetrieverHandle({type(self.retriever).__name__})"


def _takes_k(search: Any) -> bool:
    try:
        parameters = inspect.signature(search).parameters.values()
    except (TypeError, ValueError):
        return True  # Built in, or hidden behind a wrapper: the documented way is tried.
    return any(parameter.name == "k" or parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)


def _at_once(result: Any, name: str) -> Any:
    """A result that need not be awaited."""
    if not inspect.isawaitable(result):
        return result
    if inspect.iscoroutine(result):
        result.close()  # Python would warn that it was never awaited.
    raise RetrievalError(_ASYNCHRONOUS.format(name))


async def _called(function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    if inspect.iscoroutinefunction(function):
        return await function(*arguments, **named)
    result = await asyncio.to_thread(function, *arguments, **named)
    return await result if inspect.isawaitable(result) else result


@contextmanager
def _failures(what: str, query: str) -> Iterator[None]:
    try:
        yield
    except HopgateError:
        raise
    except Exception as error:
        message = f"{what} failed for {query[:80]!r}: {type(error).__name__}: {error}"
        raise RetrievalError(message) from error


def as_passages(found: Any) -> tuple[Passage, ...]:
    """Turn what a retriever returned into passages.

    Half of a surrogate pair in a text becomes a question mark, since no prompt can hold it.

    Raises:
        RetrievalError: It is no list of passages, strings or dictionaries, or the metadata of one is no JSON object:
            a trajectory that held it could not be written.
    """
    items = getattr(found, "passages", found)
    if isinstance(items, str | Mapping) or not isinstance(items, Iterable):
        raise RetrievalError(f"a retriever must return a list of passages, got {type(found).__name__}")
    return tuple(_passage(item, rank) for rank, item in enumerate(items, 1))


def _passage(item: Any, rank: int) -> Passage:
    if isinstance(item, Passage):
        for name in ("id", "title", "text"):
            if not isinstance(value := getattr(item, name), str):
                raise RetrievalError(f"result {rank} of the retriever has `{name}` that is no text: {value!r:.80}")
        metadata = _metadata(item.metadata, rank)
        score = _score(item.score, rank)
        return Passage(encodable(item.id), encodable(item.title), encodable(item.text), score, metadata)
    if isinstance(item, str):
        item = encodable(item)
        title, separator, text = item.partition(" | ")
        # Without an identifier of its own a text identifies itself.
        return Passage(item, title, text) if separator else Passage(item, "", item)
    if isinstance(item, Mapping):
        text = item.get("text") or item.get("long_text")
        if isinstance(text, str):
            identity = item.get("id", item.get("pid"))
            metadata, title = item.get("metadata"), str(item.get("title") or "")
            # Servers of the ColBERT kind send the title beside a text that begins with it.
            body = text.removeprefix(f"{title} | ") if title else text
            return Passage(
                id=encodable(text if identity is None else str(identity)),
                title=encodable(title),
                text=encodable(body),
                score=_score(item.get("score"), rank),
                metadata=_metadata(metadata, rank) if isinstance(metadata, Mapping) else {},
            )
    raise RetrievalError(
        f"result {rank} of the retriever is no passage, string or dictionary with `text`: {item!r:.80}"
    )


def _metadata(given: Any, rank: int) -> dict[str, Any]:
    """Metadata as a trajectory's JSON gives it back."""
    if given is None or (isinstance(given, Mapping) and not given):
        return {}
    try:
        written = json.dumps(dict(given), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise RetrievalError(
            f"result {rank} of the retriever has metadata that cannot be written as JSON: {error}; "
            "use strings, finite numbers, booleans, null, lists and objects"
        ) from error
    if not _keys_are_texts(given):
        raise RetrievalError(f"result {rank} of the retriever has metadata with a key that is no string")
    return json.loads(written)


def _keys_are_texts(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and _keys_are_texts(item) for key, item in value.items())
    return all(map(_keys_are_texts, value)) if isinstance(value, list | tuple) else True


def _score(value: Any, rank: int) -> float | None:
    try:
        score = None if value is None else float(value)
    except (TypeError, ValueError):
        score = math.nan
    if score is not None and not math.isfinite(score):
        raise RetrievalError(f"result {rank} of the retriever has the score {value!r}, which is no finite number")
    return score
