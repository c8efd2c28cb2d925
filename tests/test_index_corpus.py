"""Reading corpora: what is accepted, and one clear message for each thing that is not."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from test_index_support import write_corpus

from hopgate.core import CorpusError, InputError, Passage
from hopgate.index import corpus_fingerprint, read_corpus
from hopgate.index.corpus import checked_passages, passage_line
from hopgate.index.records import Layout

GOOD = {"id": "a", "title": "A", "text": "first"}


def test_reads_ids_titles_and_texts_as_they_are(tmp_path: Path) -> None:
    nul = {"id": "ü", "title": "日本", "text": "a\0b\u2028c  🙂 ", "extra": [1]}
    path = write_corpus(tmp_path / "c.jsonl", [{"id": 7, "text": "no title"}, "", nul, {**GOOD, "title": None}])
    assert list(read_corpus(path)) == [
        Passage("7", "", "no title"),
        Passage("ü", "日本", "a\0b\u2028c  🙂 ", metadata={"extra": [1]}),
        Passage("a", "", "first"),
    ]


def test_byte_order_mark_and_windows_line_ends(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"id": "a", "text": "x"}\r\n{"id": "b", "text": "y"}\r\n')
    assert [passage.id for passage in read_corpus(path)] == ["a", "b"]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("not json", "not JSON"),
        ('{"id": "b", "text": "x"', "not JSON"),
        ("[1, 2]", "a list, not an object"),
        ("null", "a NoneType, not an object"),
        ({"text": "x"}, "`id`"),
        ({"id": "", "text": "x"}, "`id`"),
        ({"id": True, "text": "x"}, "`id`"),
        ({"id": 1.5, "text": "x"}, "`id`"),
        ({"id": "b"}, "no `text`"),
        ({"id": "b", "text": None}, "no `text`"),
        ({"id": "b", "text": " \n"}, "no `text`"),
        ({"id": "b", "text": 3}, "`text` must be a string"),
        ({"id": "b", "text": "x", "title": 3}, "`title` must be a string"),
        ({"id": "a", "text": "x"}, "occurs a second time"),
        ('{"id": "b", "text": "\\ud800"}', "surrogate"),
        ("[" * 3000, "not JSON"),
    ],
)
def test_bad_line_is_named(tmp_path: Path, line: Any, reason: str) -> None:
    path = write_corpus(tmp_path / "c.jsonl", [GOOD, line])
    with pytest.raises(CorpusError) as caught:
        list(read_corpus(path))
    message = str(caught.value)
    assert message.startswith(f"{path}:2: ")
    assert reason in message
    assert "\n" not in message


def test_not_utf8_names_line_and_byte(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    path.write_bytes(b'{"id": "a", "text": "x"}\n{"id": "b", "text": "\xff"}\n')
    with pytest.raises(CorpusError, match=rf"{path}:2: not UTF-8 at byte 21"):
        list(read_corpus(path))


@pytest.mark.parametrize("content", ["", "\n\n  \n"])
def test_empty_corpus(tmp_path: Path, content: str) -> None:
    path = tmp_path / "c.jsonl"
    path.write_text(content)
    with pytest.raises(CorpusError, match=r"c\.jsonl: holds no passages"):
        list(read_corpus(path))


def test_missing_file_and_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "none.jsonl", tmp_path / "file" / "c.jsonl"):
        with pytest.raises(CorpusError, match="no such corpus file"):
            list(read_corpus(path))
    with pytest.raises(CorpusError, match="is a folder"):
        list(read_corpus(tmp_path))
    with pytest.raises(CorpusError, match="cannot be read"):
        list(read_corpus(tmp_path / ("x" * 1000)))


@pytest.mark.skipif(os.name != "posix", reason="devices and pipes are POSIX")
def test_what_is_not_a_regular_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (Path("/dev/null"), tmp_path / "pipe"):
        with pytest.raises(CorpusError, match=f"{path}: is not a regular file"):
            list(read_corpus(path))


def test_is_streamed(tmp_path: Path) -> None:
    path = write_corpus(tmp_path / "c.jsonl", [GOOD, "broken"])
    assert next(read_corpus(path)).id == "a"


def test_fingerprint_sees_order_and_every_field() -> None:
    one, two = Passage("a", "A", "x"), Passage("b", "B", "y")
    base = corpus_fingerprint([one, two])
    assert base == corpus_fingerprint(iter([one.with_score(3.0), two]))
    others = [
        [two, one],
        [one],
        [one, Passage("b", "B", "z")],
        [one, Passage("b", "", "y")],
        [one, Passage("c", "B", "y")],
        [one, Passage("b", "B", "y", metadata={"year": 1999})],
        [one, Passage("b", "B", "y", metadata={"year": 2000})],
    ]
    assert len({base, *map(corpus_fingerprint, others)}) == len(others) + 1


def test_form_without_metadata_is_what_it_was() -> None:
    assert passage_line(Passage("a", "A", "x/ü")) == '{"id":"a","title":"A","text":"x/ü"}'
    assert passage_line(Passage("a", "A", "x", metadata={"k": [1, None]})).endswith(',"metadata":{"k":[1,null]}}')


# --- fields and metadata ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ({"_id": 1, "page": "P", "abstract": "t"}, Passage("1", "P", "t")),
        ({"docid": "d", "name": "N", "contents": "t"}, Passage("d", "N", "t")),
        ({"doc_id": "d", "title": None, "page": "P", "text": "t"}, Passage("d", "P", "t")),
        ({"id": 1, "sentences": ["One.", "Two.", "", " Three."]}, Passage("1", "", "One. Two. Three.")),
        ({"id": 1, "text": [["T"], [], ["One.", " Two."]]}, Passage("1", "", "T\nOne. Two.")),
        (
            {"id": 1, "text": "t", "abstract": "a", "u": None},
            Passage("1", "", "t", metadata={"abstract": "a", "u": None}),
        ),
        (
            {"id": 1, "text": "t", "year": 1999, "metadata": {"tags": ["x"], "n": {"m": 1.5}}},
            Passage("1", "", "t", metadata={"year": 1999, "tags": ["x"], "n": {"m": 1.5}}),
        ),
        ({"id": 1, "text": "t", "metadata": None}, Passage("1", "", "t")),
        *(({"id": 1, "text": "t", "": value}, Passage("1", "", "t", metadata={"": value})) for value in ("STRAY", 5)),
        (
            {"id": 1, "text": "t", "k": [2**64 - 1, -(2**63)]},
            Passage("1", "", "t", metadata={"k": [2**64 - 1, -(2**63)]}),
        ),
        ({"id": 10**30, "text": "t"}, Passage("1" + "0" * 30, "", "t")),
        ({"id": 1, "text": "t", "metadata": "plain"}, Passage("1", "", "t", metadata={"metadata": "plain"})),
        ('{"id": 1, "text": "t", "score": NaN}', Passage("1", "", "t", metadata={"score": None})),
    ],
)
def test_usual_names_of_fields(tmp_path: Path, record: Any, expected: Passage) -> None:
    assert list(read_corpus(write_corpus(tmp_path / "c.jsonl", [record]))) == [expected]


def test_fields_and_metadata_by_name(tmp_path: Path) -> None:
    path = write_corpus(tmp_path / "c.jsonl", [{"key": "k", "id": "i", "head": "H", "body": "t", "large": [0.5] * 9}])
    named = {"id": "key", "title": "head", "text": "body"}
    kept = {"id": "i", "large": [0.5] * 9}
    assert list(read_corpus(path, fields=named)) == [Passage("k", "H", "t", metadata=kept)]
    assert next(read_corpus(path, fields=named, metadata=["id", "none"])).metadata == {"id": "i"}
    assert next(read_corpus(path, fields=named, metadata=())).metadata == {}
    twice = {"id": "head", "title": "head", "text": "body"}
    assert next(read_corpus(path, fields=twice, metadata=())) == Passage("H", "H", "t")


@pytest.mark.parametrize("name", ["c.jsonl", "c.csv", "c.parquet"])
def test_metadata_that_no_record_has(tmp_path: Path, name: str) -> None:
    path, columns = tmp_path / name, {"id": ["1", "2"], "text": ["x", "y"], "year": ["", "1999"]}
    if name.endswith("jsonl"):
        # A field may be missing in some records, lie within `metadata`, or be read as something else.
        write_corpus(path, [{"id": 1, "text": "x"}, {"id": 2, "text": "y", "metadata": {"year": "1999"}}])
    elif name.endswith("csv"):
        path.write_text("id,text,year\n1,x,\n2,y,1999\n")
    else:
        pq.write_table(pa.table(columns), path)
    assert list(read_corpus(path, metadata=["year", "text"]))[1].metadata == {"year": "1999"}
    with pytest.raises(CorpusError, match=r"`nope`.*correct the name"):
        list(read_corpus(path, metadata=["year", "nope"]))
    with pytest.raises(CorpusError, match=r"`nope`.*correct the name"):
        list(read_corpus(path, metadata=["nope"], passage_words=1))


def test_numbers_that_python_does_not_write(tmp_path: Path) -> None:
    number: Any = 10**5000
    layout = Layout.of(None, None)
    for record in ({"id": number, "text": "t"}, {"id": [number], "text": "t"}):
        with pytest.raises(CorpusError, match="here: `id`"):
            layout.passage(record, "here", None)
    with pytest.raises(CorpusError, match="here: `k` is an object with the key a int"):
        layout.passage({"id": 1, "text": "t", "k": {number: 1}}, "here", None)
    passage = layout.passage({"id": 1, "text": "t", "k": {"n": [number]}}, "here", None)
    with pytest.raises(CorpusError, match=r"here: .*more than 64 bits"):
        list(checked_passages([("here", passage)], empty=""))


@pytest.mark.parametrize("role", ["id", "title", "text"])
@pytest.mark.parametrize("name", ["c.jsonl", "c.csv", "c.tsv", "c.parquet"])
def test_fields_that_no_record_has(tmp_path: Path, name: str, role: str) -> None:
    path, columns = tmp_path / name, {"id": ["1", "2"], "title": ["X", ""], "text": ["x", "y"]}
    rows = list(zip(*columns.values(), strict=True))
    if name.endswith("jsonl"):
        write_corpus(path, [dict(zip(columns, row, strict=True)) for row in rows])
    elif name.endswith("parquet"):
        pq.write_table(pa.table(columns), path)
    else:
        separator = "," if name.endswith("csv") else "\t"
        path.write_text("".join(f"{separator.join(row)}\n" for row in [tuple(columns), *rows]))
    assert list(read_corpus(path, fields={role: role})) == [Passage("1", "X", "x"), Passage("2", "", "y")]
    with pytest.raises(CorpusError, match=r"no (column |record has )?`nope`.*correct the name") as caught:
        list(read_corpus(path, fields={role: "nope"}))
    assert f"no `{role}`" not in str(caught.value)  # which is there


def test_some_records_may_lack_a_named_title(tmp_path: Path) -> None:
    path = write_corpus(tmp_path / "c.jsonl", [{"id": 1, "text": "x"}, {"id": 2, "text": "y", "head": "Y"}])
    assert [passage.title for passage in read_corpus(path, fields={"title": "head"})] == ["", "Y"]


def test_without_ids_records_are_numbered(tmp_path: Path) -> None:
    records = [{"title": "A", "text": ["One.", "Two."]}, "", {"title": "B", "text": ["Three."]}]
    path = write_corpus(tmp_path / "c.jsonl", records)
    assert list(read_corpus(path)) == [Passage("0", "A", "One. Two."), Passage("1", "B", "Three.")]
    with pytest.raises(CorpusError, match=r"c\.jsonl:4: has `id`, and records before it have no id"):
        list(read_corpus(write_corpus(path, [*records, GOOD])))
    with pytest.raises(CorpusError, match=r"c\.jsonl:1: no `key` among the fields"):
        list(read_corpus(path, fields={"id": "key"}))


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ({"id": 1, "text": ["a", 2]}, "`text` must be a string or a list of sentences"),
        ({"id": 1, "text": [["a"], "b"]}, "`text` must be a string or a list of sentences"),
        ({"id": 1, "text": {"a": "b"}}, "`text` must be a string or a list of sentences, got dict"),
        ({"id": 1, "body": "x"}, "no `text` among the fields (id, body)"),
        ({"id": 1, "text": "t", "k": 1, "metadata": {"k": 2}}, "`k` is a field and is in `metadata` too"),
        ('{"id": 1, "text": "t", "k": 1e999}', "`metadata` of passage '1' holds the number inf"),
        ({"id": 1, "text": "t", "k": "x" * 70_000}, "is larger than 65,536 characters"),
        ({"id": 1, "text": "t", "k": [0.5] * 70_000}, "is larger than 65,536 characters"),
        ('{"id": 1, "text": "t", "k": ' + "[" * 900 + "]" * 900 + "}", "`k` is nested more than 16 deep"),
        ('{"id": 1, "text": "t", "k": "\\ud800"}', "`metadata` of passage '1' holds half of a surrogate pair"),
        ('{"id": 1, "text": "t", "\\ud800": 1}', "`metadata` of passage '1' holds half of a surrogate pair"),
        ({"id": 1, "text": "t", "k": 1 << 64}, "`metadata` of passage '1' holds an integer of more than 64 bits"),
        ('{"id": 1, "text": "t", "k": ' + "9" * 5000 + "}", "not JSON"),
        ('{"id": ' + "9" * 5000 + ', "text": "t"}', "not JSON"),
    ],
)
def test_bad_fields_are_named(tmp_path: Path, record: Any, reason: str) -> None:
    path = write_corpus(tmp_path / "c.jsonl", [{"id": 0, "text": "good"}, record])
    with pytest.raises(CorpusError) as caught:
        list(read_corpus(path))
    assert str(caught.value).startswith(f"{path}:2: ") and reason in str(caught.value)


@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        (None, "must be a JSON object, got a NoneType"),
        ([1], "must be a JSON object, got a list"),
        ({1: 2}, "has the key 1; keys must be strings"),
        ({"a": {1: 2}}, "has the key 1; keys must be strings"),
        ({"a": b"x"}, "holds a bytes"),
        ({"a": float("nan")}, "holds the number nan"),
        *(({"a": [number]}, "an integer of more than 64 bits") for number in (1 << 64, -(1 << 63) - 1, 1 << 300_000)),
        ({"a": "x" * 70_000}, "is larger than"),
        ({1 << 300_000: 1}, "has the key a int; keys must be strings"),
    ],
)
def test_metadata_of_given_passages(metadata: Any, reason: str) -> None:
    with pytest.raises(CorpusError) as caught:
        list(checked_passages([("corpus[0]", Passage("a", "", "x", metadata=metadata))], empty=""))
    assert str(caught.value).startswith("corpus[0]: `metadata` of passage 'a' ") and reason in str(caught.value)
    cyclic: list[Any] = []
    cyclic += [cyclic, cyclic]
    with pytest.raises(CorpusError, match=r"nested|larger"):
        list(checked_passages([("corpus[0]", Passage("a", "", "x", metadata={"c": cyclic}))], empty=""))


# --- arguments --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"format": "xml"}, "format must be one of jsonl, csv, tsv, parquet, datasets, got 'xml'"),
        ({"split": ""}, "split must be"),
        ({"split": "train"}, "split is for datasets"),
        ({"fields": ["id"]}, "fields must map"),
        ({"fields": {"body": "x"}}, "fields may name id, title, text, got 'body'"),
        ({"fields": {"id": 3}}, r"fields\['id'\] must be the name"),
        ({"metadata": "a,b"}, "metadata must be a list"),
        ({"metadata": [1]}, "metadata must be a list"),
        ({"overlap_words": 3}, "overlap_words needs passage_words"),
        ({"passage_words": 0}, "at least 1 word, got 0"),
        ({"passage_words": "9"}, "at least 1 word, got '9'"),
        ({"passage_words": 9, "overlap_words": 9}, "the overlap must be at least 0 words and less than"),
        ({"passage_words": 9, "overlap_words": -1}, "the overlap must be at least 0 words and less than"),
    ],
)
def test_impossible_arguments(tmp_path: Path, arguments: Any, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        list(read_corpus(write_corpus(tmp_path / "c.jsonl", [GOOD]), **arguments))


def test_long_texts_are_split(tmp_path: Path) -> None:
    long = {"id": "d", "title": "D", "text": "One two three. Four five. Six seven eight.", "year": 1}
    path = write_corpus(tmp_path / "c.jsonl", [GOOD, long])
    assert list(read_corpus(path, passage_words=5, overlap_words=2)) == [
        Passage("a", "A", "first"),
        Passage("d#0", "D", "One two three. Four five.", metadata={"year": 1, "document": "d", "start": 0, "end": 25}),
        Passage(
            "d#1", "D", "Four five. Six seven eight.", metadata={"year": 1, "document": "d", "start": 15, "end": 42}
        ),
    ]
    assert [passage.text for passage in read_corpus(path, passage_words=5)][1:] == [
        "One two three. Four five.",
        "Six seven eight.",
    ]


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (GOOD, "id 'a' occurs a second time"),
        ({"id": "d#0", "text": "x"}, "id 'd#0' occurs a second time"),
        ({"id": "e", "text": "a b c d", "start": 1}, "document 'e' is to be split and has metadata `start`"),
    ],
)
def test_splitting_names_the_line(tmp_path: Path, record: Any, reason: str) -> None:
    path = write_corpus(tmp_path / "c.jsonl", [GOOD, {"id": "d", "text": "a b c d"}, record])
    with pytest.raises(CorpusError) as caught:
        list(read_corpus(path, passage_words=3))
    assert str(caught.value).startswith(f"{path}:3: ") and reason in str(caught.value)
