"""What a policy sees of an answer at stake, the same for a live draft and for a recorded decision.

A live draft is first made into the node that recording writes (:func:`observed`), and features are read off nodes
alone, so that a policy that was trained on a record meets the same numbers when it decides.

Confidences are features of their step, each with a weight of its own: the log-probabilities of an answer from memory
and of one read from passages mean different things. What a backend does not give, or an older file of trees lacks, is
missing, which is told by an indicator.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import get_args

import numpy as np

from ..core import InputError
from ..core.question_kinds import Kind, plainly_fits, question_kind
from ..evaluation.offtopic import off_topic
from ..evaluation.run_schema import QUESTION
from ..programs import Draft, Step
from ..programs.gates import echoes
from .curve import Array
from .tree_schema import Node

STEPS: tuple[Step, ...] = get_args(Step)
MEANS: tuple[str, ...] = tuple(f"mean_{step}" for step in STEPS)
"""Mean log-probability of the answer's tokens, in nats, by step; of other steps than the decision's it has no value."""

STEP_FLAGS: tuple[str, ...] = tuple(f"at_{step}" for step in STEPS)
"""1 for the decision's step."""

KIND_FLAGS: tuple[str, ...] = tuple(f"asks_{kind}" for kind in get_args(Kind))
"""1 for the kind of answer that the question or sub-question wants; none where its form does not tell."""

MEASURED: tuple[str, ...] = (
    "min",
    "first",
    "hop",
    "tokens",
    "words",
    "asked_words",
    "question_words",
    "passages",
    "score",
)
"""Least certain and first token (nats), position of the hop, tokens and words of the answer, words of what it answers
and of the whole question, passages found so far, and the retriever's best score of the last search."""

FLAGS: tuple[str, ...] = ("off_topic", "fits", "echo")
"""Whether the answer is of another kind than was asked for, is plainly of that kind, or only repeats the question."""

FEATURES: tuple[str, ...] = (*MEANS, *STEP_FLAGS, *MEASURED, *FLAGS, *KIND_FLAGS)
"""All features, in the order of :func:`features`."""

OPTIONAL: frozenset[str] = frozenset({*MEASURED, *FLAGS} - {"hop"})
"""Features that may be missing; each has an indicator."""

SCALED: frozenset[str] = frozenset({*MEANS, *MEASURED})
"""Features that are standardised; the others are 0 or 1."""


def observed(draft: Draft) -> Node | None:
    """An answer at stake as a decision, without what is not known when deciding: whether it is right.

    Args:
        draft: The answer at stake.

    Returns:
        The node; ``None`` for an answer without a confidence, which no threshold and no policy keeps.
    """
    confidence = draft.confidence
    if confidence is None or confidence.mean is None or not math.isfinite(confidence.mean):
        return None
    trajectory, hops = draft.trajectory, len(draft.trajectory.hops)
    found = [hop.passages for hop in trajectory.hops if hop.passages]
    return Node(
        step=draft.step,
        hop={"hop": hops, "final": hops - 1}.get(draft.step, 0),
        text=draft.text,
        mean=confidence.mean,
        min=_number(confidence.min),
        first=_number(confidence.first),
        tokens=confidence.tokens,
        asked_words=len(draft.sub_question.split()),
        score=_number(found[-1][0].score) if found else None,
        off_topic=off_topic(draft.sub_question, draft.text),
        words=len(draft.text.split()),
        question_words=len(trajectory.question.split()),
        passages=sum(map(len, found)),
        kind=question_kind(draft.sub_question),
        fits=plainly_fits(draft.sub_question, draft.text),
        echo=echoes(draft.text, draft.sub_question),
    )


def features(decision: Node | Draft) -> Array:
    """The features of a decision, shape [features], in the order of :data:`FEATURES`; NaN where one has no value.

    Args:
        decision: A recorded decision, or an answer at stake.

    Raises:
        InputError: A draft has no confidence.
    """
    node = observed(decision) if isinstance(decision, Draft) else decision
    if node is None:
        raise InputError("an answer without a confidence has no features")
    words = node.words
    if words is None and node.text and QUESTION not in node.text:
        words = len(node.text.split())
    values: dict[str, float | None] = {
        "min": node.min,
        "first": node.first,
        "hop": node.hop,
        # A record that was made of runs or of drafts alone does not count these, and neither is ever 0.
        "tokens": node.tokens or None,
        "words": words,
        "asked_words": node.asked_words or None,
        "question_words": node.question_words,
        "passages": node.passages,
        "score": node.score,
        "off_topic": node.off_topic,
        "fits": node.fits,
        "echo": node.echo,
        f"mean_{node.step}": node.mean,
        **{flag: flag == f"at_{node.step}" for flag in STEP_FLAGS},
        **{flag: flag == f"asks_{node.kind}" for flag in KIND_FLAGS},
    }
    found = np.array([math.nan if (value := values.get(name)) is None else float(value) for name in FEATURES])
    found[~np.isfinite(found)] = math.nan
    return found


def feature_matrix(nodes: Sequence[Node]) -> Array:
    """The features of many decisions, shape [decisions, features]."""
    return np.stack([features(node) for node in nodes]) if nodes else np.zeros((0, len(FEATURES)))


def _number(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(value)
