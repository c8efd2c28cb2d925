"""Gates of a saved program: a state holds what was fitted in them, and not which gates they are."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import dspy

from ..core import InputError, StateError
from ..programs import ConstantGate, OracleGate, RandomGate, Solver, ThresholdGate
from .calibration import CalibratedGate
from .compiled_manifest import GateRecord
from .policy import PolicyGate

_PLAIN: dict[str, type[ThresholdGate | ConstantGate | RandomGate]] = {
    "threshold": ThresholdGate,
    "constant": ConstantGate,
    "random": RandomGate,
}
_FITTED: dict[str, type[CalibratedGate] | type[PolicyGate]] = {"calibrated": CalibratedGate, "policy": PolicyGate}
_ARGUMENT = "gate"


def describe_gates(program: dspy.Module) -> tuple[GateRecord, ...]:
    """The gates that were given to a program, and to the programs inside, as objects.

    Raises:
        StateError: One of them is of a kind that cannot be made anew, or has an infinite threshold.
    """
    found: list[GateRecord] = []
    for module, solver in _solvers(program):
        given = {_ARGUMENT: getattr(solver, "gate", None), **getattr(solver, "gates", {})}
        given = {step: gate for step, gate in given.items() if gate is not None}
        # One gate may decide at several steps; it is then one parameter, and stays one.
        objects = {id(gate): gate for gate in given.values()}
        for identity, gate in objects.items():
            steps = tuple(step for step, other in given.items() if id(other) == identity)
            found.append(GateRecord(module, steps, *_kind(gate, steps)))
    return tuple(found)


def give_gates(program: dspy.Module, records: tuple[GateRecord, ...]) -> None:
    """Give a new program the gates that it had; fitted ones are empty until the state is loaded.

    Raises:
        StateError: The program has no such module or step, there is no such kind of gate, or a value is out of range.
    """
    solvers = dict(_solvers(program))
    for record in records:
        solver = solvers.get(record.module)
        steps: tuple[str, ...] = getattr(solver, "steps", ())
        unknown = [step for step in record.steps if step != _ARGUMENT and step not in steps]
        if solver is None or not steps or unknown:
            raise StateError(f"gates: `{record.module}` decides at no step {', '.join(unknown) or 'at all'}")
        gate = _gate(record)
        for step in record.steps:
            if step == _ARGUMENT:
                solver.gate = gate
            else:
                solver.gates[step] = gate


def _solvers(program: dspy.Module) -> Iterator[tuple[str, Any]]:
    return ((name, module) for name, module in program.named_sub_modules() if isinstance(module, Solver))


def _kind(gate: Any, steps: tuple[str, ...]) -> tuple[str, dict[str, Any]]:
    for kind, made in _PLAIN.items():
        if type(gate) is made:
            values = {item.name: getattr(gate, item.name) for item in fields(gate) if not item.name.startswith("needs")}
            if any(isinstance(value, float) and not math.isfinite(value) for value in values.values()):
                raise StateError(
                    f"the threshold of the gate at {', '.join(steps)} is infinite, which JSON cannot hold; give the "
                    "program a ConstantGate"
                )
            return kind, values
    for kind, fitted in _FITTED.items():
        if type(gate) is fitted:
            return kind, {}
    if isinstance(gate, OracleGate):
        gate.dump_state()  # says why it cannot be saved
    known = ", ".join(made.__name__ for made in (*_PLAIN.values(), *_FITTED.values()))
    raise StateError(
        f"the gate at {', '.join(steps)} is a {type(gate).__name__}, which cannot be made anew from a file; give the "
        f"program one of {known}, or save its state with `program.save` and make the program yourself"
    )


def _gate(record: GateRecord) -> Any:
    if record.kind in _FITTED:
        if record.values:
            raise StateError(f"gates: a gate of the kind {record.kind!r} takes no values")
        return _FITTED[record.kind]()
    if record.kind not in _PLAIN:
        raise StateError(
            f"gates: there is no kind {record.kind!r}; this hopgate knows {', '.join([*_PLAIN, *_FITTED])}; a newer "
            "one may know it"
        )
    try:
        return _PLAIN[record.kind](**record.values)  # type: ignore[arg-type]
    except (InputError, TypeError) as error:
        raise StateError(f"gates: a gate of the kind {record.kind!r} cannot have {record.values}: {error}") from error
