"""Conformance tests for retrievers and indexes of your own; needs pytest.

Subclass one of the classes in a test module and define the fixture ``retriever``, over the passages of
:func:`conformance_corpus`::

    class TestMyIndex(IndexConformance):
        @pytest.fixture
        def retriever(self) -> MyIndex:
            return MyIndex(conformance_corpus())

The fixture may have any scope: the tests change nothing about a retriever. For failures that show the values compared,
put ``pytest.register_assert_rewrite("hopgate.index.testing")`` into ``conftest.py``.
"""

# ruff: noqa: S101 - a test is made of assertions

from __future__ import annotations

import copy
import json
import math
import pickle
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ..core import InputError, MissingDependencyError, Passage

try:
    import pytest
except ImportError as error:
    raise MissingDependencyError("hopgate.index.testing needs pytest; install it with: pip install pytest") from error

TWINS = ("twin-a", "twin-b", "twin-c")
"""Ids of passages with the same title and text, which no score can tell apart; the corpus has them in reverse order."""

_SUBJECTS = ("river", "bridge", "king", "song", "tower", "ship", "mountain", "film", "book", "city")
_EVENTS = ("was built in the north", "won the war", "is by the sea", "was lost in a year", "was born in the east")
_ODD_QUERIES = ("?", "\0", "日本 🙂 é", "x" * 10_000, "who\nwon\tthe war", '"; DROP TABLE passages; --', "[MASK] [PAD]")


def conformance_corpus() -> list[Passage]:
    """58 passages: plain ones, twins, and ones whose texts are easily damaged on their way."""
    plain = [
        Passage(f"p{number}", f"The {subject} {number}", f"The {subject} of number {number} {event}. " * 3)
        for number, (subject, event) in enumerate((s, e) for s in _SUBJECTS for e in _EVENTS)
    ]
    twins = [Passage(identifier, "Twins", "The same words as the others.") for identifier in reversed(TWINS)]
    odd = [
        Passage("odd/1", "", "A passage without a title | but with a bar."),
        Passage("odd 2", "A | B", "日本語のテキスト, Ελληνικά, עברית, e\u0301 and 🙂👩‍👩‍👧."),
        Passage("odd?3=&#%", "Line\u2028ends\x85", "First line\nsecond\r\nthird\ttabbed \u200b\ufeff end"),
        Passage("0", "Quotes", 'He said: "\\n is no line end", \\u0041 & <b>&amp;</b>.'),
        Passage("ідентифікатор", "NUL", "before\0after \x01\x1b[31mred\x7f"),
    ]
    return [*plain[:25], *twins, *plain[25:], *odd]


