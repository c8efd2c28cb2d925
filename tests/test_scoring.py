"""Scores of answers and of files of predictions."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from hopgate.core import InputError
from hopgate.evaluation import dataset_files, scoring
from hopgate.evaluation.questions import Question, QuestionSet
from hopgate.evaluation.scoring import read_predictions, score_answer, score_predictions

GOLD = QuestionSet(
    [
        Question("1", "Who?", ("Ann Lee", "Annie Lee"), supporting_ids=("p", "q")),
        Question("2", "How many?", ("twenty",)),
        Question("3", "Where?", ("Rome",)),
        Question("4", "Where?", ("Oslo",), answerable=False),
    ],
    name="gold",
)


def write(folder: Path, text: str | bytes) -> Path:
    path = folder / "predictions.json"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_an_answer() -> None:
    assert score_answer(GOLD[0], "the ANNIE Lee.") == {
        "em": True,
        "f1": 1.0,
        "cover_em": True,
        "cover_em_tokens": True,
        "retrieval_recall": None,
        "off_topic": False,
    }
    scores = score_answer(GOLD[0], "Lee, Ann", passage_ids=["q", "x"])
    assert scores == {
        "em": False,
        "f1": 1.0,
        "cover_em": False,
        "cover_em_tokens": True,
        "retrieval_recall": 0.5,
        "off_topic": False,
    }
    assert score_answer(GOLD[1], "20")["em"] is False
    assert score_answer(GOLD[1], "20", normalisation="strict")["em"] is True
    assert score_answer(GOLD[1], "many")["off_topic"] is True
    assert score_answer(GOLD[2], None) == {
        "em": False,
        "f1": 0.0,
        "cover_em": False,
        "cover_em_tokens": False,
        "retrieval_recall": None,
        "off_topic": None,
    }


@pytest.mark.parametrize(("answer", "right"), [("", True), ("No answer.", True), ("Oslo", False), (None, False)])
def test_a_question_that_cannot_be_answered_wants_an_abstention(answer: str | None, right: bool) -> None:
    scores = score_answer(GOLD[3], answer)
    assert scores["em"] is scores["cover_em"] is right and scores["f1"] == float(right)


def test_predictions() -> None:
    scores = score_predictions(GOLD, {"1": "Ann", "2": "twenty", "3": None, "x": "y"})
    assert (scores.n, scores.em, scores.cover_em, scores.cover_em_tokens) == (4, 0.25, 0.25, 0.25)
    assert scores.f1 == pytest.approx((2 / 3 + 1) / 4)
    assert (scores.missing, scores.unknown) == (2, 1)
    assert (scores.missing_ids, scores.unknown_ids) == (("3", "4"), ("x",))
    record = scores.to_dict()
    assert list(record)[:5] == ["n", "em", "f1", "cover_em", "cover_em_tokens"]
    assert not {"missing_ids", "unknown_ids"} & record.keys()
    assert record["normalisation"] == "official"
    assert score_predictions(GOLD, {"2": "20"}, normalisation="strict").em == 0.25


def test_means_are_those_of_the_published_script() -> None:
    """Missing predictions count 0, and the mean is over the gold questions."""
    perfect = score_predictions(GOLD, {"1": "Ann Lee", "2": "twenty", "3": "Rome", "4": ""})
    assert (perfect.em, perfect.f1, perfect.missing, perfect.off_topic) == (1.0, 1.0, 0, 0.0)


@pytest.mark.parametrize(
    ("questions", "predictions", "message"),
    [
        (GOLD, {"x": "y"}, r"none of the 1 predictions .* \(the first are for \['x'\] and '1'\)"),
        (QuestionSet([], name="none"), {"x": "y"}, "no questions"),
    ],
)
def test_files_that_do_not_belong_together(questions: QuestionSet, predictions: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        score_predictions(questions, predictions)


RUN = [
    {"schema": 1, "kind": "run", "name": "r"},
    {"id": "1", "status": "error", "answer": None},
    {"id": "2", "status": "ok", "answer": "x"},
    {"id": "1", "status": "ok", "answer": "Ann"},
]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"1": "Ann", "2": null}', {"1": "Ann", "2": None}),
        ('\ufeff{\n  "1": "Ann",\n  "2": 20\n}\n', {"1": "Ann", "2": "20"}),
        ('{"answer": {"1": "Ann"}, "sp": {"1": [["T", 0]]}}', {"1": "Ann"}),
        ('{"id": "1", "answer": "Ann"}', {"1": "Ann"}),
        ('\n{"id": 1, "answer": "Ann"}\n\n{"_id": "2", "prediction": "B"}\n', {"1": "Ann", "2": "B"}),
        ('[{"id": "1", "predicted_answer": "Ann"}]', {"1": "Ann"}),
        ("id,answer\n1,Ann\n2,\n", {"1": "Ann", "2": ""}),
        ("\n".join(map(json.dumps, RUN)), {"1": "Ann", "2": "x"}),
        (gzip.compress(b'{"1": "Ann"}'), {"1": "Ann"}),
    ],
)
def test_forms(tmp_path: Path, text: str | bytes, expected: dict[str, str | None]) -> None:
    assert read_predictions(write(tmp_path, text)) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no records"),
        ("{}", "holds no predictions"),
        ('{"answer": {}, "sp": {}}', "holds no predictions"),
        ('{"1": ["Ann"]}', "'1': the answer must be a string or null"),
        ('{"1": true}', "'1': the answer must be a string or null"),
        ('{"1": "a", "1": "b"}', "the id '1' occurs twice"),
        ('{"answer": {"1": "a", "1": "b"}}', "the id '1' occurs twice"),
        ('{"id": "1", "answer": "a"}\n{"id": "1", "answer": "b"}', "predictions.json:2: the id '1' occurs twice"),
        ('{"id": "1", "answer": "a"}\n{"id": "2", "text": "b"}', "predictions.json:2: a prediction needs `id` and"),
        ('{"id": "1", "question": "q"}\n{"id": "2", "question": "r"}', "predictions.json:1: a prediction needs"),
        ('{"id": "1", "answer": "a"}\n{"id": ', "predictions.json:2: not JSON"),
        ('{"1": "a"', "not JSON"),
        ('[{"1": "a"}]', "record 1: a prediction needs `id` and `answer`, and the fields are 1"),
        ("id,text\n1,Ann\n", "predictions.json:2: a prediction needs"),
        ('{"1": "é"}'.encode("latin-1"), "predictions.json:1: not UTF-8"),
        ('{\n"1": "é"}'.encode("latin-1"), "not UTF-8 at byte 9"),
        (gzip.compress(b'{"1": "Ann"}')[:-9], "cannot be read"),
        ('{"a":' * 100_000, "not JSON"),
    ],
)
def test_broken_files(tmp_path: Path, text: str | bytes, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_predictions(write(tmp_path, text))


@pytest.mark.parametrize("text", ['{"1": "%s"}', '{\n"1": "%s"}', '{"id": "1", "answer": "%s"}', "id,answer\n1,%s"])
def test_what_is_too_long_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    for module in (dataset_files, scoring):
        monkeypatch.setattr(module, "LONGEST_RECORD", 1000)
    assert read_predictions(write(tmp_path, text % ("x" * 900)))
    with pytest.raises(InputError, match="longer than 1,000 bytes"):
        read_predictions(write(tmp_path, text % ("x" * 2000)))


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_predictions(tmp_path / "none.json")
    with pytest.raises(InputError, match="is a folder"):
        read_predictions(tmp_path)
