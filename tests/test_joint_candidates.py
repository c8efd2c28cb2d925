"""Candidates for prompts: each of DSPy's proposers is asked, and what it finds reaches the prompt."""

from __future__ import annotations

import json
from typing import Any

import dspy
import pytest
from joint_worlds import TRAIN, Around, lm_of, optimizer, says, search

from hopgate.core import InputError
from hopgate.evaluation import ExactMatch
from hopgate.lms.testing import scripted_lm
from hopgate.optimizers.candidates import DemoSet, InstructionSet, bootstrap, demo_kinds, propose_instructions
from hopgate.programs import RAG, ActiveQA, Direct, Escalation

EXAMPLES = [question.to_example() for question in TRAIN[:4]]


class Writer:
    """Writes a new instruction at each call."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, prompt: str) -> Any:
        self.calls += 1
        fields = (
            "proposed_instruction",
            "proposed_prefix_for_output_field",
            "observations",
            "summary",
        )
        named = [*fields, "program_description", "module_description"]
        text = f"Answer well, number {self.calls}."
        if "new_instruction" in prompt:  # GEPA reads JSON
            return json.dumps({"new_instruction": text})
        return "".join(f"[[ ## {name} ## ]]\n{text}\n" for name in named)


@pytest.mark.parametrize("how", ["mipro", "copro", "gepa"])
def test_instructions_of_each_proposer_are_new_and_reach_the_prompt(how: Any) -> None:
    def obeys(prompt: str) -> Any:
        number = prompt.rsplit("number ", 1)[-1].split("?")[0]
        return f"Bert-{number}" if "Answer well" in prompt else "Nobody"

    program, lm = Direct(), scripted_lm(obeys)
    own = program.respond.signature.instructions
    # GEPA runs the program, whose adapter is ours; the others ask for several fields.
    adapter = dspy.settings.adapter if how == "gepa" else dspy.ChatAdapter()
    with dspy.context(lm=lm, adapter=adapter):
        found = propose_instructions(
            how, program, EXAMPLES, ExactMatch(), count=2, seed=0, prompt_model=scripted_lm(Writer())
        )
    assert found
    texts = [one.instructions["respond"] for one in found]
    assert len(set(texts)) == len(texts)
    assert own not in texts
    assert program.respond.signature.instructions == own
    found[0].apply(program)
    with dspy.context(lm=lm):
        assert program(question=TRAIN[0].question).answer == "Bert-0"


def test_an_unknown_proposer_and_a_metric_that_gepa_cannot_use_are_refused() -> None:
    with dspy.context(lm=lm_of()):
        with pytest.raises(InputError, match="`instructions` is one of"):
            propose_instructions("me", Direct(), EXAMPLES, ExactMatch(), count=1, seed=0)  # type: ignore[arg-type]
        with pytest.raises(InputError, match="GEPA cannot use the metric"):
            propose_instructions("gepa", Direct(), EXAMPLES, lambda gold, pred: True, count=1, seed=0)
    with dspy.context(lm=None), pytest.raises(InputError, match="no LM to write"):
        propose_instructions("mipro", Direct(), EXAMPLES, ExactMatch(), count=1, seed=0)


@pytest.mark.parametrize("make", [ActiveQA, Escalation])
def test_whole_trajectories_reach_every_step(make: Any) -> None:
    program = make(search, k=2)
    with dspy.context(lm=lm_of()):
        found = bootstrap(program, EXAMPLES, ExactMatch(), kind="trajectories", seed=0, most=2)
    assert found.examples is not None
    assert len(found.examples) == 2
    assert program.settings.values.examples is None
    found.apply(program)
    lm = lm_of()
    with dspy.context(lm=lm):
        program(question=TRAIN[9].question)
    steps = [prompt for prompt in lm.engine.prompts if "Task" in prompt.rsplit("Question: ", 1)[-1]]
    assert steps
    assert all(example["question"] in prompt for prompt in steps for example in found.examples)


def test_demos_of_predictors_are_those_that_dspy_makes() -> None:
    program = RAG(search, k=2)

    def script(prompt: str) -> Any:
        number = prompt.rsplit("number ", 1)[-1].split("?")[0]
        return f"Bert-{number}"

    with dspy.context(lm=scripted_lm(script)):
        found = bootstrap(program, EXAMPLES, ExactMatch(), kind="predictors", seed=0, most=2)
    assert [demo["answer"] for demo in found.demos["respond"]]
    found.apply(program)
    assert len(program.respond.demos) == 2


def test_nothing_accepted_is_an_empty_set() -> None:
    with dspy.context(lm=lm_of()):
        found = bootstrap(ActiveQA(search), EXAMPLES, lambda *_: False, kind="trajectories", seed=0)
    assert found == DemoSet()


def test_kinds_that_a_program_cannot_show_are_refused() -> None:
    assert demo_kinds(ActiveQA(search), None) == ("trajectories",)
    assert demo_kinds(ActiveQA(search), "both") == ("trajectories", "predictors")
    assert demo_kinds(Around(ActiveQA(search)), None) == ("predictors",)
    with pytest.raises(InputError, match="does not show whole trajectories"):
        demo_kinds(Around(ActiveQA(search)), "trajectories")


def test_sets_name_their_predictors_and_leave_others_alone() -> None:
    program = ActiveQA(search)
    before = program.read.signature.instructions
    InstructionSet({"compose": "Say it.", "nobody": "x"}).apply(program)
    DemoSet({"compose": [{"question": "a", "trajectory": "", "answer": "b"}]}).apply(program)
    assert program.compose.signature.instructions == "Say it."
    assert program.read.signature.instructions == before
    assert len(program.compose.demos) == 1
    assert program.read.demos == []


def test_instructions_take_part_in_the_study() -> None:
    by = optimizer(space={}, instructions="mipro", instruction_sets=1, trials=2, prompt_model=scripted_lm(Writer()))
    with dspy.context(lm=scripted_lm(lambda prompt: says(prompt) if "number" in prompt else "none")):
        by.compile(ActiveQA(search, k=2, max_hops=2), trainset=TRAIN)
    assert by.result is not None
    assert [one.parameters["instructions"] for one in by.result.candidates] == [0, 1]
