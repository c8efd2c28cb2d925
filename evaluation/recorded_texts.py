"""Texts for run files, which hold neither questions nor passages of a data set, whatever an LM has copied of them."""

from __future__ import annotations

from collections.abc import Iterable

from ..core import Passage
from .run_schema import QUESTION

LEAST = 30
"""Characters that the beginning of a question has at least to be found in a message."""

QUOTED = 100
"""Characters from which on a text that stands in a passage word for word is a data set's rather than the LM's."""
_SHOWN = 90
_MARK = " ..."


def without_question(text: str, question: str) -> str:
    """A text in which the question, also in quotation marks or cut at its end, is replaced by ``{question}``.

    Args:
        text: What an LM or a program wrote.
        question: The question of a data set, which a run file must not hold.
    """
    for form in (question, repr(question)[1:-1]):
        if form:
            text = text.replace(form, QUESTION)
    # If a beginning occurs, so do all shorter ones.
    low, high = LEAST - 1, len(question)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if question[:middle] in text else (low, middle - 1)
    return text.replace(question[:low], QUESTION) if low >= LEAST else text


def without_quotes(text: str, passages: Iterable[Passage]) -> str:
    """A text in which what a passage says word for word, over 100 characters or more, is cut to its first 90.

    Args:
        text: What an LM wrote, which may copy sentences that it has read.
        passages: What it has read.
    """
    sources = [source for passage in passages for source in (passage.long_text, passage.text)]
    while (quote := _quote(text, sources)) is not None:
        start, end = quote
        text = text[: start + _SHOWN].rstrip() + _MARK + text[end:]  # shorter each time, so this ends
    return text


def _quote(text: str, sources: list[str]) -> tuple[int, int] | None:
    """Where the first long quotation stands in a text, as [start, end)."""
    half = QUOTED // 2
    # Each stretch of QUOTED characters holds one of these blocks whole.
    for block in range(0, len(text) - half + 1, half):
        near = [source for source in sources if text[block : block + half] in source]
        for start in range(max(0, block - half + 1), min(block, len(text) - QUOTED) + 1) if near else ():
            end = start + QUOTED
            holding = [source for source in near if text[start:end] in source]
            if holding:
                while end < len(text) and any(text[start : end + 1] in source for source in holding):
                    end += 1
                return start, end
    return None


def recorded_answer(text: str, question: str, passages: Iterable[Passage] = ()) -> str:
    """An answer or draft for a run file: the whole question within it becomes ``{question}``.

    Unlike :func:`without_question`, it leaves a beginning of the question alone: scores and diagnoses are of the very
    words of an answer, which :func:`joined_answer` must give back. Only long quotations of passages are lost.

    Args:
        text: What an LM answered.
        question: The question of a data set.
        passages: What the LM has read, see :func:`without_quotes`.
    """
    return without_quotes(text.replace(question, QUESTION), passages)


def joined_answer(text: str, question: str) -> str:
    """An answer of a run file with the question's text in the place of ``{question}``."""
    return text.replace(QUESTION, question)


def shortened(text: str) -> str:
    """A text that might be a quotation of something unknown: cut as one that is."""
    return text if len(text) < QUOTED else text[:_SHOWN].rstrip() + _MARK
