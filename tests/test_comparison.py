"""Comparing recorded runs, judging gates, and the tables of both."""

from __future__ import annotations

import io
import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from hopgate.core import InputError
from hopgate.evaluation.aligned import align, read_runs
from hopgate.evaluation.comparison import compare
from hopgate.evaluation.gate_analysis import analyse_gate, analyse_gates
from hopgate.evaluation.records import (
    DataHeader,
    Failure,
    ProgramHeader,
    Run,
    RunCost,
    RunHeader,
    RunRecord,
    Scores,
    TrajectoryRecord,
    write_run,
)
from hopgate.evaluation.tables import Table, comparison_tables, to_json, to_markdown


def record(identity: str, em: bool = True, retrievals: int = 1, **changes: Any) -> RunRecord:
    """One record; ``changes`` are its fields, or those of its scores."""
    scores = {name: changes.pop(name) for name in ("f1", "off_topic", "retrieval_recall") if name in changes}
    given_scores = {"em": em, "f1": float(em), "cover_em": em, "cover_em_tokens": em, **scores}
    fields: dict[str, Any] = {
        "status": "ok",
        "answer": "Varn" if em else "Osk",
        "type": None,
        "hops": None,
        "trajectory": TrajectoryRecord(),
        "cost": RunCost(retrievals=retrievals, lm_calls=2, prompt_tokens=100, seconds=0.5),
    }
    return RunRecord(identity, scores=Scores(**given_scores), **{**fields, **changes})


def failure(identity: str) -> RunRecord:
    """A question that ended in an error."""
    return record(identity, False, status="error", answer=None, trajectory=None, error=Failure("Timeout", "60 s"))


def make_run(name: str, records: list[RunRecord], **changes: Any) -> Run:
    """A run; ``settings`` are its program's, other changes are the header's."""
    program = ProgramHeader(changes.pop("program", "active"), settings=changes.pop("settings", {}))
    header: dict[str, Any] = {
        "lm": {"model": "scripted"},
        "seed": 0,
        "normalisation": "official",
        "versions": {"hopgate": "0"},
        "index": None,
        "data": DataHeader("invented", ids=tuple(item.id for item in records)),
    }
    return Run(RunHeader(name, program, **{**header, **changes}), tuple(records))


def gated_runs(table: list[tuple[bool, int, bool, int, bool]]) -> tuple[Run, Run, Run]:
    """Gated, always and never from rows of (right, retrievals, right, retrievals, right)."""
    gated = [record(str(i), row[0], row[1]) for i, row in enumerate(table)]
    always = [record(str(i), row[2], row[3]) for i, row in enumerate(table)]
    never = [record(str(i), row[4], 0) for i, row in enumerate(table)]
    return (
        make_run("gated", gated, settings={"gate": "threshold", "tau": -0.3, "k": 3}),
        make_run("searching", always, settings={"gate": "always", "tau": -0.1, "k": 3}),
        make_run("resting", never, settings={"gate": "never", "k": 3}),
    )


# --- aligning -------------------------------------------------------------------------------------------------------


def test_only_common_answers_are_compared_and_the_rest_is_counted() -> None:
    first = make_run("first", [record("a"), record("b", False), record("c"), failure("d"), record("e")])
    second = make_run("second", [record("e", False), record("d"), record("b"), failure("a"), record("z")])
    found = compare([first, second])
    assert found.n == 2
    assert [(run.name, run.failed, run.dropped) for run in found.runs] == [("first", 1, 2), ("second", 1, 2)]
    # Of b and e, each run has one right: failures pull no mean down.
    assert [run.scores["em"].value for run in found.runs] == [0.5, 0.5]
    notes = " ".join(found.notes)
    assert "first: 2 answered questions fell away" in notes and "second: 1 question failed" in notes


def test_other_questions_with_the_same_ids_are_said() -> None:
    def run(name: str, digest: str | None, *ids: str) -> Run:
        return make_run(name, [record("a"), record("b")], data=DataHeader("toy", ids=ids, questions_sha256=digest))

    first = run("first", "1", "a", "b")
    said = [
        "other questions or gold answers under the same ids" in " ".join(compare([first, other]).notes)
        for other in (run("r", "2", "b", "a"), run("r", "1", "a", "b"), run("r", None, "a", "b"), run("r", "2", "a"))
    ]
    assert said == [True, False, False, False]


