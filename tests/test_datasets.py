"""Data sets: every published form, from files and from a hub that is not there, samples, manifests, broken files."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopgate.core import InputError, Passage
from hopgate.core.texts import MAX_QUESTION_CHARACTERS
from hopgate.evaluation import dataset_files
from hopgate.evaluation.datasets import load_questions
from hopgate.evaluation.questions import Question, QuestionSet, draw
from hopgate.evaluation.sample import sample_questions

HOTPOT = {
    "_id": "h1",
    "question": "Were Ann and Bob of one country?",
    "answer": "yes",
    "type": "comparison",
    "level": "hard",
    "supporting_facts": [["Bob", 0], ["Ann", 0], ["Bob", 1]],
    "context": [["Ann", ["Ann is Dutch.", " She sings."]], ["Cat", ["A cat."]], ["Bob", ["Bob is Dutch.", " He is."]]],
}
TWO_WIKI = {
    "_id": "w1",
    "type": "compositional",
    "question": "Who is the mother of the director of Film X?",
    "context": [["Film X", ["Film X is by Y.", "It is long."]], ["Y", ["Y is a child of Z."]]],
    "entity_ids": "Q1_Q2",
    "supporting_facts": [["Film X", 0], ["Y", 0]],
    "evidences": [["Film X", "director", "Y"], ["Y", "mother", "Z"]],
    "answer": "Z",
    "evidences_id": [],
    "answer_id": "Q3",
}
MUSIQUE = {
    "id": "3hop1__1_2_3",
    "paragraphs": [
        {"idx": 0, "title": "T", "paragraph_text": "Not it.", "is_supporting": False},
        {"idx": 1, "title": "U", "paragraph_text": "Second.", "is_supporting": True},
        {"idx": 2, "title": "T", "paragraph_text": "First.", "is_supporting": True},
    ],
    "question": "Who?",
    "question_decomposition": [
        {"id": 1, "question": "T >> x", "answer": "u", "paragraph_support_idx": 2},
        {"id": 2, "question": "#1 >> y", "answer": "v", "paragraph_support_idx": 1},
        {"id": 3, "question": "#2 >> z", "answer": "w", "paragraph_support_idx": None},
    ],
    "answer": "W W",
    "answer_aliases": ["W. W.", "W W"],
    "answerable": True,
}
SIMPLE = {"id": "1", "question": "Why?", "answers": ["because", "since"]}


def lines(*records: Any) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def write(folder: Path, text: str | bytes, name: str = "data.json") -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


@pytest.fixture(params=["list", "indented", "lines", "gzip"])
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Writes records in one of the forms of JSON, and loads them."""

    def load(*records: Any, **options: Any) -> QuestionSet:
        if request.param == "lines":
            return load_questions(write(tmp_path, "\ufeff" + lines(*records)), **options)
        text = json.dumps(list(records), indent=2 if request.param == "indented" else None, ensure_ascii=False)
        data = gzip.compress(text.encode()) if request.param == "gzip" else text
        return load_questions(write(tmp_path, data), **options)

    return load


def test_hotpotqa(stored: Any) -> None:
    (question,) = stored(HOTPOT)
    assert (question.id, question.type, question.hops, question.answers) == ("h1", "comparison", 2, ("yes",))
    assert question.supporting_titles == ("Bob", "Ann")
    texts = {passage.id: passage.text for passage in question.contexts}
    assert [texts[key] for key in question.supporting_ids] == ["Bob is Dutch. He is.", "Ann is Dutch. She sings."]
    assert question.answerable and question.decomposition == ()


def test_hotpotqa_without_a_supporting_page_among_the_contexts_has_no_supporting_ids(stored: Any) -> None:
    (question,) = stored({**HOTPOT, "context": HOTPOT["context"][:2]})
    assert question.supporting_ids == () and question.supporting_titles == ("Bob", "Ann") and question.hops == 2


def test_two_wiki(stored: Any) -> None:
    (question,) = stored(TWO_WIKI)
    film, person = question.contexts
    assert film.text == "Film X is by Y. It is long."
    assert question.decomposition == (("Film X >> director", "Y", film.id), ("Y >> mother", "Z", person.id))
    assert question.supporting_ids == (film.id, person.id) and question.hops == 2


