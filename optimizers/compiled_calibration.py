"""Programs that decide by the probability of being right: compiled so, and refitted for another LM."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ..core import InputError
from ..programs import ActiveQA, Solver, ThresholdGate
from .calibration import CalibratedGate, Calibrator, Method, calibrate
from .compiled_figures import Compiled, Metric, kept_by, measure, value_of
from .compiled_recording import solver_with_thresholds
from .tree_files import Trees
from .tree_schema import Tree

_LEAST = -100.0
"""Answers of less than exp(-100) a token do not occur."""


def as_probabilities(
    solver: ActiveQA, thresholds: Mapping[str, float], calibrators: Mapping[str, Calibrator], trees: Iterable[Tree]
) -> list[str]:
    """Give a solver gates that keep what is right with at least the probability at its thresholds.

    A step keeps its threshold where it has no calibrator, where the calibrator is level, so that a probability would
    tell nothing, and where the probability would decide otherwise on a recorded answer.

    Args:
        solver: The solver.
        thresholds: Thresholds by step, in nats.
        calibrators: Calibrators by step.
        trees: The record.

    Returns:
        The steps that keep their thresholds.
    """
    nodes = [node for tree in trees for node in tree.nodes]
    left: list[str] = []
    for step, tau in thresholds.items():
        gate = None if step not in calibrators else _stated(tau, step, calibrators[step])
        met = [node for node in nodes if node.step == step]
        if gate is None or not np.array_equal(kept_by(gate, met), kept_by(ThresholdGate(tau), met)):  # type: ignore[arg-type]
            left.append(step)
        else:
            solver.gates[step] = gate
    return left


def _stated(tau: float, step: str, calibrator: Calibrator) -> CalibratedGate | None:
    return CalibratedGate(calibrator(tau), {step: calibrator}) if calibrator(_LEAST) < calibrator(0.0) else None


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
    value = value_of(made, train, metric)
    if value is None:
        raise InputError("a gate of another kind decides beside the calibrated ones; compile the program anew")
    held = measure(made, valid, metric)
    return Compiled(
        program=made,
        settings={f"probability_{step}": gate.probability for step, gate in gates.items()},
        kept_original=False,
        measured_on="the validation questions" if held else "no questions that it was not fitted on",
        held_out=held,
        original=measure(program, valid, metric),
        train=value.point,
        front=(),
    )
