"""ReAct+ with a scripted LM: plan, hops, composition, each limit, resuming, and what the trace learns."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import dspy
import pytest

from hopgate.core import InputError, Passage, RetrievalError
from hopgate.lms.testing import Reply, scripted_lm
from hopgate.programs import DEFAULT_EXAMPLES, Hop, ReActPlus, ReActPlusSettings, Trajectory

QUESTION = "When was the designer of the Osk Tower born?"

Spoken = Reply | str


@dataclass
class World:
    """What the LM says: the plan, tasks with their actions and conclusions by number, then the answer."""

    plan: Spoken = " Who designed the Osk Tower? | When was #1 born?"
    tasks: list[Spoken] = field(
        default_factory=lambda: [
            " Who designed the Osk Tower?\nAction 1: Osk Tower designer",
            " When was Mira Dol born?\nAction 2: Mira Dol born",
        ]
    )
    reads: list[Spoken] = field(default_factory=lambda: [" Mira Dol", " 1871"])
    answer: Spoken = " in 1871"

    def __call__(self, prompt: str) -> Spoken:
        kind, number = step_of(prompt)
        if kind == "Task":
            return self.tasks[number - 1] if number <= len(self.tasks) else " none"
        return self.reads[number - 1] if kind == "Conclusion" else {"Plan": self.plan, "Answer": self.answer}[kind]


def step_of(prompt: str) -> tuple[str, int]:
    label = prompt.rsplit("\n", 1)[-1].removeprefix("assistant: ").rstrip(":")
    kind, _, number = label.partition(" ")
    return kind, int(number or 0)


def kinds(lm: Any) -> list[str]:
    return [step_of(prompt)[0] for prompt in lm.engine.prompts]


def written(prompt: str) -> list[str]:
    """The lines that the program wrote for this question."""
    return prompt.split("\nassistant: ")[-1].split("\n")


def ask(
    index: Any, world: Callable[[str], Spoken], trajectory: Trajectory | None = None, **settings: Any
) -> tuple[dspy.Prediction, Any]:
    lm = scripted_lm(world)
    with dspy.context(lm=lm):
        return ReActPlus(index, **settings)(question=QUESTION, trajectory=trajectory), lm


def timeless(value: Any) -> Any:
    if isinstance(value, Trajectory):
        return timeless(value.to_dict())
    if isinstance(value, dict):
        return {key: timeless(item) for key, item in value.items() if key != "seconds"}
    return [timeless(item) for item in value] if isinstance(value, list) else value


def test_a_plan_two_hops_and_a_composition(index: Any) -> None:
    result, lm = ask(index, World(), k=1)
    assert kinds(lm) == ["Plan", "Task", "Conclusion", "Task", "Conclusion", "Task", "Answer"]
    assert index.queries == [("Osk Tower designer", 1), ("Mira Dol born", 1)]
    assert result.answer == "in 1871"
    first, second = result.trajectory.hops
    assert (first.sub_question, first.query, first.answer) == (
        "Who designed the Osk Tower?",
        "Osk Tower designer",
        "Mira Dol",
    )
    assert [passage.title for passage in second.passages] == ["Mira Dol"]
    assert {first.source, second.source} == {"search"}
    assert result.trajectory.plan == ("Who designed the Osk Tower?", "When was #1 born?")
    assert result.trajectory.stop_reason == "finished"
    assert (result.cost.lm_calls, result.cost.retrievals, result.cost.passages_read) == (7, 2, 4)
    assert written(lm.engine.prompts[4]) == [
        "Plan: Who designed the Osk Tower? | When was #1 born?",
        "Task 1: Who designed the Osk Tower?",
        "Action 1: Osk Tower designer",
        "Found: Osk Tower | The Osk Tower was designed by Mira Dol in the town of Varn.",
        "Conclusion 1: Mira Dol",
        "Task 2: When was Mira Dol born?",
        "Action 2: Mira Dol born",
        "Found: Mira Dol | Mira Dol was born in 1871 and built three towers.",
        "Conclusion 2:",
    ]


def test_all_steps_share_the_worked_examples_and_each_continues_the_text(index: Any) -> None:
    _, lm = ask(index, World())
    heads = {prompt.split("\nassistant: ")[0] for prompt in lm.engine.prompts}
    assert len(heads) == 1
    assert heads.pop().count("Example:") == len(DEFAULT_EXAMPLES)
    for before, after in zip(lm.engine.prompts[1:-2], lm.engine.prompts[2:-1], strict=True):
        assert after.startswith(before)


def test_the_worked_examples_are_written_as_the_steps_are(index: Any) -> None:
    _, lm = ask(index, World())
    example = lm.engine.prompts[0].split("Example:")[1]
    labels = [line.split(":")[0] for line in example.strip().split("\n")]
    hop = ["Task 1", "Action 1", "Found", "Conclusion 1"]
    assert labels == ["Question", "Plan", *hop, *(label.replace("1", "2") for label in hop), "Task 3", "Answer"]


def test_the_last_step_reads_conclusions_and_the_best_passages(index: Any) -> None:
    result, lm = ask(index, World(), k=1, final_passages=1)
    assert written(lm.engine.prompts[-1]) == [
        "Plan: Who designed the Osk Tower? | When was #1 born?",
        "Task 1: Who designed the Osk Tower?",
        "Conclusion 1: Mira Dol",
        "Task 2: When was Mira Dol born?",
        "Conclusion 2: 1871",
        "Found: Osk Tower | The Osk Tower was designed by Mira Dol in the town of Varn.",
        "Answer:",
    ]
    assert [passage.id for passage in result.trajectory.passages] == ["1"]


# --- an LM that does not do as it should ------------------------------------------------------------------------------


def test_a_task_without_an_action_is_its_own_query(index: Any) -> None:
    result, _ = ask(index, World(tasks=[" Who designed the Osk Tower?"]), k=1)
    assert result.trajectory.hops[0].query == "Who designed the Osk Tower?"


def test_what_is_written_after_a_task_is_left_out(index: Any) -> None:
    world = World(tasks=[" Who designed it?\nAction 1: Osk Tower\nFound: Paris | Paris is a town."])
    result, _ = ask(index, world, k=1)
    assert (result.trajectory.hops[0].sub_question, result.trajectory.hops[0].query) == (
        "Who designed it?",
        "Osk Tower",
    )


@pytest.mark.parametrize("first", [" none", "", " The tower is tall.", f" {QUESTION}"])
def test_a_first_task_that_asks_nothing_less_is_the_plans_first(index: Any, first: str) -> None:
    result, _ = ask(index, World(tasks=[first]), k=1)
    assert [hop.sub_question for hop in result.trajectory.hops] == ["Who designed the Osk Tower?"]
    assert result.trajectory.hops[0].query == "Who designed the Osk Tower?"


@pytest.mark.parametrize("plan", ["", " ", " | "])
def test_a_plan_that_cannot_be_read_is_the_question(index: Any, plan: str) -> None:
    result, _ = ask(index, World(plan=plan))
    assert result.trajectory.plan == (QUESTION,)
    assert result.answer == "in 1871"


def test_a_repeated_task_ends_the_chain(index: Any) -> None:
    task = " Who designed the Osk Tower?"
    result, _ = ask(index, World(tasks=[task, f"{task} "]))
    assert (len(result.trajectory.hops), result.trajectory.stop_reason) == (1, "repeated")


def test_an_lm_that_never_finishes_is_stopped(index: Any) -> None:
    class Endless(World):
        def __call__(self, prompt: str) -> Spoken:
            kind, number = step_of(prompt)
            return (
                f" Who is number {number}{'i' * number}?" if kind == "Task" else {"Conclusion": " he"}.get(kind, " x")
            )

    result, _ = ask(index, Endless(), max_hops=3)
    assert (len(result.trajectory.hops), result.trajectory.stop_reason) == (3, "max_hops")


def test_the_context_budget_ends_the_chain() -> None:
    long = [Passage(str(number), "", " ".join(["word"] * 60)) for number in range(3)]
    result, _ = ask(lambda query, k: long, World(), context_words=50)
    assert (len(result.trajectory.hops), result.trajectory.stop_reason) == (1, "context")


def test_without_an_answer_the_last_conclusion_is_the_answer(index: Any) -> None:
    result, _ = ask(index, World(answer=""))
    assert result.answer == "1871"
    result, _ = ask(index, World(reads=["", ""], answer=""))
    assert result.answer == ""


def test_a_search_that_finds_nothing() -> None:
    result, lm = ask(lambda query, k: [], World())
    assert result.answer == "in 1871"
    assert not any("Found:" in line for line in written(lm.engine.prompts[-1]))


def test_a_retriever_that_raises_leaves_the_trajectory(index: Any) -> None:
    def failing(query: str, k: int) -> list[Passage]:
        if "Mira" in query:
            raise OSError("no disk")
        return index.search(query, k)

    with pytest.raises(RetrievalError, match="no disk") as caught:
        ask(failing, World())
    reached: Trajectory = caught.value.trajectory  # type: ignore[attr-defined]
    assert [hop.answer for hop in reached.hops] == ["Mira Dol"]
    result, _ = ask(index, World(), reached)
    assert timeless(result.trajectory) == timeless(ask(index, World())[0].trajectory)


def test_an_lm_that_fails_is_an_error(index: Any) -> None:
    with pytest.raises(dspy.LMError):
        ask(index, scripted_lm([]).engine.script)


# --- resuming ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hops", [0, 1, 2])
def test_resuming_a_prefix_gives_the_rest(index: Any, hops: int) -> None:
    whole, _ = ask(index, World())
    rest, _ = ask(index, World(), Trajectory.from_dict(whole.trajectory.prefix(hops).to_dict()))
    assert timeless(rest.trajectory) == timeless(whole.trajectory)


def test_a_finished_trajectory_is_returned_as_it_is(index: Any) -> None:
    whole, _ = ask(index, World())
    again, lm = ask(index, World(), whole.trajectory)
    assert again.trajectory == whole.trajectory
    assert lm.engine.prompts == []


@pytest.mark.parametrize("place", [0, 1])
def test_an_open_hop_is_read_from_its_passages_and_the_chain_goes_on(index: Any, place: int) -> None:
    whole, _ = ask(index, World())
    other = (Passage("9", "Other", "Another text."),)
    hop = replace(whole.trajectory.hops[place], passages=other, answer="")
    opened = replace(whole.trajectory.prefix(place), plan=whole.trajectory.plan, open=hop)
    result, lm = ask(index, World(), opened)
    assert kinds(lm) == ["Conclusion", *["Task", "Conclusion"] * (1 - place), "Task", "Answer"]
    assert result.trajectory.hops[place].passages == other
    assert result.trajectory.open is None
    assert "Found: Other | Another text." in written(lm.engine.prompts[0])


def test_a_stopped_trajectory_without_an_answer_is_only_composed_with_the_last_hint(index: Any) -> None:
    whole, _ = ask(index, World())
    stopped = replace(whole.trajectory, answer=None, passages=(), rejected=("red", "in 1871"))
    result, lm = ask(index, World(answer=" 1871"), stopped)
    assert kinds(lm) == ["Answer"]
    assert written(lm.engine.prompts[0])[-2] == "Hint: the answer is not in 1871."
    assert "red" not in written(lm.engine.prompts[0])[-2]
    assert result.answer == "1871"


def test_planning_is_told_which_plan_failed_and_does_not_follow_it_again(index: Any) -> None:
    failed = ("Who designed the Osk Tower?", "When was #1 born?")
    result, lm = ask(index, World(tasks=[" none"]), Trajectory(QUESTION, failed_plans=(failed,)))
    assert written(lm.engine.prompts[0])[0] == f"Failed plan: {' | '.join(failed)}"
    assert result.trajectory.plan == (QUESTION,)
    result, _ = ask(
        index, World(plan=" Who drew the Osk Tower? | How old is #1?"), Trajectory(QUESTION, failed_plans=(failed,))
    )
    assert result.trajectory.hops[0].sub_question == "Who drew the Osk Tower?"


# --- DSPy -------------------------------------------------------------------------------------------------------------


def test_both_drivers_give_the_same(index: Any) -> None:
    expected, _ = ask(index, World())
    with dspy.context(lm=scripted_lm(World())):
        result = asyncio.run(ReActPlus(index).acall(question=QUESTION))
    assert timeless(result.trajectory) == timeless(expected.trajectory)


def test_the_trace_has_each_step_that_was_used(index: Any) -> None:
    program = ReActPlus(index)
    with dspy.context(lm=scripted_lm(World()), trace=[]):
        program(question=QUESTION)
        used = [entry[0] for entry in dspy.settings.trace]
    hop = [program.next_task, program.read]
    assert used == [program.plan, *hop, *hop, program.next_task, program.compose]


def test_a_first_task_that_was_not_used_stays_out_of_the_trace(index: Any) -> None:
    program = ReActPlus(index)
    with dspy.context(lm=scripted_lm(World(tasks=[" none"])), trace=[]):
        program(question=QUESTION)
        used = [entry[0] for entry in dspy.settings.trace]
    assert used == [program.plan, program.read, program.next_task, program.compose]


@pytest.mark.parametrize("adapter", [dspy.ChatAdapter(), dspy.JSONAdapter()], ids=["chat", "json"])
def test_it_works_with_dspys_own_adapters(index: Any, adapter: Any) -> None:
    outputs = {
        "plan": {"plan": "Who designed the Osk Tower? | When was #1 born?"},
        "task": {"task": "Who designed the Osk Tower?", "action": "Osk Tower"},
        "conclusion": {"conclusion": "Mira Dol"},
        "answer": {"answer": "1871"},
    }

    def reply(prompt: str) -> Reply:
        asked = prompt.rsplit("user: ", 1)[1]
        wanted = next(name for name in outputs if re.search(rf"\[\[ ## {name} ## \]\]|`{name}`", asked))
        if wanted == "task" and "Conclusion 1" in asked:
            return Reply(body({"task": "none", "action": "none"}))
        return Reply(body(outputs[wanted]))

    def body(fields: dict[str, str]) -> str:
        if isinstance(adapter, dspy.JSONAdapter):
            return str(fields).replace("'", '"')
        return "\n\n".join(f"[[ ## {name} ## ]]\n{value}" for name, value in {**fields, "completed": ""}.items())

    with dspy.context(adapter=adapter):
        result, _ = ask(index, reply)
    assert [hop.query for hop in result.trajectory.hops] == ["Osk Tower"]
    assert result.answer == "1871"


def test_worked_examples_of_ones_own(index: Any) -> None:
    example = Trajectory("Why?", hops=(Hop("Who?", query="whoever", answer="he"),), plan=("Who?",), answer="so")
    _, lm = ask(index, World(), examples=[example])
    assert "Task 1: Who?\nAction 1: whoever\nConclusion 1: he\nTask 2: none\nAnswer: so" in lm.engine.prompts[0]
    _, lm = ask(index, World(), examples=[])
    assert "Example" not in lm.engine.prompts[0].split("\nuser:")[0].replace("examples", "")


@pytest.mark.parametrize("settings", [{"max_hops": 0}, {"k": 0}, {"tau": -1}, {"examples": [{"question": "Why?"}]}])
def test_settings_that_cannot_be(settings: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(settings))):
        ReActPlus(None, **settings)


def test_settings_are_saved(index: Any, tmp_path: Any) -> None:
    program = ReActPlus(index, max_hops=2)
    program.save(tmp_path / "program.json")
    fresh = ReActPlus(index)
    fresh.load(tmp_path / "program.json")
    assert fresh.settings.values == ReActPlusSettings(max_hops=2)
