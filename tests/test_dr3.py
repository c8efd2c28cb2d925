"""Dr3 with a scripted LM: each correction succeeding, failing and running out of budget, and what is kept of them."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import dspy
import pytest

from hopgate.core import InputError, Passage
from hopgate.lms.testing import Reply, scripted_lm
from hopgate.programs import (
    ActiveQA,
    Cost,
    Discriminator,
    Dr3,
    Escalation,
    Hop,
    ProgramSettings,
    ReActPlus,
    Solver,
    Trajectory,
)
from hopgate.programs.requests import Find
from hopgate.programs.trajectory import Source

QUESTION = "When was the designer of the Osk Tower born?"
PLAN = ("Who designed the Osk Tower?", "When was Mira Dol born?")


class Ranking:
    """A retriever that returns the same numbered passages for a query, best first."""

    def __init__(self, depth: int = 6) -> None:
        self.depth = depth
        self.queries: list[tuple[str, int]] = []

    def search(self, query: str, k: int) -> list[Passage]:
        self.queries.append((query, k))
        return [Passage(f"{query[:4]}{rank}", "", f"{query[:4]} rank {rank}") for rank in range(1, self.depth + 1)][:k]


class Judge(dspy.Module):
    """Finds what the test says of an answer; all else is off-topic."""

    def __init__(self, **verdicts: Any) -> None:
        super().__init__()
        self.verdicts = verdicts
        self.asked: list[str] = []

    def forward(self, question: str, answer: str) -> dspy.Prediction:
        self.asked.append(answer)
        found = self.verdicts.get(answer, 0.1)
        if isinstance(found, Exception):
            raise found
        if isinstance(found, str | None):
            return dspy.Prediction(verdict=found or "off_topic", probability=None)
        return dspy.Prediction(verdict="on_topic" if found >= 0.5 else "off_topic", probability=found)

    async def aforward(self, question: str, answer: str) -> dspy.Prediction:
        return self.forward(question, answer)


Says = Callable[[str, str], str]


def script(says: Says) -> Callable[[str], str]:
    """An LM that plans and asks as in ``PLAN``; ``says`` gives the rest by label and this question's own lines."""

    def reply(prompt: str) -> str:
        text = prompt.split("\nassistant: ")[-1]
        label = text.rsplit("\n", 1)[-1]
        said = says(label, text)
        if said:
            return said
        if label == "Plan:":
            return " | ".join(PLAN) if "Failed plan" not in text else "Who drew it? | When did he live?"
        if label.startswith("Task"):
            number = int(label[5:-1])
            plan = PLAN if "Who drew it?" not in text else ("Who drew it?", "When did he live?")
            return plan[number - 1] if number <= len(plan) else "none"
        return "Paris" if label == "Answer:" else "Mira Dol"

    return reply


def nothing(label: str, text: str) -> str:
    """An LM that always answers Paris."""
    return ""


def hinted(label: str, text: str) -> str:
    """Composing again gives the year."""
    return "1871" if label == "Answer:" and "Hint:" in text else ""


def reading(name: str) -> Says:
    """The year is concluded from the passage, and then is the answer."""

    def says(label: str, text: str) -> str:
        opened = text.rsplit("Task", 1)[1] if "Task" in text else ""
        if label.startswith("Conclusion") and name in opened:
            return "1871"
        return "1871" if label == "Answer:" and ": 1871" in text else ""

    return says


def says_if(part: str) -> Says:
    """The final answer is the year if its prompt holds the text."""
    return lambda label, text: "1871" if label == "Answer:" and part in text else ""


other_plan = says_if("Who drew it?")


def dr3(
    says: Says,
    judge: dspy.Module | None = None,
    *,
    index: Any = None,
    solver: Callable[..., Solver] = ReActPlus,
    **settings: Any,
) -> tuple[dspy.Prediction, Any, Any]:
    index = index or Ranking()
    lm = scripted_lm(script(says))
    program = Dr3(solver(index, k=1), judge or Judge(**{"1871": 0.9}), **settings)
    with dspy.context(lm=lm):
        return program(question=QUESTION), lm, index


def stages(result: dspy.Prediction) -> list[tuple[str, int | None, int | None]]:
    return [(record["stage"], record["hop"], record["page"]) for record in result.trajectory.revisions]


def kept(result: dspy.Prediction) -> dict[str, Any]:
    (record,) = [record for record in result.trajectory.revisions if record["kept"]]
    return record


