"""Searching: results, bad input, threads, copies, and use as a tool."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import dspy
import numpy as np
import pytest
from test_index_support import make_checkpoint, needs_embedded, passages

from hopgate.core import InputError, Passage
from hopgate.index import ColBERTIndex, Encoder

CORPUS = passages(40)
QUERIES = [f"who built the {passage.text[:30]}" for passage in CORPUS]


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> ColBERTIndex:
    folder = tmp_path_factory.mktemp("index")
    return ColBERTIndex.build(CORPUS, folder / "index", checkpoint=make_checkpoint(folder / "tiny"), precision="fp32")


def test_results_are_what_maxsim_says(index: ColBERTIndex) -> None:
    encoder: Encoder = index._encoder
    vectors = [
        array.astype(np.float16).astype(np.float32) for array in encoder.encode_passages([p.long_text for p in CORPUS])
    ]
    for query in QUERIES[:10]:
        encoded = encoder.encode_query(query)
        scores = [float((encoded @ array.T).max(axis=1).sum()) for array in vectors]
        found = index.search(query, k=5)
        assert [p.score for p in found] == pytest.approx(sorted(scores, reverse=True)[:5], abs=2e-3)
        for passage in found:
            position = int(passage.id[1:])
            assert passage.with_score(None) == CORPUS[position]
            assert passage.score == pytest.approx(scores[position], abs=2e-3)


@pytest.mark.parametrize("k", [0, -1, True, 2.0, "3", None, np.int64(0), np.float32(2), np.bool_(True)])
def test_bad_k(index: ColBERTIndex, k: Any) -> None:
    with pytest.raises(InputError, match="k must be a whole number of at least 1"):
        index.search("who", k=k)


@pytest.mark.parametrize("query", ["", "  \n", None, 3, "x" * 100_000, "\ud800 x", "\udcff"])
def test_bad_query(index: ColBERTIndex, query: Any) -> None:
    for search in (index.search, index, lambda query: index.rerank(query, CORPUS)):
        with pytest.raises(InputError) as caught:
            search(query)
        assert len(str(caught.value)) < 250


def test_whole_numbers_of_numpy_are_numbers(index: ColBERTIndex) -> None:
    for kind in (np.int64, np.uint8, np.int32):
        number: Any = kind(2)
        assert index.search("who", k=number) == index.search("who", k=2)


@pytest.mark.parametrize(
    "passages",
    [
        (passage for passage in CORPUS),
        None,
        5,
        "abc",
        ["abc"],
        [CORPUS[0], None],
        [Passage(1, "", "x")],  # type: ignore
        [Passage("1", None, "x")],  # type: ignore
        [Passage("1", "", None)],  # type: ignore
        [CORPUS[0], Passage("1", "", "\ud800 x")],
    ],
)
def test_bad_passages_to_rerank(index: ColBERTIndex, passages: Any) -> None:
    with pytest.raises(InputError, match=r"passages(\[\d\])? ?(must|is a|: )|passages\[\d\]: "):
        index.rerank("who", passages)


def test_odd_queries(index: ColBERTIndex) -> None:
    for query in ("\0", "?", "日本 🙂", "x" * 10_000, "who " * 2_000, "[MASK] [PAD] [SEP]"):
        assert len(index.search(query, k=2)) == 2


def test_k_does_not_leak_from_call_to_call(index: ColBERTIndex) -> None:
    everything = index.search("the king", k=1000)
    assert len(everything) == len(CORPUS)
    for k in (5, 40, 1, 7):
        assert index.search("the king", k=k) == everything[:k]
    assert len(index.search("the king")) == 3


def test_threads_get_what_one_gets(index: ColBERTIndex) -> None:
    expected = [index.search(query) for query in QUERIES]
    reopened = pickle.loads(pickle.dumps(index))
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(reopened.search, QUERIES * 3)) == expected * 3
        assert list(pool.map(lambda query: reopened.rerank(query, CORPUS[:5]), QUERIES)) == [
            index.rerank(query, CORPUS[:5]) for query in QUERIES
        ]


def test_copies_and_pickles(index: ColBERTIndex, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert copy.deepcopy(index) is index
    assert copy.deepcopy({"index": index})["index"] is index
    assert copy.copy(index) is index
    data = pickle.dumps(index)
    assert len(data) < 1000
    folder = Path(index.info()["path"])
    monkeypatch.chdir(folder.parent)
    relative = ColBERTIndex.open("index", checkpoint="tiny")
    data = pickle.dumps(relative)
    monkeypatch.chdir(tmp_path)
    assert pickle.loads(data).search("who") == index.search("who")


def test_is_not_iterable(index: ColBERTIndex) -> None:
    thing: Any = index
    with pytest.raises(TypeError):
        iter(thing)


def test_rerank(index: ColBERTIndex) -> None:
    query = "who won the war"
    found = index.search(query, k=10)
    assert index.rerank(query, found[::-1]) == found
    assert index.rerank(query, []) == []
    foreign = [Passage("x", "", "who won the war"), Passage("p1", "Other", "text under a known id"), CORPUS[2]]
    ranked = index.rerank(query, foreign)
    assert ranked[0].id == "x"
    assert {passage.with_score(None) for passage in ranked} == set(foreign)
    alone = {passage: index.rerank(query, [passage])[0].score for passage in foreign}
    assert all(passage.score == pytest.approx(alone[passage.with_score(None)], abs=2e-3) for passage in ranked)
    same_text = index.rerank(query, [Passage("y", "Other", "text under a known id")])[0].score
    assert alone[foreign[1]] == same_text != index.rerank(query, [CORPUS[1]])[0].score
    twins = [Passage("b", "", "same"), Passage("a", "", "same")]
    assert [passage.id for passage in index.rerank(query, twins)] == ["b", "a"]


def test_passages_by_id(index: ColBERTIndex) -> None:
    assert index.passages(["p3", "p0", "p3"]) == [CORPUS[3], CORPUS[0], CORPUS[3]]
    with pytest.raises(InputError, match="no passage with id 'nope'"):
        index.passages(["p1", "nope"])
    for ids in (None, 5, "p1", [["p1"]], [None]):
        bad: Any = ids
        with pytest.raises(InputError):
            index.passages(bad)


def test_info(index: ColBERTIndex) -> None:
    info = index.info()
    assert (info["engine"], info["passages"], info["dim"], info["checkpoint"]) == ("exact", 40, 16, "tiny")
    folder = Path(info["path"])
    assert info["bytes"] == sum(
        p.stat().st_size for p in folder.rglob("*") if p.is_file() and p.name != "manifest.json"
    )
    assert "40 passages" in repr(index)


def test_as_a_tool(index: ColBERTIndex) -> None:
    tool = dspy.Tool(index)
    assert tool.name == "search_passages"
    assert tool.args == {"query": {"type": "string"}}
    assert tool.desc is not None and tool.desc.startswith("Search for passages")
    assert tool(query="who won the war") == [passage.long_text for passage in index.search("who won the war")]
    method = dspy.Tool(index.search)
    assert (method.name, set(method.args or {})) == ("search", {"query", "k", "filter"})
    assert method(query="who", k=2) == index.search("who", k=2)
    assert set(dspy.ReAct("question -> answer", tools=[index]).tools) == {"search_passages", "finish"}
    assert ColBERTIndex.__name__ == "ColBERTIndex"
    assert "A ColBERT index on disk" in (ColBERTIndex.__doc__ or "")


def test_import_is_light() -> None:
    code = (
        "import sys, hopgate.index; print(*({'torch', 'transformers', 'dspy', 'colbert', 'faiss'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_embedded_checkpoint_finds_what_is_asked_for(tmp_path: Path) -> None:
    needs_embedded()
    corpus = [
        Passage("1", "Eiffel Tower", "The Eiffel Tower is a wrought-iron tower in Paris, finished in 1889."),
        Passage("2", "Photosynthesis", "Plants turn light, water and carbon dioxide into sugar and oxygen."),
        Passage("3", "Penicillin", "Alexander Fleming noticed in 1928 that a mould kills bacteria."),
        Passage("4", "Danube", "The Danube flows through Vienna and Budapest to the Black Sea."),
    ]
    index = ColBERTIndex.build(corpus, tmp_path / "index")
    asked = {
        "Which river runs through the capital of Hungary?": "4",
        "Who discovered an antibiotic?": "3",
        "How do leaves make food?": "2",
        "When was the tower in the French capital built?": "1",
    }
    assert {query: index.search(query, k=1)[0].id for query in asked} == asked
    assert ColBERTIndex.open(tmp_path / "index").search("river", k=1) == index.search("river", k=1)
