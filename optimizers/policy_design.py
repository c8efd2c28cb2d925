"""The weights of a policy as one vector while it is trained: from thresholds, and to a gate."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from ..core import InputError
from .curve import Array, Thresholds
from .policy import PolicyGate, Weight
from .policy_features import FEATURES, MEANS, OPTIONAL, SCALED, STEP_FLAGS, feature_matrix
from .tree_schema import Node

_DECIDED = 2.0
"""Median size of the logits of a step at the start: decided, and open enough to learn from."""


class Design:
    """Which features a policy has, and how they are standardised.

    Args:
        nodes: The decisions that means and scales are taken from.
        steps: The steps that it decides at.
        features: Those used beside the confidence and the step; ``None`` for all.

    Attributes:
        further: Which weights are neither of the confidence nor of the step, shape [weights].
        varying: Which of these tell decisions apart here; the others cannot be learnt.

    Raises:
        InputError: There is no such feature.
    """

    def __init__(self, nodes: Sequence[Node], steps: Sequence[str], features: Iterable[str] | None) -> None:
        if isinstance(features, str):
            raise InputError("`features` takes a list of names, not one name")
        wanted = set(FEATURES if features is None else features)
        if unknown := sorted(wanted - set(FEATURES)):
            raise InputError(f"`features`: there is no feature {unknown[0]!r}; there are {', '.join(FEATURES)}")
        self.steps = tuple(steps)
        own = {f"{kind}_{step}" for step in self.steps for kind in ("mean", "at")}
        others = set(MEANS) | set(STEP_FLAGS)
        self.names = [name for name in FEATURES if name in own or (name in wanted and name not in others)]
        self._places = [FEATURES.index(name) for name in self.names]
        self._optional = [place for place, name in enumerate(self.names) if name in OPTIONAL]
        values = feature_matrix(nodes)[:, self._places]
        known = [column[~np.isnan(column)] for column in values.T]
        measured = [name in SCALED and len(column) > 0 for name, column in zip(self.names, known, strict=True)]
        pairs = list(zip(known, measured, strict=True))
        self._mean = np.array([column.mean() if scaled else 0.0 for column, scaled in pairs])
        spread = np.array([column.std() if scaled else 1.0 for column, scaled in pairs])
        self._scale = np.where(spread > 1e-9, spread, 1.0)
        given = len(self._optional)
        self.further = np.array([name not in own for name in self.names] + [True] * given)
        self.varying = self.further & (np.ptp(self.columns(nodes), axis=0) > 1e-9 if nodes else False)

    def columns(self, nodes: Sequence[Node]) -> Array:
        """What is weighted for each decision, shape [decisions, weights]: features, then indicators of missing ones."""
        values = feature_matrix(nodes)[:, self._places]
        missing = np.isnan(values)
        scaled = np.where(missing, 0.0, (values - self._mean) / self._scale)
        return np.concatenate([scaled, missing[:, self._optional]], axis=1)

    def start(self, thresholds: Thresholds, nodes: Sequence[Node]) -> Array:
        """The weights of a policy that decides as thresholds do at some decisions, shape [weights].

        Args:
            thresholds: One a step, in nats.
            nodes: The decisions.
        """
        weights = np.zeros(len(self.further))
        for step in self.steps:
            place, flag = self.names.index(f"mean_{step}"), self.names.index(f"at_{step}")
            means = sorted({node.mean for node in nodes if node.step == step})
            tau, scale = _between(thresholds[step], means), self._scale[place]
            # Where the threshold is far from most confidences, a less steep policy decides alike.
            away = float(np.median(np.abs(np.array(means) - tau))) / scale if means else 1.0
            weights[place] = -_DECIDED / max(away, 1e-3)
            weights[flag] = -weights[place] * (tau - self._mean[place]) / scale
        return weights

    def gate(self, weights: Array) -> PolicyGate:
        """The policy of weights; features that do not count are left out."""
        missing = dict(zip(self._optional, weights[len(self.names) :].tolist(), strict=True))
        columns = zip(self.names, weights.tolist(), self._mean.tolist(), self._scale.tolist(), strict=False)
        found = {
            name: Weight(weight, mean, scale, missing.get(place, 0.0))
            for place, (name, weight, mean, scale) in enumerate(columns)
            if weight or missing.get(place)
        }
        return PolicyGate(found, self.steps)


def _between(tau: float, means: list[float]) -> float:
    """A threshold that decides alike and is no recorded confidence, so that rounding changes nothing."""
    if not means:
        return max(tau, -100.0)  # answers of less than exp(-100) a token do not occur
    tau = max(tau, means[0] - 1.0)
    if tau in means:
        below = [mean for mean in means if mean < tau]
        tau = (tau + below[-1]) / 2 if below else tau - 1.0
    return tau if math.isfinite(tau) else 0.0