def timeless(value: Any) -> Any:
    if isinstance(value, Trajectory):
        return timeless(value.to_dict())
    if isinstance(value, dict):
        return {key: timeless(item) for key, item in value.items() if key != "seconds"}
    return [timeless(item) for item in value] if isinstance(value, list | tuple) else value


def calls(lm: Any, index: Any) -> tuple[int, int]:
    return len(lm.engine.prompts), len(index.queries)


# --- each stage -------------------------------------------------------------------------------------------------------


def test_an_answer_that_fits_is_not_corrected() -> None:
    result, lm, index = dr3(lambda label, text: "1871" if label == "Answer:" else "")
    assert (result.answer, result.verdict, result.probability) == ("1871", "on_topic", 0.9)
    assert stages(result) == [("solve", None, None)]
    alone = ReActPlus(Ranking(), k=1)
    with dspy.context(lm=scripted_lm(script(lambda label, text: "1871" if label == "Answer:" else ""))):
        expected = alone(question=QUESTION)
    assert timeless(replace(result.trajectory, revisions=())) == timeless(expected.trajectory)
    assert calls(lm, index) == (7, 2)


def test_recompose_tells_which_answer_was_rejected() -> None:
    result, lm, index = dr3(hinted)
    assert (result.answer, result.verdict) == ("1871", "on_topic")
    assert stages(result) == [("solve", None, None), ("recompose", None, None)]
    assert "Hint: the answer is not Paris." in lm.engine.prompts[-1]
    assert calls(lm, index) == (8, 2)
    assert (result.cost.lm_calls, result.cost.retrievals) == (8, 2)
    first, second = result.trajectory.revisions
    assert (first["answer"], first["verdict"], first["probability"], first["kept"]) == (
        "Paris",
        "off_topic",
        0.1,
        False,
    )
    assert (second["answer"], second["verdict"], second["kept"]) == ("1871", "on_topic", True)
    assert (first["cost"]["lm_calls"], second["cost"]["lm_calls"], second["cost"]["retrievals"]) == (7, 1, 0)
    assert first["sub_questions"] == list(PLAN)
    assert first["conclusions"] == ["Mira Dol", "Mira Dol"]
    assert first["passages"] == ["Who 1", "When1"]


@pytest.mark.parametrize(
    ("name", "place", "page", "hop"), [("When rank 3", 2, 3, 1), ("Who rank 2", 1, 2, 0)], ids=["last", "first"]
)
def test_resolve_reads_lower_ranks_from_the_last_hop_to_the_first(name: str, place: int, page: int, hop: int) -> None:
    result, lm, index = dr3(reading(name), resolve_depth=3)
    assert (result.answer, result.verdict) == ("1871", "on_topic")
    assert stages(result)[-1] == ("resolve", place, page)
    expected = [("resolve", 2, 2), ("resolve", 2, 3), ("resolve", 1, 2)]
    assert stages(result)[2:] == expected[: expected.index(("resolve", place, page)) + 1]
    assert [passage.id for passage in result.trajectory.hops[hop].passages] == [f"{PLAN[hop][:4]}{page}"]
    assert result.trajectory.plan == PLAN
    # One search a hop gives all its pages.
    assert index.queries.count((PLAN[hop], 3)) == 1
    assert calls(lm, index) == (result.cost.lm_calls, result.cost.retrievals)


def test_redecompose_is_told_which_plan_failed() -> None:
    result, lm, index = dr3(other_plan, resolve_depth=2)
    assert (result.answer, result.verdict) == ("1871", "on_topic")
    assert stages(result)[-1] == ("redecompose", None, None)
    (told,) = [prompt for prompt in lm.engine.prompts if "Failed plan" in prompt]
    assert f"Failed plan: {' | '.join(PLAN)}" in told
    assert [hop.sub_question for hop in result.trajectory.hops] == ["Who drew it?", "When did he live?"]
    assert calls(lm, index) == (result.cost.lm_calls, result.cost.retrievals)


