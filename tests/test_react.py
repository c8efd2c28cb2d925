"""ReAct: dspy.ReAct's steps and text, its searches, its ends, and resuming."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import dspy
import pytest

from hopgate.core import InputError, Passage, RetrievalError
from hopgate.lms.testing import Reply, scripted_lm
from hopgate.programs import DEFAULT_EXAMPLES, Hop, ReAct, Trajectory

QUESTION = "When was the designer of the Osk Tower born?"
EXTRACTED = " She was born in 1871.\nAnswer: 1871"


def turn(number: int, thought: str, tool: str = "search", arguments: str = "{}") -> str:
    return f"{thought}\nTool Name {number}: {tool}\nTool Args {number}: {arguments}"


TURNS = (
    turn(1, "I need the designer.", arguments='{"query": "Osk Tower designer"}'),
    turn(2, "It is Mira Dol.", arguments='{"query": "Mira Dol born"}'),
    turn(3, "She was born in 1871.", "finish"),
)


def last_turn(prompt: str) -> str:
    return prompt.rsplit("user: ", 1)[1]


def script(*turns: str, extracted: str = EXTRACTED) -> Callable[[str], Reply]:
    def reply(prompt: str) -> Reply:
        label = prompt.rsplit("\n", 1)[-1].removeprefix("assistant: ")
        if label == "Reasoning:":
            return Reply(extracted)
        number = int(label.removeprefix("Thought ").strip(":"))
        return Reply(turns[min(number, len(turns)) - 1])

    return reply


def run(program: ReAct, lm: dspy.LM, trajectory: Trajectory | None = None) -> Trajectory:
    with dspy.context(lm=lm):
        return program(question=QUESTION, trajectory=trajectory).trajectory


def test_it_searches_until_it_finishes(index: Any) -> None:
    result = run(ReAct(index), scripted_lm(script(*TURNS)))
    assert [query for query, _ in index.queries] == ["Osk Tower designer", "Mira Dol born"]
    assert [(hop.sub_question, hop.query, hop.source) for hop in result.hops] == [
        ("I need the designer.", "Osk Tower designer", "search"),
        ("It is Mira Dol.", "Mira Dol born", "search"),
        ("She was born in 1871.", None, "memory"),
    ]
    assert (result.answer, result.stop_reason) == ("1871", "finished")
    assert (result.cost.retrievals, result.cost.lm_calls, result.cost.passages_read) == (2, 4, 6)


def test_the_text_is_that_of_dspys_react(index: Any) -> None:
    lm = scripted_lm(script(*TURNS))
    run(ReAct(index, k=1), lm)
    turns = [last_turn(prompt).split("\n", 1)[1].removeprefix("assistant: ") for prompt in lm.engine.prompts]
    first = (
        'Thought 1: I need the designer.\nTool Name 1: search\nTool Args 1: {"query": "Osk Tower designer"}\n'
        "Observation 1:\n[1] Osk Tower | The Osk Tower was designed by Mira Dol in the town of Varn."
    )
    assert turns[0] == "Thought 1:"
    assert turns[1] == f"{first}\nThought 2:"
    assert turns[3].startswith(f"{first}\nThought 2: It is Mira Dol.\n")
    assert turns[3].endswith(
        "Thought 3: She was born in 1871.\nTool Name 3: finish\nTool Args 3: {}\nObservation 3: Completed.\nReasoning:"
    )


def test_with_dspys_own_adapter_the_prompts_are_those_of_dspy_react(index: Any) -> None:
    def reply(prompt: str) -> Reply:
        asked = prompt.rsplit("user: ", 1)[1]
        if "`[[ ## next_thought ## ]]`" not in asked:
            return Reply("[[ ## reasoning ## ]]\nShe was.\n\n[[ ## answer ## ]]\n1871\n\n[[ ## completed ## ]]")
        number = asked.count("[[ ## observation_")
        thought = ["I need the designer.", "I know."][number]
        tool, arguments = [("search", '{"query": "Osk Tower designer"}'), ("finish", "{}")][number]
        return Reply(
            f"[[ ## next_thought ## ]]\n{thought}\n\n[[ ## next_tool_name ## ]]\n{tool}\n\n"
            f"[[ ## next_tool_args ## ]]\n{arguments}\n\n[[ ## completed ## ]]"
        )

    def search(query: str) -> list[str]:
        """Searches an encyclopedia and returns the passages that fit the query best."""
        return [passage.long_text for passage in index.search(query, 2)]

    ours, theirs = (scripted_lm(reply, continues_assistant=False) for _ in range(2))
    program = ReAct(index, k=2, examples=[])
    with dspy.context(adapter=dspy.ChatAdapter()):
        result = run(program, ours)
        agent = dspy.ReAct("question -> answer", tools=[search])
        agent.react.signature = agent.react.signature.with_instructions(program.react.signature.instructions)
        agent.extract.predict.signature = program.extract.predict.signature
        with dspy.context(lm=theirs):
            expected = agent(question=QUESTION)
    assert result.answer == expected.answer == "1871"
    # dspy.ReAct counts turns from 0.
    counted = [prompt.replace("_0 ##", "_1 ##") for prompt in theirs.engine.prompts]
    assert ours.engine.prompts[:2] == counted[:2]
    assert "observation_2 ## ]]\nCompleted." in ours.engine.prompts[2]


@pytest.mark.parametrize(
    ("arguments", "query"),
    [
        ('{"query": "Osk"}', "Osk"),
        ('{"q": "Osk"}', "Osk"),
        ("{}", "I need it."),
        ('{"query": 7}', "I need it."),
        ('{"query": " ", "other": "Osk"}', "Osk"),
    ],
)
def test_a_query_is_read_from_whatever_arguments_there_are(index: Any, arguments: str, query: str) -> None:
    lm = scripted_lm(script(turn(1, "I need it.", arguments=arguments), turn(2, "Done.", "finish")))
    assert run(ReAct(index), lm).hops[0].query == query


def test_an_invented_observation_is_cut_off(index: Any) -> None:
    seen: list[Any] = []
    lm = scripted_lm(script(*TURNS))
    complete = lm.engine.complete

    def watch(request: Any) -> Any:
        seen.append(request.config.stop)
        return complete(request)

    lm.engine.complete = watch
    run(ReAct(index), lm)
    assert all("\nObservation" in stop for stop in seen)
    assert len(seen) == 4


@pytest.mark.parametrize(
    ("turns", "settings", "reason", "searches"),
    [
        (TURNS[:1], {}, "repeated", 1),
        ([turn(n, f"T{n}", arguments=f'{{"query": "q{n}"}}') for n in range(1, 9)], {"max_hops": 3}, "max_hops", 3),
        (
            [turn(n, f"T{n}", arguments=f'{{"query": "q{n}"}}') for n in range(1, 9)],
            {"context_words": 50},
            "context",
            2,
        ),
        (["garbage"], {}, "empty", 0),
        ([""], {}, "empty", 0),
        ([turn(1, "I will.", "calculator")], {}, "empty", 0),
        ([TURNS[0], "garbage"], {}, "empty", 1),
        ([turn(1, "I know it.", "finish")], {}, "finished", 0),
    ],
)
def test_it_ends(turns: list[str], settings: dict[str, Any], reason: str, searches: int) -> None:
    calls: list[str] = []

    def search(query: str, k: int) -> list[Passage]:
        calls.append(query)
        return [Passage(f"{query} {rank}", "", "word " * 15) for rank in range(k)]

    result = run(ReAct(search, **settings), scripted_lm(script(*turns)))
    assert (result.stop_reason, len(calls), result.answer) == (reason, searches, "1871")
    assert result.cost.retrievals == searches


def test_without_an_extracted_answer_the_last_thought_is_given(index: Any) -> None:
    assert run(ReAct(index), scripted_lm(script(*TURNS, extracted=""))).answer == "She was born in 1871."
    assert run(ReAct(index), scripted_lm(script("", extracted=""))).answer == ""


@pytest.mark.parametrize(
    ("extracted", "answer"),
    [
        (" She was born in 1871. The answer is 1871.", "1871"),
        (" She was born in 1871. The answer is 1871.\nTool Name 4: finish", "1871"),
        (" She was born in 1871.", "born"),
        (" I read it.\nAnswer: The answer is 1871.", "1871"),
        (" I read it. The answer is 1999.\nAnswer: 1871", "1871"),
        (" I read it.\nAnswer: The Answer Is Blowing in the Wind", "The Answer Is Blowing in the Wind"),
    ],
)
def test_an_answer_stated_in_a_sentence_is_taken_from_it(index: Any, extracted: str, answer: str) -> None:
    finished = (*TURNS[:2], turn(3, "She was born. The answer is born.", "finish"))
    assert run(ReAct(index), scripted_lm(script(*finished, extracted=extracted))).answer == answer


@pytest.mark.parametrize(
    ("first", "query"),
    [
        ("\nTool Name 1: search\nTool Args 1: {}", None),
        ("I need it.\nTool Name 1: search", None),
        ("I need it.\nTool Name 1: search\nTool Args 1: null", None),
        ("I need it.\nTool Name 1: search\nTool Args 1: {}", "I need it."),
        ('I need it.\nTool Name 1: search\nTool Args 1: {"query": "a \\ud800"}', "a ?"),
    ],
)
def test_a_turn_that_lacks_a_part_goes_on_or_ends_the_loop(index: Any, first: str, query: str | None) -> None:
    result = run(ReAct(index), scripted_lm(script(first, turn(2, "It is so.", "finish"))))
    assert [asked for asked, _ in index.queries] == ([] if query is None else [query])
    assert (result.answer, result.stop_reason) == ("1871", "empty" if query is None else "finished")


def test_a_search_that_finds_nothing() -> None:
    lm = scripted_lm(script(*TURNS))
    assert run(ReAct(lambda query, k: []), lm).answer == "1871"
    assert "Observation 1:\n[1] nothing found" in last_turn(lm.engine.prompts[1])


def test_an_error_carries_what_was_done(index: Any) -> None:
    def search(query: str, k: int) -> list[Passage]:
        if query == "Mira Dol born":
            raise OSError("gone")
        return index.search(query, k)

    with pytest.raises(RetrievalError) as caught:
        run(ReAct(search), scripted_lm(script(*TURNS)))
    reached: Trajectory = caught.value.trajectory  # type: ignore[attr-defined]
    assert [hop.query for hop in reached.hops] == ["Osk Tower designer"]
    assert run(ReAct(index), scripted_lm(script(*TURNS)), reached).answer == "1871"


# --- resuming, traces -------------------------------------------------------------------------------------------------


def timeless(trajectory: Trajectory) -> Trajectory:
    hops = tuple(replace(hop, cost=replace(hop.cost, seconds=0)) for hop in trajectory.hops)
    return replace(trajectory, hops=hops, other_cost=replace(trajectory.other_cost, seconds=0))


@pytest.mark.parametrize("turns", [TURNS, TURNS[:1], (TURNS[0], "")], ids=["done", "repeated", "empty"])
def test_resuming_a_prefix_gives_the_rest(index: Any, turns: tuple[str, ...]) -> None:
    program = ReAct(index)
    whole = run(program, scripted_lm(script(*turns)))
    for hops in range(len(whole.hops) + 1):
        prefix = Trajectory.from_dict(whole.prefix(hops).to_dict())
        assert timeless(run(program, scripted_lm(script(*turns)), prefix)) == timeless(whole)


def test_an_open_hop_is_observed_as_it_is(index: Any) -> None:
    other = Passage("9", "Osk Tower", "The Osk Tower is by Ann Ort.")
    opened = Trajectory(QUESTION, open=Hop("I need it.", source="search", query="Osk", passages=(other,)))
    lm = scripted_lm(script(*TURNS))
    result = run(ReAct(index), lm, opened)
    assert f"Observation 1:\n[1] {other.long_text}\nThought 2:" in last_turn(lm.engine.prompts[0])
    assert (result.hops[0].passages, result.open, result.answer) == ((other,), None, "1871")


def test_only_the_last_step_is_done_again_with_a_hint(index: Any) -> None:
    program = ReAct(index)
    whole = run(program, scripted_lm(script(*TURNS)))
    lm = scripted_lm(script(extracted=" Not so.\nAnswer: 1872"))
    again = run(program, lm, replace(whole, answer=None, rejected=("1871",)))
    assert last_turn(lm.engine.prompts[0]).endswith("Hint: the answer is not 1871.\nReasoning:")
    assert (len(lm.engine.prompts), again.answer, again.hops) == (1, "1872", whole.hops)


def test_a_failed_plan_is_shown(index: Any) -> None:
    lm = scripted_lm(script(*TURNS))
    run(ReAct(index), lm, Trajectory(QUESTION, failed_plans=(("one", "two"),)))
    assert "Failed plan: one | two" in last_turn(lm.engine.prompts[0])


def test_its_worked_examples_are_the_common_ones(index: Any) -> None:
    lm = scripted_lm(script(*TURNS))
    run(ReAct(index), lm)
    for prompt in lm.engine.prompts:
        assert all(prompt.count(f"Example:\nQuestion: {example.question}") == 1 for example in DEFAULT_EXAMPLES)
    run(ReAct(index, examples=[]), lm)
    assert "Example:" not in lm.engine.prompts[-1]


def test_a_trajectory_of_its_own_or_of_another_program_is_a_worked_example(index: Any) -> None:
    own = run(ReAct(index, k=1), scripted_lm(script(*TURNS)))
    foreign = Trajectory("Why?", hops=(Hop("Who is it?", source="search", query="who", answer="X"),), answer="Y")
    lm = scripted_lm(script(*TURNS))
    run(ReAct(index, examples=[own, foreign]), lm)
    shown = lm.engine.prompts[0]
    assert f"Example:\nQuestion: {QUESTION}\nThought 1: I need the designer.\nTool Name 1: search\n" in shown
    assert 'Thought 1: Who is it?\nTool Name 1: search\nTool Args 1: {"query": "who"}' in shown
    assert "Thought 2: The answer is Y.\nTool Name 2: finish" in shown


@pytest.mark.parametrize("adapter", [dspy.ChatAdapter(), dspy.JSONAdapter(), dspy.XMLAdapter()], ids=str)
def test_worked_examples_are_turns_with_dspys_own_adapters(index: Any, adapter: dspy.Adapter) -> None:
    lm = scripted_lm(lambda prompt: Reply("nothing to read"), continues_assistant=False)
    with dspy.context(adapter=adapter):
        assert run(ReAct(index), lm).stop_reason == "empty"
    shown = lm.engine.prompts[0]
    # Three searches and a finish, two and one, one finish.
    assert shown.count("assistant: ") == 8
    assert shown.count("In which year was Ivar Brenne born?") == 2


def test_every_call_joins_the_trace(index: Any) -> None:
    program = ReAct(index)
    with dspy.context(lm=scripted_lm(script(*TURNS)), trace=[]):
        asyncio.run(program.acall(question=QUESTION))
        steps = [entry[0] for entry in dspy.settings.trace]
    assert steps == [program.react] * 3 + [program.extract.predict]


def test_settings_are_checked(index: Any) -> None:
    for wrong in ({"max_hops": 0}, {"context_words": 1}, {"tau": -1}):
        with pytest.raises(InputError, match=next(iter(wrong))):
            ReAct(index, **wrong)
