"""Run files: what is written comes back, what is damaged is named, and no text of a data set gets in."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hopgate.core import HopgateError, InputError, Passage, StateError
from hopgate.evaluation.recorded_texts import QUOTED, joined_answer, recorded_answer, without_quotes
from hopgate.evaluation.records import (
    AttemptRecord,
    DataHeader,
    Failure,
    IndexHeader,
    ProgramHeader,
    RunCost,
    RunHeader,
    RunRecord,
    Scores,
    appending,
    differences,
    line_of,
    read_header,
    read_run,
    trajectory_of,
    trajectory_record,
    without_question,
    write_run,
)
from hopgate.evaluation.run_schema import record_adapter
from hopgate.lms import AnswerConfidence
from hopgate.programs import Cost, Hop, Source, Trajectory
from hopgate.programs.trajectory import Decision

QUESTION = "Which river flows through the town where the designer of the Osk Tower was born?"


def header(*ids: str, **changes: Any) -> RunHeader:
    base = RunHeader(
        name="a",
        adapter="CompactAdapter",
        program=ProgramHeader("rag", settings={"k": 3}, state_sha256="0"),
        lm={"model": "scripted/lm", "temperature": 0.0},
        seed=0,
        normalisation="official",
        versions={"hopgate": "1"},
        index=IndexHeader("exact", "tiny", "c", "f", 4, 0, False),
        data=DataHeader("toy", ids=ids or ("q1", "q2", "q3"), questions_sha256="0"),
    )
    return replace(base, **changes)


def record(identity: str, **changes: Any) -> RunRecord:
    base = RunRecord(
        id=identity,
        status="ok",
        answer="Ile",
        type=None,
        hops=2,
        scores=Scores(True, 1.0, True, True),
        trajectory=trajectory_record(trajectory()),
        cost=RunCost(lm_calls=1, usd=None),
    )
    return replace(base, **changes)


def trajectory() -> Trajectory:
    confidence = AnswerConfidence(-0.5, -1.0, -0.75, -0.25, 2)
    found = (Passage("3", "Varn", "Varn is a town on the river Ile.", 12.5), Passage("4", "Ile", "The river.", None))
    return Trajectory(
        question=QUESTION,
        hops=(
            Hop("Where was the designer born?", "Varn", confidence, answer="Varn"),
            Hop(QUESTION, source="search", query=f"Varn. {QUESTION}", passages=found, answer="Ile", whole=True),
        ),
        plan=("one", QUESTION),
        passages=found[:1],
        answer="Ile",
        answer_confidence=confidence,
        stop_reason="finished",
        revisions=(
            {
                "stage": "resolve",
                "hop": 1,
                "page": 2,
                "answer": f"not {QUESTION}",
                "verdict": "off_topic",
                "probability": 0.25,
                "kept": True,
                "error": f"no passage for {QUESTION}",
                "sub_questions": ["Where was the designer born?", QUESTION],
                "conclusions": ["Varn", ""],
                "passages": ["3"],
                "cost": {"retrievals": 1, "lm_calls": 2, "prompt_tokens": 0, "completion_tokens": 0, "seconds": 0.5},
            },
        ),
        decisions=(Decision("hop", 0, f"of {QUESTION}", confidence, False), Decision("final", 1, "Ile", None, True)),
        other_cost=Cost(lm_calls=3, seconds=1.5),
    )


def test_a_run_comes_back_in_the_order_of_the_data(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    records = [
        record("q3"),
        record("q1", status="error", answer=None, trajectory=None, error=Failure("Timeout", "late"), attempts=2),
    ]
    write_run(path, header(), records)
    run = read_run(path)
    assert run.header == read_header(path) == header()
    assert run.records == (records[1], records[0])
    assert run.by_id["q3"] == records[0]
    assert [r.id for r in run.answered] == ["q3"] and [r.id for r in run.failed] == ["q1"] and run.missing == ("q2",)


def test_first_line_begins_with_schema_and_kind(tmp_path: Path) -> None:
    assert line_of(header()).startswith(b'{"schema":1,"kind":"run","name":"a"')


def test_the_later_of_two_records_counts(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    write_run(path, header(), [record("q1", answer="old"), record("q2"), record("q1", answer="new")])
    run = read_run(path)
    assert [r.id for r in run.records] == ["q1", "q2"] and run.records[0].answer == "new"


@given(st.data())
def test_any_cut_of_the_last_line_loses_only_it(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path = tmp_path_factory.mktemp("cut") / "a.jsonl"
    write_run(path, header(), [record("q1"), record("q2", answer="Île — ü")])
    whole = path.read_bytes()
    start = whole[:-1].rindex(b"\n") + 1
    cut = data.draw(st.integers(start, len(whole) - 1))
    path.write_bytes(whole[:cut])
    # Without its line break alone, the last record is whole.
    expected = ["q1", "q2"] if cut == len(whole) - 1 else ["q1"]
    assert [r.id for r in read_run(path).records] == expected
    with appending(path, header()) as file:
        assert list(file.before) == expected
        file.append(record("q3"))
    assert [r.id for r in read_run(path).records] == [*expected, "q3"]
    assert path.read_bytes().startswith(whole[:start])


def test_text_that_is_not_unicode_is_written(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    write_run(path, header(), [record("q1", answer="a\ud800b\u2028\n\x00")])
    assert read_run(path).records[0].answer == "a?b\u2028\n\x00"


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_numbers_that_are_not_finite_are_not_written(number: float) -> None:
    with pytest.raises(ValueError):
        line_of(record("q1", scores=Scores(True, number, True, True)))
    assert b"NaN" in line_of(record("q1", answer="NaN or Infinity"))


@pytest.mark.parametrize(
    ("change", "part"),
    [
        (lambda lines: [], "is empty"),
        (lambda lines: lines[1:], "line 1: is not the header"),
        (lambda lines: ["[1]", *lines[1:]], "line 1: is not the header"),
        (lambda lines: ["[" * 100_000, *lines[1:]], "line 1: is not the header"),
        (lambda lines: [lines[0].replace('"schema":1', '"schema":2'), *lines[1:]], "reads 1"),
        (lambda lines: [lines[0].replace('"seed":0', '"seed":"x"'), *lines[1:]], "line 1: `seed`"),
        (lambda lines: [lines[0], lines[1][:40], lines[2]], "line 2: "),
        (lambda lines: [lines[0], lines[1].replace('"answer"', '"reply"', 1), lines[2]], "line 2: `"),
        (lambda lines: [lines[0], lines[1].replace('"em":true', '"em":1'), lines[2]], "line 2: `scores.em`"),
        (lambda lines: [lines[0], lines[1].replace('"f1":1.0', '"f1":NaN'), lines[2]], "line 2: "),
        (lambda lines: [lines[0], lines[1].replace("q1", "q9"), lines[2]], "line 2: question 'q9' is not in"),
    ],
)  # fmt: skip
def test_damage_is_named(tmp_path: Path, change: Any, part: str) -> None:
    path = tmp_path / "a.jsonl"
    write_run(path, header(), [record("q1"), record("q2")])
    path.write_text("".join(f"{line}\n" for line in change(path.read_text().splitlines())))
    with pytest.raises((InputError, StateError)) as caught:
        read_run(path)
    assert str(path) in str(caught.value) and part in str(caught.value)


def _of(value: Any, *path: str | int) -> dict[str, Any]:
    """A record or header as JSON, with one value replaced."""
    whole = header() if path[0] in ("lm", "index") else record("q1", trajectory=trajectory_record(trajectory()))
    found = place = json.loads(line_of(whole))
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return found


_COSTS = [("cost", name) for name in RunCost.__dataclass_fields__]


@pytest.mark.parametrize(
    ("values", "path"),
    [
        *(((-1, 10**400, -1.5, 1e300), path) for path in _COSTS),
        ((55.0, -0.1), ("scores", "f1")),
        ((1.5, -1.0), ("scores", "retrieval_recall")),
        ((-1, 10**400), ("hops",)),
        ((-1, 10**400), ("attempts",)),
        ((1e6, -1e300), ("trajectory", "answer_confidence", "mean")),
        (({}, {"model": 3}, {"model": ""}), ("lm",)),
        ((-1, 10**400), ("index", "passages")),
    ],
)  # fmt: skip
def test_values_out_of_range_are_named(tmp_path: Path, values: Any, path: tuple[str, ...]) -> None:
    file = tmp_path / "a.jsonl"
    for value in values:
        changed = _of(value, *path)
        in_header = "kind" in changed
        lines = [json.dumps(changed)] if in_header else [line_of(header()).decode().strip(), json.dumps(changed)]
        file.write_text("".join(f"{line}\n" for line in lines))
        with pytest.raises(StateError) as caught:
            read_run(file)
        assert f"line {1 if in_header else 2}: `{'.'.join(path)}`" in str(caught.value), value


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"answer": None}, "`answer` must be a text where `status` is ok"),
        ({"error": Failure("E", "no")}, "`error` must be null"),
        ({"status": "error", "error": Failure("E", "no")}, "`answer` must be null"),
        ({"status": "error", "answer": None}, "`error` must say why"),
    ],
)
def test_records_that_contradict_themselves_are_named(tmp_path: Path, changes: dict[str, Any], part: str) -> None:
    write_run(tmp_path / "a.jsonl", header(), [record("q1", **changes)])
    with pytest.raises(StateError, match="line 2: ") as caught:
        read_run(tmp_path / "a.jsonl")
    assert part in str(caught.value)


def test_a_line_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    write_run(path, header(), [record("q1", answer="xyz"), record("q2")])
    path.write_bytes(path.read_bytes().replace(b"xyz", b"\xff\xfe"))
    with pytest.raises(StateError, match="line 2"):
        read_run(path)


def test_endless_lines_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hopgate.evaluation.line_files._LONGEST_LINE", 5000)
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"x" * 20_000)
    with pytest.raises(StateError, match="line 1: is longer"):
        read_run(path)


def test_missing_files_and_folders(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such run file"):
        read_run(tmp_path / "none.jsonl")
    with pytest.raises(InputError, match="folder"):
        read_header(tmp_path)


def test_a_file_is_written_by_one_run_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    with (
        appending(path, header()),
        pytest.raises(HopgateError, match="another run is writing"),
        appending(path, header()),
    ):
        raise AssertionError("opened twice")


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"program": ProgramHeader("active", settings={"k": 3}, state_sha256="0")}, 'program "rag", now "active"'),
        ({"program": ProgramHeader("rag", settings={"k": 4}, state_sha256="1")}, "setting `k` 3, now 4"),
        ({"program": ProgramHeader("rag", settings={"k": 3}, state_sha256="1")}, "state (instructions"),
        ({"lm": {"model": "other/lm", "temperature": 0.0}}, 'LM "scripted/lm", now "other/lm"'),
        ({"lm": {"model": "scripted/lm", "temperature": 1.0}}, "LM option `temperature` 0.0, now 1.0"),
        ({"seed": 1}, "seed 0, now 1"),
        ({"adapter": "ChatAdapter"}, 'adapter "CompactAdapter", now "ChatAdapter"'),
        ({"normalisation": "strict"}, 'normalisation "official", now "strict"'),
        ({"index": None}, "an index, now none"),
        ({"index": IndexHeader("exact", "tiny", "c", "g", 4, 0, False)}, 'index `corpus_fingerprint` "f", now "g"'),
        ({"data": DataHeader("toy", ids=("q1",))}, "3 questions of toy, now 1 of toy"),
        ({"data": DataHeader("toy", ids=("q1", "q3", "q2"))}, "in another order (the first that differs is number 2"),
        ({"data": DataHeader("toy", ids=("q1", "q2", "q3"), questions_sha256="1")}, "other questions or gold answers"),
        ({"data": DataHeader("toy", ids=("q1", "q2", "q4"))}, "other questions (the first that differs is number 3"),
    ],
)
def test_what_differs_is_named(tmp_path: Path, changes: dict[str, Any], part: str) -> None:
    path = tmp_path / "a.jsonl"
    with appending(path, header()):
        pass
    before = path.read_bytes()
    with pytest.raises(InputError) as caught, appending(path, header(**changes)):
        pass
    assert part in str(caught.value) and str(path) in str(caught.value)
    assert path.read_bytes() == before


def test_name_time_and_versions_may_differ() -> None:
    other = header(name="b", started="2026-01-01T00:00:00+00:00", versions={"hopgate": "2"})
    assert differences(header(), other) == []


def test_what_an_old_header_does_not_know_may_be_anything() -> None:
    old = header(program=ProgramHeader("rag", settings={"k": 3}), index=IndexHeader(), adapter=None)
    new = header(program=ProgramHeader("rag", settings={"k": 3, "passage_words": 70}, state_sha256="1"))
    old = replace(old, data=replace(old.data, questions_sha256=None))
    assert differences(old, new) == []
    assert differences(new, old) != []


def test_a_recorded_trajectory_holds_no_text_and_gets_it_back() -> None:
    original = trajectory()
    recorded = record("q1", trajectory=trajectory_record(original), cost=RunCost(lm_calls=3, seconds=1.5))
    line = line_of(recorded).decode()
    assert QUESTION not in line and "Varn is a town" not in line and "The river." not in line
    texts = {passage.id: passage for hop in original.hops for passage in hop.passages}
    asked: list[str] = []

    def lookup(ids: Any) -> list[Passage]:
        asked.extend(ids)
        return [texts[identity].with_score(None) for identity in reversed(ids)]

    found = trajectory_of(recorded, lookup, QUESTION)
    kept = AnswerConfidence(-0.5, None, -0.75, None, 1)
    assert sorted(asked) == ["3", "4"]
    assert found == replace(
        original,
        hops=(replace(original.hops[0], confidence=kept), original.hops[1]),
        answer_confidence=kept,
        decisions=(replace(original.decisions[0], confidence=kept), original.decisions[1]),
    )
    unknown = trajectory_of(recorded, lambda ids: [], QUESTION)
    assert unknown.hops[1].passages == (Passage("3", "", "", 12.5), Passage("4", "", ""))
    with pytest.raises(StateError, match="q1"):
        trajectory_of(record("q1", trajectory=None), lookup, QUESTION)


def test_passages_that_are_their_own_id_get_a_digest() -> None:
    text = "The river Ile flows north through the town of Varn."
    found = trajectory_record(Trajectory(QUESTION, passages=(Passage(text, "", text),)))
    assert found.passages[0].id.startswith("sha256:") and "Ile" not in found.passages[0].id


@given(st.text(min_size=30, max_size=200), st.text(max_size=50), st.text(max_size=50), st.integers(30, 200))
def test_no_question_in_a_message(question: str, before: str, after: str, cut: int) -> None:
    assert question not in without_question(f"{before}{question}{after}", question).replace("{question}", "")
    shown = question[:cut]
    if question[:30] not in before:
        assert shown not in without_question(f"{before}{shown!r}", question) or shown in "{question}"


def test_the_question_is_found_in_quotes_and_cut() -> None:
    question = 'Who said "it\'s" in the town of Varn, and to whom did they say it?'
    assert without_question(f"failed for {question!r}: no", question) == "failed for '{question}': no"
    assert without_question(f"failed for {question[:40]}...", question) == "failed for {question}..."
    assert without_question("Who said it?", question) == "Who said it?"


@given(st.text(min_size=1, max_size=200), st.text(max_size=50), st.text(max_size=50), st.integers(0, 200))
def test_answers_are_kept(question: str, before: str, after: str, cut: int) -> None:
    texts = [f"{before}{question[:cut]}{after}", f"{before}{question}{after}", question]
    for text in (text for text in texts if "{question}" not in text):
        kept = recorded_answer(text, question)
        assert joined_answer(kept, question) == text
        assert kept == text or question in text
    assert recorded_answer(question, question) == "{question}"


def test_answers_of_a_trajectory_are_kept() -> None:
    text = f"{QUESTION[:-1]} is the Ile."
    attempt = {"stage": "solve", "answer": text, "conclusions": (text,)}
    made = Trajectory(
        QUESTION,
        hops=(Hop(text, draft=text, answer=text),),
        revisions=(attempt,),
        decisions=(Decision("final", 0, text, None, True),),
    )
    found = trajectory_record(made)
    (hop,), (revision,), (decision,) = found.hops, found.revisions, found.decisions
    assert hop.sub_question == "{question} is the Ile."
    assert {hop.draft, hop.answer, revision.answer, *revision.conclusions, decision.text} == {text}


SENTENCES = st.lists(st.text("ab ", min_size=20, max_size=160), min_size=1, max_size=4)


@st.composite
def quoting(draw: st.DrawFn) -> tuple[list[Passage], list[str]]:
    """Passages, and texts that are made of words of an LM's own and of stretches of these passages."""
    passages = [Passage(f"p{i}", f"Title {i}", " ".join(draw(SENTENCES))) for i in range(draw(st.integers(1, 3)))]

    def stretch() -> str:
        text = draw(st.sampled_from(passages)).long_text
        start = draw(st.integers(0, len(text)))
        return text[start : start + draw(st.integers(0, 400))]

    def text() -> str:
        parts = [draw(st.one_of(st.just(""), st.text(max_size=20), st.just(QUESTION)))]
        for _ in range(draw(st.integers(0, 3))):
            parts += [stretch(), draw(st.sampled_from(["", " ...", " and ", "b"]))]
        return "".join(parts)

    return passages, [text() for _ in range(10)]


