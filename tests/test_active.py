"""ActiveQA with a scripted LM: each path, each limit, what each step sees, and what the trace learns."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import dspy
import pytest

from hopgate.core import ConfidenceError, InputError, Passage, RetrievalError
from hopgate.lms.testing import Reply, scripted_lm
from hopgate.programs import DEFAULT_EXAMPLES, ActiveQA, Cost, Draft, ThresholdGate, Trajectory

QUESTION = "When was the designer of the Osk Tower born?"
SURE, UNSURE = -0.01, -3.0

Spoken = Reply | str


@dataclass
class World:
    """What the LM says: sub-questions, drafts and conclusions by number, then the answer."""

    tasks: list[Spoken] = field(default_factory=lambda: ["Who designed the Osk Tower?", "When was Mira Dol born?"])
    drafts: list[Spoken] = field(default_factory=lambda: [Reply("Ann Ort", UNSURE), Reply("1902", UNSURE)])
    reads: list[Spoken] = field(default_factory=lambda: ["Mira Dol", "1871"])
    reread: list[Spoken] = field(default_factory=list)
    plan: Spoken = "Who designed the Osk Tower? | When was #1 born?"
    answer: Spoken = "in 1871"

    def __call__(self, prompt: str) -> Spoken:
        kind, number = step_of(prompt)
        if kind == "plan":
            return self.plan
        if kind == "compose":
            return self.answer
        if kind == "next_sub_question":
            return self.tasks[number - 1] if number <= len(self.tasks) else "none"
        return {"draft": self.drafts, "read": self.reads, "reread": self.reread}[kind][number - 1]


def step_of(prompt: str) -> tuple[str, int]:
    """Which step a prompt belongs to, and the number of the line that is asked for."""
    body = prompt.split("\nassistant: ")[-1]
    label = body.rsplit("\n", 1)[-1]
    name, _, number = label.rstrip(":").partition(" ")
    if name in {"Plan", "Answer"}:
        return ("plan" if name == "Plan" else "compose"), 0
    if name == "Task":
        return "next_sub_question", int(number)
    assert name == "Conclusion", label
    opened = body.rsplit(f"Task {number}:", 1)[1]
    kind = "read" if "\nFound:" in opened else "reread" if "\nFound:" in body else "draft"
    return kind, int(number)


def steps(lm: dspy.LM) -> list[str]:
    return [step_of(prompt)[0] for prompt in lm.engine.prompts]


def ask(
    index: Any, world: Callable[[str], Spoken], *, own_gate: Any = None, own_decomposer: Any = None, **settings: Any
) -> tuple[dspy.Prediction, dspy.LM]:
    program = ActiveQA(index, gate=own_gate, decomposer=own_decomposer)
    program.settings.update(**settings)
    lm = scripted_lm(world)
    with dspy.context(lm=lm):
        return program(question=QUESTION), lm


def timeless(value: Any) -> Any:
    """A trajectory as JSON without its seconds."""
    if isinstance(value, Trajectory):
        return timeless(value.to_dict())
    if isinstance(value, dict):
        return {key: timeless(item) for key, item in value.items() if key != "seconds"}
    return [timeless(item) for item in value] if isinstance(value, list | tuple) else value


# --- the three sources ------------------------------------------------------------------------------------------------


def test_a_confident_draft_is_the_answer_of_its_hop(index: Any) -> None:
    world = World(drafts=[Reply("Mira Dol", SURE), Reply("1871", SURE)])
    result, lm = ask(index, world)
    trajectory = result.trajectory
    assert result.answer == "in 1871"
    assert [(hop.source, hop.answer, hop.query, hop.passages) for hop in trajectory.hops] == [
        ("memory", "Mira Dol", None, ()),
        ("memory", "1871", None, ()),
    ]
    assert trajectory.hops[0].confidence.mean == pytest.approx(SURE)
    assert trajectory.stop_reason == "finished"
    assert index.queries == []
    assert result.cost.retrievals == 0
    assert steps(lm) == ["next_sub_question", "draft"] * 2 + ["next_sub_question", "compose"]


def test_an_unsure_draft_leads_to_a_search(index: Any) -> None:
    result, lm = ask(index, World())
    first, second = result.trajectory.hops
    assert (first.source, first.draft, first.answer) == ("search", "Ann Ort", "Mira Dol")
    assert first.confidence.mean == pytest.approx(UNSURE)
    assert first.passages[0].id == "1"
    assert len(first.passages) == 3
    assert (second.source, second.answer) == ("search", "1871")
    assert second.answer_confidence.mean == pytest.approx(-0.1)
    assert result.cost.retrievals == 2
    assert steps(lm) == ["next_sub_question", "draft", "read"] * 2 + ["next_sub_question", "compose"]


@pytest.mark.parametrize(("tau", "source"), [(-3.0, "memory"), (-2.99, "search"), (0.0, "search")])
def test_the_threshold_is_the_lowest_confidence_that_is_kept(index: Any, tau: float, source: str) -> None:
    result, _ = ask(index, World(), tau=tau)
    assert {hop.source for hop in result.trajectory.hops} == {source}


def test_passages_of_an_earlier_hop_may_answer_a_later_one(index: Any) -> None:
    world = World(reread=["", Reply("1871", SURE)])
    result, lm = ask(index, world, reread=True)
    second = result.trajectory.hops[1]
    assert (second.source, second.answer, second.query, second.passages) == ("already_read", "1871", None, ())
    assert second.answer_confidence.mean == pytest.approx(SURE)
    assert second.draft == "1902"
    assert result.cost.retrievals == 1
    assert steps(lm)[3:6] == ["next_sub_question", "draft", "reread"]


def test_an_unsure_reading_of_earlier_passages_leads_to_a_search(index: Any) -> None:
    result, lm = ask(index, World(reread=["", Reply("1902", UNSURE)]), reread=True)
    assert [hop.source for hop in result.trajectory.hops] == ["search", "search"]
    assert result.trajectory.hops[1].answer == "1871"
    assert steps(lm).count("reread") == 1


def test_without_earlier_passages_nothing_is_read_again(index: Any) -> None:
    _, lm = ask(index, World(drafts=[Reply("Mira Dol", SURE), Reply("1902", UNSURE)]), reread=True)
    assert "reread" not in steps(lm)


# --- decomposition ----------------------------------------------------------------------------------------------------


def test_a_plan_is_made_once_and_its_numbers_are_filled(index: Any) -> None:
    result, lm = ask(index, World(), decomposer="plan")
    assert result.trajectory.plan == ("Who designed the Osk Tower?", "When was #1 born?")
    assert [hop.sub_question for hop in result.trajectory.hops] == [
        "Who designed the Osk Tower?", "When was Mira Dol born?"
    ]  # fmt: skip
    assert steps(lm) == ["plan", "draft", "read", "draft", "read", "compose"]
    assert result.trajectory.stop_reason == "finished"


def test_numbers_that_a_plan_cannot_mean_stay(index: Any) -> None:
    result, _ = ask(index, World(plan="Who lives at #7 Elm Street? | Is #1 a name?"), decomposer="plan")
    assert [hop.sub_question for hop in result.trajectory.hops] == [
        "Who lives at #7 Elm Street?", "Is Mira Dol a name?"
    ]  # fmt: skip


@pytest.mark.parametrize("plan", ["", " ", "|", "none"])
def test_a_plan_that_cannot_be_read_is_the_question(index: Any, plan: str) -> None:
    result, _ = ask(index, World(plan=plan), decomposer="plan")
    assert [hop.sub_question for hop in result.trajectory.hops] == [QUESTION]
    assert result.answer == "in 1871"


def test_settings_may_be_given_to_the_constructor(index: Any) -> None:
    # The names of the settings are those that ActiveSettings documents.
    lm = scripted_lm(World())
    with dspy.context(lm=lm):
        assert ActiveQA(index, decomposer="plan")(question=QUESTION).trajectory.plan is not None
        assert ActiveQA(index, gate="always")(question=QUESTION).trajectory.hops[0].draft is None
        assert ActiveQA(index, gate="never")(question=QUESTION).cost.retrievals == 0


def test_the_question_itself_may_be_the_first_sub_question(index: Any) -> None:
    result, lm = ask(index, World(tasks=["unused"]), start="question")
    assert [hop.sub_question for hop in result.trajectory.hops] == [QUESTION]
    assert steps(lm) == ["draft", "read", "next_sub_question", "compose"]
    assert index.queries[0][0] == QUESTION


def test_an_lm_that_asks_nothing_is_asked_the_question(index: Any) -> None:
    result, _ = ask(index, World(tasks=["none"]))
    assert [hop.sub_question for hop in result.trajectory.hops] == [QUESTION]
    assert result.trajectory.stop_reason == "finished"


def test_a_first_reply_that_is_no_question_is_as_good_as_none(index: Any) -> None:
    # Otherwise nothing would be drafted or searched at all.
    result, _ = ask(index, World(tasks=["The Osk Tower stands in Varn."]))
    assert [hop.sub_question for hop in result.trajectory.hops] == [QUESTION]


def test_a_later_statement_in_place_of_a_question_ends_the_chain(index: Any) -> None:
    result, _ = ask(index, World(tasks=["Who designed the Osk Tower?", "Mira Dol was born in 1871."]))
    assert len(result.trajectory.hops) == 1
    assert result.trajectory.stop_reason == "finished"


def test_a_decomposer_of_ones_own(index: Any) -> None:
    from hopgate.programs.decomposers import Next

    class Fixed:
        def next(self, trajectory: Trajectory, words: int, demos: Any) -> Iterator[Any]:
            yield from ()
            if trajectory.hops:
                return Next(None, trajectory, "finished")
            return Next("Who designed the Osk Tower?", trajectory)

    result, lm = ask(index, World(), own_decomposer=Fixed())
    assert [hop.sub_question for hop in result.trajectory.hops] == ["Who designed the Osk Tower?"]
    assert "next_sub_question" not in steps(lm)


# --- search and rerank ------------------------------------------------------------------------------------------------


def test_the_query_carries_the_answers_so_far(index: Any) -> None:
    world = World(tasks=["Who designed the Osk Tower?", "When was this person born?"])
    ask(index, world)
    assert [query for query, _ in index.queries] == [
        "Who designed the Osk Tower?", "When was this person born? Mira Dol"
    ]  # fmt: skip


def test_an_answer_that_the_sub_question_names_is_not_repeated(index: Any) -> None:
    ask(index, World())
    assert [query for query, _ in index.queries] == ["Who designed the Osk Tower?", "When was Mira Dol born?"]


def test_the_query_may_be_the_sub_question_alone(index: Any) -> None:
    ask(index, World(tasks=["Who designed the Osk Tower?", "When was this person born?"]), query="sub_question")
    assert index.queries[1][0] == "When was this person born?"


class Reranking:
    """An index that reranks in reverse, and records by what."""

    def __init__(self, index: Any) -> None:
        self.index = index
        self.reranked: list[tuple[str, list[str]]] = []

    def search(self, query: str, k: int) -> list[Passage]:
        return self.index.search(query, k)

    def rerank(self, query: str, passages: list[Passage]) -> list[Passage]:
        self.reranked.append((query, [passage.id for passage in passages]))
        return passages[::-1]


def test_it_reranks_by_the_sub_question_alone(index: Any) -> None:
    retriever = Reranking(index)
    world = World(tasks=["Who designed the Osk Tower?", "When was this person born?"])
    result, _ = ask(retriever, world, k=2, depth=4)
    assert [k for _, k in index.queries] == [4, 4]
    assert index.queries[1][0] == "When was this person born? Mira Dol"
    assert [query for query, _ in retriever.reranked] == ["Who designed the Osk Tower?", "When was this person born?"]
    for hop, (_, searched) in zip(result.trajectory.hops, retriever.reranked, strict=True):
        assert [passage.id for passage in hop.passages] == searched[::-1][:2]


def test_an_index_is_not_asked_to_rerank_by_what_it_was_searched_for(index: Any) -> None:
    class Index(Reranking):
        ranks_alike = True

    retriever = Index(index)
    world = World(tasks=["Who designed the Osk Tower?", "When was this person born?"])
    result, _ = ask(retriever, world, k=2, depth=4)
    assert [k for _, k in index.queries] == [2, 4]
    assert [query for query, _ in retriever.reranked] == ["When was this person born?"]
    searched = index.search("Who designed the Osk Tower?", 2)
    assert [passage.id for passage in result.trajectory.hops[0].passages] == [passage.id for passage in searched]


def test_both_rankings_may_be_fused(index: Any) -> None:
    class Rotating(Reranking):
        def rerank(self, query: str, passages: list[Passage]) -> list[Passage]:
            return [passages[1], passages[2], passages[3], passages[0]]

    result, _ = ask(Rotating(index), World(), k=4, depth=4, rerank="fused")
    searched = index.search("Who designed the Osk Tower?", 4)
    # 1/(60 + rank) of both: second (1/62 + 1/61), first (1/61 + 1/64), third, fourth.
    expected = [searched[1].id, searched[0].id, searched[2].id, searched[3].id]
    assert [passage.id for passage in result.trajectory.hops[0].passages] == expected


def test_reranking_may_be_off(index: Any) -> None:
    retriever = Reranking(index)
    ask(retriever, World(), k=2, depth=4, rerank="none")
    assert retriever.reranked == []
    assert [k for _, k in index.queries] == [2, 2]


# --- limits -----------------------------------------------------------------------------------------------------------


def test_the_number_of_hops_is_limited(index: Any) -> None:
    result, _ = ask(index, World(), max_hops=1)
    assert len(result.trajectory.hops) == 1
    assert result.trajectory.stop_reason == "max_hops"
    assert result.answer == "in 1871"


@pytest.mark.parametrize(
    "again", ["Who designed the Osk Tower?", "who designed the osk tower", "Who designed the Osk Towers?"]
)
def test_a_repeated_or_nearly_identical_sub_question_ends_the_chain(index: Any, again: str) -> None:
    result, _ = ask(index, World(tasks=["Who designed the Osk Tower?", again]))
    assert len(result.trajectory.hops) == 1
    assert result.trajectory.stop_reason == "repeated"


def test_a_similar_question_about_something_else_is_no_repetition(index: Any) -> None:
    result, _ = ask(index, World(tasks=["When was Mira Dol born?", "When was Ann Orsk born?"]))
    assert len(result.trajectory.hops) == 2


@pytest.mark.parametrize("asked", ["", " "])
def test_an_empty_sub_question_ends_the_chain(index: Any, asked: str) -> None:
    result, _ = ask(index, World(tasks=["Who designed the Osk Tower?", asked]))
    assert len(result.trajectory.hops) == 1
    assert result.trajectory.stop_reason == "empty"


def test_the_context_budget_ends_the_chain() -> None:
    long = [Passage(str(number), "Osk", "tower " * 30) for number in range(3)]
    result, _ = ask(lambda query, k: long, World(), context_words=50)
    assert len(result.trajectory.hops) == 1
    assert result.trajectory.stop_reason == "context"
    assert result.answer == "in 1871"


# --- what each step sees ----------------------------------------------------------------------------------------------


def test_a_draft_never_sees_passages(index: Any) -> None:
    _, lm = ask(index, World())
    texts = [passage.text for passage in index.all]
    for prompt in lm.engine.prompts:
        kind, number = step_of(prompt)
        shown = any(text in prompt for text in texts)
        if kind == "draft":
            assert not shown
            assert "\nFound:" not in prompt.split("\nassistant: ")[-1]
        elif kind in {"read", "compose"} or number > 1:
            assert shown


def test_a_rejected_draft_is_not_rendered_later(index: Any) -> None:
    result, lm = ask(index, World(drafts=[Reply("Xyzzy", UNSURE), Reply("Plugh", UNSURE)]))
    assert [hop.draft for hop in result.trajectory.hops] == ["Xyzzy", "Plugh"]
    assert not any("Xyzzy" in prompt or "Plugh" in prompt for prompt in lm.engine.prompts)


def test_the_last_step_reads_the_best_passages_in_turn(index: Any) -> None:
    result, lm = ask(index, World(), final_passages=2)
    first, second = result.trajectory.hops
    assert first.passages[0].id != second.passages[0].id
    assert [passage.id for passage in result.trajectory.passages] == [first.passages[0].id, second.passages[0].id]
    last = lm.engine.prompts[-1]
    assert last.rsplit("Conclusion 2:", 1)[1].count("Found:") == 2


def test_passages_are_cut_to_the_words_of_the_settings(index: Any) -> None:
    _, lm = ask(index, World(), passage_words=5)
    read = next(prompt for prompt in lm.engine.prompts if step_of(prompt)[0] == "read")
    assert "Found: Osk Tower | The Osk ...\n" in read


# --- nothing came -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("empty", ["", " ", "\n"])
def test_an_empty_draft_counts_as_none_and_the_program_searches(index: Any, empty: str) -> None:
    result, _ = ask(index, World(drafts=[Reply(empty, SURE), Reply("1871", SURE)]))
    first = result.trajectory.hops[0]
    assert (first.draft, first.confidence, first.source, first.answer) == (None, None, "search", "Mira Dol")
    assert first.note
    assert result.cost.lm_calls == 6 + 1  # the empty call counts as well


@pytest.mark.parametrize("empty", ["", " "])
def test_empty_passages_readings_fall_back_to_the_draft(index: Any, empty: str) -> None:
    result, _ = ask(index, World(reads=[empty, "1871"]))
    assert result.trajectory.hops[0].answer == "Ann Ort"


@pytest.mark.parametrize("empty", ["", " "])
def test_an_empty_answer_falls_back_to_the_last_conclusion(index: Any, empty: str) -> None:
    result, _ = ask(index, World(answer=empty))
    assert result.answer == "1871"


def test_a_search_that_finds_nothing(index: Any) -> None:
    result, _ = ask(lambda query, k: [], World(reread=["Mira Dol", "1871"], drafts=[Reply("a", UNSURE)] * 2))
    # With no passage to show, the reading looks like a draft to the script.
    assert all(hop.source == "search" and hop.passages == () for hop in result.trajectory.hops)
    assert result.answer == "in 1871"


# --- gates ------------------------------------------------------------------------------------------------------------


def test_always_makes_no_draft(index: Any) -> None:
    result, lm = ask(index, World(), gate="always")
    assert "draft" not in steps(lm)
    assert [hop.draft for hop in result.trajectory.hops] == [None, None]
    assert result.cost.retrievals == 2


@pytest.mark.parametrize("draft", [Reply("Ann Ort", UNSURE), Reply("Ann Ort", None), Reply("", SURE)])
def test_never_does_not_search(index: Any, draft: Reply) -> None:
    result, _ = ask(index, World(drafts=[draft, Reply("1902", UNSURE)]), gate="never")
    assert index.queries == []
    assert result.cost.retrievals == 0
    assert [hop.source for hop in result.trajectory.hops] == ["memory", "memory"]


def test_a_gate_of_ones_own(index: Any) -> None:
    class ShortOnes:
        needs_draft = True
        needs_confidence = False

        def __init__(self) -> None:
            self.seen: list[Draft] = []

        def keeps(self, draft: Draft) -> bool:
            self.seen.append(draft)
            return len(draft.text) < 5

    gate = ShortOnes()
    result, _ = ask(index, World(), own_gate=gate)
    assert [hop.source for hop in result.trajectory.hops] == ["search", "memory"]
    assert [draft.text for draft in gate.seen] == ["Ann Ort", "1902"]
    assert [draft.sub_question for draft in gate.seen] == [hop.sub_question for hop in result.trajectory.hops]
    assert [len(draft.trajectory.hops) for draft in gate.seen] == [0, 1]


# --- no log-probabilities ---------------------------------------------------------------------------------------------


def without_logprobs() -> World:
    return World(
        tasks=[Reply("Who designed the Osk Tower?", None), Reply("When was Mira Dol born?", None)],
        drafts=[Reply("Ann Ort", None), Reply("1902", None)],
        reads=[Reply("Mira Dol", None), Reply("1871", None)],
        answer=Reply("in 1871", None),
    )


def test_missing_logprobs_are_an_error(index: Any) -> None:
    with pytest.raises(ConfidenceError, match=r"scripted/lm.*no log-probabilities"):
        ask(index, without_logprobs())


def test_missing_logprobs_may_mean_search(index: Any) -> None:
    result, _ = ask(index, without_logprobs(), without_confidence="search")
    assert [hop.source for hop in result.trajectory.hops] == ["search", "search"]
    first = result.trajectory.hops[0]
    assert (first.draft, first.confidence) == ("Ann Ort", None)
    assert "log-probabilities" in (first.note or "")
    assert result.answer == "in 1871"


def test_gates_that_need_no_confidence_work_without_logprobs(index: Any) -> None:
    for gate, searches in (("always", 2), ("never", 0)):
        result, _ = ask(index, without_logprobs(), gate=gate)
        assert result.cost.retrievals == searches


@pytest.mark.parametrize("without", ["raise", "search"])
def test_a_backend_that_does_not_take_logprobs_at_all(index: Any, without: str) -> None:
    program = ActiveQA(index, without_confidence=without)
    lm = scripted_lm(without_logprobs())
    lm.engine.supported_params = frozenset({"temperature", "max_tokens", "stop"})
    with dspy.context(lm=lm):
        if without == "raise":
            with pytest.raises(ConfidenceError):
                program(question=QUESTION)
        else:
            assert [hop.source for hop in program(question=QUESTION).trajectory.hops] == ["search", "search"]


def test_the_error_names_the_lm_that_was_called(index: Any) -> None:
    program = ActiveQA(index)
    silent = dspy.LM("silent/lm", engine=scripted_lm(without_logprobs()).engine, cache=False)
    program.draft.lm = silent
    with dspy.context(lm=scripted_lm(World())), pytest.raises(ConfidenceError, match="silent/lm"):
        program(question=QUESTION)


# --- retrievers -------------------------------------------------------------------------------------------------------


def test_a_retriever_that_raises(index: Any) -> None:
    def broken(query: str, k: int) -> Any:
        raise ConnectionError("no route")

    with pytest.raises(RetrievalError, match=r"Who designed.*ConnectionError: no route"):
        ask(broken, World())


def test_a_reranker_that_raises(index: Any) -> None:
    class Broken(Reranking):
        def rerank(self, query: str, passages: list[Passage]) -> list[Passage]:
            raise ConnectionError("no route")

    with pytest.raises(RetrievalError, match="no route"):
        ask(Broken(index), World())


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (["Osk Tower | Built by Mira Dol."], ("Osk Tower", "Built by Mira Dol.")),
        (["Built by Mira Dol."], ("", "Built by Mira Dol.")),
        ([{"long_text": "Built by Mira Dol."}], ("", "Built by Mira Dol.")),
        ([{"id": 7, "title": "Osk Tower", "text": "Built.", "score": 1}], ("Osk Tower", "Built.")),
        (dspy.Prediction(passages=["Osk Tower | Built."]), ("Osk Tower", "Built.")),
        ((Passage("1", "Osk", "Built."),), ("Osk", "Built.")),
    ],
    ids=["titled text", "text", "long_text", "dictionary", "prediction", "passages"],
)
def test_what_other_retrievers_return_becomes_passages(found: Any, expected: tuple[str, str]) -> None:
    result, _ = ask(lambda query, k: found, World())
    passage = result.trajectory.hops[0].passages[0]
    assert (passage.title, passage.text) == expected
    assert isinstance(passage.id, str)
    json.dumps(result.trajectory.to_dict())


@pytest.mark.parametrize(
    "found",
    ["one text", None, 7, [7], [None], [{"title": "no text"}], [{"text": 3}], {"a": 1}, [{"text": "t", "score": "x"}]],
    ids=repr,
)
def test_what_is_no_list_of_passages_is_refused(found: Any) -> None:
    with pytest.raises(RetrievalError):
        ask(lambda query, k: found, World())


@pytest.mark.parametrize("retriever", [None, 5, "index"])
def test_what_is_no_retriever_is_refused(retriever: Any) -> None:
    with pytest.raises(InputError):
        program = ActiveQA(retriever)
        with dspy.context(lm=scripted_lm(World())):
            program(question=QUESTION)


# --- the trace --------------------------------------------------------------------------------------------------------


def traced(index: Any, world: World, **settings: Any) -> tuple[list[str], list[Any]]:
    program = ActiveQA(index)
    program.settings.update(**settings)
    names = {id(predictor): name for name, predictor in program.named_predictors()}
    with dspy.context(lm=scripted_lm(world), trace=[]):
        program(question=QUESTION)
        trace = list(dspy.settings.trace)
    return [names[id(predictor)] for predictor, _, _ in trace], trace


def test_a_draft_joins_the_trace_only_as_the_answer_of_its_hop(index: Any) -> None:
    steps_traced, trace = traced(index, World(drafts=[Reply("Ann Ort", UNSURE), Reply("1871", SURE)]))
    assert steps_traced == ["next_sub_question", "read", "next_sub_question", "draft", "next_sub_question", "compose"]
    assert trace[3][2].draft == "1871"
    assert all("logprobs" not in output for _, _, output in trace)
    assert all("demos" not in inputs and "config" not in inputs for _, inputs, _ in trace)


def test_a_rejected_rereading_stays_out_of_the_trace(index: Any) -> None:
    steps_traced, trace = traced(index, World(reread=["", Reply("1902", UNSURE)]), reread=True)
    assert steps_traced.count("read") == 2
    assert [output.conclusion for _, _, output in trace if "conclusion" in output] == ["Mira Dol", "1871"]


# --- resuming ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("decomposer", ["iterative", "plan"])
@pytest.mark.parametrize("hops", [0, 1, 2])
def test_resuming_a_prefix_gives_the_rest(index: Any, hops: int, decomposer: str) -> None:
    program = ActiveQA(index)
    program.settings.update(decomposer=decomposer)
    lm = scripted_lm(World(drafts=[Reply("Ann Ort", UNSURE), Reply("1871", SURE)]))
    with dspy.context(lm=lm):
        whole = program(question=QUESTION)
        before = len(lm.engine.prompts)
        resumed = program(question=QUESTION, trajectory=whole.trajectory.prefix(hops))
    assert resumed.answer == whole.answer
    assert timeless(resumed.trajectory) == timeless(whole.trajectory)
    assert len(lm.engine.prompts) - before < before or hops == 0


def test_a_prefix_from_json_can_be_resumed(index: Any) -> None:
    program = ActiveQA(index)
    with dspy.context(lm=scripted_lm(World())):
        whole = program(question=QUESTION).trajectory
        prefix = Trajectory.from_dict(json.loads(json.dumps(whole.prefix(1).to_dict())))
        assert timeless(program(question=QUESTION, trajectory=prefix).trajectory) == timeless(whole)


def test_a_finished_trajectory_is_returned_as_it_is(index: Any) -> None:
    program = ActiveQA(index)
    lm = scripted_lm(World())
    with dspy.context(lm=lm):
        whole = program(question=QUESTION).trajectory
        before = len(lm.engine.prompts)
        again = program(question=QUESTION, trajectory=whole)
    assert again.trajectory == whole
    assert again.cost == whole.cost
    assert len(lm.engine.prompts) == before


def test_another_conclusion_in_a_prefix_changes_the_rest(index: Any) -> None:
    program = ActiveQA(index)
    lm = scripted_lm(World())
    with dspy.context(lm=lm):
        prefix = program(question=QUESTION).trajectory.prefix(1)
        changed = replace(prefix, hops=(replace(prefix.hops[0], answer="Ann Ort"),))
        program(question=QUESTION, trajectory=changed)
    assert "Conclusion 1: Ann Ort" in lm.engine.prompts[-1]


def test_a_trajectory_of_another_question_is_refused(index: Any) -> None:
    with pytest.raises(InputError, match="another question"):
        ActiveQA(index)(question=QUESTION, trajectory=Trajectory("Why?"))


# --- resuming at given passages, with a hint, with a failed plan ------------------------------------------------------

FAILED = ("Who designed the Osk Tower?", "When was Mira Dol born?")


def resume(index: Any, world: World, trajectory: Trajectory, **settings: Any) -> tuple[Trajectory, dspy.LM]:
    lm = scripted_lm(world)
    with dspy.context(lm=lm):
        return ActiveQA(index, **settings)(question=QUESTION, trajectory=trajectory).trajectory, lm


@pytest.mark.parametrize("number", [0, 1])
def test_an_open_hop_is_read_from_its_passages_and_the_chain_goes_on(index: Any, number: int) -> None:
    whole = ask(index, World())[0].trajectory
    index.queries.clear()
    other = Passage("9", "Osk", "Another passage.")
    given = replace(whole.hops[number], passages=(other,), answer="", answer_confidence=None)
    told, lm = resume(index, World(), replace(whole.prefix(number), open=given))
    assert steps(lm)[0] == "read"
    assert "Found: Osk | Another passage." in lm.engine.prompts[0]
    assert told.open is None
    assert told.hops[number].passages == (other,)
    assert told.hops[number].draft == given.draft
    assert [hop.answer for hop in told.hops] == ["Mira Dol", "1871"]
    assert len(index.queries) == 1 - number
    assert told.hops[number].cost.lm_calls == given.cost.lm_calls + 1


def test_an_open_hop_is_read_even_where_no_further_hop_may_follow(index: Any) -> None:
    whole = ask(index, World())[0].trajectory
    given = replace(whole.hops[0], answer="")
    told, lm = resume(index, World(), replace(whole.prefix(0), open=given), max_hops=1)
    assert steps(lm) == ["read", "compose"]
    assert told.stop_reason == "max_hops"


def test_a_stopped_trajectory_without_an_answer_is_only_composed(index: Any) -> None:
    whole = ask(index, World())[0].trajectory
    stopped = replace(whole, answer=None, passages=(), other_cost=Cost())
    told, lm = resume(index, World(), stopped)
    assert steps(lm) == ["compose"]
    assert (told.hops, told.stop_reason, told.answer) == (whole.hops, "finished", "in 1871")
    assert told.cost.lm_calls == sum(hop.cost.lm_calls for hop in whole.hops) + 1


def test_composing_is_told_the_last_rejected_answer_alone(index: Any) -> None:
    whole = ask(index, World())[0].trajectory
    hints = []
    for rejected in ((), ("1902",), ("1902", "1911")):
        _, lm = resume(index, World(), replace(whole, answer=None, rejected=rejected))
        (prompt,) = lm.engine.prompts
        hints.append([text for text in prompt.split("\n") if text.startswith("Hint:")])
    assert hints == [[], ["Hint: the answer is not 1902."], ["Hint: the answer is not 1911."]]


def test_asking_is_told_which_plan_failed(index: Any) -> None:
    other = World(tasks=["Who built the Osk Tower?", "When was Mira Dol born?"])
    told, lm = resume(index, other, Trajectory(QUESTION, failed_plans=(("older",), FAILED)))
    assert told.plan is None
    assert [hop.sub_question for hop in told.hops] == other.tasks
    shown = [prompt for prompt in lm.engine.prompts if step_of(prompt)[0] == "next_sub_question"]
    assert all(f"Failed plan: {' | '.join(FAILED)}" in prompt for prompt in shown)
    assert not any("older" in prompt for prompt in lm.engine.prompts)


def test_asking_for_the_failed_plan_again_leads_to_a_plan(index: Any) -> None:
    plan = "Where is the Osk Tower? | Who built it in #1? | When was #2 born?"
    failed = Trajectory(QUESTION, failed_plans=(FAILED,))
    world = World(plan=plan, drafts=[Reply(str(n), SURE) for n in range(3)])
    told, lm = resume(index, world, failed)
    assert steps(lm)[:3] == ["next_sub_question", "plan", "draft"]
    assert f"Failed plan: {' | '.join(FAILED)}" in lm.engine.prompts[1]
    assert [hop.sub_question for hop in told.hops] == [
        "Where is the Osk Tower?",
        "Who built it in 0?",
        "When was 1 born?",
    ]
    assert told.hops[0].cost.lm_calls == 3
    for hops in range(1, 3):
        again, lm = resume(index, world, told.prefix(hops))
        assert "next_sub_question" not in steps(lm)
        assert timeless(again) == timeless(told)


@pytest.mark.parametrize("decomposer", ["iterative", "plan"])
def test_a_plan_that_failed_is_not_followed_again(index: Any, decomposer: str) -> None:
    failed = Trajectory(QUESTION, failed_plans=(FAILED,))
    told, _ = resume(index, World(), failed, decomposer=decomposer)
    assert told.plan == (QUESTION,)
    assert [hop.sub_question for hop in told.hops] == [QUESTION]
    failed = replace(failed, failed_plans=(FAILED, (QUESTION,)))
    told, lm = resume(index, World(), failed, decomposer=decomposer)
    assert (told.hops, told.stop_reason, told.answer) == ((), "no_plan", "in 1871")
    assert steps(lm)[-2:] == ["plan", "compose"]


@pytest.mark.parametrize("start", ["sub_question", "question"])
def test_the_question_that_failed_as_a_plan_is_not_asked_again(index: Any, start: str) -> None:
    world = World(tasks=["none"], plan="Who designed the Osk Tower? | When was #1 born?")
    told, _ = resume(index, world, Trajectory(QUESTION, failed_plans=((QUESTION,),)), start=start)
    assert [hop.sub_question for hop in told.hops] == list(FAILED)


def test_what_only_led_to_a_plan_stays_out_of_the_trace(index: Any) -> None:
    failed = Trajectory(QUESTION, failed_plans=(FAILED,))
    with dspy.context(trace=[]):
        resume(index, World(), failed)
        asked = [outputs for _, _, outputs in dspy.settings.trace if "sub_question" in outputs]
    assert asked == []


def test_a_failure_carries_the_hops_so_far(index: Any) -> None:
    def broken(prompt: str) -> Spoken:
        if step_of(prompt) == ("read", 2):
            raise LookupError("gone")
        return World()(prompt)

    with pytest.raises(Exception, match="gone") as caught:
        resume(index, broken, Trajectory(QUESTION))  # type: ignore[arg-type]
    assert [hop.answer for hop in caught.value.trajectory.hops] == ["Mira Dol"]  # type: ignore[attr-defined]
    told, _ = resume(index, World(), caught.value.trajectory)  # type: ignore[attr-defined]
    assert timeless(told) == timeless(ask(index, World())[0].trajectory)


# --- sub-question and draft in one call -------------------------------------------------------------------------------


def both(task: str, draft: str | None, logprob: float = SURE) -> Reply:
    """One completion of two lines."""
    return Reply(task if draft is None else f"{task}\nConclusion 1: {draft}", logprob)


def fused(*tasks: Spoken, **said: Any) -> World:
    return World(tasks=list(tasks), **said)


@pytest.mark.parametrize("mean", [SURE, UNSURE])
def test_a_fused_hop_gives_what_two_calls_give_and_spares_one(index: Any, mean: float) -> None:
    drafts: list[Spoken] = [Reply("Ann Ort", mean), Reply("1902", mean)]
    tasks = ["Who designed the Osk Tower?", "When was Mira Dol born?" if mean == UNSURE else "When was Ann Ort born?"]
    apart, _ = ask(index, World(tasks=list(tasks), drafts=drafts))
    world = fused(both(tasks[0], "Ann Ort", mean), both(tasks[1], "1902", mean), drafts=drafts)
    together, second = ask(index, world, fused_hop=True)
    known = (
        "sub_question",
        "draft",
        "confidence",
        "source",
        "query",
        "passages",
        "answer",
        "answer_confidence",
        "note",
    )
    for one, other in zip(apart.trajectory.hops, together.trajectory.hops, strict=True):
        assert {name: getattr(one, name) for name in known} == {name: getattr(other, name) for name in known}
        assert other.cost.lm_calls == one.cost.lm_calls - 1
    assert together.answer == apart.answer
    assert together.trajectory.decisions == apart.trajectory.decisions
    assert "draft" not in steps(second)
    assert together.cost.lm_calls == apart.cost.lm_calls - 2


def test_its_confidence_is_that_of_the_draft_alone(index: Any) -> None:
    lm = scripted_lm(fused(both("Who designed the Osk Tower?", "Ann Ort")))
    inner = lm.engine.complete

    def uneven(request: Any) -> Any:
        response = inner(request)
        if response.logprobs and "Conclusion 1:" in "".join(token.token for token in response.logprobs):
            values = [-0.5 if token.token.strip() in {"Ann", "Ort"} else -9.0 for token in response.logprobs]
            tokens = (replace(token, logprob=value) for token, value in zip(response.logprobs, values, strict=True))
            response = replace(response, logprobs=tuple(tokens))
        return response

    lm.engine.complete = uneven
    with dspy.context(lm=lm):
        (hop,) = ActiveQA(index, fused_hop=True, tau=-0.6)(question=QUESTION).trajectory.hops
    assert (hop.source, hop.answer, hop.confidence.mean, hop.confidence.tokens) == ("memory", "Ann Ort", -0.5, 2)


@pytest.mark.parametrize("task", [both("Who designed it?", None), both("Who designed it?", ""), "Who designed it?\n"])
def test_a_sub_question_without_a_draft_is_searched_for(index: Any, task: Spoken) -> None:
    result, lm = ask(index, fused(task), fused_hop=True)
    (hop,) = result.trajectory.hops
    assert (hop.sub_question, hop.source, hop.draft, hop.note) == ("Who designed it?", "search", None, "empty")
    assert steps(lm) == ["next_sub_question", "read", "next_sub_question", "compose"]


def test_a_fused_call_sees_no_passages(index: Any) -> None:
    world = fused(
        both("Who designed the Osk Tower?", "Ann Ort", UNSURE), both("When was Mira Dol born?", "1902", UNSURE)
    )
    _, lm = ask(index, world, fused_hop=True)
    asked = [prompt for prompt in lm.engine.prompts if step_of(prompt)[0] == "next_sub_question"]
    assert len(asked) == 3
    assert not any("Found:" in prompt.split("\nassistant: ")[-1] for prompt in asked)
    assert "Conclusion 1: Mira Dol" in asked[1]


def test_a_fused_call_that_asks_nothing_leads_to_the_question(index: Any) -> None:
    result, lm = ask(index, fused(both("none", "1871")), fused_hop=True)
    assert [hop.sub_question for hop in result.trajectory.hops] == [QUESTION]
    assert steps(lm)[:2] == ["next_sub_question", "draft"]


@pytest.mark.parametrize(
    ("settings", "drafts"), [({"gate": "always"}, 0), ({"decomposer": "plan"}, 2), ({"start": "question"}, 1)]
)
def test_what_makes_no_draft_or_asks_all_at_once_is_not_fused(
    index: Any, settings: dict[str, Any], drafts: int
) -> None:
    apart, _ = ask(index, World(tasks=["Who designed the Osk Tower?"]), **settings)
    together, lm = ask(index, World(tasks=["Who designed the Osk Tower?"]), fused_hop=True, **settings)
    assert steps(lm).count("draft") == drafts
    assert [hop.sub_question for hop in together.trajectory.hops] == [hop.sub_question for hop in apart.trajectory.hops]


def test_a_fused_call_is_told_of_a_failed_plan(index: Any) -> None:
    failed = Trajectory(QUESTION, failed_plans=(FAILED,))
    plan = "Where is the Osk Tower? | Who built it in #1?"
    world = fused(both(FAILED[0], "Ann Ort"), plan=plan, drafts=[Reply("Varn", SURE), Reply("Mira Dol", SURE)])
    told, lm = resume(index, world, failed, fused_hop=True)
    assert steps(lm)[:3] == ["next_sub_question", "plan", "draft"]
    assert f"Failed plan: {' | '.join(FAILED)}" in lm.engine.prompts[0]
    assert [hop.sub_question for hop in told.hops] == ["Where is the Osk Tower?", "Who built it in Varn?"]


def test_the_trace_of_a_fused_call_holds_the_draft_only_if_it_was_kept(index: Any) -> None:
    world = fused(both("Who designed the Osk Tower?", "Mira Dol"), both("When was Mira Dol born?", "1902", UNSURE))
    with dspy.context(trace=[]):
        ask(index, world, fused_hop=True)
        learnt = [dict(outputs) for _, _, outputs in dspy.settings.trace]
    assert learnt[0] == {"sub_question": "Who designed the Osk Tower?", "draft": "Mira Dol"}
    assert learnt[1] == {"sub_question": "When was Mira Dol born?"}
    assert [set(outputs) - {"draft"} for outputs in learnt[2:]] == [{"conclusion"}, {"sub_question"}, {"answer"}]


@pytest.mark.parametrize("hops", [0, 1, 2])
def test_fused_hops_can_be_resumed(index: Any, hops: int) -> None:
    world = fused(both("Who designed the Osk Tower?", "Ann Ort", UNSURE), both("When was Mira Dol born?", "1902"))
    whole = ask(index, world, fused_hop=True)[0].trajectory
    again, _ = resume(index, world, whole.prefix(hops), fused_hop=True)
    assert timeless(again) == timeless(whole)


def test_a_fused_call_works_with_dspys_own_adapter(index: Any) -> None:
    def reply(prompt: str) -> str:
        if "[[ ## draft ## ]]" in prompt and "[[ ## sub_question ## ]]" in prompt:
            asked = (
                "none"
                if "Conclusion 1: Mira" in prompt.split("Respond with")[0].rsplit("[[ ## question", 1)[1]
                else "Who?"
            )
            return f"[[ ## sub_question ## ]]\n{asked}\n\n[[ ## draft ## ]]\nMira Dol\n\n[[ ## completed ## ]]"
        return "[[ ## answer ## ]]\n1871\n\n[[ ## completed ## ]]"

    with dspy.context(lm=scripted_lm(reply), adapter=dspy.ChatAdapter()):
        told = ActiveQA(index, fused_hop=True)(question=QUESTION).trajectory
    assert [(hop.sub_question, hop.answer, hop.source) for hop in told.hops] == [("Who?", "Mira Dol", "memory")]
    assert told.answer == "1871"


# --- synchronous and asynchronous, cost -------------------------------------------------------------------------------


def test_both_drivers_give_the_same(index: Any) -> None:
    program = ActiveQA(index)
    with dspy.context(lm=scripted_lm(World(reread=["", Reply("1871", SURE)])), trace=[]):
        program.settings.update(reread=True)
        synchronous = program(question=QUESTION)
        first = [(id(predictor), inputs) for predictor, inputs, _ in dspy.settings.trace]
    with dspy.context(lm=scripted_lm(World(reread=["", Reply("1871", SURE)])), trace=[]):
        asynchronous = asyncio.run(program.acall(question=QUESTION))
        second = [(id(predictor), inputs) for predictor, inputs, _ in dspy.settings.trace]
    assert asynchronous.answer == synchronous.answer
    assert timeless(asynchronous.trajectory) == timeless(synchronous.trajectory)
    assert first == second


def test_many_questions_at_once(index: Any) -> None:
    program = ActiveQA(index)

    async def main() -> list[Any]:
        return await asyncio.gather(*(program.acall(question=QUESTION) for _ in range(8)))

    with dspy.context(lm=scripted_lm(World())):
        expected = timeless(program(question=QUESTION).trajectory)
        assert all(timeless(result.trajectory) == expected for result in asyncio.run(main()))


def test_the_cost_is_counted(index: Any) -> None:
    result, lm = ask(index, World())
    cost: Cost = result.cost
    assert cost.retrievals == 2
    assert cost.lm_calls == len(lm.engine.prompts) == 8
    assert cost.prompt_tokens == sum(len(prompt.split()) for prompt in lm.engine.prompts)
    written = ["Who designed the Osk Tower?", "When was Mira Dol born?", "none", "Ann Ort", "1902", "Mira Dol", "1871"]
    assert cost.completion_tokens == sum(len(text.split()) for text in [*written, "in 1871"])
    assert cost.billed_tokens == cost.prompt_tokens + cost.completion_tokens
    assert cost.cached_calls == 0
    assert cost.passages_read == 3 + 3 + 4
    assert cost.seconds > 0


def test_passages_that_the_transcript_shows_already_are_not_counted_again(index: Any) -> None:
    result, _ = ask(index, World(reread=["", Reply("1871", SURE)]), reread=True, final_passages=2)
    assert result.trajectory.hops[1].source == "already_read"
    assert result.cost.passages_read == 3 + 2


# --- other adapters and hosted models ---------------------------------------------------------------------------------


def test_it_works_with_dspys_own_adapter(index: Any) -> None:
    replies = iter(["Who designed the Osk Tower?", "Mira Dol", "none", "1871"])
    names = iter(["sub_question", "draft", "sub_question", "answer"])

    def script(prompt: str) -> Reply:
        name = next(names)
        assert f"`[[ ## {name} ## ]]`" in prompt.rsplit("\n", 1)[-1]
        return Reply(f"[[ ## {name} ## ]]\n{next(replies)}\n\n[[ ## completed ## ]]", SURE)

    with dspy.context(lm=scripted_lm(script, continues_assistant=False), adapter=dspy.ChatAdapter()):
        result = ActiveQA(index)(question=QUESTION)
    assert result.answer == "1871"
    assert result.trajectory.hops[0].source == "memory"


def test_the_label_of_a_hosted_model_is_no_part_of_the_confidence(index: Any) -> None:
    # The draft is "1", which also stands in its label "Conclusion 1:".
    from dspy.lm15 import TokenLogprob

    lines = iter([("Task 1:", "How many?"), ("Conclusion 1:", "1"), ("Task 2:", "none"), ("Answer:", "one")])
    lm = scripted_lm(lambda prompt: " ".join(next(lines)), continues_assistant=False)
    complete = lm.engine.complete

    def scored(request: Any) -> Any:
        response = complete(request)
        label, colon, rest = (response.message.text or "").partition(":")
        tokens = [(label + colon, -9.0), (rest, SURE)]
        logprobs = tuple(TokenLogprob(token=text, logprob=value, bytes=tuple(text.encode())) for text, value in tokens)
        return replace(response, logprobs=logprobs)

    lm.engine.complete = scored
    with dspy.context(lm=lm):
        # The threshold keeps the draft in either case.
        hop = ActiveQA(index, tau=-100)(question=QUESTION).trajectory.hops[0]
    assert hop.draft == "1"
    assert hop.confidence.mean == SURE


@pytest.mark.parametrize("given", [5, lambda draft: True, ThresholdGate], ids=["number", "function", "class"])
@pytest.mark.parametrize("name", ["gate", "decomposer"])
def test_what_is_no_gate_or_decomposer_is_refused(index: Any, name: str, given: Any) -> None:
    with pytest.raises(InputError, match=name):
        ActiveQA(index, **{name: given})


@pytest.mark.parametrize(
    "examples", [[{}], [{"question": 5}], [{"question": "q"}], [{"question": "q", "answer": "a", "hops": [{}]}], ["x"]]
)
def test_worked_examples_are_checked_when_they_are_given(index: Any, examples: Any) -> None:
    with pytest.raises(InputError, match="examples"):
        ActiveQA(index, examples=examples)


def test_worked_examples_may_be_trajectories(index: Any) -> None:
    solver = ActiveQA(index, examples=list(DEFAULT_EXAMPLES))
    again = ActiveQA(index)
    again.settings.load_state(json.loads(json.dumps(solver.settings.dump_state())))
    assert again.settings.values == solver.settings.values


@pytest.mark.parametrize("trajectory", ["x", {}, 5])
def test_what_is_no_trajectory_is_refused(index: Any, trajectory: Any) -> None:
    with pytest.raises(InputError, match="from_dict"):
        ActiveQA(index)(question="q?", trajectory=trajectory)


def test_half_a_character_is_refused(index: Any) -> None:
    with pytest.raises(InputError, match="surrogate"):
        ActiveQA(index)(question="who \ud800?")


def test_an_asynchronous_retriever_works_with_acall(index: Any) -> None:
    class Remote:
        async def search(self, query: str, k: int) -> list[Any]:
            await asyncio.sleep(0)
            return index.search(query, k)

    with dspy.context(lm=scripted_lm(World())):
        answer = asyncio.run(ActiveQA(Remote(), gate="always").acall(question=QUESTION)).answer
        assert answer == ActiveQA(index, gate="always")(question=QUESTION).answer
        with pytest.raises(RetrievalError, match="acall"):
            ActiveQA(Remote(), gate="always")(question=QUESTION)


def test_a_retriever_may_have_been_told_k_already(index: Any) -> None:
    result, _ = ask(lambda query: dspy.Prediction(passages=[p.long_text for p in index.search(query, 2)]), World())
    assert result.answer


def test_a_repeated_step_of_a_plan_is_taken_once(index: Any) -> None:
    plan = "Who designed the Osk Tower? | Who designed the Osk Tower? | When was #2 born?"
    result, _ = ask(index, World(plan=plan), decomposer="plan")
    assert len(result.trajectory.hops) == 2
    assert result.trajectory.plan[1] == "When was #1 born?"