def test_the_stages_come_in_their_order_and_the_best_answer_is_kept_if_none_passes() -> None:
    def says(label: str, text: str) -> str:
        if label != "Answer:":
            return ""
        return "Rome" if "Hint" in text else "Oslo" if "rank 2" in text else "Bern" if "Who drew it?" in text else ""

    judge = Judge(Paris=0.1, Rome=0.2, Oslo=0.4, Bern=0.3)
    result, lm, index = dr3(says, judge, resolve_depth=2)
    assert stages(result) == [
        ("solve", None, None),
        ("recompose", None, None),
        ("resolve", 2, 2),
        ("resolve", 1, 2),
        ("redecompose", None, None),
    ]
    assert [record["answer"] for record in result.trajectory.revisions] == ["Paris", "Rome", "Oslo", "Oslo", "Bern"]
    assert (result.answer, result.verdict, result.probability) == ("Oslo", "off_topic", 0.4)
    assert kept(result)["hop"] == 2  # the first of two as good
    assert calls(lm, index) == (result.cost.lm_calls, result.cost.retrievals)
    assert judge.asked == ["Paris", "Rome", "Oslo", "Bern"]  # no answer is judged twice


def test_the_first_answer_is_kept_if_nothing_is_better() -> None:
    result, lm, index = dr3(nothing, Judge(), resolve_depth=2)
    assert (result.answer, kept(result)["stage"]) == ("Paris", "solve")
    assert calls(lm, index) == (result.cost.lm_calls, result.cost.retrievals)
    result, _, _ = dr3(hinted, Judge(Paris=None, **{"1871": None}), resolve_depth=2)
    assert (result.answer, result.probability) == ("Paris", None)


@pytest.mark.parametrize(
    ("off", "expected"),
    [
        ({"recompose"}, ["solve", "resolve", "resolve", "redecompose"]),
        ({"resolve"}, ["solve", "recompose", "redecompose"]),
        ({"redecompose"}, ["solve", "recompose", "resolve", "resolve"]),
        ({"recompose", "resolve", "redecompose"}, ["solve"]),
    ],
    ids=str,
)
def test_each_stage_can_be_switched_off(off: set[str], expected: list[str]) -> None:
    result, _, _ = dr3(nothing, Judge(), resolve_depth=2, **dict.fromkeys(off, False))
    assert [stage for stage, _, _ in stages(result)] == expected


def test_no_prompt_grows_from_one_attempt_into_the_next() -> None:
    _, lm, _ = dr3(lambda label, text: f"Rome{len(text)}" if label == "Answer:" else "", Judge(), resolve_depth=4)
    composing = [prompt for prompt in lm.engine.prompts if prompt.endswith("Answer:")]
    assert len(composing) > 6
    assert sum("Hint:" in prompt for prompt in composing) == 1
    assert max(prompt.split("user: ")[-1].count("\n") for prompt in composing) <= composing[1].split("user: ")[
        -1
    ].count("\n")


# --- pages ------------------------------------------------------------------------------------------------------------


def test_pages_are_of_the_size_that_a_hop_reads() -> None:
    index = Ranking(7)
    program = Dr3(ReActPlus(index, k=2), Judge(), resolve_depth=7, recompose=False, redecompose=False)
    with dspy.context(lm=scripted_lm(script(nothing))):
        result = program(question=QUESTION)
    read = [record["passages"] for record in result.trajectory.revisions if record["hop"] == 2]
    own = ["Who 1", "Who 2"]
    assert read == [[*own, "When3", "When4"], [*own, "When5", "When6"], [*own, "When7"]]
    assert [record["page"] for record in result.trajectory.revisions if record["hop"] == 2] == [2, 3, 4]


def test_a_hop_from_memory_is_searched_first() -> None:
    index = Ranking()
    solver = ActiveQA(index, k=1, gate="never")

    def says(label: str, text: str) -> str:
        if label == "Answer:" and "rank 1" in text:
            return "1871"
        return ""

    with dspy.context(lm=scripted_lm(script(says))):
        result = Dr3(solver, Judge(**{"1871": 0.9}), recompose=False, resolve_depth=3)(question=QUESTION)
    assert result.answer == "1871"
    assert stages(result) == [("solve", None, None), ("resolve", 2, 1)]
    assert [hop.source for hop in result.trajectory.hops] == ["memory", "search"]
    assert index.queries == [(PLAN[1], 3)]


def test_a_ranking_without_lower_ranks_has_no_pages() -> None:
    result, _, index = dr3(nothing, Judge(), index=Ranking(1), recompose=False, redecompose=False)
    assert stages(result) == [("solve", None, None)]
    assert len(index.queries) == 4


def test_a_retriever_that_finds_nothing() -> None:
    result, _, _ = dr3(nothing, Judge(), index=Ranking(0))
    assert result.answer == "Paris"
    assert [stage for stage, _, _ in stages(result)] == ["solve", "recompose", "redecompose"]