def test_an_unfinished_run_and_different_data_are_said() -> None:
    whole = make_run("whole", [record("a"), record("b")])
    part = make_run("part", [record("a")], data=DataHeader("other", ids=("a", "b", "c")), lm={"model": "big"})
    notes = " ".join(compare([whole, part]).notes)
    assert "part: 2 questions of its data are not in the file" in notes
    assert "different data sets: invented, other" in notes and "different LMs: scripted, big" in notes


def test_what_cannot_be_compared_is_refused() -> None:
    run = make_run("one", [record("a")])
    cases: list[tuple[list[Run], dict[str, Any], str]] = [
        ([], {}, "no run"),
        ([run, make_run("two", [record("b")])], {}, "no question was answered by all runs"),
        ([run, make_run("two", [failure("a")])], {}, "two: 0 answered"),
        ([run, make_run("two", [record("a")], normalisation="strict")], {}, "different normalisations"),
        ([run, make_run("one", [record("a")])], {}, "two runs are called 'one'"),
        ([run], {"baseline": "none"}, "no run is called 'none'; there are one"),
        ([run], {"metric": "bleu"}, "`metric` must be one of em"),
        ([run], {"difference": 5}, "`difference` must be a fraction"),
    ]
    for runs, options, message in cases:
        with pytest.raises(InputError, match=message):
            compare(runs, **options)


def test_runs_of_one_name_are_told_apart_by_their_files(tmp_path: Path) -> None:
    for name in ("x", "y"):
        run = make_run("same", [record("a")])
        write_run(tmp_path / f"{name}.jsonl", run.header, list(run.records))
    assert [run.name for run in read_runs([tmp_path / "x.jsonl", tmp_path / "y.jsonl"])] == ["x", "y"]


def test_all_runs_are_named_in_one_way(tmp_path: Path) -> None:
    paths = [tmp_path / f"{name}.jsonl" for name in ("x", "y", "z")]
    for path, name in zip(paths, ("same", "same", "other"), strict=True):
        run = make_run(name, [record("a")])
        write_run(path, run.header, list(run.records))
    assert [run.name for run in read_runs(paths)] == ["x", "y", "z"]
    assert [run.name for run in read_runs(paths[1:])] == ["same", "other"]


@pytest.mark.parametrize("count", [1, 2])
def test_notes_count_in_words(count: int) -> None:
    whole = make_run("whole", [record(key) for key in "abc"])
    failed = make_run("failed", [failure(key) if key in "ab"[:count] else record(key) for key in "abc"])
    notes = " ".join(align([whole, failed]).notes)
    if count == 1:
        assert "whole: 1 answered question fell away" in notes and "failed: 1 question failed; it is" in notes
    else:
        assert "whole: 2 answered questions fell away" in notes and "failed: 2 questions failed; they are" in notes


# --- comparing ------------------------------------------------------------------------------------------------------


def test_summary() -> None:
    rows = [
        record("a", True, 0, retrieval_recall=1.0),
        record("b", False, 2, off_topic=True, retrieval_recall=0.5),
        record("c", False, 2, off_topic=False),
        record("d", False, 1, f1=0.5),
    ]
    (run,) = compare([make_run("only", rows)]).runs
    assert run.scores["em"].value == 0.25 and run.scores["f1"].value == pytest.approx(0.375)
    assert run.wrong == 3
    # d was not judged: two of the three wrong answers were, and one of them is off-topic.
    assert (run.off_topic.value, run.off_topic.n) == (0.5, 2)
    assert run.histogram == {0: 1, 1: 1, 2: 2} and run.retrievals.value == 1.25
    assert (run.retrieval_recall.value, run.retrieval_recall.n) == (0.75, 2)
    assert run.costs["lm_calls"] == 2 and run.costs["seconds"] == 0.5
    assert run.usd is None and run.usd_known == 0


def test_a_price_is_known_only_if_all_are() -> None:
    priced = record("a", cost=RunCost(usd=0.25))
    whole = compare([make_run("r", [priced, record("b", cost=RunCost(usd=0.75))])]).runs[0]
    part = compare([make_run("r", [priced, record("b")])]).runs[0]
    assert (whole.usd, part.usd, part.usd_known) == (0.5, None, 1)


