"""Exact match, F1 and cover EM against the published definitions."""

from __future__ import annotations

import re
import string
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopgate.evaluation.metrics import cover_em, exact_match, f1, normalize

_WORDS = st.sampled_from(
    [
        "the",
        "a",
        "an",
        "The",
        "Paris",
        "paris",
        "New",
        "York",
        "yes",
        "no",
        "noanswer",
        "1999",
        "U.S.",
        "é",
        "日本",
        "-",
    ]
)
_TEXTS = st.one_of(st.lists(_WORDS, max_size=6).map(" ".join), st.text(max_size=30))


def reference_normalize(text: str) -> str:
    """HotpotQA's evaluation, from its definition: lower, no punctuation, no articles, single spaces."""
    lowered = text.lower()
    bare = "".join(character for character in lowered if character not in set(string.punctuation))
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", bare).split())


def reference_f1(prediction: str, gold: str) -> float:
    ours, theirs = reference_normalize(prediction), reference_normalize(gold)
    if ours in {"yes", "no", "noanswer"} and ours != theirs:
        return 0.0
    if theirs in {"yes", "no", "noanswer"} and ours != theirs:
        return 0.0
    left, right = ours.split(), theirs.split()
    same = sum((Counter(left) & Counter(right)).values())
    if same == 0:
        return 0.0
    precision, recall = same / len(left), same / len(right)
    return 2 * precision * recall / (precision + recall)


@given(_TEXTS)
def test_normalize_is_the_reference_and_idempotent(text: str) -> None:
    assert normalize(text) == reference_normalize(text)
    assert normalize(normalize(text)) == normalize(text)


@given(_TEXTS, _TEXTS)
def test_f1_is_the_reference(prediction: str, gold: str) -> None:
    expected = reference_f1(prediction, gold)
    if not reference_normalize(prediction) and not reference_normalize(gold):
        expected = 1.0  # Equal once normalised; the reference is not defined on no tokens at all.
    assert f1(prediction, [gold]) == pytest.approx(expected)


@given(_TEXTS, _TEXTS)
def test_em_is_the_reference(prediction: str, gold: str) -> None:
    assert exact_match(prediction, [gold]) == (reference_normalize(prediction) == reference_normalize(gold))


@given(_TEXTS, _TEXTS)
def test_f1_lies_between_0_and_1_and_is_symmetric(left: str, right: str) -> None:
    assert 0.0 <= f1(left, [right]) <= 1.0
    assert f1(left, [right]) == pytest.approx(f1(right, [left]))


@given(_TEXTS, st.lists(_TEXTS, min_size=1, max_size=4))
def test_em_implies_f1_and_cover_em(prediction: str, answers: list[str]) -> None:
    if exact_match(prediction, answers):
        assert f1(prediction, answers) == 1.0
        if normalize(prediction):
            assert cover_em(prediction, answers)


@given(_TEXTS)
def test_a_text_matches_itself(text: str) -> None:
    assert exact_match(text, [text])
    assert f1(text, [text]) == 1.0


@given(_TEXTS, st.lists(_TEXTS, min_size=1, max_size=4))
def test_the_best_of_several_answers_counts(prediction: str, answers: list[str]) -> None:
    assert f1(prediction, answers) == max(f1(prediction, [answer]) for answer in answers)
    assert exact_match(prediction, answers) == any(exact_match(prediction, [answer]) for answer in answers)
    assert cover_em(prediction, answers) == any(cover_em(prediction, [answer]) for answer in answers)


@given(_TEXTS, _TEXTS, _TEXTS)
def test_cover_em_survives_words_around_the_answer(before: str, answer: str, after: str) -> None:
    if normalize(answer):
        assert cover_em(f"{before} {answer} {after}", [answer])


def test_cover_em_wants_whole_words() -> None:
    assert cover_em("He was born in Paris, France.", ["Paris"])
    assert not cover_em("The Parisian was born elsewhere.", ["Paris"])
    assert not cover_em("anything", ["the"])


def test_no_prediction_is_wrong() -> None:
    assert not exact_match(None, ["x"])
    assert not cover_em(None, ["x"])
    assert f1(None, ["x"]) == 0.0


def test_no_answers_match_nothing() -> None:
    assert not exact_match("x", [])
    assert f1("x", []) == 0.0


@pytest.mark.parametrize(
    ("prediction", "gold", "em", "score"),
    [
        ("The Beatles", "beatles", True, 1.0),
        ("John F. Kennedy", "John Kennedy", False, 0.8),
        ("yes", "yes it is", False, 0.0),
        ("no", "No.", True, 1.0),
        ("1868", "1871", False, 0.0),
    ],
)
def test_known_pairs(prediction: str, gold: str, em: bool, score: float) -> None:
    assert exact_match(prediction, [gold]) is em
    assert f1(prediction, [gold]) == pytest.approx(score)