# --- budgets ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [0, 1, 2, 4, 8])
def test_no_attempt_begins_beyond_the_budget_of_lm_calls(limit: int) -> None:
    result, lm, index = dr3(nothing, Judge(), resolve_depth=3, max_lm_calls=limit)
    begun = [record["cost"]["lm_calls"] for record in result.trajectory.revisions[1:] if not record["error"]]
    assert sum(begun[:-1]) < limit or not begun
    last = result.trajectory.revisions[-1]
    assert "budget" in last["error"] and last["answer"] is None and last["verdict"] is None
    assert sum(begun) >= limit
    assert result.answer == "Paris"
    assert calls(lm, index) == (result.cost.lm_calls, result.cost.retrievals)


@pytest.mark.parametrize(("limit", "expected"), [(0, 0), (1, 1), (2, 2), (4, 2)])
def test_no_search_begins_beyond_the_budget_of_retrievals(limit: int, expected: int) -> None:
    result, _, index = dr3(hinted, Judge(), resolve_depth=2, max_retrievals=limit)
    assert stages(result)[1] == ("recompose", None, None)  # which needs none
    assert len([query for query in index.queries if query[1] == 2]) == expected
    assert ("budget" in str(result.trajectory.revisions[-1]["error"])) == (limit < 4)
    assert len([record for record in result.trajectory.revisions if record["page"] == 2]) >= min(1, limit)


def test_the_judges_calls_are_counted() -> None:
    says = {"Kinds:": " a year", "Fits:": " no"}
    lm = scripted_lm(
        lambda prompt: says.get(prompt.rsplit("\n", 1)[-1].removeprefix("assistant: ")) or script(hinted)(prompt)
    )
    index = Ranking()
    with dspy.context(lm=lm):
        result = Dr3(ReActPlus(index, k=1), max_lm_calls=3)(question=QUESTION)
    # The kinds are named once: seven calls of the solver, two of the first judgement, then composing and judging again.
    assert (result.cost.lm_calls, len(lm.engine.prompts)) == (7 + 2 + 1 + 1, 7 + 2 + 1 + 1)
    assert "4 LM calls" in result.trajectory.revisions[-1]["error"]


# --- verdicts ---------------------------------------------------------------------------------------------------------


def test_an_undecided_answer_is_kept_unless_told_otherwise() -> None:
    judge = Judge(Paris="undecided", **{"1871": 0.9})
    result, _, _ = dr3(hinted, judge)
    assert (result.answer, result.verdict, len(stages(result))) == ("Paris", "undecided", 1)
    result, _, _ = dr3(hinted, judge, undecided="correct")
    assert (result.answer, result.verdict) == ("1871", "on_topic")


def test_an_undecided_attempt_is_better_than_an_off_topic_one() -> None:
    judge = Judge(Paris=0.4, **{"1871": "undecided"})
    for undecided, count in (("keep", 2), ("correct", 5)):
        result, _, _ = dr3(hinted, judge, resolve_depth=2, undecided=undecided)
        assert (result.answer, result.verdict, len(stages(result))) == ("1871", "undecided", count)


def test_an_empty_answer_is_corrected_without_a_hint() -> None:
    def says(label: str, text: str) -> str:
        if label == "Answer:" and "Who drew it?" in text:
            return "1871"
        return " " if label == "Answer:" or label.startswith("Conclusion") else ""

    lm = scripted_lm(lambda prompt: script(says)(prompt))
    with dspy.context(lm=lm):
        result = Dr3(ReActPlus(Ranking(), k=1), Judge(**{"1871": 0.9, "": 0.0}), resolve=False)(question=QUESTION)
    assert [stage for stage, _, _ in stages(result)] == ["solve", "redecompose"]
    assert result.answer == "1871"


def test_a_discriminator_that_returns_something_else_is_refused() -> None:
    with pytest.raises(InputError, match=r"verdict.*'fine'") as caught:
        dr3(nothing, Judge(Paris="fine"))
    assert caught.value.trajectory.answer == "Paris"  # type: ignore[attr-defined]