def test_differences_are_paired_and_from_the_baseline() -> None:
    base = make_run("base", [record(str(i), i % 2 == 0, 1) for i in range(20)])
    better = make_run("better", [record(str(i), True, 2) for i in range(20)])
    (found,) = compare([better, base], baseline="base", difference=0.1).differences
    assert found.name == "better" and found.score.difference.value == 0.5
    assert (found.score.better, found.score.worse) == (10, 0)
    assert found.retrievals.difference.value == 1.0
    # Half of the questions are discordant: Connor (1987) for 10 points, 80 % power.
    assert found.needed == 391
    (other,) = compare([better, base]).differences
    assert other.name == "base" and other.score.difference.value == -0.5


def test_the_gain_by_hops_and_type() -> None:
    hops = [2 + i % 3 for i in range(90)]
    types = ["bridge" if i % 2 else "comparison" for i in range(90)]

    def rows(right: Any) -> list[RunRecord]:
        return [record(str(i), right(i), hops[i], hops=hops[i], type=types[i]) for i in range(90)]

    # The gain is none at two hops, half of the questions at three and all at four.
    gain = {2: lambda i: False, 3: lambda i: i % 2 == 0, 4: lambda i: True}
    found = compare([make_run("base", rows(lambda i: False)), make_run("new", rows(lambda i: gain[hops[i]](i)))])
    assert [(group.value, group.n) for group in found.by_hops] == [(2, 30), (3, 30), (4, 30)]
    assert [group.differences["new"].value for group in found.by_hops] == [0.0, 0.5, 1.0]
    assert [group.retrievals["new"].value for group in found.by_hops] == [2.0, 3.0, 4.0]
    (trend,) = found.trends
    assert trend.name == "new" and trend.slope.value == pytest.approx(0.5) and trend.p_value == pytest.approx(0.0002)
    assert [group.value for group in found.by_type] == ["bridge", "comparison"]


def test_unknown_hops_stand_apart_and_do_not_make_a_trend() -> None:
    base = make_run("base", [record("a", hops=2), record("b"), record("c", hops=2)])
    new = make_run("new", [record("a"), record("b"), record("c")])
    found = compare([base, new])
    assert [(group.value, group.n) for group in found.by_hops] == [(2, 2), (None, 1)]
    assert found.trends == () and found.by_type == ()


@given(st.randoms(use_true_random=False))
@settings(max_examples=10, deadline=None)
def test_the_order_of_the_file_changes_nothing(rng: random.Random) -> None:
    rows = [record(str(i), i % 3 == 0, i % 4, hops=2 + i % 2, f1=(i % 7) / 7) for i in range(30)]
    other = [record(str(i), i % 2 == 0, 1) for i in range(30)]
    expected = to_json(compare([make_run("a", rows), make_run("b", other)]))
    rng.shuffle(rows)
    rng.shuffle(other)
    assert to_json(compare([make_run("a", rows), make_run("b", other)])) == expected


# --- the gate -------------------------------------------------------------------------------------------------------


def test_a_gate_by_hand() -> None:
    table = [
        (True, 2, True, 2, False),  # searched, and only searching is right
        (True, 0, False, 2, True),  # kept, and searching would have harmed
        (False, 0, True, 2, False),  # kept, and searching would have helped
        (True, 0, True, 2, True),
        (False, 2, False, 2, False),
    ]
    found = analyse_gate(*gated_runs(table))
    policies = {policy.name: (policy.score.value, policy.retrievals.value) for policy in found.policies}
    assert policies["gated"] == (0.6, pytest.approx(0.8))
    assert policies["always"] == (0.6, 2.0) and policies["never"] == (0.4, 0.0)
    # Either run is right on four of five, and searching is needed for two of them.
    assert policies["oracle"] == (0.8, pytest.approx(0.8))
    assert found.rate == pytest.approx(0.4) and not found.rate_capped
    assert policies["random"] == (pytest.approx(0.4 * 0.6 + 0.6 * 0.4), pytest.approx(0.8))
    assert found.gain.value == pytest.approx(0.12) and found.captured == pytest.approx(0.12 / 0.32)
    assert found.decisions == {
        "searched": {"only_always": 1, "only_never": 0, "both": 0, "neither": 1},
        "kept": {"only_always": 1, "only_never": 1, "both": 1, "neither": 0},
    }


rows = st.tuples(st.booleans(), st.integers(0, 3), st.booleans(), st.integers(1, 3), st.booleans())


