"""Folders that were made to do harm, or that something went wrong with: one error, and nothing outside is touched."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_index_support import make_checkpoint, needs_compiler, passages

from hopgate.core import CorpusError, HopgateError, IndexStoreError, InputError, Passage
from hopgate.index import ColBERTIndex, Encoder, chunks, folders, read_info
from hopgate.index.manifest import list_files


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("checkpoint") / "tiny")


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory, checkpoint: Path) -> Path:
    folder = tmp_path_factory.mktemp("plain") / "ix"
    ColBERTIndex.build(passages(6), folder, checkpoint=checkpoint, hybrid=True)
    return folder


@pytest.fixture
def built(tmp_path: Path, plain: Path) -> Path:
    return Path(shutil.copytree(plain, tmp_path / "ix"))


@pytest.fixture(scope="module")
def compressed(tmp_path_factory: pytest.TempPathFactory, checkpoint: Path) -> Path:
    needs_compiler()
    folder = tmp_path_factory.mktemp("plaid") / "ix"
    ColBERTIndex.build(passages(300), folder, checkpoint=checkpoint, engine="plaid")
    return folder


def change(folder: Path, **fields: Any) -> None:
    """Change the manifest, and make its checksums agree with the files."""
    path = folder / "manifest.json"
    record = json.loads(path.read_text())
    path.write_text(json.dumps({**record, "files": list_files(folder), **fields}))


def test_a_manifest_alone_does_not_make_an_index(tmp_path: Path, checkpoint: Path) -> None:
    (tmp_path / "webapp" / "src").mkdir(parents=True)
    (tmp_path / "webapp" / "manifest.json").write_text('{"name": "my extension"}')
    (tmp_path / "webapp" / "src" / "code.js").write_text("precious")
    with pytest.raises(IndexStoreError, match="is not an index"):
        ColBERTIndex.build(passages(3), tmp_path / "webapp", checkpoint=checkpoint)
    (tmp_path / ".other.hopgate-old").mkdir()
    (tmp_path / ".other.hopgate-old" / "manifest.json").write_text("{}")
    with pytest.raises(IndexStoreError, match="was not made by hopgate"):
        ColBERTIndex.build(passages(3), tmp_path / "other", checkpoint=checkpoint)
    assert (tmp_path / "webapp" / "src" / "code.js").read_text() == "precious"


def test_files_of_others_in_an_index_are_not_removed(built: Path, checkpoint: Path) -> None:
    (built / "notes.txt").write_text("precious")
    index = ColBERTIndex.open(built, checkpoint=checkpoint)
    with pytest.raises(IndexStoreError, match=r"holds 'notes\.txt', which is no part of an index"):
        ColBERTIndex.build(passages(3), built, checkpoint=checkpoint, replace=True)
    index.delete(["p1"])
    with pytest.raises(IndexStoreError, match=r"holds 'notes\.txt'"):
        index.compact()
    assert (built / "notes.txt").read_text() == "precious" and len(index.search("who", 9)) == 5


@pytest.mark.parametrize("kind", ["added", "lexical"])
def test_update_does_not_follow_links_out(built: Path, checkpoint: Path, tmp_path: Path, kind: str) -> None:
    outside = tmp_path / "outside" / "0001"
    outside.mkdir(parents=True)
    (outside / "photo.jpg").write_text("precious")
    if kind == "added":
        (built / "added").symlink_to(outside.parent)
    else:
        shutil.copytree(built / "lexical-0000", outside / "copy")
        shutil.rmtree(built / "lexical-0000")
        (built / "lexical-0000").symlink_to(outside / "copy")
    with pytest.raises(IndexStoreError, match="is a link that may lead out"):
        ColBERTIndex.open(built, checkpoint=checkpoint).add([Passage("x", "", "river")])
    assert (outside / "photo.jpg").read_text() == "precious"
    assert kind == "added" or len(list((outside / "copy").iterdir())) == 5


def test_a_link_to_an_index_and_the_index_are_one(built: Path, checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(built)
    one = ColBERTIndex.open(built, checkpoint=checkpoint)
    two = ColBERTIndex.open(tmp_path / "link", checkpoint=checkpoint)
    refused: list[str] = []

    def meanwhile(done: int, total: int) -> None:
        with pytest.raises(HopgateError) as caught:
            two.delete(["p1"])
        refused.append(str(caught.value))

    one.add([Passage("x", "", "river")], on_progress=meanwhile)
    assert "another process" in refused[0]
    two.add([Passage("y", "", "sea")])
    two.compact()
    assert (tmp_path / "link").is_symlink() and len(two) == 8
    assert len(ColBERTIndex.open(built, checkpoint=checkpoint)) == 8


KILLED = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from test_index_support import passages
from hopgate.index import ColBERTIndex
rename, when, count = Path.rename, int(sys.argv[5]), [0]
def killing(self, target):
    if ".hopgate-" in str(self) or ".hopgate-" in str(target):
        count[0] += 1
        if count[0] == when:
            os.kill(os.getpid(), signal.SIGKILL)
    return rename(self, target)
Path.rename = killing
if sys.argv[4] == "compact":
    ColBERTIndex.open(sys.argv[2], checkpoint=sys.argv[3]).compact()
else:
    ColBERTIndex.build(passages(7), sys.argv[2], checkpoint=sys.argv[3], hybrid=True, replace=True)
"""


