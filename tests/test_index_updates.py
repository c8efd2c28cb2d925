"""Updates: adding, deleting, compacting, what is interrupted, and searches that run meanwhile."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_index_support import make_checkpoint, needs_compiler, passages

from hopgate.core import CorpusError, HopgateError, IndexStoreError, InputError, Passage
from hopgate.index import ColBERTIndex, Encoder, chunks, updates

ALL = passages(60)
QUERIES = [passage.text for passage in ALL[::7]]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("checkpoint") / "tiny")


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "CHUNK", 8)


def build(path: Path, corpus: list[Passage], checkpoint: Path, **options: Any) -> ColBERTIndex:
    return ColBERTIndex.build(corpus, path, checkpoint=checkpoint, precision="fp32", **options)


def found(index: ColBERTIndex, k: int = 9) -> list[list[tuple[str, float]]]:
    """Ids and scores; vectors of different batches may differ in the last place of their rounding."""
    return [[(passage.id, round(passage.score or 0, 2)) for passage in index.search(query, k)] for query in QUERIES]


@pytest.mark.parametrize("hybrid", [False, True])
def test_updated_index_finds_what_a_new_one_finds(tmp_path: Path, checkpoint: Path, hybrid: bool) -> None:
    index = build(tmp_path / "index", ALL[:30], checkpoint, hybrid=hybrid)
    index.add(ALL[30:45])
    index.delete(["p3", "p33"])
    index.add(ALL[45:])
    index.delete(["p50", "p0"])
    left = [passage for passage in ALL if passage.id not in {"p3", "p33", "p50", "p0"}]
    expected = build(tmp_path / "new", left, checkpoint, hybrid=hybrid)
    assert len(index) == len(expected) == index.info()["passages"] == 56
    assert {passage.id for passage in index.search("who", k=1000)} == {passage.id for passage in left}
    if not hybrid:  # BM25 counts deleted passages until the index is compacted
        assert found(index) == found(expected)
    again = ColBERTIndex.open(tmp_path / "index", checkpoint=checkpoint)
    assert [again.search(query) for query in QUERIES] == [index.search(query) for query in QUERIES]
    again.verify()
    index.compact()
    assert found(index) == found(expected)
    for key in ("corpus_fingerprint", "passages", "vectors", "segments", "deleted"):
        assert index.info()[key] == expected.info()[key], key
    names = {path.name for path in (tmp_path / "index").iterdir()}
    assert names == {path.name for path in (tmp_path / "new").iterdir()}
    ColBERTIndex.open(tmp_path / "index", checkpoint=checkpoint).verify()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *(".index.hopgate-lock", ".new.hopgate-lock", "index", "new")
    ]


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(st.tuples(st.sampled_from(["add", "delete", "compact"]), st.integers(0, 59)), max_size=7))
def test_any_sequence_of_updates(
    tmp_path: Path, checkpoint: Path, steps: list[tuple[str, int]], small_chunks: None
) -> None:
    shutil.rmtree(tmp_path / "index", ignore_errors=True)
    index = build(tmp_path / "index", ALL[:5], checkpoint)
    there = {passage.id: passage for passage in ALL[:5]}
    for step, number in steps:
        passage = ALL[number]
        if step == "compact":
            index.compact()
        elif step == "add" and passage.id in there:
            index.add([passage])  # just so already
            with pytest.raises(CorpusError, match="already"):
                index.add([Passage(passage.id, "", "another text")])
        elif step == "add":
            index.add([passage])
            there[passage.id] = passage
        elif passage.id not in there or len(there) == 1:
            with pytest.raises(InputError):
                index.delete([passage.id])
        else:
            index.delete([passage.id])
            del there[passage.id]
    assert len(index) == len(there)
    assert index.passages(list(there)) == list(there.values())
    assert {p.id for p in ColBERTIndex.open(tmp_path / "index", checkpoint=checkpoint).search("x", 99)} == set(there)


def test_what_cannot_be_added_or_deleted(tmp_path: Path, checkpoint: Path) -> None:
    index = build(tmp_path / "index", ALL[:9], checkpoint)
    before = {path: path.read_bytes() for path in (tmp_path / "index").rglob("*") if path.is_file()}
    bad: Any = None
    for call, error, reason in (
        (lambda: index.add([ALL[9], ALL[3]]), CorpusError, "id 'p3' already; delete it first"),
        (lambda: index.add([ALL[2], Passage("p3", "", "x")]), CorpusError, "id 'p3' already; delete it first"),
        (lambda: index.add([]), CorpusError, "holds no passages"),
        (lambda: index.add([ALL[9], ALL[9]]), CorpusError, "a second time"),
        (lambda: index.add(tmp_path / "none.jsonl"), CorpusError, "no such corpus"),
        (lambda: index.add(bad), InputError, "must be a path or passages"),
        (lambda: index.delete(["p77"]), InputError, "no passage with id 'p77'"),
        (lambda: index.delete("p7"), InputError, "ids must be a list"),
        (lambda: index.delete([7]), InputError, "ids must be a list"),  # type: ignore[list-item]
        (lambda: index.delete([p.id for p in ALL[:9]]), InputError, "no passage would be left"),
    ):
        with pytest.raises(error, match=reason):
            call()
    index.delete([])
    index.add(ALL[3:5])  # just so already
    index.compact()  # nothing to do
    assert {path: path.read_bytes() for path in (tmp_path / "index").rglob("*") if path.is_file()} == before
    assert sorted(path.name for path in tmp_path.iterdir()) == [".index.hopgate-lock", "index"]
    index.delete(["p4"])
    index.add([Passage("p4", "new", "another text")])
    assert index.passages(["p4"])[0].text == "another text"


def test_metadata_and_filters_follow(tmp_path: Path, checkpoint: Path) -> None:
    index = build(
        tmp_path / "index",
        [Passage(p.id, p.title, p.text, metadata={"n": i}) for i, p in enumerate(ALL[:9])],
        checkpoint,
    )
    index.add([Passage("q", "", "who", metadata={"n": 100}), Passage("r", "", "who")])
    index.delete(["p8"])
    assert [p.id for p in index.search("who", 9, filter=lambda m: m.get("n", 0) > 6)] in (["q", "p7"], ["p7", "q"])
    assert {p.id for p in index.search("who", 9, filter=["p8", "q", "p1", "nowhere"])} == {"q", "p1"}
    assert index.search("who", 9, filter=[]) == []
    with pytest.raises(InputError, match="the filter raised KeyError"):
        index.search("who", filter=lambda metadata: metadata["n"] > 3)


def test_interrupted_add_of_other_passages_is_not_dropped(
    tmp_path: Path, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = build(tmp_path / "index", ALL[:9], checkpoint)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            index.add(ALL[20:45])
    part = tmp_path / ".index.hopgate-add"
    kept = sorted(path.name for path in (part / "vectors").iterdir())
    with pytest.raises(IndexStoreError, match=rf"other passages, and has encoded about 32 .*{part.name} to drop it"):
        index.add(ALL[50:52])
    index.add(ALL[3:5])  # just so already
    assert sorted(path.name for path in (part / "vectors").iterdir()) == kept and len(index) == 9
    with monkeypatch.context() as patch:
        patch.setattr(chunks, "_write_chunk", lambda *_: pytest.fail("encoded again"))
        index.add(ALL[20:45])
    assert len(index) == 34 and not part.exists()
    index.add(ALL[50:52])
    index.verify()


@pytest.mark.parametrize("suffix", ["csv", "tsv"])
def test_numbers_of_tables_of_text_are_texts(tmp_path: Path, checkpoint: Path, suffix: str) -> None:
    rows = [("id", "text", "year", "place"), *((f"p{i}", f"who {i}", str(1985 + i), "Rom") for i in range(9))]
    separator = {"csv": ",", "tsv": "\t"}[suffix]
    (tmp_path / f"c.{suffix}").write_text("".join(f"{separator.join(row)}\n" for row in rows))
    index = ColBERTIndex.build(tmp_path / f"c.{suffix}", tmp_path / "index", checkpoint=checkpoint)
    wrong: list[Any] = [
        lambda metadata: metadata["year"] > 1990,
        lambda metadata: metadata["year"] - 1990 > 0,
        lambda metadata: metadata.get("year", 0) >= 1990,
    ]
    for predicate in wrong:
        with pytest.raises(InputError, match=r"from CSV or TSV is text, also '1985': convert it, with int or float"):
            index.search("who", filter=predicate)
    found = index.search("who", 9, filter=lambda metadata: int(metadata["year"]) > 1990)
    assert {passage.id for passage in found} == {"p6", "p7", "p8"}
    with pytest.raises(InputError, match=r"KeyError.*use \.get"):
        index.search("who", filter=lambda metadata: int(metadata["month"]) > 3)


def test_filters_that_fail_are_told_why(tmp_path: Path, checkpoint: Path) -> None:
    rows = ["id,text,year,place,n", "a,who,1990,Rome,1", "b,who,,Rome,2", "c,who,unknown,Rome,3"]
    (tmp_path / "c.csv").write_text("".join(f"{row}\n" for row in rows))
    index = ColBERTIndex.build(tmp_path / "c.csv", tmp_path / "index", checkpoint=checkpoint)
    cases: list[tuple[Any, str]] = [
        (lambda m: int(m["year"]) > 1900, "ValueError.*an empty cell of CSV or TSV is '', here `year`: test for that"),
        (lambda m: float(m.get("year", 0)) > 1900, "ValueError.*here `year`: test for that"),
        (lambda m: int(m["year"] or 0) > 1900, "ValueError.*'unknown'.*true or false for the metadata of any passage"),
        (lambda m: m["yaer"] > 1900, r"KeyError.*use \.get"),
        (lambda m: m["year"] > 1900, "TypeError.*is text, also '1990': convert it"),
        (lambda m: m.year > 1900, "AttributeError.*true or false for the metadata of any passage"),
    ]
    for predicate, reason in cases:
        with pytest.raises(InputError, match=reason):
            index.search("who", filter=predicate)
    index.delete(["a", "c"])
    found = index.search("who", filter=lambda m: not m["year"] or int(m["year"]) > 1900)
    assert [passage.id for passage in found] == ["b"]
    nulls = ColBERTIndex.build(
        [Passage("d", "", "who", metadata={"year": None})], tmp_path / "n", checkpoint=checkpoint
    )
    with pytest.raises(InputError, match=r"TypeError.*null in it"):
        nulls.search("who", filter=lambda m: m.get("year", 0) > 1900)


def test_interrupted_add_goes_on(tmp_path: Path, checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = build(tmp_path / "index", ALL[:9], checkpoint)
    encode = Encoder.encode_passages
    encoded: list[int] = []

    def failing(self: Encoder, texts: Any, **options: Any) -> Any:
        if len(encoded) == 2:
            raise KeyboardInterrupt
        encoded.append(len(texts))
        return encode(self, texts, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Encoder, "encode_passages", failing)
        with pytest.raises(KeyboardInterrupt):
            index.add(ALL[20:45])
    assert len(ColBERTIndex.open(tmp_path / "index", checkpoint=checkpoint)) == 9
    # Between the files and the manifest.
    with monkeypatch.context() as patch:
        patch.setattr(updates, "write_manifest", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        patch.setattr(
            Encoder, "encode_passages", lambda self, texts, **o: encoded.append(len(texts)) or encode(self, texts, **o)
        )
        with pytest.raises(KeyboardInterrupt):
            index.add(ALL[20:45])
    assert encoded == [8, 8, 8, 1]
    assert len(ColBERTIndex.open(tmp_path / "index", checkpoint=checkpoint)) == 9
    index.add(ALL[20:45])
    assert len(index) == 34
    ColBERTIndex.open(tmp_path / "index", checkpoint=checkpoint).verify()


def test_update_of_another_process_is_kept(tmp_path: Path, checkpoint: Path) -> None:
    one = build(tmp_path / "index", ALL[:9], checkpoint)
    two = ColBERTIndex.open(tmp_path / "index", checkpoint=checkpoint)
    one.add(ALL[9:12])
    assert len(two) == 9  # keeps what it opened
    two.add(ALL[12:15])
    assert len(two) == 15
    one.delete(["p14"])
    assert len(one) == 14
    two.compact()
    assert len(two) == len(one) == 14
    assert one.search("who", 99) == two.search("who", 99)
    build(tmp_path / "index", ALL[:3], make_checkpoint(tmp_path / "other", seed=1), replace=True)
    with pytest.raises(IndexStoreError, match="another checkpoint"):
        one.add(ALL[20:22])


def test_update_while_another_is_under_way(tmp_path: Path, checkpoint: Path) -> None:
    index = build(tmp_path / "index", ALL[:9], checkpoint)
    refused: list[str] = []

    def second(done: int, total: int) -> None:
        for call in (lambda: index.delete(["p1"]), index.compact, lambda: index.add(ALL[50:])):
            with pytest.raises(HopgateError) as caught:
                call()
            refused.append(str(caught.value))

    index.add(ALL[9:12], on_progress=second)
    assert refused and all("another process" in message for message in refused)
    assert len(index) == 12


def test_searches_during_updates_see_one_moment(tmp_path: Path, checkpoint: Path) -> None:
    index = build(tmp_path / "index", ALL[:10], checkpoint)
    states = [10, 15, 14, 14, 20]
    seen: set[int] = set()
    failures: list[Exception] = []
    ended = threading.Event()

    def search() -> None:
        try:
            while not ended.is_set():
                seen.add(len(index.search("who", 1000)))
        except (HopgateError, OSError, ValueError, IndexError) as error:  # told by the main thread
            failures.append(error)

    threads = [threading.Thread(target=search) for _ in range(4)]
    for thread in threads:
        thread.start()
    index.add(ALL[10:15])
    index.delete(["p2"])
    index.compact()
    index.add(ALL[15:21])
    ended.set()
    for thread in threads:
        thread.join()
    assert not failures and seen <= set(states)


def test_read_only_folder(tmp_path: Path, checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = build(tmp_path / "index", ALL[:9], checkpoint)

    def refused(*_: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(updates, "write_atomic", refused)
    monkeypatch.setattr(updates, "write_manifest", refused)
    for call in (lambda: index.delete(["p1"]), lambda: index.add(ALL[9:12])):
        with pytest.raises(IndexStoreError, match="Permission denied"):
            call()
    assert len(index) == 9 and len(ColBERTIndex.open(tmp_path / "index", checkpoint=checkpoint)) == 9


@pytest.mark.filterwarnings("ignore")
def test_plaid_with_a_delta(tmp_path: Path) -> None:
    needs_compiler()
    checkpoint = make_checkpoint(tmp_path / "tiny", dim=16)
    many = passages(1400)
    index = build(tmp_path / "index", many[:1300], checkpoint, engine="plaid", nbits=2)
    exact = build(tmp_path / "exact", many, checkpoint, engine="exact")
    index.add(many[1300:])
    index.delete([passage.id for passage in many[:1200:100]])
    exact.delete([passage.id for passage in many[:1200:100]])
    gone = {passage.id for passage in many[:1200:100]}
    for query in (many[1350].text, many[77].text):
        best, expected = index.search(query, 5), exact.search(query, 5)
        assert best[0].id == expected[0].id
        assert not gone & {passage.id for passage in index.search(query, 200)}
        known = {passage.id: passage.score for passage in exact.search(query, 1400)}
        assert all(passage.score == pytest.approx(known[passage.id], abs=0.02) for passage in best)
    assert len(index.search("who", 5000)) == 1400 - 12
    odd = [passage.id for passage in many[1::2]]
    assert {passage.id for passage in index.search(many[78].text, 20, filter=odd)} <= set(odd)
    index.compact()
    assert index.info()["engine"] == "plaid" and len(index.info()["segments"]) == 1
    assert index.search(many[1350].text, 1)[0].id in {passage.id for passage in exact.search(many[1350].text, 9)}
