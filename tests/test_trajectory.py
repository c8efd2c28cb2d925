"""Trajectories: JSON in and out, prefixes, costs, and records that are not trajectories."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hopgate.core import InputError, Passage, StateError
from hopgate.lms import AnswerConfidence
from hopgate.programs import Cost, Hop, Trajectory

_FLOATS = st.floats(-50, 0, allow_nan=False)
_COSTS = st.builds(Cost, **{name: st.integers(0, 10**6) for name in Cost.__dataclass_fields__ if name != "seconds"})
_CONFIDENCES = st.one_of(
    st.none(),
    st.builds(AnswerConfidence, mean=_FLOATS, sum=_FLOATS, min=_FLOATS, first=_FLOATS, tokens=st.integers(1, 50)),
    st.just(AnswerConfidence(None, None, None, None, 0)),
)
_PASSAGES = st.builds(
    Passage, id=st.text(), title=st.text(), text=st.text(), score=st.one_of(st.none(), st.floats(-100, 100))
)
_HOPS = st.builds(
    Hop,
    sub_question=st.text(),
    draft=st.one_of(st.none(), st.text()),
    confidence=_CONFIDENCES,
    note=st.one_of(st.none(), st.text()),
    source=st.sampled_from(["memory", "already_read", "search"]),
    query=st.one_of(st.none(), st.text()),
    passages=st.lists(_PASSAGES, max_size=3).map(tuple),
    answer=st.text(),
    answer_confidence=_CONFIDENCES,
    cost=_COSTS,
)
_TRAJECTORIES = st.builds(
    Trajectory,
    question=st.text(min_size=1),
    hops=st.lists(_HOPS, max_size=3).map(tuple),
    plan=st.one_of(st.none(), st.lists(st.text(), max_size=4).map(tuple)),
    passages=st.lists(_PASSAGES, max_size=2).map(tuple),
    answer=st.one_of(st.none(), st.text()),
    answer_confidence=_CONFIDENCES,
    stop_reason=st.one_of(st.none(), st.sampled_from(["finished", "max_hops", "repeated", "empty", "context"])),
    revisions=st.lists(st.dictionaries(st.text(), st.integers()), max_size=2).map(tuple),
    other_cost=_COSTS,
)


@settings(max_examples=40, deadline=None)
@given(_TRAJECTORIES)
def test_a_trajectory_goes_to_json_and_back_unchanged(trajectory: Trajectory) -> None:
    written = json.dumps(trajectory.to_dict(), allow_nan=False)
    assert Trajectory.from_dict(json.loads(written)) == trajectory


@settings(max_examples=40, deadline=None)
@given(_TRAJECTORIES)
def test_the_cost_is_the_sum_of_hops_and_rest(trajectory: Trajectory) -> None:
    for name in Cost.__dataclass_fields__:
        parts = [getattr(hop.cost, name) for hop in trajectory.hops] + [getattr(trajectory.other_cost, name)]
        assert getattr(trajectory.cost, name) == sum(parts)


@given(_COSTS, _COSTS, _COSTS)
def test_costs_add_up_in_any_order(left: Cost, middle: Cost, right: Cost) -> None:
    assert left + middle == middle + left
    assert (left + middle) + right == left + (middle + right)
    assert left + Cost() == left


@settings(max_examples=40, deadline=None)
@given(_TRAJECTORIES, st.integers(0, 3))
def test_a_prefix_keeps_its_hops_and_drops_the_end(trajectory: Trajectory, hops: int) -> None:
    if hops > len(trajectory.hops):
        with pytest.raises(InputError):
            trajectory.prefix(hops)
        return
    prefix = trajectory.prefix(hops)
    assert prefix.hops == trajectory.hops[:hops]
    assert prefix.question == trajectory.question
    assert prefix.plan == (trajectory.plan if hops else None)
    assert prefix.answer is None
    assert prefix.answer_confidence is None
    assert prefix.stop_reason is None
    assert prefix.passages == ()


def test_a_negative_prefix_is_refused() -> None:
    with pytest.raises(InputError):
        Trajectory("q?", (Hop("a"), Hop("b"))).prefix(-1)


def test_a_trajectory_cannot_be_changed() -> None:
    trajectory = Trajectory("q?")
    with pytest.raises(dataclasses.FrozenInstanceError):
        trajectory.answer = "x"  # type: ignore[misc]
    longer = trajectory.with_hop(Hop("a"))
    assert trajectory.hops == ()
    assert [hop.sub_question for hop in longer.hops] == ["a"]


def test_fields_that_a_record_lacks_have_their_defaults() -> None:
    record = {"question": "q?", "hops": [{"sub_question": "a"}]}
    assert Trajectory.from_dict(record) == Trajectory("q?", (Hop("a"),))


@pytest.mark.parametrize("version", [2, 99, "1", None, 0])
def test_another_version_is_refused(version: Any) -> None:
    with pytest.raises(StateError, match="version"):
        Trajectory.from_dict({**Trajectory("q?").to_dict(), "version": version})


@pytest.mark.parametrize(
    "record",
    [
        {},
        {"hops": []},
        {"question": "q?", "unknown": 1},
        {"question": "q?", "hops": 5},
        {"question": "q?", "hops": ["x"]},
        {"question": "q?", "hops": [5]},
        {"question": "q?", "hops": [{}]},
        {"question": "q?", "hops": [{"sub_question": "a", "unknown": 1}]},
        {"question": "q?", "hops": [{"sub_question": "a", "source": "guess"}]},
        {"question": "q?", "hops": [{"sub_question": "a", "confidence": {"mean": 1}}]},
        {"question": "q?", "hops": [{"sub_question": "a", "cost": {"euros": 1}}]},
        {"question": "q?", "passages": [{"id": 1, "text": "t"}]},
        {"question": "q?", "passages": [{"id": "1"}]},
        {"question": "q?", "passages": ["text"]},
        {"question": "q?", "passages": [{"id": "1", "text": "t", "score": "high"}]},
        {"question": "q?", "other_cost": 7},
        {"question": "q?", "plan": 7},
        [],
        "text",
        None,
        7,
    ],
    ids=repr,
)
def test_what_is_no_trajectory_is_refused(record: Any) -> None:
    with pytest.raises(StateError) as caught:
        Trajectory.from_dict(record)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("hops", ["1", None, 1.0, True, [1], b"1"])
def test_a_prefix_of_what_is_no_number_of_hops_is_refused(hops: Any) -> None:
    with pytest.raises(InputError, match="number of hops"):
        Trajectory("q", (Hop("a?"), Hop("b?"))).prefix(hops)
