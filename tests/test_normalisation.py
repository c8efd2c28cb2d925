"""The strict normalisation: what it keeps apart, what it joins, and languages other than English."""

# ruff: noqa: RUF001, SIM905  (characters that look alike are what is tested)

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopgate.core import InputError
from hopgate.evaluation.metrics import exact_match, f1
from hopgate.evaluation.normalisation import normalize, tokens
from hopgate.evaluation.number_words import join_numbers

_PIECES = st.sampled_from(
    "the a an July 5 5th of 1984 twenty one hundred thousand million and -5 − – - 3.14 1,000 C++ # + . ' ’ & % $ U.S. "
    "J. K. é é ﬁ İ ı ß 北京 हिन्दी ٢٠ may second 07 1984-07-05 ( ) ½ ² per cent 5 !".split(" ")
)
TEXTS = st.one_of(
    st.lists(_PIECES, max_size=7).map(" ".join), st.lists(_PIECES, max_size=5).map("".join), st.text(max_size=25)
)


def strict(text: str) -> str:
    return normalize(text, "strict")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("3.14", "314"),
        ("3.14", "3,14"),
        ("-5", "5"),
        ("−5 °C", "5 °C"),
        ("C++", "C"),
        ("C++", "C#"),
        ("F#", "F"),
        ("A+", "A"),
        ("1905-1928", "19051928"),
        ("1905-1928", "1905 1928"),
        ("1905-1928", "1905"),
        ("10²", "102"),
        ("$5", "£5"),
        ("5%", "5"),
        ("9/11", "911"),
        ("10:30", "1030"),
        ("5'10", "510"),
        ("v1.2", "v12"),
        ("vitamin A", "vitamin"),
        ("résumé", "resume"),
        ("kır", "kir"),
        ("हिन्दी", "हन्द"),
        ("мой", "мои"),
        ("!!!", "???"),
        ("1904-1928", "1905-1928"),
        ("7/5/1984", "5/7/1984"),
        ("5 July 1984", "5 June 1984"),
        ("twenty", "12"),
    ],
)
def test_kept_apart(one: str, other: str) -> None:
    assert strict(one) != strict(other)
    assert not exact_match(one, [other], normalisation="strict")
    assert f1(one, [other], normalisation="strict") < 1.0


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("−5", "-5"),
        ("–5", "-5"),
        ("1905–1928", "1905-1928"),
        ("1905 — 1928", "1905-1928"),
        ("1905--1928", "1905-1928"),
        ("Rock ’n’ Roll", "rock 'n' roll"),
        ("“Heroes”", '"Heroes"'),
        ("«Heroes»", "Heroes"),
        ("O’Brien", "O'Brien"),
        ("Stratford‑upon‑Avon", "Stratford upon Avon"),
        ("the ﬁlm", "film"),
        ("Œuvre", "oeuvre"),
        ("Ｆｕｌｌ width", "full width"),
        ("café", "cafe\u0301"),
        ("July 5, 1984", "5 July 1984"),
        ("the 5th of July, 1984", "1984-07-05"),
        ("Jul. 5, 1984", "5 July 1984"),
        ("May 5", "5 May"),
        ("Sept 1984", "September 1984"),
        ("the fifth of July", "July 5"),
        ("twenty", "20"),
        ("twenty-one", "21"),
        ("Twenty One Pilots", "21 pilots"),
        ("a hundred and five", "105"),
        ("one thousand two hundred", "1,200"),
        ("nineteen hundred", "1900"),
        ("five million", "5,000,000"),
        ("2.5 million", "2,500,000"),
        ("thirty-second", "32nd"),
        ("3,677 seated", "3677 seated"),
        ("12\u202f000", "12,000"),
        ("1,000, they say", "1000 they say"),
        ("July 5-8", "July 5 – 8"),
        ("5 %", "five percent"),
        ("5 per cent", "5%"),
        ("J. K. Rowling", "J.K. Rowling"),
        ("the U.S.", "US"),
        ("Simon & Garfunkel", "Simon and Garfunkel"),
        (".5", "0.5"),
        ("+5", "5"),
        ("the 1990's", "1990s"),
        ("soft\u00adhyphen", "softhyphen"),
    ],
)
def test_joined(one: str, other: str) -> None:
    assert strict(one) == strict(other)
    assert exact_match(one, [other], normalisation="strict")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("北京。", "北京"),
        ("「東京タワー」", "東京タワー"),
        ("بيروت،", "بيروت"),
        ("بيـروت", "بيروت"),
        ("ﺑﻴﺮﻭﺕ", "بيروت"),
        ("٢٠", "20"),
        ("हिन्दी।", "हिन्दी"),
        ("२०", "20"),
        ("İstanbul", "istanbul"),
        ("DİYARBAKIR", "Diyarbakır"),
        ("Işık", "ışık"),
        ("Straße", "STRASSE"),
        ("ΟΔΥΣΣΕΥΣ", "οδυσσευς"),
        ("МОСКВА", "Москва"),
    ],
)
def test_other_languages(one: str, other: str) -> None:
    assert strict(one) == strict(other)


