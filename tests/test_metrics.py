"""Exact match, F1 and cover EM against the published definitions."""

# ruff: noqa: SIM905

from __future__ import annotations

import random
import re
import string
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopgate.evaluation.metrics import cover_em, cover_em_tokens, exact_match, f1, normalize, retrieval_recall
from hopgate.evaluation.normalisation import Normalisation

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

_NAMES: st.SearchStrategy[Normalisation] = st.sampled_from(["official", "strict"])


def reference_normalize(text: str) -> str:
    """HotpotQA's evaluation, from its definition: lower, no punctuation, no articles, single spaces."""
    lowered = text.lower()
    bare = "".join(character for character in lowered if character not in set(string.punctuation))
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", bare).split())


def reference_f1(prediction: str, gold: str) -> float:
    """HotpotQA's F1, from its definition and in its steps."""
    ours, theirs = reference_normalize(prediction), reference_normalize(gold)
    if ours != theirs and (ours in {"yes", "no", "noanswer"} or theirs in {"yes", "no", "noanswer"}):
        return 0.0
    left, right = ours.split(), theirs.split()
    same = sum((Counter(left) & Counter(right)).values())
    if same == 0:
        return 0.0
    precision, recall = 1.0 * same / len(left), 1.0 * same / len(right)
    return (2 * precision * recall) / (precision + recall)


def _random_text(rng: random.Random) -> str:
    words = "the a an The Paris paris New York yes no noanswer 1999 U.S. é 日本 - -5 3.14 ! C++ O'Brien ﬁ An".split()
    if rng.random() < 0.8:
        return " ".join(rng.choices(words, k=rng.randrange(6)))
    return "".join(chr(rng.choice([rng.randrange(32, 127), rng.randrange(0x250)])) for _ in range(rng.randrange(12)))


def test_official_equals_the_published_script_on_10_000_random_pairs() -> None:
    rng = random.Random(0)
    matches = partial = empty = 0
    for _ in range(10_000):
        prediction, gold = _random_text(rng), _random_text(rng)
        if rng.random() < 0.3:
            gold = f" {prediction.upper()}!"
        assert normalize(prediction) == reference_normalize(prediction)
        em = reference_normalize(prediction) == reference_normalize(gold)
        assert exact_match(prediction, [gold]) is em
        score = f1(prediction, [gold])
        assert score == reference_f1(prediction, gold)  # to the last bit
        matches += em
        partial += 0 < score < 1
        empty += em and score == 0
    # The pairs try all branches, that of no words at all among them, where the script gives EM 1 and F1 0.
    assert matches > 1000 and partial > 500 and empty > 10


@given(_TEXTS)
def test_normalize_is_the_reference_and_idempotent(text: str) -> None:
    assert normalize(text) == reference_normalize(text)
    assert normalize(normalize(text)) == normalize(text)


@given(_TEXTS, _TEXTS)
def test_f1_is_the_reference(prediction: str, gold: str) -> None:
    assert f1(prediction, [gold]) == reference_f1(prediction, gold)


@given(_TEXTS, _TEXTS)
def test_em_is_the_reference(prediction: str, gold: str) -> None:
    assert exact_match(prediction, [gold]) == (reference_normalize(prediction) == reference_normalize(gold))


@given(_TEXTS, _TEXTS, _NAMES)
def test_f1_lies_between_0_and_1_and_is_symmetric(left: str, right: str, name: Normalisation) -> None:
    assert 0.0 <= f1(left, [right], normalisation=name) <= 1.0
    assert f1(left, [right], normalisation=name) == f1(right, [left], normalisation=name)
    assert exact_match(left, [right], normalisation=name) == exact_match(right, [left], normalisation=name)


@given(_TEXTS, st.lists(_TEXTS, min_size=1, max_size=4), st.booleans(), _NAMES)
def test_em_implies_f1_and_both_cover_ems(
    prediction: str, answers: list[str], equal: bool, name: Normalisation
) -> None:
    if equal:
        answers = [*answers, f"The {prediction.upper()} !"]
    if exact_match(prediction, answers, normalisation=name):
        assert cover_em(prediction, answers, normalisation=name)
        assert cover_em_tokens(prediction, answers, normalisation=name)
        # Of no words at all the published script says EM 1 and F1 0.
        assert f1(prediction, answers, normalisation=name) == 1.0 or (name == "official" and not normalize(prediction))


@given(_TEXTS, st.lists(_TEXTS, min_size=1, max_size=4), _NAMES)
def test_a_substring_has_full_token_recall(prediction: str, answers: list[str], name: Normalisation) -> None:
    if cover_em(prediction, answers, normalisation=name):
        assert cover_em_tokens(prediction, answers, normalisation=name)


@given(_TEXTS, _NAMES)
def test_a_text_matches_itself(text: str, name: Normalisation) -> None:
    assert exact_match(text, [text], normalisation=name)
    assert f1(text, [text], normalisation=name) == (1.0 if name == "strict" or normalize(text) else 0.0)


@given(_TEXTS, st.lists(_TEXTS, min_size=1, max_size=4))
def test_the_best_of_several_answers_counts(prediction: str, answers: list[str]) -> None:
    assert f1(prediction, answers) == max(f1(prediction, [answer]) for answer in answers)
    assert exact_match(prediction, answers) == any(exact_match(prediction, [answer]) for answer in answers)
    assert cover_em(prediction, answers) == any(cover_em(prediction, [answer]) for answer in answers)
    assert cover_em_tokens(prediction, answers) == any(cover_em_tokens(prediction, [answer]) for answer in answers)


@given(_TEXTS, _TEXTS, _TEXTS)
def test_cover_em_survives_words_around_the_answer(before: str, answer: str, after: str) -> None:
    if normalize(answer):
        assert cover_em(f"{before} {answer} {after}", [answer])


def test_cover_em_wants_whole_words() -> None:
    assert cover_em("He was born in Paris, France.", ["Paris"])
    assert not cover_em("The Parisian was born elsewhere.", ["Paris"])
    assert not cover_em("anything", ["the"])


def test_the_two_definitions_of_cover_em() -> None:
    assert cover_em("born in New York City", ["New York"]) and cover_em_tokens("born in New York City", ["New York"])
    assert not cover_em("York is not new", ["New York"])
    assert cover_em_tokens("York is not new", ["New York"])
    assert not cover_em_tokens("New Orleans", ["New York"])
    # As often as in the answer.
    assert not cover_em_tokens("Duran", ["Duran Duran"])


def test_strict_cover_em_finds_chinese_within_a_sentence_and_no_part_of_a_number() -> None:
    assert cover_em("他生于北京市", ["北京"], normalisation="strict")
    assert not cover_em("-5", ["5"], normalisation="strict")
    assert not cover_em("3.14", ["14"], normalisation="strict")
    assert cover_em("He lived 1905–1928.", ["1905-1928"], normalisation="strict")  # noqa: RUF001


@given(st.sets(st.integers(0, 9)), st.sets(st.integers(0, 9)))
def test_retrieval_recall(retrieved: set[int], supporting: set[int]) -> None:
    recall = retrieval_recall(map(str, retrieved), map(str, supporting))
    if not supporting:
        assert recall is None
    else:
        assert recall is not None and recall * len(supporting) == pytest.approx(len(retrieved & supporting))


def test_no_prediction_is_wrong() -> None:
    assert not cover_em_tokens(None, ["x"])
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
