"""Intervals, paired tests and sample sizes, all seeded: the same values give the same figures to the last digit.

Everything is about *questions* as the unit of sampling: one value a question, and for two runs one difference a
question, since both answered the same ones. scipy does the resampling; what is written here is the choice of design.
NumPy may change its random streams between versions, so that figures that are to be remade byte for byte need the
versions that made them.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..core import InputError

SEED = 0
LEVEL = 0.95
RESAMPLES = 9999
_CELLS = 4_000_000
"""Numbers that are held at once while resampling."""


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with its interval.

    Attributes:
        value: The estimate; ``None`` where there is nothing to estimate it from.
        low: Lower end; ``None`` where resampling says nothing: fewer than two values, or all alike.
        high: Upper end.
        n: Questions (or other units) that it is estimated from.
    """

    value: float | None
    low: float | None
    high: float | None
    n: int


@dataclass(frozen=True, slots=True)
class PairedTest:
    """Two runs on the same questions.

    Attributes:
        difference: Mean of the run's value less the baseline's, with its interval.
        p_value: Two-sided permutation p-value; 1 where the runs agree on every question.
        better: Questions on which the run has the higher value.
        worse: Questions on which it has the lower one.
        mean_square: Mean of the squared differences; for a metric that is 0 or 1 the share of questions on which the
            runs disagree (the discordance), from which :func:`needed_questions` starts.
    """

    difference: Interval
    p_value: float | None
    better: int
    worse: int
    mean_square: float


def mean_interval(values: Sequence[float], *, level: float = LEVEL, seed: int = SEED) -> Interval:
    """A mean with its bootstrap interval (percentile method; Efron and Tibshirani 1993, chapter 13).

    Args:
        values: One value a question.
        level: Confidence level, between 0 and 1.
        seed: Of the resampling.

    Returns:
        The mean. Where all values are alike, resampling can only repeat them, and there are no ends rather than two
        that look certain.

    Raises:
        InputError: A value is not finite, or ``level`` is not between 0 and 1.
    """
    data = _checked(values, level)
    if not len(data):
        return Interval(None, None, None, 0)
    return _bootstrap((data,), _mean, float(data.mean()), level, seed)


def paired_test(
    values: Sequence[float], baseline: Sequence[float], *, level: float = LEVEL, seed: int = SEED
) -> PairedTest:
    """Compare two runs question by question.

    The interval is a bootstrap over questions. The p-value is of the hypothesis that the two values of each question
    could as well be swapped (Fisher's randomisation test for paired samples; Noreen 1989): signs of the differences are
    flipped at random, or in all ways where these are at most 9,999. Questions on which the runs agree cannot change the
    sum and take no part in it.

    Args:
        values: One value a question.
        baseline: The baseline's, in the same order.
        level: Confidence level of the interval.
        seed: Of the resampling.

    Raises:
        InputError: The lengths differ, or a value is not finite.
    """
    ours, theirs = _checked(values, level), _checked(baseline, level)
    if len(ours) != len(theirs):
        raise InputError(f"paired values are needed, got {len(ours)} and {len(theirs)}; keep the common questions only")
    if not len(ours):
        return PairedTest(Interval(None, None, None, 0), None, 0, 0, 0.0)
    differences = ours - theirs
    return PairedTest(
        difference=mean_interval(differences.tolist(), level=level, seed=seed),
        p_value=_sign_flips(differences[differences != 0], seed),
        better=int((differences > 0).sum()),
        worse=int((differences < 0).sum()),
        mean_square=float((differences**2).mean()),
    )


def slope_test(
    steps: Sequence[float], values: Sequence[float], *, level: float = LEVEL, seed: int = SEED
) -> tuple[Interval, float | None]:
    """Slope of values against steps (least squares): do they grow, and by how much a step?

    Args:
        steps: One number a question, such as its hops.
        values: One value a question, such as the gain over a baseline.
        level: Confidence level.
        seed: Of the resampling.

    Returns:
        The slope with its bootstrap interval, and the two-sided permutation p-value of no association. Without two
        different steps there is neither.

    Raises:
        InputError: The lengths differ, or a value is not finite.
    """
    x, y = _checked(steps, level), _checked(values, level)
    if len(x) != len(y):
        raise InputError(f"one step a value is needed, got {len(x)} and {len(y)}")
    if len(set(x.tolist())) < 2:
        return Interval(None, None, None, len(x)), None
    slope = float(_slope(x, y))
    interval = _bootstrap((x, y), _slope, slope, level, seed)
    if len(set(y.tolist())) < 2:
        return interval, 1.0
    from scipy.stats import permutation_test

    found = permutation_test(
        (y,),
        lambda moved, axis=-1: _slope(np.broadcast_to(x, moved.shape), moved, axis),
        permutation_type="pairings",
        vectorized=True,
        n_resamples=RESAMPLES,
        batch=_batch(len(x)),
        rng=np.random.default_rng(seed),
    )
    return interval, float(found.pvalue)