class RetrieverConformance:
    """What anything must do that a program uses as a retriever: ``search(query, k)``, or a function.

    A retriever may return passages, strings, or dictionaries with ``text`` or ``long_text``.

    Attributes:
        own_text_within: Each passage must be among so many results when its own text is searched for.
        keeps_fields: Whether id, title and text come back as they were; without it only texts are compared, as
            ``title | text``.
        gives_all: Whether a ``k`` beyond the corpus gives every passage.
        pickles: Whether the retriever can be pickled.
    """

    own_text_within: int = 1
    keeps_fields: bool = True
    gives_all: bool = True
    pickles: bool = True

    @pytest.fixture
    def retriever(self) -> Any:
        """The retriever to test, over :func:`conformance_corpus`; define this in the subclass."""
        pytest.fail(f"{type(self).__name__} must define the fixture `retriever`")

    @pytest.mark.parametrize("k", [1, 2, 3, 7, 40])
    def test_gives_k_passages(self, retriever: Any, k: int) -> None:
        found = _search(retriever, "who won the war", k)
        assert len(found) == k if self.gives_all else len(found) <= k

    def test_gives_all_if_there_are_fewer(self, retriever: Any) -> None:
        corpus = conformance_corpus()
        for k in (len(corpus), len(corpus) + 1, 1000):
            found = _search(retriever, "the king", k)
            assert len(found) <= len(corpus)
            if self.gives_all:
                assert sorted(self._shown(passage) for passage in found) == sorted(map(self._shown, corpus))

    def test_passages_come_back_as_they_were(self, retriever: Any) -> None:
        known = {self._shown(passage) for passage in conformance_corpus()}
        for query in ("the song of the sea", "日本 🙂", "a passage without a title"):
            for passage in _search(retriever, query, 60):
                assert self._shown(passage) in known

    def test_finds_a_passage_by_its_own_text(self, retriever: Any) -> None:
        for passage in conformance_corpus():
            found = _search(retriever, passage.long_text, self.own_text_within + len(TWINS) - 1)
            # Twins are equally good, so that each may stand before the others.
            wanted = self._shown(passage)
            within = [self._shown(one) for one in found]
            assert wanted in (within if passage.id in TWINS else within[: self.own_text_within])

    def test_scores_are_finite_and_best_come_first(self, retriever: Any) -> None:
        for query in ("who won the war", "日本", "x"):
            scores = [passage.score for passage in _search(retriever, query, 60) if passage.score is not None]
            assert all(math.isfinite(score) for score in scores)
            assert scores == sorted(scores, reverse=True)

    def test_gives_no_passage_twice(self, retriever: Any) -> None:
        for query in ("who won the war", "the same words", "x"):
            ids = [passage.id for passage in _search(retriever, query, 60)]
            assert not self.keeps_fields or len(ids) == len(set(ids))

    def test_same_question_same_answer(self, retriever: Any) -> None:
        assert _search(retriever, "a ship by the sea", 10) == _search(retriever, "a ship by the sea", 10)

    def test_k_does_not_leak_from_call_to_call(self, retriever: Any) -> None:
        query = "the tower in the north"
        alone = _search(retriever, query, 5)
        larger = _search(retriever, query, 50)
        assert _search(retriever, query, 5) == alone
        assert _search(retriever, "another bridge", 1) == _search(retriever, "another bridge", 1)
        assert _search(retriever, query, 50) == larger

    def test_odd_queries(self, retriever: Any) -> None:
        for query in _ODD_QUERIES:
            assert len(_search(retriever, query, 3)) <= 3

    def test_results_belong_to_the_caller(self, retriever: Any) -> None:
        query = "the film of the year"
        before = _search(retriever, query, 4)
        found = _found(retriever, query, 4)
        if isinstance(found, list):
            found.clear()
        assert _search(retriever, query, 4) == before

    def test_threads_get_what_one_gets(self, retriever: Any) -> None:
        queries = [f"who lost the {subject}" for subject in _SUBJECTS]
        expected = [_search(retriever, query, 5) for query in queries]
        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(lambda query: _search(retriever, query, 5), queries * 3)) == expected * 3

    def test_copies_search_alike(self, retriever: Any) -> None:
        expected = _search(retriever, "who built the bridge", 5)
        for copied in (copy.copy(retriever), copy.deepcopy(retriever), copy.deepcopy({"inside": retriever})["inside"]):
            assert _search(copied, "who built the bridge", 5) == expected

    def test_pickles_search_alike(self, retriever: Any) -> None:
        if not self.pickles:
            pytest.skip("`pickles` is off: this retriever cannot be pickled")
        again = pickle.loads(pickle.dumps(retriever))
        assert _search(again, "who built the bridge", 5) == _search(retriever, "who built the bridge", 5)

    def test_is_silent(self, retriever: Any, capfd: pytest.CaptureFixture[str]) -> None:
        _search(retriever, "an unheard-of question", 3)
        captured = capfd.readouterr()
        assert (captured.out, captured.err) == ("", "")

    def _shown(self, passage: Passage) -> tuple[str, ...]:
        return (passage.id, passage.title, passage.text) if self.keeps_fields else (passage.long_text,)


