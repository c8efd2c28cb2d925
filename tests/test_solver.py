"""The common part of all programs: requests and drivers, the retriever's handle, settings, metering."""

from __future__ import annotations

import asyncio
import copy
import json
import pickle
from collections.abc import Iterable
from datetime import date
from functools import partial
from types import MappingProxyType
from typing import Any

import dspy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_programs_conformance import EXPECTED, script

from hopgate.core import InputError, Passage, RetrievalError
from hopgate.lms.testing import Reply, scripted_lm
from hopgate.programs import (
    DEFAULT_EXAMPLES,
    ActiveQA,
    ActiveSettings,
    ConstantGate,
    Cost,
    Discriminator,
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
from hopgate.programs.registry import PROGRAMS, make_program
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


# --- what comes from outside ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("question", [5, None, ["a"], b"who?", {"q": "who?"}, True])
def test_a_question_that_is_no_text_is_called_that(index: Any, question: Any) -> None:
    calls: list[tuple[Any, dict[str, str]]] = [(TwoCalls(index), {}), (Discriminator(), {"answer": "x"})]
    for module, more in calls:
        with pytest.raises(InputError, match=f"must be a text, got a {type(question).__name__}"):
            module(question=question, **more)
        with pytest.raises(InputError, match=f"must be a text, got a {type(question).__name__}"):
            asyncio.run(module.acall(question=question, **more))


@pytest.mark.parametrize("adapter", [dspy.JSONAdapter(), dspy.ChatAdapter()])
@pytest.mark.parametrize(
    ("written", "answer"),
    [("null", ""), ('"None"', "None"), ('"null"', "null"), ('""', ""), ('" "', ""), ('"Nonesuch"', "Nonesuch")],
)
def test_a_null_is_no_answer(index: Any, adapter: Any, written: str, answer: str) -> None:
    lm = scripted_lm(lambda _: f'{{"guess": {written}, "answer" : {written}}}')
    with dspy.context(lm=lm, adapter=adapter):
        for result in (TwoCalls(index)(question="q?"), asyncio.run(TwoCalls(index).acall(question="q?"))):
            assert (result.answer, result.answered) == (answer, bool(answer))


def test_the_word_none_under_a_label_is_an_answer(index: Any) -> None:
    text = "[[ ## guess ## ]]\nNone\n\n[[ ## answer ## ]]\nNone\n"
    with dspy.context(lm=scripted_lm(lambda _: text), adapter=dspy.ChatAdapter()):
        assert TwoCalls(index)(question="q?").answer == "None"


def test_a_null_among_further_outputs_is_left_out() -> None:
    class Two(Solver):
        def __init__(self) -> None:
            super().__init__(None, ProgramSettings())
            self.both = dspy.Predict("question -> answer, reason")

        def _steps(self, question: str, trajectory: Trajectory) -> Any:
            told = yield Ask("both", "answer", {"question": question}, also=("reason",))
            return Trajectory(question, answer=told.text, rejected=tuple(told.others))

    lm = scripted_lm(lambda _: '{"answer": "x", "reason": null}')
    with dspy.context(lm=lm, adapter=dspy.JSONAdapter()):
        assert Two()(question="q?").trajectory.rejected == ()


@pytest.mark.parametrize("name", PROGRAMS)
def test_half_a_character_from_an_lm_or_a_retriever_stops_no_program(index: Any, name: str) -> None:
    half = "\udfff\ud800"
    reply = script()

    def broken(prompt: str) -> Reply:
        said = reply(prompt)
        return Reply(f"{said.text} {half}", said.logprob)

    def search(query: str, k: int) -> list[Any]:
        return [Passage(f"{p.id}{half}", p.title + half, p.text + half) for p in index.search(query, k)]

    program = make_program(name, search, **EXPECTED[name].settings)
    with dspy.context(lm=scripted_lm(broken), trace=[]):
        for result in (program(question="Who built it?"), asyncio.run(program.acall(question="Who built it?"))):
            json.dumps(result.trajectory.to_dict(), ensure_ascii=False).encode()
        assert "ud800" not in repr([dict(outputs) for _, _, outputs in dspy.settings.trace])


@pytest.mark.parametrize(
    "item", ["T | x\ud800", {"text": "x\ud800", "title": "\udfff"}, Passage("1\ud800", "", "\ud800")]
)
def test_half_a_character_in_a_passage_is_replaced(item: Any) -> None:
    (passage,) = RetrieverHandle(lambda query, k: [item]).search("q", 1)
    (passage.id + passage.title + passage.text).encode()
    assert passage.text.endswith("?")


@pytest.mark.parametrize(
    "metadata",
    [
        {"d": date(2020, 1, 1)}, {"x": float("nan")}, {"x": [float("inf")]}, {1: "x"}, {"x": {None: 1}}, {(1, 2): 3},
        {"x": {1, 2}}, {"x": [{"y": object()}]}, {"x": [{2: "y"}]}, {"x": b"y"},
    ],
)  # fmt: skip
def test_metadata_that_is_no_json_is_refused_when_it_is_found(metadata: Any) -> None:
    for item in (Passage("1", "", "text", metadata=metadata), {"text": "text", "metadata": metadata}):
        handle = RetrieverHandle(lambda query, k, item=item: [item])
        with pytest.raises(RetrievalError, match="result 1 of the retriever has metadata"):
            handle.search("q", 1)
        with pytest.raises(RetrievalError, match="result 1 of the retriever has metadata"):
            asyncio.run(handle.asearch("q", 1))


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), _JSON, max_size=3))
def test_metadata_that_is_json_comes_back_from_a_trajectory(metadata: dict[str, Any]) -> None:
    item = Passage("1", "", "text", metadata=MappingProxyType(metadata))
    found = RetrieverHandle(lambda query, k: [item]).search("q", 1)
    trajectory = Trajectory("q", passages=found)
    assert Trajectory.from_dict(json.loads(json.dumps(trajectory.to_dict()))) == trajectory
    assert found[0].metadata == metadata


