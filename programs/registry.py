"""The programs by the names that the command line and configurations use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..core import InputError
from .active import ActiveQA
from .baselines import RAG, ChainOfThought, Direct
from .dr3 import Dr3
from .escalation import Escalation
from .flare import FLARE
from .ircot import IRCoT
from .react import ReAct
from .react_plus import ReActPlus
from .self_ask import SelfAsk
from .self_consistency import SelfConsistency
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
    "never": Entry(lambda retriever: ActiveQA(retriever, gate="never"), True, "the same, from memory alone"),
    "static": Entry(
        lambda retriever: ActiveQA(retriever, decomposer="plan"), True, "the same, with all sub-questions at once"
    ),
    "fused": Entry(
        lambda retriever: ActiveQA(retriever, fused_hop=True), True, "the same, sub-question and draft in one call"
    ),
    "escalation": Entry(
        Escalation, True, "from memory, else as rag, else as active, as far as the confidence requires"
    ),
    "rag": Entry(RAG, True, "one search with the question, one reading (Lewis et al. 2020)"),
    "ircot": Entry(IRCoT, True, "a search after each sentence of the reasoning (Trivedi et al. 2023)"),
    "react": Entry(ReAct, True, "thoughts and searches in turn, on dspy.ReAct (Yao et al. 2023)"),
    "react-plus": Entry(ReActPlus, True, "a plan, then a search and a conclusion for each task (Gao et al. 2024)"),
    "self-ask": Entry(SelfAsk, True, "follow up questions with intermediate answers (Press et al. 2023)"),
    "flare": Entry(FLARE, True, "a search where the next sentence has an unlikely token (Jiang et al. 2023)"),
    "dr3": Entry(
        lambda retriever: Dr3(ReActPlus(retriever)), True, "react-plus, off-topic answers corrected (Gao et al. 2024)"
    ),
    "dr3-escalation": Entry(
        lambda retriever: Dr3(Escalation(retriever)), True, "escalation, off-topic answers corrected likewise"
    ),
    "direct": Entry(lambda _: Direct(), False, "one answer from memory"),
    "cot": Entry(lambda _: ChainOfThought(), False, "reasoning, then an answer, from memory (Wei et al. 2022)"),
    "self-consistency": Entry(
        lambda _: SelfConsistency(), False, "a vote over sampled chains of thought (Wang et al. 2023)"
    ),
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
