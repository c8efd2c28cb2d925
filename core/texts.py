"""Texts: those that come from outside, such as an LM's completion, and numbers for people."""

from __future__ import annotations

MAX_QUESTION_CHARACTERS = 8000
"""Characters that a question may have; programs refuse longer ones, and so do data sets."""


def encodable(text: str) -> str:
    """The text with a question mark for each half of a surrogate pair, which no encoding of text can express.

    Example:
        >>> encodable("half \\ud800")
        'half ?'
    """
    return text.encode("utf-8", "replace").decode()


def counted(number: int, what: str) -> str:
    """A number of things, for people.

    Example:
        >>> counted(1, "LM call"), counted(1200, "LM call")
        ('1 LM call', '1,200 LM calls')
    """
    return f"{number:,} {what}{'' if number == 1 else 's'}"