def test_musique(stored: Any) -> None:
    (question,) = stored(MUSIQUE)
    assert question.answers == ("W W", "W. W.")
    assert (question.type, question.hops, question.answerable) == ("3hop1", 3, True)
    texts = {passage.id: passage.text for passage in question.contexts}
    assert [texts[key] for key in question.supporting_ids] == ["First.", "Second."]  # in hop order
    assert question.supporting_titles == ("T", "U")
    assert [step.support_id for step in question.decomposition] == [*question.supporting_ids, None]


def test_musique_full_has_pairs_of_one_id(stored: Any) -> None:
    other = {**MUSIQUE, "answerable": False, "paragraphs": MUSIQUE["paragraphs"][:1]}
    assert [(q.id, q.answerable) for q in stored(MUSIQUE, other)] == [
        ("3hop1__1_2_3", True),
        ("3hop1__1_2_3:unanswerable", False),
    ]
    assert [(q.id, q.answerable) for q in stored(other, MUSIQUE)][1] == ("3hop1__1_2_3:answerable", True)
    with pytest.raises(InputError, match="3hop1__1_2_3"):
        stored(MUSIQUE, other, MUSIQUE)


def test_bamboogle(tmp_path: Path) -> None:
    path = write(tmp_path, 'Question,Answer\n"Who, then?",A\n\nWhat?,"B, C"\n', "Bamboogle Prerelease - Sheet1.csv")
    found = load_questions(path)
    assert [(q.id, q.question, q.answers, q.hops) for q in found] == [
        ("bamboogle_1", "Who, then?", ("A",), 2),
        ("bamboogle_2", "What?", ("B, C",), 2),
    ]


def test_simple(stored: Any) -> None:
    full = {
        **SIMPLE,
        "id": 2,
        "answers": "one",
        "type": "bridge",
        "hops": 3,
        "supporting_ids": ["7", 8],
        "supporting_titles": ["T"],
        "decomposition": [{"question": "q", "answer": "a"}, {"question": "r", "answer": "b", "support_id": "7"}],
        "answerable": False,
        "contexts": [{"id": "7", "title": "T", "text": "x"}],
        "level": "ignored",
    }
    first, second = stored(SIMPLE, full)
    assert first == Question("1", "Why?", ("because", "since"))
    assert second == Question(
        "2",
        "Why?",
        ("one",),
        type="bridge",
        hops=3,
        supporting_ids=("7", "8"),
        supporting_titles=("T",),
        decomposition=(("q", "a", None), ("r", "b", "7")),  # type: ignore[arg-type]
        answerable=False,
        contexts=(Passage("7", "T", "x"),),
    )


def test_hops_are_the_supporting_passages_where_nothing_is_said(stored: Any) -> None:
    steps = [{"question": "q", "answer": "a"}] * 3
    found = stored({**SIMPLE, "supporting_ids": ["a", "b"]}, {**SIMPLE, "id": "2", "decomposition": steps})
    assert [question.hops for question in found] == [2, 3]


@pytest.mark.parametrize("separator", [",", "\t"])
def test_simple_as_a_table(tmp_path: Path, separator: str) -> None:
    cells = [["id", "question", "answers", "hops", "answerable"], ["1", "Why?", '"[""a"", ""b""]"', "2", "false"]]
    cells.append(["2", "How?", "so", "", ""])
    path = write(tmp_path, "\r\n".join(separator.join(row) for row in cells), "x.csv")
    first, second = load_questions(path)
    assert (first.answers, first.hops, first.answerable) == (("a", "b"), 2, False)
    assert (second.answers, second.hops, second.answerable) == (("so",), None, True)


