"""What a file of decision trees holds: a header and one tree a question, as frozen dataclasses checked by pydantic.

It holds ids, answers at stake, confidences and costs, and never a data set's own text, so that it may be published.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Literal

from pydantic import ConfigDict, TypeAdapter

from ..core.question_kinds import Kind
from ..evaluation.run_schema import Failure, RunHeader
from ..programs import Step

SCHEMA = 1
"""Version of the file; a reader refuses others."""

Path = tuple[tuple[int, bool], ...]
"""Decisions on the way from the root: the position of each in the tree, and whether its answer was kept."""


@dataclass(frozen=True, slots=True)
class Node:
    """A decision: an answer at stake, which is kept, or the program goes on.

    Attributes:
        step: What is decided on.
        hop: Position of the hop that it belongs to, from 0.
        text: The answer at stake.
        mean: Mean log-probability of its tokens, in nats: what a threshold is compared with.
        min: That of the least certain token.
        first: That of the first token.
        tokens: How many tokens it has.
        asked_words: Words of the question or sub-question that it answers.
        score: The retriever's score of the best passage of the last search before; ``None`` if there was none.
        off_topic: Whether the answer is of another kind than was asked for; ``None`` where the rule cannot tell.
        right: Whether it is right: an exact match with the question's gold answers, or for a hop with the gold answer
            of one of its steps; ``None`` for a hop where the data set has no steps.
        words: Words of the answer. This and what follows is ``None`` in files of earlier versions.
        question_words: Words of the whole question.
        passages: Passages that searches before have found.
        kind: What the question or sub-question wants; also ``None`` where its form does not tell.
        fits: Whether the answer is plainly of that kind.
        echo: Whether it only repeats words of what it answers.
    """

    step: Step
    hop: int
    text: str
    mean: float
    min: float | None = None
    first: float | None = None
    tokens: int = 0
    asked_words: int = 0
    score: float | None = None
    off_topic: bool | None = None
    right: bool | None = None
    words: int | None = None
    question_words: int | None = None
    passages: int | None = None
    kind: Kind | None = None
    fits: bool | None = None
    echo: bool | None = None


@dataclass(frozen=True, slots=True)
class Leaf:
    """What the program answers after certain decisions, and what that takes: the program's own cost, whatever of it
    exploring had to do anew.

    Attributes:
        path: The decisions.
        answer: The answer.
        em: Whether it is an exact match.
        f1: Token F1.
        retrievals: Searches.
        lm_calls: LM calls.
        prompt_tokens: Tokens of their prompts.
        completion_tokens: Tokens of their completions.
        passages_read: Passages put before the LM.
        new_calls: Those of the LM calls that no leaf explored before had made.
        new_retrievals: Likewise of the searches.
    """

    path: Path
    answer: str
    em: bool
    f1: float
    retrievals: int
    lm_calls: int
    prompt_tokens: int
    completion_tokens: int
    passages_read: int
    new_calls: int
    new_retrievals: int


@dataclass(frozen=True, slots=True)
class Tree:
    """All that was explored of one question.

    Attributes:
        id: Id of the question.
        nodes: The decisions, in the order in which they were met.
        leaves: The leaves, in the order in which they were explored. None if the question failed.
        exact: Whether every leaf that thresholds can lead to was explored.
        complete: Whether every leaf was, those included that one threshold a step cannot lead to.
        error: Why there are no leaves.
    """

    id: str
    nodes: tuple[Node, ...]
    leaves: tuple[Leaf, ...]
    exact: bool
    complete: bool
    error: Failure | None = None

    def intervals(self, path: Path) -> dict[Step, tuple[float, float]]:
        """The thresholds of each step that lead along a path: above the first number, up to the second.

        A step that nothing was decided at is left out. Thresholds are at most 0, as confidences are. Where the first
        number is not below the second, no threshold leads there.
        """
        found: dict[Step, tuple[float, float]] = {}
        for place, kept in path:
            node = self.nodes[place]
            low, high = found.get(node.step, (-math.inf, 0.0))
            found[node.step] = (low, min(high, node.mean)) if kept else (max(low, node.mean), high)
        return found

    def possible(self, path: Path) -> bool:
        """Whether thresholds, one a step, lead along a path."""
        return all(low < high for low, high in self.intervals(path).values())

    def leaf_at(self, thresholds: Mapping[str, float]) -> tuple[Leaf, bool]:
        """The leaf that thresholds lead to, and whether it is that one.

        Where it was not explored, the explored leaf is taken that shares most decisions with it from the root on.

        Args:
            thresholds: Threshold of each step, in nats.
        """
        left, position, exact = list(self.leaves), 0, True
        while len(left) > 1:
            node = left[0].path[position][0]
            kept = self.nodes[node].mean >= thresholds[self.nodes[node].step]
            same = [leaf for leaf in left if leaf.path[position][1] is kept]
            left, position, exact = same or left, position + 1, exact and bool(same)
        rest = left[0].path[position:]
        exact = exact and all(
            (self.nodes[node].mean >= thresholds[self.nodes[node].step]) is kept for node, kept in rest
        )
        return left[0], exact


@dataclass(frozen=True, slots=True)
class TreesHeader:
    """What trees were recorded with.

    Attributes:
        run: Program, LM, index and questions, as of a run file.
        steps: The steps whose decisions were explored.
        leaves: Limit on the leaves of a question.
        schema: Version of the file.
        kind: ``trees``.
    """

    run: RunHeader
    steps: tuple[Step, ...]
    leaves: int
    schema: int = SCHEMA
    kind: Literal["trees"] = "trees"


@cache
def header_adapter() -> TypeAdapter[TreesHeader]:
    """Checks and reads a header."""
    return TypeAdapter(TreesHeader)


@cache
def tree_adapter() -> TypeAdapter[Tree]:
    """Checks and reads a tree."""
    return TypeAdapter(Tree)


# Not in the class bodies, where they would become fields of the dataclasses.
for _class in (Node, Leaf, Tree, TreesHeader):
    _class.__pydantic_config__ = ConfigDict(extra="forbid", allow_inf_nan=False, strict=True)  # type: ignore[attr-defined]
