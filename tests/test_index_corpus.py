"""Reading corpora: what is accepted, and one clear message for each thing that is not."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from test_index_support import write_corpus

from hopgate.core import CorpusError, Passage
from hopgate.index import corpus_fingerprint, read_corpus

GOOD = {"id": "a", "title": "A", "text": "first"}


def test_reads_ids_titles_and_texts_as_they_are(tmp_path: Path) -> None:
    nul = {"id": "ü", "title": "日本", "text": "a\0b\u2028c  🙂 ", "extra": [1]}
    path = write_corpus(tmp_path / "c.jsonl", [{"id": 7, "text": "no title"}, "", nul, {**GOOD, "title": None}])
    assert list(read_corpus(path)) == [
        Passage("7", "", "no title"),
        Passage("ü", "日本", "a\0b\u2028c  🙂 "),
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
    ]
    assert len({base, *map(corpus_fingerprint, others)}) == len(others) + 1
