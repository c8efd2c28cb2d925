"""Reasoning that is written sentence by sentence, as IRCoT and FLARE do it and chain of thought shows it.

The text is that of both papers: the passages, then the question's sentences so far. Only the sentences grow, and they
are short, so that little of a prompt is read anew when further passages come before them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from pydantic import Field

from ..core import Passage
from ..core.texts import encodable
from .settings import ExampleSettings
from .trajectory import Hop, Trajectory
from .transcript import found, line, shorten
from .worked_examples import DEFAULT_EXAMPLES

_STATED = re.compile(r"\banswer is\b\s*:?\s*(.*)", re.IGNORECASE)


class ChainSettings(ExampleSettings):
    """Settings of programs that reason sentence by sentence.

    Attributes:
        max_hops: Limit on sentences; 8 is that of IRCoT (Trivedi et al. 2023, section 3).
        context_words: Words of passages that a trajectory may hold before no further sentence follows.
    """

    max_hops: int = Field(default=8, ge=1, le=50)
    context_words: int = Field(default=1500, ge=50)


def _in_sentences(example: Trajectory, *sentences: str) -> Trajectory:
    hops = [replace(hop, answer=text) for hop, text in zip(example.hops, sentences, strict=True)]
    return replace(example, hops=tuple(hops))


CHAIN_EXAMPLES: tuple[Trajectory, ...] = (
    _in_sentences(
        DEFAULT_EXAMPLES[0],
        "The architect of the Halden Lighthouse was Ivar Brenne.",
        "Ivar Brenne was born in 1868.",
    ),
    _in_sentences(
        DEFAULT_EXAMPLES[1],
        "Johannes Brahms was from Germany.",
        "Giuseppe Verdi was from Italy.",
    ),
    _in_sentences(
        DEFAULT_EXAMPLES[2],
        "The singer of the ballad Quiet Harbour is Lena Ostrow.",
        "Lena Ostrow was treasurer of the town Torvik.",
        "Torvik lies on the river Aune.",
    ),
)
"""The worked examples with a sentence for each hop's conclusion."""


def sentences(example: Trajectory) -> list[str]:
    """A worked example's reasoning, which ends with a sentence of its own that states the answer.

    Of a program that concludes in a word or two, its sub-questions are part of it.
    """
    texts = [_sentence(hop) for hop in example.hops if hop.answer]
    return texts if texts and finishes(texts[-1]) else [*texts, f"So the answer is: {example.answer}."]


def _sentence(hop: Hop) -> str:
    return (
        hop.answer if hop.answer.endswith((".", "!")) or not hop.sub_question else f"{hop.sub_question} {hop.answer}."
    )


def first_sentence(text: str | None) -> str:
    """The first sentence of what an LM wrote; the rest is left out (Trivedi et al. 2023, section 3.1)."""
    # Imported late: most programs do not need it.
    import sentencex

    text = " ".join(encodable(text or "").split())
    parts: list[str] = sentencex.segment("en", text) if text else []  # pyright: ignore[reportAttributeAccessIssue]
    return next((part.strip() for part in parts if part.strip()), "")


def finishes(sentence: str) -> bool:
    """Whether a sentence states the answer, after which no further one follows."""
    return _STATED.search(sentence) is not None


def stated_answer(sentence: str) -> str:
    """The answer that a sentence states; the whole sentence if it states none."""
    match = _STATED.search(sentence)
    return (match.group(1).rstrip(" .") if match else "") or sentence


def distinct(passages: Iterable[Passage]) -> tuple[Passage, ...]:
    """The passages without repetitions, in the order in which they were found."""
    kept: dict[str, Passage] = {}
    for passage in passages:
        kept.setdefault(passage.id or passage.long_text, passage)
    return tuple(kept.values())


def chain_text(passages: Iterable[Passage], thoughts: Sequence[str], words: int) -> str:
    """The text that the next sentence continues: passages, then the sentences so far.

    Args:
        passages: What was found.
        thoughts: The sentences.
        words: Words to show of each passage.
    """
    said = [line(f"Thought {number}:", text) for number, text in enumerate(thoughts, 1)]
    return "\n".join([*found(passages, words), *said])


def chain_demos(example: Trajectory, step: str, words: int) -> list[dict[str, Any]]:
    """A worked example as demos of one step, as ``worked_examples.step_demos`` makes them.

    Args:
        example: A finished trajectory.
        step: ``think`` or ``answer``.
        words: Words to show of each passage.
    """
    shown, texts = distinct(passage for hop in example.hops for passage in hop.passages), sentences(example)
    said = chain_text(shown, texts, words)
    ends = [line("Question:", example.question), said, line("Answer:", example.answer or "")]
    shared = {"question": example.question, "transcript": "\n".join(filter(None, ends))}
    if step == "answer":
        return [{**shared, "trajectory": said, "answer": example.answer}]
    return [
        {**shared, "trajectory": chain_text(shown, texts[:number], words), "sentence": text}
        for number, text in enumerate(texts)
    ]


def words_of(passages: Iterable[Passage], words: int) -> int:
    """Words of the passages, of each at most so many."""
    return sum(len(shorten(passage.long_text, words).split()) for passage in passages)
