"""Races: the best is seldom dropped, what is clearly worse is dropped early, and one good budget saves a candidate."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hopgate.core import InputError
from hopgate.optimizers import Leaf, Node, Race, Standing, Tree
from hopgate.optimizers.joint_front import Record
from hopgate.optimizers.racing import worse

scores = st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=4, max_size=12)


def standing(*rows: list[float], reached: list[bool] | None = None) -> Standing:
    table = np.array(rows, dtype=float)
    return Standing(table, np.array(reached or [True] * len(rows)))


@pytest.mark.parametrize("shared", [0.0, 0.7])
def test_the_best_of_equals_is_dropped_with_at_most_the_stated_probability(shared: float) -> None:
    race, draws, n = Race((10, 20, 40), error=0.2), np.random.default_rng(5), 250
    dropped = 0
    for _ in range(n):
        common = draws.random(40) < 0.5
        own = draws.random((6, 40)) < 0.5
        answered = np.where(draws.random((6, 40)) < shared, common, own).astype(float)
        # The luckiest rivals are among those compared with, as they are in a study.
        dropped += any(
            race.drops(standing(list(answered[0, :rung])), [standing(list(row)) for row in answered[1:]])
            for rung in race.rungs[:-1]
        )
    assert dropped <= n * race.error + 3 * math.sqrt(n * race.error * (1 - race.error))


def test_thresholds_do_not_make_a_candidate_look_better_than_it_is() -> None:
    race, draws, n = Race((12, 24), error=0.2), np.random.default_rng(7), 30
    dropped = 0
    for _ in range(n):
        # All are alike: two have a decision whose confidence says nothing, one decides nothing.
        records = [Record(_trees(draws, 12, decides), {"hop": -0.5}, "em") for decides in (False, True, True)]
        first, *others = [record.standing((0.5,), "retrievals") for record in records]
        dropped += race.drops(first, others)
    assert dropped <= n * race.error + 3 * math.sqrt(n * race.error * (1 - race.error))


def _trees(draws: np.random.Generator, n: int, decides: bool) -> list[Tree]:
    rest = {"lm_calls": 1, "prompt_tokens": 1, "completion_tokens": 1, "passages_read": 0}
    rest = {**rest, "new_calls": 1, "new_retrievals": 0}

    def leaf(path: tuple[tuple[int, bool], ...], searches: int) -> Leaf:
        right = bool(draws.random() < 0.5)
        return Leaf(path, "a", em=right, f1=float(right), retrievals=searches, **rest)

    trees = []
    for number in range(n):
        if decides:
            leaves = (leaf(((0, True),), 0), leaf(((0, False),), 1))
            nodes: tuple[Node, ...] = (Node("hop", 0, "a", -float(draws.random())),)
        else:
            nodes, leaves = (), (leaf((), 0),)
        trees.append(Tree(str(number), nodes, leaves, exact=True, complete=True))
    return trees


def test_the_clearly_worse_is_dropped_and_the_better_is_not() -> None:
    race = Race((10, 20), error=0.1)
    good, bad = standing([1.0] * 10), standing([0.0] * 10)
    assert race.drops(bad, [good])
    assert not race.drops(good, [bad])
    assert not race.drops(bad, [])
    assert not race.drops(bad, [bad])
    assert not race.drops(standing([0.0] * 3), [standing([1.0] * 3)])  # three questions are no evidence


def test_one_budget_at_which_it_is_good_saves_it() -> None:
    race = Race((10, 20))
    rival = standing([0.0] * 10, [1.0] * 10)
    assert not race.drops(standing([0.0] * 10, [0.0] * 10), [rival])
    assert race.drops(standing([0.0] * 10, [0.0] * 10, reached=[False, True]), [rival])
    assert not race.drops(standing([0.0] * 10, [0.0] * 10), [standing([1.0] * 10, [1.0] * 10, reached=[False, True])])


@settings(max_examples=60, deadline=None)
@given(scores, st.data())
def test_what_is_nowhere_lower_is_never_dropped(own: list[float], data: st.DataObject) -> None:
    lower = [data.draw(st.floats(0, value)) for value in own]
    assert worse(np.array(own), np.array(lower)) == 1.0
    assert not Race((len(own), len(own) + 1), error=0.9).drops(standing(own), [standing(lower)])


@settings(max_examples=30, deadline=None)
@given(scores, st.data())
def test_a_p_value_is_one_and_more_evidence_makes_it_smaller(own: list[float], data: st.DataObject) -> None:
    other = data.draw(st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=len(own), max_size=len(own)))
    value = worse(np.array(own), np.array(other))
    assert 0 < value <= 1
    further = worse(np.array([*own, 0.0]), np.array([*other, 1.0]))
    assert further <= value + 1e-9 or sum(other) <= sum(own)


def test_p_values_are_those_of_mcnemars_exact_test() -> None:
    values = [worse(np.zeros(n), np.ones(n)) for n in range(1, 8)]
    assert values == pytest.approx([0.5**n for n in range(1, 8)])
    assert all(a > b for a, b in pairwise(values))
    assert worse(np.array([1.0, 0, 0, 0, 0]), np.array([0.0, 1, 1, 1, 1])) == pytest.approx(6 / 32)


def test_the_error_is_shared_out_over_rungs_and_rivals() -> None:
    race = Race((10, 20, 40), error=0.1)
    assert race.level(5) * 5 * 2 == pytest.approx(0.1)
    assert Race((10,), error=0.1).level(1) == pytest.approx(0.1)


@pytest.mark.parametrize("rungs", [(), (0, 1), (3, 2), (3, 3), (1.5,), (True, 2)])
def test_rungs_must_ascend(rungs: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="`racing` takes growing"):
        Race(rungs)


def test_rivals_that_answered_less_are_refused() -> None:
    with pytest.raises(InputError, match="must have answered"):
        Race((2, 4)).drops(standing([0.0, 0.0]), [standing([1.0])])
