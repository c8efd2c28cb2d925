"""The common part of all programs: requests and drivers, the retriever's handle, settings, metering."""

from __future__ import annotations

import asyncio
import copy
import pickle
from collections.abc import Iterable
from typing import Any

import dspy
import pytest

from hopgate.core import InputError, Passage, RetrievalError
from hopgate.lms.testing import Reply, scripted_lm
from hopgate.programs import (
    DEFAULT_EXAMPLES,
    ActiveQA,
    ActiveSettings,
    ConstantGate,
    Cost,
    Draft,
    Gate,
    Hop,
    ProgramSettings,
    Retriever,
    RetrieverHandle,
    Settings,
    Solver,
    ThresholdGate,
    Trajectory,
)
from hopgate.programs.decomposers import repeats, same_question
from hopgate.programs.requests import Ask, Find
from hopgate.programs.solver import accept
from hopgate.programs.transcript import shorten, transcript
from hopgate.programs.worked_examples import step_demos


class TwoCalls(Solver):
    """Searches, asks twice; the first call is tentative and accepted only if told so."""

    def __init__(self, retriever: Any, *, accepted: bool = True) -> None:
        super().__init__(retriever, ProgramSettings())
        self.accepted = accepted
        self.first = dspy.Predict("question -> guess")
        self.second = dspy.Predict("question, guess -> answer")

    def _steps(self, question: str, trajectory: Trajectory) -> Any:
        found = yield Find(question, 2)
        told = yield Ask("first", "guess", {"question": question}, tentative=True)
        if self.accepted:
            accept(told)
        last = yield Ask("second", "answer", {"question": question, "guess": told.text or ""})
        return Trajectory(
            question, passages=found.passages, answer=last.text, other_cost=found.cost + told.cost + last.cost
        )


def both(program: Solver, **context: Any) -> Iterable[dspy.Prediction]:
    """The prediction of the synchronous and of the asynchronous driver."""
    lm = scripted_lm([(r"Guess: ", "Rome"), (r"Guess:$", "Oslo")])
    with dspy.context(lm=lm, **context):
        yield program(question="Where is it?")
        yield asyncio.run(program.acall(question="Where is it?"))


def test_steps_written_once_run_in_both_drivers(index: Any) -> None:
    for result in both(TwoCalls(index)):
        assert result.answer == "Rome"
        assert len(result.trajectory.passages) == 2
        assert (result.cost.retrievals, result.cost.lm_calls) == (1, 2)


@pytest.mark.parametrize("accepted", [True, False])
def test_a_tentative_call_joins_the_trace_once_accepted(index: Any, accepted: bool) -> None:
    program = TwoCalls(index, accepted=accepted)
    lm = scripted_lm([(r"Guess: ", "Rome"), (r"Guess:$", "Oslo")])
    expected = [program.first, program.second] if accepted else [program.second]
    for call in ("sync", "async"):
        with dspy.context(lm=lm, trace=[]):
            if call == "sync":
                program(question="Where is it?")
            else:
                asyncio.run(program.acall(question="Where is it?"))
            assert [entry[0] for entry in dspy.settings.trace] == expected


def test_without_a_trace_nothing_is_recorded(index: Any) -> None:
    for result in both(TwoCalls(index), trace=None):
        assert result.answer == "Rome"
    for result in both(TwoCalls(index), max_trace_size=0):
        assert result.answer == "Rome"


def test_a_trace_keeps_its_size(index: Any) -> None:
    program = TwoCalls(index)
    lm = scripted_lm([(r"Guess: ", "Rome"), (r"Guess:$", "Oslo")])
    with dspy.context(lm=lm, trace=[], max_trace_size=3):
        for _ in range(3):
            program(question="Where is it?")
        assert [entry[0] for entry in dspy.settings.trace] == [program.second, program.first, program.second]


def test_a_program_without_a_retriever_says_so() -> None:
    with dspy.context(lm=scripted_lm([])), pytest.raises(InputError, match="without a retriever"):
        TwoCalls(None)(question="Where is it?")


# --- the retriever's handle -------------------------------------------------------------------------------------------


def test_a_handle_is_shared_by_copies_and_is_not_iterable(index: Any) -> None:
    handle = RetrieverHandle(index)
    assert copy.deepcopy(handle) is handle
    with pytest.raises(TypeError):
        iter(handle)  # type: ignore[call-overload]
    assert isinstance(index, Retriever)


