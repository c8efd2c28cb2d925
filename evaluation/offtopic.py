"""A cheap rule for answers that miss the question: another kind of answer than the question asks for.

It looks at the form alone, in English: a question that wants yes or no, a number, a date, or one of the things that it
names, and an answer that is none of these. Where the form does not tell what is wanted, the rule says nothing, and an
answer of the right kind may still be wrong. It is meant to flag few answers and those rightly: of gold answers it
should flag none.
"""

from __future__ import annotations

from ..core.question_kinds import options_part, question_kind
from .normalisation import tokens
from .number_words import MONTHS, NUMBER_WORDS

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
    return _misses(words, set(tokens(options_part(question.strip()) or "", "strict")))


def _misses(words: list[str], options: set[str]) -> bool:
    """Whether the answer has no word of the options."""
    telling = {word for word in words if word not in _IDLE} or set(words)
    return not telling & (options | {"both", "neither", "same", "equal"})


def _is_number(word: str) -> bool:
    return word in _AMOUNTS or word in NUMBER_WORDS or any(character.isdigit() for character in word)
