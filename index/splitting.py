"""Long documents as passages that end where sentences end."""

from __future__ import annotations

import itertools
import re
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ..core import CorpusError, InputError, Passage

_PLACE = ("document", "start", "end")

# Scripts without spaces between words: Thai to Burmese, Khmer, and Chinese and Japanese with their punctuation.
_UNSPACED = r"\u0e00-\u109f\u1780-\u17ff\u2e80-\u2fff\u3001-\u9fff\uf900-\ufaff\uff01-\uff65\U00020000-\U0003ffff"
_has_unspaced = re.compile(f"[{_UNSPACED}]")
_any_word = re.compile(rf"[^\s{_UNSPACED}]{{1,50}}|[{_UNSPACED}]")
_spaced_word = re.compile(r"\S{1,50}")  # the same where none of those scripts occur, and several times as fast

# sentencex takes every white space for one byte, and its time grows with the square of the sentences at a time.
_BLANKS = {code: " " for code in range(0x3001) if chr(code).isspace() and chr(code) != "\n"}
_WINDOW = 4000


@dataclass(frozen=True, slots=True)
class _Unit:
    """What is not cut: a sentence, or a word of a sentence that is too long."""

    start: int
    end: int
    words: int


def split_passages(passages: Iterable[Passage], *, words: int, overlap: int, language: str = "en") -> Iterator[Passage]:
    """Cut documents longer than a number of words into passages, one document at a time.

    A passage ends at the end of a sentence and begins with the last sentences of the one before it, as many as
    ``overlap`` allows. Only a sentence longer than ``words`` is cut between words, and repeats words. Each text is a
    part of the document exactly as it stands there; nothing but white space at the cuts is left out.

    A word is a run of characters without white space; a run longer than 50 characters counts as several. In scripts
    that do not put spaces between words, such as the Chinese and Japanese ones, each character counts as a word.

    Args:
        passages: The documents.
        words: Words that a passage may have, at least 1. ColBERT reads some 220 tokens of a passage, about 150 words.
        overlap: Words that a passage may repeat from the one before, less than ``words``.
        language: ISO 639 code, for the abbreviations that do not end a sentence; that of English works for most.

    Yields:
        The parts of a document with ids ``DOCUMENT#0``, ``DOCUMENT#1`` and so on, the document's title and, in the
        metadata beside that of the document: ``document``, its id, and ``start`` and ``end``, the part's characters.
        A document that is not longer than ``words`` is passed on as it is.

    Raises:
        InputError: A number has no possible value, or something is not a passage.
        CorpusError: A document to cut holds broken characters, or has metadata by one of the three names.
    """
    check_lengths(words, overlap)
    return (part for passage in passages for part in _parts(passage, words, overlap, language))


def check_lengths(words: int, overlap: int) -> None:
    """Raise InputError unless passages can have that many words and repeat that many."""
    if isinstance(words, bool) or not isinstance(words, int) or words < 1:
        raise InputError(f"a passage must have at least 1 word, got {words!r:.80}")
    if isinstance(overlap, bool) or not isinstance(overlap, int) or not 0 <= overlap < words:
        raise InputError(
            f"the overlap must be at least 0 words and less than a passage has, {words}, got {overlap!r:.80}"
        )


def _parts(passage: Passage, words: int, overlap: int, language: str) -> Iterator[Passage]:
    if not isinstance(passage, Passage):
        raise InputError(f"a {type(passage).__name__} cannot be split; give hopgate.core.Passage objects")
    text = passage.text
    if next(itertools.islice(_word(text).finditer(text), words, None), None) is None:
        yield passage
        return
    taken = [name for name in _PLACE if name in passage.metadata]
    if taken:
        raise CorpusError(
            f"document {passage.id!r} is to be split and has metadata `{taken[0]}`, which tells the place of a "
            "passage; rename it or leave it out"
        )
    try:
        for number, (start, end) in enumerate(_cuts(_units(text, words, language), words, overlap)):
            place = dict(zip(_PLACE, (passage.id, start, end), strict=True))
            yield Passage(
                f"{passage.id}#{number}", passage.title, text[start:end], metadata={**passage.metadata, **place}
            )
    except UnicodeEncodeError as error:
        raise CorpusError(f"half of a surrogate pair in document {passage.id!r}; replace the character") from error


def _cuts(units: Iterable[_Unit], words: int, overlap: int) -> Iterator[tuple[int, int]]:
    """Where the passages begin and end."""
    held: deque[_Unit] = deque()
    total = 0
    for unit in units:
        if total + unit.words > words:
            yield held[0].start, held[-1].end
            while held and (total > overlap or total + unit.words > words):
                total -= held.popleft().words
        held.append(unit)
        total += unit.words
    if held:
        yield held[0].start, held[-1].end


def _word(text: str) -> re.Pattern[str]:
    """The pattern of a word in a text."""
    return _any_word if _has_unspaced.search(text) else _spaced_word


def _units(text: str, words: int, language: str) -> Iterator[_Unit]:
    word, start = _word(text), 0
    for end in _sentence_ends(text, language):
        spans = [match.span() for match in word.finditer(text, start, end)]
        if len(spans) > words:
            yield from (_Unit(first, last, 1) for first, last in spans)
        elif spans:
            yield _Unit(spans[0][0], spans[-1][1], len(spans))
        start = end


def _sentence_ends(text: str, language: str) -> Iterator[int]:
    start, size = 0, _WINDOW
    while start < len(text):
        lengths = _sentence_lengths(text[start : start + size], language)
        if start + size < len(text):
            if len(lengths) == 1:  # The sentence may go on behind the window.
                size *= 2
                continue
            lengths.pop()
        for length in lengths:
            start += length
            yield start
        size = _WINDOW


def _sentence_lengths(text: str, language: str) -> list[int]:
    """The lengths of a text's sentences, with the white space behind them; one if they cannot be told."""
    import sentencex

    try:
        sentences: list[str] = sentencex.segment(language, text.translate(_BLANKS))  # pyright: ignore[reportAttributeAccessIssue]
        lengths = [len(sentence) for sentence in sentences]
    except BaseException as error:
        # A panic of its Rust code, which is no Exception: a text without sentences is cut between words.
        if isinstance(error, Exception) or type(error).__name__ != "PanicException":
            raise
        return [len(text)]
    return lengths if sum(lengths) == len(text) else [len(text)]