def test_a_handle_gives_at_most_k_passages(index: Any) -> None:
    passages = [Passage(str(number), "", "t") for number in range(9)]
    assert RetrieverHandle(lambda query, k: passages).search("q", 4) == tuple(passages[:4])
    assert asyncio.run(RetrieverHandle(lambda query, k: passages).asearch("q", 4)) == tuple(passages[:4])


def test_a_handle_awaits_asearch_where_there_is_one(index: Any) -> None:
    class Both:
        def search(self, query: str, k: int) -> list[Passage]:
            return [Passage("sync", "", query)]

        async def asearch(self, query: str, k: int) -> list[Passage]:
            return [Passage("async", "", query)] * k

    handle = RetrieverHandle(Both())
    assert [passage.id for passage in handle.search("q", 2)] == ["sync"]
    assert [passage.id for passage in asyncio.run(handle.asearch("q", 2))] == ["async", "async"]


def test_metadata_of_results_is_kept() -> None:
    found = RetrieverHandle(lambda query, k: [{"text": "x", "metadata": {"year": 1}}, {"text": "y", "metadata": 3}])
    assert [dict(passage.metadata) for passage in found.search("q", 2)] == [{"year": 1}, {}]


def test_a_handle_pickles_with_its_retriever(index: Any) -> None:
    loaded = pickle.loads(pickle.dumps(RetrieverHandle(index)))
    assert loaded.search("Osk Tower", 1) == RetrieverHandle(index).search("Osk Tower", 1)


def test_errors_of_hopgate_pass_through_a_handle() -> None:
    def refuse(query: str, k: int) -> Any:
        raise InputError("k is too large")

    with pytest.raises(InputError, match="too large"):
        RetrieverHandle(refuse).search("q", 4)


def test_a_message_does_not_repeat_a_long_query() -> None:
    def broken(query: str, k: int) -> Any:
        raise ValueError("no")

    with pytest.raises(RetrievalError) as caught:
        RetrieverHandle(broken).search("x" * 5000, 4)
    assert len(str(caught.value)) < 300


# --- settings and gates -----------------------------------------------------------------------------------------------


def test_settings_are_a_parameter_that_survives_json() -> None:
    settings = Settings(ActiveSettings(tau=-0.7, gate="always"))
    state = settings.dump_state()
    other = Settings(ActiveSettings())
    other.load_state(state)
    assert other.values == settings.values
    assert isinstance(settings, dspy.predict.parameter.Parameter)
    settings.reset()
    assert settings.values.tau == -0.7


def test_loading_does_not_change_the_state_that_is_loaded() -> None:
    state = Settings(ProgramSettings()).dump_state()
    before = dict(state)
    Settings(ProgramSettings()).load_state(state)
    assert state == before


def test_settings_cannot_be_changed_behind_the_schema() -> None:
    with pytest.raises(ValueError, match="frozen"):
        ProgramSettings().k = 0


@pytest.mark.parametrize(("mean", "kept"), [(-0.29, True), (-0.3, True), (-0.31, False), (None, False)])
def test_a_threshold_gate(mean: float | None, kept: bool) -> None:
    from hopgate.lms import AnswerConfidence

    confidence = AnswerConfidence(mean, mean, mean, mean, 1 if mean is not None else 0)
    gate = ThresholdGate(-0.3)
    assert gate.keeps(Draft(Trajectory("q"), "s", "d", confidence)) is kept
    assert isinstance(gate, Gate)


def test_a_threshold_gate_does_not_keep_what_has_no_confidence() -> None:
    assert not ThresholdGate(-0.3).keeps(Draft(Trajectory("q"), "s", "d", None))


@pytest.mark.parametrize("search", [True, False])
def test_constant_gates(search: bool) -> None:
    gate = ConstantGate(search)
    assert isinstance(gate, Gate)
    assert gate.keeps(Draft(Trajectory("q"), "s", "d", None)) is not search
    assert gate.needs_draft is not search
    assert not gate.needs_confidence


# --- transcripts and worked examples ----------------------------------------------------------------------------------


