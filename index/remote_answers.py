"""Reading what an index server answers, which may be anything."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..core import Passage, RemoteIndexError
from .faults import is_broken, metadata_fault

ORIGINAL_MAX_K = 100
"""Passages that an original ColBERT server gives for a query, whatever is asked for."""


@dataclass(frozen=True)
class ServerDescription:
    """What a server can do: an original ColBERT server searches only, one query at a time."""

    is_plain: bool
    max_k: int = ORIGINAL_MAX_K
    max_queries: int = 1
    max_results: int = ORIGINAL_MAX_K
    max_passages: int = 1
    max_body: int = 1 << 20


def description_of(info: Any, url: str) -> ServerDescription:
    """What the answer of ``/info`` says about the server.

    Raises:
        RemoteIndexError: It is not such an answer.
    """
    count_of(info, url)
    server = info.get("server")
    if not isinstance(server, dict):
        raise _malformed(url, "`server`", "is no object; is this a hopgate server?")
    if server.get("version") != 1:
        raise _malformed(
            url, "`server.version`", f"is {server.get('version')!r:.40}, and this client knows 1: update it"
        )
    limits: dict[str, int] = {}
    for name in ("max_k", "max_queries", "max_results", "max_passages", "max_body"):
        value = server.get(name)
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value < 1 << 60:
            raise _malformed(url, f"`server.{name}`", f"is {value!r:.40}, no positive whole number")
        limits[name] = value
    return ServerDescription(False, **limits)


def count_of(info: Any, url: str) -> int:
    """The number of passages, out of the answer of ``/info``.

    Raises:
        RemoteIndexError: It is not such an answer.
    """
    count = _field(info, "passages", url)
    if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count < 1 << 60:
        raise _malformed(url, "`passages`", f"is {count!r:.40}, no number of passages")
    return count


def found_of(answer: Any, queries: int, k: int, url: str) -> list[list[Passage]]:
    """The results of ``/search_many``.

    Raises:
        RemoteIndexError: They are not results for so many queries and passages: one has no score, is better than the
            one before it, or occurs twice.
    """
    results = _list(_field(answer, "results", url), url, "`results`")
    if len(results) != queries:
        raise _malformed(url, "`results`", f"has {len(results):,} lists for {queries:,} queries")
    return [_ranking(one, k, url, f"`results[{number}]") for number, one in enumerate(results)]


def passages_of(answer: Any, ids: Sequence[str], url: str) -> list[Passage]:
    """The passages of ``/passages``.

    Raises:
        RemoteIndexError: They are not those that were asked for.
    """
    passages = _records(_field(answer, "passages", url), len(ids), url, "`passages", scored=False)
    if [passage.id for passage in passages] != list(ids):
        raise _malformed(url, "`passages`", "are not those that were asked for")
    return passages


def scores_of(answer: Any, count: int, url: str) -> list[float]:
    """The scores of ``/rerank``, in the order in which the passages were given.

    Raises:
        RemoteIndexError: There is not exactly one for each passage.
    """
    results = _list(_field(answer, "results", url), url, "`results`")
    scores: dict[int, float] = {}
    for number, result in enumerate(results):
        where = f"`results[{number}]`"
        place = _field(result, "index", url, where)
        if isinstance(place, bool) or not isinstance(place, int) or not 0 <= place < count or place in scores:
            raise _malformed(url, where, f"has the index {place!r:.40}, which is out of range or repeated")
        scores[place] = _score(_field(result, "score", url, where), url, where)
    if len(scores) != count:
        raise _malformed(url, "`results`", f"has {len(scores):,} scores for {count:,} passages")
    return [scores[place] for place in range(count)]


def plain_topk(answer: Any, k: int, url: str) -> list[Passage]:
    """The answer of an original ColBERT server: ``topk`` with ``text`` (``title | text``), ``pid`` and ``score``.

    Raises:
        RemoteIndexError: It is not such an answer.
    """
    if isinstance(answer, dict) and answer.get("error"):
        raise RemoteIndexError(f"{url}: the server says that it failed: {answer.get('message')!r:.300}", status=200)
    found: list[Passage] = []
    for number, item in enumerate(_list(_field(answer, "topk", url), url, "`topk`")[:k]):
        where = f"`topk[{number}]`"
        identifier = _field(item, "pid", url, where)
        if isinstance(identifier, bool) or not isinstance(identifier, str | int):
            raise _malformed(url, where, f"has the pid {identifier!r:.40}, no number or string")
        title, separator, text = _text(item, "text", url, where).partition(" | ")
        score = _score(_field(item, "score", url, where), url, where)
        identifier = _short(identifier, url, where) if isinstance(identifier, int) else _text(item, "pid", url, where)
        found.append(Passage(identifier, title, text, score) if separator else Passage(identifier, "", title, score))
    return found


def _ranking(value: Any, k: int, url: str, name: str) -> list[Passage]:
    found = _records(value, k, url, name, scored=True)
    seen: set[str] = set()
    best = math.inf
    for number, passage in enumerate(found):
        where, score = f"{name}[{number}]`", passage.score
        if score is None or score > best:
            raise _malformed(url, where, "has no `score`" if score is None else "is better than the one before it")
        if passage.id in seen:
            raise _malformed(url, where, f"has the id {passage.id!r:.40} a second time")
        seen.add(passage.id)
        best = score
    return found


def _records(value: Any, most: int, url: str, name: str, *, scored: bool) -> list[Passage]:
    records = _list(value, url, f"{name}`")
    if len(records) > most:
        raise _malformed(url, f"{name}`", f"has {len(records):,} passages, where {most:,} were asked for")
    return [_passage(record, url, f"{name}[{number}]`", scored) for number, record in enumerate(records)]


def _passage(record: Any, url: str, where: str, scored: bool) -> Passage:
    identifier, title, text = (_text(record, name, url, where) for name in ("id", "title", "text"))
    score = record.get("score")
    metadata = record.get("metadata")
    fault = None if metadata is None else metadata_fault(metadata)
    if fault is not None:
        raise _malformed(url, where, f"has `metadata` that cannot be used: it {fault}")
    number = None if score is None or not scored else _score(score, url, where)
    return Passage(identifier, title, text, number, metadata or {})


def _text(record: Any, name: str, url: str, where: str) -> str:
    value = _field(record, name, url, where)
    if not isinstance(value, str) or is_broken(value):
        raise _malformed(url, where, f"has `{name}` that is no text")
    return value


def _score(value: Any, url: str, where: str) -> float:
    try:
        number = math.nan if isinstance(value, bool) or not isinstance(value, int | float) else float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise _malformed(url, where, f"has the score {type(value).__name__} {value!r:.40}, which is no finite number")
    return number


def _short(number: int, url: str, where: str) -> str:
    if abs(number) >= 1 << 63:
        raise _malformed(url, where, "has a pid of more than 64 bits")
    return str(number)


def _field(record: Any, name: str, url: str, where: str = "the answer") -> Any:
    if not isinstance(record, dict) or name not in record:
        raise _malformed(url, where, f"has no `{name}`")
    return record[name]


def _list(value: Any, url: str, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise _malformed(url, where, "is no list")
    return value


def _malformed(url: str, where: str, fault: str) -> RemoteIndexError:
    return RemoteIndexError(f"{url}: malformed answer: {where} {fault}", status=200)
