"""Calibration: from the confidence of an answer to the probability that it is right, for each source of answers.

A mean log-probability says how sure an LM is of its words, which is not how often it is right, and differs from LM to
LM and between answers from memory and from passages. A calibrator is fitted on answers whose correctness is known: some
fifty questions do, so that thresholds stated as probabilities can be carried over to another LM.

- ``platt``: logistic regression on the mean log-probability (Platt 1999).
- ``isotonic``: isotonic regression (Zadrozny and Elkan 2002); needs more data, and follows it closely.
- ``temperature``: exp(mean / T), one parameter (after Guo et al. 2017, section 4.2, for whole answers).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal, get_args

import numpy as np
from dspy.predict.parameter import Parameter
from pydantic import ConfigDict, Strict, TypeAdapter

from ..core import InputError
from ..programs import Draft, ThresholdGate
from .gate_state import reading
from .tree_files import Trees, trees_of
from .tree_schema import Tree

Method = Literal["platt", "isotonic", "temperature"]
VERSION = 1
_Number = Annotated[float, Strict()]
_ANY = ThresholdGate(-math.inf)


@dataclass(frozen=True, slots=True)
class Calibrator:
    """Maps a mean log-probability, in nats, to the probability that the answer is right. It never falls.

    Attributes:
        method: How it was fitted.
        x: ``isotonic``: mean log-probabilities, ascending; otherwise empty.
        y: ``isotonic``: their probabilities, in between interpolated; ``platt``: slope and intercept; ``temperature``:
            the temperature.
        n: Answers that it was fitted on.
    """

    __pydantic_config__ = ConfigDict(extra="forbid", allow_inf_nan=False)

    method: Method
    x: tuple[_Number, ...]
    y: tuple[_Number, ...]
    n: Annotated[int, Strict()]

    def __post_init__(self) -> None:
        wanted = {"platt": 2, "temperature": 1}.get(self.method, len(self.x))
        if len(self.y) != wanted or not self.y or (self.method != "isotonic" and self.x):
            raise ValueError(f"a calibrator of the method {self.method!r} has other parameters than {self.y!r}"[:200])
        if (self.method == "temperature" and self.y[0] <= 0) or (self.method == "platt" and self.y[0] < 0):
            raise ValueError(f"a calibrator of the method {self.method!r} cannot fall")
        if any(list(values) != sorted(values) for values in (self.x, self.y if self.method == "isotonic" else ())):
            raise ValueError("the points of an isotonic calibrator ascend")

    def __call__(self, mean: float) -> float:
        """The probability for a mean log-probability."""
        if self.method == "isotonic":
            return float(np.interp(mean, self.x, self.y))
        if self.method == "temperature":
            return math.exp(min(0.0, mean) / self.y[0])
        from scipy.special import expit

        return float(expit(self.y[0] * mean + self.y[1]))


@dataclass(frozen=True, slots=True)
class Quality:
    """How good probabilities are.

    Attributes:
        n: Answers.
        ece: Expected calibration error: mean distance of probability and share right over ten bins of equal width.
        brier: Mean squared distance of probability and outcome (Brier 1950).
        auroc: Probability that a right answer is above a wrong one; ``None`` where all are right, or none is.
        risk_coverage: Share of the answers that are kept, most probable ones first, and the share of these that is
            wrong; one pair for each probability that occurs (El-Yaniv and Wiener 2010).
    """

    n: int
    ece: float
    brier: float
    auroc: float | None
    risk_coverage: tuple[tuple[float, float], ...]

    def to_dict(self) -> dict[str, Any]:
        """A JSON object."""
        return asdict(self)


def fit_calibrator(means: Sequence[float], right: Sequence[bool], *, method: Method = "platt") -> Calibrator:
    """Fit a calibrator on answers whose correctness is known.

    Args:
        means: Mean log-probabilities, in nats.
        right: Whether each answer is right.
        method: See the module's description.

    Raises:
        InputError: There are fewer than two answers, all are right or all wrong, the lengths differ, a value is no
            log-probability, or there is no such method.
    """
    if method not in get_args(Method):
        raise InputError(f"`method` must be one of {', '.join(get_args(Method))}, got {method!r}")
    x, y = _checked(means, right)
    if y.all() or not y.any():
        raise InputError(
            f"all {len(y)} answers are {'right' if y.all() else 'wrong'}: more questions are needed to fit"
        )
    if method == "isotonic":
        from sklearn.isotonic import IsotonicRegression

        fitted = IsotonicRegression(y_min=0.0, y_max=1.0, out_of_bounds="clip").fit(x, y)
        return Calibrator(method, _floats(fitted.X_thresholds_), _floats(fitted.y_thresholds_), len(y))
    if method == "temperature":
        from scipy.optimize import minimize_scalar

        def loss(log_temperature: float) -> float:
            chance = np.clip(np.exp(np.minimum(x, 0.0) / math.exp(log_temperature)), 1e-9, 1 - 1e-9)
            return float(-np.mean(np.where(y, np.log(chance), np.log1p(-chance))))

        found: Any = minimize_scalar(loss, bounds=(-7.0, 7.0), method="bounded")
        return Calibrator(method, (), (math.exp(float(found.x)),), len(y))
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression().fit(x[:, None], y)
    slope, intercept = float(model.coef_[0, 0]), float(model.intercept_[0])
    if slope < 0:
        # Less sure answers are right more often here: noise, or a confidence that tells nothing.
        share = float(np.clip(y.mean(), 1e-9, 1 - 1e-9))
        slope, intercept = 0.0, math.log(share / (1 - share))
    return Calibrator(method, (), (slope, intercept), len(y))


def calibrate(trees: Trees | Iterable[Tree], *, method: Method = "platt") -> dict[str, Calibrator]:
    """A calibrator for each step, from the answers at stake in recorded trees whose correctness is known.

    Args:
        trees: Recorded trees.
        method: As of :func:`fit_calibrator`.

    Raises:
        InputError: No step has both right and wrong answers, there is no such method, or two trees are of one question.
    """
    found: dict[str, Calibrator] = {}
    for step, (means, right) in answers_at_stake(trees).items():
        if len(set(right)) == 2:
            found[step] = fit_calibrator(means, right, method=method)
    if not found:
        raise InputError("no step has both right and wrong answers: more questions are needed to fit")
    return found


def answers_at_stake(trees: Trees | Iterable[Tree]) -> dict[str, tuple[list[float], list[bool]]]:
    """Mean log-probabilities of the answers at stake, and whether they are right, by step.

    Raises:
        InputError: There are no trees, or two are of one question.
    """
    found: dict[str, tuple[list[float], list[bool]]] = {}
    for tree in trees_of(trees):
        for node in tree.nodes:
            if node.right is not None:
                means, right = found.setdefault(node.step, ([], []))
                means.append(node.mean)
                right.append(node.right)
    return found


def quality(probabilities: Sequence[float], right: Sequence[bool]) -> Quality:
    """How good probabilities are, best measured on other answers than they were fitted on.

    Raises:
        InputError: There are none, the lengths differ, or a value is not between 0 and 1.
    """
    p, y = np.asarray(probabilities, dtype=float), np.asarray(right, dtype=bool)
    if len(p) != len(y) or not len(p):
        raise InputError(f"as many outcomes as probabilities are needed, and some: {len(y)} and {len(p)}")
    if not ((p >= 0) & (p <= 1)).all():
        raise InputError("probabilities are between 0 and 1")
    from sklearn.metrics import brier_score_loss, roc_auc_score

    bins = np.minimum((p * 10).astype(int), 9)
    gaps = [abs(p[bins == place].mean() - y[bins == place].mean()) * (bins == place).mean() for place in set(bins)]
    kept = [p >= limit for limit in sorted(set(p.tolist()), reverse=True)]
    mixed = y.any() and not y.all()
    return Quality(
        n=len(p),
        ece=float(sum(gaps)),
        brier=float(brier_score_loss(y, p, pos_label=True)),
        auroc=float(roc_auc_score(y, p)) if mixed else None,
        risk_coverage=tuple((float(mask.mean()), float(1 - y[mask].mean())) for mask in kept),
    )


@dataclass(frozen=True, slots=True)
class _Saved:
    calibrators: dict[str, Calibrator]


class CalibratedGate(Parameter):
    """Keeps an answer that is right with at least a given probability, by the calibrator of its step.

    It is saved, loaded and copied with the program that it is given to. To load one, give an empty gate to the new
    program first.

    Args:
        probability: The least probability of being right, between 0 and 1.
        calibrators: The calibrators by step; without any, the gate must be loaded before it can decide.

    Raises:
        InputError: The probability is out of range.

    Example:
        >>> gate = CalibratedGate(0.5, {"hop": Calibrator("temperature", (), (1.0,), 10)})
        >>> gate.tau("hop")
        -0.693...
    """

    needs_draft = True
    needs_confidence = True

    def __init__(self, probability: float = 0.5, calibrators: Mapping[str, Calibrator] | None = None) -> None:
        self.probability = _probability(probability)
        self.calibrators = dict(calibrators or {})

    def keeps(self, draft: Draft) -> bool:
        """See :class:`hopgate.programs.Gate`.

        Raises:
            InputError: The draft's step has no calibrator.
        """
        calibrator = self._of(draft.step)
        mean = None if draft.confidence is None else draft.confidence.mean
        return mean is not None and calibrator(mean) >= self.probability and _ANY.keeps(draft)

    def tau(self, step: str) -> float | None:
        """The threshold on the mean log-probability that comes to the same, in nats; ``None`` where nothing is kept.

        Raises:
            InputError: The step has no calibrator.
        """
        calibrator = self._of(step)
        if calibrator(0.0) < self.probability:
            return None
        low, high = -100.0, 0.0  # answers of less than exp(-100) a token do not occur
        if calibrator(low) >= self.probability:
            return low
        while high - low > 1e-9:
            middle = (low + high) / 2
            low, high = (low, middle) if calibrator(middle) >= self.probability else (middle, high)
        return high

    def _of(self, step: str) -> Calibrator:
        if step not in self.calibrators:
            raise InputError(
                f"the gate has no calibrator for the step {step!r}; fit one, or give the step another gate"
            )
        return self.calibrators[step]

    def reset(self) -> None:
        """Keep everything: it is fitted, not bootstrapped."""

    def dump_state(self, json_mode: bool = True) -> dict[str, Any]:
        """The gate as a JSON object with a version."""
        written = {step: asdict(calibrator) for step, calibrator in self.calibrators.items()}
        for calibrator in written.values():
            calibrator.update(x=list(calibrator["x"]), y=list(calibrator["y"]))
        return {"version": VERSION, "probability": self.probability, "calibrators": written}

    def load_state(self, state: dict[str, Any]) -> None:
        """Take what was saved.

        Raises:
            StateError: The state is of a newer version or does not fit.
        """
        with reading(state, "a saved calibrated gate", VERSION):
            named = {"calibrators": state.get("calibrators")}
            calibrators = TypeAdapter(_Saved).validate_python(named).calibrators
            probability = _probability(state.get("probability"))
        self.calibrators, self.probability = calibrators, probability


def _probability(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise InputError(f"`probability` must be between 0 and 1, got {value!r}")
    return float(value)


def _checked(means: Sequence[float], right: Sequence[bool]) -> tuple[Any, Any]:
    x, y = np.asarray(means, dtype=float), np.asarray(right, dtype=bool)
    if len(x) != len(y) or len(x) < 2:
        raise InputError(f"as many outcomes as confidences are needed, and two at least: {len(y)} and {len(x)}")
    if not (np.isfinite(x) & (x <= 0)).all():
        raise InputError("confidences are mean log-probabilities: finite numbers of at most 0")
    return x, y


def _floats(values: Any) -> tuple[float, ...]:
    return tuple(float(value) for value in values)
