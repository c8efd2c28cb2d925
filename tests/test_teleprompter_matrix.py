"""DSPy's own teleprompters on hopgate's programs: what was fitted stays as it was, compiled, saved and loaded.

A new teleprompter or program is one line of :data:`TELEPROMPTERS` or :data:`PROGRAMS`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import dspy
import pytest

from hopgate.evaluation import ExactMatch
from hopgate.lms.testing import Reply, scripted_lm
from hopgate.optimizers import CalibratedGate, Calibrator, PolicyGate, Weight
from hopgate.programs import ActiveQA, Dr3, Escalation, Solver

COUNT = 6
TRAIN = 4
"""Questions, and how many of them are trained on; which of them are answered from where follows from their number."""
MAGIC = "PLUGH"
"""What a proposed instruction says; together with demos the only thing that makes the LM answer odd questions."""


def question_of(number: int) -> str:
    return f"When was the designer of the Osk Tower number {number} born?"


def trainset() -> list[dspy.Example]:
    examples = [dspy.Example(question=question_of(n), answer=str(1870 + n)) for n in range(TRAIN)]
    return [example.with_inputs("question") for example in examples]


# --- the world --------------------------------------------------------------------------------------------------------


def answers(prompt: str) -> Reply:
    """What the LM says. How sure it is depends on the question and the step alone, so decisions must stay the same."""
    before, last = prompt.rsplit("\n", 1)
    asked = before[before.rindex("Question: ") :]
    number = int(re.findall(r"Tower number (\d+)", prompt)[-1])
    label = last.removeprefix("assistant: ").split()[0].rstrip(":")
    tasks = len(re.findall(r"^(?:assistant: )?Task \d+:", asked, re.MULTILINE))
    if label == "Task":
        return Reply(("Who designed the Osk Tower?", "When was Mira Dol born?", "none")[tasks])
    if label == "Conclusion":
        if "Found:" in asked.rsplit("\nTask", 1)[-1].rsplit("assistant: Task", 1)[-1]:
            return Reply(("Mira Dol", str(1870 + number))[tasks - 1])
        # -0.2 is kept by the threshold that hop drafts have by default, and not by the one that is set here.
        return Reply("Ann Ort", (-0.1, -0.2, -3.0)[(number + tasks) % 3])
    if label in ("Kinds", "Fits"):
        return Reply("yes" if label == "Fits" else "a year")
    assert label == "Answer", prompt
    taught = MAGIC in prompt or len(set(re.findall(r"Tower number (\d+)", prompt))) > 1
    text = str(1870 + number) if taught or number % 2 == 0 else "1066"
    if tasks:
        return Reply(text, (-3.0, -0.2, -0.01)[min(tasks, 2)])
    searched = "Passages:" in asked or "Passages:" in prompt.rsplit("Question: ", 2)[-2]
    return Reply(text, (-0.2, -0.01)[number % 2] if searched else (-0.02, -3.0)[number % 3 > 0])


def proposes(prompt: str) -> str:
    """What the prompt and reflection LMs say, in whatever form they are asked for it."""
    request = prompt[prompt.rindex("user: ") :]
    fields = re.findall(r"`(\w[\w ]*):`", request.rsplit("Reply with", 1)[-1])
    values = {name: proposed(name, prompt) for name in fields}
    if not fields:
        return json.dumps({"new_instruction": f"Mind the {MAGIC}."})
    return "\n".join(f"{name}: {value}" for name, value in values.items())


PREFIXES = {
    "Ask for the next": "Task at hand:", "Split": "Plan at hand:", "Conclude": "Conclusion at hand:",
    "expression": "Calculation at hand:", "answer": "Answer at hand:",
}  # fmt: skip
"""What COPRO is told to call the last output of a step, by words of its instruction."""


def proposed(name: str, prompt: str) -> str:
    asked = prompt[prompt.rindex("user: ") :].lower()
    if name == "Proposed Prefix For Output Field":
        return next((label for words, label in PREFIXES.items() if words.lower() in asked), "Fits at hand:")
    if name == "Module Advice":
        return json.dumps(dict.fromkeys(set(re.findall(r'"([\w.]+)"', prompt)), f"Mind the {MAGIC}."))
    return f"Mind the {MAGIC}."


# --- programs ---------------------------------------------------------------------------------------------------------


class Nested(dspy.Module):
    """A user's module around a program."""

    def __init__(self, solver: Solver) -> None:
        super().__init__()
        self.qa = solver

    def forward(self, question: str) -> dspy.Prediction:
        return self.qa(question=question)


