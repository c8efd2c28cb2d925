"""Intervals, paired tests and sample sizes against what is known of them."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hopgate.core import InputError
from hopgate.evaluation.statistics import (
    Interval,
    bootstrap_interval,
    mean_interval,
    needed_questions,
    paired_test,
    share_interval,
    slope_test,
)

values = st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=2, max_size=12)
pairs = st.integers(2, 10).flatmap(
    lambda n: st.tuples(*(st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=n, max_size=n) for _ in range(2)))
)


@given(values)
@settings(max_examples=30, deadline=None)
def test_a_mean_lies_in_its_interval(data: list[float]) -> None:
    found = mean_interval(data)
    assert found.value == pytest.approx(sum(data) / len(data)) and found.n == len(data)
    if len(set(data)) == 1:
        assert (found.low, found.high) == (None, None)
    else:
        assert found.low is not None and found.value is not None and found.high is not None
        assert min(data) <= found.low <= found.value <= found.high <= max(data)
    assert mean_interval(data) == found


def test_an_interval_covers_the_truth_as_often_as_it_says() -> None:
    rng = np.random.default_rng(7)
    hits = 0
    for draw in range(200):
        found = mean_interval((rng.random(80) < 0.4).astype(float).tolist(), seed=draw)
        hits += found.low is not None and found.high is not None and found.low <= 0.4 <= found.high
    # Binomial(200, .95) lies in 180..199 with a probability above .999.
    assert 180 <= hits <= 199


def test_nothing_to_estimate_from_is_said() -> None:
    assert mean_interval([]) == Interval(None, None, None, 0)
    assert share_interval(0, 0) == Interval(None, None, None, 0)
    assert paired_test([], []).p_value is None
    assert mean_interval([0.3]) == Interval(0.3, None, None, 1)


@given(pairs)
@settings(max_examples=40, deadline=None)
def test_a_paired_p_value_is_that_of_all_sign_flips(data: tuple[list[float], list[float]]) -> None:
    ours, theirs = data
    found = paired_test(ours, theirs)
    differences = [a - b for a, b in zip(ours, theirs, strict=True)]
    total = sum(differences)
    sums = [
        sum(sign * d for sign, d in zip(signs, differences, strict=True))
        for signs in itertools.product((1, -1), repeat=len(differences))
    ]
    one_sided = min(sum(s >= total - 1e-12 for s in sums), sum(s <= total + 1e-12 for s in sums)) / len(sums)
    assert found.p_value == pytest.approx(min(1.0, 2 * one_sided))
    assert (found.better, found.worse) == (sum(d > 0 for d in differences), sum(d < 0 for d in differences))
    assert found.mean_square == pytest.approx(sum(d * d for d in differences) / len(differences))


@given(pairs)
@settings(max_examples=20, deadline=None)
def test_swapping_the_runs_swaps_the_sign_alone(data: tuple[list[float], list[float]]) -> None:
    one, other = paired_test(*data), paired_test(*reversed(data))
    assert one.difference.value == pytest.approx(-(other.difference.value or 0.0))
    assert (one.better, one.worse) == (other.worse, other.better)
    assert one.p_value == pytest.approx(other.p_value)


def test_a_clear_difference_and_none() -> None:
    clear = paired_test([1.0] * 60 + [0.0] * 40, [0.0] * 30 + [1.0] * 30 + [0.0] * 40)
    assert clear.p_value is not None and clear.p_value < 0.001
    assert clear.difference.low is not None and clear.difference.low > 0.2
    same = paired_test([1.0, 0.0] * 20, [1.0, 0.0] * 20)
    assert same.p_value == 1.0 and same.difference == Interval(0.0, None, None, 40)


def test_wilson() -> None:
    # Newcombe (1998), table I: 81 of 263, and 0 of 20.
    found = share_interval(81, 263)
    assert (found.low, found.high) == (pytest.approx(0.2553, abs=5e-5), pytest.approx(0.3662, abs=5e-5))
    none = share_interval(0, 20)
    assert (none.low, none.high) == (pytest.approx(0.0, abs=1e-12), pytest.approx(0.1611, abs=5e-5))


def test_slope() -> None:
    steps = [2.0, 3.0, 4.0] * 30
    rng = np.random.default_rng(3)
    rising, p = slope_test(steps, [0.1 * s + float(e) for s, e in zip(steps, rng.normal(0, 0.1, 90), strict=True)])
    assert rising.value == pytest.approx(0.1, abs=0.03) and p is not None and p < 0.001
    assert rising.low is not None and rising.low > 0
    flat, p = slope_test(steps, rng.normal(0, 1, 90).tolist())
    assert p is not None and p > 0.01 and flat.low is not None and flat.high is not None and flat.low < 0 < flat.high
    assert slope_test([2.0, 2.0], [0.0, 1.0]) == (Interval(None, None, None, 2), None)
    assert slope_test([2.0, 3.0], [1.0, 1.0])[1] == 1.0


def test_any_statistic() -> None:
    ours, theirs = [1.0, 0.0, 1.0, 1.0] * 10, [0.0, 0.0, 1.0, 0.0] * 10
    difference = bootstrap_interval((ours, theirs), lambda a, b, axis=-1: np.mean(a, axis) - np.mean(b, axis))
    assert difference == paired_test(ours, theirs).difference


@pytest.mark.parametrize(("difference", "discordance"), [(0.05, 0.2), (0.1, 0.3), (0.02, 0.1)])
def test_the_needed_questions_give_the_power_asked_for(difference: float, discordance: float) -> None:
    n = needed_questions(difference, discordance)
    rng = np.random.default_rng(11)
    better = (discordance + difference) / 2
    draws = rng.multinomial(n, [better, discordance - better, 1 - discordance], size=20_000)
    # The test that the formula is about: (b - c)^2 / (b + c) > 1.96^2, McNemar's without correction.
    gained, lost = draws[:, 0], draws[:, 1]
    seen = (gained - lost) ** 2 > 1.959964**2 * (gained + lost)
    assert seen.mean() == pytest.approx(0.8, abs=0.02)


@given(st.floats(0.01, 0.5), st.floats(0, 1), st.floats(0.5, 0.95))
def test_smaller_differences_need_more_questions(difference: float, spread: float, power: float) -> None:
    n = needed_questions(difference, spread, power=power)
    assert n >= 1
    assert needed_questions(difference / 2, spread, power=power) >= n
    assert needed_questions(-difference, spread, power=power) == n
    assert needed_questions(difference, spread + 0.1, power=power) >= n


def test_what_cannot_be_used_is_refused() -> None:
    refused = [
        lambda: mean_interval([0.0, math.nan]),
        lambda: mean_interval([0.0, 1.0], level=95),
        lambda: paired_test([0.0], [0.0, 1.0]),
        lambda: slope_test([1.0], [0.0, 1.0]),
        lambda: bootstrap_interval(([0.0], [0.0, 1.0]), np.mean),
        lambda: needed_questions(0, 0.2),
        lambda: needed_questions(5, 0.2),
        lambda: needed_questions(0.05, -0.1),
        lambda: needed_questions(0.05, 0.2, power=1),
    ]
    for call in refused:
        with pytest.raises(InputError):
            call()
