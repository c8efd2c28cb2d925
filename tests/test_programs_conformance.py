"""What DSPy expects of a module, asked of every program alike."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import dspy
import pytest
from dspy.utils.callback import BaseCallback

from hopgate.core import InputError, StateError
from hopgate.lms.testing import Reply, scripted_lm
from hopgate.programs import RAG, ActiveQA, ChainOfThought, Direct, Solver

QUESTION = "When was the designer of the Osk Tower born?"
Make = Callable[..., Solver]

PROGRAMS: dict[str, Make] = {
    "active": lambda index, **settings: ActiveQA(index, **settings),
    "rag": lambda index, **settings: RAG(index, **settings),
    "direct": lambda index, **settings: Direct(**settings),
    "cot": lambda index, **settings: ChainOfThought(**settings),
}
CALLS = {"active": 8, "rag": 1, "direct": 1, "cot": 1}
RETRIEVALS = {"active": 2, "rag": 1, "direct": 0, "cot": 0}


@pytest.fixture(params=PROGRAMS)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def make(name: str) -> Make:
    return PROGRAMS[name]


@pytest.fixture
def program(make: Make, index: Any) -> Solver:
    return make(index)


def script(answer: str = "1871") -> Callable[[str], Reply]:
    """What the LM says to any of the programs: two hops whose drafts are unsure."""

    def reply(prompt: str) -> Reply:
        label = prompt.rsplit("\n", 1)[-1].removeprefix("assistant: ")
        if label.startswith("Reasoning:"):
            return Reply(f" She was.\nAnswer: {answer}")
        if label.startswith("Answer:"):
            return Reply(answer)
        if label.startswith("Task"):
            return Reply(
                {"Task 1:": "Who designed the Osk Tower?", "Task 2:": "When was Mira Dol born?"}.get(label, "none")
            )
        read = "\nFound:" in prompt.rsplit("Task", 1)[1]
        conclusions = {"Conclusion 1:": ("Ann Ort", "Mira Dol"), "Conclusion 2:": ("1902", answer)}
        return Reply(conclusions[label][read], -0.1 if read else -3.0)

    return reply


def timeless(prediction: dspy.Prediction) -> Any:
    def strip(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: strip(item) for key, item in value.items() if key != "seconds"}
        return [strip(item) for item in value] if isinstance(value, list | tuple) else value

    return strip(prediction.trajectory.to_dict())


def run(program: Solver, lm: dspy.LM | None = None, question: str = QUESTION, **context: Any) -> dspy.Prediction:
    with dspy.context(lm=lm or scripted_lm(script()), **context):
        return program(question=question)


def last_predictor(program: Solver) -> dspy.Predict:
    """The predictor that writes the final answer."""
    return next(p for p in program.predictors() if "answer" in p.signature.output_fields)


# --- the call ---------------------------------------------------------------------------------------------------------


def test_it_returns_answer_trajectory_and_cost(program: Solver, name: str) -> None:
    result = run(program)
    assert result.answer == "1871"
    assert result.trajectory.question == QUESTION
    assert result.trajectory.answer == "1871"
    assert result.trajectory.stop_reason == "finished"
    assert result.cost == result.trajectory.cost
    assert result.cost.lm_calls == CALLS[name]
    assert result.cost.retrievals == RETRIEVALS[name]
    assert result.cost.prompt_tokens > 0
    assert result.cost.billed_tokens == result.cost.prompt_tokens + result.cost.completion_tokens
    json.dumps(result.trajectory.to_dict(), allow_nan=False)


def test_acall_gives_the_same(program: Solver) -> None:
    expected = run(program)
    with dspy.context(lm=scripted_lm(script())):
        result = asyncio.run(program.acall(question=QUESTION))
    assert result.answer == expected.answer
    assert timeless(result) == timeless(expected)


@pytest.mark.parametrize("question", ["", "  \n", None, 7, "x" * 100_000], ids=["empty", "blank", "None", "7", "long"])
def test_questions_that_cannot_be_asked(program: Solver, question: Any) -> None:
    lm = scripted_lm(script())
    with pytest.raises(InputError, match="question") as caught:
        run(program, lm, question)
    assert len(str(caught.value)) < 200
    with dspy.context(lm=lm), pytest.raises(InputError):
        asyncio.run(program.acall(question=question))
    assert lm.engine.prompts == []


@pytest.mark.parametrize("empty", ["", " "])
def test_an_lm_that_says_nothing_is_no_crash(make: Make, name: str, index: Any, empty: str) -> None:
    result = run(make(index), scripted_lm(lambda prompt: empty))
    assert result.answer == ""
    assert result.cost.lm_calls > 0
    assert result.trajectory.stop_reason == ("empty" if name != "active" else result.trajectory.stop_reason)


def test_a_finished_trajectory_is_returned_as_it_is(program: Solver) -> None:
    first = run(program)
    silent = scripted_lm([])
    with dspy.context(lm=silent):
        again = program(question=QUESTION, trajectory=first.trajectory)
    assert again.trajectory == first.trajectory
    assert silent.engine.prompts == []


def test_an_lm_that_fails_is_not_an_empty_answer(program: Solver) -> None:
    with pytest.raises(dspy.LMError):
        run(program, scripted_lm([]))


# --- copies, state ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("copied", ["deepcopy", "reset_copy"])
def test_copies_answer_the_same_and_share_the_retriever(program: Solver, copied: str) -> None:
    program.settings.update(k=2)
    other = getattr(program, copied)()
    assert other is not program
    assert other.settings is not program.settings
    assert other.settings.values == program.settings.values
    if program.retriever is not None:
        assert other.retriever.retriever is program.retriever.retriever
    assert timeless(run(other)) == timeless(run(program))
    other.settings.update(k=5)
    assert program.settings.values.k == 2


def test_settings_survive_reset(program: Solver) -> None:
    program.settings.update(k=2, passage_words=33)
    copied = program.reset_copy()
    for parameter in copied.parameters():
        parameter.reset()
    assert (copied.settings.values.k, copied.settings.values.passage_words) == (2, 33)


def saved(program: Solver, path: Path) -> Path:
    program.save(path)
    return path


def test_state_survives_json_and_a_fresh_instance(make: Make, program: Solver, index: Any, tmp_path: Path) -> None:
    program.settings.update(k=2, passage_words=33)
    if isinstance(program, ActiveQA):
        program.settings.update(tau=-0.7, max_hops=3, query="sub_question")
    demo = dspy.Example(question="Why?", trajectory="", passages=[], reasoning="r", answer="XYZZY")
    last_predictor(program).demos = [demo.with_inputs("question", "trajectory", "passages")]
    last_predictor(program).signature = last_predictor(program).signature.with_instructions("Mind the PLUGH.")
    path = saved(program, tmp_path / "program.json")
    fresh = make(index)
    fresh.load(path)
    assert fresh.settings.values == program.settings.values
    if isinstance(fresh, ActiveQA):
        assert fresh.tau == -0.7
    lm = scripted_lm(script())
    assert timeless(run(fresh, lm)) == timeless(run(program))
    assert "XYZZY" in lm.engine.prompts[-1]
    assert "PLUGH" in lm.engine.prompts[-1]


def test_a_saved_file_holds_no_path_and_no_key(
    program: Solver, index: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-private")
    index.path = str(tmp_path / "index")
    run(program)
    text = saved(program, tmp_path / "program.json").read_text()
    for unwanted in (str(tmp_path), str(Path.home()), "sk-very-private", "api_key", "scripted/lm"):
        assert unwanted not in text


def test_a_newer_state_is_refused_and_changes_nothing(program: Solver) -> None:
    state = program.dump_state()
    before = program.settings.values
    newer = {**state, "settings": {**state["settings"], "version": 2, "k": 9}}
    with pytest.raises(StateError, match="version"):
        program.load_state(newer)
    assert program.settings.values == before


@pytest.mark.parametrize(
    "change", [{"k": 0}, {"k": "many"}, {"unknown": 1}, {"version": None}, {"version": "1"}], ids=str
)
def test_a_state_that_does_not_fit_is_refused(program: Solver, change: dict[str, Any]) -> None:
    state = program.dump_state()
    with pytest.raises(StateError):
        program.load_state({**state, "settings": {**state["settings"], **change}})


def test_an_older_state_takes_the_defaults(make: Make, program: Solver, index: Any) -> None:
    program.settings.update(k=2)
    state = program.dump_state()
    del state["settings"]["passage_words"]
    fresh = make(index)
    fresh.settings.update(passage_words=33)
    fresh.load_state(state)
    default = type(fresh.settings.values)().passage_words
    assert (fresh.settings.values.k, fresh.settings.values.passage_words) == (2, default)


@pytest.mark.parametrize(
    "settings", [{"k": 0}, {"k": 101}, {"k": "three"}, {"k": 1.5}, {"passage_words": 1}, {"unknown": 1}], ids=str
)
def test_settings_out_of_range_name_the_setting(program: Solver, settings: dict[str, Any]) -> None:
    before = program.settings.values
    with pytest.raises(InputError, match=next(iter(settings))) as caught:
        program.settings.update(**settings)
    assert "\n" not in str(caught.value)
    assert program.settings.values == before


@pytest.mark.parametrize("made", ["active", "rag"])
def test_settings_of_the_constructor(made: str, index: Any) -> None:
    assert PROGRAMS[made](index, k=2).settings.values.k == 2
    for wrong in ({"k": 0}, {"unknown": 1}):
        with pytest.raises(InputError):
            PROGRAMS[made](index, **wrong)


@pytest.mark.parametrize(
    "settings",
    [
        {"tau": 0.1}, {"tau": float("nan")}, {"tau": float("-inf")}, {"gate": "sometimes"}, {"max_hops": 0},
        {"depth": 0}, {"rerank": "both"}, {"decomposer": "tree"}, {"without_confidence": "guess"},
        {"final_passages": -1},
    ],
    ids=str,
)  # fmt: skip
def test_settings_of_active_qa_out_of_range(index: Any, settings: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(settings))):
        ActiveQA(index).settings.update(**settings)


# --- inside a user's module -------------------------------------------------------------------------------------------


class Mine(dspy.Module):
    def __init__(self, program: Solver) -> None:
        super().__init__()
        self.qa = program
        self.polish = dspy.Predict("text -> polished")

    def forward(self, question: str) -> dspy.Prediction:
        return dspy.Prediction(answer=self.qa(question=question).answer, more=1)


def test_nested_inside_a_module(make: Make, index: Any, tmp_path: Path) -> None:
    mine = Mine(make(index))
    mine.qa.settings.update(k=2)
    names = [name for name, _ in mine.named_predictors()]
    assert {f"qa.{name}" for name, _ in mine.qa.named_predictors()} < set(names)
    assert "polish" in names
    with dspy.context(lm=scripted_lm(script())):
        assert mine(question=QUESTION).answer == "1871"
    mine.save(tmp_path / "mine.json")
    fresh = Mine(make(index))
    fresh.load(tmp_path / "mine.json")
    assert fresh.qa.settings.values.k == 2


def test_named_predictors(program: Solver, name: str) -> None:
    expected = {
        "active": ["next_sub_question", "plan", "draft", "read", "compose"],
        "rag": ["respond"],
        "direct": ["respond"],
        "cot": ["respond.predict"],
    }
    assert [found for found, _ in program.named_predictors()] == expected[name]
    answering = [found for found, p in program.named_predictors() if "answer" in p.signature.output_fields]
    assert answering == expected[name][-1:]


def test_step_signatures_differ_pairwise(program: Solver) -> None:
    predictors = program.predictors()
    for position, left in enumerate(predictors):
        for right in predictors[position + 1 :]:
            assert not left.signature.equals(right.signature)


def test_set_lm_and_get_lm(program: Solver) -> None:
    lm = scripted_lm(script("1999"))
    program.set_lm(lm)
    assert program.get_lm() is lm
    assert run(program, scripted_lm(script("1871"))).answer == "1999"


# --- settings of DSPy -------------------------------------------------------------------------------------------------


def test_the_lm_is_swapped_by_the_context(program: Solver) -> None:
    with dspy.context(lm=scripted_lm(script("1871"))):
        assert program(question=QUESTION).answer == "1871"
        with dspy.context(lm=scripted_lm(script("1999"))):
            assert program(question=QUESTION).answer == "1999"
        assert program(question=QUESTION).answer == "1871"


def test_usage_is_tracked(program: Solver) -> None:
    result = run(program, track_usage=True)
    usage = result.get_lm_usage()["scripted/lm"]
    assert usage["prompt_tokens"] == result.cost.prompt_tokens
    assert usage["completion_tokens"] == result.cost.completion_tokens


def test_callbacks_see_the_program_and_its_steps(program: Solver, name: str) -> None:
    class Watch(BaseCallback):
        def __init__(self) -> None:
            self.started: dict[str, Any] = {}
            self.ended: list[tuple[Any, Any]] = []

        def on_module_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
            self.started[call_id] = instance

        def on_module_end(self, call_id: str, outputs: Any, exception: BaseException | None = None) -> None:
            self.ended.append((self.started[call_id], outputs))

    watch = Watch()
    result = run(program, callbacks=[watch])
    assert next(iter(watch.started.values())) is program
    assert watch.ended[-1][0] is program
    assert watch.ended[-1][1].answer == result.answer
    predictors = [instance for instance in watch.started.values() if type(instance) is dspy.Predict]
    assert len(predictors) == CALLS[name]
    assert len(watch.ended) == len(watch.started)


def test_the_history_of_the_program_has_its_calls(program: Solver, name: str) -> None:
    run(program)
    assert len(program.history) == CALLS[name]


def test_the_cost_needs_no_history(program: Solver) -> None:
    expected = asdict(run(program).cost)
    found = asdict(run(program, disable_history=True).cost)
    assert {**found, "seconds": 0} == {**expected, "seconds": 0}


@pytest.fixture
def own_cache() -> Any:
    before = dspy.cache
    dspy.configure_cache(enable_disk_cache=False, enable_memory_cache=True)
    yield
    dspy.cache = before


def test_a_warm_cache_does_not_change_the_result(program: Solver, name: str, own_cache: None) -> None:
    lm = scripted_lm(script(), cache=True)
    cold = run(program, lm)
    sent = len(lm.engine.prompts)
    warm = run(program, lm)
    assert len(lm.engine.prompts) == sent == CALLS[name]
    assert warm.answer == cold.answer
    moving = {"cached_calls": None, "billed_tokens": None, "seconds": None}
    assert {**asdict(warm.cost), **moving} == {**asdict(cold.cost), **moving}
    assert (cold.cost.cached_calls, warm.cost.cached_calls) == (0, CALLS[name])
    assert warm.cost.billed_tokens == 0
    assert cold.cost.billed_tokens == cold.cost.prompt_tokens + cold.cost.completion_tokens


def test_eight_threads_give_what_one_gives(program: Solver) -> None:
    def numbered(prompt: str) -> Reply:
        return script(answer=re.findall(r"Osk Tower number (\d+)", prompt)[-1])(prompt)

    questions = [f"When was the designer of the Osk Tower number {number} born?" for number in range(16)]
    with dspy.context(lm=scripted_lm(numbered)):
        serial = [timeless(program(question=question)) for question in questions]
        parallel = dspy.Parallel(num_threads=8, disable_progress_bar=True)
        results = parallel([(program, {"question": question}) for question in questions])
    assert [record["answer"] for record in serial] == [str(number) for number in range(16)]
    assert [timeless(result) for result in results] == serial


# --- teleprompters ----------------------------------------------------------------------------------------------------


def trainset() -> list[dspy.Example]:
    return [dspy.Example(question=QUESTION, answer="1871").with_inputs("question")]


def compiled(program: Solver) -> Solver:
    optimizer = dspy.BootstrapFewShot(
        metric=lambda example, prediction, trace=None: prediction.answer == example.answer,
        max_bootstrapped_demos=1,
        max_labeled_demos=0,
    )
    with dspy.context(lm=scripted_lm(script())):
        return optimizer.compile(program, trainset=trainset())


def test_bootstrapping_yields_demos_and_keeps_the_settings(program: Solver, index: Any, tmp_path: Path) -> None:
    program.settings.update(k=2)
    student = compiled(program)
    (demo,) = last_predictor(student).demos
    assert demo["answer"] == "1871"
    assert demo["question"] == QUESTION
    assert student.settings.values.k == 2
    assert all(not predictor.demos for predictor in program.predictors())
    for predictor in student.predictors():
        for found in predictor.demos:
            assert "logprobs" not in found
            assert set(found.keys()) <= {"augmented", *predictor.signature.fields}
    assert "logprobs" not in saved(student, tmp_path / "program.json").read_text()


def test_bootstrapping_learns_from_accepted_steps_only(index: Any) -> None:
    student = compiled(ActiveQA(index))
    assert student.draft.demos == []  # both drafts were rejected
    assert student.plan.demos == []
    assert [demo["conclusion"] for demo in student.read.demos] in (["Mira Dol"], ["1871"])
    assert len(student.next_sub_question.demos) == 1


def test_a_compiled_program_shows_its_demos_and_can_be_loaded(
    make: Make, program: Solver, index: Any, tmp_path: Path
) -> None:
    student = compiled(program)
    path = saved(student, tmp_path / "program.json")
    fresh = make(index)
    fresh.load(path)
    first, second = scripted_lm(script()), scripted_lm(script())
    other = "When was the builder of the Osk Tower born?"
    assert timeless(run(student, first, other)) == timeless(run(fresh, second, other))
    assert first.engine.prompts == second.engine.prompts
    assert QUESTION in first.engine.prompts[-1]


def test_labelled_demos_go_to_the_last_step_only(program: Solver) -> None:
    student = dspy.LabeledFewShot(k=1).compile(program, trainset=trainset())
    lm = scripted_lm(script())
    other = "When was the builder of the Osk Tower born?"
    run(student, lm, other)
    assert QUESTION in lm.engine.prompts[-1]
    assert not any("None" in prompt for prompt in lm.engine.prompts)


def test_evaluate(program: Solver) -> None:
    evaluate = dspy.Evaluate(
        devset=trainset() * 3,
        metric=lambda example, prediction, trace=None: float(prediction.answer == example.answer),
        num_threads=2,
        display_progress=False,
    )
    with dspy.context(lm=scripted_lm(script())):
        assert evaluate(program).score == 100.0