CALIBRATOR = Calibrator("temperature", (), (0.5,), 40)


def calibrated(probability: float, step: str, *, blank: bool) -> CalibratedGate:
    return CalibratedGate() if blank else CalibratedGate(probability, {step: CALIBRATOR})


def policy(step: str, tau: float, *, blank: bool) -> PolicyGate:
    """A policy that is stricter with later hops; at the first it is a threshold."""
    weights = {f"mean_{step}": Weight(-10.0), f"at_{step}": Weight(10.0 * tau), "hop": Weight(0.2)}
    return PolicyGate() if blank else PolicyGate(weights, [step])


def active(index: Any, *, blank: bool = False) -> ActiveQA:
    """ActiveQA with thresholds of its own; if blank, with the defaults that a file is loaded into."""
    program = ActiveQA(index)
    if not blank:
        program.settings.update(tau=-0.15, tau_final=-0.02, check_each_hop=True, k=2)
    return program


def active_gated(index: Any, gate: Callable[..., Any], *, blank: bool = False) -> ActiveQA:
    """The same, hops decided by a gate that was fitted."""
    program = ActiveQA(index, gate=gate(blank=blank))
    if not blank:
        program.settings.update(k=2)
    return program


def escalation(index: Any, *, blank: bool = False) -> Escalation:
    """Escalation with all kinds of gates: a calibrated one, a policy, and thresholds."""
    gates = {"memory": calibrated(0.9, "memory", blank=blank), "grounded": policy("grounded", -0.1, blank=blank)}
    program = Escalation(index, gates=gates)
    if not blank:
        program.settings.update(tau=-0.15, k=2)
    return program


@dataclass(frozen=True)
class Case:
    make: Callable[..., dspy.Module]
    solver: str = ""
    """Where the program that decides is."""

    def decides(self, module: dspy.Module) -> ActiveQA:
        for name in filter(None, self.solver.split(".")):
            module = getattr(module, name)
        assert isinstance(module, ActiveQA)
        return module


PROGRAMS: dict[str, Case] = {
    "active": Case(active),
    "active-calibrated": Case(partial(active_gated, gate=partial(calibrated, 0.75, "hop"))),  # keeps above -.144
    "active-policy": Case(partial(active_gated, gate=partial(policy, "hop", -0.15))),
    "active-nested": Case(lambda index, **given: Nested(active(index, **given)), "qa"),
    "escalation": Case(escalation),
    "escalation-nested": Case(lambda index, **given: Nested(escalation(index, **given)), "qa"),
    "dr3-nested": Case(lambda index, **given: Nested(Dr3(escalation(index, **given))), "qa.solver"),
}


# --- teleprompters ----------------------------------------------------------------------------------------------------

METRIC = ExactMatch()
Compile = Callable[[dspy.Module, list[dspy.Example], dspy.LM], dspy.Module]


def random_search(student: dspy.Module, train: list[dspy.Example], prompter: dspy.LM) -> dspy.Module:
    search = dspy.BootstrapFewShotWithRandomSearch(
        METRIC, max_bootstrapped_demos=1, max_labeled_demos=1, num_candidate_programs=1, num_threads=1
    )
    return search.compile(student, trainset=train, restrict=[-3, -1])  # without demos, and with


def mipro(student: dspy.Module, train: list[dspy.Example], prompter: dspy.LM) -> dspy.Module:
    teleprompter = dspy.MIPROv2(
        METRIC, prompt_model=prompter, auto=None, num_candidates=2, num_threads=1,
        max_bootstrapped_demos=1, max_labeled_demos=1,
    )  # fmt: skip
    return teleprompter.compile(student, trainset=train, valset=train, num_trials=2, minibatch=False)