class Client:
    """An asynchronous client whose methods a user may hide in functions that are not."""

    def __init__(self, index: Any) -> None:
        self.index = index

    async def asearch(self, query: str, k: int) -> list[Passage]:
        await asyncio.sleep(0)
        return self.index.search(query, k)

    async def arerank(self, query: str, passages: list[Passage]) -> list[Passage]:
        await asyncio.sleep(0)
        return passages[::-1]


class Hidden:
    """A retriever whose methods look synchronous."""

    def __init__(self, client: Client) -> None:
        self.search = lambda query, k: client.index.search(query, k)
        self.rerank = lambda query, passages: client.arerank(query, passages)


class Open(Hidden):
    """A retriever whose rerank is plainly asynchronous."""

    def __init__(self, client: Client) -> None:
        super().__init__(client)
        self.rerank = client.arerank


def test_an_asynchronous_search_in_a_function_is_awaited(index: Any) -> None:
    client = Client(index)
    for search in (
        lambda query, k: client.asearch(query, k),
        partial(client.asearch),
        type("Callable", (), {"__call__": lambda self, query, k: client.asearch(query, k)})(),
    ):
        program = TwoCalls(search)
        lm = scripted_lm([(r"Guess: ", "Rome"), (r"Guess:$", "Oslo")])
        with dspy.context(lm=lm):
            assert len(asyncio.run(program.acall(question="q?")).trajectory.passages) == 2
            with pytest.raises(RetrievalError, match="search is asynchronous: call the program with `acall`"):
                program(question="q?")


@pytest.mark.parametrize("kind", [Hidden, Open])
def test_an_asynchronous_rerank_is_awaited(index: Any, kind: type[Hidden]) -> None:
    handle = RetrieverHandle(kind(Client(index)))
    passages = tuple(index.search("Osk Tower", 3))
    assert asyncio.run(handle.arerank("q", passages)) == passages[::-1]
    with pytest.raises(RetrievalError, match="rerank is asynchronous: call the program with `acall`"):
        handle.rerank("q", passages)

    class Reranks(TwoCalls):
        def _steps(self, question: str, trajectory: Trajectory) -> Any:
            found = yield Find(question, 2, depth=3, rerank_query="other")
            return Trajectory(question, passages=found.passages, answer="x")

    result = asyncio.run(Reranks(kind(Client(index))).acall(question="Osk Tower"))
    expected = tuple(index.search("Osk Tower", 3))[::-1][:2]
    assert result.trajectory.passages == expected


def test_an_asynchronous_rerank_that_fails_is_a_retrieval_error(index: Any) -> None:
    class Failing(Hidden):
        def __init__(self, client: Client) -> None:
            super().__init__(client)

            async def rerank(query: str, passages: list[Passage]) -> list[Passage]:
                raise ConnectionError("gone")

            self.rerank = rerank

    with pytest.raises(RetrievalError, match="reranking failed"):
        asyncio.run(RetrieverHandle(Failing(Client(index))).arerank("q", index.search("q", 2)))


@pytest.mark.parametrize("value", [5, True, 0.5, "examples", {"question": "q"}, {1, 2}, b"x", [5], [None], ["x"]])
def test_examples_that_are_no_list_of_trajectories_are_refused(index: Any, value: Any) -> None:
    with pytest.raises(InputError, match="setting `examples`"):
        ActiveQA(index, examples=value)


def test_a_title_that_the_text_repeats_is_kept_once() -> None:
    """What servers of the ColBERT kind send: ``title`` beside a ``text`` that begins with it."""
    handle = RetrieverHandle(
        lambda query, k: [{"pid": 1, "title": "Osk Tower", "text": "Osk Tower | It was built in 1911."}]
    )
    (found,) = handle.search("Who?", 1)
    assert (found.title, found.text) == ("Osk Tower", "It was built in 1911.")
    assert found.long_text == "Osk Tower | It was built in 1911."
