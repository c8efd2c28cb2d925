"""Splitting documents into passages: where they are cut, what they repeat, and that nothing is lost."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hopgate.core import CorpusError, InputError, Passage
from hopgate.index.splitting import split_passages

PIECES = [
    *(". ", "! ", "? ", '"', " ", "\n", "\n\n", "\r\n", "\xa0", "\u2028", "\u3000", "\t", ", ", "(", ")", "1. ", "* "),
    *("Dr. ", "e.g. ", "J.\xa0B. ", "The king slept. ", "Sie ging. ", "中文。", "日本語", "ไทย", "é", "🙂", "e\u0301"),
    *("x" * 60, "word ", "Paris was built. ", "\0"),
]
texts = st.lists(st.sampled_from(PIECES) | st.text(max_size=4), max_size=60).map("".join)


def split(text: str, words: int, overlap: int = 0, **metadata: Any) -> list[Passage]:
    return list(split_passages([Passage("d", "T", text, metadata=metadata)], words=words, overlap=overlap))


def parts(text: str, words: int, overlap: int = 0) -> list[str]:
    return [passage.text for passage in split(text, words, overlap)]


@settings(max_examples=150, deadline=None)
@given(text=texts, data=st.data())
def test_nothing_is_lost_and_every_part_stands_in_the_document(text: str, data: st.DataObject) -> None:
    words = data.draw(st.integers(1, 12))
    overlap = data.draw(st.integers(0, words - 1))
    found = split(text, words, overlap, year=1)
    if found == [Passage("d", "T", text, metadata={"year": 1})]:
        assert len(text.split()) <= words
        return
    assert [passage.id for passage in found] == [f"d#{number}" for number in range(len(found))]
    covered = [False] * len(text)
    for passage in found:
        start, end = passage.metadata["start"], passage.metadata["end"]
        assert passage.text == text[start:end] and passage.text == passage.text.strip() != ""
        assert passage.title == "T"
        assert passage.metadata == {"year": 1, "document": "d", "start": start, "end": end}
        assert len(passage.text.split()) <= words
        covered[start:end] = [True] * (end - start)
    assert all(seen or character.isspace() for seen, character in zip(covered, text, strict=True))
    for one, two in pairwise(found):
        assert one.metadata["start"] < two.metadata["start"] and one.metadata["end"] < two.metadata["end"]
        assert len(text[two.metadata["start"] : one.metadata["end"]].split()) <= overlap


def test_cuts_at_sentence_ends_and_repeats_whole_sentences() -> None:
    text = (
        "Dr. Smith met J. K. Rowling. She wrote books, e.g. novels.  They left at 5 p.m. for Rome! Why?\nNobody knows."
    )
    first, second, third, fourth = (
        "Dr. Smith met J. K. Rowling.",
        "She wrote books, e.g. novels.",
        "They left at 5 p.m. for Rome! Why?",
        "Nobody knows.",
    )
    assert parts(text, 11) == [f"{first} {second}", f"{third}\nNobody knows."]
    assert parts(text, 12, 5) == [f"{first} {second}", f"{second}  They left at 5 p.m. for Rome!", f"Why?\n{fourth}"]
    assert parts(text, 30) == [text]
    assert third in parts(text, 9)


def test_a_sentence_that_is_too_long_is_cut_between_words() -> None:
    assert parts("a b c d e f g", 3) == ["a b c", "d e f", "g"]
    assert parts("a b c d e f g", 3, 1) == ["a b c", "c d e", "e f g"]
    assert parts("Yes. a b c d e", 3) == ["Yes. a b", "c d e"]


def test_scripts_without_spaces() -> None:
    assert parts("这是第一句。这是第二句。第三。", 12) == ["这是第一句。这是第二句。", "第三。"]
    assert parts("一二三四五六七", 3, 1) == ["一二三", "三四五", "五六七"]
    assert parts("x" * 120, 1) == ["x" * 50, "x" * 50, "x" * 20]


def test_a_document_that_fits_is_passed_on() -> None:
    document = Passage("d", "T", "  Three short words.\n", metadata={"start": "own"})
    assert next(split_passages([document], words=3, overlap=0)) is document
    assert list(split_passages([Passage("e", "", "")], words=3, overlap=0)) == [Passage("e", "", "")]


def test_long_documents() -> None:
    sentence = "The king of the north built a tower by the sea. "
    found = parts(sentence * 3000, 110, 11)
    assert len(found) == 334 and all(part.endswith("sea.") and part.startswith("The") for part in found)
    unpunctuated = parts("word " * 30_000, 100)
    assert len(unpunctuated) == 300
    chinese = parts("中文。" * 10_000, 300)  # the segmenter alone takes a minute for it
    assert len(chinese) == 100 and {len(part) for part in chinese} == {300}
    assert parts("\n" * 50_000 + "a b c", 2) == ["a b", "c"]


def test_a_crash_of_the_segmenter_does_not_stop_a_build(monkeypatch: pytest.MonkeyPatch) -> None:
    class PanicException(BaseException):
        """Like that of a Rust extension, which cannot be imported."""

    def segment(language: str, text: str) -> list[str]:
        raise PanicException

    monkeypatch.setattr("sentencex.segment", segment)
    assert parts("A b. C d. " * 1000, 3)[:2] == ["A b. C", "d. A b."]


def test_is_streamed() -> None:
    def documents() -> Iterator[Passage]:
        yield Passage("d", "", "a b c d")
        raise AssertionError("read too early")

    found = split_passages(documents(), words=2, overlap=0)
    assert [next(found).text, next(found).text] == ["a b", "c d"]


def test_language() -> None:
    document = Passage("d", "", "Das gilt z. B. Hunden. Er ging.")
    found = split_passages([document], words=5, overlap=0, language="de")
    assert [passage.text for passage in found] == ["Das gilt z. B. Hunden.", "Er ging."]


@pytest.mark.parametrize(("words", "overlap"), [(0, 0), (True, 0), (1.5, 0), (3, 3), (3, -1), (3, None), (3, True)])
def test_impossible_lengths(words: Any, overlap: Any) -> None:
    with pytest.raises(InputError):
        split_passages([], words=words, overlap=overlap)


def test_what_cannot_be_split() -> None:
    with pytest.raises(CorpusError, match="metadata `end`"):
        split("a b c", 2, end=3)
    with pytest.raises(CorpusError, match="surrogate pair in document 'd'"):
        split("a b \ud800", 2)
    with pytest.raises(InputError, match="a str cannot be split"):
        list(split_passages(["text"], words=2, overlap=0))  # type: ignore[list-item]