@pytest.mark.parametrize(
    ("column", "cell", "expected"),
    [
        ("answers", '"[""Rome"", ""Roma""]"', ("Rome", "Roma")),
        ("answers", '" [""Rome""]"', ("Rome",)),
        ("answers", "Rome; Roma", ("Rome; Roma",)),
        ("answer", "Rome", ("Rome",)),
        ("answer", "[sic] Rome", ("[sic] Rome",)),
        ("answer", "[1]", ("[1]",)),
        ("answers", "[Rome| Roma]", r'x\.csv:2: .*several answers as a JSON list, \["Rome", "Roma"\]'),
        ("answers", "\"['Rome', 'Roma']\"", "x.csv:2: .*several answers as a JSON list"),
        ("answers", "[]", "x.csv:2: `answers` must be"),
        ("answers", "[1]", r'x.csv:2: `answers` must be text, got the number 1; quote numbers: \["1"\]$'),
        ("answers", '"[3, ""four""]"', r'x.csv:2: .* quote numbers: \["3", "four"\]$'),
        ("answers", '"[0.5, 4]"', r'x.csv:2: .* quote numbers: \["0.5", "4"\]$'),
        ("answers", "[true]", r"x.csv:2: `answers` must be a string or a list of strings.*got \[True\]$"),
        (
            "answer",
            '"[""Rome"", ""Roma""]"',
            "x.csv:2: `answer` is one answer and holds a list.*; call the field `answers`",
        ),
    ],
)
def test_answers_in_a_cell(tmp_path: Path, column: str, cell: str, expected: tuple[str, ...] | str) -> None:
    path = write(tmp_path, f"id,question,{column}\n1,Where?,{cell}\n", "x.csv")
    if isinstance(expected, tuple):
        (question,) = load_questions(path)
        assert question.answers == expected
    else:
        with pytest.raises(InputError, match=expected):
            load_questions(path)


@pytest.mark.parametrize("cell", ["Agra; India", "Rome|Roma"])
def test_several_answers_in_a_cell_are_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture, cell: str) -> None:
    path = write(tmp_path, f"id,question,answers\n1,Where?,Rome\n2,Where?,{cell}\n3,Where?,{cell}\n", "x.csv")
    assert [question.answers for question in load_questions(path)] == [("Rome",), (cell,), (cell,)]
    (message,) = caplog.messages
    assert message == f'{path}:3: {cell!r} counts as one answer; several are given as a JSON list: ["Rome", "Roma"]'


def test_answers_that_are_one_are_not_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    load_questions(write(tmp_path, 'id,question,answers\n1,Where?,"Rome, Italy"\n2,Where?,"[""a;b""]"\n', "x.csv"))
    load_questions(write(tmp_path, lines({"id": "1", "question": "Which?", "answer": "one; or another"})))
    assert caplog.messages == []


PLACES = [
    {"id": "\ud800"}, {"question": "Why \udfff?"}, {"answers": ["a", "\ud800"]}, {"type": "x\ud800"},
    {"supporting_ids": ["\udc00"]}, {"supporting_titles": ["a", "b\ud800"]},
]  # fmt: skip


@pytest.mark.parametrize("change", PLACES, ids=ascii)
@pytest.mark.parametrize("form", [lines, lambda *records: json.dumps(records)], ids=["lines", "list"])
def test_texts_that_no_file_can_hold_are_refused_where_they_stand(
    tmp_path: Path, form: Any, change: dict[str, Any]
) -> None:
    path = write(tmp_path, form(SIMPLE, {**SIMPLE, "id": "2", **change}))
    with pytest.raises(InputError, match=f"(:2|record 2): `{next(iter(change))}` holds half of a surrogate pair"):
        load_questions(path)


def test_questions_that_no_program_reads_are_refused_where_they_stand(stored: Any) -> None:
    longest = "x" * MAX_QUESTION_CHARACTERS
    assert len(stored({**SIMPLE, "question": longest})) == 1
    with pytest.raises(InputError, match=r"(:2|record 2): `question` has 8,001 characters, and programs read at most"):
        stored(SIMPLE, {**SIMPLE, "id": "2", "question": f"{longest}?"})


def test_examples(stored: Any) -> None:
    (example,) = stored(MUSIQUE).examples()
    assert set(example.inputs().keys()) == {"question"}
    assert example.answer == "W W" and example.answers == ["W W", "W. W."]
    assert example.decomposition[0]["question"] == "T >> x" and example.hops == 3
    json.dumps(example.toDict())  # so that programs with such demos can be saved


