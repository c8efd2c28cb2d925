"""Formats of corpora: CSV, TSV, ColBERT's collections, Parquet, datasets, compressed files; and what is wrong there."""

from __future__ import annotations

import csv
import datetime
import decimal
import gzip
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_index_support import make_checkpoint, write_corpus

from hopgate.cli import main
from hopgate.core import CorpusError, Passage
from hopgate.index import ColBERTIndex, read_corpus


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def fault(source: Any, **options: Any) -> str:
    with pytest.raises(CorpusError) as caught:
        list(read_corpus(source, **options))
    message = str(caught.value)
    assert message.startswith(f"{source}:") and "\n" not in message and len(message) < 1000
    return message[len(f"{source}:") :].strip()


def test_import_loads_no_large_library() -> None:
    code = (
        "import sys; from hopgate.index import read_corpus; "
        "print([n for n in ('pyarrow', 'datasets', 'torch', 'pandas') if n in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


# --- CSV and TSV ------------------------------------------------------------------------------------------------------


def test_csv(tmp_path: Path) -> None:
    content = '\ufeffpid,page,contents,year\r\n7,P,"two\r\nlines, and a ""word"""\r\n\r\n8,,ü\0,1999\r\n'
    path = write(tmp_path / "c.csv", content.replace('word"""', 'word""",'))
    before = csv.field_size_limit()
    assert list(read_corpus(path)) == [
        Passage("7", "P", 'two\r\nlines, and a "word"', metadata={"year": ""}),
        Passage("8", "", "ü\0", metadata={"year": "1999"}),
    ]
    long = write(tmp_path / "long.CSV", f"text\n{'x' * 200_000}\nshort\n")
    assert [(passage.id, len(passage.text)) for passage in read_corpus(long)] == [("0", 200_000), ("1", 5)]
    assert csv.field_size_limit() == before
    assert next(read_corpus(write(tmp_path / "c.txt", "id,text\n1,x"), format="csv")) == Passage("1", "", "x")


def test_tsv_with_names(tmp_path: Path) -> None:
    path = write(tmp_path / "c.tsv", 'id\ttext\ttitle\n1\t"a ""b"" c"\tT\n2\td\t\n')
    assert list(read_corpus(path)) == [Passage("1", "T", 'a "b" c'), Passage("2", "", "d")]


def test_colbert_collection(tmp_path: Path) -> None:
    path = write(tmp_path / "collection.tsv", '0\t"Quoted, and not closed\tTitle\r\n\n12\tno title\n')
    assert list(read_corpus(path)) == [Passage("0", "Title", '"Quoted, and not closed'), Passage("12", "", "no title")]
    assert fault(write(path, "0\ta\n1\ta\tb\tc\n")) == (
        "2: 4 cells, and a row is a number, a text and maybe a title; replace tabs within the text"
    )
    assert fault(write(path, "0\ta\nx\n")).startswith("2: 1 cells")
    assert "2: id '0' occurs a second time" in fault(write(path, "0\ta\n0\tb\n"))
    assert "2: passage '1' has no `text`" in fault(write(path, "0\ta\n1\t\n"))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "holds no passages"),
        ("id,text\n", "holds no passages"),
        ("id,body\n1,x\n", "1: no `text` among the fields (id, body)"),
        ("id,text,text\n", "1: 2 columns are called `text`; give each its own name"),
        (",text\n1,x\n", "1: column 1 has no name; name or remove it (pandas: index=False)"),
        ("id,text\n1,x,y\n", "2: 3 cells, and there are 2 columns"),
        ('id,text\n1,"a\nb"\n2\n', "4: 1 cells, and there are 2 columns"),
        ('id,text\n1,"x\n2,y\n', "2: a broken row (unexpected end of data); check that each quote is closed"),
        ('id,text\n1,"x"y\n', "2: a broken row ("),
        ("id,text\r1,x\r", "1: a broken row ("),
        ("id,text\n,x\n", "2: `id` must be a non-empty string or an integer, got ''; add one"),
        ("id,text\n1,\n", "2: passage '1' has no `text`"),
        (b"id,text\n1,\xff\n", "2: not UTF-8 at byte 2; convert the file to UTF-8"),
    ],
)
def test_bad_csv_is_named(tmp_path: Path, content: str | bytes, reason: str) -> None:
    assert fault(write(tmp_path / "c.csv", content)).startswith(reason)


