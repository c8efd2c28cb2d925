"""Exact MaxSim against a naive reference."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hopgate.index import exact, store
from hopgate.index.exact import ExactEngine, maxsim
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
        (folder / store.VECTORS).mkdir(exist_ok=True)
        np.save(store.vectors_path(folder, number), np.concatenate(part).astype(np.float16))
        np.save(store.lengths_path(folder, number), np.array([len(one) for one in part], np.int32))
    return VectorStore([(folder, len(starts))], DIM)


def search(engine: ExactEngine, vectors: VectorStore, query: np.ndarray, k: int) -> list[tuple[int, float]]:
    """The k best candidates, ties to the smaller position."""
    candidates = engine.candidates([query], k, None)[0]
    scores = maxsim(query, [vectors[int(position)] for position in candidates])
    order = np.lexsort((candidates, -scores))[:k]
    return [(int(candidates[place]), float(scores[place])) for place in order]


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=14),
    tokens=st.integers(1, 6),
    chunk=st.integers(1, 5),
    block=st.integers(1, 20),
    k=st.integers(1, 20),
    bfloat16=st.booleans(),
)
def test_equals_naive_maxsim(
    seed: int, lengths: list[int], tokens: int, chunk: int, block: int, k: int, bfloat16: bool
) -> None:
    rng = np.random.default_rng(seed)
    passages = [unit(rng, length).astype(np.float16) for length in lengths]
    query = unit(rng, tokens) * rng.uniform(0, 2, (tokens, 1)).astype(np.float32)
    expected = naive(query, passages)
    np.testing.assert_allclose(maxsim(query, passages), expected, atol=2e-4)
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(exact, "_BLOCK", block)
        patch.setattr(exact, "_FEW", 0)
        patch.setattr(exact, "has_bfloat16_units", lambda: bfloat16)
        vectors = stored(Path(folder), passages, chunk)
        found = search(ExactEngine(vectors), vectors, query, k)
        for position, passage in enumerate(passages):
            np.testing.assert_array_equal(vectors[position], passage)
    assert len(found) == min(k, len(passages))
    assert len({position for position, _ in found}) == len(found)
    for position, score in found:
        assert score == pytest.approx(expected[position], abs=2e-4)
    reached = [score for _, score in found]
    np.testing.assert_allclose(reached, sorted(expected, reverse=True)[:k], atol=2e-4)
    assert reached == sorted(reached, reverse=True)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), k=st.integers(1, 6), queries=st.integers(1, 5), since=st.sampled_from([0, 16]))
def test_allowed_passages_of_many_queries(seed: int, k: int, queries: int, since: int) -> None:
    rng = np.random.default_rng(seed)
    passages = [unit(rng, int(length)) for length in rng.integers(1, 9, 40)]
    several = [unit(rng, int(length)) for length in rng.integers(1, 6, queries)]
    allowed = rng.random(40) < 0.5
    eligible = [position for position in range(since, 40) if allowed[position]]
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(exact, "_FEW", 0)
        patch.setattr(exact, "_QUERIES", 2)
        patch.setattr(exact, "_BLOCK", 30)
        vectors = stored(Path(folder), passages, 16)
        found = ExactEngine(vectors, since=since).candidates(several, k, allowed)
    assert len(found) == queries
    for query, candidates in zip(several, found, strict=True):
        scores = dict(enumerate(maxsim(query, [passage.astype(np.float16) for passage in passages])))
        assert set(candidates) <= set(eligible) and len(set(candidates)) == len(candidates)
        best = sorted((scores[position] for position in eligible), reverse=True)[:k]
        assert sorted((scores[int(position)] for position in candidates), reverse=True)[:k] == best


def test_equal_passages_in_different_blocks_tie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact, "_BLOCK", 37)
    monkeypatch.setattr(exact, "_FEW", 0)
    rng = np.random.default_rng(0)
    twin, others = unit(rng, 11), [unit(rng, 5 + number % 9) for number in range(60)]
    passages = list(itertools.chain(others[:7], [twin], others[7:33], [twin], others[33:], [twin]))
    vectors = stored(tmp_path, passages, 16)
    engine = ExactEngine(vectors)
    found = search(engine, vectors, twin, 4)
    assert [position for position, _ in found[:3]] == [7, 34, 62]
    assert len({score for _, score in found[:3]}) == 1
    assert all(search(engine, vectors, twin, 4) == found for _ in range(5))
