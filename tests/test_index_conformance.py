"""The conformance suite, run on the engines, on the client of a server, and on a plain function."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from test_index_server import Words
from test_index_support import make_checkpoint, needs_compiler

from hopgate.core import Passage
from hopgate.index import ColBERTIndex
from hopgate.index.remote import RemoteIndex
from hopgate.index.server import IndexServer
from hopgate.index.testing import IndexConformance, RetrieverConformance, conformance_corpus
from hopgate.programs import RetrieverHandle


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("checkpoint") / "tiny")


@pytest.fixture(scope="module")
def exact(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> ColBERTIndex:
    folder = tmp_path_factory.mktemp("exact") / "index"
    return ColBERTIndex.build(conformance_corpus(), folder, checkpoint=checkpoint, engine="exact")


@pytest.fixture(scope="module")
def compressed(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> ColBERTIndex:
    needs_compiler()
    folder = tmp_path_factory.mktemp("plaid") / "index"
    return ColBERTIndex.build(conformance_corpus(), folder, checkpoint=checkpoint, engine="plaid")


@pytest.fixture(scope="module")
def remote(exact: ColBERTIndex) -> Iterator[RemoteIndex]:
    with IndexServer(exact, port=0) as server, RemoteIndex(server.url, retries=0) as client:
        yield client


# The checkpoint's weights are random: what it makes of a text is not always nearest to the text itself.


class TestExact(IndexConformance):
    own_text_within = 10

    @pytest.fixture
    def retriever(self, exact: ColBERTIndex) -> ColBERTIndex:
        return exact


class TestPlaid(IndexConformance):
    own_text_within = 10

    @pytest.fixture
    def retriever(self, compressed: ColBERTIndex) -> ColBERTIndex:
        return compressed


class TestRemote(IndexConformance):
    own_text_within = 10
    predicates = False

    @pytest.fixture
    def retriever(self, remote: RemoteIndex) -> RemoteIndex:
        return remote

    def test_gives_what_the_index_gives(self, remote: RemoteIndex, exact: ColBERTIndex) -> None:
        corpus = conformance_corpus()
        for query in ("who won the war", "日本 🙂", "\0"):
            assert remote.search(query, 60) == exact.search(query, 60)
            assert remote.rerank(query, corpus) == exact.rerank(query, corpus)


class TestWords(IndexConformance):
    """Without an encoder: the suite can be passed by any honest index."""

    @pytest.fixture
    def retriever(self) -> Words:
        return Words(conformance_corpus())


def search_function(index: ColBERTIndex, query: str, k: int) -> list[dict[str, Any]]:
    return [{"long_text": passage.long_text, "score": passage.score} for passage in index.search(query, k)]


class TestFunction(RetrieverConformance):
    own_text_within = 10
    keeps_fields = False

    @pytest.fixture
    def retriever(self, exact: ColBERTIndex) -> Any:
        return partial(search_function, exact)


class TestFunctionOfStrings(RetrieverConformance):
    own_text_within = 10
    keeps_fields = False
    pickles = False

    @pytest.fixture
    def retriever(self, exact: ColBERTIndex) -> Any:
        return lambda query, k: tuple(passage.long_text for passage in exact.search(query, k))


def test_the_remote_index_inside_a_program(remote: RemoteIndex, exact: ColBERTIndex) -> None:
    handle = RetrieverHandle(remote)
    assert list(handle.search("who won", 4)) == exact.search("who won", 4)
    corpus = conformance_corpus()[:5]
    assert list(handle.rerank("who won", corpus) or ()) == exact.rerank("who won", corpus)


def test_a_bad_retriever_is_found_out(tmp_path: Path) -> None:
    module = tmp_path / "test_bad.py"
    module.write_text(
        "import pytest, random\n"
        "from hopgate.index.testing import RetrieverConformance, conformance_corpus\n"
        "class TestBad(RetrieverConformance):\n"
        "    @pytest.fixture\n"
        "    def retriever(self):\n"
        "        def search(query, k):\n"
        "            print('searching')\n"
        "            return random.choices(conformance_corpus(), k=k)\n"
        "        return search\n"
        "class TestMissing(RetrieverConformance):\n"
        "    pass\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(module), "--rootdir", str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    failed = {line.split("::")[-1].split(" ")[0] for line in done.stdout.splitlines() if line.startswith("FAILED")}
    assert done.returncode == 1
    assert {"test_is_silent", "test_gives_no_passage_twice", "test_same_question_same_answer"} <= failed
    assert "TestMissing must define the fixture `retriever`" in done.stdout


def test_the_corpus_is_sound() -> None:
    corpus = conformance_corpus()
    assert len({passage.id for passage in corpus}) == len(corpus) == 58
    assert all(isinstance(passage, Passage) and passage.text for passage in corpus)