def share_interval(hits: int, n: int, *, level: float = LEVEL) -> Interval:
    """A share with Wilson's score interval (1927), which also holds for few cases and for shares of 0 and 1.

    Args:
        hits: Cases that count.
        n: All cases.
        level: Confidence level.
    """
    if n == 0:
        return Interval(None, None, None, 0)
    from scipy.stats import binomtest

    found = binomtest(hits, n).proportion_ci(level, method="wilson")
    return Interval(hits / n, float(found.low), float(found.high), n)


def bootstrap_interval(
    samples: Sequence[Sequence[float] | np.ndarray], statistic: Any, *, level: float = LEVEL, seed: int = SEED
) -> Interval:
    """The bootstrap interval of any statistic of several values a question, which are resampled together.

    Args:
        samples: Several sequences of one value a question each, in the same order of questions.
        statistic: ``statistic(*samples, axis=-1)``, vectorised over leading axes.
        level: Confidence level.
        seed: Of the resampling.

    Raises:
        InputError: The lengths differ, or a value is not finite.
    """
    data = tuple(_checked(values, level) for values in samples)
    if len({len(values) for values in data}) != 1:
        raise InputError(f"samples of one length are needed, got {[len(values) for values in data]}")
    if not len(data[0]):
        return Interval(None, None, None, 0)
    return _bootstrap(data, statistic, float(statistic(*data)), level, seed)


def needed_questions(difference: float, mean_square: float, *, level: float = LEVEL, power: float = 0.8) -> int:
    """How many questions a paired comparison needs to see a difference.

    Connor (1987), "Sample size for testing differences in proportions for the paired-sample design", equation 1: with
    the share p of discordant questions and a true difference d, n = (z_a sqrt(p) + z_b sqrt(p - d^2))^2 / d^2. For
    metrics other than 0 and 1 the mean squared difference stands in for p, which it is for those.

    Args:
        difference: The true difference to be seen, as a fraction: 0.05 for 5 points.
        mean_square: Observed mean squared difference; a difference of d needs at least a discordance of d, which is
            taken where less was observed.
        level: 1 less the two-sided error of the first kind.
        power: Probability to see the difference if it is there.

    Raises:
        InputError: A value is out of range.
    """
    for name, value in (("level", level), ("power", power)):
        if not 0 < value < 1:
            raise InputError(f"`{name}` must be between 0 and 1, got {value!r}")
    if not (math.isfinite(difference) and 0 < abs(difference) <= 1):
        raise InputError(f"`difference` must be a fraction between 0 and 1 (0.05 for 5 points), got {difference!r}")
    if not (math.isfinite(mean_square) and mean_square >= 0):
        raise InputError(f"`mean_square` must be 0 or more, got {mean_square!r}")
    from scipy.stats import norm

    size = abs(difference)
    spread = max(mean_square, size)
    a, b = float(norm.ppf(1 - (1 - level) / 2)), float(norm.ppf(power))
    # The variance under the alternative cannot be negative; a weak power (b < 0) is no reason to subtract.
    root = a * math.sqrt(spread) + b * math.sqrt(max(0.0, spread - size**2))
    return math.ceil(max(0.0, root) ** 2 / size**2)


def _mean(values: Any, axis: int = -1) -> Any:
    return np.mean(values, axis=axis)


def _slope(x: Any, y: Any, axis: int = -1) -> Any:
    centred = x - np.mean(x, axis=axis, keepdims=True)
    spread = np.sum(centred**2, axis=axis)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.sum(centred * y, axis=axis) / spread


def _checked(values: Sequence[float] | np.ndarray, level: float) -> np.ndarray[Any, np.dtype[np.float64]]:
    if not 0 < level < 1:
        raise InputError(f"`level` must be between 0 and 1, got {level!r}")
    data = np.asarray(values, dtype=float)
    if not np.isfinite(data).all():
        raise InputError("all values must be finite numbers; leave out the questions that have none")
    return data


def _batch(n: int) -> int:
    return max(1, _CELLS // max(1, n))


def _bootstrap(data: tuple[Any, ...], statistic: Any, value: float, level: float, seed: int) -> Interval:
    n = len(data[0])
    if n < 2 or all((values == values[0]).all() for values in data):
        return Interval(value, None, None, n)
    from scipy.stats import bootstrap

    with warnings.catch_warnings():
        # Resamples without a value (a slope of one step only) give no ends, which is said by None.
        warnings.simplefilter("ignore")
        found = bootstrap(
            data,
            statistic,
            paired=True,
            vectorized=True,
            n_resamples=RESAMPLES,
            batch=_batch(n),
            confidence_level=level,
            method="percentile",
            rng=np.random.default_rng(seed),
        ).confidence_interval
    low, high = float(found.low), float(found.high)
    known = math.isfinite(low) and math.isfinite(high)
    return Interval(value, low if known else None, high if known else None, n)


def _sign_flips(differences: Any, seed: int) -> float:
    if not len(differences):
        return 1.0
    if len(differences) == 1:
        # Both signs are equally extreme; scipy wants two values at least.
        return 1.0
    from scipy.stats import permutation_test

    found = permutation_test(
        (differences,),
        _mean,
        permutation_type="samples",
        vectorized=True,
        n_resamples=RESAMPLES,
        batch=_batch(len(differences)),
        rng=np.random.default_rng(seed),
    )
    return float(found.pvalue)
