"""A cheap rule for answers that miss the question: another kind of answer than the question asks for.

It looks at the form alone, in English: a question that wants yes or no, a number, a date, or one of the things that it
names, and an answer that is none of these. Where the form does not tell what is wanted, the rule says nothing, and an
answer of the right kind may still be wrong. It is meant to flag few answers and those rightly: of gold answers it
should flag none.
"""

from __future__ import annotations

import re
from typing import Literal

from .normalisation import tokens
from .number_words import MONTHS, NUMBER_WORDS

Kind = Literal["yes_no", "choice", "number", "date", "thing"]
"""What a question wants: yes or no; one of the things that it names; a number; a date; a thing, so not yes or no."""

_AUXILIARY = re.compile(r"(?:is|are|was|were|do|does|did|has|have|had|can|could|will|would|should)\b", re.I)
_HEAD = re.compile(r"\b(?:which|who|whose|what|where|when|of|between)\b", re.I)
_COMPARED = re.compile(
    r"\b(?:first|last|earlie[rs]t?|later|latest|older|oldest|younger|youngest|longer|longest|shorter|larger|largest|"
    r"smaller|bigger|biggest|higher|highest|lower|taller|tallest|more|most|less|fewer|fewest|closer|nearer|farther|"
    r"further|faster|newer|better|recently|both)\b",
    re.I,
)
_OPTIONS = re.compile(r"\s*(?:the |an? )?[\"'“‘(]?[A-Z0-9]")  # noqa: RUF001
_NUMBER = re.compile(r"\bhow (?:many|old|tall)\b|\bwhat (?:is|was) the (?:total )?population\b|^what percent", re.I)
_DATE = re.compile(
    r"^when\b|^(?:(?:in|on|during|since) )?(?:what|which) (?:\w+ )?(?:year|date|month|day|century)\b", re.I
)
_YES_NO = frozenset({"yes", "no", "true", "false", "both", "neither", "none"})
_AMOUNTS = frozenset(
    "no none half several dozen dozens hundreds thousands millions once twice thrice single few couple unknown".split()  # noqa: SIM905
)
_TIMES = frozenset(
    "century centuries decade age era period war reign season spring summer autumn fall winter christmas easter today "  # noqa: SIM905
    "now present yesterday never before after during since until till when while ago bc ad bce ce monday tuesday "
    "wednesday thursday friday saturday sunday early late mid".split()
)
_IDLE = frozenset("the a an of and or in on at to for is was it by with from as".split())  # noqa: SIM905


def question_kind(question: str) -> Kind | None:
    """What a question wants, as far as its form tells.

    Args:
        question: The question, in English.

    Returns:
        The kind; ``None`` where the form does not tell.
    """
    text = question.strip()
    if _options(text) is not None:
        return "choice"
    if _AUXILIARY.match(text):
        # "Was it red or blue?" may be either, and "Is he a poet, born in which year?" is neither.
        return None if re.search(r"\bor\b|, .*\b(?:which|what|who)\b", text, re.I) else "yes_no"
    if _NUMBER.search(text):
        return "number"
    if _DATE.search(text):
        return "date"
    return "thing" if re.match(r"(?:who|whom|whose|where)\b", text, re.I) else None


def off_topic(question: str, answer: str | None) -> bool | None:
    """Whether an answer is of another kind than the question wants.

    Args:
        question: The question, in English.
        answer: The answer that was given.

    Returns:
        Whether it is off-topic; ``None`` where the rule cannot tell, and for an empty answer.
    """
    if answer is None or not answer.strip():
        return None
    kind = question_kind(question)
    if kind is None:
        return None
    words = tokens(answer, "strict")
    if kind == "yes_no":
        return not _YES_NO.intersection(words[:3])
    if kind == "thing":
        return words in (["yes"], ["no"])
    if kind == "number":
        return not any(_is_number(word) for word in words)
    if kind == "date":
        return not any(_is_number(word) or word in _TIMES or word in MONTHS for word in words)
    return _misses(words, set(tokens(_options(question.strip()) or "", "strict")))


def _misses(words: list[str], options: set[str]) -> bool:
    """Whether the answer has no word of the options."""
    telling = {word for word in words if word not in _IDLE} or set(words)
    return not telling & (options | {"both", "neither", "same", "equal"})


def _is_number(word: str) -> bool:
    return word in _AMOUNTS or word in NUMBER_WORDS or any(character.isdigit() for character in word)


def _options(question: str) -> str | None:
    """The part of a question that names the things to choose from: ``Which is older, A or B?``."""
    for comma in re.finditer(r"[,:]", question):
        head, tail = question[: comma.start()], question[comma.end() :]
        if re.search(r"\bor\b", tail) is None:
            return None
        if _OPTIONS.match(tail) and _HEAD.search(head) and _COMPARED.search(head):
            return tail
    return None