def test_pooling(stored: Any) -> None:
    other = {**HOTPOT, "_id": "h2", "context": [HOTPOT["context"][2], ["Dog", ["A dog."]], HOTPOT["context"][0]]}
    found = stored(HOTPOT, other)
    pool = found.pooled_corpus()
    assert [passage.title for passage in pool] == ["Ann", "Cat", "Bob", "Dog"]
    ids = {passage.id for passage in pool}
    assert len(ids) == 4 and all(set(question.supporting_ids) <= ids for question in found)
    # The ids do not depend on what else is pooled.
    assert [p.id for p in stored(other).pooled_corpus()] == [pool[2].id, pool[3].id, pool[0].id]
    assert found[0].supporting_ids == found[1].supporting_ids


def test_nothing_to_pool(stored: Any) -> None:
    with pytest.raises(InputError, match="without contexts"):
        stored(SIMPLE).pooled_corpus()
    contexts = [[{"id": "7", "title": "T", "text": text}] for text in ("x", "y")]
    found = stored({**SIMPLE, "contexts": contexts[0]}, {**SIMPLE, "id": "2", "contexts": contexts[1]})
    with pytest.raises(InputError, match=r"'2' has another passage '7'"):
        found.pooled_corpus()


# ------------------------------------------------------------------------------------------- samples and manifests


@given(st.lists(st.text(min_size=1).filter(str.strip), unique=True, min_size=1, max_size=30), st.data())
def test_samples_are_seeded_nested_and_keep_the_order(ids: list[str], data: st.DataObject) -> None:
    questions = [Question(identifier, "q", ("a",)) for identifier in ids]
    seed = data.draw(st.integers(0, 5))
    size = data.draw(st.integers(1, 35))
    drawn = [question.id for question in draw(questions, size, seed)]
    assert len(drawn) == min(size, len(ids))
    assert drawn == [identifier for identifier in ids if identifier in drawn]
    assert {question.id for question in draw(questions, max(1, size - 3), seed)} <= set(drawn)
    # What is drawn does not depend on the order of the source.
    assert {question.id for question in draw(questions[::-1], size, seed)} == set(drawn)


def test_another_seed_draws_others(tmp_path: Path) -> None:
    path = write(tmp_path, lines(*({**SIMPLE, "id": str(number)} for number in range(200))), "many.jsonl")
    found = load_questions(path, sample=20, seed=1)
    assert found.ids == load_questions(path, sample=20, seed=1).ids
    assert found.ids != load_questions(path, sample=20, seed=2).ids
    # Fixed for ever: recorded runs refer to it.
    assert found.ids[:3] == ("29", "30", "38")
    manifest = found.manifest()
    assert manifest == {"name": "many", "split": None, "seed": 1, "sample": 20, "ids": list(found.ids)}
    again = load_questions(path).select(json.loads(json.dumps(manifest))["ids"])
    assert tuple(again) == tuple(found)
    assert load_questions(path).manifest()["seed"] is None
    with pytest.raises(InputError, match="1 of 2 questions are not there, the first is 'x'"):
        found.select([found.ids[0], "x"])


def test_the_first_questions(stored: Any) -> None:
    found = stored(SIMPLE, {**SIMPLE, "id": "2"}, {**SIMPLE, "id": "3"})
    assert found.first(2).ids == ("1", "2") and found.first(9).ids == ("1", "2", "3")
    with pytest.raises(InputError, match="positive"):
        found.first(0)


def test_the_bundled_sample() -> None:
    found = load_questions("sample", split="test")
    assert found.manifest()["split"] == "test" and len(found) == 24 and found.name == "sample"
    for question, original in zip(found, sample_questions("test"), strict=True):
        assert question.answers == original.answers and question.hops == original.hops
        supports = [step.support_id for step in question.decomposition]
        assert supports == [*original.supporting_ids, *[None] * (len(supports) - original.hops)]
    assert len(load_questions("sample")) == 48
    with pytest.raises(InputError, match="'dev'"):
        load_questions("sample", split="dev")
    with pytest.raises(InputError, match="sample_corpus_path"):
        found.pooled_corpus()


