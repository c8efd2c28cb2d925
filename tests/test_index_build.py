"""Building: every size of corpus, interruption, two at once, what is refused, and a folder that can be moved."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_index_support import make_checkpoint, passages, write_corpus

from hopgate.core import CorpusError, HopgateError, IndexStoreError, InputError, Passage
from hopgate.core import files as core_files
from hopgate.index import ColBERTIndex, Encoder, build, chunks, read_info
from hopgate.index.manifest import list_files


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("checkpoint") / "tiny")


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "CHUNK", 4)


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("count", [1, 2, 3, 10, 21])
@pytest.mark.usefixtures("small_chunks")
def test_every_size_finds_each_passage(tmp_path: Path, checkpoint: Path, count: int) -> None:
    corpus = passages(count)
    progress: list[tuple[int, int]] = []
    index = ColBERTIndex.build(
        corpus,
        tmp_path / "index",
        checkpoint=checkpoint,
        precision="fp32",
        on_progress=lambda done, total: progress.append((done, total)),
    )
    assert len(index) == count
    assert progress[-1] == (count, count)
    assert progress == sorted(progress)
    found = index.search("who", k=1000)
    assert sorted(passage.id for passage in found) == sorted(passage.id for passage in corpus)
    # Under a foreign id a passage is encoded afresh: each one's stored vectors must be its own.
    fresh = {p.id[1:]: p.score for p in index.rerank("who", [Passage(f"x{p.id}", p.title, p.text) for p in corpus])}
    assert {p.id: p.score for p in found} == pytest.approx(fresh, abs=5e-3)
    assert sorted(p.name for p in tmp_path.iterdir()) == [".index.hopgate-lock", "index"]
    names = {path.name for path in (tmp_path / "index").iterdir()}
    assert names == {"manifest.json", "passages.jsonl", "passages.offsets.npy", "vectors"}


def test_empty_corpus_leaves_nothing(tmp_path: Path, checkpoint: Path) -> None:
    with pytest.raises(CorpusError, match="holds no passages"):
        ColBERTIndex.build([], tmp_path / "index", checkpoint=checkpoint)
    corpus = write_corpus(tmp_path / "c.jsonl", [{"id": 1, "text": "x"}, "broken"])
    with pytest.raises(CorpusError, match=r"c\.jsonl:2: "):
        ColBERTIndex.build(corpus, tmp_path / "index", checkpoint=checkpoint)
    assert sorted(p.name for p in tmp_path.iterdir()) == [".index.hopgate-lock", "c.jsonl"]


def test_odd_texts_come_back_as_they_are(tmp_path: Path, checkpoint: Path) -> None:
    corpus = [
        Passage("日本", "émigré 🙂", 'a\0b\u2028\r\n\t\\ "quoted" </script>'),
        Passage("long", "", "word " * 20_000),
        Passage("twin 1", "T", "the same"),
        Passage("twin 2", "T", "the same"),
        Passage("...", "", "?!"),
    ]
    index = ColBERTIndex.build(corpus, tmp_path / "index", checkpoint=checkpoint)
    assert index.passages([passage.id for passage in corpus]) == corpus
    assert [passage.id for passage in index.search("T | the same", k=2)] == ["twin 1", "twin 2"]


@pytest.mark.parametrize("bad", [{"engine": "fast"}, {"nbits": 3}, {"nbits": True}, {"nbits": 2.0}, {"nbits": "2"}])
def test_bad_arguments(tmp_path: Path, checkpoint: Path, bad: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=f"{next(iter(bad))} must be one of"):
        ColBERTIndex.build(passages(2), tmp_path / "index", checkpoint=checkpoint, **bad)
    unsure: Any = "no"
    with pytest.raises(InputError, match="replace must be"):
        ColBERTIndex.build(passages(2), tmp_path / "index", checkpoint=checkpoint, replace=unsure)


def test_bad_passages(tmp_path: Path, checkpoint: Path) -> None:
    strings: Any = ["text"]
    with pytest.raises(InputError, match=r"corpus\[0\] is a str"):
        ColBERTIndex.build(strings, tmp_path / "index", checkpoint=checkpoint)
    with pytest.raises(CorpusError, match=r"corpus\[1\]: id 'a' occurs a second time"):
        ColBERTIndex.build([Passage("a", "", "x"), Passage("a", "", "y")], tmp_path / "index", checkpoint=checkpoint)


def test_what_is_not_an_index_is_not_touched(tmp_path: Path, checkpoint: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "precious.txt").write_text("x")
    (tmp_path / "file").write_text("x")
    for name, reason in (("folder", "is not an index"), ("file", "is a file")):
        with pytest.raises(IndexStoreError, match=reason):
            ColBERTIndex.build(passages(2), tmp_path / name, checkpoint=checkpoint)
    assert (tmp_path / "folder" / "precious.txt").read_text() == "x"
    (tmp_path / "empty").mkdir()
    assert len(ColBERTIndex.build(passages(2), tmp_path / "empty", checkpoint=checkpoint)) == 2


@pytest.mark.parametrize("name", ["{}.part", "{}.old", ".{}.part", ".{}.lock", "{}-old"])
def test_neighbours_of_the_index_are_left_alone(tmp_path: Path, checkpoint: Path, name: str) -> None:
    precious = tmp_path / name.format("ix") / "precious.txt"
    precious.parent.mkdir()
    precious.write_text("x")
    ColBERTIndex.build(passages(3), tmp_path / "ix", checkpoint=checkpoint)
    ColBERTIndex.build(passages(2), tmp_path / "ix", checkpoint=checkpoint, replace=True)
    with pytest.raises(CorpusError):
        ColBERTIndex.build([], tmp_path / "ix", checkpoint=checkpoint)
    assert files(precious.parent) == {"precious.txt": b"x"}


@pytest.mark.parametrize("kind", ["folder", "link", "file"])
@pytest.mark.parametrize("name", [".ix.hopgate-part", ".ix.hopgate-old"])
def test_foreign_content_under_our_names_is_refused(tmp_path: Path, checkpoint: Path, name: str, kind: str) -> None:
    precious = (tmp_path / "elsewhere" if kind == "link" else tmp_path / name) / "precious.txt"
    if kind == "file":
        precious = precious.parent
    precious.parent.mkdir(exist_ok=True)
    precious.write_text("x")
    if kind == "link":
        (tmp_path / name).symlink_to(precious.parent)
    for corpus in (passages(3), []):
        with pytest.raises(IndexStoreError, match=rf"{name}: is in the way of building .*; move it elsewhere"):
            ColBERTIndex.build(corpus, tmp_path / "ix", checkpoint=checkpoint)
    assert precious.read_text() == "x"
    assert not (tmp_path / "ix").exists()


def test_what_an_interrupted_build_leaves_is_cleared_away(tmp_path: Path, checkpoint: Path) -> None:
    ColBERTIndex.build(passages(3), tmp_path / "ix", checkpoint=checkpoint)
    shutil.copytree(tmp_path / "ix", tmp_path / ".ix.hopgate-old")  # killed before the old index was removed
    (tmp_path / ".ix.hopgate-part").mkdir()  # killed before the first file was written
    assert len(ColBERTIndex.build(passages(2), tmp_path / "ix", checkpoint=checkpoint, replace=True)) == 2
    assert sorted(p.name for p in tmp_path.iterdir()) == [".ix.hopgate-lock", "ix"]


def test_index_that_cannot_be_put_in_place_leaves_the_old_one(
    tmp_path: Path, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ColBERTIndex.build(passages(3), tmp_path / "ix", checkpoint=checkpoint)
    rename = Path.rename

    def failing(self: Path, target: Path) -> Path:
        if self.name == ".ix.hopgate-part":
            raise OSError(5, "Input/output error")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", failing)
    with pytest.raises(IndexStoreError, match="Input/output error"):
        ColBERTIndex.build(passages(2), tmp_path / "ix", checkpoint=checkpoint, replace=True)
    assert len(ColBERTIndex.open(tmp_path / "ix", checkpoint=checkpoint)) == 3


def test_link_to_an_index_stays_a_link(tmp_path: Path, checkpoint: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "disk" / "real")  # leads nowhere yet
    for count in (3, 2):
        built = ColBERTIndex.build(passages(count), tmp_path / "link", checkpoint=checkpoint, replace=True)
        assert len(built) == count
        assert (tmp_path / "link").is_symlink() and (tmp_path / "disk" / "real" / "manifest.json").is_file()
    assert len(ColBERTIndex.open(tmp_path / "link", checkpoint=checkpoint)) == 2
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(IndexStoreError, match="loop"):
        ColBERTIndex.build(passages(2), tmp_path / "loop", checkpoint=checkpoint)


@pytest.mark.parametrize(
    ("corpus", "reason"),
    [
        (None, "corpus must be"),
        (5, "corpus must be"),
        (b"c.jsonl", "corpus must be"),
        ({"a": 1}, "corpus must be"),
        ([None], r"corpus\[0\] is a NoneType"),
        ([Passage("0", "", "x"), Passage(1, "", "a")], r"corpus\[1\]: `id` of a passage must be a string"),  # type: ignore
        ([Passage("1", None, "a")], r"corpus\[0\]: `title` of a passage"),  # type: ignore
        ([Passage("1", "", None)], r"corpus\[0\]: `text` of a passage"),  # type: ignore
        ([Passage("1", "\ud800", "x")], "surrogate"),
        ("~nosuchuser/c.jsonl", "no such home folder"),
    ],
)
def test_unusable_corpus_leaves_nothing(tmp_path: Path, checkpoint: Path, corpus: Any, reason: str) -> None:
    with pytest.raises((InputError, CorpusError), match=reason):
        ColBERTIndex.build(corpus, tmp_path / "index", checkpoint=checkpoint)
    assert {path.name for path in tmp_path.iterdir()} <= {".index.hopgate-lock"}


def test_paths_that_cannot_be(tmp_path: Path, checkpoint: Path) -> None:
    for path in ("~nosuchuser/index", "a\0b", "\ud800", None, 5):
        bad: Any = path
        for call in (
            lambda bad=bad: ColBERTIndex.build(passages(2), bad, checkpoint=checkpoint),
            lambda bad=bad: ColBERTIndex.build(passages(2), tmp_path / "index", checkpoint=bad),
            lambda bad=bad: ColBERTIndex.open(bad),
            lambda bad=bad: read_info(bad),
        ):
            with pytest.raises(InputError):
                call()
    assert list(tmp_path.iterdir()) == []


def test_home_folder_is_filled_in(tmp_path: Path, checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    write_corpus(tmp_path / "c.jsonl", [passage.to_dict() for passage in passages(2)])
    assert len(ColBERTIndex.build("~/c.jsonl", "~/index", checkpoint=checkpoint)) == 2
    assert (tmp_path / "index" / "manifest.json").is_file()


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a folder that refuses files")
def test_folder_that_refuses_files_is_not_a_held_lock(checkpoint: Path) -> None:
    with pytest.raises(IndexStoreError, match="cannot write the index") as caught:
        ColBERTIndex.build(passages(2), "/proc/x", checkpoint=checkpoint)
    assert "another process" not in str(caught.value)


def test_finished_index_is_not_built_again(tmp_path: Path, checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = write_corpus(tmp_path / "c.jsonl", [passage.to_dict() for passage in passages(5)])
    ColBERTIndex.build(corpus, tmp_path / "index", checkpoint=checkpoint)
    before = files(tmp_path / "index")
    monkeypatch.setattr(Encoder, "encode_passages", lambda *_, **__: pytest.fail("encoded again"))
    assert len(ColBERTIndex.build(corpus, tmp_path / "index", checkpoint=checkpoint)) == 5
    assert len(ColBERTIndex.build(passages(5), tmp_path / "index", checkpoint=checkpoint, engine="exact")) == 5
    assert files(tmp_path / "index") == before
    assert not (tmp_path / ".index.hopgate-part").exists()


def test_other_corpus_or_checkpoint_replaces_if_it_may(tmp_path: Path, checkpoint: Path) -> None:
    index = ColBERTIndex.build(passages(5), tmp_path / "index", checkpoint=checkpoint)
    assert len(ColBERTIndex.build(passages(3), tmp_path / "index", checkpoint=checkpoint, replace=True)) == 3
    other = make_checkpoint(tmp_path / "other", seed=1)
    replaced = ColBERTIndex.build(passages(3), tmp_path / "index", checkpoint=other, replace=True)
    assert replaced.info()["checkpoint"] == "other"
    # The one that was open goes on with the files that it has mapped.
    assert len(index.search("who", k=9)) == 5


def _added(index: ColBERTIndex) -> None:
    index.add([Passage("new", "", "a new passage")])


def _deleted(index: ColBERTIndex) -> None:
    index.delete(["p1"])


def _compacted(index: ColBERTIndex) -> None:
    _deleted(index)
    index.compact()


def _garbled(index: ColBERTIndex) -> None:
    (Path(index.info()["path"]) / "manifest.json").write_text("{")


def _damaged_after_an_update(index: ColBERTIndex) -> None:
    _added(index)
    (Path(index.info()["path"]) / "vectors" / "00000.npy").unlink()


def _newer(index: ColBERTIndex) -> None:
    path = Path(index.info()["path"]) / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": 3, "unheard": "of"}))


def _as_it_was(index: ColBERTIndex) -> None:
    pass


@pytest.mark.parametrize(
    ("change", "options", "reason"),
    [
        (_added, {}, "was changed since it was built, which would be lost"),
        (_deleted, {}, "was changed since it was built"),
        (_compacted, {}, "is an index of another corpus;"),
        (_garbled, {}, "whose manifest cannot be read"),
        (_damaged_after_an_update, {}, "was changed since it was built"),
        (_newer, {}, "is an index of format 3, which needs a newer hopgate"),
        (_as_it_was, {"corpus": passages(4)}, "is an index of another corpus;"),
        (_as_it_was, {"corpus": passages(6)[::-1]}, "is an index of another corpus;"),
        (_as_it_was, {"checkpoint": "other"}, "is an index of another checkpoint, 'tiny';"),
        (_as_it_was, {"corpus": passages(4), "checkpoint": "other"}, "of another corpus, and of another checkpoint"),
        (_as_it_was, {"precision": "int8"}, "is an index with precision='fp32';"),
        (_as_it_was, {"hybrid": True}, "is an index with hybrid=False;"),
    ],
)
def test_an_index_of_something_else_or_with_updates_is_not_replaced_unasked(
    tmp_path: Path, checkpoint: Path, change: Any, options: dict[str, Any], reason: str
) -> None:
    index = ColBERTIndex.build(passages(6), tmp_path / "index", checkpoint=checkpoint, precision="fp32")
    change(index)
    before = files(tmp_path / "index")
    wanted: dict[str, Any] = {"checkpoint": checkpoint, "precision": "fp32", **options}
    corpus = wanted.pop("corpus", passages(6))
    if wanted["checkpoint"] == "other":
        wanted["checkpoint"] = make_checkpoint(tmp_path / "other", seed=1)
    with pytest.raises(IndexStoreError, match=f"{reason}.*name another folder, or replace it with replace=True"):
        ColBERTIndex.build(corpus, tmp_path / "index", **wanted)
    assert files(tmp_path / "index") == before
    assert not (tmp_path / ".index.hopgate-part").exists()
    replaced = ColBERTIndex.build(corpus, tmp_path / "index", **wanted, replace=True)
    assert [passage.id for passage in replaced.passages(passage.id for passage in corpus)] == [p.id for p in corpus]
    assert len(replaced) == len(corpus)
    ColBERTIndex.build(corpus, tmp_path / "index", **wanted)  # now it is what is wanted


def test_work_on_a_replacement_is_kept_when_it_is_refused(
    tmp_path: Path, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ColBERTIndex.build(passages(6), tmp_path / "index", checkpoint=checkpoint)
    with monkeypatch.context() as patch:
        patch.setattr(build, "finish", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            ColBERTIndex.build(passages(9), tmp_path / "index", checkpoint=checkpoint, replace=True)
    with pytest.raises(IndexStoreError, match="another corpus"):
        ColBERTIndex.build(passages(9), tmp_path / "index", checkpoint=checkpoint)
    monkeypatch.setattr(chunks, "_write_chunk", lambda *_: pytest.fail("encoded again"))
    assert len(ColBERTIndex.build(passages(9), tmp_path / "index", checkpoint=checkpoint, replace=True)) == 9


@pytest.mark.usefixtures("small_chunks")
def test_interrupted_build_goes_on(tmp_path: Path, checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = passages(18)
    ColBERTIndex.build(corpus, tmp_path / "whole", checkpoint=checkpoint)
    original = Encoder.encode_passages
    encoded: list[int] = []

    def failing(self: Encoder, texts: Any, **options: Any) -> Any:
        if len(encoded) == 2:
            raise KeyboardInterrupt
        encoded.append(len(texts))
        return original(self, texts, **options)

    monkeypatch.setattr(Encoder, "encode_passages", failing)
    with pytest.raises(KeyboardInterrupt):
        ColBERTIndex.build(corpus, tmp_path / "index", checkpoint=checkpoint)
    assert not (tmp_path / "index").exists()
    encoded[:] = [0] * 10
    ColBERTIndex.build(corpus, tmp_path / "index", checkpoint=checkpoint)
    assert encoded[-3:] == [4, 4, 2]  # what comes before is the sample for the estimate
    assert files(tmp_path / "index") == files(tmp_path / "whole")


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ("corpus", "other passages"),
        ("checkpoint", "another checkpoint"),
        ("precision", "precision='fp32'"),
        ("chunk", "another version of hopgate"),
    ],
)
def test_unfinished_chunks_of_something_else_are_dropped_if_they_may(
    tmp_path: Path, checkpoint: Path, monkeypatch: pytest.MonkeyPatch, changed: str, reason: str
) -> None:
    first: dict[str, Any] = {"corpus": passages(9), "checkpoint": checkpoint, "precision": "fp32"}
    with monkeypatch.context() as patch:
        patch.setattr(build, "_make_engine", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            ColBERTIndex.build(path=tmp_path / "index", **first)
    kept = files(tmp_path / ".index.hopgate-part" / "vectors")
    assert "00002.npy" in kept
    other = dict(first)
    if changed == "corpus":
        other["corpus"] = [*passages(8), Passage("p8", "", "new")]
    elif changed == "checkpoint":
        other["checkpoint"] = make_checkpoint(tmp_path / "other", seed=1)
    elif changed == "precision":
        other["precision"] = "int8"
    with monkeypatch.context() as patch:
        if changed == "chunk":
            patch.setattr(chunks, "CHUNK", 3)
        with pytest.raises(IndexStoreError, match=f"begun with {reason}, and has encoded about 12 .*replace=True"):
            ColBERTIndex.build(path=tmp_path / "index", **other)
        assert files(tmp_path / ".index.hopgate-part" / "vectors") == kept
        # Refusing has not spoilt what can be gone on with.
        shutil.copytree(tmp_path / ".index.hopgate-part", tmp_path / ".copy.hopgate-part")
        ColBERTIndex.build(path=tmp_path / "index", replace=True, **other)
        ColBERTIndex.build(path=tmp_path / "whole", **other)
        assert files(tmp_path / "index") == files(tmp_path / "whole")
    monkeypatch.setattr(chunks, "_write_chunk", lambda *_: pytest.fail("encoded again"))
    assert len(ColBERTIndex.build(path=tmp_path / "copy", **first)) == 9


@pytest.mark.usefixtures("small_chunks")
def test_unfinished_chunks_are_kept_beside_a_finished_index(
    tmp_path: Path, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ColBERTIndex.build(passages(5), tmp_path / "index", checkpoint=checkpoint)
    with monkeypatch.context() as patch:
        patch.setattr(build, "_make_engine", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            ColBERTIndex.build(passages(9), tmp_path / "index", checkpoint=checkpoint, replace=True)
    assert len(ColBERTIndex.build(passages(5), tmp_path / "index", checkpoint=checkpoint)) == 5
    monkeypatch.setattr(chunks, "_write_chunk", lambda *_: pytest.fail("encoded again"))
    assert len(ColBERTIndex.build(passages(9), tmp_path / "index", checkpoint=checkpoint, replace=True)) == 9


def test_vectors_taken_over_do_not_pass_for_those_of_an_earlier_plan(
    tmp_path: Path, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reversed_ = [Passage(p.id, o.title, o.text) for p, o in zip(passages(6), passages(6)[::-1], strict=True)]
    ColBERTIndex.build(passages(6), tmp_path / "index", checkpoint=checkpoint)
    with monkeypatch.context() as patch:
        patch.setattr(build, "finish", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            ColBERTIndex.build(reversed_, tmp_path / "index", checkpoint=checkpoint, replace=True)
    copy = shutil.copytree

    def killed(*arguments: Any, **options: Any) -> None:
        copy(*arguments, **options)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "copytree", killed)
        with pytest.raises(KeyboardInterrupt):
            ColBERTIndex.build(passages(6), tmp_path / "index", checkpoint=checkpoint, hybrid=True, replace=True)
    ColBERTIndex.build(reversed_, tmp_path / "index", checkpoint=checkpoint, replace=True)
    ColBERTIndex.build(reversed_, tmp_path / "whole", checkpoint=checkpoint)
    assert files(tmp_path / "index") == files(tmp_path / "whole")


KILLED = """
import sys
from hopgate.index import ColBERTIndex, chunks
from test_index_support import passages
chunks.CHUNK = 4
ColBERTIndex.build(passages(160), sys.argv[1], checkpoint=sys.argv[2], on_progress=lambda d, t: print(d, flush=True))
"""


@pytest.mark.skipif(os.name != "posix", reason="kill -9 is POSIX")
def test_killed_build_goes_on(tmp_path: Path, checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "CHUNK", 4)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", KILLED, str(tmp_path / "index"), str(checkpoint)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True) as process:
        stdout = process.stdout
        assert stdout is not None
        while int(stdout.readline() or 160) < 20:
            pass
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    assert not (tmp_path / "index").exists()
    kept = len(list((tmp_path / ".index.hopgate-part" / "vectors").glob("?????.npy")))
    assert 0 < kept < 40
    first = time.time_ns()
    ColBERTIndex.build(passages(160), tmp_path / "index", checkpoint=checkpoint)
    vectors = (tmp_path / "index" / "vectors").glob("?????.npy")
    assert sum(path.stat().st_mtime_ns < first for path in vectors) == kept
    ColBERTIndex.build(passages(160), tmp_path / "whole", checkpoint=checkpoint)
    assert files(tmp_path / "index").keys() == files(tmp_path / "whole").keys()
    queries = [passage.text for passage in passages(30)]
    one, two = (ColBERTIndex.open(tmp_path / name, checkpoint=checkpoint) for name in ("index", "whole"))
    assert [one.search(query) for query in queries] == [two.search(query) for query in queries]


def test_two_builds_at_once(tmp_path: Path, checkpoint: Path) -> None:
    refused: list[str] = []

    def second(done: int, total: int) -> None:
        if not refused:
            with pytest.raises(HopgateError) as caught:
                ColBERTIndex.build(passages(3), tmp_path / "index", checkpoint=checkpoint)
            refused.append(str(caught.value))

    assert len(ColBERTIndex.build(passages(5), tmp_path / "index", checkpoint=checkpoint, on_progress=second)) == 5
    assert "another process is building this index" in refused[0]


def test_moved_folder_and_nothing_of_the_machine_inside(tmp_path: Path, checkpoint: Path) -> None:
    index = ColBERTIndex.build(passages(6), tmp_path / "index", checkpoint=checkpoint)
    expected = index.search("capital of france")
    shutil.move(tmp_path / "index", tmp_path / "elsewhere")
    moved = ColBERTIndex.open(tmp_path / "elsewhere", checkpoint=checkpoint)
    assert moved.search("capital of france") == expected
    moved.verify()
    import socket

    content = b"".join(files(tmp_path / "elsewhere").values())
    for secret in (str(tmp_path), str(checkpoint.parent), socket.gethostname(), str(Path.home()), sys.argv[0]):
        assert len(secret) < 3 or secret.encode() not in content


@pytest.fixture
def built(tmp_path: Path, checkpoint: Path) -> Path:
    ColBERTIndex.build(passages(6), tmp_path / "index", checkpoint=checkpoint)
    return tmp_path / "index"


def test_wrong_and_missing_checkpoint(built: Path, checkpoint: Path, tmp_path: Path) -> None:
    with pytest.raises(IndexStoreError, match="made with the local checkpoint 'tiny'; name its folder"):
        ColBERTIndex.open(built)
    other = make_checkpoint(tmp_path / "other", seed=1)
    with pytest.raises(IndexStoreError, match="made with another checkpoint"):
        ColBERTIndex.open(built, checkpoint=other)
    assert read_info(built)["checkpoint"] == "tiny"
    assert len(ColBERTIndex.open(built, checkpoint=checkpoint)) == 6


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"format": 99}, "`format` is 99, which is newer than .* install a newer hopgate"),
        ({"format": 1}, "`format` is 1 and this version of hopgate reads 2; build the index again"),
        ({"format": "3"}, "`format` is '3' and .* build the index again"),
        ({"passages": "6"}, "`passages` is '6'"),
        ({"engine": "other"}, "engine 'other'"),
        ({"passages": 7}, "do not fit the manifest"),
        ({"vectors": 7}, "do not fit the manifest"),
        ({"passages": 0}, "`passages` is 0 and must be at least 1"),
        ({"revision": -1}, "`revision` is -1 and must be at least 0"),
        ({"segments": []}, "`segments` is empty"),
        ({"segments": {}}, "`segments` is {}"),
        ({"segments": [3]}, "`segments` holds 3"),
        ({"segments": [{"folder": ".", "passages": 6, "chunks": 0}]}, "`segments` holds"),
        ({"segments": [{"folder": ".", "passages": True, "chunks": 1}]}, "`segments` holds"),
        ({"segments": [{"folder": 1, "passages": 6, "chunks": 1}]}, "`segments` holds"),
        ({"segments": [{"folder": "../x", "passages": 6, "chunks": 1}]}, "`segments` holds"),
        ({"segments": [{"folder": ".", "passages": 6, "chunks": 1}] * 2}, "`segments` holds"),
        ({"segments": [{"folder": ".", "passages": 6, "chunks": 2}]}, "lacks 'vectors/00001.npy'"),
        ({"segments": [{"folder": ".", "passages": 7, "chunks": 1}]}, "do not fit the manifest"),
        ({"deleted": "deleted-0001.npy"}, "lacks 'deleted-0001.npy'"),
        ({"deleted": "/etc/passwd"}, "`deleted` is '/etc/passwd'"),
        ({"deleted": ""}, "`deleted` is ''"),
        ({"lexical": ""}, "`lexical` is ''"),
        ({"lexical": "lexical-0000/x"}, "`lexical` is 'lexical-0000/x'"),
        ({"lexical": "lexical-0000"}, "lacks 'lexical-0000/"),
        ({"dim": 17}, "do(es)? not fit"),
        ({"precision": "auto"}, "do not fit the checkpoint"),
        ({"lexical": 3}, "`lexical` is 3"),
        ({"dim": True}, "`dim` is True"),
        ({"engine": "plaid"}, "lacks 'plaid/"),
        ({"files": {}}, "lacks 'passages.jsonl'"),
        ({"new": 1}, "unknown field `new`"),
        ({"files": {"../../etc/passwd": {"bytes": 1, "sha256": ""}}}, "not inside the folder"),
        ({"files": {"/etc/passwd": {"bytes": 1, "sha256": ""}}}, "not inside the folder"),
        ({"files": {"passages.jsonl": {"bytes": "1", "sha256": ""}}}, "no size and checksum"),
    ],
)
def test_changed_manifest(built: Path, checkpoint: Path, changes: dict[str, Any], reason: str) -> None:
    path = built / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    with pytest.raises(IndexStoreError, match=reason):
        ColBERTIndex.open(built, checkpoint=checkpoint)


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"format": 1}', "[" * 100_000, "9" * 5_000, "null"])
def test_broken_manifest(built: Path, checkpoint: Path, content: str) -> None:
    (built / "manifest.json").write_text(content)
    with pytest.raises(IndexStoreError, match=r"manifest\.json: "):
        ColBERTIndex.open(built, checkpoint=checkpoint)


@pytest.mark.parametrize(
    "name", ["passages.jsonl", "passages.offsets.npy", "vectors/00000.npy", "vectors/00000.lengths.npy"]
)
@pytest.mark.parametrize("damage", ["missing", "truncated", "linked", "changed"])
def test_damaged_file_is_named(built: Path, checkpoint: Path, tmp_path: Path, name: str, damage: str) -> None:
    path = built / name
    if damage == "missing":
        path.unlink()
    elif damage == "truncated":
        path.write_bytes(path.read_bytes()[:-1])
    elif damage == "linked":
        path.symlink_to(path.rename(tmp_path / "outside"))
    else:
        content = bytearray(path.read_bytes())
        content[-3] ^= 1
        path.write_bytes(bytes(content))
    with pytest.raises(IndexStoreError, match=path.name.split(".")[0]):
        ColBERTIndex.open(built, checkpoint=checkpoint)
    assert len(ColBERTIndex.build(passages(6), built, checkpoint=checkpoint)) == 6
    ColBERTIndex.open(built, checkpoint=checkpoint).verify()


def with_checksums(folder: Path) -> None:
    """Make the manifest agree with what the files are now."""
    path = folder / "manifest.json"
    record = json.loads(path.read_text())
    path.write_text(json.dumps({**record, "files": list_files(folder)}))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_vectors_that_are_not_numbers(built: Path, checkpoint: Path, value: float) -> None:
    vectors = np.load(built / "vectors" / "00000.npy")
    vectors[3] = value
    np.save(built / "vectors" / "00000.npy", vectors)
    with_checksums(built)
    index = ColBERTIndex.open(built, checkpoint=checkpoint)
    for call in (lambda: index.search("who"), lambda: index.rerank("who", passages(6))):
        with pytest.raises(IndexStoreError, match="scores that are not numbers"):
            call()


@pytest.mark.parametrize("lengths", ["zero", "negative", "none", "table", "floats"])
def test_lengths_that_cannot_be(built: Path, checkpoint: Path, lengths: str) -> None:
    path = built / "vectors" / "00000.lengths.npy"
    array = np.load(path)
    if lengths in ("zero", "negative"):
        array[1] += array[0] if lengths == "zero" else array[0] + 1
        array[0] = 0 if lengths == "zero" else -1
    else:
        array = {"none": array[:0], "table": array[None], "floats": array.astype(np.float32)}[lengths]
    np.save(path, array)
    with_checksums(built)
    with pytest.raises(IndexStoreError, match=r"00000\.lengths\.npy: does not hold the lengths"):
        ColBERTIndex.open(built, checkpoint=checkpoint)


def test_unchanged_large_files_are_not_read_again(
    built: Path, checkpoint: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOPGATE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(core_files, "_SMALL", 0)
    monkeypatch.setattr(core_files, "_FRESH_NS", 0)
    ColBERTIndex.open(built, checkpoint=checkpoint)
    read: list[Path] = []
    digest = core_files.sha256_file
    monkeypatch.setattr(core_files, "sha256_file", lambda path: read.append(path) or digest(path))
    ColBERTIndex.open(built, checkpoint=checkpoint)
    assert read == []
    path = built / "vectors" / "00000.npy"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(bytes(content))
    os.utime(path, ns=(1, 1))
    with pytest.raises(IndexStoreError, match=r"00000\.npy: does not have the checksum"):
        ColBERTIndex.open(built, checkpoint=checkpoint)
    assert read == [path.resolve()]


def test_missing_folder_and_unfinished_one(tmp_path: Path) -> None:
    with pytest.raises(IndexStoreError, match="no such index folder"):
        ColBERTIndex.open(tmp_path / "none")
    with pytest.raises(IndexStoreError, match=r"has no manifest\.json"):
        ColBERTIndex.open(tmp_path)


@pytest.mark.parametrize(
    ("here", "out"),
    [("empty", "."), ("index", "."), ("index/vectors", ".."), ("index", "../index"), ("index", "../link")],
)
def test_the_working_folder_is_not_replaced(
    tmp_path: Path, checkpoint: Path, monkeypatch: pytest.MonkeyPatch, here: str, out: str
) -> None:
    ColBERTIndex.build(passages(6), tmp_path / "index", checkpoint=checkpoint)
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to("index")
    monkeypatch.chdir(tmp_path / here)
    before = files(tmp_path)
    with pytest.raises(IndexStoreError, match=r"working folder.*name another folder, or start from outside it"):
        ColBERTIndex.build(passages(7), out, checkpoint=checkpoint, replace=True)
    assert files(tmp_path) == before and Path.cwd() == tmp_path / here
    path = Path(out).resolve()
    monkeypatch.chdir(tmp_path)
    assert len(ColBERTIndex.build(passages(7), path, checkpoint=checkpoint, replace=True)) == 7


def test_compacting_leaves_the_working_folder(built: Path, checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = ColBERTIndex.open(built, checkpoint=checkpoint)
    monkeypatch.chdir(built)
    index.compact()  # nothing to do
    index.delete(["p1"])
    with pytest.raises(IndexStoreError, match="is the working folder"):
        index.compact()
    assert Path.cwd() == built and len(ColBERTIndex.open(".", checkpoint=checkpoint)) == len(index)
    monkeypatch.chdir(built.parent)
    index.compact()
    index.verify()


@pytest.mark.skipif(os.name != "posix", reason="elsewhere a folder that is worked in cannot be removed")
def test_working_folder_that_is_gone_is_named(
    tmp_path: Path, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    for call in (read_info, ColBERTIndex.open, lambda path: ColBERTIndex.build(passages(3), path)):
        with pytest.raises(IndexStoreError, match="the working folder does not exist any more"):
            call(".")
    # A path that does not begin there needs it for nothing.
    assert len(ColBERTIndex.build(passages(3), tmp_path / "index", checkpoint=checkpoint)) == 3


@pytest.mark.parametrize(
    "address", ["http://127.0.0.1:8893", "https://host/index", "ftp://host", "HTTP://host", "s3://x/y"]
)
def test_addresses_are_no_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.chdir(tmp_path)
    for call in (read_info, ColBERTIndex.open, lambda path: ColBERTIndex.build(passages(3), path)):
        with pytest.raises(IndexStoreError, match=f"^{address}: is an address, and a folder is needed here; .*http://"):
            call(address)
    assert not list(tmp_path.iterdir())


def test_damaged_index_is_built_anew(built: Path, checkpoint: Path) -> None:
    (built / "passages.jsonl").unlink()
    assert len(ColBERTIndex.build(passages(6), built, checkpoint=checkpoint)) == 6


def test_full_disk(tmp_path: Path, checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(chunks, "write_atomic", full)
    with pytest.raises(IndexStoreError, match="No space left on device"):
        ColBERTIndex.build(passages(2), tmp_path / "index", checkpoint=checkpoint)
    assert not (tmp_path / "index").exists()
