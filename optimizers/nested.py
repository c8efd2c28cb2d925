"""The solver inside a program: where its settings and thresholds are, and what a question takes in all."""

from __future__ import annotations

from typing import Any

import dspy
from dspy.utils.callback import BaseCallback

from ..core import InputError
from ..programs import ActiveQA, Cost, Solver
from ..programs.metering import Meter


def solvers_in(program: Any) -> list[Solver]:
    """All solvers that a program is or holds, the outer ones first."""
    return [module for _, module in program.named_sub_modules(Solver) if isinstance(module, Solver)]


def solver_in(program: dspy.Module) -> Solver | None:
    """The solver that a program is or holds, with its settings; of a solver within another one, the outer.

    Raises:
        InputError: There are several side by side, or it is frozen as a compiled part of another module.
    """
    found = solvers_in(program)
    inside = {id(part) for outer in found for part in solvers_in(outer) if part is not outer}
    outermost = [module for module in found if id(module) not in inside]
    if len(outermost) > 1:
        kinds = ", ".join(type(module).__name__ for module in outermost)
        raise InputError(f"{type(program).__name__} holds several solvers ({kinds}); compile each on its own")
    if not outermost:
        return None
    if outermost[0] is not program and getattr(outermost[0], "_compiled", False):
        raise InputError(
            f"the {type(outermost[0]).__name__} inside {type(program).__name__} was compiled, and DSPy freezes what "
            "was compiled; set its `_compiled` to False to compile it again"
        )
    return outermost[0]


def decider_in(program: dspy.Module) -> ActiveQA | None:
    """The solver with thresholds that a program is or holds, if there is one.

    Raises:
        InputError: There are several.
    """
    found = [solver for solver in solvers_in(program) if isinstance(solver, ActiveQA)]
    if len(found) > 1:
        name = type(program).__name__
        raise InputError(f"{name} holds {len(found)} solvers with thresholds; compile each on its own")
    return found[0] if found else None


class Costed(dspy.Module):
    """A program whose predictions say what they took, where they do not do so already.

    It takes what the solver inside says that it took, searches among it, and meters LM calls that are made around it.

    Args:
        program: Any module that is called with a ``question``; its answers are texts.
    """

    def __init__(self, program: dspy.Module) -> None:
        super().__init__()
        self.program = program

    def forward(self, question: str) -> dspy.Prediction:
        """The program's prediction, with its ``cost``."""
        solver = solver_in(self.program)
        meter = Meter()
        costs = _SolverCosts(solver, meter)
        with meter.active(), dspy.context(callbacks=[*(dspy.settings.callbacks or []), costs]):
            prediction = self.program(question=question)
            own = meter.cost()
        if not isinstance(prediction, dspy.Prediction):
            raise InputError(f"a program returns a dspy.Prediction with `answer`, not a {type(prediction).__name__}")
        told = {name: value for name, value in prediction.items() if name not in ("cost", "trajectory")}
        return dspy.Prediction(**told, cost=costs.total + own)


class _SolverCosts(BaseCallback):
    """Adds up what a solver says that it took, and takes its calls out of a meter around it."""

    def __init__(self, solver: Solver | None, meter: Meter) -> None:
        self._solver = solver
        self._meter = meter
        self._begun: dict[str, int] = {}
        self.total = Cost()

    def on_module_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        if instance is self._solver:
            self._begun[call_id] = len(self._meter.history)

    def on_module_end(self, call_id: str, outputs: Any, exception: BaseException | None = None) -> None:
        start = self._begun.pop(call_id, None)
        if start is None:
            return
        cost = getattr(outputs, "cost", None)
        if isinstance(cost, Cost):
            self.total = self.total + cost
            del self._meter.history[start:]
