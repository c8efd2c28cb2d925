"""What a compilation reports is what the saved program does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import dspy
import pytest
from tree_worlds import SURE, World, search

from hopgate.core import ConfidenceError, InputError
from hopgate.evaluation import Question
from hopgate.evaluation.provenance import describe_data
from hopgate.evaluation.scoring import score_answer
from hopgate.lms.testing import Reply, scripted_lm
from hopgate.optimizers import (
    CalibratedGate,
    Calibrator,
    Tradeoff,
    WithinBest,
    WithinBudget,
    load_program,
    read_program,
    save_program,
)
from hopgate.optimizers.compiled_figures import Compiled
from hopgate.optimizers.compiled_recorded import compile_recorded
from hopgate.optimizers.compiled_recording import Recorder
from hopgate.programs import Dr3, Escalation, Solver, ThresholdGate

ASKED = [Question(str(n), f"Who is the uncle of number {n}?", ("abc"[n % 3],)) for n in range(6)]
WORLDS: dict[str, tuple[int, tuple[float, ...]]] = {
    "two": (2, SURE), "three": (3, SURE), "equal": (7, (-0.3,)), "pairs": (5, (0.0, -0.5)),
}  # fmt: skip
LEVEL = Calibrator("isotonic", (-2.0, -0.9, -0.3, -0.05), (0.2, 0.2, 0.6, 0.6), 20)
STARTS: dict[str, Callable[[], Solver]] = {
    "plain": lambda: Escalation(search, max_hops=1),
    "calibrated": lambda: Escalation(
        search, max_hops=1, gates={step: CalibratedGate(0.6, {step: LEVEL}) for step in ("memory", "grounded", "hop")}
    ),
    "never kept": lambda: Escalation(
        search, max_hops=1, gates={"memory": ThresholdGate(0.1), "grounded": ThresholdGate(-0.3)}
    ),
    "corrected": lambda: Dr3(Escalation(search, max_hops=1, tau_grounded=-0.9)),
}


def world(name: str) -> dspy.LM:
    return scripted_lm(World(*WORLDS[name]))


def compiled(folder: Path, name: str, program: Solver, train: list[Question], valid: Any = (), **how: Any) -> Compiled:
    recorder = Recorder(folder / "trees.jsonl", leaves=60)
    with dspy.context(lm=world(name)):
        return compile_recorded(
            program, train, recorder, data=describe_data(train, [q.id for q in train]), valid=valid, folds=3, **how
        )


def done(folder: Path, name: str, program: Solver, asked: list[Question]) -> tuple[float, float]:
    """Mean EM and searches of a program, saved and loaded, when it is asked."""
    save_program(program, folder / "p.json")
    loaded = load_program(folder / "p.json", search)
    with dspy.context(lm=world(name)):
        told = [loaded(question=question.question) for question in asked]
    right = [bool(score_answer(question, one.answer)["em"]) for question, one in zip(asked, told, strict=True)]
    return sum(right) / len(asked), sum(one.cost.retrievals for one in told) / len(asked)


HOW: list[dict[str, Any]] = [
    {"rule": Tradeoff(0.05), "calibration": "platt"},
    {"rule": WithinBudget(1.0), "calibration": "isotonic"},
    {"rule": WithinBest(0.0), "calibration": "temperature"},
    {"rule": Tradeoff(0.4)},
]


def check(folder: Path, name: str, start: str, how: dict[str, Any], n_valid: int) -> None:
    train, valid = ASKED[n_valid:], ASKED[:n_valid]
    program = STARTS[start]()
    found = compiled(folder, name, program, train, valid, **how)
    if not found.train.nearest:
        figures = (found.train.score, found.train.retrievals)
        assert done(folder, name, found.program, train) == pytest.approx(figures), how
    there = [(program, found.original)] + ([(found.program, found.held_out)] if valid else [])
    for one, measured in there:
        if measured is not None:
            figures = (measured.score.value, measured.retrievals.value)
            assert done(folder, name, one, valid or train) == pytest.approx(figures), how
    if found.kept_original:
        save_program(program, folder / "before.json")
        save_program(found.program, folder / "p.json")
        before, after = read_program(folder / "before.json"), read_program(folder / "p.json")
        assert before.manifest and after.manifest
        assert before.state == after.state and before.manifest.gates == after.manifest.gates


@pytest.fixture(autouse=True)
def short_front(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hopgate.optimizers.compiled_recorded.FRONT", 1)  # it is what takes long, and is not measured


@pytest.mark.parametrize("name", WORLDS)
@pytest.mark.parametrize("start", STARTS)
def test_reported_is_saved(tmp_path: Path, name: str, start: str) -> None:
    for how in HOW if start == "plain" else HOW[:2]:
        check(tmp_path, name, start, how, 0)


@pytest.mark.parametrize("how", [*HOW[:2], {"optimizer": "policy"}])
def test_reported_of_validation_questions_is_saved(tmp_path: Path, how: dict[str, Any]) -> None:
    for start in ("plain", "calibrated"):
        (tmp_path / start).mkdir()
        check(tmp_path / start, "two", start, how, 2)


def test_without_confidences_recording_stops_at_once(tmp_path: Path) -> None:
    answering, program = World(2), Escalation(search, max_hops=1, without_confidence="search")
    asked: list[str] = []

    def mute(prompt: str) -> Reply:
        asked.append(prompt)
        reply = answering(prompt)
        return Reply(reply.text if isinstance(reply, Reply) else str(reply), None)

    recorder = Recorder(tmp_path / "trees.jsonl")
    data = describe_data(ASKED, [question.id for question in ASKED])
    with (
        dspy.context(lm=scripted_lm(mute)),
        pytest.raises(ConfidenceError, match=r"trees\.jsonl: question '0': .*name one that does, and another file"),
    ):
        compile_recorded(program, ASKED, recorder, data=data)
    assert asked and not any(f"number {n}" in prompt for prompt in asked for n in range(1, 6))


def test_where_nothing_can_be_decided_the_file_is_named(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "trees.jsonl")
    data = describe_data(ASKED, [question.id for question in ASKED])

    def repeating(prompt: str) -> Reply:
        return Reply("uncle", -0.1)

    with (
        dspy.context(lm=scripted_lm(repeating)),
        pytest.raises(InputError, match=r"trees\.jsonl: no decision was recorded on 6 training .*more questions"),
    ):
        compile_recorded(Escalation(search, grounded=False, max_hops=1), ASKED, recorder, data=data)
