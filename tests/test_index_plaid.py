"""PLAID behind the same interface, and what happens where it cannot run."""

from __future__ import annotations

import logging
import multiprocessing
import os
import random
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from test_index_support import make_checkpoint, needs_compiler, passages

from hopgate.core import IndexStoreError, InputError, MissingDependencyError
from hopgate.index import ColBERTIndex, Encoder, build, colbert_ai, plaid, plaid_build
from hopgate.index.captured import captured_output

CORPUS = passages(120)
QUERIES = [passage.text for passage in CORPUS[::4]]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("checkpoint") / "tiny")


@pytest.fixture(scope="module")
def both(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[ColBERTIndex, ColBERTIndex]:
    needs_compiler()
    folder = tmp_path_factory.mktemp("plaid")
    exact = ColBERTIndex.build(CORPUS, folder / "exact", checkpoint=checkpoint)
    return exact, ColBERTIndex.build(CORPUS, folder / "plaid", checkpoint=checkpoint, engine="plaid")


def test_finds_nearly_what_exact_search_finds(both: tuple[ColBERTIndex, ColBERTIndex]) -> None:
    exact, compressed = both
    assert (exact.info()["engine"], compressed.info()["engine"], compressed.info()["nbits"]) == ("exact", "plaid", 2)
    shared = []
    for query in QUERIES:
        one, two = exact.search(query, k=10), compressed.search(query, k=10)
        shared.append(len({p.id for p in one} & {p.id for p in two}) / 10)
        scores = [passage.score or 0 for passage in two]
        assert scores == sorted(scores, reverse=True)
        assert scores[0] == pytest.approx(one[0].score, rel=0.15)
    assert np.mean(shared) > 0.6


def test_k_does_not_leak_and_may_exceed_the_corpus(both: tuple[ColBERTIndex, ColBERTIndex]) -> None:
    _, compressed = both
    before = compressed.search(QUERIES[0], k=5)
    assert len(compressed.search(QUERIES[0], k=100)) == 100
    everything = compressed.search(QUERIES[0], k=5000)
    assert sorted(passage.id for passage in everything) == sorted(passage.id for passage in CORPUS)
    assert compressed.search(QUERIES[0], k=5) == before


def test_threads_and_reopening(both: tuple[ColBERTIndex, ColBERTIndex], checkpoint: Path) -> None:
    _, compressed = both
    expected = [compressed.search(query) for query in QUERIES]
    reopened = ColBERTIndex.open(compressed.info()["path"], checkpoint=checkpoint)
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(reopened.search, QUERIES * 2)) == expected * 2


def test_reranking_is_at_full_precision(both: tuple[ColBERTIndex, ColBERTIndex]) -> None:
    exact, compressed = both
    found = compressed.search(QUERIES[0], k=8)
    assert compressed.rerank(QUERIES[0], found) == exact.rerank(QUERIES[0], found)


def test_folder_holds_arrays_only_and_nothing_of_the_machine(both: tuple[ColBERTIndex, ColBERTIndex]) -> None:
    _, compressed = both
    folder = Path(compressed.info()["path"])
    names = {path.name for path in (folder / "plaid").iterdir()}
    assert names == {f"{name}.npy" for name in plaid.ARRAYS}
    content = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
    for secret in (str(folder.parent), socket.gethostname(), str(Path.home()), sys.argv[0]):
        assert len(secret) < 3 or secret.encode() not in content
    assert [path.name for path in folder.iterdir() if path.name.startswith("plaid-")] == []


def test_changed_array_is_refused(checkpoint: Path, tmp_path: Path) -> None:
    needs_compiler()
    ColBERTIndex.build(CORPUS, tmp_path / "index", checkpoint=checkpoint, engine="plaid", nbits=1)
    path = tmp_path / "index" / "plaid" / "centroids.npy"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(bytes(content))
    with pytest.raises(IndexStoreError, match=r"centroids\.npy: does not have the checksum"):
        ColBERTIndex.open(tmp_path / "index", checkpoint=checkpoint)