@pytest.mark.skipif(os.name != "posix", reason="kill -9 is POSIX")
@pytest.mark.parametrize("what", ["compact", "build"])
@pytest.mark.parametrize("when", [1, 2])
def test_killed_while_replacing(built: Path, checkpoint: Path, what: str, when: int) -> None:
    index = ColBERTIndex.open(built, checkpoint=checkpoint)
    index.delete(["p1"])
    script = [sys.executable, "-c", KILLED, str(Path(__file__).parent), str(built), str(checkpoint), what, str(when)]
    assert subprocess.run(script, check=False).returncode == -signal.SIGKILL
    opened = ColBERTIndex.open(built, checkpoint=checkpoint)  # puts the old state back
    assert {passage.id for passage in opened.search("who", 99)} == {"p0", "p2", "p3", "p4", "p5"}
    opened.verify()
    opened.compact()
    ColBERTIndex.build(passages(7), built, checkpoint=checkpoint, hybrid=True, replace=True)
    assert len(ColBERTIndex.open(built, checkpoint=checkpoint)) == 7
    assert [path.name for path in sorted(built.parent.iterdir())] == [".ix.hopgate-lock", "ix"] or what == "build"


def test_what_replacing_left_behind_is_cleared(built: Path, checkpoint: Path) -> None:
    shutil.copytree(built, folders.beside(built, "old"))
    shutil.copytree(built, folders.beside(built, "compact"))
    ColBERTIndex.open(built, checkpoint=checkpoint).compact()
    assert [path.name for path in sorted(built.parent.iterdir())] == [".ix.hopgate-lock", "ix"]


@pytest.mark.parametrize("damage", [b"", b"\x93NUMPY", None])
def test_damaged_chunk_is_encoded_again(
    tmp_path: Path, checkpoint: Path, monkeypatch: pytest.MonkeyPatch, damage: bytes | None
) -> None:
    monkeypatch.setattr(chunks, "CHUNK", 4)
    with monkeypatch.context() as patch:
        patch.setattr("hopgate.index.build.finish", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            ColBERTIndex.build(passages(10), tmp_path / "ix", checkpoint=checkpoint)
    path = tmp_path / ".ix.hopgate-part" / "vectors" / "00001.npy"
    path.write_bytes(path.read_bytes()[:-7] if damage is None else damage)
    encoded: list[int] = []
    encode = Encoder.encode_passages
    monkeypatch.setattr(
        Encoder,
        "encode_passages",
        lambda self, texts, **options: encoded.append(len(texts)) or encode(self, texts, **options),
    )
    assert len(ColBERTIndex.build(passages(10), tmp_path / "ix", checkpoint=checkpoint)) == 10
    assert encoded == [4]
    ColBERTIndex.open(tmp_path / "ix", checkpoint=checkpoint).verify()


def header(text: str) -> bytes:
    """The beginning of a file of an array."""
    return b"\x93NUMPY\x01\x00\x76\x00" + text.encode().ljust(117) + b"\n"


SHAPED = "{'descr': '<f2', 'fortran_order': False, 'shape': %s, }"
ARRAY_FILES: dict[str, Any] = {
    "archive": lambda path: np.savez(path.open("wb"), x=np.zeros(3)),
    "pickle": lambda path: np.save(path.open("wb"), np.array([{}], object), allow_pickle=True),
    "text": lambda path: path.write_bytes(header("(" * 100)),
    "huge": lambda path: path.write_bytes(header(SHAPED % "(99999999999999999999,)")),
    "negative": lambda path: path.write_bytes(header(SHAPED % "(-5, 16)")),
    "minus": lambda path: path.write_bytes(header("-" * 116 + "1")),
}


@pytest.mark.parametrize("content", ARRAY_FILES)
@pytest.mark.parametrize("name", ["passages.offsets.npy", "vectors/00000.npy", "vectors/00000.lengths.npy"])
def test_files_that_are_no_arrays(built: Path, checkpoint: Path, name: str, content: str) -> None:
    ARRAY_FILES[content](built / name)
    change(built)
    with pytest.raises(IndexStoreError, match=name.rsplit("/", 1)[-1]):
        ColBERTIndex.open(built, checkpoint=checkpoint)


@pytest.mark.parametrize("score", ["[1]", "1" + "0" * 400, '"x"'])
def test_passage_with_a_score_that_is_none(built: Path, checkpoint: Path, score: str) -> None:
    lines = (built / "passages.jsonl").read_text().splitlines()
    lines[2] = lines[2][:-1] + f', "score": {score}}}'
    (built / "passages.jsonl").write_text("\n".join(lines) + "\n")
    np.save(built / "passages.offsets.npy", np.cumsum([0, *(len(line.encode()) + 1 for line in lines)]))
    change(built)
    with pytest.raises(IndexStoreError, match=r"passages\.jsonl:3: not a passage"):
        ColBERTIndex.open(built, checkpoint=checkpoint).search("who", 9)


def edit_json(name: str, **fields: Any) -> Any:
    def edit(folder: Path) -> None:
        path = folder / name
        path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))

    return edit