def test_splits_of_a_file(stored: Any) -> None:
    records = [{**SIMPLE, "id": str(number), "split": "ab"[number % 2]} for number in range(4)]
    assert stored(*records, split="b").ids == ("1", "3")
    with pytest.raises(InputError, match="no question of the split 'c'; there are a, b"):
        stored(*records, split="c")
    with pytest.raises(InputError, match=r"has no `split` to choose 'b' by"):
        stored(SIMPLE, split="b")


def test_names(tmp_path: Path) -> None:
    path = write(tmp_path, lines(SIMPLE), "questions.jsonl")
    assert load_questions(tmp_path).name == load_questions(path).name == tmp_path.name
    assert load_questions(path, name="mine").name == "mine"
    assert load_questions(write(tmp_path, lines(SIMPLE), "dev.jsonl.gz")).name == "dev"


# --------------------------------------------------------------------------------------------------------- the hub


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> dict[tuple[str, str | None, str], Any]:
    """What the hub has, by repository, configuration and split."""
    import datasets

    tables: dict[tuple[str, str | None, str], Any] = {}

    def load_dataset(path: str, name: str | None = None, *, split: str) -> Any:
        records = tables.get((path, name, split))
        if records is None:
            raise ValueError(f"Unknown split {split!r}")
        return datasets.Dataset.from_list(records)  # with all the changes that the library makes to records

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    monkeypatch.setattr("hopgate.core.hub.hub_answers", lambda: True)
    return tables


def _hub_form(record: dict[str, Any]) -> dict[str, Any]:
    facts, context = record["supporting_facts"], record["context"]
    return {
        **{name: value for name, value in record.items() if name != "_id"},
        "id": record["_id"],
        "supporting_facts": {"title": [title for title, _ in facts], "sent_id": [number for _, number in facts]},
        "context": {"title": [title for title, _ in context], "sentences": [texts for _, texts in context]},
    }


def test_hub(hub: dict[tuple[str, str | None, str], Any], tmp_path: Path) -> None:
    hub["hotpotqa/hotpot_qa", "distractor", "validation"] = [_hub_form(HOTPOT)]
    hub["hotpotqa/hotpot_qa", "fullwiki", "train"] = [_hub_form({**HOTPOT, "_id": "f"})]
    hub["framolfese/2WikiMultihopQA", None, "validation"] = [_hub_form(TWO_WIKI)]
    hub["bdsaglam/musique", "answerable", "validation"] = [MUSIQUE]
    hub["chiayewken/bamboogle", None, "test"] = [{"Question": "Who?", "Answer": "A"}]
    found = load_questions("hotpotqa")
    assert (found.name, found.split) == ("hotpotqa-distractor", "validation")
    assert tuple(found) == tuple(load_questions(write(tmp_path, json.dumps([HOTPOT]))))
    assert load_questions("HotpotQA", config="fullwiki", split="train").ids == ("f",)
    assert tuple(load_questions("2wikimultihopqa")) == tuple(load_questions(write(tmp_path, lines(TWO_WIKI))))
    assert tuple(load_questions("musique")) == tuple(load_questions(write(tmp_path, lines(MUSIQUE))))
    assert load_questions("bamboogle").ids == ("bamboogle_1",)
    with pytest.raises(InputError, match="'validation' cannot be read"):
        load_questions("bamboogle", split="validation")


def test_the_tables_of_older_versions_of_datasets(hub: dict[tuple[str, str | None, str], Any]) -> None:
    names = ("idx", "title", "paragraph_text", "is_supporting")
    turned = {name: [paragraph[name] for paragraph in MUSIQUE["paragraphs"]] for name in names}
    hub["bdsaglam/musique", "answerable", "validation"] = [{**MUSIQUE, "paragraphs": turned}]
    (question,) = load_questions("musique")
    assert [passage.text for passage in question.contexts] == ["Not it.", "Second.", "First."]


