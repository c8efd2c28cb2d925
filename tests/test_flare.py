"""FLARE: look-ahead, threshold, masking, regeneration, ends, and resuming."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import dspy
import pytest
from dspy.lm15 import TokenLogprob

from hopgate.core import ConfidenceError, InputError, Passage, RetrievalError
from hopgate.lms.testing import Reply, scripted_lm
from hopgate.programs import DEFAULT_EXAMPLES, FLARE, Hop, Trajectory

QUESTION = "When was the designer of the Osk Tower born?"
GUESS, FIRST = "The Osk Tower was designed by Ann Ort.", "The Osk Tower was designed by Mira Dol."
SECOND = "Mira Dol was born in 1871, so the answer is: 1871."
SURE, UNSURE, UNLIKELY = -0.01, -0.5, -2.0


def last_turn(prompt: str) -> str:
    return prompt.rsplit("user: ", 1)[1]


def script(*ahead: Reply, anew: Sequence[str] = (FIRST, SECOND), answer: str = "1871") -> Callable[[str], Reply]:
    """Look-aheads by number of the sentence; what is written from the passages of their searches."""
    seen: dict[int, str] = {}

    def reply(prompt: str) -> Reply:
        turn = last_turn(prompt)
        label = turn.rsplit("\n", 1)[-1].removeprefix("assistant: ")
        if label == "Answer:":
            return Reply(answer)
        number = int(label.removeprefix("Thought ").strip(":"))
        if seen.setdefault(number, turn) == turn:
            return ahead[min(number, len(ahead)) - 1]
        return Reply(anew[min(number, len(anew)) - 1])

    return reply


def run(program: FLARE, lm: dspy.LM, trajectory: Trajectory | None = None) -> Trajectory:
    with dspy.context(lm=lm):
        return program(question=QUESTION, trajectory=trajectory).trajectory


def queries(index: Any) -> list[str]:
    return [query for query, _ in index.queries]


class Numbered:
    """Other passages for each query, so that no two prompts are alike."""

    def __init__(self) -> None:
        self.queries: list[tuple[str, int]] = []

    def search(self, query: str, k: int) -> list[Passage]:
        self.queries.append((query, k))
        number = len(self.queries)
        return [Passage(f"{number}.{rank}", "", f"passage {rank} of search {number}") for rank in range(k)]


@pytest.fixture
def numbered() -> Numbered:
    return Numbered()


def test_a_sure_look_ahead_is_kept_without_a_search(numbered: Numbered) -> None:
    result = run(FLARE(numbered), scripted_lm(script(Reply(FIRST, SURE), Reply(SECOND, SURE))))
    assert queries(numbered) == [QUESTION]
    assert [(hop.source, hop.query, hop.answer) for hop in result.hops] == [
        ("search", QUESTION, ""),
        ("memory", None, FIRST),
        ("memory", None, SECOND),
    ]
    assert (result.answer, result.stop_reason) == ("1871", "finished")
    assert (result.cost.retrievals, result.cost.lm_calls) == (1, 3)


def test_an_unsure_look_ahead_is_searched_for_and_written_anew(numbered: Numbered) -> None:
    lm = scripted_lm(script(Reply(GUESS, UNSURE), Reply(SECOND, SURE)))
    result = run(FLARE(numbered), lm)
    assert queries(numbered) == [QUESTION, GUESS]
    hop = result.hops[1]
    assert (hop.draft, hop.answer, hop.source, hop.query) == (GUESS, FIRST, "search", GUESS)
    assert hop.confidence is not None and hop.confidence.min == UNSURE
    assert (result.answer, result.cost.retrievals, result.cost.lm_calls) == ("1871", 2, 4)


@pytest.mark.parametrize(("theta", "searches"), [(0.0, 1), (0.6, 1), (0.61, 3), (1.0, 3)])
def test_the_least_likely_token_decides(numbered: Numbered, theta: float, searches: int) -> None:
    lm = scripted_lm(script(Reply(GUESS, UNSURE), Reply(SECOND, UNSURE)))  # a probability of .607 throughout
    run(FLARE(numbered, theta=theta), lm)
    assert len(numbered.queries) == searches


def with_tokens(monkeypatch: pytest.MonkeyPatch, unlikely: str) -> None:
    """Tokens that spell these words are unlikely in every completion of the scripted LM."""
    from hopgate.lms import testing

    real = testing._tokens

    def tokens(*args: Any) -> Any:
        for token in real(*args):
            value = UNLIKELY if token.token.strip(" .,") in unlikely.split() else token.logprob
            yield TokenLogprob(token=token.token, logprob=value, bytes=token.bytes)

    monkeypatch.setattr(testing, "_tokens", tokens)


@pytest.mark.parametrize(("beta", "query"), [(0.4, "The Osk Tower was designed by"), (0.1, GUESS), (1.0, GUESS)])
def test_unlikely_tokens_are_no_part_of_the_query(
    numbered: Numbered, monkeypatch: pytest.MonkeyPatch, beta: float, query: str
) -> None:
    with_tokens(monkeypatch, "Ann Ort")
    run(FLARE(numbered, beta=beta), scripted_lm(script(Reply(GUESS, SURE), Reply(SECOND, SURE))))
    assert queries(numbered)[1] == query


def test_spaces_stay_where_they_are_tokens_of_their_own(numbered: Numbered, monkeypatch: pytest.MonkeyPatch) -> None:
    """As before digits in some vocabularies, where each digit is a token too; a character may be several."""
    from hopgate.lms import testing

    pieces = ["In", " ", "1", "9", "11", " Ann", " built", " T", "\u00f8", "rvik", "."]

    def tokens(reply: Reply, *_: Any) -> Any:
        for piece in pieces if reply.text.startswith("In") else [reply.text]:
            for raw in [bytes([byte]) for byte in piece.encode()] if piece == "\u00f8" else [piece.encode()]:
                text = raw.decode("utf-8", "replace")
                yield TokenLogprob(token=text, logprob=UNLIKELY if piece == " Ann" else UNSURE, bytes=tuple(raw))

    monkeypatch.setattr(testing, "_tokens", tokens)
    lm = scripted_lm(script(Reply("".join(pieces)), Reply(SECOND)))
    run(FLARE(numbered, start="nothing", max_hops=1), lm)
    assert queries(numbered) == ["In 1911 built T\u00f8rvik."]


def test_tokens_behind_the_first_sentence_decide_nothing(numbered: Numbered, monkeypatch: pytest.MonkeyPatch) -> None:
    with_tokens(monkeypatch, "perhaps")
    lm = scripted_lm(script(Reply(f"{FIRST} She was born perhaps early.", SURE), Reply(SECOND, SURE)))
    result = run(FLARE(numbered), lm)
    assert queries(numbered) == [QUESTION]
    assert result.hops[1].answer == FIRST


def test_the_passages_of_the_last_search_are_in_view(numbered: Numbered) -> None:
    lm = scripted_lm(script(Reply(GUESS, UNSURE), Reply(SECOND, SURE)))
    run(FLARE(numbered, k=1), lm)
    turns = [last_turn(prompt).split("\n", 1)[1].removeprefix("assistant: ") for prompt in lm.engine.prompts]
    assert turns == [
        "Found: passage 0 of search 1\nThought 1:",
        "Found: passage 0 of search 2\nThought 1:",
        f"Found: passage 0 of search 2\nThought 1: {FIRST}\nThought 2:",
        f"Found: passage 0 of search 2\nThought 1: {FIRST}\nThought 2: {SECOND}\nAnswer:",
    ]


def test_it_may_start_without_a_search(numbered: Numbered) -> None:
    lm = scripted_lm(script(Reply(FIRST, SURE), Reply(SECOND, SURE)))
    result = run(FLARE(numbered, start="nothing"), lm)
    assert numbered.queries == []
    assert [hop.answer for hop in result.hops] == [FIRST, SECOND]
    assert "Found:" not in last_turn(lm.engine.prompts[0])


def test_an_empty_first_look_ahead_searches_for_the_question(numbered: Numbered) -> None:
    lm = scripted_lm(script(Reply(""), Reply(SECOND, SURE)))
    result = run(FLARE(numbered, start="nothing"), lm)
    assert queries(numbered) == [QUESTION]
    assert (result.hops[0].draft, result.hops[0].answer, result.answer) == (None, FIRST, "1871")


# --- ends -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ahead", "settings", "reason", "said"),
    [
        ([Reply(FIRST, SURE)], {}, "repeated", 2),
        ([Reply(f"Fact {word} is known.", SURE) for word in ("a", "b", "c", "d")], {"max_hops": 3}, "max_hops", 3),
        ([Reply(FIRST, SURE), Reply("")], {}, "empty", 1),
        ([Reply("")], {}, "empty", 0),
        ([Reply(FIRST, SURE)], {"k": 30, "context_words": 50}, "context", 0),
    ],
)
def test_it_ends(ahead: list[Reply], settings: dict[str, Any], reason: str, said: int, numbered: Numbered) -> None:
    result = run(FLARE(numbered, **settings), scripted_lm(script(*ahead)))
    assert (result.stop_reason, result.answer) == (reason, "1871")
    assert len([hop for hop in result.hops if hop.answer]) == said


def test_where_nothing_is_written_from_the_passages_the_look_ahead_stays(numbered: Numbered) -> None:
    lm = scripted_lm(script(Reply(GUESS, UNSURE), Reply(SECOND, SURE), anew=[""]))
    assert run(FLARE(numbered), lm).hops[1].answer == GUESS


def test_without_a_final_answer_the_stated_one_is_given(numbered: Numbered) -> None:
    lm = scripted_lm(script(Reply(FIRST, SURE), Reply(SECOND, SURE), answer=""))
    assert run(FLARE(numbered), lm).answer == "1871"


def test_a_search_that_finds_nothing() -> None:
    lm = scripted_lm(script(Reply(GUESS, UNSURE), Reply(SECOND, SURE)))
    assert run(FLARE(lambda query, k: []), lm).answer == "1871"


def test_an_error_carries_what_was_done(numbered: Numbered) -> None:
    def search(query: str, k: int) -> list[Passage]:
        if query == SECOND:
            raise OSError("gone")
        return numbered.search(query, k)

    with pytest.raises(RetrievalError) as caught:
        run(FLARE(search), scripted_lm(script(Reply(FIRST, SURE), Reply(SECOND, UNSURE))))
    reached: Trajectory = caught.value.trajectory  # type: ignore[attr-defined]
    assert [hop.answer for hop in reached.hops] == ["", FIRST]
    assert run(FLARE(numbered), scripted_lm(script(Reply(""), Reply(SECOND, SURE))), reached).answer == "1871"


def test_missing_logprobs_are_an_error_or_mean_search(numbered: Numbered) -> None:
    ahead = (Reply(GUESS, None), Reply(SECOND, None))
    with pytest.raises(ConfidenceError) as caught:
        run(FLARE(numbered), scripted_lm(script(*ahead)))
    assert caught.value.trajectory.hops[0].query == QUESTION  # type: ignore[attr-defined]
    result = run(FLARE(numbered, without_confidence="search"), scripted_lm(script(*ahead)))
    assert [hop.query for hop in result.hops] == [QUESTION, GUESS, SECOND]
    assert result.hops[1].confidence is None and result.hops[1].note


# --- resuming, traces -------------------------------------------------------------------------------------------------


def timeless(trajectory: Trajectory) -> Trajectory:
    hops = tuple(replace(hop, cost=replace(hop.cost, seconds=0)) for hop in trajectory.hops)
    return replace(trajectory, hops=hops, other_cost=replace(trajectory.other_cost, seconds=0))


@pytest.mark.parametrize(
    "ahead",
    [
        (Reply(GUESS, UNSURE), Reply(SECOND, SURE)),
        (Reply(FIRST, SURE), Reply(GUESS, UNSURE)),
        (Reply(FIRST, SURE),),
        (Reply(FIRST, SURE), Reply("")),
    ],
    ids=["search", "search later", "repeated", "empty"],
)
@pytest.mark.parametrize("start", ["question", "nothing"])
def test_resuming_a_prefix_gives_the_rest(index: Any, ahead: tuple[Reply, ...], start: str) -> None:
    program = FLARE(index, start=start)
    whole = run(program, scripted_lm(script(*ahead)))
    for hops in range(len(whole.hops) + 1):
        prefix = Trajectory.from_dict(whole.prefix(hops).to_dict())
        assert timeless(run(program, scripted_lm(script(*ahead)), prefix)) == timeless(whole)


def test_an_open_hop_is_read_from_its_passages(numbered: Numbered) -> None:
    other = Passage("9", "Osk Tower", "The Osk Tower is by Ann Ort.")
    opened = Trajectory(QUESTION, open=Hop(GUESS, draft=GUESS, query=GUESS, passages=(other,)))
    lm = scripted_lm(script(Reply(FIRST), Reply(SECOND, SURE)))
    result = run(FLARE(numbered), lm, opened)
    assert numbered.queries == []
    assert last_turn(lm.engine.prompts[0]).endswith(f"Found: {other.long_text}\nThought 1:")
    assert (result.hops[0].answer, result.answer) == (FIRST, "1871")


def test_only_the_last_step_is_done_again_with_a_hint(numbered: Numbered) -> None:
    program = FLARE(numbered)
    whole = run(program, scripted_lm(script(Reply(FIRST, SURE), Reply(SECOND, SURE))))
    lm = scripted_lm(script(answer="1872"))
    again = run(program, lm, replace(whole, answer=None, rejected=("1871",)))
    assert last_turn(lm.engine.prompts[0]).endswith("Hint: the answer is not 1871.\nAnswer:")
    assert (len(lm.engine.prompts), again.answer, again.hops) == (1, "1872", whole.hops)


def test_a_failed_plan_is_shown(numbered: Numbered) -> None:
    lm = scripted_lm(script(Reply(FIRST, SURE), Reply(SECOND, SURE)))
    run(FLARE(numbered), lm, Trajectory(QUESTION, failed_plans=(("one", "two"),)))
    assert "Failed plan: one | two" in last_turn(lm.engine.prompts[0])


def test_its_worked_examples_are_the_common_ones(numbered: Numbered) -> None:
    lm = scripted_lm(script(Reply(FIRST, SURE), Reply(SECOND, SURE)))
    run(FLARE(numbered), lm)
    for prompt in lm.engine.prompts:
        assert all(prompt.count(f"Example:\nQuestion: {example.question}") == 1 for example in DEFAULT_EXAMPLES)
    run(FLARE(numbered, examples=[]), lm)
    assert "Example:" not in lm.engine.prompts[-1]


def test_a_rejected_look_ahead_stays_out_of_the_trace(numbered: Numbered) -> None:
    program = FLARE(numbered)
    with dspy.context(lm=scripted_lm(script(Reply(GUESS, UNSURE), Reply(SECOND, SURE))), trace=[]):
        asyncio.run(program.acall(question=QUESTION))
        outputs = [dict(entry[2]) for entry in dspy.settings.trace]
    assert outputs == [{"sentence": FIRST}, {"sentence": SECOND}, {"answer": "1871"}]


def test_settings_are_checked(numbered: Numbered) -> None:
    for wrong in ({"theta": 1.1}, {"beta": -1}, {"start": "all"}, {"without_confidence": "guess"}, {"tau": -1}):
        with pytest.raises(InputError, match=next(iter(wrong))):
            FLARE(numbered, **wrong)