def quoted(text: str, passages: list[Passage]) -> str | None:
    """The first stretch of a text that a passage says word for word, if it is long."""
    windows = (text[start : start + QUOTED] for start in range(len(text) - QUOTED + 1))
    return next((one for one in windows if any(one in p.long_text or one in p.text for p in passages)), None)


@settings(max_examples=50)
@given(quoting(), st.booleans())
def test_what_is_recorded_quotes_no_passage_that_was_read(given: tuple[list[Passage], list[str]], known: bool) -> None:
    passages, (a, b, c, d, e, f, g, h, i, answer) = given
    last = () if known else (Passage("x", "", a),)  # a passage that only the revision has read
    revision = {"stage": "solve", "answer": e, "error": f, "conclusions": (g, a), "sub_questions": (h,)}
    hop = Hop(a, draft=b, source="search", query=c, passages=tuple(passages[:1]), answer=d)
    made = Trajectory(
        QUESTION,
        hops=(hop,),
        plan=(i, a),
        passages=tuple(passages[1:]),
        revisions=({**revision, "passages": [passage.id for passage in (*passages, *last)]},),
        decisions=(Decision("final", 0, b, None, True),),
    )
    found = record("q1", answer=recorded_answer(answer, QUESTION, passages), trajectory=trajectory_record(made))

    def texts(value: Any) -> Any:
        if isinstance(value, dict | list):
            for item in value.values() if isinstance(value, dict) else value:
                yield from texts(item)
        elif isinstance(value, str):
            yield value

    line = json.loads(line_of(found))
    for text in texts(line):
        assert quoted(text, passages) is None, text
    for text in texts(line["trajectory"]["revisions"]):
        assert known or len(text) < QUOTED, text