@pytest.mark.parametrize("text", ["北京", "東京タワー", "بيروت", "हिन्दी", "ไทย", "한국어", "ışık", "Đà Nẵng", "мой"])
def test_no_letter_or_mark_of_another_language_is_lost(text: str) -> None:
    expected = unicodedata.normalize("NFC", text.casefold()).replace(" ", "")
    assert strict(text).replace(" ", "") == expected


def test_scripts_without_spaces_give_a_token_for_each_character() -> None:
    assert tokens("生于北京 2008年", "strict") == ["生", "于", "北", "京", "2008", "年"]
    assert tokens("हिन्दी", "strict") == ["हिन्दी"]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("résumé", "resume", True),
        ("Łódź", "Lodz", True),
        ("Diyarbakır", "Diyarbakir", True),
        ("Ελλάδα", "Ελλαδα", True),
        ("كِتَاب", "كتاب", True),
        ("мой", "мои", False),
        ("हिन्दी", "हन्द", False),
    ],
)
def test_accents_by_choice(one: str, other: str, same: bool) -> None:
    assert strict(one) != strict(other)
    assert (normalize(one, "strict", accents="fold") == normalize(other, "strict", accents="fold")) is same
    assert exact_match(one, [other], normalisation="strict", accents="fold") is same


def test_signs_belong_to_numbers_and_hyphens_do_not() -> None:
    assert tokens("between -5 and F-16, 1905-1928", "strict") == "between -5 and f 16 1905 - 1928".split()
    assert tokens("20 -5, 20 - 5, (5)-3", "strict") == "20 -5 20 - 5 5 3".split()


def test_a_name_of_articles_or_marks_keeps_something() -> None:
    assert strict("The The") == "the"
    assert strict("!!!") == "!!!"
    assert strict("A") == "a"


@given(TEXTS)
def test_strict_is_idempotent(text: str) -> None:
    assert strict(strict(text)) == strict(text)


@given(TEXTS)
def test_strict_leaves_something_of_whatever_can_be_seen(text: str) -> None:
    visible = any(not character.isspace() and unicodedata.category(character)[0] in "LN" for character in text)
    assert bool(strict(text)) or not visible


@given(TEXTS)
def test_composed_and_decomposed_characters_are_the_same(text: str) -> None:
    assert strict(unicodedata.normalize("NFD", text)) == strict(unicodedata.normalize("NFC", text))


def _in_words(value: int) -> str:
    small = (
        "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
        "seventeen eighteen nineteen"
    ).split()
    if value < 20:
        return small[value]
    if value < 100:
        tens = "twenty thirty forty fifty sixty seventy eighty ninety".split()[value // 10 - 2]
        return tens + (f"-{small[value % 10]}" if value % 10 else "")
    for scale, word in ((1_000_000, "million"), (1000, "thousand"), (100, "hundred")):
        if value >= scale:
            rest = value % scale
            tail = "" if not rest else f" {'and ' if rest < 100 else ''}{_in_words(rest)}"
            return f"{_in_words(value // scale)} {word}{tail}"
    raise AssertionError


@given(st.integers(0, 999_999_999))
def test_number_words_are_their_digits(value: int) -> None:
    assert strict(_in_words(value)) == str(value)
    assert strict(f"{value:,}") == str(value)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("two and three", "2 and 3"),
        ("two million three million", "2000000 3000000"),
        ("nineteen eighty four", "19 84"),
        ("million", "1000000"),
        ("no numbers here", "no numbers here"),
    ],
)
def test_numbers_side_by_side(words: str, expected: str) -> None:
    assert " ".join(join_numbers(words.split())) == expected


@pytest.mark.parametrize(
    ("normalisation", "accents", "message"),
    [("loose", "keep", "official or strict"), ("strict", "drop", "keep or fold"), ("official", "fold", "strict")],
)
def test_unknown_names_are_refused(normalisation: str, accents: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        normalize("x", normalisation, accents=accents)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=message):
        exact_match(None, ["x"], normalisation=normalisation, accents=accents)  # type: ignore[arg-type]
