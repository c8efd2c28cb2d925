"""The contract of an index, whichever engine or machine does the work, and the checks that all of them make."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from ..core import InputError, Passage
from .corpus import is_broken, passage_fault

LONGEST_QUERY_TEXT = 10_000
"""Characters of a query; more is refused, since it cannot be a question."""

Filter: TypeAlias = Iterable[str] | Callable[[Mapping[str, Any]], bool]
"""Which passages may be found: their ids, or a predicate that is given a passage's metadata."""


class PassageIndex(ABC):
    """An index of passages. Implementations may be shared by threads, and keep no settings from call to call.

    As a callable an index is a tool for ``dspy.ReAct`` that returns texts.
    """

    ranks_alike = True
    """Reranking by the text that was searched for tells nothing new: programs leave it out. In a hybrid index it would
    undo the fusion with BM25."""

    def __init__(self) -> None:
        # What dspy.Tool reads from a callable object; the class keeps its own.
        self.__name__ = "search_passages"
        self.__doc__ = "Search for passages that help to answer a question; returns the texts of the best ones."

    def search(self, query: str, k: int = 3, *, filter: Filter | None = None) -> list[Passage]:  # noqa: A002
        """Search for the passages that fit a query best.

        Args:
            query: A question or keywords, at most 10,000 characters.
            k: How many passages, at least 1; all if there are fewer.
            filter: Ids of the passages that may be found (unknown ones are ignored), or a predicate on a passage's
                metadata. Metadata that was read from CSV or TSV is text: ``int(metadata["year"]) > 1990``.

        Returns:
            Passages with their scores, best first; of equal scores the smaller id first.

        Raises:
            InputError: The query is empty, too long or not text, k is not a positive integer, or the filter is
                neither ids nor a predicate.
            HopgateError: The index cannot be read or reached.
        """
        return self.search_many([query], k, filter=filter)[0]

    @abstractmethod
    def search_many(
        self,
        queries: Sequence[str],
        k: int = 3,
        *,
        filter: Filter | None = None,  # noqa: A002
    ) -> list[list[Passage]]:
        """Search for several queries at once; see :meth:`search`.

        Returns:
            For each query, in the order given, what :meth:`search` returns for it.
        """

    @abstractmethod
    def rerank(self, query: str, passages: Sequence[Passage]) -> list[Passage]:
        """Order passages, of this index or from elsewhere, by their full-precision score for a query.

        Returns:
            The same passages with their scores, best first; of equal scores in the order given.

        Raises:
            InputError: The query is empty, too long or not text, or the passages are not a list of usable passages.
            HopgateError: The index cannot be read or reached.
        """

    @abstractmethod
    def passages(self, ids: Iterable[str]) -> list[Passage]:
        """The passages with these ids, in the order given, without scores.

        Raises:
            InputError: There is no passage with one of the ids, or they are not a list of strings.
            HopgateError: The index cannot be read or reached.
        """

    @abstractmethod
    def info(self) -> dict[str, Any]:
        """What the index holds and was made with, as a JSON object; among others ``passages``, their number."""

    @abstractmethod
    def __len__(self) -> int:
        """Number of passages."""

    def __call__(self, query: str) -> list[str]:
        """The texts of the three best passages for a query, as ``title | text``; see :meth:`search`."""
        return [passage.long_text for passage in self.search(query)]


def check_query(query: str) -> None:
    """Raise InputError unless a query can be searched for."""
    if not isinstance(query, str) or not query.strip():
        raise InputError(f"a query must be a non-empty string, got {query!r}"[:200])
    if is_broken(query):
        raise InputError(f"the query holds half of a surrogate pair; replace the broken character: {query!r}"[:200])
    if len(query) > LONGEST_QUERY_TEXT:
        raise InputError(
            f"the query has {len(query):,} characters and may have {LONGEST_QUERY_TEXT:,}; ask a shorter question"
        )


def check_queries(queries: Sequence[str]) -> None:
    """Raise InputError unless it is a list of queries."""
    if isinstance(queries, str | bytes) or not isinstance(queries, Sequence):
        raise InputError(f"queries must be a list of strings, got a {type(queries).__name__}")
    for query in queries:
        check_query(query)


def check_k(k: int) -> None:
    """Raise InputError unless a number of passages can be asked for."""
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
        raise InputError(f"k must be a whole number of at least 1, got {k!r}"[:200])


def check_passages(passages: Sequence[Passage]) -> None:
    """Raise InputError unless it is a list of usable passages."""
    if isinstance(passages, str | bytes) or not isinstance(passages, Sequence):
        raise InputError(f"passages must be a list of hopgate.core.Passage, got a {type(passages).__name__}")
    for number, passage in enumerate(passages):
        if not isinstance(passage, Passage):
            raise InputError(f"passages[{number}] is a {type(passage).__name__}; give hopgate.core.Passage objects")
        fault = passage_fault(passage)
        if fault is not None:
            raise InputError(f"passages[{number}]: {fault}")


def checked_ids(ids: Iterable[str], what: str = "ids") -> list[str]:
    """The ids as a list.

    Raises:
        InputError: They are not a list of strings.
    """
    if isinstance(ids, str | bytes | Mapping) or not isinstance(ids, Iterable):
        raise InputError(f"{what} must be a list of strings, got {ids!r}"[:200])
    found = list(ids)
    for identifier in found:
        if not isinstance(identifier, str):
            raise InputError(f"{what} must be a list of strings, and one is {identifier!r}"[:200])
    return found


def checked_filter(chosen: Filter) -> list[str] | Callable[[Mapping[str, Any]], bool]:
    """A filter as a list of ids or a predicate.

    Raises:
        InputError: It is neither.
    """
    if callable(chosen):
        return chosen
    if isinstance(chosen, str | bytes | Mapping) or not isinstance(chosen, Iterable):
        raise InputError(f"filter must be a list of ids or a predicate on a passage's metadata, got {chosen!r}"[:200])
    return checked_ids(chosen, "the ids of a filter")
