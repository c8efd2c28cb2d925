"""Programs that decide by the probability of being right: compiled so, and refitted for another LM."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core import InputError
from ..programs import ActiveQA, Solver
from .calibration import CalibratedGate, Calibrator, Method, calibrate
from .compiled_figures import Compiled, Metric, at_thresholds, measured
from .compiled_recording import solver_with_thresholds, thresholds_of
from .curve import evaluate_at
from .tree_files import Trees


def as_probabilities(
    solver: ActiveQA, thresholds: Mapping[str, float], calibrators: Mapping[str, Calibrator]
) -> dict[str, float]:
    """Give a solver gates that keep what is right with at least the probability at its thresholds.

    Args:
        solver: The solver.
        thresholds: Thresholds by step, in nats.
        calibrators: Calibrators by step; a step without one keeps its threshold.

    Returns:
        The thresholds that the gates come to, by step (0 for one that keeps nothing); where a calibrator is level they
        are not the given ones.
    """
    found: dict[str, float] = {}
    for step, tau in thresholds.items():
        if step in calibrators:
            gate = CalibratedGate(calibrators[step](tau), {step: calibrators[step]})
            solver.gates[step] = gate
            tau = gate.tau(step)
            found[step] = 0.0 if tau is None else min(0.0, tau)
    return found


def calibrated_gates(program: Solver) -> dict[str, CalibratedGate]:
    """The calibrated gates of a program, by step.

    Raises:
        InputError: There are none.
    """
    solver = solver_with_thresholds(program)
    given: dict[str, Any] = {**solver.gates, **({} if solver.gate is None else {"hop": solver.gate})}
    gates = {step: gate for step, gate in given.items() if isinstance(gate, CalibratedGate)}
    if not gates:
        raise InputError("the program has no calibrated gates; compile it with a calibration of its thresholds first")
    return gates


def recalibrated(program: Solver, train: Trees, valid: Trees, metric: Metric, method: Method | None) -> Compiled:
    """A program with the same probabilities, and calibrators fitted anew.

    Args:
        program: A program with calibrated gates.
        train: Trees recorded with the LM that it is to work with.
        valid: Trees to measure on.
        metric: The score.
        method: The method; by default that of each step's calibrator.

    Raises:
        InputError: There are no calibrated gates, or a step has not both right and wrong answers.
    """
    made: Solver = program.deepcopy()
    solver, gates = solver_with_thresholds(made), calibrated_gates(made)
    for step, gate in gates.items():
        known = gate.calibrators.get(step)
        wanted = method or ("platt" if known is None else known.method)
        fitted = calibrate(train, method=wanted)
        if step not in fitted:
            raise InputError(f"the step {step!r} has not both right and wrong answers: more questions are needed")
        solver.gates[step] = CalibratedGate(gate.probability, {step: fitted[step]})
    if "hop" in gates:
        solver.gate = None
    before, after = thresholds_of(program), thresholds_of(made)
    if after is None:
        raise InputError("a gate of another kind decides beside the calibrated ones; compile the program anew")
    held = original = None
    if valid.explored:
        held = measured(*at_thresholds(valid, after, metric))
        original = None if before is None else measured(*at_thresholds(valid, before, metric))
    return Compiled(
        program=made,
        settings={f"probability_{step}": gate.probability for step, gate in gates.items()},
        kept_original=False,
        measured_on="the validation questions" if held else "no questions that it was not fitted on",
        held_out=held,
        original=original,
        train=evaluate_at(train, after, score=metric),
        front=(),
    )