@settings(max_examples=50)
@given(quoting())
def test_what_quotes_nothing_is_left_alone(given: tuple[list[Passage], list[str]]) -> None:
    passages, texts = given
    for text in texts:
        cut = without_quotes(text, passages)
        assert (cut == text) == (quoted(text, passages) is None)
        assert without_quotes(cut, passages) == cut
        assert without_quotes(text, []) == text


def test_a_copied_sentence_is_cut_after_90_characters() -> None:
    sentence = "The river Ile flows north through the town of Varn, where the designer of the tower was born and died."
    passage = Passage("1", "Varn", f"Varn is a town. {sentence} It is old.")
    assert without_quotes(f"So: {sentence} Thus Varn.", [passage]) == (
        "So: The river Ile flows north through the town of Varn, where the designer of the tower was b ...Thus Varn."
    )
    assert without_quotes(sentence[:99], [passage]) == sentence[:99]


def test_a_passage_that_is_its_own_id_is_not_recorded_by_a_revision() -> None:
    text = "The river Ile flows north through the town of Varn, where the designer of the tower was born and died."
    revision = {"stage": "solve", "passages": [text, text[:-1], "p3"]}
    found = trajectory_record(Trajectory(QUESTION, passages=(Passage(text, "", text),), revisions=(revision,)))
    known, unknown, other = found.revisions[0].passages
    assert known == found.passages[0].id and known != unknown and unknown.startswith("sha256:") and other == "p3"


