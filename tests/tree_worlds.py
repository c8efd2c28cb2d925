"""Scripted worlds for decision trees: what the LM says, and how sure it is, follows from the prompt and a seed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import dspy

from hopgate.core import Passage
from hopgate.evaluation import Question
from hopgate.lms.testing import Reply, scripted_lm
from hopgate.optimizers import Tree, Trees, record_trees

QUESTIONS = [Question(str(n), f"Who is the uncle of number {n}?", ("b",)) for n in range(6)]
STEPS = ("memory", "grounded", "hop", "final")
SETTINGS = dict(zip(STEPS, ("tau_memory", "tau_grounded", "tau", "tau_final"), strict=True))
SURE = (-0.05, -0.3, -0.31, -0.9, -2.0, -4.0)


class World:
    """A deterministic LM whose every reply is drawn anew for every prompt.

    Args:
        seed: Another seed says other things.
        sure: The log-probabilities to draw from, in nats.
    """

    def __init__(self, seed: int, sure: tuple[float, ...] = SURE) -> None:
        self.seed = seed
        self.sure = sure

    def __call__(self, prompt: str) -> Reply | str:
        drawn = hashlib.sha256(f"{self.seed}\0{prompt}".encode()).digest()
        label = prompt.rsplit("\n", 1)[-1].removeprefix("assistant: ")
        if label.startswith("Task"):
            return "none" if drawn[0] < 60 else f"What is the {drawn[1] % 40}th thing?"
        if label.startswith("Plan"):
            return f"What is {drawn[1] % 9}? | What is the son of #1?"
        return Reply("abc"[drawn[0] % 3], self.sure[drawn[2] % len(self.sure)])


def search(query: str, k: int) -> list[Passage]:
    """A retriever whose passages follow from the query."""
    drawn = hashlib.sha256(query.encode()).digest()
    return [Passage(str(byte), f"Page {byte}", f"Text of {byte}.", score=byte / 9) for byte in drawn[:k]]


def lm_of(seed: int, sure: tuple[float, ...] = SURE) -> dspy.LM:
    return scripted_lm(World(seed, sure))


def recorded(
    program: Any, seed: int, path: Path, questions: Iterable[Question] = QUESTIONS, **given: Any
) -> tuple[Trees, int]:
    """Trees of a program in a world, and how many LM calls recording made."""
    lm = lm_of(seed)
    with dspy.context(lm=lm):
        trees = record_trees(program, list(questions), path, **given)
    return trees, len(lm.engine.prompts)


def cost_of(leaf: Any) -> tuple[int, ...]:
    return (leaf.retrievals, leaf.lm_calls, leaf.prompt_tokens, leaf.completion_tokens, leaf.passages_read)


def run_at(program: Any, seed: int, question: Question, thresholds: dict[str, float]) -> tuple[str, tuple[int, ...]]:
    """Answer and cost of the program itself at thresholds."""
    program.settings.update(**{SETTINGS[step]: tau for step, tau in thresholds.items()})
    with dspy.context(lm=lm_of(seed)):
        told = program(question=question.question)
    return told.answer, cost_of(told.cost)


def distinct_calls(trees: Iterable[Tree]) -> int:
    return sum(leaf.new_calls for tree in trees for leaf in tree.leaves)
