"""Named normalisations of answers, by which the metrics compare them.

``official`` is that of the published SQuAD and HotpotQA scripts, for comparison with papers: lower case, without ASCII
punctuation and the words a, an, the. It confuses 3.14 with 314, -5 with 5, C++ with C and 1905-1928 with 19051928, and
tells "July 5, 1984" from "5 July 1984" and an ASCII minus from a typographic one.

``strict`` repairs both. Signs, decimal points, ranges, percents, currencies and the ``+`` and ``#`` of names are kept;
typographic dashes, minus signs and quotes, ligatures, composed and decomposed characters, and digits of all scripts are
joined, and so are dates with English month names in either order or in ISO 8601, and English number words (see
:mod:`~hopgate.evaluation.number_words`). Hyphens within words separate them. Texts are folded by Unicode's full case
folding (German ß is ss; a word with a dotless ı or a dotted İ is folded as in Turkish); marks of Indic scripts are
part of their words; scripts that put no spaces between words (Chinese, Japanese, Thai, ...) give a token for each
character, as in the evaluation of MLQA (Lewis et al. 2020).
"""

# ruff: noqa: RUF001, RUF002, RUF003, SIM905  (characters that look alike are what this module is about)

from __future__ import annotations

import re
import string
import unicodedata
from functools import lru_cache
from typing import Literal, get_args

import regex

from ..core import InputError
from .number_words import join_dates, join_numbers

Normalisation = Literal["official", "strict"]
"""``official`` as in SQuAD and HotpotQA, or ``strict``."""

Accents = Literal["keep", "fold"]
"""Whether ``strict`` tells é from e: ``keep`` does. ``fold`` also drops the optional vowel signs of Arabic and Hebrew;
letters of their own in other scripts (Cyrillic й, Indic vowels) are never folded."""

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def tokens(text: str, normalisation: Normalisation = "official", *, accents: Accents = "keep") -> list[str]:
    """The words by which a text is compared.

    Args:
        text: The text.
        normalisation: How it is normalised.
        accents: Whether ``strict`` keeps accents; ``official`` has no choice and keeps them.

    Raises:
        InputError: There is no such normalisation or choice.
    """
    check_normalisation(normalisation, accents)
    # Each metric asks for the words of the same answers.
    split = _recent if len(text) <= _SHORT else _split
    return list(split(text, normalisation, accents))


_SHORT = 500  # characters of a text whose words are worth remembering


def _split(text: str, normalisation: Normalisation, accents: Accents) -> tuple[str, ...]:
    if normalisation == "official":
        return tuple(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())
    return tuple(_strict(text, accents == "fold"))


_recent = lru_cache(maxsize=256)(_split)


def normalize(text: str, normalisation: Normalisation = "official", *, accents: Accents = "keep") -> str:
    """The :func:`tokens` of a text with a space between each two; equal strings are the same answer.

    Example:
        >>> normalize("The Beatles!"), normalize("Version −3.14", "strict")
        ('beatles', 'version -3.14')
    """
    return " ".join(tokens(text, normalisation, accents=accents))


def check_normalisation(normalisation: str, accents: str = "keep") -> None:
    """Refuse what is no normalisation.

    Raises:
        InputError: There is no such normalisation or choice.
    """
    if normalisation not in get_args(Normalisation):
        raise InputError(f"normalisation must be official or strict, got {normalisation!r:.80}")
    if accents not in get_args(Accents):
        raise InputError(f"accents must be keep or fold, got {accents!r:.80}")
    if accents == "fold" and normalisation == "official":
        raise InputError("the official normalisation keeps accents; fold them with normalisation='strict'")


# --- characters -------------------------------------------------------------------------------------------------------

_JOINED_FORMS = frozenset(
    f"<{tag}>" for tag in "compat font noBreak initial medial final isolated vertical wide narrow small square".split()
)
"""Unicode's compatibility forms that mean the same. Not among them: superscripts and fractions (10² is not 102)."""


