"""The joint optimizer: it finds what is there, says what it did, and goes on where it was stopped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import dspy
import pytest
from click.testing import CliRunner
from joint_worlds import TRAIN, VAL, Around, lm_of, optimizer, says, search

from hopgate.cli import main
from hopgate.core import HopgateError, InputError, StateError
from hopgate.evaluation import Budget, ExactMatch
from hopgate.lms.testing import Reply, scripted_lm
from hopgate.optimizers import JointOptimizer, JointResult, Tradeoff, WithinBest
from hopgate.optimizers.joint_manifest import differences
from hopgate.programs import RAG, ActiveQA, ConstantGate, Dr3, Escalation, IRCoT


def compiled(program: dspy.Module, lm: Any = None, *, by: JointOptimizer | None = None, **given: Any) -> Any:
    by = by or optimizer()
    with dspy.context(lm=lm or lm_of()):
        return by.compile(program, **{"trainset": TRAIN, **given}), by.result


def test_settings_and_thresholds_are_chosen_together(tmp_path: Path) -> None:
    by = optimizer(tmp_path / "j")
    student = ActiveQA(search, k=1, tau=-5.0)
    program, result = compiled(student, by=by, valset=VAL)
    assert not result.kept_original
    assert program.settings.values.k == 2
    assert -0.8 < program.tau < -0.1
    assert student.settings.values.k == 1
    assert student.tau == -5.0
    assert program._compiled
    assert result.chosen.score == 1.0
    assert result.original.score < 1.0
    with dspy.context(lm=lm_of()):
        assert [program(question=q.question).answer for q in VAL] == [q.answer for q in VAL]
    assert JointResult.load(tmp_path / "j" / "result.json") == result
    loaded = ActiveQA(search)
    loaded.load(str(tmp_path / "j" / "program.json"))
    assert loaded.settings.values == program.settings.values


def test_a_trial_gives_its_whole_front_and_dominated_points_are_left_out() -> None:
    _, result = compiled(Escalation(search, k=1), by=optimizer(space={"k": (2,)}))
    values = [(p.score, -p.retrievals, -p.tokens) for p in result.front]
    assert len({p.retrievals for p in result.front}) > 1
    for one in values:
        assert not any(all(a >= b for a, b in zip(other, one, strict=True)) for other in values if other != one)
    assert all(p.n == 8 for p in result.front)
    assert all(p.low is None or p.low <= p.score <= p.high for p in result.front)


def test_thresholds_of_other_steps_than_those_named_stay(tmp_path: Path) -> None:
    student = Escalation(search, k=1, memory=False, tau=-0.31, tau_grounded=-5.0)
    program, result = compiled(student, by=optimizer(tmp_path / "j", space={"k": (2,)}, steps=("grounded",)))
    assert {step for point in result.front for step in point.thresholds} == {"grounded"}
    assert program.settings.values.tau == -0.31
    with pytest.raises(InputError, match="steps"):
        compiled(student, by=optimizer(tmp_path / "j", space={"k": (2,)}))


def test_a_candidate_without_the_step_gives_one_point_and_a_student_without_it_is_refused() -> None:
    student = Escalation(search, k=1, memory=False, tau_grounded=-5.0)
    _, result = compiled(student, by=optimizer(space={"escalate": ("threshold", "always")}, steps=("grounded",)))
    assert {one.parameters["escalate"] for one in result.candidates} == {"threshold", "always"}
    for program in (ActiveQA(search, gate="always"), RAG(search)):
        with pytest.raises(InputError):
            compiled(program, by=optimizer(steps=("grounded",)))
    with dspy.context(lm=lm_of()):
        few, many = (
            optimizer(steps=steps, leaves=8).estimate(student, TRAIN).lm_calls[1] for steps in (("grounded",), None)
        )
    assert few is not None and many is not None and few < many / 2


def test_what_is_clearly_worse_is_dropped_early_and_never_the_original() -> None:
    _, result = compiled(
        ActiveQA(search, k=2), by=optimizer(racing=(6, 12), space={"max_hops": (1, 4)}, trials=2, error=0.2)
    )
    kept, dropped = result.candidates
    assert (kept.dropped, kept.questions) == (False, 12)
    assert (dropped.dropped, dropped.questions) == (True, 6)
    assert dropped.parameters["max_hops"] == 1
    assert {p.candidate for p in result.front} == {kept.candidate}


def test_nothing_gained_keeps_the_original() -> None:
    student = ActiveQA(search, k=2, tau=-0.45)
    program, result = compiled(student)
    assert result.kept_original
    assert result.chosen == result.original
    assert program.settings.values == student.settings.values
    assert program._compiled
    assert not student._compiled


def test_a_resumed_study_is_the_undisturbed_one(tmp_path: Path) -> None:
    whole, once = lm_of(), optimizer(tmp_path / "a")
    program, result = compiled(ActiveQA(search, k=1), whole, by=once)
    made, moments = len(whole.engine.prompts), 0
    calls = 0
    while True:
        moments += 1
        lm = lm_of()
        engine, limit = lm.engine, made // 6

        def reply(prompt: str, engine: Any = engine, limit: int = limit) -> Any:
            if len(engine.prompts) > limit:
                raise KeyboardInterrupt  # as a kill: nothing is tidied up on the way
            return says(prompt)

        engine.script = reply
        try:
            again, other = compiled(ActiveQA(search, k=1), lm, by=optimizer(tmp_path / "b"))
        except KeyboardInterrupt:
            calls += len(engine.prompts)
            assert moments < 30
            continue
        calls += len(engine.prompts)
        break
    assert moments > 4
    assert other.front == result.front
    assert other.candidates == result.candidates
    assert other.chosen == result.chosen
    assert again.settings.values == program.settings.values
    assert calls < made + 40 * moments  # a kill loses the question under way, no more
    quiet = lm_of()
    _, last = compiled(ActiveQA(search, k=1), quiet, by=optimizer(tmp_path / "b"))
    assert quiet.engine.prompts == []
    assert last.front == result.front


@pytest.mark.parametrize("limits", [{"calls": 20}, {"tokens": 4000}, {"seconds": 1e-6}, {"usd": 1e-9}])
def test_limits_stop_cleanly_with_the_best_so_far(tmp_path: Path, limits: dict[str, Any]) -> None:
    by = optimizer(tmp_path / "j", budget=Budget(**limits))
    program, result = compiled(ActiveQA(search, k=1), by=by)
    assert result.stopped
    assert "budget" in result.stopped
    assert result.kept_original
    lm = lm_of()
    _, again = compiled(ActiveQA(search, k=1), lm, by=optimizer(tmp_path / "j", budget=Budget(**limits)))
    assert lm.engine.prompts == []  # the limits are those of all sessions together
    assert again.spent.calls == result.spent.calls
    _, rest = compiled(ActiveQA(search, k=1), by=optimizer(tmp_path / "j"))
    assert rest.stopped is None
    assert not rest.kept_original
    assert rest.spent.calls > result.spent.calls
    assert isinstance(program, ActiveQA)


def test_progress_tells_the_best_so_far() -> None:
    seen: list[Any] = []
    compiled(ActiveQA(search, k=1), by=optimizer(on_progress=seen.append, trials=2))
    assert [one.done for one in seen] == sorted(one.done for one in seen)
    assert seen[-1].done == seen[-1].total == 2
    assert seen[0].best is None
    assert seen[-1].best.score > 0.5
    assert seen[-1].spent.calls > 0


def test_the_estimate_holds(tmp_path: Path) -> None:
    by, student = optimizer(tmp_path / "j", trials=2), Escalation(search, k=1)
    lm = lm_of()
    with dspy.context(lm=lm):
        worst = by.estimate(student, TRAIN, valset=VAL)
        assert lm.engine.prompts == []
        assert not (tmp_path / "j").exists()
        probed = by.estimate(student, TRAIN, valset=VAL, probe=True)
        assert len(lm.engine.prompts) > 0
        by.compile(student, trainset=TRAIN, valset=VAL)
    made = len(lm.engine.prompts)
    assert worst.lm_calls[0] <= made <= (worst.lm_calls[1] or 0)
    assert probed.lm_calls[0] <= made <= (probed.lm_calls[1] or 0)
    assert (probed.lm_calls[1] or 0) < (worst.lm_calls[1] or 0)
    assert (worst.candidates, worst.questions, probed.probed) == (2, (16, 24), 4)
    assert probed.tokens is not None


@pytest.mark.parametrize("make", [RAG, IRCoT])
def test_programs_without_thresholds_give_one_point(make: Any) -> None:
    program, result = compiled(make(search, k=1), by=optimizer(space={"k": (2,)}, trials=2))
    assert result.stopped is None
    assert sorted(one.parameters["k"] for one in result.candidates) == [1, 2]
    assert result.front
    assert all(point.thresholds == {} for point in result.front)
    assert all(point.retrievals >= 1 for point in result.front)
    assert isinstance(program, make)


def test_the_solver_inside_another_module_is_optimised() -> None:
    program, result = compiled(Around(ActiveQA(search, k=1, tau=-5.0)), by=optimizer(space={"k": (2,)}))
    assert isinstance(program, Around)
    assert program.solver.settings.values.k == 2
    assert -0.8 < program.solver.tau < -0.1
    assert result.chosen.score == 1.0
    with dspy.context(lm=lm_of()):
        shown = program(question=TRAIN[4].question)
        alone = program.solver(question=TRAIN[4].question)
    assert shown.answer == "Bert-4"
    point = result.chosen
    assert point.retrievals < 2
    assert point.lm_calls > alone.cost.lm_calls  # the module's own call is counted


def test_dr3_is_optimised_with_the_stages_of_its_corrector() -> None:
    by = optimizer(space={"k": (2,), "recompose": (False,)}, trials=3, leaves=3, racing=(6,))

    def script(prompt: str) -> Any:
        return "on_topic" if "Verdict" in prompt.splitlines()[-1] else says(prompt)

    program, result = compiled(Dr3(ActiveQA(search, k=1, tau=-5.0)), scripted_lm(script), by=by)
    assert not result.kept_original
    assert program.solver.settings.values.k == 2
    assert -0.8 < program.solver.tau < -0.1


def test_trajectories_become_worked_examples_of_other_questions_than_those_compared_on(tmp_path: Path) -> None:
    by = optimizer(tmp_path / "j", demo_sets=1, demo_size=2, space={}, trials=2)
    compiled(Escalation(search, k=2), by=by)
    found = json.loads((tmp_path / "j" / "demos" / "001.json").read_text())
    assert len(found["examples"]) == 2
    assert all(len(example["hops"]) >= 2 and example["answer"].startswith("Bert") for example in found["examples"])
    shown = {example["question"] for example in found["examples"]}
    asked: set[str] = set()
    for path in (tmp_path / "j" / "candidates").glob("*/trees-*.jsonl"):
        asked |= set(json.loads(path.read_text().splitlines()[0])["run"]["data"]["ids"])
    assert len(asked) == 8
    assert not shown & {question.question for question in TRAIN if question.id in asked}


def test_a_metric_of_ones_own_sees_answer_and_cost() -> None:
    def metric(example: Any, prediction: Any, trace: Any = None) -> float:
        return float(prediction.answer == example.answer) - 0.1 * prediction.cost.retrievals

    _, result = compiled(ActiveQA(search, k=2), by=optimizer(metric=metric, rule=WithinBest(0.0)))
    assert result.chosen.score == pytest.approx(1 - 0.1 * result.chosen.retrievals)
    examples = [dspy.Example(question=q.question, answer=q.answer).with_inputs("question") for q in TRAIN]
    by = optimizer(metric=ExactMatch())
    compiled(ActiveQA(search, k=1), by=by, trainset=examples)
    assert by.result is not None
    assert by.result.chosen is not None
    assert by.result.chosen.score > 0.9


def test_all_wrong_and_all_alike_keep_the_original() -> None:
    _, wrong = compiled(ActiveQA(search), scripted_lm(lambda _: Reply("wrong", -0.3)))
    assert wrong.kept_original
    assert wrong.chosen.score == 0
    missing = ActiveQA(search, without_confidence="search")
    _, result = compiled(missing, scripted_lm(lambda prompt: _without_confidence(prompt)))
    assert all(point.thresholds == {} for point in result.front)


def _without_confidence(prompt: str) -> Reply:
    said = says(prompt)
    return Reply(said.text if isinstance(said, Reply) else said, None)


def test_a_program_that_cannot_answer_is_an_error_that_says_why() -> None:
    with pytest.raises(HopgateError, match=r"unchanged program does not answer.*log-probabilities"):
        compiled(ActiveQA(search), scripted_lm(_without_confidence))


BAD: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({}, {"trainset": []}, "`trainset` has 0 questions"),
    ({}, {"trainset": TRAIN[:1]}, "`trainset` has 1 questions"),
    ({}, {"trainset": [TRAIN[0], TRAIN[0]]}, "two questions have the id"),
    ({}, {"trainset": [dspy.Example(question="a"), dspy.Example(question="b")]}, "example 1: .*answer"),
    ({"metric": lambda example, prediction, trace=None: 1 / 0}, {}, "the metric failed on question"),
    ({"metric": lambda example, prediction, trace=None: float("nan")}, {}, "the metric gave nan"),
    ({"space": {"tau": (-0.1,)}}, {}, "'tau' is not chosen among but fitted"),
    ({"space": {"colour": (1,)}}, {}, "no setting 'colour'"),
    ({"space": {"k": (0,)}}, {}, "setting `k`"),
    ({"space": {"k": ()}}, {}, "'k' takes a list"),
    ({"space": {}}, {}, "nothing is left to choose"),
    ({"demo_sets": 1, "demos": "whole"}, {}, "`demos` is one of"),
]  # fmt: skip


@pytest.mark.parametrize(("made", "given", "says_so"), BAD)
def test_bad_input_is_one_clear_error(made: dict[str, Any], given: dict[str, Any], says_so: str) -> None:
    with pytest.raises(InputError, match=says_so):
        compiled(ActiveQA(search), by=optimizer(**made), **given)


@pytest.mark.parametrize(
    ("made", "says_so"),
    [
        ({"metric": "accuracy"}, "`metric` is em, f1"),
        ({"trials": 0}, "`trials`"),
        ({"leaves": True}, "`leaves`"),
        ({"racing": (10, 10)}, "`racing` takes growing"),
        ({"racing": ()}, "`racing` takes growing"),
        ({"error": 1.5}, "`error` of a race"),
        ({"instructions": "me"}, "`instructions` is"),
        ({"budget": 3}, "`budget` is"),
    ],
)
def test_bad_arguments_are_refused_at_once(made: dict[str, Any], says_so: str) -> None:
    with pytest.raises(InputError, match=says_so):
        optimizer(**made)


def test_a_negative_weight_is_refused() -> None:
    with pytest.raises(InputError, match="`weight` must be"):
        optimizer(rule=Tradeoff(-1.0))


def test_programs_that_cannot_be_optimised_are_refused() -> None:
    with pytest.raises(InputError, match="gate of its own"):
        compiled(ActiveQA(search, gates={"final": _Unsure()}))
    frozen = ActiveQA(search)
    frozen._compiled = True
    with pytest.raises(InputError, match="freezes"):
        compiled(Around(frozen))
    both = Around(ActiveQA(search))
    both.other = RAG(search)
    with pytest.raises(InputError, match="several solvers"):
        compiled(both)
    with pytest.raises(InputError, match=r"must be a dspy\.Module"):
        compiled(3)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="no LM"), dspy.context(lm=None):
        optimizer().compile(ActiveQA(search), trainset=TRAIN)
    compiled(ActiveQA(search, gates={"hop": ConstantGate(search=True)}), by=optimizer(trials=1))


class _Unsure:
    needs_draft = needs_confidence = True

    def keeps(self, draft: Any) -> bool:
        return False


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    compiled(ActiveQA(search), by=optimizer(tmp_path / "j", trials=1))
    for changes, student in (({"seed": 3}, ActiveQA(search)), ({}, ActiveQA(search, k=4)), ({"leaves": 3}, None)):
        with pytest.raises(InputError, match="holds another optimisation"):
            compiled(student or ActiveQA(search), by=optimizer(tmp_path / "j", trials=1, **changes))
    (tmp_path / "j" / "joint.json").write_text("{")
    with pytest.raises(StateError, match="no JSON"):
        compiled(ActiveQA(search), by=optimizer(tmp_path / "j", trials=1))


def test_a_result_that_is_none_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    with pytest.raises(InputError, match="no such file"):
        JointResult.load(path)
    for text in ("{", "[]", '{"schema": 99}', '{"schema": 1}'):
        path.write_text(text)
        with pytest.raises(StateError):
            JointResult.load(path)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"rule": "x"}, r"such as Tradeoff\(0\.05\)"),
        ({"rule": 0.1}, r"such as Tradeoff\(0\.1\)"),
        ({"rule": 0}, "`rule` takes a rule"),
        ({"rule": Tradeoff}, "`rule` takes a rule"),
        ({"storage": "postgresql:/u:SECRET@h/x"}, "may hold a password"),
        ({"storage": 3}, "`storage` is a path"),
        ({"folder": 3}, "a path must be"),
        ({"steps": "grounded"}, "`steps` takes some of memory, grounded, hop, final"),
    ],
)
def test_arguments_are_refused_when_the_optimizer_is_made(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        JointOptimizer("em", **given)
    assert "SECRET" not in str(error.value)


@pytest.mark.parametrize("name", ["file", "file/below", "file/far/below"])
def test_a_folder_that_is_a_file_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("kept")
    with pytest.raises(InputError, match="is a file, and a joint optimisation is kept in a folder"):
        JointOptimizer("em", folder=tmp_path / name)
    assert (tmp_path / "file").read_text() == "kept"


@pytest.mark.parametrize("questions", [None, "abc", Path("train.jsonl"), 3, {"question": "Who?"}])
@pytest.mark.parametrize("name", ["trainset", "valset"])
def test_what_is_no_list_of_questions_is_refused(name: str, questions: Any) -> None:
    if (name, questions) == ("valset", None):
        return  # there are none to validate on
    given: dict[str, Any] = {"trainset": TRAIN, name: questions}
    with pytest.raises(InputError, match=rf"`{name}` takes a list of questions, .*load_questions\(path\)"):
        JointOptimizer("em").compile(ActiveQA(search), **given)


def test_what_another_optimisation_differs_in_is_told_in_words() -> None:
    about = {
        "state": "a" * 64, "lm": {"model": "one", "options": {"n": 1}}, "index": {"sha256": "b" * 64, "name": "wiki"},
        "racing questions": "c" * 64, "learning questions": None, "metric": "em", "seed": 0,
    }  # fmt: skip
    other = dict.fromkeys(("state", "racing questions", "learning questions"), "d" * 64)
    told = "; ".join(differences(about, {**about, **other}))
    assert "another state of the program" in told and "another set of questions to compare" in told
    assert "set of questions to learn prompts from: none, now one" in told and "dddd" not in told and "aaaa" not in told
    assert differences(about, {**about, "metric": "f1"}) == ['metric "em", now "f1"']
    assert differences(about, {**about, **other, "state": about["state"], "seed": 3}) == ["seed 0, now 3"]
    assert differences(about, {**about, "lm": {**about["lm"], "model": "two"}}) == ['LM: model "one", now "two"']
    assert differences(about, {**about, "index": {"sha256": "e" * 64, "name": "wiki"}}) == ["index: another sha256"]
    assert differences(about, {**about, "index": None}) == ["index: one, now none"]


def test_the_command_refuses_a_storage_before_it_reads_anything_and_does_not_show_it() -> None:
    told = CliRunner().invoke(main, ["compile", "none.jsonl", "--out", "p.json", "--storage", "postgresql:/u:SECRET@h"])
    assert told.exit_code == 2 and "may hold a password" in told.output and "SECRET" not in told.output
