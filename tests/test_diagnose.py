"""Diagnosis: an error of one stage is charged to that stage, by a scripted LM that errs where it is told to."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, get_args

import dspy
import pytest
from conftest import WordIndex
from hypothesis import given
from hypothesis import strategies as st
from test_programs_conformance import EXPECTED, script

from hopgate.core import InputError, Passage, RetrievalError, StateError
from hopgate.evaluation.diagnose import diagnose
from hopgate.evaluation.diagnosis import (
    CHARGED,
    Charge,
    Diagnosis,
    DiagnosisHeader,
    DiagnosisRecord,
    Replacement,
    Trial,
    charge,
)
from hopgate.evaluation.questions import Question, Step
from hopgate.evaluation.records import Run, read_run
from hopgate.evaluation.run_schema import Failure
from hopgate.evaluation.runner import evaluate
from hopgate.lms.testing import Reply, scripted_lm
from hopgate.programs import RAG, ActiveQA, Direct
from hopgate.programs.registry import PROGRAMS, make_program

TEXT = "When was the designer of the Osk Tower born?"
STEPS = (Step("Osk Tower >> designer", "Mira Dol"), Step("When was #1 born?", "1871"))
GOLD = Question("q1", TEXT, ("1871",), hops=2, supporting_ids=("1", "2"), decomposition=STEPS)
PASSAGES_ONLY = Question("q1", TEXT, ("1871",), hops=2, supporting_ids=("1", "2"))
ANSWERS_ONLY = Question("q1", TEXT, ("1871",), hops=2, decomposition=STEPS)
KNOWN = Question("q2", "Which river flows north?", ("Ile",))


def world(*errs: str) -> Callable[[str], Reply]:
    """An LM that works out the question, but errs at some stages.

    ``decomposition`` asks for the wrong things, ``gate`` is sure of a wrong draft, ``knows`` is unsure of a right one,
    ``reading`` misreads every passage, and ``composition`` answers something else.
    """

    def reply(prompt: str) -> Reply:
        if KNOWN.question in prompt:
            return Reply("Ile", -0.01)
        label = prompt.rsplit("\n", 1)[-1].removeprefix("assistant: ")
        asked = prompt[prompt.rindex(TEXT) if prompt.rstrip().endswith(TEXT) else prompt.index(f"Question: {TEXT}") :]
        if label.startswith("Task"):
            if "decomposition" in errs:
                return Reply("On which river is the town of Varn?" if label.startswith("Task 1") else "none")
            known = re.search(r"Conclusion 1: (.*)", asked)
            tasks = ("Who is the designer of the Osk Tower?", f"When was {known and known[1]} born?", "none")
            return Reply(tasks[int(label[5]) - 1])
        if label.startswith("Answer"):
            found = re.findall(r"Conclusion \d+: (.*)", asked) or _read(prompt)
            return Reply("a tower" if "composition" in errs else found[-1])
        task, _, read = asked.rpartition("Task ")[2].partition("\n")
        if "Found:" not in read:
            right = "Mira Dol" if "designer" in task else "1871"
            return Reply(right, -3.0) if "knows" in errs else Reply("Ann Ort", -0.01 if "gate" in errs else -3.0)
        if "reading" in errs:
            return Reply("Varn")
        return Reply((_read(read) if task.endswith(TEXT) else [*_read(read, task)])[-1])

    return reply


def _read(text: str, task: str | None = None) -> Sequence[str]:
    """What passages say: the designer, and the year if they say that too."""
    designer = ["Mira Dol"] if "designed by Mira Dol" in text else []
    year = ["1871"] if "Mira Dol was born in 1871" in text else []
    if task is None:
        return ["nothing", *(year if designer else [])]
    return ["nothing", *(designer if "designer" in task else year if "Mira Dol born" in task else [])]


class Poor(WordIndex):
    """A retriever that never finds what is needed, though it has it further down."""

    def search(self, query: str, k: int) -> list[Passage]:
        found = sorted(super().search(query, len(self.all)), key=lambda passage: passage.id in ("1", "2"))
        return found[:k]


def recorded(program: Any, script: Callable[[str], Reply], folder: Path, *questions: Question) -> Run:
    with dspy.context(lm=scripted_lm(script)):
        return evaluate(program, questions, folder / "run.jsonl")


def diagnosed(
    program: Any, script: Callable[[str], Reply], index: WordIndex, folder: Path, question: Question, **options: Any
) -> Diagnosis:
    run = recorded(program, script, folder, question, KNOWN)
    assert not run.by_id["q1"].scores.em and run.by_id["q2"].scores.em
    with dspy.context(lm=scripted_lm(script)):
        return diagnose(program, run, [question, KNOWN], looked_up(index), folder / "d.jsonl", **options)


def looked_up(index: WordIndex) -> Any:
    return lambda ids: [passage for passage in index.all if passage.id in ids]


@pytest.mark.parametrize(
    ("errs", "settings", "poor", "question", "expected"),
    [
        (["decomposition"], {}, False, GOLD, "decomposition"),
        (["gate"], {}, False, GOLD, "gate"),
        (["knows", "reading"], {}, False, GOLD, "gate"),
        ([], {"gate": "always"}, True, GOLD, "retrieval"),
        (["decomposition"], {"gate": "always"}, True, GOLD, "decomposition and retrieval"),
        (["reading"], {"gate": "always"}, False, GOLD, "reading"),
        (["composition"], {}, False, GOLD, "composition"),
        (["gate"], {}, False, PASSAGES_ONLY, "gate"),
        ([], {"gate": "always"}, True, PASSAGES_ONLY, "retrieval"),
        (["decomposition"], {"gate": "always"}, True, PASSAGES_ONLY, "decomposition and retrieval"),
        (["reading"], {}, False, PASSAGES_ONLY, "unexplained"),
        (["decomposition"], {}, False, ANSWERS_ONLY, "decomposition"),
        (["reading"], {"gate": "always"}, False, ANSWERS_ONLY, "reading"),
    ],
)
def test_an_error_is_charged_to_its_stage(
    tmp_path: Path,
    index: WordIndex,
    errs: list[str],
    settings: dict[str, Any],
    poor: bool,
    question: Question,
    expected: str,
) -> None:
    program = ActiveQA(Poor(index.all) if poor else index, k=1, final_passages=0, **settings)
    found = diagnosed(program, world(*errs), index, tmp_path, question)
    assert [record.id for record in found.records] == ["q1"] and found.answered == 2
    assert found.records[0].charged == expected, found.records[0]
    assert TEXT not in (tmp_path / "d.jsonl").read_text()


def test_programs_without_hops(tmp_path: Path, index: WordIndex) -> None:
    (tmp_path / "read").mkdir()
    (tmp_path / "none").mkdir()
    found = diagnosed(RAG(Poor(index.all), k=1), world(), index, tmp_path, GOLD)
    assert found.records[0].charged == "retrieval"
    assert [trial.replaced for trial in found.records[0].trials] == ["gold_passages"]
    found = diagnosed(RAG(Poor(index.all)), world("composition"), index, tmp_path / "read", GOLD)
    assert found.records[0].charged == "reading or composition"
    found = diagnosed(Direct(), world("composition"), index, tmp_path / "none", GOLD)
    assert found.records[0].charged == "unexplained" and found.records[0].trials == ()


def test_every_replacement_can_be_tried(tmp_path: Path, index: WordIndex) -> None:
    program = ActiveQA(index, k=1, final_passages=0)
    found = diagnosed(program, world("gate"), index, tmp_path, GOLD, every=True)
    names = [trial.replaced for trial in found.records[0].trials]
    assert names == [name for name in get_args(Replacement) if name != "undivided"]
    assert [trial.em for trial in found.records[0].trials] == [False, True, False, False, False, True]
    mended = found.mended()
    assert mended["search_always"].value == 1.0 and mended["gold_sub_questions"].value == 0.0


def test_what_was_right_before_the_error_is_not_asked_again(tmp_path: Path, index: WordIndex) -> None:
    def second_hop(prompt: str) -> Reply:
        reply = world()(prompt)
        opened = prompt.rpartition("Task 2: ")[2]
        return Reply("1902", -0.01) if "Conclusion 2" in prompt[-20:] and "Found:" not in opened else reply

    program = ActiveQA(index, k=1, final_passages=0)
    run = recorded(program, second_hop, tmp_path, PASSAGES_ONLY)
    assert [hop.source for hop in run.records[0].trajectory.hops] == ["search", "memory"]  # type: ignore[union-attr]
    lm = scripted_lm(second_hop)
    with dspy.context(lm=lm):
        found = diagnose(program, run, [PASSAGES_ONLY], looked_up(index), tmp_path / "d.jsonl")
    assert found.records[0].charged == "gate"
    assert not any("assistant: Task 1" in prompt[-30:] for prompt in lm.engine.prompts)
    assert found.records[0].trials[0].cost.lm_calls == len(lm.engine.prompts) < run.records[0].cost.lm_calls


def test_it_goes_on_where_it_was_stopped(tmp_path: Path, index: WordIndex) -> None:
    program = ActiveQA(index, k=1, final_passages=0)
    questions = [Question(f"q{n}", f"{TEXT} ({n})", ("1871",)) for n in range(3)]
    script = scripted_lm([(r"Answer: ?$", "a tower"), (r"Task 1: ?$", "Who?"), (r"Task", "none"), ("", "no")])
    with dspy.context(lm=script):
        run = evaluate(program, questions, tmp_path / "run.jsonl")
        told: list[tuple[int, int]] = []

        def stop(done: int, total: int) -> None:
            told.append((done, total))
            if done == 2 and len(told) == 3:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            diagnose(program, run, questions, looked_up(index), tmp_path / "d.jsonl", on_progress=stop)
        text = (tmp_path / "d.jsonl").read_bytes()
        (tmp_path / "d.jsonl").write_bytes(text + b'{"id":"q2","cha')
        calls = len(script.engine.prompts)
        found = diagnose(program, run, questions, looked_up(index), tmp_path / "d.jsonl", on_progress=stop)
        assert told == [(0, 3), (1, 3), (2, 3), (2, 3), (3, 3)]
        assert [record.id for record in found.records] == ["q0", "q1", "q2"]
        assert len(script.engine.prompts) > calls
        again = diagnose(program, run, questions, looked_up(index), tmp_path / "d.jsonl")
        assert again == found
        with pytest.raises(InputError, match="not all replacements tried, now all"):
            diagnose(program, run, questions, looked_up(index), tmp_path / "d.jsonl", every=True)
        with pytest.raises(InputError, match="3 of the run's 3 wrong"):
            diagnose(program, run, [], looked_up(index), tmp_path / "e.jsonl")
        for bad, error in ((b'{"schema":1}\n', InputError), (text + b'{"id":1}\n', StateError)):
            (tmp_path / "d.jsonl").write_bytes(bad)
            with pytest.raises(error, match="line"):
                diagnose(program, run, questions, looked_up(index), tmp_path / "d.jsonl")


def test_a_trial_that_fails_is_told_and_counts_for_nothing(tmp_path: Path, index: WordIndex) -> None:
    program = ActiveQA(index, k=1, final_passages=0)
    run = recorded(program, world("gate"), tmp_path, PASSAGES_ONLY)

    class Broken(WordIndex):
        def search(self, query: str, k: int) -> list[Passage]:
            raise RetrievalError(f"no answer for {query}")

    with dspy.context(lm=scripted_lm(world("gate"))):
        found = diagnose(
            ActiveQA(Broken(index.all), k=1, final_passages=0), run, [PASSAGES_ONLY], looked_up(index), tmp_path / "d"
        )
    (record,) = found.records
    assert record.charged == "failed" and record.trials[0].error is not None
    assert record.trials[0].error.type == "RetrievalError"
    assert "search_always" not in found.mended()


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_program_can_be_diagnosed(tmp_path: Path, index: WordIndex, name: str) -> None:
    question = Question("q1", TEXT, ("1999",), supporting_ids=("1", "2"), decomposition=STEPS)
    with dspy.context(lm=scripted_lm(script())):
        run = evaluate(make_program(name, index), [question], tmp_path / "run.jsonl")
        found = diagnose(make_program(name, index), run, [question], looked_up(index), tmp_path / "d.jsonl", every=True)
    (record,) = found.records
    assert [trial.error for trial in record.trials if trial.error] == []
    expected = EXPECTED[name]
    tried = {trial.replaced for trial in record.trials}
    assert ("gold_passages" in tried) == (expected.retrievals > 0)
    assert ("gold_answers" in tried) == (expected.hops > 0 and name != "self-consistency")


# --- figures ----------------------------------------------------------------------------------------------------------

trials = st.lists(
    st.builds(
        Trial,
        st.sampled_from(get_args(Replacement)),
        st.just("x"),
        st.booleans(),
        st.just(0.0),
        error=st.sampled_from([None, Failure("Timeout", "late")]),
    )
)


@given(trials, st.booleans(), st.booleans(), st.booleans())
def test_the_first_that_mends_is_charged(tried: list[Trial], passages: bool, answers: bool, divided: bool) -> None:
    charged = charge(tried, passages=passages, answers=answers, divided=divided)
    told = next((trial for trial in tried if trial.em or trial.error), None)
    if told is None:
        assert charged not in {*CHARGED.values(), "failed"}
    else:
        assert charged == ("failed" if told.error else CHARGED[told.replaced])


def test_tables_and_figures(tmp_path: Path, index: WordIndex) -> None:
    run = recorded(Direct(), world("composition"), tmp_path, GOLD, KNOWN)
    header = DiagnosisHeader(run.header, {"model": "scripted/lm"})
    right, wrong = Trial("gold_passages", "1871", True, 1.0), Trial("gold_passages", "no", False, 0.0)
    records = (
        DiagnosisRecord("a", "retrieval", (right,), True),
        DiagnosisRecord("b", "retrieval", (right,), None),
        DiagnosisRecord("c", "unexplained", (wrong,), False),
    )
    found = Diagnosis(header, records, 9)
    assert found.charged()["retrieval"].value == pytest.approx(2 / 3)
    assert found.off_topic()["retrieval"] == (1, 1) and found.off_topic()["unexplained"] == (0, 1)
    text = found.to_markdown()
    assert "| retrieval | 2 | 66.7 [20.8, 93.9] | 1 of 1 |" in text and "3 wrong answers of 9" in text
    assert "| gold passages at every search | 3 | 66.7 [20.8, 93.9] |" in text and "convention" in text
    figures = json.loads(found.to_json())
    assert figures["errors"] == 3 and set(figures["charged"]) == set(get_args(Charge))
    assert read_run(tmp_path / "run.jsonl").header == header.run
