"""Candidates for prompts, proposed by DSPy's teleprompters: demos and whole trajectories, and instructions.

Demos come from ``BootstrapFewShot``: the program answers training questions, and runs that the metric accepts are kept,
either as the demos of each predictor or, for programs that show worked examples, as whole *trajectories* that all
steps share (so that one run serves every step, and a prefix cache holds it once). Instructions come from MIPROv2's
``GroundedProposer``, from ``COPRO`` or from ``GEPA``. Each set is plain JSON, so that it outlives the process that
found it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

import dspy

from ..core import InputError
from ..programs import ActiveQA, Cost, Escalation, Solver, Trajectory
from .nested import decider_in, solver_in, solvers_in

DemoKind = Literal["trajectories", "predictors"]
"""Whole trajectories as worked examples, or demos of each predictor."""

Proposer = Literal["mipro", "copro", "gepa"]
"""Which teleprompter writes instructions."""


@dataclass(frozen=True)
class DemoSet:
    """What a program shows before a question.

    Attributes:
        demos: Demos by predictor, as DSPy saves them; predictors that are not named keep theirs.
        examples: Worked examples, as JSON of trajectories; ``None`` keeps the program's own.
    """

    demos: Mapping[str, list[dict[str, Any]]] = field(default_factory=dict)
    examples: list[dict[str, Any]] | None = None

    def apply(self, program: dspy.Module) -> None:
        """Put them into a program."""
        for name, predictor in program.named_predictors():
            if name in self.demos:
                predictor.demos = [dspy.Example(**demo) for demo in self.demos[name]]
        solver = solver_in(program)
        if self.examples is not None and solver is not None:
            solver.settings.update(examples=self.examples)


@dataclass(frozen=True)
class InstructionSet:
    """Instructions by predictor; predictors that are not named keep theirs."""

    instructions: Mapping[str, str] = field(default_factory=dict)

    def apply(self, program: dspy.Module) -> None:
        """Put them into a program."""
        predictors: Any = program.named_predictors()
        for name, predictor in predictors:
            if name in self.instructions:
                predictor.signature = predictor.signature.with_instructions(self.instructions[name])


def demo_kinds(program: dspy.Module, wanted: DemoKind | Literal["both"] | None) -> tuple[DemoKind, ...]:
    """The kinds of demos that a program can show.

    Args:
        program: The program.
        wanted: The kind; ``None`` takes whole trajectories where the program shows worked examples.

    Raises:
        InputError: The program shows no worked examples, but trajectories are wanted.
    """
    if wanted not in (None, "both", *get_args(DemoKind)):
        raise InputError(f"`demos` is one of {', '.join(get_args(DemoKind))}, both, or None, got {wanted!r:.60}")
    solver = solver_in(program)
    # Of a module around a solver the predictions need not have the solver's trajectory.
    able = solver is not None and solver is program and _takes_examples(solver)
    if not able and wanted in ("trajectories", "both"):
        raise InputError(f"{type(program).__name__} does not show whole trajectories; give demos='predictors'")
    if wanted is None:
        return ("trajectories",) if able else ("predictors",)
    return ("trajectories", "predictors") if wanted == "both" else (wanted,)


def bootstrap(
    program: dspy.Module,
    examples: Sequence[dspy.Example],
    metric: Callable[..., Any],
    *,
    kind: DemoKind,
    seed: int,
    most: int = 3,
    teacher: dspy.Module | None = None,
) -> DemoSet:
    """Demos from runs that the metric accepts, by ``BootstrapFewShot``.

    Args:
        program: The program; it is not changed.
        examples: Questions to learn from, taken in an order drawn with the seed.
        metric: Called as ``metric(example, prediction, trace)``; what is true is learned from.
        kind: What to make of the runs.
        seed: Of the order.
        most: How many runs to learn from.
        teacher: What answers in the program's place; by default the program, told to ask sub-questions if whole
            trajectories are wanted of :class:`~hopgate.programs.Escalation`.

    Returns:
        The demos; empty if no run was accepted.
    """
    from dspy.teleprompt import BootstrapFewShot

    student = uncompiled(program)
    decider = decider_in(student)
    shuffled = list(examples)
    random.Random(seed).shuffle(shuffled)
    accepted: list[Trajectory] = []

    def judged(example: Any, prediction: Any, trace: Any = None) -> bool:
        good = bool(metric(example, prediction, trace))
        if not good or kind == "predictors":
            return good
        trajectory = getattr(prediction, "trajectory", None)
        if not isinstance(trajectory, Trajectory) or not trajectory.answer:
            return False
        if isinstance(decider, ActiveQA) and len(trajectory.tasks) < 2:
            return False  # it would teach to ask the question again
        accepted.append(_as_example(trajectory))
        return True

    teleprompter = BootstrapFewShot(
        metric=judged, max_bootstrapped_demos=most, max_labeled_demos=0, max_errors=len(shuffled) + 1
    )
    compiled = teleprompter.compile(student, teacher=teacher or _teacher(student, kind), trainset=shuffled)
    if kind == "trajectories":
        return DemoSet(examples=[trajectory.to_dict() for trajectory in accepted[:most]] or None)
    states = {name: predictor.dump_state()["demos"] for name, predictor in compiled.named_predictors()}
    return DemoSet({name: demos for name, demos in states.items() if demos})


def propose_instructions(
    how: Proposer,
    program: dspy.Module,
    examples: Sequence[dspy.Example],
    metric: Callable[..., Any],
    *,
    count: int,
    seed: int,
    prompt_model: dspy.BaseLM | None = None,
) -> tuple[InstructionSet, ...]:
    """Other instructions for each predictor of a program.

    Args:
        how: ``mipro`` writes them from a summary of the data and of the program, one LM call each; ``copro`` rewrites
            them and ranks them by the metric (its prefixes are left out); ``gepa`` reflects on what went wrong.
        program: The program; it is not changed.
        examples: Questions to learn from.
        metric: A DSPy metric; for ``gepa`` one with five arguments.
        count: How many sets.
        seed: Of what is drawn.
        prompt_model: What writes them; by default the LM of ``dspy.settings``.

    Returns:
        At most ``count`` sets, all different from one another and from the program's own.

    Raises:
        InputError: The proposer is unknown or cannot use the metric, or there is no LM.
    """
    writer = prompt_model or dspy.settings.lm
    if writer is None:
        raise InputError("no LM to write instructions: set one by dspy.configure(lm=...) or give `prompt_model`")
    proposers = {"mipro": _by_mipro, "copro": _by_copro, "gepa": _by_gepa}
    if how not in proposers:
        raise InputError(f"`instructions` is one of {', '.join(proposers)}, or None, got {how!r:.60}")
    proposed = proposers[how](uncompiled(program), list(examples), metric, count, seed, writer)
    own = _instructions(program)
    seen: list[dict[str, str]] = [own]
    for found in proposed:
        complete = {name: (found.get(name) or "").strip() or text for name, text in own.items()}
        if complete not in seen:
            seen.append(complete)
    return tuple(InstructionSet(found) for found in seen[1 : count + 1])


def uncompiled(program: dspy.Module) -> dspy.Module:
    """A deep copy that DSPy does not hold for compiled."""
    copied = program.deepcopy()
    copied._compiled = False
    return copied


def _as_example(trajectory: Trajectory) -> Trajectory:
    """What a prompt shows of a trajectory; what it took differs from time to time, and would make another candidate."""
    hops = tuple(replace(hop, cost=Cost()) for hop in trajectory.hops)
    return replace(trajectory, hops=hops, other_cost=Cost(), revisions=())


def _takes_examples(solver: Solver) -> bool:
    return any("examples" in type(part.settings.values).model_fields for part in solvers_in(solver))


def _teacher(student: dspy.Module, kind: DemoKind) -> dspy.Module:
    teacher = student.deepcopy()
    decider = decider_in(teacher)
    if kind == "trajectories" and isinstance(decider, Escalation):
        decider.settings.update(memory=False, escalate="always")
        decider.gates.pop("grounded", None)
    return teacher


def _instructions(program: dspy.Module) -> dict[str, str]:
    predictors: Any = program.named_predictors()
    return {name: predictor.signature.instructions for name, predictor in predictors}


def _by_mipro(
    program: dspy.Module, examples: list[Any], metric: Any, count: int, seed: int, writer: Any
) -> list[dict[str, str]]:
    from dspy.propose import GroundedProposer

    proposer = GroundedProposer(
        prompt_model=writer,
        program=program,
        trainset=examples,
        view_data_batch_size=min(10, len(examples)),
        use_task_demos=False,
        use_instruct_history=False,
        set_history_randomly=False,
        rng=random.Random(seed),
    )
    texts: Any = proposer.propose_instructions_for_program(
        trainset=examples, program=program, demo_candidates=None, trial_logs={}, N=count
    )
    names = [name for name, _ in program.named_predictors()]
    return [{name: texts[place][number] for place, name in enumerate(names)} for number in range(count)]


def _by_copro(
    program: dspy.Module, examples: list[Any], metric: Any, count: int, seed: int, writer: Any
) -> list[dict[str, str]]:
    from dspy.teleprompt import COPRO

    copro = COPRO(prompt_model=writer.copy(rollout_id=seed), metric=metric, breadth=max(2, count + 1), depth=1)
    quiet = {"num_threads": 1, "display_progress": False, "display_table": 0}
    best: Any = copro.compile(program, trainset=examples, eval_kwargs=quiet)
    return [_instructions(found["program"]) for found in best.candidate_programs]


def _by_gepa(
    program: dspy.Module, examples: list[Any], metric: Any, count: int, seed: int, writer: Any
) -> list[dict[str, str]]:
    try:
        teleprompter = dspy.GEPA(
            metric=metric,
            max_metric_calls=len(examples) * (count + 1) + 6 * count,
            reflection_lm=writer,
            track_stats=True,
            seed=seed,
        )
    except TypeError as error:
        raise InputError(f"GEPA cannot use the metric: {error}") from error
    compiled: Any = teleprompter.compile(program, trainset=examples)
    found = compiled.detailed_results
    order = sorted(range(len(found.candidates)), key=lambda place: -found.val_aggregate_scores[place])
    return [_instructions(found.candidates[place]) for place in order]
