"""Recording the decisions that a program is compiled on, and what that takes at most."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ..core import HopgateError, InputError, user_path
from ..evaluation.budget import Budget
from ..evaluation.questions import Question
from ..evaluation.run_schema import DataHeader
from ..programs import ActiveQA, ActiveSettings, Solver, ThresholdGate
from .calibration import CalibratedGate
from .curve import Point, tau_curve
from .fitting import SETTING_OF
from .nested import decider_in
from .tree_files import Trees, read_trees
from .trees import TreeProgress, record_trees

_OFTEN = 50
"""Questions up to which the best point is sought after each, and then after so many."""


@dataclass(frozen=True, slots=True)
class Recorder:
    """Records the trees that programs are compiled on, and says how it goes.

    Attributes:
        path: The file of trees.
        leaves: Limit on the leaves of a question.
        retries: Further attempts after transient failures of the LM.
        retry_errors: Explore questions again that failed before.
        budget: Limits on recording.
        on_progress: Called after each question, with the best EM so far at one threshold for all steps; ``None``
            where it was not sought.
    """

    path: str | Path
    leaves: int = 8
    retries: int = 0
    retry_errors: bool = False
    budget: Budget = field(default_factory=Budget)
    on_progress: Callable[[TreeProgress, Point | None], None] | None = None

    def record(self, program: Solver, questions: list[Question], data: DataHeader) -> Trees:
        """The trees of the questions, as far as the budget goes.

        Raises:
            HopgateError: As :func:`record_trees`; or no question has a tree.
        """
        trees = record_trees(
            program,
            questions,
            self.path,
            leaves=self.leaves,
            retries=self.retries,
            retry_errors=self.retry_errors,
            budget=self.budget,
            data=data,
            on_progress=None if self.on_progress is None else self._tell,
            needs_decisions=True,
        )
        if not trees.explored:
            errors = [tree.error for tree in trees.trees if tree.error is not None]
            why = f"the last failed with {errors[-1].type}: {errors[-1].message}" if errors else trees.stopped
            raise HopgateError(f"{self.path}: no question could be recorded ({why})")
        return trees

    def _tell(self, progress: TreeProgress) -> None:
        if self.on_progress is not None:
            # Reading the file takes the longer the more it holds.
            due = progress.done < _OFTEN or progress.done % _OFTEN == 0
            self.on_progress(progress, _best(self.path) if progress.leaves and due else None)


def solver_with_thresholds(program: Solver) -> ActiveQA:
    """The solver, in a program or that program itself, whose thresholds can be fitted.

    Raises:
        InputError: It has none.
    """
    solver = decider_in(program)
    if solver is None:
        raise InputError(
            f"a {type(program).__name__} has no thresholds to fit; compile active, escalation or one of their kin, or "
            "use the joint optimizer"
        )
    values = solver.settings.values.model_dump()
    decides = {"final": values["check_each_hop"], "memory": values.get("memory"), "grounded": values.get("grounded")}
    if not any(decides.get(step, True) and solver.gate_at(step).needs_confidence for step in solver.steps):
        raise InputError("no gate of the program looks at a confidence, so there is nothing to fit; set gate=threshold")
    return solver


def calls_of_a_hop(settings: ActiveSettings) -> int:
    """LM calls that a hop takes at most: sub-question, draft and reading, and what the settings add."""
    return 3 + settings.reread + settings.calculator + settings.check_each_hop


def most_calls(program: Solver, settings: ActiveSettings) -> int:
    """An upper bound on the LM calls of one answer.

    Args:
        program: The program; a corrector around the solver has a limit of its own.
        settings: Those of the solver in it that has thresholds.
    """
    whole = sum(bool(getattr(settings, name, False)) for name in ("memory", "grounded"))
    # A plan, asked for at first or when a sub-question is the question itself, and the last reading.
    once = settings.max_hops * calls_of_a_hop(settings) + 2 + whole
    if isinstance(program, ActiveQA):
        return once
    # Correcting begins its last attempt below this limit.
    return 2 * once + int(getattr(program.settings.values, "max_lm_calls", 0))


def thresholds_of_settings(solver: ActiveQA) -> dict[str, float]:
    """The thresholds in a solver's settings, by step."""
    values = solver.settings.values.model_dump()
    return {step: values[SETTING_OF[step]] for step in solver.steps}


def thresholds_of(program: Solver) -> dict[str, float] | None:
    """The thresholds that a program decides by, in nats; ``None`` if a gate of its own comes to none."""
    solver = solver_with_thresholds(program)
    found = thresholds_of_settings(solver)
    for step in solver.steps:
        gate = solver.gate_at(step)
        if isinstance(gate, ThresholdGate):
            found[step] = min(0.0, gate.tau)
        elif isinstance(gate, CalibratedGate) and step in gate.calibrators:
            tau = gate.tau(step)
            found[step] = 0.0 if tau is None else tau
        elif gate.needs_confidence:
            return None
    return found


def decided_by_settings(program: Solver, trees: Trees) -> tuple[Solver, ActiveQA]:
    """A copy of a program in which settings decide at the steps that were explored, and the solver with them."""
    made: Solver = program.deepcopy()
    solver = solver_with_thresholds(made)
    for step in trees.header.steps:
        solver.gates.pop(step, None)
    if "hop" in trees.header.steps:
        solver.gate = None
    return made, solver


def _best(path: str | Path) -> Point | None:
    """The best point so far, at one threshold for all steps."""
    explored = read_trees(user_path(path)).explored
    if not any(tree.nodes for tree in explored):
        return None
    curve = tau_curve(explored)
    place = int(np.lexsort((curve.retrievals, -curve.score))[0])
    return curve.at(float(curve.edges[place + 1]))
