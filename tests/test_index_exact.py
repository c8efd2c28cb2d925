"""Exact MaxSim against a naive reference."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hopgate.core import write_atomic
from hopgate.index import exact, store
from hopgate.index.build import _npy
from hopgate.index.exact import ExactEngine, best, maxsim
from hopgate.index.store import VectorStore

DIM = 8


def unit(rng: np.random.Generator, count: int) -> np.ndarray:
    rows = rng.standard_normal((count, DIM)).astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def naive(query: np.ndarray, passages: list[np.ndarray]) -> list[float]:
    scores = []
    for passage in passages:
        scores.append(sum(max(float(np.dot(row, token)) for token in passage.astype(np.float32)) for row in query))
    return scores


def stored(folder: Path, passages: list[np.ndarray], chunk: int) -> VectorStore:
    starts = range(0, len(passages), chunk)
    for number, start in enumerate(starts):
        part = passages[start : start + chunk]
        write_atomic(store.vectors_path(folder, number), _npy(np.concatenate(part).astype(np.float16)))
        write_atomic(store.lengths_path(folder, number), _npy(np.array([len(one) for one in part], np.int32)))
    return VectorStore(folder, len(starts), DIM)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=14),
    tokens=st.integers(1, 6),
    chunk=st.integers(1, 5),
    block=st.integers(1, 20),
    k=st.integers(1, 20),
)
def test_equals_naive_maxsim(seed: int, lengths: list[int], tokens: int, chunk: int, block: int, k: int) -> None:
    rng = np.random.default_rng(seed)
    passages = [unit(rng, length).astype(np.float16) for length in lengths]
    query = unit(rng, tokens)
    expected = naive(query, passages)
    np.testing.assert_allclose(maxsim(query, passages), expected, atol=1e-5)
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(exact, "_BLOCK", block)
        patch.setattr(store, "CHUNK", chunk)
        vectors = stored(Path(folder), passages, chunk)
        found = ExactEngine(vectors).search(query, k)
        for position, passage in enumerate(passages):
            np.testing.assert_array_equal(vectors[position], passage)
    assert len(found) == min(k, len(passages))
    assert len({position for position, _ in found}) == len(found)
    for position, score in found:
        assert score == pytest.approx(expected[position], abs=2e-4)
    reached = sorted((score for _, score in found), reverse=True)
    np.testing.assert_allclose(reached, sorted(expected, reverse=True)[:k], atol=2e-4)
    assert [score for _, score in found] == reached


@given(scores=st.lists(st.sampled_from([0.0, 1.0, 1.00001, 2.5, -1.0]), min_size=1, max_size=12), k=st.integers(1, 15))
def test_ties_go_to_the_smaller_position(scores: list[float], k: int) -> None:
    found = best(np.array(scores, np.float32), k)
    expected = sorted(range(len(scores)), key=lambda position: (-round(scores[position], 4), position))[:k]
    assert [position for position, _ in found] == expected


def test_equal_passages_in_different_blocks_tie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact, "_BLOCK", 37)
    rng = np.random.default_rng(0)
    twin, others = unit(rng, 11), [unit(rng, 5 + number % 9) for number in range(60)]
    passages = list(itertools.chain(others[:7], [twin], others[7:33], [twin], others[33:], [twin]))
    engine = ExactEngine(stored(tmp_path, passages, 16))
    found = engine.search(twin, 4)
    assert [position for position, _ in found[:3]] == [7, 34, 62]
    assert len({score for _, score in found[:3]}) == 1
    assert all(engine.search(twin, 4) == found for _ in range(5))