def test_with_its_own_discriminator() -> None:
    def says(prompt: str) -> str | Reply:
        label = prompt.rsplit("\n", 1)[-1].removeprefix("assistant: ")
        if label == "Kinds:":
            return " a year"
        if label == "Fits:":
            said, other = (" yes", " no") if "Answer: 1871" in prompt else (" no", " yes")
            return Reply(said, -0.1, {other: -3.0})
        return script(hinted)(prompt)

    with dspy.context(lm=scripted_lm(says)):
        result = Dr3(ReActPlus(Ranking(), k=1))(question=QUESTION)
    assert (result.answer, result.verdict) == ("1871", "on_topic")
    assert result.probability == pytest.approx(0.948, abs=0.01)


# --- failures ---------------------------------------------------------------------------------------------------------


def failing_at(says: Says, step: str) -> Callable[[str], str]:
    """An LM that times out once a prompt holds the text."""

    def reply(prompt: str) -> str:
        if step in prompt.split("\nassistant: ")[-1]:
            raise TimeoutError("too slow")
        return script(says)(prompt)

    return reply


@pytest.mark.parametrize(
    ("step", "stage", "hop"),
    [("Hint:", "recompose", None), ("When rank 2", "resolve", 2), ("Failed plan", "redecompose", None)],
)
def test_an_lm_that_times_out_ends_the_correction_with_the_best_answer(step: str, stage: str, hop: int | None) -> None:
    def says(label: str, text: str) -> str:
        return "Rome" if label == "Answer:" and "Hint" in text else ""

    index = Ranking()
    lm = scripted_lm(failing_at(says, step))
    with dspy.context(lm=lm):
        result = Dr3(ReActPlus(index, k=1), Judge(Rome=0.3), resolve_depth=2)(question=QUESTION)
    last = result.trajectory.revisions[-1]
    assert (last["stage"], last["hop"], last["answer"], last["verdict"]) == (stage, hop, None, None)
    assert "too slow" in last["error"]
    assert last["error"].split(":")[0].isidentifier()
    assert result.answer == ("Paris" if stage == "recompose" else "Rome")
    json.dumps(result.trajectory.to_dict(), allow_nan=False)


def test_a_failed_attempt_is_paid_for() -> None:
    index = Ranking()
    lm = scripted_lm(failing_at(nothing, "Task 2: When did he live?"))
    with dspy.context(lm=lm):
        result = Dr3(ReActPlus(index, k=1), Judge(), recompose=False, resolve=False)(question=QUESTION)
    spent = result.trajectory.revisions[-1]["cost"]
    # The plan and the first hop; the call that failed has no account.
    assert (spent["lm_calls"], spent["retrievals"]) == (3, 1)
    assert result.cost.lm_calls == 7 + 3


def test_a_retriever_that_raises_ends_the_correction() -> None:
    class Failing(Ranking):
        def search(self, query: str, k: int) -> list[Passage]:
            if k > 1:
                raise OSError("no disk")
            return super().search(query, k)

    result, _, _ = dr3(nothing, Judge(), index=Failing())
    last = result.trajectory.revisions[-1]
    assert (last["stage"], last["hop"], last["page"]) == ("resolve", 2, None)
    assert last["error"].startswith("RetrievalError:")
    assert result.answer == "Paris"


@pytest.mark.parametrize(("answer", "stage"), [("Paris", "solve"), ("1871", "recompose")])
def test_a_judge_that_fails_leaves_the_best_answer(answer: str, stage: str) -> None:
    result, _, _ = dr3(hinted, Judge(**{answer: RuntimeError("out of memory")}), undecided="correct")
    last = result.trajectory.revisions[-1]
    assert (last["stage"], last["answer"], last["verdict"]) == (stage, answer, "undecided")
    assert last["error"] == "RuntimeError: out of memory"
    assert result.answer == "Paris"


def test_a_first_run_that_fails_is_an_error_with_its_trajectory() -> None:
    lm = scripted_lm(failing_at(nothing, "Task 2:"))
    with dspy.context(lm=lm), pytest.raises(dspy.LMError) as caught:
        Dr3(ReActPlus(Ranking(), k=1), Judge())(question=QUESTION)
    assert len(caught.value.trajectory.hops) == 1  # type: ignore[attr-defined]


@pytest.mark.parametrize("garbage", ["", "???", "none", "Task 1: Task 1: x\nAnswer: Answer:", "a " * 200])
def test_an_lm_that_says_garbage_always_comes_back(garbage: str) -> None:
    lm = scripted_lm(lambda prompt: garbage)
    with dspy.context(lm=lm):
        result = Dr3(ReActPlus(Ranking(), k=1), resolve_depth=2)(question=QUESTION)
    assert result.trajectory.revisions
    json.dumps(result.trajectory.to_dict(), allow_nan=False)


