"""The report page as a file: what is in it, what cannot be in it, and its size."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from test_comparison import failure, make_run, record
from test_index_support import make_checkpoint

from hopgate.cli.report import report
from hopgate.core import IndexStoreError, InputError, Passage
from hopgate.evaluation.records import (
    AttemptCost,
    AttemptRecord,
    ConfidenceRecord,
    DecisionRecord,
    HopRecord,
    IndexHeader,
    PassageRecord,
    Run,
    TrajectoryRecord,
    write_run,
)
from hopgate.evaluation.reliability import reliability
from hopgate.evaluation.report import embedded_json, render_report, write_report
from hopgate.evaluation.report_data import index_passages, report_data
from hopgate.index import ColBERTIndex

ATTACK = "</script><script>window.pwned = 1</script><img src=x onerror='window.pwned = 2'><!-- & \u2028"
ATTEMPTS = (
    AttemptRecord(
        "solve", "yes", "off_topic", 0.1, sub_questions=("{question}",), conclusions=("yes",), passages=("p3",)
    ),
    AttemptRecord("resolve", ATTACK, "on_topic", 0.9, hop=2, page=2, kept=True, cost=AttemptCost(1, 3)),
    AttemptRecord("recompose", error=f"failed: {ATTACK}"),
)
DECISIONS = (
    DecisionRecord("grounded", 0, ATTACK, ConfidenceRecord(-0.5), False),
    DecisionRecord("hop", 0, "a draft", None, True),
    DecisionRecord("final", 1, "Answer 0", None, True),
)


@dataclass(frozen=True)
class Question:
    """A question with its texts."""

    id: str
    question: str
    answers: tuple[str, ...]
    supporting_ids: tuple[str, ...] = ()


def big_run(name: str, count: int, *, seed: int = 0) -> Run:
    """A run with trajectories of three hops, of which one is kept from memory."""
    records = []
    for i in range(count):
        right = (i + seed) % 3 == 0
        hops = tuple(
            HopRecord(
                sub_question=f"Sub-question {hop} of number {i}?" if hop else "{question}",
                draft=f"Draft {hop} for {i}",
                confidence=ConfidenceRecord(-0.1 - 0.31 * hop, -1.5),
                source="search" if hop else "memory",
                query=f"query {hop} of {i}" if hop else None,
                passages=tuple(PassageRecord(f"p{(7 * i + 3 * hop + k) % 4000}", 20.5 - k) for k in range(3))
                if hop
                else (),
                answer=f"Conclusion {hop} of {i}",
                answer_confidence=ConfidenceRecord(-0.2, -0.5) if hop else None,
            )
            for hop in range(3)
        )
        path = TrajectoryRecord(
            hops,
            passages=hops[-1].passages,
            answer_confidence=ConfidenceRecord(-0.05 * (i % 20)),
            stop_reason="finished",
            revisions=ATTEMPTS if i == 0 else (),
            decisions=DECISIONS if i == 0 else (),
        )
        changes = {"hops": 2 + i % 3, "type": ("bridge", "comparison")[i % 2], "off_topic": i % 5 == 1}
        if i % 50 == 49:
            records.append(failure(f"q{i}"))
        else:
            answer = f"Answer {i}" if right else f"Miss {i}"
            records.append(record(f"q{i}", right, i % 4, answer=answer, trajectory=path, **changes))
    return make_run(name, records, settings={"gate": "threshold", "tau": -0.3})


def questions(count: int) -> list[Question]:
    """Texts of the questions of :func:`big_run`; the first one is hostile."""
    found = [
        Question(f"q{i}", f"Which is number {i} of the invented things?", (f"Answer {i}",), (f"p{i}",))
        for i in range(count)
    ]
    return [Question("q0", f"What is {ATTACK}?", ("Answer 0",), ("p3",)), *found[1:]]


def passages(ids: Sequence[str]) -> list[Passage]:
    """Passages of a hundred words, of which some are hostile."""
    words = "The answer {0} stands among a hundred words of an invented passage about things that nobody knows. " * 6
    return [Passage(key, f"Title <b>{key}</b>", f"{ATTACK} {words.format(key)} Answer 0") for key in ids]


def data_in(page: str) -> Any:
    """The data of a page, as a browser reads it."""
    found = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert len(found) == 1
    return json.loads(found[0])


# --- what may stand in the page -------------------------------------------------------------------------------------


@given(st.text(st.characters(codec=None)))
def test_any_text_survives_embedding_and_cannot_end_the_element(text: str) -> None:
    embedded = embedded_json({"text": text})
    assert json.loads(embedded) == {"text": text}
    assert not set(embedded) & set("<>&\u2028\u2029")
    embedded.encode("utf-8")


def test_hostile_texts_stay_data() -> None:
    run = make_run(f"run {ATTACK}", [record("q0", False, answer=ATTACK, type=ATTACK)])
    page = render_report(report_data([run], questions=questions(1), passages=passages, title=f"{ATTACK} {{{{data}}}}"))
    assert page.count("<script") == 2 and "<img" not in page and "onerror=&#x27;" in page
    # The title's placeholder is text like any other.
    assert "{{data}}</title>" in page
    found = data_in(page)
    assert found["runs"][0]["records"][0]["answer"] == ATTACK
    assert found["questions"]["q0"]["question"] == f"What is {ATTACK}?"


def test_the_policy_allows_this_style_and_this_script_only() -> None:
    page = render_report(report_data([make_run("r", [record("a")])]))
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]+)"', page)
    policy = html.unescape(policy)
    assert "default-src 'none'" in policy and "unsafe" not in policy and "http" not in policy
    for kind, pattern in (("style", r"<style>(.*?)</style>"), ("script", r"<script>(.*?)</script>")):
        (text,) = re.findall(pattern, page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy


def test_the_page_names_nothing_outside_and_writes_no_markup() -> None:
    page = render_report(report_data([make_run("r", [record("a")])]))
    outside = set(re.findall(r"\w+://[^\s'\"]+", page))
    # The name space of SVG is a name and is never fetched.
    assert outside == {"http://www.w3.org/2000/svg"}
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|\bfetch\(|@import|url\(", page
    )
    assert not re.search(r"<(link|img|iframe|object|embed)\b", page)


# --- what stands in it ----------------------------------------------------------------------------------------------


def test_without_local_data_the_page_has_no_texts() -> None:
    found = report_data([big_run("r", 4)])
    assert (
        found["questions"] == {}
        and found["passages"] == {}
        and found["joined"] == {"questions": False, "passages": False}
    )


def test_only_the_texts_that_are_shown_are_joined() -> None:
    found = report_data([big_run("r", 3)], questions=questions(9), passages=lambda ids: passages(ids)[:-1])
    assert sorted(found["questions"]) == ["q0", "q1", "q2"]
    shown = {
        item["id"]
        for row in found["runs"][0]["records"]
        for hop in row["trajectory"]["hops"]
        for item in hop["passages"]
    }
    assert len(shown - set(found["passages"])) == 1 and set(found["passages"]) < shown


def test_the_records_stand_in_the_order_of_the_data() -> None:
    run = big_run("r", 6)
    mixed = Run(run.header, tuple(reversed(run.records)))
    assert [row["id"] for row in report_data([mixed])["runs"][0]["records"]] == [f"q{i}" for i in range(6)]


def test_the_same_runs_give_the_same_page() -> None:
    def page() -> str:
        return render_report(report_data([big_run("a", 20), big_run("b", 20, seed=1)], questions=questions(20)))

    assert page() == page()


def test_five_hundred_trajectories_are_below_ten_megabytes(tmp_path: Path) -> None:
    data = report_data([big_run("r", 500)], questions=questions(500), passages=passages)
    size = write_report(tmp_path / "report.html", data)
    assert size == (tmp_path / "report.html").stat().st_size < 10_000_000
    assert len(data_in((tmp_path / "report.html").read_text("utf-8"))["runs"][0]["records"]) == 500


def test_reliability_by_hand() -> None:
    def row(key: str, right: bool, mean: float | None) -> Any:
        confidence = None if mean is None else ConfidenceRecord(mean)
        return record(key, right, trajectory=TrajectoryRecord(answer_confidence=confidence))

    # exp(-.01) = .990, exp(-.02) = .980, exp(-1) = .368
    rows = [row("a", True, -0.01), row("b", False, -0.02), row("c", False, -1.0), row("d", True, None), failure("e")]
    found = reliability(rows)
    assert (found.n, found.without) == (3, 1)
    assert [(item.low, item.right.value, item.right.n) for item in found.bins] == [(0.3, 0.0, 1), (0.9, 0.5, 2)]
    assert found.error == pytest.approx((0.3679 + 2 * (0.9851 - 0.5)) / 3, abs=1e-3)
    assert reliability([row("a", True, 0.0)]).bins[0].high == 1.0
    assert reliability([failure("a")]).error is None
    with pytest.raises(InputError):
        reliability([], bins=0)


def test_passages_of_an_index(tmp_path: Path) -> None:
    corpus = [Passage("p1", "Varn", "Varn is a town."), Passage("p2", "Ile", "Ile is a river.")]
    tiny = make_checkpoint(tmp_path / "tiny")
    index = ColBERTIndex.build(corpus, tmp_path / "index", checkpoint=tiny)
    # The checkpoint is not needed to read texts.
    find = index_passages(tmp_path / "index")
    assert [passage.text for passage in find(["p2", "absent", "p1"])] == ["Ile is a river.", "Varn is a town."]
    same = make_run("same", [record("a")], index=IndexHeader(corpus_fingerprint=index.info()["corpus_fingerprint"]))
    index_passages(tmp_path / "index", [same])
    with pytest.raises(InputError, match="run 'other' searched another corpus"):
        index_passages(
            tmp_path / "index", [make_run("other", [record("a")], index=IndexHeader(corpus_fingerprint="0" * 64))]
        )
    # The command joins the same texts.
    path = TrajectoryRecord(passages=(PassageRecord("p2", 3.5), PassageRecord("gone")))
    searched = make_run("searched", [record("a", trajectory=path)], index=same.header.index)
    write_run(tmp_path / "run.jsonl", searched.header, list(searched.records))
    page = tmp_path / "page.html"
    arguments = [tmp_path / "run.jsonl", "--index", tmp_path / "index", "--out", page]
    assert CliRunner().invoke(report, [str(item) for item in arguments], catch_exceptions=False).exit_code == 0
    assert data_in(page.read_text("utf-8"))["passages"] == {"p2": ["Ile", "Ile is a river."]}
    with pytest.raises(IndexStoreError, match="no such index folder"):
        index_passages(tmp_path / "none")