class IndexConformance(RetrieverConformance):
    """What a :class:`hopgate.index.PassageIndex` must do beyond that.

    Attributes:
        predicates: Whether a filter may be a predicate; else one must be refused with InputError.
    """

    predicates: bool = True

    @pytest.mark.parametrize("k", [0, -1, True, 2.0, "3", None])
    def test_refuses_a_k_that_is_no_number_of_passages(self, retriever: Any, k: Any) -> None:
        for search in (lambda: retriever.search("who", k=k), lambda: retriever.search_many(["who"], k=k)):
            with pytest.raises(InputError, match="k must be"):
                search()

    @pytest.mark.parametrize("query", ["", " \n", None, 3, b"who", "x" * 10_001, "\ud800 x"])
    def test_refuses_what_is_no_query(self, retriever: Any, query: Any) -> None:
        calls = (
            lambda: retriever.search(query),
            lambda: retriever.search_many(["who", query]),
            lambda: retriever.rerank(query, conformance_corpus()[:2]),
            lambda: retriever(query),
        )
        for call in calls:
            with pytest.raises(InputError):
                call()

    def test_many_queries_get_what_each_gets(self, retriever: Any) -> None:
        queries = [f"the {subject}" for subject in _SUBJECTS] + ["日本", "the river"]
        assert retriever.search_many(queries, 4) == [retriever.search(query, 4) for query in queries]
        assert retriever.search_many(tuple(queries[:2])) == [retriever.search(query) for query in queries[:2]]
        assert retriever.search_many([], 4) == []
        for bad in ("the river", None, 3):
            with pytest.raises(InputError):
                retriever.search_many(bad)

    def test_smaller_id_first_where_scores_are_equal(self, retriever: Any) -> None:
        found = retriever.search("The same words as the others", 60)
        assert [passage.id for passage in found if passage.id in TWINS] == list(TWINS)
        assert found == sorted(found, key=lambda passage: (-passage.score, passage.id))
        best = [passage.id for passage in retriever.search("Twins | The same words as the others.", 2)]
        assert not set(best) & set(TWINS) or [one for one in best if one in TWINS] == list(TWINS)[: len(best)]

    def test_filter_by_ids(self, retriever: Any) -> None:
        chosen = ["p3", "twin-b", "odd 2", "p40", "unknown"]
        everything = [passage for passage in retriever.search("who won", 100) if passage.id in chosen]
        for given in (chosen, tuple(chosen), set(chosen), (one for one in chosen), chosen * 2):
            found = retriever.search("who won", 10, filter=given)
            assert {passage.id for passage in found} == set(chosen) - {"unknown"}
            assert [passage.score for passage in found] == sorted((one.score for one in found), reverse=True)
        assert {passage.id for passage in everything} == set(chosen) - {"unknown"}
        assert [passage.id for passage in retriever.search("who won", 1, filter=["p40"])] == ["p40"]
        assert retriever.search("who won", 3, filter=[]) == []
        assert retriever.search("who won", 3, filter=["unknown"]) == []
        many = retriever.search_many(["who won", "the sea"], 2, filter=chosen)
        assert many == [retriever.search(query, 2, filter=chosen) for query in ("who won", "the sea")]
        assert len(retriever.search("who won", 20)) == 20

    def test_refuses_what_is_no_filter(self, retriever: Any) -> None:
        for bad in ("p3", 3, ["p3", 3], {"id": "p3"}):
            with pytest.raises(InputError):
                retriever.search("who won", filter=bad)

    def test_filter_by_metadata(self, retriever: Any) -> None:
        if not self.predicates:
            with pytest.raises(InputError, match="predicate"):
                retriever.search("who won", 3, filter=lambda metadata: True)
            return
        assert retriever.search("who won", 3, filter=lambda metadata: True) == retriever.search("who won", 3)
        assert retriever.search("who won", 3, filter=lambda metadata: "colour" in metadata) == []

    def test_reranks(self, retriever: Any) -> None:
        query, corpus = "who won the war", conformance_corpus()
        ranked = retriever.rerank(query, corpus)
        assert sorted(self._shown(passage) for passage in ranked) == sorted(map(self._shown, corpus))
        scores = [passage.score for passage in ranked]
        assert all(math.isfinite(score) for score in scores) and scores == sorted(scores, reverse=True)
        assert retriever.rerank(query, ranked[::-1])[0].score == ranked[0].score
        assert retriever.rerank(query, []) == []

    def test_reranks_passages_from_elsewhere(self, retriever: Any) -> None:
        foreign = [
            Passage("z", "", "same"),
            Passage("p1", "Another", "text under a known id"),
            Passage("a", "", "same"),
            Passage("m", "日本", "🙂", 7.5, {"source": "elsewhere"}),
        ]
        ranked = retriever.rerank("the king", foreign)
        assert {passage.with_score(None) for passage in ranked} == {passage.with_score(None) for passage in foreign}
        # Of equal scores in the order given.
        assert [passage.id for passage in ranked if passage.text == "same"] == ["z", "a"]
        twice = retriever.rerank("the king", [foreign[0], foreign[0]])
        assert len(twice) == 2 and twice[0] == twice[1]
        for bad in (None, "same", ["same"], [Passage("1", "", "\ud800")]):
            with pytest.raises(InputError):
                retriever.rerank("the king", bad)

    def test_looks_passages_up(self, retriever: Any) -> None:
        corpus = {passage.id: passage for passage in conformance_corpus()}
        ids = [*corpus, "p3", "p3"]
        assert retriever.passages(ids) == [corpus[one] for one in ids]
        assert retriever.passages(one for one in ("p2", "p1")) == [corpus["p2"], corpus["p1"]]
        assert retriever.passages([]) == []
        for bad in (["p1", "unknown"], "p1", None, [3]):
            with pytest.raises(InputError):
                retriever.passages(bad)

    def test_says_what_it_holds(self, retriever: Any) -> None:
        info = retriever.info()
        assert info["passages"] == len(retriever) == len(conformance_corpus())
        assert json.loads(json.dumps(info, allow_nan=False)) == info

    def test_is_a_tool_that_returns_texts(self, retriever: Any) -> None:
        assert retriever("who won the war") == [passage.long_text for passage in retriever.search("who won the war")]
        assert isinstance(retriever.__name__, str) and retriever.__doc__


def _found(retriever: Any, query: str, k: int) -> Any:
    search = getattr(retriever, "search", None)
    return search(query, k=k) if callable(search) else retriever(query, k=k)


def _search(retriever: Any, query: str, k: int) -> list[Passage]:
    found = _found(retriever, query, k)
    items = getattr(found, "passages", found)
    assert isinstance(items, Sequence) and not isinstance(items, str), f"no list of passages: {found!r:.200}"
    return [_passage(item) for item in items]


def _passage(item: Any) -> Passage:
    if isinstance(item, Passage):
        return item
    if isinstance(item, Mapping):
        text = item.get("text") or item.get("long_text") or ""
        title, identifier, score = item.get("title") or "", item.get("id", item.get("pid", text)), item.get("score")
        return Passage(str(identifier), str(title), str(text), None if score is None else float(score))
    assert isinstance(item, str), f"no passage, string or dictionary: {item!r:.200}"
    return Passage(item, "", item)