@pytest.mark.usefixtures("hub")
def test_test_splits_without_answers(hub: dict[tuple[str, str | None, str], Any]) -> None:
    hub["hotpotqa/hotpot_qa", "fullwiki", "test"] = [{**_hub_form(HOTPOT), "answer": None}]
    with pytest.raises(InputError, match=r"hotpot_qa \(test\): row 0: `answer` .* take the validation split"):
        load_questions("hotpotqa", config="fullwiki", split="test")


def test_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hopgate.core.hub.hub_answers", lambda: False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    with pytest.raises(InputError, match=r"cannot be reached; connect .* path of the data set's file"):
        load_questions("musique")


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        ("hotpotqa", {"config": "easy"}, "distractor or fullwiki, got 'easy'"),
        ("bamboogle", {"config": "x"}, "no configurations"),
        ("sample", {"config": "x"}, "no configurations"),
        ("sample", {"sample": 0}, "positive number"),
        ("sample", {"sample": True}, "positive number"),
        ("sample", {"seed": "1"}, "whole number"),
        ("nothing.jsonl", {}, "no such file, and no data set of that name; the names are hotpotqa"),
        ("x" * 5000, {}, "no such file"),
    ],
)
def test_wrong_arguments(source: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        load_questions(source, **options)


# ---------------------------------------------------------------------------------------------------- broken files


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no records"),
        (" \n\n", "holds no records"),
        ("[]", "holds no records"),
        ("[ ]", "holds no records"),
        ("id,question,answers\n", "holds no questions"),
        ('{"id": "1", "question": "q"}\n', "data.json:1: has the fields id, question, and those of no known data set"),
        ('{"id": "1", "question": "q", "answers": []}\n', "data.json:1: `answers`"),
        ('{"id": "1", "question": "q", "answers": ["a", " "]}\n', "data.json:1: `answers`"),
        ('{"id": "1", "question": "", "answers": "a"}\n', "data.json:1: `question`"),
        ('{"id": null, "question": "q", "answers": "a"}\n', "data.json:1: `id`"),
        ('{"id": "1", "question": "q", "answers": "a", "hops": "two"}\n', "data.json:1: `hops`"),
        ('{"id": "1", "question": "q", "answers": "a", "hops": 0}\n', "data.json:1: `hops`"),
        ('{"id": "1", "question": "q", "answers": "a", "answerable": "?"}\n', "data.json:1: `answerable`"),
        ('{"id": "1", "question": "q", "answers": "a", "supporting_ids": "a"}\n', "data.json:1: `supporting_ids`"),
        ('{"id": "1", "question": "q", "answers": "a", "decomposition": [3]}\n', "data.json:1: `decomposition`"),
        ('{"id": "1", "question": "q", "answers": "a", "contexts": [{"id": "x"}]}\n', "data.json:1: a passage needs"),
        (lines(SIMPLE) + "\n{broken\n", "data.json:3: not JSON"),
        (lines(SIMPLE) + "[1]\n", "data.json:2: a list, not an object"),
        (lines(SIMPLE, {**SIMPLE, "question": "Other?"}), r"data.json:2: the id '1' is that of .*data.json:1 too"),
        (json.dumps([SIMPLE, SIMPLE]), r"record 2: the id '1' is that of .* record 1 too"),
        (json.dumps([SIMPLE, 3]), "record 2: begins with '3', not with an object"),
        (json.dumps([SIMPLE])[:-1], "record 1: followed by 'the end of the file'"),
        (json.dumps([SIMPLE]) + "x", "goes on after the end"),
        (json.dumps([SIMPLE]).replace("}]", "} {}]"), "record 1: followed by '{'"),
        ('[{"id": "1", "question": oops}]', "record 1: not JSON"),
        (json.dumps([SIMPLE])[:-9], "record 1: not JSON"),
        ("[" * 100_000, "begins with"),
        ('{"a":' * 100_000, "data.json:1: not JSON"),
        ('id,question,answers\n1,Why?,"a\n', "data.json:2: a broken row"),
        ("id,question,answers\n1,Why?\n", "data.json:2: 2 cells, and there are 3 columns"),
        (lines({**HOTPOT, "context": [["Ann", "text"]]}), "data.json:1: `context`"),
        (lines({**HOTPOT, "supporting_facts": [[]]}), "data.json:1: `context` and `supporting_facts`"),
        (lines({**HOTPOT, "answer": None}), "data.json:1: `answer` must.*take the validation split"),
        (lines({**HOTPOT, "answer": 1997}), r'data.json:1: `answer` must be text, .* quote numbers: \["1997"\]$'),
        (lines({**SIMPLE, "answers": ["a", " "]}), r"data.json:1: `answers` must be .*got \['a', ' '\]$"),
        (lines({**TWO_WIKI, "evidences": [["a", "b"]]}), "data.json:1: `evidences`"),
        (lines({**MUSIQUE, "paragraphs": "none"}), "data.json:1: `paragraphs`"),
        (lines({**MUSIQUE, "answerable": "yes"}), "data.json:1: `answerable`"),
        (lines({**MUSIQUE, "question_decomposition": [{"question": 3}]}), "data.json:1: `question`"),
    ],
)
def test_broken_files_give_one_clear_error(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        load_questions(write(tmp_path, text))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            lines(SIMPLE).encode() + '{"id": "2", "question": "é"}'.encode("latin-1"),
            r"data.json:2: not UTF-8 at byte 26",
        ),
        (json.dumps([{**SIMPLE, "id": "é"}], ensure_ascii=False).encode("latin-1"), "not UTF-8 near byte 10"),
        (json.dumps([SIMPLE]).encode("utf-16"), "is UTF-16; convert"),
        (gzip.compress(lines(SIMPLE).encode())[:-12], "cannot be read"),
        ("id,question,answers\n1,é,a".encode("latin-1"), "data.json:2: not UTF-8"),
    ],
)
def test_mixed_encodings(tmp_path: Path, data: bytes, message: str) -> None:
    with pytest.raises(InputError, match=message):
        load_questions(write(tmp_path, data))