@given(st.lists(rows, min_size=2, max_size=15))
@settings(max_examples=15, deadline=None)
def test_the_order_of_policies(table: list[tuple[bool, int, bool, int, bool]]) -> None:
    found = analyse_gate(*gated_runs(table))
    score = {policy.name: policy.score.value or 0.0 for policy in found.policies}
    assert score["oracle"] >= max(score["always"], score["never"], score["random"]) - 1e-12
    assert min(score["always"], score["never"]) - 1e-12 <= score["random"]
    assert 0 <= found.rate <= 1
    assert sum(sum(counts.values()) for counts in found.decisions.values()) == found.n


def test_gates_find_their_counterparts() -> None:
    gated, always, never = gated_runs([(True, 1, True, 1, True), (False, 0, True, 1, False)])
    assert [found.name for found in analyse_gates([never, gated, always])] == ["gated"]
    assert analyse_gates([gated, always]) == ()
    other = make_run("rag", list(always.records), program="rag", settings={"k": 3})
    assert analyse_gates([gated, other, never]) == ()
    assert [found.name for found in analyse_gates([gated, other, never], always="rag")] == ["gated"]
    with pytest.raises(InputError, match="no run is called 'x'"):
        analyse_gates([gated, always, never], never="x")
    with pytest.raises(InputError, match="'other' searched"):
        analyse_gate(gated, always, make_run("other", list(always.records)))
    with pytest.raises(InputError, match="'resting' never searched"):
        analyse_gate(gated, never, make_run("rested", list(never.records)))


# --- tables ---------------------------------------------------------------------------------------------------------


def two_runs() -> list[Run]:
    base = make_run("base", [record(str(i), i % 2 == 0, 1, hops=2 + i % 2) for i in range(20)])
    return [base, make_run("new", [record(str(i), i % 4 != 1, 2) for i in range(20)])]


def test_markdown() -> None:
    text = to_markdown(compare(two_runs()))
    assert "| run | EM | F1 | cover EM | retrieval recall | off-topic of the wrong | retrievals | failed |" in text
    assert "| base | 50.0 [30.0, 70.0] | 50.0 [30.0, 70.0] |" in text
    assert "| new | +25.0 [+10.0, +45.0] | 0.062 | 5 / 0 | +1.00 |" in text
    assert "| 3 | 10 | 0.0; 1.00 | 50.0 [20.0, 80.0]; 2.00 | +50.0 [+20.0, +80.0] |" in text
    assert "new: the gain changes by +50.0 [+18.2, +81.8] points with one hop more (p = 0.036)" in text
    assert text == to_markdown(compare(two_runs()))
    # Every line of a table has as many cells as its head.
    for table in text.split("**"):
        assert len({line.count("|") for line in table.splitlines() if line.startswith("|")}) <= 1


def test_json_holds_all_and_no_nan() -> None:
    gated = gated_runs([(True, 1, True, 1, True), (False, 0, True, 1, False)])
    found = json.loads(to_json(compare(list(gated)), analyse_gates(list(gated))), parse_constant=pytest.fail)
    assert found["kind"] == "comparison" and found["n"] == 2 and found["gates"][0]["name"] == "gated"
    assert found["runs"][0]["scores"]["em"]["value"] == 0.5


def test_names_stay_in_their_cells() -> None:
    table = Table("t", ("run", "x"), (("a|b\n<script>alert(1)</script> [bold]c", "1"),))
    assert "| a\\|b &lt;script&gt;alert(1)&lt;/script&gt; [bold]c | 1 |" in table.to_markdown().splitlines()
    stream = io.StringIO()
    Console(file=stream, width=100).print(table.to_rich())
    assert "a|b <script>alert(1)</script> [bold]c" in stream.getvalue()


def test_every_table_can_be_shown() -> None:
    gated = list(gated_runs([(True, 1, True, 1, True), (False, 0, True, 1, False)] * 4))
    stream = io.StringIO()
    console = Console(file=stream, width=160)
    tables = comparison_tables(compare(gated), analyse_gates(gated))
    for table in tables:
        assert all(len(row) == len(table.columns) for row in table.rows)
        console.print(table.to_rich())
    text = stream.getvalue()
    assert "The gate of gated" in text and "oracle" in text and "Difference to gated" in text


def test_one_run_has_no_differences() -> None:
    found = compare(align([make_run("only", [record("a"), record("b", False)])]))
    assert found.baseline is None and found.differences == ()
    assert [table.title for table in comparison_tables(found)] == [
        "Scores",
        "Cost of a question (means)",
        "Questions by number of retrievals",
    ]
