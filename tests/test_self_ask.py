"""Self-Ask: its lines, its searches, its ends, and resuming."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import dspy
import pytest

from hopgate.core import InputError, RetrievalError
from hopgate.core import Passage as P
from hopgate.lms.testing import Reply, scripted_lm
from hopgate.programs import DEFAULT_EXAMPLES, Hop, SelfAsk, Trajectory

QUESTION = "When was the designer of the Osk Tower born?"
WHO, WHEN = "Who designed the Osk Tower?", "When was Mira Dol born?"
ASKED = (f"Yes. Follow up: {WHO}", f"Yes. Follow up: {WHEN}", "No.")
READ = ("Mira Dol", "1871")


def script(
    asked: tuple[str, ...] = ASKED, read: tuple[str, ...] = READ, answer: str = "1871"
) -> Callable[[str], Reply]:
    def reply(prompt: str) -> Reply:
        turn = last_turn(prompt)
        number = turn.count("Follow up:")
        if turn.endswith("So the final answer is:"):
            return Reply(answer)
        if turn.endswith("Intermediate answer:"):
            return Reply(read[min(number, len(read)) - 1])
        assert turn.endswith("Are follow up questions needed here:")
        return Reply(asked[min(number, len(asked) - 1)])

    return reply


def last_turn(prompt: str) -> str:
    return prompt.rsplit("user: ", 1)[1]


def run(program: SelfAsk, lm: dspy.LM, trajectory: Trajectory | None = None) -> Trajectory:
    with dspy.context(lm=lm):
        return program(question=QUESTION, trajectory=trajectory).trajectory


def test_follow_up_questions_are_searched_for_and_answered_from_passages(index: Any) -> None:
    lm = scripted_lm(script())
    result = run(SelfAsk(index), lm)
    assert [query for query, _ in index.queries] == [WHO, WHEN]
    assert [(hop.sub_question, hop.query, hop.answer) for hop in result.hops] == [
        (WHO, WHO, "Mira Dol"),
        (WHEN, WHEN, "1871"),
    ]
    assert (result.answer, result.stop_reason) == ("1871", "finished")
    assert (result.cost.retrievals, result.cost.lm_calls, result.cost.passages_read) == (2, 6, 6)


def test_the_prompts_have_the_lines_of_the_paper(index: Any) -> None:
    lm = scripted_lm(script())
    result = run(SelfAsk(index), lm)
    turns = [last_turn(prompt).split("\n", 1)[1].removeprefix("assistant: ") for prompt in lm.engine.prompts]
    first = f"Are follow up questions needed here: Yes. Follow up: {WHO}"
    second = f"Are follow up questions needed here: Yes. Follow up: {WHEN}"
    found = "\n".join(f"Found: {passage.long_text}" for passage in result.hops[1].passages)
    assert turns[0] == "Are follow up questions needed here:"
    assert turns[2] == f"{first}\nIntermediate answer: Mira Dol\nAre follow up questions needed here:"
    assert turns[3] == f"{first}\nIntermediate answer: Mira Dol\n{second}\n{found}\nIntermediate answer:"
    assert turns[5] == (
        f"{first}\nIntermediate answer: Mira Dol\n{second}\nIntermediate answer: 1871\n"
        "Are follow up questions needed here: No.\nSo the final answer is:"
    )


def test_without_search_the_lm_answers_itself(index: Any) -> None:
    result = run(SelfAsk(index, search=False), scripted_lm(script()))
    assert index.queries == []
    assert [(hop.source, hop.query, hop.answer) for hop in result.hops] == [
        ("memory", None, "Mira Dol"),
        ("memory", None, "1871"),
    ]
    assert result.cost.retrievals == 0


@pytest.mark.parametrize(
    ("written", "sub_question"),
    [
        (f"Yes. Follow up: {WHO}", WHO),
        (f"yes, follow-up question: {WHO}", WHO),
        (f"Yes. {WHO}", WHO),
        (f"Follow up: {WHO}", WHO),
        (WHO, WHO),
        ("Yes. Follow up: the designer of the Osk Tower", "the designer of the Osk Tower"),
        ("No one knows who designed it, who did?", "No one knows who designed it, who did?"),
    ],
)
def test_forms_of_a_follow_up_question(index: Any, written: str, sub_question: str) -> None:
    result = run(SelfAsk(index, max_hops=1), scripted_lm(script((written,))))
    assert [hop.sub_question for hop in result.hops] == [sub_question]


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        ("No.", "finished"),
        ("no", "finished"),
        ("No. So the final answer is: 1871", "finished"),
        ("Mira Dol was born in 1871.", "finished"),
        ("%$#", "finished"),
        ("", "empty"),
        ("Yes.", "empty"),
        ("Yes. Follow up:", "empty"),
    ],
)
def test_forms_of_no_follow_up_question(index: Any, written: str, reason: str) -> None:
    result = run(SelfAsk(index), scripted_lm(script((written,))))
    assert (result.hops, result.stop_reason, result.answer) == ((), reason, "1871")
    assert (result.cost.retrievals, result.cost.lm_calls) == (0, 2)


def test_a_repeated_follow_up_question_ends_it(index: Any) -> None:
    result = run(SelfAsk(index), scripted_lm(script((ASKED[0],))))
    assert (len(result.hops), result.stop_reason) == (1, "repeated")
    assert len(index.queries) == 1


def test_the_number_of_follow_up_questions_is_limited(index: Any) -> None:
    asked = tuple(f"Yes. Follow up: Who is {name}?" for name in "abcdefgh")
    result = run(SelfAsk(index, max_hops=3), scripted_lm(script(asked)))
    assert (len(result.hops), result.stop_reason) == (3, "max_hops")


@pytest.mark.parametrize(("read", "best"), [(READ, "1871"), (("Mira Dol", ""), "Mira Dol"), (("", ""), "")])
def test_without_a_final_answer_the_last_intermediate_one_is_given(
    index: Any, read: tuple[str, ...], best: str
) -> None:
    assert run(SelfAsk(index), scripted_lm(script(read=read, answer=""))).answer == best


def test_a_search_that_finds_nothing() -> None:
    result = run(SelfAsk(lambda query, k: []), scripted_lm(script()))
    assert (result.answer, result.cost.passages_read) == ("1871", 0)


def test_an_error_carries_what_was_done(index: Any) -> None:
    def search(query: str, k: int) -> list[P]:
        if query == WHEN:
            raise OSError("gone")
        return index.search(query, k)

    with pytest.raises(RetrievalError) as caught:
        run(SelfAsk(search), scripted_lm(script()))
    reached: Trajectory = caught.value.trajectory  # type: ignore[attr-defined]
    assert [hop.answer for hop in reached.hops] == ["Mira Dol"]
    assert run(SelfAsk(index), scripted_lm(script()), reached).answer == "1871"


def timeless(trajectory: Trajectory) -> Trajectory:
    hops = tuple(replace(hop, cost=replace(hop.cost, seconds=0)) for hop in trajectory.hops)
    return replace(trajectory, hops=hops, other_cost=replace(trajectory.other_cost, seconds=0))


@pytest.mark.parametrize("asked", [ASKED, ASKED[:1], (*ASKED[:2], "")], ids=["done", "repeated", "empty"])
@pytest.mark.parametrize("settings", [{}, {"search": False}, {"max_hops": 1}], ids=str)
def test_resuming_a_prefix_gives_the_rest(index: Any, asked: tuple[str, ...], settings: dict[str, Any]) -> None:
    program = SelfAsk(index, **settings)
    whole = run(program, scripted_lm(script(asked)))
    for hops in range(len(whole.hops) + 1):
        prefix = Trajectory.from_dict(whole.prefix(hops).to_dict())
        assert timeless(run(program, scripted_lm(script(asked)), prefix)) == timeless(whole)


def test_an_open_hop_is_read_from_its_passages(index: Any) -> None:
    other = P("9", "Osk Tower", "The Osk Tower is by Ann Ort.")
    opened = Trajectory(QUESTION, open=Hop(WHO, source="search", query=WHO, passages=(other,)))
    lm = scripted_lm(script())
    result = run(SelfAsk(index), lm, opened)
    assert [query for query, _ in index.queries] == [WHEN]
    assert f"Found: {other.long_text}\nIntermediate answer:" in last_turn(lm.engine.prompts[0])
    assert (result.hops[0].passages, result.open, result.answer) == ((other,), None, "1871")


def test_only_the_last_step_is_done_again_with_a_hint(index: Any) -> None:
    program = SelfAsk(index)
    whole = run(program, scripted_lm(script()))
    lm = scripted_lm(script(answer="1872"))
    again = run(program, lm, replace(whole, answer=None, rejected=("1871",)))
    assert "Hint: the answer is not 1871.\nSo the final answer is:" in last_turn(lm.engine.prompts[0])
    assert (len(lm.engine.prompts), again.answer, again.hops) == (1, "1872", whole.hops)


def test_a_failed_plan_is_shown(index: Any) -> None:
    lm = scripted_lm(script())
    run(SelfAsk(index), lm, Trajectory(QUESTION, failed_plans=(("one", "two"),)))
    assert "Failed plan: one | two" in last_turn(lm.engine.prompts[0])


def test_its_worked_examples_are_the_common_ones(index: Any) -> None:
    lm = scripted_lm(script())
    run(SelfAsk(index), lm)
    for prompt in lm.engine.prompts:
        for example in DEFAULT_EXAMPLES:
            assert prompt.count(f"Example:\nQuestion: {example.question}\nAre follow up questions needed here: Y") == 1
    run(SelfAsk(index, examples=[]), lm)
    assert "Example:" not in lm.engine.prompts[-1]


def test_examples_work_turn_by_turn_with_dspys_own_adapter(index: Any) -> None:
    def reply(prompt: str) -> Reply:
        name = next(
            name for name in ("follow_up", "intermediate_answer", "answer") if f"`[[ ## {name} ## ]]`" in prompt
        )
        turn = prompt.rsplit("user: ", 1)[1]
        number = turn.count("Follow up:")
        text = {"follow_up": ASKED[min(number, 2)], "intermediate_answer": READ[number - 1], "answer": "1871"}[name]
        return Reply(f"[[ ## {name} ## ]]\n{text}\n\n[[ ## completed ## ]]")

    lm = scripted_lm(reply, continues_assistant=False)
    with dspy.context(adapter=dspy.ChatAdapter()):
        result = run(SelfAsk(index), lm)
    assert (result.answer, len(result.hops)) == ("1871", 2)
    assert (
        "[[ ## follow_up ## ]]\nYes. Follow up: Who was the architect of the Halden Lighthouse?" in lm.engine.prompts[0]
    )


def test_every_call_joins_the_trace(index: Any) -> None:
    program = SelfAsk(index)
    with dspy.context(lm=scripted_lm(script()), trace=[]):
        asyncio.run(program.acall(question=QUESTION))
        steps = [entry[0] for entry in dspy.settings.trace]
    assert steps == [program.follow_up, program.read] * 2 + [program.follow_up, program.respond]


def test_settings_are_checked(index: Any) -> None:
    for wrong in ({"search": "maybe"}, {"max_hops": 0}, {"tau": -1}):
        with pytest.raises(InputError, match=next(iter(wrong))):
            SelfAsk(index, **wrong)