def test_other_engine_reuses_the_vectors(checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs_compiler()
    ColBERTIndex.build(CORPUS, tmp_path / "index", checkpoint=checkpoint)
    monkeypatch.setattr(Encoder, "encode_passages", lambda *_, **__: pytest.fail("encoded again"))
    with pytest.raises(IndexStoreError, match=r"with engine='exact'; .*replace=True"):
        ColBERTIndex.build(CORPUS, tmp_path / "index", checkpoint=checkpoint, engine="plaid")
    index = ColBERTIndex.build(CORPUS, tmp_path / "index", checkpoint=checkpoint, engine="plaid", replace=True)
    assert index.info()["engine"] == "plaid"
    with pytest.raises(IndexStoreError, match=r"with nbits=2; .*replace=True"):
        ColBERTIndex.build(CORPUS, tmp_path / "index", checkpoint=checkpoint, engine="plaid", nbits=1)


def test_build_is_quiet_and_leaves_global_state_alone(
    checkpoint: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    needs_compiler()
    random.seed(3)
    expected = random.random()
    random.seed(3)
    before = (multiprocessing.get_start_method(allow_none=True), os.environ.get("TOKENIZERS_PARALLELISM"), Path.cwd())
    index = ColBERTIndex.build(CORPUS, tmp_path / "index", checkpoint=checkpoint, engine="plaid")
    index.search("who")
    assert random.random() == expected
    after = (multiprocessing.get_start_method(allow_none=True), os.environ.get("TOKENIZERS_PARALLELISM"), Path.cwd())
    assert after == before
    assert capfd.readouterr() == ("", "")


def test_no_corpus_is_too_large_for_quantiles(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch refuses quantiles of more than 2**24 numbers, which 44,000 vectors of 384 dimensions have."""
    needs_compiler()
    import torch

    limit, seen, original = 1_000, [], torch.Tensor.quantile

    def quantile(self: torch.Tensor, *args: object, **options: object) -> torch.Tensor:
        seen.append(self.numel())
        return original(self, *args, **options)

    monkeypatch.setattr(plaid_build, "_MOST_NUMBERS", limit)
    monkeypatch.setattr(torch.Tensor, "quantile", quantile)
    ColBERTIndex.build(CORPUS, tmp_path / "index", checkpoint=checkpoint, engine="plaid")
    assert seen
    assert 0 < max(seen) <= limit


def test_importing_colbert_ai_changes_nothing() -> None:
    needs_compiler()
    colbert_ai.load_extensions()  # compiled, so that nothing is told about it
    code = (
        "import multiprocessing, os; from hopgate.index.colbert_ai import load_extensions; load_extensions();"
        "print(multiprocessing.get_start_method(allow_none=True), os.environ.get('TOKENIZERS_PARALLELISM'))"
    )
    environment = {name: value for name, value in os.environ.items() if name != "TOKENIZERS_PARALLELISM"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert (done.stdout.strip(), done.stderr) == ("None None", "")


def test_too_small_for_plaid(checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs_compiler()
    monkeypatch.setattr(colbert_ai, "load_extensions", lambda: pytest.fail("compiled before it was refused"))
    monkeypatch.setattr(Encoder, "encode_passages", lambda *_, **__: pytest.fail("encoded before it was refused"))
    with pytest.raises(InputError, match="at least 1,000 token vectors"):
        ColBERTIndex.build(passages(3), tmp_path / "index", checkpoint=checkpoint, engine="plaid")
    with pytest.raises(InputError, match="nbits=8 does not fit vectors of 16 dimensions"):
        ColBERTIndex.build(CORPUS, tmp_path / "index", checkpoint=checkpoint, engine="plaid", nbits=8)


def test_without_a_compiler(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(colbert_ai, "_loaded", False)
    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.setattr(Encoder, "encode_passages", lambda *_, **__: pytest.fail("encoded before it was refused"))
    with pytest.raises(MissingDependencyError, match="no 'no-such-compiler'; install one"):
        ColBERTIndex.build(CORPUS, tmp_path / "index", checkpoint=checkpoint, engine="plaid")
    monkeypatch.undo()

    monkeypatch.setattr(colbert_ai, "_loaded", False)
    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.setattr(build, "EXACT_LIMIT", 100)
    with caplog.at_level(logging.WARNING):
        index = ColBERTIndex.build(CORPUS, tmp_path / "index", checkpoint=checkpoint)
    assert index.info()["engine"] == "exact"
    assert "C++ compiler" in index.info()["engine_reason"]
    assert "C++ compiler" in caplog.text


def test_auto_takes_plaid_above_the_limit(checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs_compiler()
    monkeypatch.setattr(build, "EXACT_LIMIT", 1000)
    index = ColBERTIndex.build(CORPUS, tmp_path / "index", checkpoint=checkpoint)
    assert (index.info()["engine"], "more than 1,000" in index.info()["engine_reason"]) == ("plaid", True)


@pytest.mark.parametrize("chosen", [False, True])
@pytest.mark.parametrize("compiled", [0, 3, 4])
def test_that_extensions_are_compiled_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, compiled: int, chosen: bool
) -> None:
    needs_compiler()
    colbert_ai.load_extensions()  # its imports, with what they change put back
    folder = tmp_path if chosen else tmp_path / "py311_cpu"
    if chosen:
        monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    else:
        monkeypatch.delenv("TORCH_EXTENSIONS_DIR", raising=False)
        monkeypatch.setattr("torch.utils.cpp_extension.get_default_build_root", lambda: str(tmp_path))
    for number, name in enumerate(colbert_ai._EXTENSIONS):
        (folder / name).mkdir(parents=True)
        (folder / name / f"{name}.{'so' if number < compiled else 'o'}").touch()
    monkeypatch.setattr(colbert_ai, "_loaded", False)
    monkeypatch.setattr("colbert.modeling.colbert.ColBERT.try_load_torch_extensions", lambda _: None)
    monkeypatch.setattr("colbert.search.index_storage.IndexScorer.try_load_torch_extensions", lambda _: None)
    monkeypatch.setattr("colbert.search.strided_tensor.StridedTensor.try_load_torch_extensions", lambda _: None)
    with caplog.at_level(logging.WARNING):
        colbert_ai.load_extensions()
        colbert_ai.load_extensions()
    assert caplog.text.count("takes some minutes") == (compiled < 4)


def test_captured_output(capfd: pytest.CaptureFixture[str]) -> None:
    with captured_output() as last_line:
        print("from Python")
        os.write(2, b"from C\n\n")
        assert last_line() == "from C"
    print("after")
    assert capfd.readouterr() == ("after\n", "")


def test_locks_of_other_compilations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCH_EXTENSIONS_DIR", raising=False)
    monkeypatch.setattr("torch.utils.cpp_extension.get_default_build_root", lambda: str(tmp_path))
    monkeypatch.setattr(colbert_ai, "_ABANDONED", 1.5)
    locks = [tmp_path / "py311_cpu" / f"{name}_cpp" / "lock" for name in ("killed_long_ago", "just_killed", "ends")]
    for lock in locks:
        lock.parent.mkdir(parents=True)
        lock.touch()
    os.utime(locks[0], (1, 1))
    threading.Timer(0.5, locks[2].unlink).start()
    start = time.monotonic()
    colbert_ai._clear_abandoned()
    assert not any(lock.exists() for lock in locks) and 1 < time.monotonic() - start < 30