def test_costs_have_the_fields_of_a_program() -> None:
    assert [f.name for f in fields(RunCost)] == [*(f.name for f in fields(Cost)), "usd"]


def test_reading_does_not_import_dspy() -> None:
    import subprocess
    import sys

    code = "import sys, hopgate.evaluation.records; sys.exit('dspy' in sys.modules or 'torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_json_is_plain(tmp_path: Path) -> None:
    data = json.loads(line_of(record("q1")))
    assert list(data) == [
        "id", "status", "answer", "type", "hops", "scores", "trajectory", "cost", "error", "attempts", "answered",
        "best_guess",
    ]  # fmt: skip
    assert data["trajectory"]["hops"][0]["confidence"] == {"mean": -0.5, "minimum": -0.75}
    assert data["trajectory"]["hops"][1]["passages"] == [{"id": "3", "score": 12.5}, {"id": "4", "score": None}]
    (attempt,) = data["trajectory"]["revisions"]
    assert (attempt["stage"], attempt["verdict"], attempt["probability"]) == ("resolve", "off_topic", 0.25)
    assert attempt["sub_questions"] == ["Where was the designer born?", "{question}"]


def test_a_file_that_only_counts_attempts_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    one = record("q1", trajectory=replace(trajectory_record(trajectory()), revisions=()))
    old = line_of(one).replace(b'"revisions":[]', b'"revisions":0')
    assert old != line_of(one)
    path.write_bytes(line_of(header()) + old)
    assert read_run(path).records == (one,)
    path.write_bytes(line_of(header()) + old.replace(b'"revisions":0', b'"revisions":[{"hop":1}]') + line_of(one))
    with pytest.raises(StateError, match=r"line 2.*revisions.*stage"):
        read_run(path)


revisions = st.dictionaries(
    st.sampled_from([*AttemptRecord.__dataclass_fields__, "why"]),
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.lists(st.text()), st.just({})),
)


@given(revisions)
def test_any_revision_of_a_user_s_program_can_be_written(revision: dict[str, Any]) -> None:
    found = trajectory_record(Trajectory(QUESTION, revisions=(revision,)))
    one = record("q1", trajectory=found)
    assert record_adapter().validate_json(line_of(one)).trajectory.revisions[0].stage  # type: ignore[union-attr]


@pytest.mark.parametrize("source", get_args(Source))
def test_every_source_can_be_recorded(source: Any) -> None:
    one = record("q1", trajectory=trajectory_record(Trajectory(QUESTION, hops=(Hop("Which?", source=source),))))
    assert record_adapter().validate_json(line_of(one)) == one