def test_columns_by_name(tmp_path: Path) -> None:
    path = write(tmp_path / "c.csv", "key,body,a,b\n1,x,2,3\n")
    fields = {"id": "key", "text": "body"}
    assert list(read_corpus(path, fields=fields, metadata=["b"])) == [Passage("1", "", "x", metadata={"b": "3"})]
    assert "1: no column `bady` among key, body, a, b; correct the name" in fault(path, fields={"text": "bady"})
    assert "1: no column `c` among" in fault(path, fields=fields, metadata=["c"])


# --- compressed -------------------------------------------------------------------------------------------------------


def test_gzip(tmp_path: Path) -> None:
    for name, content in (
        ("c.jsonl.gz", '{"id": 1, "text": "x"}\n'),
        ("c.csv.gz", "id,text\n1,x"),
        ("c.tsv.gz", "1\tx"),
    ):
        path = write(tmp_path / name, gzip.compress(content.encode()))
        assert list(read_corpus(path)) == [Passage("1", "", "x")]
        assert "cannot be read (" in fault(write(path, path.read_bytes()[:-9]))
        assert "cannot be read (Not a gzipped file" in fault(write(path, content))


# --- Parquet and datasets ---------------------------------------------------------------------------------------------


def table(**columns: Any) -> pa.Table:
    return pa.table({"id": [3, 4], "text": ["a", "b"], **columns})


def test_parquet(tmp_path: Path) -> None:
    path = tmp_path / "c.parquet"
    rows = table(
        day=[datetime.date(2020, 1, 2), None],
        time=pa.array([1, 2], pa.timestamp("ns", "UTC")),
        price=[decimal.Decimal("1.50"), None],
        number=[float("nan"), 2.5],
        took=[datetime.timedelta(seconds=90), None],
        tags=[["x"], []],
        nested=[{"a": {"b": 1}}, None],
        kind=pa.array(["k", "k"]).dictionary_encode(),
    )
    pq.write_table(rows, path)
    first, second = read_corpus(path)
    assert (first.id, first.text, second.id) == ("3", "a", "4")
    assert first.metadata["time"].startswith("1970-01-01T00:00:00")
    assert {name: value for name, value in first.metadata.items() if name != "time"} == {
        **{"day": "2020-01-02", "price": 1.5, "number": None, "took": 90.0, "tags": ["x"], "kind": "k"},
        "nested": {"a": {"b": 1}},
    }
    assert second.metadata["day"] is None and second.metadata["nested"] is None
    assert [dict(passage.metadata) for passage in read_corpus(path, metadata=["kind"])] == [{"kind": "k"}] * 2


def test_parquet_in_several_batches_without_ids(tmp_path: Path) -> None:
    path = tmp_path / "c.parquet"
    pq.write_table(pa.table({"text": [["One.", f"Number {n}."] for n in range(1201)]}), path, row_group_size=700)
    found = list(read_corpus(path))
    assert [passage.id for passage in found] == [str(n) for n in range(1201)]
    assert found[1200].text == "One. Number 1200."