def edit_array(name: str, edit: Any) -> Any:
    def change_it(folder: Path) -> None:
        array = np.load(folder / name)
        np.save(folder / name, edit(array))

    return change_it


@pytest.mark.parametrize(
    "edit",
    [
        edit_json("params.index.json", num_docs=None),
        edit_json("params.index.json", num_docs="abc"),
        edit_json("params.index.json", num_docs=7),
        edit_json("params.index.json", num_docs=6.5),
        edit_json("params.index.json", backend="numba"),
        edit_json("params.index.json", dtype="zz"),
        edit_json("vocab.index.json", the=10**30),
        edit_json("vocab.index.json", the=-1),
        edit_json("vocab.index.json", the="1"),
        lambda folder: (folder / "vocab.index.json").write_text("[]"),
        lambda folder: (folder / "params.index.json").write_text("[" * 100_000),
        edit_array("indices.csc.index.npy", lambda array: array + 1000),
        edit_array("indices.csc.index.npy", lambda array: -array),
        edit_array("indptr.csc.index.npy", lambda array: array[::-1].copy()),
        edit_array("indptr.csc.index.npy", lambda array: array.astype(np.float32)),
        edit_array("data.csc.index.npy", lambda array: array[:-1]),
        edit_array("data.csc.index.npy", lambda array: array * np.nan),
        edit_array("data.csc.index.npy", lambda array: array.astype(str)),
    ],
)
def test_hostile_bm25(built: Path, checkpoint: Path, edit: Any) -> None:
    edit(built / "lexical-0000")
    change(built)
    with pytest.raises(IndexStoreError, match="lexical-0000"):
        ColBERTIndex.open(built, checkpoint=checkpoint)


def test_bm25_file_that_is_not_listed(built: Path, checkpoint: Path) -> None:
    files = {name: file for name, file in list_files(built).items() if "vocab" not in name}
    change(built, files=files)
    with pytest.raises(IndexStoreError, match="lacks 'lexical-0000/vocab"):
        ColBERTIndex.open(built, checkpoint=checkpoint)