@pytest.mark.parametrize("solver", [ReActPlus, ActiveQA], ids=["react-plus", "active"])
def test_an_lm_that_repeats_or_never_finishes_comes_back(solver: Callable[..., Solver]) -> None:
    def repeating(label: str, text: str) -> str:
        return "Who is it?" if label.startswith("Task") else ""

    def endless(label: str, text: str) -> str:
        return f"Who is x{'i' * len(text)}?" if label.startswith("Task") else ""

    for says in (repeating, endless):
        result, lm, index = dr3(says, Judge(), solver=solver, resolve_depth=2)
        assert result.answer == "Paris"
        assert stages(result)[-1][0] == "redecompose"
        assert calls(lm, index) == (result.cost.lm_calls, result.cost.retrievals)


# --- other solvers ----------------------------------------------------------------------------------------------------


def test_it_corrects_active_qa() -> None:
    result, lm, index = dr3(reading("When rank 3"), solver=ActiveQA, resolve_depth=3)
    assert (result.answer, stages(result)[-1]) == ("1871", ("resolve", 2, 3))
    assert calls(lm, index) == (result.cost.lm_calls, result.cost.retrievals)
    result, _, _ = dr3(other_plan, solver=ActiveQA, resolve_depth=2)
    assert [hop.sub_question for hop in result.trajectory.hops][-1] == "When did he live?"


@pytest.mark.parametrize(
    ("sure", "answered", "plan"),
    # A sure answer to the whole question was the failed plan itself; else it was the sub-questions.
    [(-0.001, says_if("Who designed"), PLAN), (-3.0, other_plan, ("Who drew it?", "When did he live?"))],
    ids=["sure", "unsure"],
)
def test_it_corrects_escalation(sure: float, answered: Says, plan: tuple[str, ...]) -> None:
    def says(prompt: str) -> Reply:
        text = prompt.split("\nassistant: ")[-1]
        if "Task" not in text and text.endswith("Answer:"):  # the whole question, from memory or its passages
            return Reply("Paris", sure)
        if text.rsplit("\n", 1)[-1].startswith("Conclusion") and "Found" not in text.rsplit("Task", 1)[1]:
            return Reply("a draft", -3.0)
        return Reply(script(answered)(prompt))

    index, lm = Ranking(), scripted_lm(says)
    with dspy.context(lm=lm):
        result = Dr3(Escalation(index, k=1), Judge(**{"1871": 0.9}), resolve_depth=2)(question=QUESTION)
    assert (result.answer, stages(result)[-1]) == ("1871", ("redecompose", None, None))
    assert [hop.sub_question for hop in result.trajectory.hops] == [QUESTION, *plan]
    assert calls(lm, index) == (result.cost.lm_calls, result.cost.retrievals)


class Recorder(Solver):
    """Writes down what it is resumed with."""

    def __init__(self, source: Source = "search") -> None:
        super().__init__(Ranking(), ProgramSettings(k=1))
        self.source: Source = source
        self.started: list[Trajectory] = []

    def _steps(self, question: str, trajectory: Trajectory) -> Any:
        self.started.append(trajectory)
        yield Find("q", 1)
        hops = trajectory.hops or (Hop("one", source=self.source, cost=Cost(lm_calls=1)),)
        return replace(
            trajectory, hops=hops, open=None, answer="Paris", other_cost=trajectory.other_cost + Cost(lm_calls=2)
        )


def test_every_attempt_starts_from_the_original_trajectory() -> None:
    solver = Recorder()
    with dspy.context(lm=scripted_lm([])):
        result = Dr3(solver, Judge(), resolve_depth=2)(question=QUESTION)
    _, recompose, *resolve, redecompose = solver.started
    assert (recompose.rejected, recompose.answer, len(recompose.hops)) == (("Paris",), None, 1)
    assert [(opened.rejected, opened.failed_plans, opened.hops) for opened in resolve] == [((), (), ())] * 2
    assert [[passage.id for passage in opened.open.passages] for opened in resolve if opened.open] == [
        ["one1"],
        ["one2"],
    ]
    assert (redecompose.failed_plans, redecompose.hops, redecompose.rejected) == ((("one",),), (), ())
    assert not any(hop.cost.lm_calls for start in solver.started[1:] for hop in start.hops)
    # The hop costs one call and the rest two; composing again takes the rest alone.
    assert result.cost.lm_calls == 3 + 2 + 3 + 3 + 3


