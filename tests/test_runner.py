"""The runner: what is recorded, resumed, given up, tried again and stopped, with a scripted LM."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import re
import signal
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import dspy
import pytest
from conftest import WordIndex
from dspy.utils.exceptions import LMAuthError, LMInvalidRequestError, LMRateLimitError, LMServerError

from hopgate.core import HopgateError, InputError, ModelError, RetrievalError
from hopgate.evaluation.budget import Budget
from hopgate.evaluation.provenance import describe_lm
from hopgate.evaluation.questions import Question, QuestionSet
from hopgate.evaluation.records import Run, RunRecord, read_run
from hopgate.evaluation.runner import Progress, evaluate
from hopgate.evaluation.scoring import read_predictions, score_predictions
from hopgate.lms.testing import Reply, scripted_lm
from hopgate.programs import RAG, ActiveQA, Direct


def make(count: int) -> list[Question]:
    return [Question(f"q{n}", f"What is twice the number {n}?", (str(2 * n),), "bridge", 2) for n in range(count)]


def twice(prompt: str) -> Reply:
    """Right for even numbers only."""
    number = int(re.findall(r"twice the number (\d+)", prompt)[-1])
    return Reply(str(2 * number if number % 2 == 0 else number), -0.1)


class Program:
    """A callable that calls the LM once and does what a function says."""

    def __init__(self, act: Any = None) -> None:
        self.act = act
        self.asked: list[str] = []

    def __call__(self, question: str) -> dspy.Prediction:
        self.asked.append(question)
        text = dspy.settings.lm(question)[0]
        if self.act is not None:
            self.act(question, self.asked.count(question))
        return dspy.Prediction(answer=text)


@pytest.fixture
def lm():
    with dspy.context(lm=scripted_lm(twice)):
        yield


def timeless(records: Sequence[RunRecord]) -> list[RunRecord]:
    return [replace(r, cost=replace(r.cost, seconds=0.0)) for r in records]


@pytest.mark.usefixtures("lm")
@pytest.mark.parametrize("workers", [1, 4])
def test_a_run(tmp_path: Path, workers: int) -> None:
    seen: list[Progress] = []
    questions = make(10)
    run = evaluate(Direct(), questions, tmp_path / "a.jsonl", workers=workers, on_progress=seen.append)
    assert [r.id for r in run.records] == [q.id for q in questions] == list(run.header.data.ids)
    assert [r.scores.em for r in run.records] == [n % 2 == 0 for n in range(10)]
    first = run.records[0]
    assert (first.status, first.answer, first.type, first.hops, first.attempts) == ("ok", "0", "bridge", 2, 1)
    assert first.trajectory is not None and first.trajectory.stop_reason == "finished"
    assert first.cost.lm_calls == 1 and first.cost.prompt_tokens > 0 and first.cost.usd is None
    assert first.scores.retrieval_recall is None
    assert run.stopped is None and run.missing == () and run.failed == ()
    assert [p.done for p in seen] == list(range(11)) and seen[0].em is None
    assert (seen[-1].em, seen[-1].errors, seen[-1].calls, seen[-1].total) == (0.5, 0, 10, 10)
    header = run.header
    assert header.name == "a" and header.program.name == "direct" and header.lm["model"] == "scripted/lm"
    assert header.adapter == "CompactAdapter" and header.index is None and header.program.state is not None
    assert {"python", "hopgate", "dspy"} <= set(header.versions)
    assert read_run(tmp_path / "a.jsonl").records == run.records


def test_trajectories_and_recall(tmp_path: Path, index: WordIndex) -> None:
    question = Question("q", "Who designed the Osk Tower?", ("Mira Dol",), supporting_ids=("1", "9"))
    with dspy.context(lm=scripted_lm(lambda prompt: "Mira Dol")):
        run = evaluate(RAG(index, k=2), [question], tmp_path / "a.jsonl")
        other = evaluate(ActiveQA(index, gate="always", k=1), [question], tmp_path / "b.jsonl")
    assert run.records[0].scores.retrieval_recall == 0.5 and run.records[0].cost.retrievals == 1
    assert run.header.index is not None and run.header.index.engine == "WordIndex"
    assert run.header.program.settings["k"] == 2
    text = (tmp_path / "a.jsonl").read_text() + (tmp_path / "b.jsonl").read_text()
    assert "designed by" not in text and "Who designed the Osk Tower" not in text
    assert other.records[0].trajectory is not None and other.records[0].trajectory.hops


@pytest.mark.parametrize(("named", "recall"), [(("1", "9"), 0.5), (("9",), None), (("dev-1", "dev-2"), None)])
def test_recall_is_unknown_where_the_index_has_other_ids(
    tmp_path: Path, index: WordIndex, caplog: pytest.LogCaptureFixture, named: tuple[str, ...], recall: float | None
) -> None:
    class Index(WordIndex):
        def info(self) -> dict[str, Any]:
            return {"engine": "words"}

        def passages(self, ids: list[str]) -> list[Any]:
            held = {passage.id: passage for passage in self.all}
            if unknown := [identity for identity in ids if identity not in held]:
                raise InputError(f"no passage with id {unknown[0]!r}")
            return [held[identity] for identity in ids]

    question = Question("q", "Who designed the Osk Tower?", ("Mira Dol",), supporting_ids=named)
    with dspy.context(lm=scripted_lm(lambda prompt: "Mira Dol")):
        run = evaluate(RAG(Index(index.all), k=2), [question], tmp_path / "a.jsonl")
    assert run.records[0].scores.retrieval_recall == recall
    assert ("retrieval recall is not measured" in caplog.text) is (recall is None)


@pytest.mark.parametrize("error", [KeyError("9"), InputError("an original ColBERT server"), TypeError("no ids")])
def test_a_retriever_that_does_not_describe_itself_is_believed(
    tmp_path: Path, index: WordIndex, error: Exception
) -> None:
    class Retriever(WordIndex):
        def info(self) -> dict[str, Any]:
            raise InputError("an original ColBERT server")

        def passages(self, ids: list[str]) -> list[Any]:
            raise error

    question = Question("q", "Who designed the Osk Tower?", ("Mira Dol",), supporting_ids=("1",))
    with dspy.context(lm=scripted_lm(lambda prompt: "Mira Dol")):
        run = evaluate(RAG(Retriever(index.all), k=2), [question], tmp_path / "a.jsonl")
    assert run.records[0].scores.retrieval_recall == 1.0


@pytest.mark.usefixtures("lm")
def test_resuming_asks_only_what_is_missing(tmp_path: Path) -> None:
    path, questions = tmp_path / "a.jsonl", make(6)
    whole = evaluate(Program(), questions, path)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:3]) + lines[3][:20])
    program = Program()
    resumed = evaluate(program, questions, path)
    assert program.asked == [q.question for q in questions[2:]]
    assert timeless(resumed.records) == timeless(whole.records)
    again = Program()
    assert evaluate(again, questions, path).records == resumed.records and again.asked == []


@pytest.mark.usefixtures("lm")
def test_another_program_is_refused(tmp_path: Path, index: WordIndex) -> None:
    path, questions = tmp_path / "a.jsonl", make(2)
    evaluate(RAG(index), questions, path)
    with pytest.raises(InputError, match="setting `k` 3, now 2"):
        evaluate(RAG(index, k=2), questions, path)
    changed = RAG(index)
    changed.respond.signature = changed.respond.signature.with_instructions("Answer in Latin.")
    with pytest.raises(InputError, match="state"):
        evaluate(changed, questions, path)
    with pytest.raises(InputError, match="2 questions of questions, now 1"):
        evaluate(RAG(index), questions[:1], path)
    with dspy.context(lm=scripted_lm(twice, temperature=0.5)), pytest.raises(InputError, match="temperature"):
        evaluate(RAG(index), questions, path)


@pytest.mark.usefixtures("lm")
@pytest.mark.parametrize("change", [{"question": "What is thrice the number 1?"}, {"answers": ("2", "two")}], ids=str)
def test_other_questions_with_the_same_ids_are_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    path, other = tmp_path / "a.jsonl", make(2)
    other[1] = replace(other[1], **change)
    with dspy.context(lm=scripted_lm(twice)):
        first = evaluate(Program(), make(2), path)
        before = path.read_bytes()
        with pytest.raises(InputError, match="other questions or gold answers, though with the same ids"):
            evaluate(Program(), other, path)
        with pytest.raises(InputError, match=r"no repetition.*other questions or gold answers"):
            evaluate(Program(), other, tmp_path / "b.jsonl", data=first.header.data, same_as=first.header)
        assert path.read_bytes() == before and not (tmp_path / "b.jsonl").exists()
        # A file that has no digest goes on as it did.
        digest = f',"questions_sha256":"{first.header.data.questions_sha256}"'.encode()
        lines = before.replace(digest, b"").splitlines(keepends=True)
        path.write_bytes(b"".join(lines[:2]))
        assert digest in before and len(evaluate(Program(), other, path).records) == 2
        assert path.read_bytes().startswith(lines[0]) and read_run(path).header.data.questions_sha256 is None


def test_answers_that_begin_like_the_question_are_scored_alike(tmp_path: Path) -> None:
    text = "What is the year in which the Osk Tower was built?"
    answers = {"a": text, "b": f"{text[:-1]} is 1931", "c": f"{text[:35]} 1931", "d": f"{text} 1931"}
    asked = [Question(key, text, (text if key == "a" else "1931 is the year",)) for key in answers]
    replies = iter(answers.values())
    path = tmp_path / "a.jsonl"
    with dspy.context(lm=scripted_lm(lambda prompt: Reply(next(replies)))):
        run = evaluate(Program(), asked, path)
    assert [r.answer for r in run.records] == ["{question}", answers["b"], answers["c"], "{question} 1931"]
    found = score_predictions(QuestionSet(asked, name="toy"), read_predictions(path))
    for name in ("em", "f1", "cover_em", "cover_em_tokens"):
        values = [float(getattr(record.scores, name)) for record in run.records]
        assert getattr(found, name) == pytest.approx(sum(values) / len(values)), name


@pytest.mark.usefixtures("lm")
def test_demos_stay_out_of_the_file(tmp_path: Path) -> None:
    program = Direct()
    program.respond.demos = [{"question": "A question of a data set?", "answer": "gold"}]
    run = evaluate(program, make(1), tmp_path / "a.jsonl")
    assert run.header.program.state is None and run.header.program.state_sha256
    assert "A question of a data set" not in (tmp_path / "a.jsonl").read_text()
    program.respond.demos[0]["answer"] = "other"
    with pytest.raises(InputError, match="demos"):
        evaluate(program, make(1), tmp_path / "a.jsonl")


@pytest.mark.usefixtures("lm")
def test_failures_are_no_wrong_answers(tmp_path: Path) -> None:
    questions = make(4)

    def act(question: str, attempt: int) -> None:
        if "number 1?" in question:
            raise RetrievalError(f"searching failed for {question[:80]!r}: no\nsecond line")
        if "number 3?" in question:
            raise ValueError("x" * 5000)

    seen: list[Progress] = []
    path = tmp_path / "a.jsonl"
    run = evaluate(Program(act), questions, path, on_progress=seen.append, retries=3)
    assert [r.status for r in run.records] == ["ok", "error", "ok", "error"]
    assert [r.id for r in run.failed] == ["q1", "q3"] and seen[-1].em == 1.0 and seen[-1].errors == 2
    failed = run.by_id["q1"]
    assert failed.answer is None and not failed.scores.em and failed.cost.lm_calls == 1 and failed.attempts == 1
    assert failed.error is not None and failed.error.type == "RetrievalError"
    assert failed.error.message == "searching failed for '{question}': no"
    assert run.by_id["q3"].error is not None and len(run.by_id["q3"].error.message) == 300
    # Errors are asked again only on demand, and then the later record counts.
    program = Program()
    assert evaluate(program, questions, path).records == run.records and program.asked == []
    again = evaluate(program, questions, path, retry_errors=True, on_progress=seen.append)
    assert program.asked == [questions[1].question, questions[3].question] and again.failed == ()
    assert seen[-1].em == 0.5 and seen[-1].errors == 0 and seen[-1].done == 4


@pytest.mark.usefixtures("lm")
def test_many_failures_in_a_row_stop(tmp_path: Path) -> None:
    def act(question: str, attempt: int) -> None:
        raise OSError("the network is down")

    run = evaluate(Program(act), make(30), tmp_path / "a.jsonl", errors_in_row=5)
    assert len(run.records) == 5 and len(run.missing) == 25
    assert run.stopped == "5 questions in a row failed, the last with OSError: the network is down"


@pytest.mark.usefixtures("lm")
@pytest.mark.parametrize("error", [LMAuthError("bad key"), ModelError("unknown model")])
def test_what_meets_every_question_is_raised(tmp_path: Path, error: Exception) -> None:
    def act(question: str, attempt: int) -> None:
        if "number 2?" in question:
            raise error

    with pytest.raises(type(error)):
        evaluate(Program(act), make(4), tmp_path / "a.jsonl")
    assert [r.id for r in read_run(tmp_path / "a.jsonl").records] == ["q0", "q1"]
    assert len(evaluate(Program(), make(4), tmp_path / "a.jsonl").records) == 4


@pytest.mark.usefixtures("lm")
def test_no_answer_is_a_mistake_of_the_program(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="string `answer`, got Prediction with NoneType"):
        evaluate(lambda question: dspy.Prediction(reply="x"), make(1), tmp_path / "a.jsonl")


@pytest.mark.usefixtures("lm")
@pytest.mark.parametrize(
    ("error", "attempts"),
    [
        (LMRateLimitError("slow down", status=429), 3),
        (LMServerError("oops", status=503), 3),
        (LMInvalidRequestError("no", status=400), 1),
        (InputError("no"), 1),
    ],
)
def test_only_transient_failures_are_tried_again(tmp_path: Path, error: Exception, attempts: int) -> None:
    def act(question: str, attempt: int) -> None:
        if attempt < 3:
            raise error

    run = evaluate(Program(act), make(1), tmp_path / "a.jsonl", retries=2, backoff=0.01)
    record = run.records[0]
    assert record.attempts == attempts and record.status == ("ok" if attempts == 3 else "error")
    assert record.cost.lm_calls == attempts
    failing = evaluate(Program(lambda q, n: act(q, 1)), make(1), tmp_path / "b.jsonl", retries=1, backoff=0.01)
    assert failing.records[0].status == "error" and failing.records[0].attempts == min(2, attempts)


@pytest.mark.usefixtures("lm")
def test_the_servers_pause_is_kept(tmp_path: Path) -> None:
    def act(question: str, attempt: int) -> None:
        if attempt == 1:
            raise LMRateLimitError("slow down", retry_after=0.3)

    start = time.monotonic()
    run = evaluate(Program(act), make(1), tmp_path / "a.jsonl", retries=1, backoff=0.001)
    assert time.monotonic() - start >= 0.3 and run.records[0].cost.seconds < 0.3


@pytest.mark.usefixtures("lm")
@pytest.mark.parametrize("workers", [1, 2])
def test_a_question_that_takes_too_long(tmp_path: Path, workers: int) -> None:
    release, ended, calls = threading.Event(), threading.Event(), []

    def act(question: str, attempt: int) -> None:
        if "number 1?" not in question:
            return
        try:
            release.wait(10)
            dspy.settings.lm(question)
            calls.append(question)
        finally:
            ended.set()

    start = time.monotonic()
    run = evaluate(Program(act), make(5), tmp_path / "a.jsonl", workers=workers, timeout=0.3)
    assert 0.3 <= time.monotonic() - start < 5
    assert [r.status for r in run.records] == ["ok", "error", "ok", "ok", "ok"]
    late = run.by_id["q1"]
    assert late.error is not None and (late.error.type, late.cost.lm_calls) == ("Timeout", 1)
    assert "0.3 seconds" in late.error.message and late.cost.seconds >= 0.3
    # The thread that was given up ends with its next LM call, and writes nothing.
    before = (tmp_path / "a.jsonl").read_bytes()
    release.set()
    assert ended.wait(5) and calls == []
    assert (tmp_path / "a.jsonl").read_bytes() == before


@pytest.mark.usefixtures("lm")
def test_a_pause_that_takes_too_long(tmp_path: Path) -> None:
    def act(question: str, attempt: int) -> None:
        raise LMServerError("oops")

    run = evaluate(Program(act), make(1), tmp_path / "a.jsonl", retries=9, backoff=30, timeout=0.2)
    assert run.records[0].error is not None and run.records[0].error.type == "Timeout"


@pytest.mark.usefixtures("lm")
def test_a_budget_of_calls(tmp_path: Path) -> None:
    path, questions = tmp_path / "a.jsonl", make(6)
    run = evaluate(Direct(), questions, path, budget=Budget(calls=2))
    assert [r.id for r in run.records] == ["q0", "q1"]
    assert run.stopped == "the budget of 2 LM calls is used up (2 made)"
    # It is one of the file: the same command does not spend again.
    assert len(evaluate(Direct(), questions, path, budget=Budget(calls=2)).records) == 2
    assert len(evaluate(Direct(), questions, path, budget=Budget(calls=3)).records) == 3
    whole = evaluate(Direct(), questions, path, budget=Budget(calls=6))
    assert len(whole.records) == 6 and whole.stopped is None


def test_a_budget_in_dollars(tmp_path: Path) -> None:
    lm = scripted_lm(twice)
    original = lm.update_history
    lm.update_history = lambda entry: original({**entry, "cost": 0.01})  # type: ignore[method-assign]
    with dspy.context(lm=lm):
        run = evaluate(Direct(), make(6), tmp_path / "a.jsonl", budget=Budget(usd=0.025))
    assert len(run.records) == 3 and run.records[0].cost.usd == pytest.approx(0.01)
    assert run.stopped == "the budget of 0.025 US dollars is used up (0.0300 spent)"


@pytest.mark.usefixtures("lm")
def test_an_unknown_price_is_no_price_of_nothing(tmp_path: Path) -> None:
    run = evaluate(Direct(), make(3), tmp_path / "a.jsonl", budget=Budget(usd=1))
    assert len(run.records) == 1 and run.stopped is not None and "price is not known" in run.stopped


@pytest.mark.usefixtures("lm")
def test_a_budget_of_seconds(tmp_path: Path) -> None:
    program = Program(lambda question, attempt: time.sleep(0.1))
    run = evaluate(program, make(50), tmp_path / "a.jsonl", budget=Budget(seconds=0.25))
    assert 1 <= len(run.records) <= 4 and run.stopped == "the budget of 0.25 seconds is used up"


def test_cached_calls_cost_nothing(tmp_path: Path) -> None:
    lm = scripted_lm(twice, cache=True)
    with dspy.context(lm=lm):
        Direct()(question=make(1)[0].question)
        run = evaluate(Direct(), make(1), tmp_path / "a.jsonl")
    cost = run.records[0].cost
    assert (cost.lm_calls, cost.cached_calls, cost.billed_tokens, cost.usd) == (1, 1, 0, 0.0)


@pytest.mark.usefixtures("lm")
def test_bugs_of_a_metric_are_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any, **kwargs: Any) -> dict[str, Any]:
        raise ZeroDivisionError

    monkeypatch.setattr("hopgate.evaluation.runner.score_answer", broken)
    with pytest.raises(ZeroDivisionError):
        evaluate(Direct(), make(2), tmp_path / "a.jsonl", workers=2)


@pytest.mark.usefixtures("lm")
@pytest.mark.parametrize(
    "options",
    [{"workers": 0}, {"workers": True}, {"timeout": 0}, {"timeout": float("inf")}, {"retries": -1}, {"backoff": 0}],
)
def test_wrong_arguments(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(options))):
        evaluate(Direct(), make(1), tmp_path / "a.jsonl", **options)
    assert not (tmp_path / "a.jsonl").exists()


def test_wrong_budgets_questions_and_lms(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="calls"):
        Budget(calls=0)
    with pytest.raises(InputError, match="no LM"):
        evaluate(Direct(), make(1), tmp_path / "a.jsonl")
    with dspy.context(lm=scripted_lm(twice)):
        with pytest.raises(InputError, match="no questions"):
            evaluate(Direct(), [], tmp_path / "a.jsonl")
        with pytest.raises(InputError, match="'q0'"):
            evaluate(Direct(), make(1) * 2, tmp_path / "a.jsonl")


@pytest.mark.usefixtures("lm")
def test_secrets_stay_out(tmp_path: Path) -> None:
    hosted = dspy.LM("openai/none", api_key="sk-1", api_base="http://me:pw@host/v1", temperature=0.5, cache=False)
    assert describe_lm(hosted) == {"model": "openai/none", "temperature": 0.5, "cache": False}
    lm = scripted_lm(twice, temperature=0.5)
    with dspy.context(lm=lm):
        run = evaluate(Direct(), make(1), tmp_path / "a.jsonl")
    assert run.header.lm == {"model": "scripted/lm", "temperature": 0.5, "cache": False}


def test_settings_reach_the_workers_and_traces_do_not_grow(tmp_path: Path) -> None:
    traces: list[int] = []

    class Traced(dspy.Module):
        def __init__(self) -> None:
            super().__init__()
            self.step = dspy.Predict("question -> answer")

        def forward(self, question: str) -> dspy.Prediction:
            found = self.step(question=question)
            traces.append(len(dspy.settings.trace))
            return found

    outer: list[Any] = []
    lm, program = scripted_lm(twice), Traced()
    with dspy.context(lm=lm, trace=outer):
        evaluate(program, make(150), tmp_path / "a.jsonl", workers=3)
    assert set(traces) == {1} and outer == []
    assert len(lm.history) <= 100 and len(program.history) <= 100


def test_histories_do_not_grow(tmp_path: Path) -> None:
    from dspy.clients.base_lm import GLOBAL_HISTORY

    before = len(GLOBAL_HISTORY)
    with dspy.context(lm=scripted_lm(twice)):
        run = evaluate(Direct(), make(150), tmp_path / "a.jsonl", workers=3)
    assert len(GLOBAL_HISTORY) <= max(before, 100)
    assert sum(r.cost.lm_calls for r in run.records) == 150


# --- kill -9 ----------------------------------------------------------------------------------------------------------


def _slow(prompt: str) -> Reply:
    time.sleep(0.002)
    return twice(prompt)


def _evaluate(path: Path, count: int, workers: int) -> Run:
    with dspy.context(lm=scripted_lm(_slow)):
        return evaluate(Direct(), make(count), path, workers=workers)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork, so that a child starts without imports")
@pytest.mark.parametrize("workers", [1, 3])
def test_killed_at_random_moments(tmp_path: Path, workers: int) -> None:
    count, kills, random_source = 150, 10, random.Random(workers)
    path = tmp_path / "killed.jsonl"
    start = time.monotonic()
    undisturbed = _evaluate(tmp_path / "whole.jsonl", count, workers)
    duration = time.monotonic() - start
    context, stages = multiprocessing.get_context("fork"), []
    for number in range(kills):
        child = context.Process(target=_evaluate, args=(path, count, workers))
        size = path.stat().st_size if path.exists() else 0
        child.start()
        # Half of the kills come while the run starts, half while it answers.
        while number % 2 and (path.stat().st_size if path.exists() else 0) == size and child.is_alive():
            time.sleep(0.001)
        time.sleep(random_source.uniform(0, 2 * duration / kills))
        os.kill(child.pid or 0, signal.SIGKILL)
        child.join()
        stages.append(len(read_run(path).records) if path.exists() else 0)
    # On a machine that has become faster since `duration` was measured, the last kills come after the end.
    assert stages == sorted(stages) and sum(0 < stage < count for stage in {*stages}) > 2, stages
    resumed = _evaluate(path, count, workers)
    assert timeless(resumed.records) == timeless(undisturbed.records)
    ids = Counter(json.loads(line)["id"] for line in path.read_text().splitlines()[1:])
    assert ids == {q.id: 1 for q in make(count)}
    assert asdict(resumed.header) == {
        **asdict(undisturbed.header),
        "name": "killed",
        "started": resumed.header.started,
    }


def test_two_runs_do_not_write_one_file(tmp_path: Path) -> None:
    inside, refused = threading.Event(), threading.Event()

    def act(question: str, attempt: int) -> None:
        inside.set()
        refused.wait(60)

    with dspy.context(lm=scripted_lm(twice)):
        other = threading.Thread(
            target=lambda: _with_lm(lambda: evaluate(Program(act), make(1), tmp_path / "a.jsonl")), daemon=True
        )
        other.start()
        assert inside.wait(60)
        with pytest.raises(HopgateError, match="another run"):
            evaluate(Program(), make(1), tmp_path / "a.jsonl")
        refused.set()
        other.join(60)
    assert len(read_run(tmp_path / "a.jsonl").records) == 1


def _with_lm(call: Any) -> Any:
    with dspy.context(lm=scripted_lm(twice)):
        return call()


def test_an_abstention_is_no_answer_and_keeps_the_guess(tmp_path: Path) -> None:
    def program(question: str) -> dspy.Prediction:
        return dspy.Prediction(answer="", answered=False, best_guess=f"2, as {question} says")

    with dspy.context(lm=scripted_lm(twice)):
        run = evaluate(program, make(1), tmp_path / "a.jsonl")
    (record,) = run.records
    assert (record.status, record.answer, record.answered, record.scores.em) == ("ok", "", False, False)
    assert record.best_guess == "2, as {question} says"
