"""What a data set says should have happened, in the place of what a program did: gold steps, passages and answers."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..core import Passage
from ..programs import Cost, Hop, RetrieverHandle, Solver, Trajectory
from .questions import Question, Step

if TYPE_CHECKING:
    import dspy

_DEPTH = 50
"""Passages that are searched for to see in which order the gold ones come."""


class GoldRetriever:
    """Finds the gold passages of one question, whatever is searched for: those that suit the query best come first.

    What the program's own retriever finds fills the places that are left, so that there is as much to read as before.

    Args:
        retriever: The program's own retriever.
        passages: The gold passages.
    """

    def __init__(self, retriever: RetrieverHandle, passages: Iterable[Passage]) -> None:
        self._own = retriever
        self._gold = {passage.id: passage for passage in passages}

    def search(self, query: str, k: int) -> list[Passage]:
        """The ``k`` first of the gold passages, then of the others."""
        found = self._own.search(query, max(k, _DEPTH))
        ranked = [passage for passage in found if passage.id in self._gold]
        seen = {passage.id for passage in ranked}
        ranked += [passage for key, passage in self._gold.items() if key not in seen]
        return [*ranked, *(passage for passage in found if passage.id not in self._gold)][:k]


def solvers_of(program: Any) -> Iterator[Solver]:
    """A program and the solvers inside it, the outermost first."""
    return (module for _, module in program.named_sub_modules() if isinstance(module, Solver))


def with_gold_passages(program: Any, passages: Sequence[Passage]) -> Any:
    """A copy of a program whose every search finds the gold passages; ``k`` is raised so that all of them fit."""
    copied = copy.deepcopy(program)
    for solver in solvers_of(copied):
        if solver.retriever is not None:
            solver.retriever = RetrieverHandle(GoldRetriever(solver.retriever, passages))
            solver.settings.update(k=max(solver.settings.values.k, len(passages)))
    return copied


def with_gate(program: Any, gate: Any) -> Any:
    """A copy of a program in which a gate decides in the place of the program's own.

    Args:
        program: The program.
        gate: A :class:`hopgate.programs.Gate`.
    """
    copied = copy.deepcopy(program)
    for solver in gated(copied):
        solver.gate = gate
        if hasattr(solver, "gates"):  # an escalation's, one a step
            solver.gates = dict.fromkeys(("memory", "grounded", "hop"), gate)
    return copied


def gated(program: Any) -> list[Any]:
    """The solvers of a program that have a gate."""
    return [solver for solver in solvers_of(program) if hasattr(solver, "gate")]


def gold_sub_questions(question: Question) -> tuple[str, ...]:
    """The gold sub-questions, with ``#1`` for the answer of the first; a relation is put as a question."""
    return tuple(_asked(step) for step in question.decomposition)


def take_gold_steps(program: Any, question: Question) -> dspy.Prediction:
    """Let a program answer along the gold sub-questions.

    A program with a decomposer is given them as its plan. Any other is resumed at each of them with what its own
    retriever finds for it, to read; it composes an answer each time, of which only the last one counts.

    Args:
        program: A program with hops.
        question: A question with a decomposition.
    """
    import dspy

    asked = gold_sub_questions(question)
    if any(hasattr(solver, "decomposer") for solver in solvers_of(program)):
        return program(question=question.question, trajectory=Trajectory(question.question, plan=asked))
    solver = next(found for found in solvers_of(program) if found.retriever is not None)
    hops: tuple[Hop, ...] = ()
    cost, answer = Cost(), ""
    for text in asked:
        filled = _filled(text, [hop.answer for hop in hops])
        found = () if solver.retriever is None else solver.retriever.search(filled, solver.settings.values.k)
        opened = Hop(filled, source="search", query=filled, passages=found)
        start = Trajectory(question.question, hops, open=opened, stop_reason="finished")
        prediction = program(question=question.question, trajectory=start)
        answer, cost = prediction.answer, cost + prediction.cost + Cost(retrievals=1)
        # Counted already, so free for the next call.
        hops = (*hops, replace(prediction.trajectory.hops[len(hops)], cost=Cost()))
    return dspy.Prediction(answer=answer, cost=cost)


def gold_trajectory(question: Question, passages: Sequence[Passage], retriever: RetrieverHandle | None) -> Trajectory:
    """The gold sub-questions with their gold answers, and a gold passage each; only the last step is left to do.

    Args:
        question: A question with a decomposition.
        passages: Its gold passages.
        retriever: Tells which of them suits a sub-question best, where the data set does not say it.
    """
    by_id = {passage.id: passage for passage in passages}
    hops: list[Hop] = []
    for step in question.decomposition:
        asked = _filled(_asked(step), [hop.answer for hop in hops])
        shown: tuple[Passage, ...] = ()
        if step.support_id in by_id:
            shown = (by_id[step.support_id],)
        elif passages and retriever is not None:
            shown = tuple(GoldRetriever(retriever, passages).search(asked, 1))
        hops.append(Hop(asked, source="search", query=asked, passages=shown, answer=step.answer))
    return Trajectory(question.question, tuple(hops), stop_reason="finished")


def undivided(question: Question, passages: Sequence[Passage]) -> Trajectory:
    """The question as its only sub-question, with all gold passages to read."""
    text = question.question
    opened = Hop(text, source="search", query=text, passages=tuple(passages))
    return Trajectory(text, open=opened, stop_reason="finished")


def _asked(step: Step) -> str:
    subject, separator, relation = step.question.partition(">>")
    return f"What is the {relation.strip()} of {subject.strip()}?" if separator else step.question.strip()


def _filled(text: str, answers: Sequence[str]) -> str:
    def answer(match: re.Match[str]) -> str:
        number = int(match.group(1))
        return answers[number - 1] if 1 <= number <= len(answers) else match.group()

    return re.sub(r"#(\d+)", answer, text)