def test_a_calculation_has_no_passages_to_replace() -> None:
    with dspy.context(lm=scripted_lm([])):
        result = Dr3(Recorder("calculator"), Judge(), recompose=False)(question=QUESTION)
    assert [stage for stage, _, _ in stages(result)] == ["solve", "redecompose"]


@pytest.mark.parametrize("given", [None, dspy.Predict("question -> answer"), "react-plus", ReActPlus])
def test_what_is_no_solver_is_refused(given: Any) -> None:
    with pytest.raises(InputError, match="solver"):
        Dr3(given)


def test_what_is_no_discriminator_is_refused() -> None:
    with pytest.raises(InputError, match="discriminator"):
        Dr3(ReActPlus(Ranking()), lambda question, answer: True)  # type: ignore[arg-type]


# --- resuming ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hops", [0, 1, 2])
def test_resuming_a_prefix_gives_the_rest(hops: int) -> None:
    def says(label: str, text: str) -> str:
        return "1871" if label == "Answer:" else ""

    whole, _, _ = dr3(says)
    program = Dr3(ReActPlus(Ranking(), k=1), Judge(**{"1871": 0.9}))
    with dspy.context(lm=scripted_lm(script(says))):
        prefix = Trajectory.from_dict(whole.trajectory.prefix(hops).to_dict())
        rest = program(question=QUESTION, trajectory=prefix)
        again = program(question=QUESTION, trajectory=whole.trajectory)
    assert timeless(rest.trajectory) == timeless(whole.trajectory)
    assert again.trajectory == whole.trajectory
    assert (again.verdict, again.probability) == ("on_topic", 0.9)


def test_what_was_given_up_stays_in_the_record_of_a_resumed_run() -> None:
    whole, _, _ = dr3(reading("When rank 2"), resolve_depth=2)
    program = Dr3(ReActPlus(Ranking(), k=1), Judge(**{"1871": 0.9}))
    with dspy.context(lm=scripted_lm(script(reading("When rank 2")))):
        rest = program(question=QUESTION, trajectory=whole.trajectory.prefix(2))
    assert rest.answer == "1871"
    assert [record["answer"] for record in rest.trajectory.revisions] == ["Paris", "Paris", "1871"]
    assert kept(rest)["stage"] == "solve"


# --- DSPy -------------------------------------------------------------------------------------------------------------


def traced(says: Says, judge: dspy.Module, **settings: Any) -> tuple[Dr3, list[tuple[Any, dict[str, Any], Any]]]:
    program = Dr3(ReActPlus(Ranking(), k=1), judge, **settings)
    with dspy.context(lm=scripted_lm(script(says)), trace=[]):
        program(question=QUESTION)
        return program, list(dspy.settings.trace)


def test_the_trace_has_the_accepted_path_alone() -> None:
    program, trace = traced(nothing, Judge(Paris=0.9))
    solver: Any = program.solver
    hop = [solver.next_task, solver.read]
    assert [entry[0] for entry in trace] == [solver.plan, *hop, *hop, solver.next_task, solver.compose]
    program, trace = traced(reading("When rank 3"), Judge(**{"1871": 0.9}), resolve_depth=3)
    solver = program.solver
    assert [entry[0] for entry in trace] == [solver.read, solver.next_task, solver.compose]
    assert "When rank 3" in trace[0][1]["trajectory"]
    program, trace = traced(hinted, Judge(**{"1871": 0.9}))
    assert [entry[2].answer for entry in trace] == ["1871"]
    # The best answer's path, if none passes.
    _, trace = traced(hinted, Judge(**{"1871": 0.4}), resolve_depth=2)
    assert [entry[2].answer for entry in trace] == ["1871"]


def test_judgements_stay_out_of_the_trace() -> None:
    says = {"Kinds:": " a year", "Fits:": " yes"}
    lm = scripted_lm(
        lambda prompt: says.get(prompt.rsplit("\n", 1)[-1].removeprefix("assistant: ")) or script(nothing)(prompt)
    )
    program = Dr3(ReActPlus(Ranking(), k=1))
    with dspy.context(lm=lm, trace=[]):
        program(question=QUESTION)
        used = {id(entry[0]) for entry in dspy.settings.trace}
    assert used
    assert not used & {id(predictor) for predictor in program.discriminator.predictors()}