def test_bad_parquet(tmp_path: Path) -> None:
    path = tmp_path / "c.parquet"
    pq.write_table(table(blob=[b"x", b"y"]), path)
    assert fault(path).startswith("row 0: `blob` is of type bytes, which JSON cannot hold; convert it, or name")
    assert len(list(read_corpus(path, metadata=[]))) == 2
    whole = path.read_bytes()
    for content in (b"", b"PAR1", b"{}", whole[:-20], whole[: len(whole) // 2]):
        assert fault(write(path, content)).startswith("not a whole Parquet file (")
    pq.write_table(pa.table({"id": [1, None], "text": ["a", "b"]}), path)
    assert fault(path).startswith("row 1: `id` must be a non-empty string or an integer, got None")
    pq.write_table(pa.table({"id": [1.0], "text": ["a"]}), path)
    assert fault(path).startswith("row 0: `id` must be")
    pq.write_table(pa.table({"id": [1], "body": ["a"]}), path)
    assert fault(path).startswith("no `text` among the fields (id, body)")
    pq.write_table(pa.table([pa.array([1]), pa.array(["a"]), pa.array(["b"])], ["id", "text", "text"]), path)
    assert fault(path).startswith("2 columns are called `text`")
    assert fault(tmp_path / "none.parquet").startswith("no such corpus file; give a Parquet file")


@pytest.fixture
def quiet() -> Any:
    import datasets

    datasets.disable_progress_bars()
    yield datasets
    datasets.enable_progress_bars()


def test_saved_datasets(tmp_path: Path, quiet: Any) -> None:
    rows = quiet.Dataset.from_list([{"title": "A", "text": "a", "n": 1}, {"title": "B", "text": "b", "n": 2}])
    rows.save_to_disk(str(tmp_path / "one"))
    expected = [Passage("0", "A", "a", metadata={"n": 1}), Passage("1", "B", "b", metadata={"n": 2})]
    assert (
        list(read_corpus(tmp_path / "one")) == list(read_corpus(str(tmp_path / "one"), format="datasets")) == expected
    )
    assert [dict(passage.metadata) for passage in read_corpus(tmp_path / "one", metadata=[])] == [{}, {}]
    assert "no split 'train'" in fault(tmp_path / "one", split="train")
    two = tmp_path / "two"
    quiet.DatasetDict(train=rows, test=rows.select([1])).save_to_disk(str(two))
    assert list(read_corpus(two, split="train")) == expected
    assert next(read_corpus(two, split="test")) == Passage("0", "B", "b", metadata={"n": 2})
    assert fault(two) == "has the splits train, test; choose one with split (--split)"
    assert fault(two, split="dev") == "no split 'dev'; it has train, test"


def test_folders_that_are_no_datasets(tmp_path: Path, quiet: Any) -> None:
    assert fault(tmp_path).startswith("is a folder, but none that `save_to_disk`")
    assert fault(tmp_path, format="jsonl").startswith("is a folder; give a JSON Lines file")
    assert fault(write(tmp_path / "file", "x"), format="datasets").startswith("is a file; give a folder")
    write(tmp_path / "state.json", "{}")
    assert fault(tmp_path).startswith("cannot be read as a dataset (")
    saved = tmp_path / "saved"
    quiet.Dataset.from_list([{"id": "1", "text": "a" * 1000}] * 9).save_to_disk(str(saved))
    (data,) = saved.glob("*.arrow")
    write(data, data.read_bytes()[:300])
    assert "cannot be read" in fault(saved)


def test_dataset_on_the_hub(monkeypatch: pytest.MonkeyPatch, quiet: Any) -> None:
    asked: list[Any] = []

    def load_dataset(*arguments: Any, **options: Any) -> Any:
        asked.append((arguments, options))
        if arguments[0] == "owner/none":
            raise RuntimeError("no\nsuch dataset")
        rows = quiet.Dataset.from_list([{"_id": f"d{n}", "text": "a", "vector": [0.5]} for n in range(600)])
        return quiet.IterableDatasetDict({"train": rows.to_iterable_dataset()})

    monkeypatch.setattr("hopgate.index.tables.hub_answers", lambda: True)
    monkeypatch.setattr(quiet, "load_dataset", load_dataset)
    found = list(read_corpus("owner/name:config", split="train", metadata=[]))
    assert len(found) == 600 and found[599] == Passage("d599", "", "a")
    assert asked == [(("owner/name", "config"), {"streaming": True})]
    assert next(read_corpus("name")).metadata == {"vector": [0.5]}
    assert "no dataset that can be read from the model hub (no such dataset)" in fault("owner/none")


def test_the_hub_cannot_be_reached(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("hopgate.index.tables.hub_answers", lambda: False)
    monkeypatch.chdir(tmp_path)
    for name in ("owner/name", "name", "owner/name.v2:some-config"):
        assert "no such file or folder, and the model hub cannot be reached" in fault(name)
    assert "cannot be reached" in fault("./none", format="datasets")
    (tmp_path / "data").mkdir()
    for name in ("data/none", "none.txt", "none.jsonl", "owner/none.csv", "a/b/c", Path("owner/name")):
        assert "no such corpus file" in fault(name)


# --- whatever the bytes are -------------------------------------------------------------------------------------------

NAMES = ["c.jsonl", "c.csv", "c.tsv", "c.parquet", "c.jsonl.gz", "c.csv.gz"]
TOKENS = st.sampled_from(
    [
        b"id",
        b"text",
        b",",
        b"\t",
        b"\n",
        b"\r",
        b'"',
        b"1",
        b"0\tx",
        b"{",
        b"}",
        b"[",
        b"]",
        b":",
        b"\0",
        b"\xff",
        b"PAR1",
    ]
)


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.sampled_from(NAMES), content=st.lists(TOKENS | st.binary(max_size=3), max_size=30).map(b"".join))
def test_any_bytes_are_read_or_refused(tmp_path: Path, name: str, content: bytes) -> None:
    path = write(tmp_path / name, content)
    try:
        assert all(passage.text.strip() for passage in read_corpus(path, passage_words=2))
    except CorpusError as error:
        assert str(error).startswith(f"{path}:")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_damage_to_parquet_is_read_or_refused(tmp_path: Path, data: st.DataObject) -> None:
    path = tmp_path / "c.parquet"
    pq.write_table(table(year=[1, 2], tags=[["a"], None]), path)
    content = bytearray(path.read_bytes())
    for place in data.draw(st.lists(st.integers(0, len(content) - 1), min_size=1, max_size=3)):
        content[place] = data.draw(st.integers(0, 255))
    try:
        list(read_corpus(write(path, bytes(content))))
    except CorpusError as error:
        assert str(error).startswith(f"{path}:")


# --- the command ------------------------------------------------------------------------------------------------------


def test_build_command_reads_other_formats(tmp_path: Path) -> None:
    tiny = make_checkpoint(tmp_path / "tiny")
    path = write(tmp_path / "c.data", "key,head,body,year,url\nk,H,The king slept. The queen wrote a book.,7,u\n")
    out = tmp_path / "index"

    def run(*options: str) -> Any:
        arguments = ["index", "build", str(path), "--out", str(out), "--checkpoint", str(tiny), *options]
        return CliRunner().invoke(main, arguments, catch_exceptions=False)

    named = ("--id-field", "key", "--title-field", "head", "--text-field", "body", "--metadata", "year,")
    result = run("--format", "csv", *named, "--passage-words", "5", "--overlap-words", "0")
    assert result.exit_code == 0 and "2 passages" in result.stderr, result.stderr
    index = ColBERTIndex.open(out, checkpoint=tiny)
    found = {passage.id: passage for passage in index.search("the king", 2)}
    assert found["k#1"].text == "The queen wrote a book." and found["k#1"].title == "H"
    assert found["k#0"].metadata == {"year": "7", "document": "k", "start": 0, "end": 15}
    for options, reason in (
        (("--format", "csv"), "c.data:1: no `text` among the fields"),
        (("--format", "csv", "--split", "train"), "split is for datasets"),
        (("--overlap-words", "3"), "--overlap-words needs --passage-words"),
        (("--passage-words", "3", "--overlap-words", "3"), "the overlap must be"),
    ):
        result = run(*options)
        assert result.exit_code == 2 and result.stderr.startswith("Error: ") and reason in result.stderr


def test_build_reads_any_path(tmp_path: Path) -> None:
    tiny = make_checkpoint(tmp_path / "tiny")
    ColBERTIndex.build(write(tmp_path / "c.tsv", "0\tthe king\tKing\n1\tthe sea\n"), tmp_path / "i", checkpoint=tiny)
    jsonl = write_corpus(
        tmp_path / "c.jsonl", [{"id": 0, "title": "King", "text": "the king"}, {"id": 1, "text": "the sea"}]
    )
    same = ColBERTIndex.build(
        jsonl, tmp_path / "i", checkpoint=tiny, on_progress=lambda done, total: pytest.fail("anew")
    )
    assert len(same) == 2