def test_a_transcript_has_one_line_for_each_thing() -> None:
    passage = Passage("1", "Osk\nTower", "Built by\u2028Mira Dol.")
    hop = Hop("Who built\nit?", draft="Xyzzy", source="search", passages=(passage,), answer="Mira\tDol")
    trajectory = Trajectory("q?", (hop,))
    assert transcript(trajectory, words=100).split("\n") == [
        "Task 1: Who built it?", "Found: Osk Tower | Built by Mira Dol.", "Conclusion 1: Mira Dol"
    ]  # fmt: skip
    assert "Found" not in transcript(trajectory, words=None)
    assert "Xyzzy" not in transcript(trajectory, words=100)


@pytest.mark.parametrize(
    ("text", "words", "expected"),
    [
        ("one two three", 3, "one two three"),
        ("one two three", 2, "one two ..."),
        ("one two ", 2, "one two "),
        ("", 2, ""),
    ],
)
def test_texts_are_cut_at_words(text: str, words: int, expected: str) -> None:
    assert shorten(text, words) == expected


@pytest.mark.parametrize("step", ["next_sub_question", "draft", "read", "compose"])
def test_worked_examples_fit_the_signature_of_each_step(step: str, index: Any) -> None:
    signature = getattr(ActiveQA(index), step).signature
    for example in DEFAULT_EXAMPLES:
        for demo in step_demos(example, step, 100):
            assert set(demo) - {"transcript"} <= set(signature.fields)
            assert "Answer: " in demo["transcript"]
            if step == "draft":
                assert "Found:" not in demo.get("trajectory", "")


def test_an_example_without_an_answer_is_refused() -> None:
    with pytest.raises(InputError, match="needs an answer"):
        step_demos(Trajectory("q?"), "read", 100)


def test_examples_of_ones_own_replace_the_default(index: Any) -> None:
    own = Trajectory("Where is Plugh?", (Hop("Where is Plugh?", answer="in Xyzzy"),), answer="Xyzzy")
    program = ActiveQA(index, examples=[own.to_dict()])
    lm = scripted_lm(lambda prompt: Reply("none" if prompt.endswith("Task 2:") else "Varn", -0.1))
    with dspy.context(lm=lm):
        program(question="Where is the Osk Tower?")
    assert all("Where is Plugh?" in prompt and "Halden" not in prompt for prompt in lm.engine.prompts)


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        ("Who built the tower?", "who built the tower", True),
        ("Who built the Osk Tower?", "Who built the Osk Towers?", True),
        ("Who built the tower?", "When was the tower built?", False),
        ("In which year was Ann born?", "In which year was Bob born?", False),
        ("When was the father of Anna Karlsson born?", "When was the mother of Anna Karlsson born?", False),
        ("Who was the 41st president of the United States?", "Who was the 43rd president of the United States?", False),
        ("What is the population of Varn in 1950?", "What is the population of Varn in 1960?", False),
    ],
)
def test_near_identical_sub_questions(left: str, right: str, same: bool) -> None:
    assert repeats(right, Trajectory("q?", (Hop(left),))) is same


def test_the_same_question_in_other_dress() -> None:
    assert same_question("Who  built it?", "who built IT")
    assert not same_question("Who built it?", "Who burnt it?")


# --- metering ---------------------------------------------------------------------------------------------------------


def test_a_call_that_could_not_be_read_is_counted(index: Any) -> None:
    lm = scripted_lm([(r"Guess: ", "Rome"), (r"Guess:$", " "), (r"Guess:", "Rome")])
    with dspy.context(lm=lm):
        result = TwoCalls(index)(question="Where is it?")
    assert result.cost.lm_calls == len(lm.engine.prompts) == 2


def test_prefix_tokens_are_those_of_the_backends_cache(index: Any) -> None:
    from dataclasses import replace

    lm = scripted_lm([(r"Guess: ", "Rome"), (r"Guess:", "Oslo")])
    complete = lm.engine.complete

    def cached(request: Any) -> Any:
        response = complete(request)
        return replace(response, usage=replace(response.usage, cache_read_tokens=3))

    lm.engine.complete = cached
    with dspy.context(lm=lm):
        assert TwoCalls(index)(question="Where is it?").cost.prefix_tokens == 6


def test_costs_name_every_field() -> None:
    assert Cost(retrievals=1, seconds=0.5) + Cost(lm_calls=2, seconds=0.25) == Cost(
        retrievals=1, lm_calls=2, seconds=0.75
    )
