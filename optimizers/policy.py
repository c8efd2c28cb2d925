"""A learned policy as a gate: logistic over named features of the answer at stake.

P(going on) = 1 / (1 + exp(-z)), where z is a weighted sum of the standardised features. When it decides, the gate is
deterministic: it keeps an answer where going on is less likely than not. With weights on the confidence and the step
alone it is a threshold for each step, from which training starts (:func:`hopgate.optimizers.train_policy`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any, get_args

import numpy as np
from dspy.predict.parameter import Parameter
from pydantic import ConfigDict, Field, Strict, TypeAdapter

from ..core import InputError
from ..programs import Draft, Step, ThresholdGate
from .curve import Array
from .gate_state import reading
from .policy_features import FEATURES, feature_matrix, observed
from .tree_schema import Node

VERSION = 1
_MOST = 1e15
_SMALLEST, _WIDEST = 1e-12, 1e12
_Number = Annotated[float, Strict(), Field(ge=-_MOST, le=_MOST)]
_ANY = ThresholdGate(-math.inf)


@dataclass(frozen=True, slots=True)
class Weight:
    """How one feature counts.

    Attributes:
        weight: Logits towards going on for each ``scale`` above the ``mean``.
        mean: What is subtracted from the feature.
        scale: What it is divided by then; above 0.
        missing: Logits towards going on where the feature has no value.

    Raises:
        InputError: The scale is below 1e-12 or above 1e12, or another number is further from 0 than 1e15, so that sums
            of them may not be finite; or one is no number.
    """

    __pydantic_config__ = ConfigDict(extra="forbid", allow_inf_nan=False)

    weight: _Number
    mean: _Number = 0.0
    scale: Annotated[float, Strict(), Field(ge=_SMALLEST, le=_WIDEST)] = 1.0
    missing: _Number = 0.0

    def __post_init__(self) -> None:
        # Files are checked by the types above, whose errors tell the feature.
        for name in ("weight", "mean", "scale", "missing"):
            value = getattr(self, name)
            least, most = (_SMALLEST, _WIDEST) if name == "scale" else (-_MOST, _MOST)
            if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
                raise InputError(f"the `{name}` of a feature is a number of {least:g} to {most:g}, got {value!r:.60}")


@dataclass(frozen=True, slots=True)
class _Saved:
    features: dict[str, Weight]
    steps: list[str]


_FIELDS = ("features", "steps")


class PolicyGate(Parameter):
    """Keeps an answer where a logistic policy finds going on less likely than not.

    It is saved, loaded and copied with the program that it is given to. To load one, give an empty gate to the new
    program first. As for a threshold, an answer without a confidence is not kept, nor a draft that only repeats words
    of the sub-question.

    Args:
        weights: The features that count, by name; without any, the gate must be loaded before it can decide.
        steps: The steps that it was trained for.

    Raises:
        InputError: There is no such feature or step, or a weight is no :class:`Weight`.

    Example:
        >>> gate = PolicyGate({"mean_hop": Weight(-10.0), "at_hop": Weight(-3.0)}, ["hop"])  # a threshold of -.3
        >>> gate.probability(Node("hop", 0, "Ivar", -0.3))
        0.5
    """

    needs_draft = True
    needs_confidence = True

    def __init__(self, weights: Mapping[str, Weight] | None = None, steps: Iterable[str] = ()) -> None:
        self.weights, self.steps = _checked({} if weights is None else weights, steps)

    def keeps(self, draft: Draft) -> bool:
        """See :class:`hopgate.programs.Gate`.

        Raises:
            InputError: The gate was not trained for the draft's step.
        """
        self._check(draft.step)
        node = observed(draft)
        return node is not None and bool(self.logits([node])[0] < 0) and _ANY.keeps(draft)

    def probability(self, decision: Node | Draft) -> float:
        """The probability of going on at a decision; 1 for an answer without a confidence.

        Raises:
            InputError: The gate was not trained for the decision's step.
        """
        self._check(decision.step)
        node = observed(decision) if isinstance(decision, Draft) else decision
        if node is None:
            return 1.0
        from scipy.special import expit

        return float(expit(self.logits([node])[0]))

    def logits(self, nodes: Sequence[Node]) -> Array:
        """The log-odds of going on at decisions, in nats, shape [decisions].

        Raises:
            InputError: The gate was not trained for the step of one of them.
        """
        for step in {node.step for node in nodes}:
            self._check(step)
        values = feature_matrix(nodes)
        total = np.zeros(len(nodes))
        for name, given in self.weights.items():
            column = values[:, FEATURES.index(name)]
            known = np.where(np.isnan(column), given.mean, column)
            total += given.weight * (known - given.mean) / given.scale + given.missing * np.isnan(column)
        return total

    def _check(self, step: str) -> None:
        if step not in self.steps:
            trained = f"it was trained for {', '.join(self.steps)}" if self.steps else "it is empty"
            raise InputError(
                f"the policy cannot decide at the step {step!r}: {trained}; train or load one that can, or give the "
                "step another gate"
            )

    def reset(self) -> None:
        """Keep everything: it is trained, not bootstrapped."""

    def dump_state(self, json_mode: bool = True) -> dict[str, Any]:
        """The gate as a JSON object with a version."""
        written = {name: asdict(weight) for name, weight in self.weights.items()}
        return {"version": VERSION, "steps": list(self.steps), "features": written}

    def load_state(self, state: dict[str, Any]) -> None:
        """Take what was saved.

        Raises:
            StateError: The state is of a newer version or does not fit.
        """
        with reading(state, "a saved policy", VERSION):
            saved = TypeAdapter(_Saved).validate_python({name: state[name] for name in _FIELDS if name in state})
            self.weights, self.steps = _checked(saved.features, saved.steps)


def _checked(weights: Mapping[str, Weight], steps: Iterable[str]) -> tuple[dict[str, Weight], tuple[Step, ...]]:
    if not isinstance(weights, Mapping):
        raise InputError(f"`weights` takes a Weight for each feature by name, got {weights!r:.60}")
    if unknown := [name for name in weights if name not in FEATURES]:
        raise InputError(f"there is no feature {unknown[0]!r}; there are {', '.join(FEATURES)}")
    for name, weight in weights.items():
        if not isinstance(weight, Weight):
            raise InputError(f"`weights`: {name!r} takes a Weight, such as Weight(-10.0), got {weight!r:.60}")
    if isinstance(steps, str) or not isinstance(steps, Iterable):
        raise InputError(f"`steps` takes a list of steps, such as ['hop'], got {steps!r:.60}")
    named = list(steps)
    if wrong := [step for step in named if step not in get_args(Step)]:
        raise InputError(f"there is no step {wrong[0]!r}; there are {', '.join(get_args(Step))}")
    return dict(weights), tuple(step for step in get_args(Step) if step in named)
