"""The programs by the names that the command line and configurations use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..core import InputError
from .active import ActiveQA
from .baselines import RAG, ChainOfThought, Direct
from .solver import Solver


@dataclass(frozen=True, slots=True)
class Entry:
    """A program that can be named.

    Attributes:
        make: Takes a retriever and gives a new program.
        searches: Whether it needs a retriever.
        summary: What it does, in one line.
    """

    make: Callable[[Any], Solver]
    searches: bool
    summary: str


PROGRAMS: dict[str, Entry] = {
    "active": Entry(ActiveQA, True, "sub-questions one at a time, searching only where a draft is not sure enough"),
    "always": Entry(lambda retriever: ActiveQA(retriever, gate="always"), True, "the same, searching at every hop"),
    "rag": Entry(RAG, True, "one search with the question, one reading (Lewis et al. 2020)"),
    "direct": Entry(lambda _: Direct(), False, "one answer from memory"),
    "cot": Entry(lambda _: ChainOfThought(), False, "reasoning, then an answer, from memory (Wei et al. 2022)"),
}
"""All programs, by name."""


def make_program(name: str, retriever: Any = None, **settings: Any) -> Solver:
    """A new program by its name.

    Args:
        name: One of :data:`PROGRAMS`.
        retriever: What it searches; not used by programs that do not search.
        **settings: Settings to change, as ``program.settings.update`` takes them.

    Raises:
        InputError: The name or a setting is unknown, or a setting has no possible value.
    """
    if name not in PROGRAMS:
        raise InputError(f"no program is named {name!r}; there are {', '.join(PROGRAMS)}")
    program = PROGRAMS[name].make(retriever)
    if settings:
        program.settings.update(**settings)
    return program
