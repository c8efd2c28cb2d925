"""What the joint optimizer chooses among, and how a choice becomes a program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import dspy

from ..core import InputError
from ..evaluation.provenance import describe_program
from .candidates import uncompiled
from .fitting import SETTING_OF
from .nested import solver_in, solvers_in

PROMPTS = ("demos", "instructions")
"""Parameters that name a set of candidates by its number; 0 is the program's own."""

CHOICES: Mapping[str, tuple[Any, ...]] = {
    "k": (2, 3, 5),
    "depth": (10, 20),
    "max_hops": (2, 3, 4),
    "query": ("chain", "sub_question"),
    "decomposer": ("iterative", "plan"),
    "recompose": (True, False),
    "resolve": (True, False),
    "redecompose": (True, False),
}
"""Settings that are chosen among unless told otherwise, as far as a program has them: passages a search, rerank depth,
limit of hops, form of the query, decomposer, and stages of the corrector."""

_FITTED = (*SETTING_OF.values(), "examples")


def space_of(
    program: dspy.Module, wanted: Mapping[str, Sequence[Any]] | None, *, demos: int, instructions: int
) -> dict[str, tuple[Any, ...]]:
    """Choices by parameter; the program's own value is the first of each.

    Args:
        program: The program.
        wanted: Settings with their choices, in place of :data:`CHOICES`.
        demos: Number of demo sets beside the program's own.
        instructions: Likewise of instructions.

    Raises:
        InputError: A setting is unknown, has an impossible choice, or is fitted in another way; or nothing is left to
            choose among.
    """
    own = settings_in(program)
    if wanted is None:
        chosen: Mapping[str, Sequence[Any]] = {name: CHOICES[name] for name in CHOICES if name in own}
        if own.get("rerank") == "none":
            chosen = {name: values for name, values in chosen.items() if name != "depth"}
        if any(
            getattr(part, "decomposer", None) is not None for part in solvers_in(program)
        ):  # an object of one's own decides in place of the setting
            chosen = {name: values for name, values in chosen.items() if name != "decomposer"}
    elif isinstance(wanted, Mapping):
        chosen = wanted
    else:
        raise InputError(f"`space` takes settings with their choices, such as {{'k': (2, 3, 5)}}, got {wanted!r:.80}")
    space: dict[str, tuple[Any, ...]] = {}
    for name, values in chosen.items():
        if name in _FITTED or name in PROMPTS:
            raise InputError(f"`space`: {name!r} is not chosen among but fitted; leave it out")
        if name not in own:
            raise InputError(f"`space`: {type(program).__name__} has no setting {name!r}; it has {', '.join(own)}")
        if isinstance(values, str | bytes) or not isinstance(values, Sequence) or not values:
            raise InputError(f"`space`: {name!r} takes a list of choices, got {values!r:.80}")
        space[name] = tuple(dict.fromkeys((own[name], *values)))
        for value in space[name]:
            changed(program, {name: value})
    for name, count in zip(PROMPTS, (demos, instructions), strict=True):
        if count:
            space[name] = tuple(range(count + 1))
    if not any(len(values) > 1 for values in space.values()):
        raise InputError("nothing is left to choose among: give `space`, `demo_sets` or `instructions`")
    return space


def original_of(program: dspy.Module, space: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """The parameters that leave a program as it is."""
    own = settings_in(program)
    return {name: 0 if name in PROMPTS else own[name] for name in space}


def settings_in(program: dspy.Module) -> dict[str, Any]:
    """The settings of the solver that a program is or holds, and of solvers inside that one."""
    solver = solver_in(program)
    found: dict[str, Any] = {}
    if solver is not None:
        for part in solvers_in(solver):
            values = part.settings.values.model_dump(mode="json")
            found = {**values, **found}
    return found


def changed(program: dspy.Module, settings: Mapping[str, Any]) -> dspy.Module:
    """A copy of a program with other settings.

    Raises:
        InputError: A setting is unknown or out of range.
    """
    copied = uncompiled(program)
    solver = solver_in(copied)
    if settings and solver is not None:
        solver.settings.update(**settings)
    return copied


def identity_of(program: dspy.Module) -> str:
    """A name for a program's state: the same state has the same one."""
    return (describe_program(program).state_sha256 or "program")[:16]