PLAID: dict[str, Any] = {
    "codes up": ("codes", lambda array: array + 2**30),
    "codes down": ("codes", lambda array: array - 2**30),
    "codes 0-d": ("codes", lambda array: array[0]),
    "ivf up": ("ivf", lambda array: array + 2**30),
    "ivf short": ("ivf", lambda array: array[: len(array) // 2]),
    "ivf text": ("ivf", lambda array: array.astype(str)),
    "lengths": ("ivf_lengths", lambda array: np.full_like(array, 2**28)),
    "negative lengths": ("ivf_lengths", lambda array: -array),
    "few lengths": ("ivf_lengths", lambda array: array[:-1]),
    "one centroid": ("centroids", lambda array: array[:1]),
    "wide centroids": ("centroids", lambda array: np.concatenate([array, array], 1)),
    "flat centroids": ("centroids", lambda array: array.ravel()),
    "centroids nan": ("centroids", lambda array: array * np.nan),
    "residuals": ("residuals", lambda array: array[:, :1]),
    "no residuals": ("residuals", lambda array: array[:, :0]),
    "float residuals": ("residuals", lambda array: array.astype(np.float32)),
    "weights": ("weights", lambda array: array[:-1]),
    "cutoffs": ("cutoffs", lambda array: array[:0]),
}


@pytest.mark.parametrize("case", PLAID)
def test_hostile_plaid(compressed: Path, tmp_path: Path, checkpoint: Path, case: str) -> None:
    folder = Path(shutil.copytree(compressed, tmp_path / "ix"))
    name, edit = PLAID[case]
    array = np.load(folder / "plaid" / f"{name}.npy")
    np.save(folder / "plaid" / f"{name}.npy", edit(array))
    change(folder)
    with pytest.raises(IndexStoreError, match="plaid"):
        ColBERTIndex.open(folder, checkpoint=checkpoint)


def test_plaid_with_few_vectors_left_becomes_exact(compressed: Path, tmp_path: Path, checkpoint: Path) -> None:
    index = ColBERTIndex.open(shutil.copytree(compressed, tmp_path / "ix"), checkpoint=checkpoint)
    index.delete([passage.id for passage in passages(300)[10:]])
    index.compact()
    assert index.info()["engine"] == "exact" and len(index.search("who", 99)) == 10


@pytest.mark.filterwarnings("ignore")
def test_nbits_that_do_not_fit_are_refused_at_once(tmp_path: Path, checkpoint: Path) -> None:
    needs_compiler()
    counts: list[int] = []
    with pytest.raises(InputError, match="nbits=8 does not fit vectors of 16 dimensions"):
        ColBERTIndex.build(
            passages(300),
            tmp_path / "ix",
            checkpoint=checkpoint,
            engine="plaid",
            nbits=8,
            on_progress=lambda done, _: counts.append(done),
        )
    assert counts == [] and list(tmp_path.iterdir()) == []


def test_predicates_see_live_passages_and_cannot_change_them(built: Path, checkpoint: Path) -> None:
    index = ColBERTIndex.open(built, checkpoint=checkpoint)
    index.add([Passage("a", "", "river", metadata={"year": 1}), Passage("b", "", "river")])
    index.delete(["b", *(passage.id for passage in passages(6))])
    assert [p.id for p in index.search("river", filter=lambda metadata: metadata["year"] > 0)] == ["a"]
    with pytest.raises(InputError, match="the filter raised"):
        index.search("river", filter=lambda metadata: metadata.update(year=99) or True)  # type: ignore[attr-defined]
    assert index.search("river", filter=lambda metadata: metadata["year"] == 99) == []


def test_results_do_not_depend_on_k(tmp_path: Path, checkpoint: Path) -> None:
    index = ColBERTIndex.build(passages(160), tmp_path / "ix", checkpoint=checkpoint, hybrid=True)
    for query in (passage.text for passage in passages(12)):
        everything = index.search(query, 500)
        assert len({passage.id for passage in everything}) == 160
        scores = [passage.score or 0 for passage in everything]
        assert scores == sorted(scores, reverse=True)
        for k in (1, 5, 49, 50, 51, 120):
            assert index.search(query, k) == everything[:k]


@pytest.mark.parametrize("path", ["x" * 300, "y" * 5000])
def test_names_that_are_too_long(path: str, checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for call in (
        lambda: ColBERTIndex.open(path),
        lambda: read_info(path),
        lambda: ColBERTIndex.build(passages(2), path, checkpoint=checkpoint),
    ):
        with pytest.raises(HopgateError):
            call()


@pytest.mark.parametrize("name", ["/etc", "../tiny", "embedded/other", ""])
def test_checkpoint_that_a_manifest_may_not_name(built: Path, name: str) -> None:
    change(built, checkpoint=name, checkpoint_is_local=False)
    with pytest.raises(IndexStoreError, match="`checkpoint` is"):
        ColBERTIndex.open(built)


def test_verify_of_an_older_handle_looks_at_what_is_there(built: Path, checkpoint: Path) -> None:
    old = ColBERTIndex.open(built, checkpoint=checkpoint)
    new = ColBERTIndex.open(built, checkpoint=checkpoint)
    new.delete(["p1"])
    new.compact()
    old.verify()


def test_interrupted_after_it_took_effect(built: Path, checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = ColBERTIndex.open(built, checkpoint=checkpoint)
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            index.add(passages(9)[6:])
    index = ColBERTIndex.open(built, checkpoint=checkpoint)
    index.add(passages(9)[6:])
    assert len(index) == 9
    with pytest.raises(CorpusError, match="already"):
        index.add([*passages(9)[6:], Passage("new", "", "x")])
    index.add([Passage("new", "", "x")])
    assert sorted(path.name for path in built.iterdir() if path.name.startswith("lexical")) == ["lexical-0002"]


FORKED = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
from test_index_support import passages
from hopgate.index import ColBERTIndex
index = ColBERTIndex.build(passages(30), sys.argv[2], checkpoint=sys.argv[3], threads=2 if sys.argv[4] == "2" else None)
expected = index.search("who won the war")
child = os.fork()
if not child:
    signal.alarm(60)
    os._exit(0 if index.search("who won the war") == expected else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_search_in_a_forked_process(tmp_path: Path, checkpoint: Path) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "2"}
    script = [
        sys.executable,
        "-c",
        FORKED,
        str(Path(__file__).parent),
        str(tmp_path / "ix"),
        str(checkpoint),
        "default",
    ]
    assert subprocess.run(script, check=False, env=environment).returncode == 0