def test_folders_and_missing_files(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"a folder without questions\.jsonl"):
        load_questions(tmp_path)


@pytest.mark.parametrize("beginning", ['{"id": "', '[{"id": "', "id,question,answers\n1,", '[{"id": 1}, "'])
def test_a_line_that_never_ends_is_not_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beginning: str) -> None:
    monkeypatch.setattr(dataset_files, "LONGEST_RECORD", 1 << 20)
    path = write(tmp_path, beginning)
    with path.open("r+b") as file:  # a sparse file of 2 GB
        file.truncate(2 << 30)
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match=r"1,048,576|not with an object|not JSON|fields id"):
            load_questions(path)
        assert tracemalloc.get_traced_memory()[1] < 40 << 20
    finally:
        tracemalloc.stop()


def test_lists_are_read_in_bounded_memory(tmp_path: Path) -> None:
    record = {**HOTPOT, "context": [["Ann", ["x" * 20_000]]], "supporting_facts": []}
    text = json.dumps([{**record, "_id": str(number)} for number in range(1000)])  # 20 MB on one line
    path = write(tmp_path, text)
    del text
    tracemalloc.start()
    try:
        assert len(load_questions(path, sample=3)) == 3
        assert tracemalloc.get_traced_memory()[1] < 10 << 20
    finally:
        tracemalloc.stop()


@given(st.lists(st.text(max_size=30), min_size=1, max_size=8), st.integers(1, 7))
def test_lists_are_read_right_wherever_chunks_end(texts: list[str], chunk: int) -> None:
    import io

    records = [{"text": text, "nested": [{"]": text}]} for text in texts]
    data = json.dumps(records, ensure_ascii=False, indent=1).encode("utf-8", "surrogatepass")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dataset_files, "_CHUNK", chunk)
        found = [record for _, record in dataset_files._list_items(Path("x"), io.BytesIO(data))]
    assert found == records


def test_loading_needs_no_dspy(tmp_path: Path) -> None:
    path = write(tmp_path, lines(SIMPLE))
    code = f"""
import sys
from hopgate.evaluation.datasets import load_questions
load_questions({str(path)!r})
assert not {{"dspy", "torch", "datasets"}} & sys.modules.keys()
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
