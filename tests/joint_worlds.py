"""A scripted world in which passages a search, hops and thresholds matter, for the joint optimizer."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import dspy

from hopgate.core import Passage
from hopgate.evaluation import Question
from hopgate.lms.testing import Reply, scripted_lm
from hopgate.optimizers import JointOptimizer

TRAIN = [Question(str(n), f"Who is the uncle of number {n}?", (f"Bert-{n}",)) for n in range(16)]
VAL = [Question(str(n), f"Who is the uncle of number {n}?", (f"Bert-{n}",)) for n in range(100, 104)]


def search(query: str, k: int) -> list[Passage]:
    """Passages on a number, or on a father; the second states the fact for every third one, else the first."""
    numbers = re.findall(r"\d+", query)
    if not numbers:
        return []
    number, asked = int(numbers[-1]), "Bert" if "brother" in query else "Adam"
    place = 1 if number % 3 == 0 else 0
    texts = [f"It is {asked}-{number}." if rank == place else "Nothing." for rank in range(k)]
    return [
        Passage(f"{asked}-{number}-{rank}", f"Page {rank}", text, score=9.0 - rank) for rank, text in enumerate(texts)
    ]


def says(prompt: str) -> Reply | str:
    """Drafts are right and sure for even numbers, else wrong and unsure; the question itself is known for every fourth.
    What is read is right where a passage says it."""
    shown = prompt.rsplit("Question: ", 1)[-1]
    found = re.search(r"uncle of number (\d+)", shown)
    if found is None:
        return "none"
    number, lines = int(found[1]), shown.splitlines()
    label, before = lines[-1].removeprefix("assistant: "), lines[:-1]
    done = [line.split(": ", 1)[1] for line in before if line.startswith("Conclusion")]
    if label.startswith("Task"):
        asked = [f"Who is the father of number {number}?", f"Who is the brother of Adam-{number}?"]
        return asked[len(done)] if len(done) < 2 else "none"
    if label.startswith("Answer"):
        if not done:
            return Reply(f"Bert-{number}", -0.1) if number % 4 == 0 else Reply("Nobody", -0.7)
        return Reply(done[-1], -0.1)
    wanted = f"{'Bert' if done else 'Adam'}-{number}"
    read = [line for line in before if line.startswith("Found")][-5:]
    if before and before[-1].startswith("Found"):
        return Reply(wanted if any(wanted in line for line in read) else "unknown", -0.1)
    return Reply(wanted, -0.1) if number % 2 == 0 else Reply("Nobody", -0.8)


def lm_of() -> dspy.LM:
    return scripted_lm(says)


def optimizer(folder: Path | None = None, **changes: Any) -> JointOptimizer:
    """A small optimizer: 3 candidates, racing over 4 and 8 questions, without demos."""
    given: dict[str, Any] = {
        "folder": folder, "racing": (4, 8), "trials": 3, "leaves": 5, "demo_sets": 0, "space": {"k": (1, 2)},
    }  # fmt: skip
    return JointOptimizer(**{**given, **changes})


class Around(dspy.Module):
    """A module of a user's around a solver, with a call of its own."""

    def __init__(self, solver: Any) -> None:
        super().__init__()
        self.solver = solver
        self.polish = dspy.Predict("question, draft -> polished")

    def forward(self, question: str) -> dspy.Prediction:
        draft = self.solver(question=question).answer
        self.polish(question=question, draft=draft)
        return dspy.Prediction(answer=draft)
