"""IRCoT: what it shows, searches for, stops at, and resumes from."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import dspy
import pytest

from hopgate.core import InputError, Passage, RetrievalError
from hopgate.lms.testing import Reply, scripted_lm
from hopgate.programs import DEFAULT_EXAMPLES, Hop, IRCoT, Trajectory
from hopgate.programs.chains import CHAIN_EXAMPLES, first_sentence, sentences, stated_answer

QUESTION = "When was the designer of the Osk Tower born?"
FIRST, SECOND = "The Osk Tower was designed by Mira Dol.", "Mira Dol was born in 1871, so the answer is: 1871."


def script(*thoughts: str, answer: str = "1871") -> Callable[[str], Reply]:
    def reply(prompt: str) -> Reply:
        label = label_of(prompt)
        if label == "Answer:":
            return Reply(answer)
        number = int(label.removeprefix("Thought ").strip(":"))
        return Reply(thoughts[min(number, len(thoughts)) - 1])

    return reply


def label_of(prompt: str) -> str:
    return prompt.rsplit("\n", 1)[-1].removeprefix("assistant: ")


def last_turn(prompt: str) -> str:
    return prompt.rsplit("user: ", 1)[1]


def run(program: IRCoT, lm: dspy.LM, trajectory: Trajectory | None = None) -> Trajectory:
    with dspy.context(lm=lm):
        return program(question=QUESTION, trajectory=trajectory).trajectory


def test_it_searches_with_the_question_and_then_with_each_sentence(index: Any) -> None:
    result = run(IRCoT(index), scripted_lm(script(FIRST, SECOND)))
    assert [query for query, _ in index.queries] == [QUESTION, FIRST]
    assert [hop.query for hop in result.hops] == [QUESTION, FIRST]
    assert [hop.answer for hop in result.hops] == [FIRST, SECOND]
    assert (result.answer, result.stop_reason) == ("1871", "finished")
    assert (result.cost.retrievals, result.cost.lm_calls) == (2, 3)


def test_a_sentence_is_written_from_all_passages_and_sentences_so_far(index: Any) -> None:
    lm = scripted_lm(script(FIRST, SECOND))
    result = run(IRCoT(index, k=2), lm)
    shown = {passage.id: passage for hop in result.hops for passage in hop.passages}
    turn = last_turn(lm.engine.prompts[1])
    assert turn.startswith(f"Question: {QUESTION}")
    for passage in shown.values():
        assert turn.count(f"Found: {passage.long_text}") == 1
    assert f"Thought 1: {FIRST}\nThought 2:" in turn
    assert turn.rindex("Found:") < turn.index("Thought 1:")


def test_each_passage_is_counted_as_read_once(index: Any) -> None:
    result = run(IRCoT(index), scripted_lm(script(FIRST, SECOND)))
    assert result.cost.passages_read == len({passage.id for hop in result.hops for passage in hop.passages})


@pytest.mark.parametrize(("reader", "seen"), [("passages", False), ("chain", True)])
def test_the_reader_sees_all_passages_and_the_sentences_only_if_told_to(index: Any, reader: str, seen: bool) -> None:
    lm = scripted_lm(script(FIRST, SECOND))
    result = run(IRCoT(index, reader=reader), lm)
    turn = last_turn(lm.engine.prompts[-1])
    assert turn.count("Found:") == len(result.passages) == 3
    assert (f"Thought 1: {FIRST}" in turn) is seen


def test_only_the_first_sentence_of_what_is_written_counts(index: Any) -> None:
    lm = scripted_lm(script(f"{FIRST} She was born in 1902. So the answer is: 1902.", SECOND))
    assert [hop.answer for hop in run(IRCoT(index), lm).hops] == [FIRST, SECOND]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Dr. Dol was born in 1871. She died.", "Dr. Dol was born in 1871."),
        ("no end", "no end"),
        ("  One\n line ", "One line"),
        ("", ""),
        (None, ""),
        ("\ud800half", "?half"),
    ],
)
def test_the_first_sentence(text: str | None, expected: str) -> None:
    assert first_sentence(text) == expected


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        (SECOND, "1871"),
        ("So the answer is Mira Dol.", "Mira Dol"),
        (FIRST, FIRST),
        ("The answer is:", "The answer is:"),
    ],
)
def test_the_answer_that_a_sentence_states(sentence: str, expected: str) -> None:
    assert stated_answer(sentence) == expected


# --- ends -------------------------------------------------------------------------------------------------------------


def many() -> list[str]:
    return [f"Fact {word} is known." for word in ("one", "two", "three", "four", "five", "six")]


@pytest.mark.parametrize(
    ("thoughts", "settings", "reason", "hops"),
    [
        ([FIRST], {}, "repeated", 2),
        ([QUESTION], {}, "repeated", 1),
        (many(), {"max_hops": 3}, "max_hops", 3),
        (many(), {"context_words": 50, "k": 4, "passage_words": 50}, "context", 1),
        ([FIRST, ""], {}, "empty", 2),
        (["%$ \U0001f600"], {}, "repeated", 2),
    ],
)
def test_it_ends(thoughts: list[str], settings: dict[str, Any], reason: str, hops: int) -> None:
    class Long:
        def search(self, query: str, k: int) -> list[Passage]:
            return [Passage(f"{number}", "", "word " * 15) for number in range(k)]

    result = run(IRCoT(Long(), **settings), scripted_lm(script(*thoughts)))
    assert (result.stop_reason, len(result.hops), result.answer) == (reason, hops, "1871")


@pytest.mark.parametrize(("thoughts", "best"), [([FIRST, SECOND], "1871"), ([""], "")])
def test_without_a_final_answer_the_best_so_far_is_given(index: Any, thoughts: list[str], best: str) -> None:
    assert run(IRCoT(index), scripted_lm(script(*thoughts, answer=""))).answer == best


def test_a_search_that_finds_nothing() -> None:
    result = run(IRCoT(lambda query, k: []), scripted_lm(script(FIRST, SECOND)))
    assert (result.answer, result.passages) == ("1871", ())


def test_an_error_carries_what_was_done(index: Any) -> None:
    def search(query: str, k: int) -> list[Passage]:
        if query == FIRST:
            raise OSError("gone")
        return index.search(query, k)

    with pytest.raises(RetrievalError) as caught:
        run(IRCoT(search), scripted_lm(script(FIRST, SECOND)))
    reached: Trajectory = caught.value.trajectory  # type: ignore[attr-defined]
    assert [hop.answer for hop in reached.hops] == [FIRST]
    assert run(IRCoT(index), scripted_lm(script(FIRST, SECOND)), reached).answer == "1871"


def test_an_lm_that_fails_does_not_cost_the_search_again(index: Any) -> None:
    with pytest.raises(dspy.LMError) as caught:
        run(IRCoT(index), scripted_lm([("Thought 2:$", SECOND)]))
    reached: Trajectory = caught.value.trajectory  # type: ignore[attr-defined]
    result = run(IRCoT(index), scripted_lm(script(FIRST, SECOND)), reached)
    assert [query for query, _ in index.queries] == [QUESTION, FIRST]
    assert (result.answer, result.cost.retrievals) == ("1871", 2)


# --- resuming ---------------------------------------------------------------------------------------------------------


def timeless(trajectory: Trajectory) -> Trajectory:
    hops = tuple(replace(hop, cost=replace(hop.cost, seconds=0)) for hop in trajectory.hops)
    return replace(trajectory, hops=hops, other_cost=replace(trajectory.other_cost, seconds=0))


@pytest.mark.parametrize("thoughts", [(FIRST, SECOND), (FIRST,), (FIRST, "")], ids=["done", "repeated", "empty"])
def test_resuming_a_prefix_gives_the_rest(index: Any, thoughts: tuple[str, ...]) -> None:
    program = IRCoT(index)
    whole = run(program, scripted_lm(script(*thoughts)))
    for hops in range(len(whole.hops) + 1):
        prefix = Trajectory.from_dict(whole.prefix(hops).to_dict())
        assert timeless(run(program, scripted_lm(script(*thoughts)), prefix)) == timeless(whole)


def test_an_open_hop_is_read_from_its_passages(index: Any) -> None:
    other = Passage("9", "Osk Tower", "The Osk Tower is by Ann Ort.")
    opened = Trajectory(QUESTION, open=Hop(QUESTION, query=QUESTION, passages=(other,)))
    lm = scripted_lm(script(FIRST, SECOND))
    result = run(IRCoT(index), lm, opened)
    assert [query for query, _ in index.queries] == [FIRST]
    assert result.hops[0].passages == (other,)
    assert f"Found: {other.long_text}\nThought 1:" in last_turn(lm.engine.prompts[0])
    assert result.open is None


def test_only_the_last_step_is_done_again_with_a_hint(index: Any) -> None:
    program = IRCoT(index)
    whole = run(program, scripted_lm(script(FIRST, SECOND)))
    lm = scripted_lm(script(answer="1872"))
    again = run(program, lm, replace(whole, answer=None, passages=(), rejected=("1871",)))
    assert "Hint: the answer is not 1871.\nAnswer:" in last_turn(lm.engine.prompts[0])
    assert (len(lm.engine.prompts), again.answer, again.hops) == (1, "1872", whole.hops)


def test_a_failed_plan_is_shown(index: Any) -> None:
    lm = scripted_lm(script(FIRST, SECOND))
    run(IRCoT(index), lm, Trajectory(QUESTION, failed_plans=(("one", "two"),)))
    assert "Failed plan: one | two" in last_turn(lm.engine.prompts[0])


# --- worked examples, traces ------------------------------------------------------------------------------------------


def test_its_worked_examples_are_the_common_ones_in_sentences(index: Any) -> None:
    lm = scripted_lm(script(FIRST, SECOND))
    run(IRCoT(index), lm)
    for example in DEFAULT_EXAMPLES:
        assert lm.engine.prompts[0].count(f"Example:\nQuestion: {example.question}") == 1
    assert "Thought 3: So the answer is: 1868.\nAnswer: 1868" in lm.engine.prompts[0]
    assert [example.question for example in CHAIN_EXAMPLES] == [example.question for example in DEFAULT_EXAMPLES]


def test_worked_examples_may_be_those_of_other_programs(index: Any) -> None:
    lm = scripted_lm(script(FIRST, SECOND))
    run(IRCoT(index, examples=[DEFAULT_EXAMPLES[0]]), lm)
    asked = "In which year was Ivar Brenne born? 1868."
    assert f"Thought 2: {asked}\nThought 3: So the answer is: 1868.\nAnswer: 1868" in lm.engine.prompts[0]
    own = Trajectory(QUESTION, hops=(Hop("", answer=SECOND),), answer="1871")
    assert sentences(own) == [SECOND]


def test_no_worked_examples(index: Any) -> None:
    lm = scripted_lm(script(FIRST, SECOND))
    run(IRCoT(index, examples=[]), lm)
    assert "Example:" not in "".join(lm.engine.prompts)


def test_every_accepted_call_joins_the_trace(index: Any) -> None:
    program = IRCoT(index)
    with dspy.context(lm=scripted_lm(script(FIRST, SECOND)), trace=[]):
        asyncio.run(program.acall(question=QUESTION))
        assert [entry[0] for entry in dspy.settings.trace] == [program.think, program.think, program.respond]


def test_settings_are_checked(index: Any) -> None:
    for wrong in ({"reader": "all"}, {"max_hops": 0}, {"context_words": 1}, {"tau": -1}):
        with pytest.raises(InputError, match=next(iter(wrong))):
            IRCoT(index, **wrong)
