"""Which text is the final answer where the last step's says nothing."""

from __future__ import annotations

from typing import Any

import dspy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopgate.core import Passage
from hopgate.lms.testing import Reply, scripted_lm
from hopgate.programs import ActiveQA, Escalation, Hop, Trajectory
from hopgate.programs.composing import says_something
from hopgate.programs.worked_examples import DEFAULT_EXAMPLES

QUESTION = "Who designed the Osk Tower?"
COPY = DEFAULT_EXAMPLES[2].answer or ""


def found(*texts: str) -> Trajectory:
    passages = tuple(Passage(str(number), "", text) for number, text in enumerate(texts))
    return Trajectory(QUESTION).with_hop(Hop(QUESTION, query=QUESTION, source="search", passages=passages))


@pytest.mark.parametrize("text", ["", "  ", "none", "None.", "N/A", "unknown", "not mentioned", "Osk Tower", COPY])
def test_says_nothing(text: str) -> None:
    assert not says_something(text, found("The tower was designed by Mira Dol."), DEFAULT_EXAMPLES)


@pytest.mark.parametrize("text", ["Mira Dol", "yes", "no", "Noneville", "1868 or so"])
def test_says_something(text: str) -> None:
    assert says_something(text, found("The tower was designed by Mira Dol."), DEFAULT_EXAMPLES)


def test_an_answer_of_a_worked_example_that_a_passage_speaks_of_counts() -> None:
    assert says_something(COPY, found(f"It stands beside {COPY}."), DEFAULT_EXAMPLES)


@pytest.mark.parametrize(
    ("question", "text"),
    [
        ("How many towers are there?", "none"),
        ("How old is the tower?", "unknown"),
        ("What number of children had Mira Dol?", "None"),
        ("Which film was released first, Unknown or Taken?", "Unknown"),
    ],
)
def test_none_may_be_an_answer(question: str, text: str) -> None:
    assert says_something(text, Trajectory(question))


def test_none_may_be_the_title_of_a_passage() -> None:
    passage = Passage("1", "Unknown (2011 film)", "A film with Liam Neeson.")
    trajectory = Trajectory("Which film stars Liam Neeson?").with_hop(Hop("?", source="search", passages=(passage,)))
    assert says_something("Unknown", trajectory)


@pytest.mark.parametrize(
    "question",
    [
        "Which is older, the Osk Tower or the Halden Lighthouse?",
        "Who of the Osk Tower and the Halden Lighthouse is older?",
        "Between the Halden Lighthouse and the Osk Tower, which is older?",
        "Which of the buildings the Osk Tower and the Halden Lighthouse is older?",
        "Are both the Osk Tower and the Halden Lighthouse old?",
        "Is it the Osk Tower?",
    ],
)
def test_a_choice_may_be_answered_in_the_questions_words(question: str) -> None:
    assert says_something("the Osk Tower", Trajectory(question))


@given(st.lists(st.sampled_from("abcd"), min_size=1), st.data())
def test_a_phrase_of_the_question_says_nothing(words: list[str], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(words) - 1))
    end = data.draw(st.integers(start + 1, len(words)))
    question, text = " ".join(["Who", *words]), " ".join(words[start:end])
    assert not says_something(text, Trajectory(question))
    assert says_something(f"{text} x", Trajectory(question))


def test_words_of_the_question_in_another_order_are_an_answer() -> None:
    assert says_something("Kansas Song", Trajectory("What is the fight song of the university in Lawrence, Kansas?"))


def lm(last: str, grounded: str = "the Osk Tower", concluded: str = "Mira Dol", sure: float = -3.0) -> dspy.LM:
    """One hop with its conclusion; then the last answer. Grounded answers have a prompt of their own."""

    def reply(prompt: str) -> Reply:
        label = prompt.rsplit("\n", 1)[-1].removeprefix("assistant: ")
        if label.startswith("Task 1"):
            return Reply("Who drew the plans of the Osk Tower?")
        if label.startswith("Task"):
            return Reply("none")
        if label.startswith("Conclusion"):
            return Reply(concluded, -0.5)
        return Reply(last, sure) if "\nConclusion 1" in prompt[prompt.rindex("Question: ") :] else Reply(grounded, -3.0)

    return scripted_lm(reply)


class Index:
    def search(self, query: str, k: int = 3, **_: Any) -> list[Passage]:
        return [Passage("1", "Osk Tower", "Mira Dol drew the plans of the Osk Tower.")]


@pytest.mark.parametrize("last", ["none", COPY])
@pytest.mark.parametrize("make", [ActiveQA, Escalation])
def test_a_hop_answers_where_the_last_step_gives_nothing(make: Any, last: str) -> None:
    with dspy.context(lm=lm(last)):
        prediction = make(Index(), tau=-0.1)(question=QUESTION)
    assert prediction.answer == "Mira Dol"


def test_an_answer_to_the_whole_question_goes_before_those_to_sub_questions() -> None:
    with dspy.context(lm=lm("the Osk Tower", grounded="Ann Ort")):
        prediction = Escalation(Index(), tau=-0.1, memory=False)(question=QUESTION)
    assert [hop.answer for hop in prediction.trajectory.hops] == ["Ann Ort", "Mira Dol"]
    assert prediction.answer == "Ann Ort"


@pytest.mark.parametrize("make", [ActiveQA, Escalation])
def test_an_answer_to_a_sub_question_does_not_go_before_a_phrase_of_the_question(make: Any) -> None:
    with dspy.context(lm=lm("the Osk Tower")):
        prediction = make(Index(), tau=-0.1)(question=QUESTION)
    assert [hop.answer for hop in prediction.trajectory.tasks] == ["Mira Dol"]
    assert prediction.answer == "the Osk Tower"


def test_the_last_answer_stays_where_nothing_says_more() -> None:
    with dspy.context(lm=lm("the Osk Tower")):
        prediction = ActiveQA(Index(), tau=-0.1, max_hops=1)(question="Who is Mira Dol of the Osk Tower?")
    assert prediction.answer == "the Osk Tower"


def test_a_grounded_answer_that_says_something_is_preferred_to_a_surer_one_that_does_not() -> None:
    with dspy.context(lm=lm("Osk Tower", grounded="Mira Dol", concluded="the tower", sure=-0.01)):
        prediction = Escalation(Index(), memory=False, abstain=True, tau_abstain=-9.0)(question=QUESTION)
    assert [hop.answer for hop in prediction.trajectory.hops] == ["Mira Dol", "the tower"]
    assert prediction.answer == "Mira Dol"
