"""The bundled sample: its files, their balance, and whether the passages really support the answers."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from pathlib import Path

import pytest
import ujson

from hopgate.core import CorpusError, InputError, Passage
from hopgate.evaluation import sample
from hopgate.evaluation.sample import SampleQuestion, sample_corpus_path, sample_questions

RECORDS = [ujson.loads(line) for line in sample_corpus_path().read_text(encoding="utf-8").splitlines()]
BY_ID = {record["id"]: record for record in RECORDS}
QUESTIONS = sample_questions()
NUMBER_WORDS = {"6": "six", "8": "eight"}


def norm(text: str) -> str:
    """Lower case, no punctuation, no articles, single blanks, with a blank at both ends (for whole-word search)."""
    words = re.sub(r"[^\w\s]", " ", text.lower()).split()
    return f" {' '.join(word for word in words if word not in {'a', 'an', 'the'})} "


def passage_text(passage_id: str) -> str:
    return norm(f"{BY_ID[passage_id]['title']} {BY_ID[passage_id]['text']}")


def states(passage: str, answer: str) -> bool:
    return norm(answer) in passage or norm(NUMBER_WORDS.get(answer, answer)) in passage


def lookups(question: SampleQuestion) -> list[sample.SubQuestion]:
    """The steps that are looked up; the last step of a comparison or of date arithmetic is computed."""
    return list(question.decomposition if question.type == "bridge" else question.decomposition[:-1])


each_question = pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.id)


# ---------------------------------------------------------------------------------------------------------- corpus


def test_corpus_counts_and_unique_ids() -> None:
    assert 170 <= len(RECORDS) <= 200
    worlds = Counter(record["world"] for record in RECORDS)
    assert set(worlds) == {"real", "invented"}
    assert all(85 <= count <= 100 for count in worlds.values())
    assert len(BY_ID) == len(RECORDS)
    for field in ("title", "text"):
        assert len({record[field] for record in RECORDS}) == len(RECORDS)


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record["id"])
def test_each_line_is_a_passage_of_the_right_length(record: dict[str, str]) -> None:
    assert set(record) == {"id", "title", "text", "world"}
    passage = Passage.from_dict(record)
    assert passage.title.strip() and passage.text.strip() == passage.text
    assert 35 <= len(passage.text.split()) <= 80
    assert 2 <= len(re.findall(r"[.?!]\"?(?= [A-Z]|$)", passage.text)) <= 4


def test_the_invented_world_does_not_leak_into_the_real_one() -> None:
    plain = re.compile(r"[A-Za-z]+")
    texts = {world: [r for r in RECORDS if r["world"] == world] for world in ("real", "invented")}
    real_words = {word.lower() for r in texts["real"] for word in plain.findall(f"{r['title']} {r['text']}")}
    # A capitalised word inside a sentence of an invented passage is a name, apart from the ordinary ones below.
    names: set[str] = set()
    for record in texts["invented"]:
        names |= set(re.findall(r"(?<=[a-z,] )[A-Z][a-z]{3,}", record["text"]))
    common = {"tally", "guild", "bridge", "mount", "academy", "light", "observatory", "fire", "great", "treaty"}
    common |= {"brine", "silting", "hold", "long", "rope", "nine", "salt", "doors", "moth", "ledger"}
    names = {name.lower() for name in names} - common
    assert len(names) > 80
    assert not names & real_words
    real_questions = " ".join(q.question for q in QUESTIONS if q.world == "real").lower()
    assert not names & set(plain.findall(real_questions))


# ------------------------------------------------------------------------------------------------------- questions


def test_question_counts_and_balance() -> None:
    assert len(QUESTIONS) == 48
    assert len({q.id for q in QUESTIONS}) == 48
    assert len({norm(q.question) for q in QUESTIONS}) == 48
    for world in ("real", "invented"):
        of_world = [q for q in QUESTIONS if q.world == world]
        assert Counter(q.hops for q in of_world) == {2: 14, 3: 7, 4: 3}
        assert Counter(q.type for q in of_world) == {"bridge": 14, "comparison": 6, "date": 4}
        assert Counter(q.split for q in of_world) == {"train": 12, "test": 12}
    for split in ("train", "test"):
        of_split = [q for q in QUESTIONS if q.split == split]
        assert Counter(q.hops for q in of_split) == {2: 14, 3: 7, 4: 3}
        assert Counter(q.type for q in of_split) == {"bridge": 14, "comparison": 6, "date": 4}
        for world in ("real", "invented"):
            types = Counter(q.type for q in of_split if q.world == world)
            assert types == {"bridge": 7, "comparison": 3, "date": 2}


@each_question
def test_each_question_fits_its_passages(question: SampleQuestion) -> None:
    assert question.id.startswith(f"q-{question.world[0]}")
    assert question.question.endswith("?")
    assert len(set(question.supporting_ids)) == len(question.supporting_ids) == question.hops
    assert all(BY_ID[passage_id]["world"] == question.world for passage_id in question.supporting_ids)
    assert len(lookups(question)) == question.hops
    for step, passage_id in zip(lookups(question), question.supporting_ids, strict=True):
        assert states(passage_text(passage_id), step.answer), (step, passage_id)
    assert question.decomposition[-1].answer == question.answer


@each_question
def test_steps_refer_only_to_earlier_steps_and_use_every_one(question: SampleQuestion) -> None:
    used: set[int] = set()
    for number, step in enumerate(question.decomposition, start=1):
        references = {int(reference) for reference in re.findall(r"#(\d+)", step.question)}
        assert all(1 <= reference < number for reference in references)
        assert step.question.endswith("?")
        used |= references
    assert used == set(range(1, len(question.decomposition)))


@each_question
def test_question_does_not_contain_its_answer(question: SampleQuestion) -> None:
    for answer in question.answers:
        assert norm(answer) not in norm(question.question), answer
    if question.type == "bridge":
        # Nor does a passage of an earlier hop, or fewer hops would do.
        for passage_id in question.supporting_ids[:-1]:
            assert norm(question.answer) not in passage_text(passage_id), passage_id


@each_question
def test_answers_are_short_and_distinct(question: SampleQuestion) -> None:
    assert len(set(question.answers)) == len(question.answers)
    assert all(1 <= len(answer.split()) <= 4 and answer == answer.strip() for answer in question.answers)


@each_question
def test_computed_answers(question: SampleQuestion) -> None:
    """Computes the last step anew from the looked-up answers."""
    if question.type == "bridge":
        return
    answers = {f"#{n}": step.answer for n, step in enumerate(question.decomposition, start=1)}
    last = question.decomposition[-1].question
    if match := re.fullmatch(r"How many years is (#\d) after (#\d)\?", last):
        expected = str(int(answers[match[1]]) - int(answers[match[2]]))
        assert int(expected) > 0 and question.type == "date"
    elif match := re.fullmatch(r"Which year is (earlier|later), (#\d) or (#\d)\?", last):
        pick = min if match[1] == "earlier" else max
        expected = str(pick(int(answers[match[2]]), int(answers[match[3]])))
    elif match := re.fullmatch(r"Which number is larger, (#\d) or (#\d)\?", last):
        expected = str(max(int(answers[match[1]]), int(answers[match[2]])))
    elif match := re.fullmatch(r"Are (#\d) and (#\d) the same (?:city|country|island|town)\?", last):
        expected = "yes" if norm(answers[match[1]]) == norm(answers[match[2]]) else "no"
    else:
        match = re.fullmatch(r"Who was born earlier, (#\d) in (#\d) or (#\d) in (#\d)\?", last)
        assert match, last
        first = int(answers[match[2]]) < int(answers[match[4]])
        expected = answers[match[1]] if first else answers[match[3]]
    assert question.answer == expected


def test_splits_share_no_answer_of_a_final_passage() -> None:
    ends = {
        split: {(q.supporting_ids[-1], norm(q.answer)) for q in QUESTIONS if q.split == split}
        for split in ("train", "test")
    }
    assert not ends["train"] & ends["test"]
    finals = {
        split: {norm(answer) for q in QUESTIONS if q.split == split and q.world == "invented" for answer in q.answers}
        for split in ("train", "test")
    }
    assert not finals["train"] & finals["test"]
    for split, other in (("train", "test"), ("test", "train")):
        steps = {
            norm(step.answer)
            for q in QUESTIONS
            if q.split == split and q.world == "invented"
            for step in q.decomposition
        }
        assert not steps & finals[other]


# ------------------------------------------------------------------------------------------------------------- API


def test_splits_and_order() -> None:
    train, test = sample_questions("train"), sample_questions("test")
    assert len(train) == len(test) == 24
    assert [q for q in QUESTIONS if q.split == "train"] == train
    assert not {q.id for q in train} & {q.id for q in test}


def test_unknown_split() -> None:
    with pytest.raises(InputError, match="'dev'"):
        sample_questions("dev")  # pyright: ignore[reportArgumentType]


def test_questions_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        QUESTIONS[0].question = "?"  # pyright: ignore[reportAttributeAccessIssue]


def test_to_example() -> None:
    question = QUESTIONS[0]
    example = question.to_example()
    assert list(example.inputs().keys()) == ["question"]
    assert example.question == question.question
    assert example.answer == question.answers[0] == question.answer
    assert example.answers == list(question.answers)
    assert (example.id, example.hops, example.type) == (question.id, question.hops, question.type)
    assert (example.world, example.split) == (question.world, question.split)
    assert example.supporting_ids == list(question.supporting_ids)
    assert example.decomposition[0] == {
        "question": question.decomposition[0].question,
        "answer": question.decomposition[0].answer,
    }


def _fake_install(monkeypatch: pytest.MonkeyPatch, folder: Path, questions: str | None) -> None:
    (folder / "data").mkdir()
    if questions is not None:
        (folder / "data" / "questions.jsonl").write_text(questions, encoding="utf-8")
    monkeypatch.setattr(sample, "files", lambda package: folder)


def test_missing_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _fake_install(monkeypatch, tmp_path, None)
    with pytest.raises(CorpusError, match=r"corpus\.jsonl is missing"):
        sample_corpus_path()
    with pytest.raises(CorpusError, match=r"questions\.jsonl is missing"):
        sample_questions()


GOOD = {
    "id": "q",
    "question": "Why?",
    "answers": ["because"],
    "hops": 2,
    "type": "bridge",
    "world": "real",
    "supporting_ids": ["r001"],
    "decomposition": [{"question": "Why?", "answer": "because"}],
    "split": "train",
}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"id": ""}, "`id`"),
        ({"question": 3}, "`question`"),
        ({"answers": []}, "`answers`"),
        ({"answers": "because"}, "`answers`"),
        ({"hops": "2"}, "`hops`"),
        ({"hops": True}, "`hops`"),
        ({"type": "other"}, "`type`"),
        ({"world": "other"}, "`world`"),
        ({"split": "dev"}, "`split`"),
        ({"supporting_ids": [1]}, "`supporting_ids`"),
        ({"decomposition": []}, "`decomposition`"),
        ({"decomposition": ["Why?"]}, "`decomposition`"),
        ({"decomposition": [{"question": "Why?"}]}, "`answer`"),
    ],
)
def test_a_damaged_question_names_its_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, change: dict[str, object], message: str
) -> None:
    lines = [ujson.dumps(GOOD), "", ujson.dumps({**GOOD, **change})]
    _fake_install(monkeypatch, tmp_path, "\n".join(lines))
    with pytest.raises(InputError, match=f"line 3: {message}"):
        sample_questions()


@pytest.mark.parametrize("line", ["{not json", "[1, 2]"])
def test_a_line_that_is_no_object(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, line: str) -> None:
    _fake_install(monkeypatch, tmp_path, line)
    with pytest.raises(InputError, match="line 1: "):
        sample_questions()
