"""What a program accepts as a retriever, and the handle that it keeps it in."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from ..core import HopgateError, InputError, Passage, RetrievalError


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
            ``long_text`` or ``text``, and predictions with ``passages`` are turned into passages.

    Raises:
        InputError: It is neither.
    """

    def __init__(self, retriever: Any) -> None:
        search = getattr(retriever, "search", None)
        self._search = search if callable(search) else retriever
        if not callable(self._search):
            raise InputError(
                f"a retriever has `search(query, k)` or is a callable, got {type(retriever).__name__}; "
                "open an index with ColBERTIndex.open(DIR)"
            )
        self.retriever = retriever

    def search(self, query: str, k: int) -> tuple[Passage, ...]:
        """At most ``k`` passages, best first.

        Raises:
            RetrievalError: The retriever raised, or returned something that is no list of passages.
        """
        try:
            found = self._search(query, k=k)
        except HopgateError:
            raise
        except Exception as error:
            raise RetrievalError(f"the retriever failed on {query[:80]!r}: {type(error).__name__}: {error}") from error
        return as_passages(found)[:k]

    async def asearch(self, query: str, k: int) -> tuple[Passage, ...]:
        """As :meth:`search`, in a worker thread."""
        return await asyncio.to_thread(self.search, query, k)

    def rerank(self, query: str, passages: Sequence[Passage]) -> tuple[Passage, ...] | None:
        """The passages in the order that the retriever's own ``rerank`` gives them; ``None`` if it has none."""
        rerank = getattr(self.retriever, "rerank", None)
        if not callable(rerank):
            return None
        try:
            return as_passages(rerank(query, list(passages)))
        except HopgateError:
            raise
        except Exception as error:
            raise RetrievalError(f"reranking failed on {query[:80]!r}: {type(error).__name__}: {error}") from error

    def __deepcopy__(self, memo: dict[int, Any]) -> RetrieverHandle:
        return self

    def __repr__(self) -> str:
        return f"RetrieverHandle({type(self.retriever).__name__})"


def as_passages(found: Any) -> tuple[Passage, ...]:
    """Turn what a retriever returned into passages.

    Raises:
        RetrievalError: It is no list of passages, strings or dictionaries.
    """
    items = getattr(found, "passages", found)
    if isinstance(items, str) or not isinstance(items, Sequence):
        raise RetrievalError(f"a retriever must return a list of passages, got {type(found).__name__}")
    return tuple(_passage(item, rank) for rank, item in enumerate(items, 1))


def _passage(item: Any, rank: int) -> Passage:
    if isinstance(item, Passage):
        return item
    if isinstance(item, str):
        title, separator, text = item.partition(" | ")
        # Without an identifier of its own a text identifies itself.
        return Passage(item, title, text) if separator else Passage(item, "", item)
    if isinstance(item, Mapping):
        text = item.get("text") or item.get("long_text")
        if isinstance(text, str):
            identity, score = item.get("id", item.get("pid")), item.get("score")
            if score is None or isinstance(score, int | float):
                return Passage(
                    id=text if identity is None else str(identity),
                    title=str(item.get("title") or ""),
                    text=text,
                    score=None if score is None else float(score),
                )
    raise RetrievalError(
        f"result {rank} of the retriever is no passage, string or dictionary with `text`: {item!r:.80}"
    )
