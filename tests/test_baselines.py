"""Direct, chain of thought and standard RAG: worked examples, and resuming."""

from __future__ import annotations

from typing import Any

import dspy
import pytest

from hopgate.core import InputError
from hopgate.lms.testing import scripted_lm
from hopgate.programs import DEFAULT_EXAMPLES, RAG, ChainOfThought, Direct, Hop, Solver, Trajectory

QUESTION = "When was Mira Dol born?"
SCRIPT = [(r"Reasoning:$", " She was.\nAnswer: 1871"), (r"Answer:$", "1871")]
NAMES = ("direct", "cot", "rag")


def made(name: str, index: Any, **settings: Any) -> Solver:
    if name == "rag":
        return RAG(index, **settings)
    return {"direct": Direct, "cot": ChainOfThought}[name](**settings)


def prompt(program: Solver) -> str:
    lm = scripted_lm(SCRIPT)
    with dspy.context(lm=lm):
        assert program(question=QUESTION).answer == "1871"
    return lm.engine.prompts[-1]


@pytest.mark.parametrize("name", NAMES)
def test_worked_examples_are_shown_unless_told_not_to(name: str, index: Any) -> None:
    program = made(name, index, examples=[])
    assert DEFAULT_EXAMPLES[0].question not in prompt(program)
    shown = prompt(made(name, index))
    for example in DEFAULT_EXAMPLES:
        assert f"Question: {example.question}" in shown
        assert f"Answer: {example.answer}\n" in shown
    assert shown.index(DEFAULT_EXAMPLES[-1].question) < shown.rindex(QUESTION)


def test_worked_examples_have_the_form_of_each_program(index: Any) -> None:
    passage = "Halden Lighthouse | The Halden Lighthouse is"
    reasoning = (
        "The architect of the Halden Lighthouse was Ivar Brenne. Ivar Brenne was born in 1868. So the answer is: "
    )
    shown = {name: prompt(made(name, index)) for name in NAMES}
    assert f"Passages:\n[1] {passage}" in shown["rag"]
    assert "Passages: none\nQuestion: Were the composers" in shown["rag"]
    assert f"Reasoning: {reasoning}1868.\nAnswer: 1868" in shown["cot"]
    assert passage not in shown["cot"] + shown["direct"]
    assert "Reasoning:" not in shown["direct"] + shown["rag"]


def test_passages_of_worked_examples_are_cut_like_others(index: Any) -> None:
    assert "[1] Halden Lighthouse | The Halden ...\n" in prompt(RAG(index, passage_words=5))


@pytest.mark.parametrize("name", NAMES)
def test_worked_examples_of_ones_own(name: str, index: Any) -> None:
    own = Trajectory("Who is it?", hops=(Hop("Who is X?", answer="Y"),), answer="Z")
    shown = prompt(made(name, index, examples=[own]))
    assert "Question: Who is it?" in shown
    assert "Answer: Z" in shown
    assert DEFAULT_EXAMPLES[0].question not in shown
    assert ("Reasoning: Who is X? Y. So the answer is: Z." in shown) is (name == "cot")


@pytest.mark.parametrize("name", NAMES)
def test_worked_examples_are_checked(name: str, index: Any) -> None:
    for wrong in ([Trajectory("Why?")], [{"question": 7}], "all"):
        with pytest.raises(InputError, match="examples"):
            made(name, index, examples=wrong)


def test_a_failed_answer_does_not_cost_the_search_again(index: Any) -> None:
    program = RAG(index)
    with dspy.context(lm=scripted_lm([])), pytest.raises(dspy.LMError) as caught:
        program(question=QUESTION)
    reached: Trajectory = caught.value.trajectory  # type: ignore[attr-defined]
    assert len(reached.passages) == 3
    with dspy.context(lm=scripted_lm(SCRIPT)):
        result = program(question=QUESTION, trajectory=reached)
    assert (result.answer, result.cost.retrievals, result.cost.lm_calls) == ("1871", 1, 1)
    assert len(index.queries) == 1


def test_what_a_trajectory_was_told_is_kept(index: Any) -> None:
    with dspy.context(lm=scripted_lm(SCRIPT)):
        result = RAG(index)(question=QUESTION, trajectory=Trajectory(QUESTION, rejected=("1902",)))
    assert (result.answer, result.trajectory.rejected) == ("1871", ("1902",))
