"""What a joint optimisation may take, before it begins."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import dspy

from ..programs import Escalation, Step
from .compiled_recording import most_calls
from .joint_record import has_thresholds
from .joint_work import LEARNED
from .nested import decider_in
from .tree_schema import Tree


@dataclass(frozen=True, slots=True)
class Estimate:
    """From the least to the most; what cannot be known beforehand is ``None``.

    Attributes:
        candidates: Candidates, the original one among them.
        questions: Questions that all of them answer together, validation included.
        lm_calls: LM calls, those of proposing prompts included where they can be told.
        searches: Searches.
        tokens: Tokens; known from a probe alone.
        seconds: Likewise.
        probed: Questions of the probe; 0 if the estimate is a formula's worst case.
    """

    candidates: int
    questions: tuple[int, int]
    lm_calls: tuple[int, int | None]
    searches: tuple[int, int | None]
    tokens: tuple[int, int] | None = None
    seconds: tuple[float, float] | None = None
    probed: int = 0


def estimate_of(
    program: dspy.Module,
    *,
    candidates: int,
    rungs: Sequence[int],
    finalists: int,
    validation: int,
    leaves: int,
    steps: Collection[Step] | None = None,
    proposing: tuple[int, int],
    probe: Sequence[Tree] = (),
    seconds: float = 0.0,
    tokens: int = 0,
) -> Estimate:
    """Bounds from the number of questions and what one of them takes.

    Args:
        program: The program.
        candidates: Candidates, the original one among them.
        rungs: Questions after which candidates are compared.
        finalists: Candidates that answer the validation questions, the original one aside.
        validation: Validation questions.
        leaves: Limit on the leaves of a tree.
        steps: The steps whose decisions are explored; all by default.
        proposing: Questions that bootstrapping answers, and LM calls that writing instructions takes, at most.
        probe: Trees of the original program; what they took stands for all.
        seconds: What the probe took.
        tokens: Likewise.
    """
    low = candidates * rungs[0] + (2 * validation)
    high = candidates * rungs[-1] + (1 + finalists) * validation
    answered, written = proposing
    if probe:
        calls = [sum(leaf.new_calls for leaf in tree.leaves) for tree in probe]
        found = [sum(leaf.new_retrievals for leaf in tree.leaves) for tree in probe]
        n = len(probe)
        # Questions differ: from the probe's mean to its dearest question.
        return Estimate(
            candidates,
            (low, high),
            (round(low * sum(calls) / n), (high + answered) * max(calls) + written),
            (round(low * sum(found) / n), (high + answered) * max(found)),
            (round(low * tokens / n), round((high + answered) * 1.5 * tokens / n)),
            (low * seconds / n, (high + answered) * 1.5 * seconds / n),
            n,
        )
    one = _worst(program)
    if one is None:
        return Estimate(candidates, (low, high), (low, None), (0, None))
    calls, searches = one
    # Each step of the whole question is decided on once.
    most = leaves if steps is None or {"hop", "final"} & set(steps) else 1 + len(steps)
    trees = min(leaves, most) if has_thresholds(program) else 1
    return Estimate(
        candidates,
        (low, high),
        (low, high * calls * trees + answered * calls + written),
        (0, high * searches * trees + answered * searches),
    )


def proposing_of(
    program: dspy.Module, learning: int, demo_sets: int, instructions: str | None, instruction_sets: int
) -> tuple[int, int]:
    """Questions that proposing prompts answers, and LM calls that it writes with, at most."""
    few, predictors = min(learning, LEARNED), len(program.predictors())
    answered = {"copro": few * (instruction_sets + 1) * predictors, "gepa": few * (instruction_sets + 1)}
    # MIPROv2 also summarises the data and the program; GEPA reflects on minibatches of three, each tried twice.
    answered["gepa"] = answered["gepa"] + 6 * instruction_sets
    written = {"mipro": (instruction_sets + 2) * predictors + 10, "copro": predictors, "gepa": 6 * instruction_sets}
    return demo_sets * learning + answered.get(instructions or "", 0), written.get(instructions or "", 0)


def _worst(program: dspy.Module) -> tuple[int, int] | None:
    """LM calls and searches that one answer takes at most; ``None`` for programs without a formula."""
    decider = decider_in(program)
    if decider is None or decider is not program:
        return None
    settings = decider.settings.values
    searches = settings.max_hops + (settings.grounded if isinstance(decider, Escalation) else 0)
    return most_calls(decider, settings), searches
