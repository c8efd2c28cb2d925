"""Texts that come from outside, such as an LM's completion."""

from __future__ import annotations


def encodable(text: str) -> str:
    """The text with a question mark for each half of a surrogate pair, which no encoding of text can express.

    Example:
        >>> encodable("half \\ud800")
        'half ?'
    """
    return text.encode("utf-8", "replace").decode()