def test_bootstrapping_yields_demos_from_accepted_steps_only() -> None:
    program = Dr3(ReActPlus(Ranking(), k=1), Judge(**{"1871": 0.9}), resolve_depth=3)
    train = [dspy.Example(question=QUESTION, answer="1871").with_inputs("question")]
    teleprompter = dspy.BootstrapFewShot(
        lambda gold, prediction, trace=None: prediction.answer == gold.answer,
        max_bootstrapped_demos=1,
        max_labeled_demos=0,
    )
    with dspy.context(lm=scripted_lm(script(reading("When rank 3")))):
        compiled = teleprompter.compile(program, trainset=train)
    demos = {name: predictor.demos for name, predictor in compiled.named_predictors()}
    assert [demo.answer for demo in demos["solver.compose"]] == ["1871"]
    assert [demo.conclusion for demo in demos["solver.read"]] == ["1871"]
    assert demos["solver.plan"] == []


def test_an_adopted_solver_is_no_longer_frozen() -> None:
    solver, judge = ReActPlus(Ranking()), Discriminator()
    solver._compiled = judge._compiled = True
    program = Dr3(solver, judge)
    names = [name for name, _ in program.named_predictors()]
    assert {"solver.plan", "solver.compose", "discriminator.judge"} <= set(names)


def test_settings_reach_the_modules_inside() -> None:
    program = Dr3(ActiveQA(Ranking(), k=2, passage_words=40), tau=-0.5, threshold=0.2, resolve_depth=4)
    solver, judge = program.solver.settings, program.discriminator.settings
    assert (program.settings.values.k, program.settings.values.passage_words) == (2, 40)
    assert (solver.values.tau, judge.values.threshold, program.settings.values.resolve_depth) == (-0.5, 0.2, 4)
    program.settings.update(k=5)
    assert (solver.values.k, program.settings.values.k) == (5, 5)
    with pytest.raises(InputError, match="threshold"):
        program.settings.update(tau=-0.1, threshold=7)
    assert solver.values.tau == -0.5
    with pytest.raises(InputError, match="unknown"):
        program.settings.update(unknown=1)
    copied = program.deepcopy()
    copied.settings.update(tau=-0.9)
    assert (copied.solver.settings.values.tau, solver.values.tau) == (-0.9, -0.5)


def test_state_survives_json_and_copies(tmp_path: Path) -> None:
    program = Dr3(ReActPlus(Ranking(), k=1), threshold=0.2, resolve_depth=4, max_hops=2)
    program.solver.compose.demos = [dspy.Example(question="Why?", trajectory="", answer="XYZZY")]  # type: ignore[attr-defined]
    program.save(tmp_path / "program.json")
    fresh = Dr3(ReActPlus(Ranking(), k=1))
    fresh.load(tmp_path / "program.json")
    for other in (fresh, program.deepcopy(), copy.deepcopy(program)):
        assert other.settings.values == program.settings.values
        assert other.solver.settings.values == program.solver.settings.values
        assert other.discriminator.settings.values.threshold == 0.2
        assert other.solver.compose.demos[0]["answer"] == "XYZZY"
    assert program.deepcopy().retriever is program.retriever


def test_both_drivers_give_the_same_also_nested() -> None:
    class Nested(dspy.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Dr3(ReActPlus(Ranking(), k=1), Judge(**{"1871": 0.9}), resolve_depth=3)

        def forward(self, question: str) -> dspy.Prediction:
            return self.inner(question=question)

        async def aforward(self, question: str) -> dspy.Prediction:
            return await self.inner.acall(question=question)

    program, says = Nested(), reading("Who rank 3")
    with dspy.context(lm=scripted_lm(script(says)), trace=[]):
        expected = program(question=QUESTION)
        traced = len(dspy.settings.trace)
    with dspy.context(lm=scripted_lm(script(says)), trace=[]):
        result = asyncio.run(program.acall(question=QUESTION))
        assert len(dspy.settings.trace) == traced
    assert timeless(result.trajectory) == timeless(expected.trajectory)
    assert (result.answer, result.verdict) == ("1871", "on_topic")


def test_a_trajectory_with_its_revisions_survives_json() -> None:
    result, _, _ = dr3(nothing, Judge(), resolve_depth=3)
    record = json.loads(json.dumps(result.trajectory.to_dict(), allow_nan=False))
    assert Trajectory.from_dict(record) == result.trajectory
