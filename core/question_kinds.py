"""What kind of answer a question wants, as far as its form tells: a cheap rule for English.

Where the form does not tell, the rule says nothing.
"""

from __future__ import annotations

import re
from typing import Literal

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
# More parts than this are no list of things to choose from.
_MAX_PARTS = 8


def question_kind(question: str) -> Kind | None:
    """What a question wants, as far as its form tells.

    Args:
        question: The question, in English.

    Returns:
        The kind; ``None`` where the form does not tell.
    """
    text = question.strip()
    if options_part(text) is not None:
        return "choice"
    if _AUXILIARY.match(text):
        # "Was it red or blue?" may be either, and "Is he a poet, born in which year?" is neither.
        return None if re.search(r"\bor\b|, .*\b(?:which|what|who)\b", text, re.I) else "yes_no"
    if _NUMBER.search(text):
        return "number"
    if _DATE.search(text):
        return "date"
    return "thing" if re.match(r"(?:who|whom|whose|where)\b", text, re.I) else None


def options_part(question: str) -> str | None:
    """The part of a question that names the things to choose from: ``Which is older, A or B?``; ``None`` if none."""
    for comma in re.finditer(r"[,:]", question):
        head, tail = question[: comma.start()], question[comma.end() :]
        if re.search(r"\bor\b", tail) is None:
            return None
        if _OPTIONS.match(tail) and _HEAD.search(head) and _COMPARED.search(head):
            return tail
    return None


def plainly_fits(question: str, answer: str) -> bool:
    """Whether an answer is of the kind that the question wants beyond doubt.

    That is yes or no to a yes/no question, and one of the things that a choice question names, in its words.

    Args:
        question: The question, in English.
        answer: The answer.
    """
    words = _words(answer)
    if question_kind(question) == "yes_no":
        return words in (["yes"], ["no"])
    part = options_part(question.strip())
    return part is not None and bool(words) and words in _named(part)


def _named(part: str) -> list[list[str]]:
    """What may be one option, in words: a name may itself hold a comma or an "or", so neighbours are also joined."""
    cuts = list(re.finditer(r",|\bor\b", part))
    starts, ends = [0, *(cut.end() for cut in cuts)], [*(cut.start() for cut in cuts), len(part)]
    if len(starts) > _MAX_PARTS:
        return []
    pairs = ((i, j) for i in range(len(starts)) for j in range(i, len(ends)) if j - i < len(cuts))
    return [words for i, j in pairs if (words := _words(part[starts[i] : ends[j]]))]


def _words(text: str) -> list[str]:
    words = re.findall(r"\w+", text.casefold())
    return words[1:] if len(words) > 1 and words[0] in ("a", "an", "the", "either") else words