class _Characters(dict[int, str]):
    """What becomes of each character, found out when it is first seen."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        form, *parts = unicodedata.decomposition(character).split() or [""]
        if unicodedata.category(character) == "Cf":
            found = ""  # joiners, marks of direction, soft hyphens
        elif form in _JOINED_FORMS:
            found = "".join(chr(int(part, 16)) for part in parts).translate(self)
        elif unicodedata.category(character) == "Nd":
            found = str(unicodedata.decimal(character))
        else:
            found = character
        self[code] = found
        return found


_CHARACTERS = _Characters()
for _same, _written in (
    ("-", "‐‑‒–—―−⁃﹘﹣－"),
    ("'", "‘’‚‛′ʼʻ`´＇"),
    ('"', "“”„‟″«»‹›＂"),
    ("/", "⁄∕"),
    ("", "ـ™®©"),  # the first stretches Arabic words
    ("ae", "æ"),
    ("AE", "Æ"),
    ("oe", "œ"),
    ("OE", "Œ"),
):
    _CHARACTERS.update(dict.fromkeys(map(ord, _written), _same))
_CHARACTERS.update(dict.fromkeys(range(0xFE00, 0xFE10), ""))  # variation selectors

_GROUPED = regex.compile(r"(?<=\d)[\u00a0\u2009\u202f](?=\d{3}(?!\d))")
_WORD = regex.compile(r"[\p{L}\p{M}]+")
_ACCENTED = regex.compile(r"([\p{Latin}\p{Greek}])\p{M}+")
_VOWEL_SIGNS = regex.compile(r"[\u064b-\u0652\u0670\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7]")
_STROKES = str.maketrans("øđłħŧı", "odlhti")


def _folded(text: str, fold_accents: bool) -> str:
    """The text with the same character for what means the same."""
    text = unicodedata.normalize("NFC", _GROUPED.sub("", text)).translate(_CHARACTERS)
    if "İ" in text or "ı" in text:
        text = _WORD.sub(lambda match: _turkish(match[0]), text)
    text = text.casefold()
    if fold_accents:
        text = _ACCENTED.sub(r"\1", unicodedata.normalize("NFD", text))
        text = _VOWEL_SIGNS.sub("", text).translate(_STROKES)
    # What was put together may hold forms of its own again.
    return " ".join(unicodedata.normalize("NFC", text).split())


def _turkish(word: str) -> str:
    # Turkish and Azerbaijani: I is the capital of ı, and İ that of i.
    return word.replace("I", "ı").replace("İ", "i") if "İ" in word or "ı" in word else word


# --- tokens -----------------------------------------------------------------------------------------------------------

_UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}ー々"
_LETTER = rf"[[\p{{L}}\p{{N}}]--[{_UNSPACED}]]"

_REWRITES = tuple(
    (regex.compile(pattern, regex.VERSION1), replacement)
    for pattern, replacement in (
        (r"-+", "-"),  # 1905--1928, as typed for a dash
        (r"(?<!\d)(?<!\d[.,])[1-9]\d{0,2}(?:,\d{3})+(?!,?\d)", lambda match: match[0].replace(",", "")),
        (r"(?<![\p{L}\p{M}\p{N}.])\.(?=\d)", "0."),
        (r"(?<![\p{L}\p{M}\p{N}+])\+(?=\d)", ""),
        (r"%", " percent "),
        (r"(?<![\p{L}\p{M}\p{N}])per cent(?![\p{L}\p{M}\p{N}])", "percent"),
        (r"&", " and "),
        (r"(?<=[\p{L}\p{M}\p{N}])'(?=\p{L})", ""),  # O'Brien, 1990's
        # J. K. Rowling is J.K. Rowling, the U.S. is the US.
        (r"(?<![\p{L}\p{M}\p{N}])(\p{L}\p{M}*)\.\s*(?=\p{L}\p{M}*\.)", r"\1"),
        (r"(?<=[\p{L}\p{M}])\.(?=\p{L})", ""),
    )
)

_TOKEN = regex.compile(
    rf"""
    (?:(?<![\p{{L}}\p{{M}}\p{{N}})])-)?   # a sign, which a hyphen and the dash of a range are not
    \d+(?:[.,:/]\d+)*(?:{_LETTER}\p{{M}}*)*(?:[+\#]++(?![\p{{L}}\p{{N}}]))?
    | {_LETTER}\p{{M}}*(?:{_LETTER}\p{{M}}*)*(?:[+\#]++(?![\p{{L}}\p{{N}}]))?    # C++, F#
    | [{_UNSPACED}]\p{{M}}*
    | (?:(?<=\p{{N}})-(?=\s?\d) | (?<=\p{{N}}\s)-(?=\s\d))    # a range
    | [\p{{Sc}}\p{{So}}=<>×÷±+]
    """,
    regex.VERSION1 | regex.VERBOSE,
)


def _strict(text: str, fold_accents: bool) -> list[str]:
    folded = _folded(text, fold_accents)
    rewritten = folded
    for pattern, replacement in _REWRITES:
        rewritten = pattern.sub(replacement, rewritten)
    words = _TOKEN.findall(" ".join(rewritten.split()))
    # The last word is no article: vitamin A, The The.
    words = [word for word in words[:-1] if word not in ("a", "an", "the")] + words[-1:]
    # A name may consist of marks alone.
    return join_dates(join_numbers(words)) or folded.split()
