"""Hybrid search: BM25 fused with late interaction, and what an index without words does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_index_support import make_checkpoint, needs_embedded, passages

from hopgate.core import IndexStoreError, InputError, Passage
from hopgate.index import EMBEDDED, ColBERTIndex, ranking

CORPUS = [*passages(40), Passage("zebra", "", "the zebra is in the city")]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("checkpoint") / "tiny")


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory, checkpoint: Path) -> ColBERTIndex:
    return ColBERTIndex.build(CORPUS, tmp_path_factory.mktemp("hybrid") / "ix", checkpoint=checkpoint, hybrid=True)


def test_a_rare_word_lifts_its_passage(index: ColBERTIndex) -> None:
    late = ColBERTIndex.open(index._folder, checkpoint=index._encoder.checkpoint.path, hybrid=False)
    # The encoder is random, so alone it finds the passage by chance only.
    queries = [f"{passage.text[:40]} zebra" for passage in CORPUS[:10]]
    ranks = [[[p.id for p in one.search(query, 50)].index("zebra") for query in queries] for one in (index, late)]
    assert all(fused <= alone for fused, alone in zip(*ranks, strict=True)) and sum(ranks[0]) < sum(ranks[1])
    found = index.search("the zebra won the war", 50)
    assert len(found) == len(CORPUS)
    scores = [passage.score or 0 for passage in found]
    assert scores == sorted(scores, reverse=True) and scores[-1] > 0 and scores[0] <= 1
    assert index.search("zebra", 3, filter=lambda metadata: False) == []
    assert "zebra" not in {passage.id for passage in index.search("zebra", 50, filter=[p.id for p in CORPUS[:40]])}
    # No word of it is known, so late interaction decides alone.
    assert [p.id for p in index.search("xyzzy", 9)] == [p.id for p in late.search("xyzzy", 9)]
    assert repr(index).endswith(", hybrid)") and not repr(late).endswith(", hybrid)")
    assert index.info()["hybrid"] is True


def test_what_was_not_built_cannot_be_opened(tmp_path: Path, checkpoint: Path) -> None:
    plain = ColBERTIndex.build(CORPUS, tmp_path / "ix", checkpoint=checkpoint)
    assert plain.info()["hybrid"] is False and plain.info()["lexical"] is None
    with pytest.raises(IndexStoreError, match="built without BM25; build it with hybrid=True"):
        ColBERTIndex.open(tmp_path / "ix", checkpoint=checkpoint, hybrid=True)
    bad: Any = "yes"
    with pytest.raises(InputError, match="hybrid must be"):
        ColBERTIndex.build(CORPUS, tmp_path / "ix", checkpoint=checkpoint, hybrid=bad)
    # Only BM25 is missing: nothing is encoded again.
    counts: list[int] = []
    built = ColBERTIndex.build(
        CORPUS,
        tmp_path / "ix",
        checkpoint=checkpoint,
        hybrid=True,
        replace=True,
        on_progress=lambda done, _: counts.append(done),
    )
    assert built.info()["hybrid"] is True and counts == [len(CORPUS)]


def test_embedded_checkpoint_is_hybrid_unless_told(tmp_path: Path) -> None:
    needs_embedded()
    assert ColBERTIndex.build(CORPUS[:3], tmp_path / "one", checkpoint=EMBEDDED).info()["hybrid"] is True
    assert ColBERTIndex.build(CORPUS[:3], tmp_path / "two", hybrid=False).info()["hybrid"] is False


def test_corpus_without_words(tmp_path: Path, checkpoint: Path) -> None:
    index = ColBERTIndex.build(
        [Passage("1", "", "?"), Passage("2", "", "!")], tmp_path / "ix", checkpoint=checkpoint, hybrid=True
    )
    assert {passage.id for passage in index.search("who", 5)} == {"1", "2"}
    index.add([Passage("3", "", "a zebra")])
    assert index.info()["lexical"] == "lexical-0001"
    assert {passage.id for passage in index.search("zebra", 5)} == {"1", "2", "3"}


def test_damaged_bm25_is_named(tmp_path: Path, checkpoint: Path) -> None:
    ColBERTIndex.build(CORPUS, tmp_path / "ix", checkpoint=checkpoint, hybrid=True)
    for path in sorted((tmp_path / "ix" / "lexical-0000").iterdir()):
        content = path.read_bytes()
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        with pytest.raises(IndexStoreError, match=path.name):
            ColBERTIndex.open(tmp_path / "ix", checkpoint=checkpoint)
        path.write_bytes(content)
    assert len(ColBERTIndex.open(tmp_path / "ix", checkpoint=checkpoint).search("zebra", 50)) == len(CORPUS)


class Names:
    """Stands in for a store: the id of each position."""

    def __getitem__(self, position: int) -> Passage:
        return Passage(f"{position:03d}", "", "x")


RANKING = st.lists(st.integers(0, 30), unique=True, max_size=20)


@given(late=RANKING, lexical=RANKING, k=st.integers(1, 40))
def test_fusion(late: list[int], lexical: list[int], k: int) -> None:
    store: Any = Names()
    fused = ranking.fused(store, [(p, 0.0) for p in late], [(p, 0.0) for p in lexical], k)
    positions = [position for position, _ in fused]
    assert len(set(positions)) == len(positions) == min(k, len({*late, *lexical}))
    scores = [score for _, score in fused]
    assert scores == sorted(scores, reverse=True) and all(0 < score <= 1 for score in scores)
    if late == lexical:
        assert positions == late[:k]
    if late and lexical and late[0] == lexical[0]:
        assert fused[0] == (late[0], 1.0)