def gepa(student: dspy.Module, train: list[dspy.Example], prompter: dspy.LM) -> dspy.Module:
    # All at once: in turn, the steps that a program's settings leave out have their turns too.
    teleprompter = dspy.GEPA(
        METRIC, reflection_lm=prompter, max_metric_calls=20, reflection_minibatch_size=3, num_threads=1,
        use_merge=False, component_selector="all",
    )  # fmt: skip
    return teleprompter.compile(student, trainset=train, valset=train)


def sampled() -> dspy.LM:
    """An LM that answers better the second time it is asked the same, as a sample may: SIMBA learns from such pairs."""
    times: dict[str, int] = {}

    def reply(prompt: str) -> Reply:
        times[prompt] = times.get(prompt, 0) + 1
        return answers(f"{MAGIC} {prompt}" if times[prompt] == 2 else prompt)

    return scripted_lm(reply)


def simba(student: dspy.Module, train: list[dspy.Example], prompter: dspy.LM, max_demos: int = 0) -> dspy.Module:
    teleprompter = dspy.SIMBA(
        metric=METRIC, bsize=len(train), num_candidates=2, max_steps=1, max_demos=max_demos, prompt_model=prompter,
        num_threads=1,
    )  # fmt: skip
    with dspy.context(lm=sampled()):
        return teleprompter.compile(student, trainset=train)


def copro(student: dspy.Module, train: list[dspy.Example], prompter: dspy.LM) -> dspy.Module:
    teleprompter = dspy.COPRO(prompt_model=prompter, metric=METRIC, breadth=2, depth=1)
    return teleprompter.compile(student, trainset=train, eval_kwargs={"num_threads": 1, "display_progress": False})


TELEPROMPTERS: dict[str, Compile] = {
    "BootstrapFewShot": lambda student, train, _: dspy.BootstrapFewShot(
        METRIC, max_bootstrapped_demos=2, max_labeled_demos=1
    ).compile(student, trainset=train),
    "BootstrapFewShotWithRandomSearch": random_search,
    "MIPROv2": mipro,
    "GEPA": gepa,
    "SIMBA-rules": simba,
    "SIMBA-demos": partial(simba, max_demos=1),
    "COPRO": copro,
}


# --- what must stay ---------------------------------------------------------------------------------------------------


def fitted(module: dspy.Module) -> dict[str, Any]:
    """All that is fitted in a program: its settings and gates, as they are saved."""
    state = module.dump_state()
    predictors = {name for name, _ in module.named_predictors()}
    return {name: value for name, value in state.items() if name not in predictors}


def prompts_of(module: dspy.Module) -> dict[str, Any]:
    """All that teleprompters change: instructions, prefixes and demos."""
    state = module.dump_state()
    return {name: state[name] for name, _ in module.named_predictors()}


def run(module: dspy.Module) -> tuple[list[Any], list[Any], list[str]]:
    """Decisions, whole trajectories without times, and prompts on all questions."""
    lm = scripted_lm(answers)
    decisions, paths = [], []
    with dspy.context(lm=lm):
        for number in range(COUNT):
            trajectory = module(question=question_of(number)).trajectory
            decisions.append([(one.step, one.hop, one.kept) for one in trajectory.decisions])
            paths.append(timeless(trajectory.to_dict()))
    return decisions, paths, lm.engine.prompts


def timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: timeless(item) for key, item in value.items() if key != "seconds"}
    return [timeless(item) for item in value] if isinstance(value, list | tuple) else value


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("teleprompter", TELEPROMPTERS)
def test_what_is_fitted_survives(teleprompter: str, program: str, index: Any, tmp_path: Path) -> None:
    case = PROGRAMS[program]
    student = case.make(index)
    before = student.dump_state()
    decisions, _, _ = run(student)
    with dspy.context(lm=scripted_lm(answers)):
        prompter = scripted_lm(proposes, continues_assistant=False)
        compiled = TELEPROMPTERS[teleprompter](student, trainset(), prompter)
    assert prompts_of(compiled) != prompts_of(student)  # it was compiled
    assert student.dump_state() == before
    assert fitted(compiled) == fitted(student)
    decided, paths, prompts = run(compiled)
    assert decided == decisions
    compiled.save(tmp_path / "program.json")
    loaded = case.make(index, blank=True)
    loaded.load(tmp_path / "program.json")
    assert fitted(loaded) == fitted(student)
    assert run(loaded) == (decisions, paths, prompts)
    # And once more from a copy, as a further teleprompter would take it.
    assert run(compiled.deepcopy()) == (decisions, paths, prompts)


@pytest.mark.parametrize("program", PROGRAMS)
def test_decisions_are_the_fitted_ones(program: str, index: Any) -> None:
    """The tests above can fail: with defaults in place of what is fitted, the same questions are decided otherwise."""
    case = PROGRAMS[program]
    student, plain = case.make(index), case.make(index)
    solver = case.decides(plain)
    solver.gate, solver.gates = None, {}
    solver.settings.values = type(solver.settings.values)()
    assert run(student)[0] != run(plain)[0]
    kept = {one for decisions in run(student)[0] for one in decisions}
    assert {step for step, _, was_kept in kept if was_kept} and {step for step, _, was_kept in kept if not was_kept}


# --- what DSPy makes of compiled programs -----------------------------------------------------------------------------


@pytest.fixture
def compiled(index: Any) -> ActiveQA:
    with dspy.context(lm=scripted_lm(answers)):
        teleprompter = dspy.BootstrapFewShot(METRIC, max_bootstrapped_demos=1, max_labeled_demos=0)
        return teleprompter.compile(active(index), trainset=trainset())


def test_a_compiled_program_inside_a_users_module_is_frozen_until_it_is_told_otherwise(
    compiled: ActiveQA, index: Any, tmp_path: Path
) -> None:
    mine = Nested(compiled)
    assert mine.dump_state() == {}  # DSPy: nothing of it would be saved
    mine.qa._compiled = False
    mine.save(tmp_path / "mine.json")
    loaded = Nested(active(index, blank=True))
    loaded.load(tmp_path / "mine.json")
    assert loaded.qa.dump_state() == compiled.dump_state()
    assert run(loaded) == run(compiled)
    assert Dr3(compiled).dump_state()  # our own wrappers do it themselves


def test_a_compiled_program_is_compiled_further_once_it_is_told_so(compiled: ActiveQA) -> None:
    prompter = scripted_lm(proposes, continues_assistant=False)
    with dspy.context(lm=scripted_lm(answers)):
        with pytest.raises(AssertionError, match="uncompiled"):
            TELEPROMPTERS["BootstrapFewShot"](compiled, trainset(), prompter)
        compiled._compiled = False
        further = TELEPROMPTERS["GEPA"](compiled, trainset(), prompter)
    assert fitted(further) == fitted(compiled)
    assert [predictor.demos for predictor in further.predictors()] == [p.demos for p in compiled.predictors()]


def test_labelled_demos_do_not_move_what_is_drafted(index: Any) -> None:
    """Demos of whole questions stand where an answer is written, so that drafts of hops do not change."""
    student = active(index)
    labelled = dspy.LabeledFewShot(k=2).compile(student, trainset=trainset())
    before, after = (run(program)[2] for program in (student, labelled))
    drafts = [[prompt for prompt in prompts if re.search(r"Conclusion \d+:$", prompt)] for prompts in (before, after)]
    assert drafts[0] and drafts[0] == drafts[1] and before != after


def test_one_lm_a_role_is_refused_by_simba(index: Any) -> None:
    """SIMBA samples with one LM for all predictors, and DSPy says so where they have several."""
    student = escalation(index)
    student.recall.lm = scripted_lm(answers)
    with dspy.context(lm=scripted_lm(answers)), pytest.raises(ValueError, match="Multiple LMs"):
        simba(student, trainset(), scripted_lm(proposes))
