"""The cheap rule for answers of another kind than the question wants."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopgate.core.question_kinds import Kind, question_kind
from hopgate.evaluation.offtopic import off_topic
from hopgate.evaluation.sample import sample_questions

YES_NO = "Were Scott Derrickson and Ed Wood of the same nationality?"
CHOICE = "Who is older, Annie Morton or Terry Richardson?"
NUMBER = "The arena where they played their home games can seat how many people?"
DATE = "When was the composer of the anthem born?"
YEAR = "In what year did the author of the novel die?"
THING = "Who directed the film that was shot in Leland?"
OPEN = "What government position was held by the woman who played Corliss Archer?"


@pytest.mark.parametrize(
    ("question", "kind"),
    [
        (YES_NO, "yes_no"),
        (CHOICE, "choice"),
        ("Which film came out first, Back To The Door or Charles, Dead Or Alive?", "choice"),
        (NUMBER, "number"),
        ("How old was he?", "number"),
        (DATE, "date"),
        (YEAR, "date"),
        (THING, "thing"),
        (OPEN, None),
        ("Was the castle built of stone or wood?", None),
        ("What castle or palace, built in 1950 or 1951, is the oldest?", None),
        ("Is it a remake, released in which year?", None),
        ("", None),
    ],
)
def test_kinds(question: str, kind: Kind | None) -> None:
    assert question_kind(question) == kind


@pytest.mark.parametrize(
    ("question", "answer", "expected"),
    [
        (YES_NO, "Yes, both were American", False),
        (YES_NO, "American", True),
        (CHOICE, "Richardson", False),
        (CHOICE, "both", False),
        (CHOICE, "the photographer", True),
        (CHOICE, "yes", True),
        (NUMBER, "3,677 seated", False),
        (NUMBER, "thirty-six", False),
        (NUMBER, "the Colisée", True),
        (DATE, "5 July 1984", False),
        (DATE, "in the spring", False),
        (DATE, "in Vienna", True),
        (YEAR, "MCMXX", True),
        (THING, "no", True),
        (THING, "Stephen King", False),
        (OPEN, "no", None),
        (NUMBER, "", None),
        (NUMBER, None, None),
    ],
)
def test_answers(question: str, answer: str | None, expected: bool | None) -> None:
    assert off_topic(question, answer) is expected


@pytest.mark.parametrize("question", sample_questions(), ids=lambda question: question.id)
def test_no_gold_answer_is_off_topic(question) -> None:
    assert not any(off_topic(question.question, answer) for answer in question.answers)


@given(st.text(max_size=60), st.text(max_size=30))
def test_any_text_is_judged(question: str, answer: str) -> None:
    assert off_topic(question, answer) in (True, False, None)
