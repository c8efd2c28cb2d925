"""Which questions a policy is trained on, and which are held out."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from ..core import InputError
from .curve import Boxes, Score
from .policy_trees import Decisions
from .tree_files import Trees, trees_of
from .tree_schema import Tree


def split(
    everything: Boxes, validation: Trees | Iterable[Tree] | float | None, score: Score, seed: int
) -> tuple[Decisions, Decisions | None]:
    """The trees to train on, and those held out.

    Args:
        everything: The trees given.
        validation: Trees of other questions, or the share of the questions to hold out; ``None`` holds none out.
        score: What is averaged.
        seed: Of the draw.

    Raises:
        InputError: The share is out of range, or the trees held out share a question or have a step that the others
            lack.
    """
    if validation is None:
        return Decisions(everything), None
    if isinstance(validation, int | float):
        n = len(everything.trees)
        if isinstance(validation, bool) or not 0 < validation < 1:
            raise InputError(f"`validation` as a share is above 0 and below 1, got {validation!r}")
        if n < 2:
            raise InputError("one question cannot be split; give trees of more, or `validation=None` to hold none out")
        count = min(max(1, round(validation * n)), n - 1)
        order = np.random.default_rng(seed).permutation(n)
        parts = (sorted(order[count:].tolist()), sorted(order[:count].tolist()))
        train, held = (Boxes([everything.trees[place] for place in part], score) for part in parts)
        return Decisions(train), Decisions(held)
    held = Boxes(trees_of(validation, "validation"), score)
    check_decisions(held)
    if shared := {tree.id for tree in everything.trees} & {tree.id for tree in held.trees}:
        raise InputError(f"`validation`: {len(shared)} questions are also trained on, such as {min(shared)!r}")
    if more := [step for step in held.steps if step not in everything.steps]:
        raise InputError(f"`validation`: has decisions at the step {more[0]!r}, and the trees to train on have none")
    return Decisions(everything), Decisions(held)


def check_decisions(boxes: Boxes) -> None:
    """Refuse trees that nothing can be learnt from.

    Raises:
        InputError: A confidence is no log-probability, or no decision was explored both ways.
    """
    for tree in boxes.trees:
        for node in tree.nodes:
            if not -math.inf < node.mean <= 0:
                raise InputError(
                    f"question {tree.id!r}: a confidence is a mean log-probability, finite and at most 0, and not "
                    f"{node.mean!r}"
                )
    if not Decisions(boxes).forks.any():
        raise InputError("no decision was explored both ways, so there is nothing to learn; explore more leaves")
