"""Escalation with a scripted LM: each step, each decision, what each call sees, and how much is spent."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import dspy
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hopgate.core import ConfidenceError, InputError, Passage
from hopgate.lms.testing import Reply, scripted_lm
from hopgate.programs import RAG, ActiveQA, ConstantGate, Cost, Direct, Draft, Escalation, RandomGate, Trajectory

QUESTION = "When was the designer of the Osk Tower born?"
SURE, UNSURE = -0.01, -3.0

Spoken = Reply | str


@dataclass
class World:
    """What the LM says; unsure of everything, until it reads for a hop."""

    memory: Spoken = field(default_factory=lambda: Reply("1902", UNSURE))
    grounded: Spoken = field(default_factory=lambda: Reply("1911", UNSURE))
    tasks: list[Spoken] = field(default_factory=lambda: ["Who designed the Osk Tower?", "When was Mira Dol born?"])
    drafts: list[Spoken] = field(default_factory=lambda: [Reply("Ann Ort", UNSURE), Reply("1902", UNSURE)])
    reads: list[Spoken] = field(default_factory=lambda: ["Mira Dol", "1871"])
    plan: Spoken = "Who designed the Osk Tower? | When was #1 born?"
    answers: list[Spoken] = field(default_factory=lambda: ["in 1871"])

    def __call__(self, prompt: str) -> Spoken:
        kind, number = step_of(prompt)
        if kind in ("memory", "grounded", "plan"):
            return getattr(self, kind)
        if kind == "compose":
            return self.answers[min(number, len(self.answers)) - 1]
        if kind == "next":
            return self.tasks[number - 1] if number <= len(self.tasks) else "none"
        return {"draft": self.drafts, "read": self.reads}[kind][number - 1]


def step_of(prompt: str) -> tuple[str, int]:
    """Which step a prompt belongs to, and its hop."""
    body = prompt.split("\nassistant: ")[-1]
    name, _, number = body.rsplit("\n", 1)[-1].rstrip(":").partition(" ")
    if name == "Answer" and "Passages:" in prompt:
        return "grounded", 0
    if name == "Answer" and "Example:" not in prompt:
        return "memory", 0
    if name == "Answer":
        return "compose", max(body.count("\nConclusion"), 1)
    if name == "Plan":
        return "plan", 0
    if name == "Task":
        return "next", int(number)
    return ("read" if "Found:" in body else "draft"), int(number)


def steps(lm: dspy.LM) -> list[str]:
    return [step_of(prompt)[0] for prompt in lm.engine.prompts]


def run(
    index: Any,
    world: Callable[[str], Spoken],
    trajectory: Trajectory | None = None,
    *,
    program: Callable[..., Any] = Escalation,
    **given: Any,
) -> tuple[Trajectory, dspy.LM]:
    lm = scripted_lm(world)
    with dspy.context(lm=lm):
        return program(index, **given)(question=QUESTION, trajectory=trajectory).trajectory, lm


def timeless(value: Any) -> Any:
    if isinstance(value, Trajectory):
        return timeless(value.to_dict())
    if isinstance(value, dict):
        return {key: timeless(item) for key, item in value.items() if key != "seconds"}
    return [timeless(item) for item in value] if isinstance(value, list | tuple) else value


def decided(trajectory: Trajectory) -> list[tuple[str, int, str, bool]]:
    return [(made.step, made.hop, made.text, made.kept) for made in trajectory.decisions]


SURE_MEMORY = {"memory": Reply("1871", SURE)}
SURE_READING = {"grounded": Reply("1871", SURE)}


# --- how far it goes --------------------------------------------------------------------------------------------------


def test_a_sure_answer_from_memory_is_all(index: Any) -> None:
    told, lm = run(index, World(**SURE_MEMORY))
    assert steps(lm) == ["memory"]
    assert (told.answer, told.stop_reason, told.passages) == ("1871", "confident", ())
    assert told.answer_confidence and told.answer_confidence.mean == pytest.approx(SURE)
    (hop,) = told.hops
    assert (hop.whole, hop.sub_question, hop.source, hop.draft, hop.answer) == (
        True,
        QUESTION,
        "memory",
        "1871",
        "1871",
    )
    assert decided(told) == [("memory", 0, "1871", True)]
    assert (told.cost.lm_calls, told.cost.retrievals, index.queries) == (1, 0, [])


def test_a_sure_answer_from_the_questions_own_passages_ends_it(index: Any) -> None:
    told, lm = run(index, World(**SURE_READING))
    assert steps(lm) == ["memory", "grounded"]
    assert (told.answer, told.stop_reason) == ("1871", "confident")
    (hop,) = told.hops
    assert (hop.source, hop.draft, hop.answer, hop.query) == ("search", "1902", "1871", QUESTION)
    assert told.passages == hop.passages
    assert len(hop.passages) == 3
    assert decided(told) == [("memory", 0, "1902", False), ("grounded", 0, "1871", True)]
    assert (told.cost.lm_calls, told.cost.retrievals, told.cost.passages_read) == (2, 1, 3)


def test_otherwise_it_decomposes(index: Any) -> None:
    told, lm = run(index, World())
    hop = ["next", "draft", "read"]
    assert steps(lm) == ["memory", "grounded", *hop, *hop, "next", "compose"]
    assert [made.sub_question for made in told.tasks] == ["Who designed the Osk Tower?", "When was Mira Dol born?"]
    assert (told.answer, told.stop_reason) == ("in 1871", "finished")
    assert [made.whole for made in told.hops] == [True, False, False]
    assert (told.cost.lm_calls, told.cost.retrievals) == (10, 3)
    assert decided(told)[2:] == [("hop", 1, "Ann Ort", False), ("hop", 2, "1902", False)]


def test_each_step_may_be_left_out(index: Any) -> None:
    assert steps(run(index, World(**SURE_READING), memory=False)[1]) == ["grounded"]
    told, lm = run(index, World(), grounded=False)
    assert steps(lm)[:2] == ["memory", "next"]
    assert told.cost.retrievals == 2
    assert (told.hops[0].draft, told.hops[0].answer, told.hops[0].query) == ("1902", "", None)


@pytest.mark.parametrize("changes", [{}, {"decomposer": "plan"}, {"fused_hop": True}, {"check_each_hop": True}])
def test_without_the_first_two_steps_it_is_active_qa(index: Any, changes: dict[str, Any]) -> None:
    world = World(drafts=[Reply("Mira Dol", SURE), Reply("1902", UNSURE)])
    expected, first = run(index, world, program=ActiveQA, **changes)
    told, second = run(index, world, memory=False, grounded=False, **changes)
    assert timeless(told) == timeless(expected)
    assert first.engine.prompts == second.engine.prompts


def test_its_first_steps_are_the_calls_of_direct_and_of_standard_rag(index: Any) -> None:
    for examples in ([], None):
        _, direct = run(None, World(), program=lambda _, **given: Direct(**given), examples=examples)
        _, rag = run(index, World(), program=RAG, examples=examples)
        _, lm = run(index, World(**SURE_READING), examples=examples)
        assert lm.engine.prompts == [*direct.engine.prompts, *rag.engine.prompts]


@pytest.fixture
def own_cache() -> Any:
    before = dspy.cache
    dspy.configure_cache(enable_disk_cache=False, enable_memory_cache=True)
    yield
    dspy.cache = before


def test_a_cache_answers_them_for_both(index: Any, own_cache: None) -> None:
    lm = scripted_lm(World(**SURE_READING), cache=True)
    with dspy.context(lm=lm):
        Direct()(question=QUESTION)
        RAG(index)(question=QUESTION)
        told = Escalation(index)(question=QUESTION).trajectory
    assert len(lm.engine.prompts) == 2
    assert (told.cost.lm_calls, told.cost.cached_calls) == (2, 2)


@pytest.mark.parametrize(("escalate", "calls"), [("always", 9), ("never", 2), ("threshold", 10)])
def test_going_on_may_be_settled_beforehand(index: Any, escalate: str, calls: int) -> None:
    told, lm = run(index, World(), escalate=escalate)
    assert len(lm.engine.prompts) == calls
    assert ("grounded" in steps(lm)) is (escalate != "always")
    assert told.answer == ("1911" if escalate == "never" else "in 1871")
    assert told.hops[0].passages


def test_never_going_on_is_standard_rag_even_where_nothing_can_be_read(index: Any) -> None:
    told, lm = run(index, World(grounded=""), memory=False, escalate="never")
    assert (told.answer, steps(lm), told.tasks) == ("", ["grounded"], ())


def test_going_on_at_random(index: Any) -> None:
    for rate, going in ((0.0, False), (1.0, True)):
        told, _ = run(index, World(), escalate="random", escalation_rate=rate)
        assert bool(told.tasks) is going
    gone = {seed: bool(run(index, World(), escalate="random", seed=seed)[0].tasks) for seed in range(12)}
    assert set(gone.values()) == {True, False}
    assert gone == {seed: bool(run(index, World(), escalate="random", seed=seed)[0].tasks) for seed in range(12)}


# --- gates of one's own -----------------------------------------------------------------------------------------------


class Watch:
    needs_draft = True
    needs_confidence = False

    def __init__(self, keep: str = "") -> None:
        self.keep = keep
        self.seen: list[tuple[str, str, str]] = []

    def keeps(self, draft: Draft) -> bool:
        self.seen.append((draft.step, draft.sub_question, draft.text))
        return draft.step == self.keep


@pytest.mark.parametrize(
    ("keep", "seen"), [("memory", 1), ("grounded", 2), ("hop", 6), ("final", 4), ("", 6)], ids=lambda value: str(value)
)
def test_one_interface_decides_everything(index: Any, keep: str, seen: int) -> None:
    gate = Watch(keep)
    gates = dict.fromkeys(("memory", "grounded", "hop", "final"), gate)
    told, _ = run(index, World(), gates=gates, check_each_hop=True)
    all_of_them = [
        ("memory", QUESTION, "1902"),
        ("grounded", QUESTION, "1911"),
        ("hop", "Who designed the Osk Tower?", "Ann Ort"),
        ("final", QUESTION, "in 1871"),
        ("hop", "When was Mira Dol born?", "1902"),
        ("final", QUESTION, "in 1871"),
    ]
    assert gate.seen == all_of_them[:seen]
    assert [(made.step, made.text) for made in told.decisions] == [(step, text) for step, _, text in gate.seen]


def test_a_gate_that_needs_no_draft_spares_the_call(index: Any) -> None:
    on = ConstantGate(search=True)
    told, lm = run(index, World(), gates={"memory": on, "grounded": on, "hop": on, "final": on}, check_each_hop=True)
    assert steps(lm) == ["next", "read", "next", "read", "next", "compose"]
    assert told.decisions == ()
    assert told.cost.retrievals == 3


def test_random_escalation_of_standard_rag(index: Any) -> None:
    told, lm = run(index, World(), memory=False, gates={"grounded": RandomGate(0.0)})
    assert (steps(lm), told.answer) == (["grounded"], "1911")


def test_gates_are_checked(index: Any) -> None:
    for wrong in ({"first": Watch()}, {"hop": 5}, {"grounded": "threshold"}, {"final": Watch}):
        with pytest.raises(InputError, match="gate"):
            Escalation(index, gates=wrong)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="same"):
        Escalation(index, gate="always", gates={"hop": Watch()})


# --- what the steps see -----------------------------------------------------------------------------------------------


def test_the_whole_question_is_no_task_of_the_transcript(index: Any) -> None:
    _, lm = run(index, World())
    shown = [prompt.split("\nassistant: ")[-1] for prompt in lm.engine.prompts[2:]]
    assert not any("1911" in text or f": {QUESTION}" in text for text in shown)
    assert shown[0] == "Task 1:"
    assert shown[2].startswith("Task 1: Who designed")


def test_the_last_reading_has_the_best_of_each_hop_and_the_best_two_of_the_question(index: Any) -> None:
    found = {
        QUESTION: [Passage("q1", "Q", "one"), Passage("q2", "Q", "two"), Passage("q3", "Q", "three")],
        "Who designed the Osk Tower?": [Passage("a1", "A", "one"), Passage("q1", "Q", "one")],
        "When was Mira Dol born?": [Passage("b1", "B", "one"), Passage("b2", "B", "two")],
    }

    def search(query: str, k: int) -> list[Passage]:
        return next(passages for asked, passages in found.items() if query.startswith(asked))[:k]

    read = {}
    for limit in (4, 7):
        told, lm = run(search, World(), final_passages=limit)
        read[limit] = [passage.id for passage in told.passages]
        assert lm.engine.prompts[-1].split("assistant: ")[-1].count("Found:") == len(told.passages)
    assert read == {4: ["a1", "b1", "q1", "q2"], 7: ["a1", "b1", "q1", "q2", "b2", "q3"]}


def test_a_hop_may_be_read_from_the_questions_own_passages(index: Any) -> None:
    told, lm = run(index, World(reads=[Reply("Mira Dol", SURE), Reply("1871", SURE)]), reread=True)
    assert [hop.source for hop in told.tasks] == ["already_read"] * 2
    assert told.cost.retrievals == 1
    body = lm.engine.prompts[4].split("\nassistant: ")[-1]
    assert body.startswith("Found: Osk Tower |")
    assert body.endswith("Task 1: Who designed the Osk Tower?\nConclusion 1:")


def test_a_question_that_is_copied_leads_to_a_plan(index: Any) -> None:
    for copied in (QUESTION, "none", ""):
        told, lm = run(index, World(tasks=[copied]))
        assert steps(lm)[2:5] == ["next", "plan", "draft"]
        assert [hop.sub_question for hop in told.tasks] == ["Who designed the Osk Tower?", "When was Mira Dol born?"]
        stuck, lm = run(index, World(tasks=[copied], plan=QUESTION))
        assert (stuck.tasks, stuck.stop_reason) == ((), "no_plan")
        assert steps(lm)[2:] == ["next", "plan", "compose"]
        assert stuck.passages == stuck.hops[0].passages


# --- after each hop ---------------------------------------------------------------------------------------------------


def test_an_answer_that_is_sure_after_a_hop_is_the_last(index: Any) -> None:
    world = World(answers=[Reply("1871", SURE)])
    told, lm = run(index, world, check_each_hop=True)
    assert steps(lm)[2:] == ["next", "draft", "read", "compose"]
    assert (told.answer, told.stop_reason, len(told.tasks)) == ("1871", "confident", 1)
    assert decided(told)[-1] == ("final", 1, "1871", True)
    assert [passage.id for passage in told.passages]


def test_the_last_check_is_not_made_twice(index: Any) -> None:
    world = World(answers=[Reply("1900", UNSURE), Reply("1871", UNSURE)])
    told, lm = run(index, world, check_each_hop=True)
    assert steps(lm).count("compose") == 2
    assert steps(lm)[-1] == "next"
    assert (told.answer, told.stop_reason) == ("1871", "finished")
    assert told.answer_confidence and told.answer_confidence.mean == pytest.approx(UNSURE)
    limited, lm = run(index, world, check_each_hop=True, max_hops=1)
    assert (limited.answer, limited.stop_reason, steps(lm).count("compose")) == ("1900", "max_hops", 1)


def test_an_empty_check_is_made_again_at_the_end(index: Any) -> None:
    told, lm = run(index, World(answers=[""]), check_each_hop=True)
    assert steps(lm).count("compose") == 3
    assert told.answer == "1911"  # the grounded answer


# --- which answer -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("last", "prefer", "answer"),
    [
        (Reply("1871", UNSURE), "last", "1871"),
        (Reply("1871", UNSURE), "confident", "1911"),
        (Reply("1871", SURE), "confident", "1871"),
        (Reply("1871", None), "confident", "1871"),
        # What was read for the whole question goes before what a sub-question came to.
        ("", "confident", "1911"),
        ("", "last", "1911"),
    ],
)
def test_the_surer_answer_may_be_preferred(index: Any, last: Reply, prefer: str, answer: str) -> None:
    told, lm = run(index, World(grounded=Reply("1911", -1.0), answers=[last]), prefer=prefer)
    assert told.answer == answer
    assert steps(lm)[-1] == "compose"
    if answer == "1911":
        assert told.passages == told.hops[0].passages
        assert told.answer_confidence == told.hops[0].answer_confidence


def test_no_rejected_answer_is_preferred_or_kept(index: Any) -> None:
    rejected = Trajectory(QUESTION, rejected=("1911",))
    told, lm = run(index, World(grounded=Reply("1911", SURE), answers=[Reply("1871", UNSURE)]), rejected)
    assert "compose" in steps(lm)
    assert told.answer == "1871"
    told, _ = run(
        index, World(grounded=Reply("1911", -1.0), answers=[Reply("1871", UNSURE)]), rejected, prefer="confident"
    )
    assert told.answer == "1871"
    told, lm = run(index, World(memory=Reply("1911", SURE), **SURE_READING), rejected)
    assert (steps(lm), told.answer) == (["memory", "grounded"], "1871")


# --- resuming ---------------------------------------------------------------------------------------------------------

WORLDS: dict[str, tuple[World, dict[str, Any]]] = {
    "memory": (World(**SURE_MEMORY), {}),
    "grounded": (World(**SURE_READING), {}),
    "hops": (World(), {}),
    "kept drafts": (World(drafts=[Reply("Mira Dol", SURE), Reply("1871", SURE)]), {}),
    "no memory": (World(), {"memory": False}),
    "not grounded": (World(), {"grounded": False}),
    "empty": (World(memory="", grounded=""), {}),
    "always": (World(), {"escalate": "always"}),
    "random": (World(), {"escalate": "random", "escalation_rate": 1.0}),
    "checked": (World(answers=[Reply("x", UNSURE), Reply("1871", UNSURE)]), {"check_each_hop": True}),
    "sure check": (World(answers=[Reply("x", UNSURE), Reply("1871", SURE)]), {"check_each_hop": True}),
    "preferred": (World(grounded=Reply("1911", -1.0), answers=[Reply("1871", UNSURE)]), {"prefer": "confident"}),
    "copied": (World(tasks=[QUESTION]), {}),
    "plan": (World(), {"decomposer": "plan"}),
    "fused": (World(), {"fused_hop": True}),
    "never": (World(), {"escalate": "never"}),
}


@pytest.mark.parametrize("name", WORLDS)
def test_resuming_any_prefix_gives_the_rest(index: Any, name: str) -> None:
    world, changes = WORLDS[name]
    whole, first = run(index, world, **changes)
    for hops in range(len(whole.hops) + 1):
        prefix = Trajectory.from_dict(json.loads(json.dumps(whole.prefix(hops).to_dict(), allow_nan=False)))
        again, lm = run(index, world, prefix, **changes)
        assert timeless(again) == timeless(whole)
        assert len(lm.engine.prompts) < len(first.engine.prompts) or hops == 0
    finished, lm = run(index, world, whole, **changes)
    assert finished == whole
    assert lm.engine.prompts == []


@pytest.mark.parametrize("name", WORLDS)
def test_composing_again_is_all_that_a_stopped_trajectory_needs(index: Any, name: str) -> None:
    world, changes = WORLDS[name]
    whole, _ = run(index, world, **changes)
    stopped = replace(whole, answer=None, passages=(), rejected=(whole.answer or "",), other_cost=Cost())
    again, lm = run(index, World(answers=[Reply("no, 1999", UNSURE)]), stopped, **changes)
    if name != "preferred":  # The last answer was not the one that was rejected there.
        assert again.answer == "no, 1999"
        assert f"Hint: the answer is not {whole.answer}." in lm.engine.prompts[-1]
    assert set(steps(lm)) == {"compose"}
    assert again.hops == whole.hops


def test_the_questions_own_passages_may_be_replaced(index: Any) -> None:
    whole, _ = run(index, World(**SURE_READING))
    other = (Passage("9", "Other", "Something else."),)
    given = replace(whole.prefix(0), open=replace(whole.hops[0], passages=other, answer=""))
    told, lm = run(index, World(), given)
    assert steps(lm)[:2] == ["grounded", "next"]
    assert "Something else." in lm.engine.prompts[0]
    assert (told.hops[0].passages, told.hops[0].answer, told.open) == (other, "1911", None)
    told, lm = run(index, World(**SURE_READING), given)
    assert (steps(lm), told.answer) == (["grounded"], "1871")


def test_a_hops_passages_may_be_replaced(index: Any) -> None:
    whole, _ = run(index, World())
    other = (Passage("9", "Other", "Something else."),)
    given = replace(whole.prefix(1), open=replace(whole.hops[1], passages=other, answer=""))
    told, lm = run(index, World(), given)
    assert steps(lm)[:2] == ["read", "next"]
    assert told.hops[1].passages == other
    assert told.hops[0] == whole.hops[0]


def test_another_plan_keeps_the_questions_own_passages(index: Any) -> None:
    whole, _ = run(index, World())
    failed = tuple(hop.sub_question for hop in whole.tasks)
    plan = "Where is the Osk Tower? | Who built it in #1?"
    told, lm = run(index, World(plan=plan), replace(whole.prefix(1), failed_plans=(failed,)))
    assert steps(lm)[:3] == ["next", "plan", "draft"]
    assert [hop.sub_question for hop in told.tasks] == ["Where is the Osk Tower?", "Who built it in Mira Dol?"]


@pytest.mark.parametrize(("place", "hops"), [("memory", 0), ("grounded", 1), ("next", 1), ("compose", 3)])
def test_a_failure_carries_what_was_reached(index: Any, place: str, hops: int) -> None:
    def broken(prompt: str) -> Spoken:
        if step_of(prompt)[0] == place:
            raise LookupError("gone")
        return World()(prompt)

    with pytest.raises(Exception, match="gone") as caught:
        run(index, broken)
    reached = caught.value.trajectory  # type: ignore[attr-defined]
    assert len(reached.hops) == hops
    assert timeless(run(index, World(), reached)[0]) == timeless(run(index, World())[0])


def test_a_decision_is_taken_anew_on_what_was_recorded(index: Any) -> None:
    whole, _ = run(index, World(**SURE_READING))
    told, lm = run(index, World(), whole.prefix(1), tau_grounded=0.0)
    assert steps(lm)[0] == "next"
    assert decided(told)[:2] == [("memory", 0, "1902", False), ("grounded", 0, "1871", False)]
    memory, _ = run(index, World(**SURE_MEMORY))
    told, lm = run(index, World(**SURE_READING), memory.prefix(1), tau_memory=0.0)
    assert (steps(lm), told.answer, told.hops[0].source) == (["grounded"], "1871", "search")
    told, _ = run(index, World(), memory.prefix(1), tau_memory=0.0, grounded=False)
    assert (told.hops[0].answer, len(told.tasks)) == ("", 2)
    unsure, _ = run(index, World(), tau_memory=0.0)
    told, lm = run(index, World(), unsure.prefix(1), tau_memory=-9.0)
    assert (lm.engine.prompts, told.answer) == ([], "1902")


# --- more searches for higher thresholds ------------------------------------------------------------------------------

tau = st.floats(-4, 0)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.floats(-4, -0.001), min_size=8, max_size=8),
    st.sampled_from(["tau_memory", "tau_grounded", "tau", "tau_final"]),
    st.tuples(tau, tau),
    st.tuples(tau, tau, tau, tau),
)
def test_raising_a_threshold_never_means_less(
    index: Any, sure: list[float], name: str, two: tuple[float, float], others: tuple[float, ...]
) -> None:
    world = World(
        memory=Reply("1902", sure[0]),
        grounded=Reply("1911", sure[1]),
        drafts=[Reply("Mira Dol", sure[2]), Reply("1871", sure[3])],
        reads=[Reply("Mira Dol", sure[4]), Reply("1871", sure[5])],
        answers=[Reply("x", sure[6]), Reply("1871", sure[7])],
    )
    given = dict(zip(["tau_memory", "tau_grounded", "tau", "tau_final"], others, strict=True))
    spent = []
    for value in sorted(two):
        told, lm = run(index, world, check_each_hop=True, **{**given, name: value})
        spent.append((len(told.hops), len(lm.engine.prompts), told.cost.retrievals))
    assert all(less <= more for less, more in zip(*spent, strict=True))


# --- as a DSPy module -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", WORLDS)
def test_both_drivers_and_a_copy_give_the_same(index: Any, name: str) -> None:
    world, changes = WORLDS[name]
    program = Escalation(index, **changes)
    expected, _ = run(index, world, **changes)
    with dspy.context(lm=scripted_lm(world)):
        told = asyncio.run(program.acall(question=QUESTION)).trajectory
        copied = copy.deepcopy(program)(question=QUESTION).trajectory
    assert timeless(told) == timeless(copied) == timeless(expected)


def test_it_is_saved_and_loaded(index: Any, tmp_path: Path) -> None:
    program = Escalation(index, tau_grounded=-0.7, prefer="confident", gates={"memory": ConstantGate(search=True)})
    program.respond.signature = program.respond.signature.with_instructions("Mind the PLUGH.")
    program.save(tmp_path / "program.json")
    fresh = Escalation(index)
    fresh.load(tmp_path / "program.json")
    assert fresh.settings.values == program.settings.values
    lm = scripted_lm(World())
    with dspy.context(lm=lm):
        fresh(question=QUESTION)
    assert "PLUGH" in lm.engine.prompts[1]


@pytest.mark.parametrize(
    ("world", "learnt"),
    [
        (World(**SURE_MEMORY), ["1871"]),
        (World(**SURE_READING), ["1871"]),
        (World(), ["Who designed the Osk Tower?", "Mira Dol", "When was Mira Dol born?", "1871", "none", "in 1871"]),
    ],
)
def test_only_accepted_steps_join_the_trace(index: Any, world: World, learnt: list[str]) -> None:
    with dspy.context(trace=[]):
        run(index, world)
        assert [next(iter(outputs.values())) for _, _, outputs in dspy.settings.trace] == learnt


def test_a_preferred_reading_and_a_sure_check_join_the_trace(index: Any) -> None:
    with dspy.context(trace=[]):
        run(index, World(grounded=Reply("1911", -1.0), answers=[Reply("1871", UNSURE)]), prefer="confident")
        assert [dict(outputs) for _, _, outputs in dspy.settings.trace][-1] == {"answer": "1911"}
    with dspy.context(trace=[]):
        run(index, World(answers=[Reply("x", UNSURE), Reply("1871", UNSURE)]), check_each_hop=True)
        answers = [outputs["answer"] for _, _, outputs in dspy.settings.trace if "answer" in outputs]
        assert answers == ["1871"]


def test_without_logprobs_it_says_so_or_goes_on(index: Any) -> None:
    silent = World(memory=Reply("1902", None), drafts=[Reply("Ann Ort", None)] * 2, grounded=Reply("1911", None))
    with pytest.raises(ConfidenceError):
        run(index, silent)
    told, _ = run(index, silent, without_confidence="search")
    assert len(told.tasks) == 2


@pytest.mark.parametrize(
    "wrong", [{"tau_memory": 0.1}, {"tau_grounded": 1}, {"escalate": "often"}, {"escalation_rate": 2}, {"prefer": "x"}]
)
def test_settings_out_of_range(index: Any, wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(wrong))):
        Escalation(index, **wrong)
