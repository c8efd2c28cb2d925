"""What DSPy expects of a module, asked of every program alike."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import dspy
import pytest
from dspy.utils.callback import BaseCallback

from hopgate.core import InputError, RetrievalError, StateError
from hopgate.lms.testing import Reply, scripted_lm
from hopgate.programs import RAG, ActiveQA, Solver, Trajectory
from hopgate.programs.registry import PROGRAMS, make_program

Make = Callable[..., Solver]
QUESTION = "When was the designer of the Osk Tower born?"
REJECTED = ("Ann Ort", "1902")
"""Words of what the LM is not sure of, which is never part of an answer."""


@dataclass(frozen=True)
class Expected:
    """What a program does with :func:`script`.

    Attributes:
        calls: LM calls.
        retrievals: Searches.
        hops: Hops of its trajectory.
        answering: Its predictors that write an answer.
        settings: Settings that it is made with.
    """

    calls: int
    retrievals: int
    hops: int
    answering: tuple[str, ...]
    settings: dict[str, Any] = field(default_factory=dict)


# A new program needs a row here, and in `script` a branch for each label that it makes the LM write behind.
EXPECTED: dict[str, Expected] = {
    "active": Expected(8, 2, 2, ("compose",)),
    "always": Expected(6, 2, 2, ("compose",)),
    "never": Expected(6, 0, 2, ("compose",)),
    "static": Expected(6, 2, 2, ("compose",)),
    "fused": Expected(6, 2, 2, ("compose",)),
    "escalation": Expected(10, 3, 3, ("compose", "recall", "respond")),
    "rag": Expected(1, 1, 0, ("respond",)),
    "ircot": Expected(3, 2, 2, ("respond",)),
    "react": Expected(4, 2, 3, ("extract.predict",)),
    "react-plus": Expected(7, 2, 2, ("compose",)),
    "self-ask": Expected(6, 2, 2, ("respond",)),
    # One passage at a time, so that the second sentence needs a search.
    "flare": Expected(4, 2, 3, ("respond",), {"k": 1}),
    "dr3": Expected(9, 2, 2, ("solver.compose",)),
    "dr3-escalation": Expected(12, 3, 3, ("solver.compose", "solver.recall", "solver.respond")),
    "direct": Expected(1, 0, 0, ("respond",)),
    "cot": Expected(1, 0, 0, ("respond.predict",)),
    "self-consistency": Expected(5, 0, 5, ("respond.predict",)),
}
HOPPING = [name for name, expected in EXPECTED.items() if expected.hops]


def test_every_program_is_expected() -> None:
    assert set(EXPECTED) == set(PROGRAMS)


@pytest.fixture(params=PROGRAMS)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def make(name: str) -> Make:
    return lambda index, **settings: make_program(name, index, **{**EXPECTED[name].settings, **settings})


@pytest.fixture
def program(make: Make, index: Any) -> Solver:
    return make(index)


def script(answer: str = "1871") -> Callable[[str], Reply]:
    """What the LM says to any of the programs: two steps that it is unsure of until it has read the passages."""
    tasks = ("Who designed the Osk Tower?", "When was Mira Dol born?")

    def reply(prompt: str) -> Reply:
        last = prompt.rsplit("\n", 1)[-1].removeprefix("assistant: ")
        found = re.match(r"([A-Z][A-Za-z ]*?)(?: (\d+))?:", last)
        assert found is not None, prompt[-300:]
        label, number = found[1], int(found[2] or 0)
        asked = prompt[prompt.rindex("Question: ") :]
        if label in ("Answer", "So the final answer is"):
            # Sure only once all is known.
            return Reply(answer, -0.1 if "Conclusion 2" in asked else -3.0)
        if label == "Reasoning":
            return Reply(f" She was.\nAnswer: {answer}")
        if label == "Plan":
            return Reply(f"{tasks[0]} | When was #1 born?")
        if label == "Task":
            return task(prompt, number)
        if label == "Conclusion":
            return conclude(number, "\nFound:" in asked.rsplit("\nTask", 1)[-1])
        if label == "Thought":
            return thought(prompt, asked, number)
        if label == "Are follow up questions needed here":
            done = asked.count("Intermediate answer:")
            return Reply("No." if done == len(tasks) else f"Yes. Follow up: {tasks[done]}")
        if label == "Intermediate answer":
            return conclude(asked.count("Follow up:"), "\nFound:" in asked.rsplit("Follow up:", 1)[-1])
        return Reply({"Kinds": "a year", "Answer is": "a year\nFits: yes", "Fits": "yes"}[label])

    def task(prompt: str, number: int) -> Reply:
        if number > len(tasks):
            return Reply("none")
        asked = tasks[number - 1]
        if "\nAction 1:" in prompt:  # in the worked examples
            return Reply(f"{asked}\nAction {number}: {asked}")
        # The second line is the draft of a fused hop; other programs read the first line only.
        return Reply(f"{asked}\nConclusion {number}: {REJECTED[number - 1]}", -3.0)

    def conclude(number: int, read: bool) -> Reply:
        if not read:
            return Reply(REJECTED[number - 1], -3.0)
        return Reply(("Mira Dol", answer)[number - 1])

    def thought(prompt: str, asked: str, number: int) -> Reply:
        if "Tool Name" in prompt:
            if number > len(tasks):
                return Reply(f"It is {answer}.\nTool Name {number}: finish\nTool Args {number}: {{}}")
            arguments = json.dumps({"query": tasks[number - 1]})
            return Reply(f"I need that.\nTool Name {number}: search\nTool Args {number}: {arguments}")
        # Whatever was found, the third sentence ends it.
        known = ("designed by Mira Dol", "was born in 1871", "")[number - 1] in asked
        if number == 1:
            return Reply("Mira Dol designed it.") if known else Reply("It was designed by Ann Ort.", -3.0)
        return Reply(f"So the answer is: {answer}.") if known else Reply("Mira Dol was born in 1902.", -3.0)

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
    assert len(result.trajectory.hops) == EXPECTED[name].hops
    assert result.cost == result.trajectory.cost
    assert result.cost.lm_calls == EXPECTED[name].calls
    assert result.cost.retrievals == EXPECTED[name].retrievals
    assert result.cost.prompt_tokens > 0
    assert result.cost.billed_tokens == result.cost.prompt_tokens + result.cost.completion_tokens
    text = json.dumps(result.trajectory.to_dict(), allow_nan=False)
    assert Trajectory.from_dict(json.loads(text)) == result.trajectory


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
    assert name in HOPPING or result.trajectory.stop_reason == "empty"


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


# --- resuming ---------------------------------------------------------------------------------------------------------


def path_of(trajectory: Trajectory) -> Any:
    """A trajectory without what was spent."""

    def strip(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: strip(item) for key, item in value.items() if key not in ("cost", "other_cost")}
        return [strip(item) for item in value] if isinstance(value, list | tuple) else value

    return strip(trajectory.to_dict())


@pytest.mark.parametrize("name", HOPPING)
def test_resuming_from_any_prefix_gives_the_rest(program: Solver, name: str) -> None:
    whole, lm = run(program), scripted_lm(script())
    for hops in range(EXPECTED[name].hops + 1):
        record = json.loads(json.dumps(whole.trajectory.prefix(hops).to_dict()))
        lm = scripted_lm(script())
        with dspy.context(lm=lm):
            rest = program(question=QUESTION, trajectory=Trajectory.from_dict(record))
        assert path_of(rest.trajectory) == path_of(whole.trajectory), hops
        assert len(lm.engine.prompts) <= whole.cost.lm_calls
    assert len(lm.engine.prompts) < whole.cost.lm_calls  # all hops were there


@pytest.mark.parametrize("name", HOPPING)
def test_with_all_hops_there_only_the_answer_is_made(program: Solver, name: str) -> None:
    whole = run(program).trajectory
    asked = replace(whole, answer=None, answer_confidence=None, passages=())
    lm = scripted_lm(script())
    with dspy.context(lm=lm):
        again = program(question=QUESTION, trajectory=asked)
    assert again.answer == "1871"
    assert again.trajectory.hops == whole.hops
    judging = sum("Kinds:" in prompt for prompt in lm.engine.prompts)
    assert len(lm.engine.prompts) - judging <= 1


def test_whatever_fails_carries_the_trajectory_so_far(make: Make, name: str, index: Any) -> None:
    whole = run(make(index))
    for broken in range(EXPECTED[name].calls):
        left = iter(range(broken))

        def failing(prompt: str, left: Any = left) -> Reply:
            if next(left, None) is None:
                raise RuntimeError("the line is cut")
            return script()(prompt)

        try:
            survived = run(make(index), scripted_lm(failing))
        except dspy.LMError as error:
            reached = error.trajectory  # type: ignore[attr-defined]
        else:
            # What cannot be judged is still an answer.
            assert name.startswith("dr3") and survived.answer == "1871" and survived.verdict == "undecided"
            continue
        assert isinstance(reached, Trajectory) and reached.question == QUESTION
        with dspy.context(lm=scripted_lm(script())):
            rest = make(index)(question=QUESTION, trajectory=reached)
        assert path_of(rest.trajectory) == path_of(whole.trajectory), broken


@pytest.mark.parametrize("name", [name for name, expected in EXPECTED.items() if expected.retrievals])
def test_a_retriever_that_fails_is_told_and_carries_the_trajectory(make: Make, name: str) -> None:
    class Broken:
        def search(self, query: str, k: int) -> list[Any]:
            raise OSError("the disk is gone")

    with pytest.raises(RetrievalError, match="the disk is gone") as caught:
        run(make(Broken()))
    assert caught.value.trajectory.question == QUESTION  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", [name for name, expected in EXPECTED.items() if expected.retrievals])
def test_a_retriever_that_finds_nothing_is_no_crash(make: Make, name: str) -> None:
    class Nothing:
        def search(self, query: str, k: int) -> list[Any]:
            return []

    with dspy.context(lm=scripted_lm(lambda prompt: Reply("unknown", -3.0))):
        assert isinstance(make(Nothing())(question=QUESTION).answer, str)


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
    assert any("XYZZY" in prompt and "PLUGH" in prompt for prompt in lm.engine.prompts)


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


@pytest.mark.parametrize("made", [ActiveQA, RAG])
def test_settings_of_the_constructor(made: Make, index: Any) -> None:
    assert made(index, k=2).settings.values.k == 2
    for wrong in ({"k": 0}, {"unknown": 1}):
        with pytest.raises(InputError):
            made(index, **wrong)


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


def test_predictors_that_answer(program: Solver, name: str) -> None:
    named = program.named_predictors()
    assert tuple(found for found, p in named if "answer" in p.signature.output_fields) == EXPECTED[name].answering


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
    assert len(predictors) == EXPECTED[name].calls
    assert len(watch.ended) == len(watch.started)


def test_the_history_of_the_program_has_its_calls(program: Solver, name: str) -> None:
    run(program)
    assert len(program.history) == EXPECTED[name].calls


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
    assert len(lm.engine.prompts) == sent == EXPECTED[name].calls
    assert warm.answer == cold.answer
    moving = {"cached_calls": None, "billed_tokens": None, "seconds": None}
    assert {**asdict(warm.cost), **moving} == {**asdict(cold.cost), **moving}
    assert (cold.cost.cached_calls, warm.cost.cached_calls) == (0, EXPECTED[name].calls)
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


def test_nothing_is_parsed_as_python_while_it_runs(program: Solver) -> None:
    def refuse(source: Any, *_: Any, **__: Any) -> Any:
        # Before Python 3.11.8 threads that parse at once get a SystemError.
        raise SystemError(f"parses {source!r}")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ast.parse", refuse)
        prediction = run(program)
    assert prediction.trajectory.answer is not None


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


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name != "never"])  # that one accepts all drafts
def test_bootstrapping_learns_from_accepted_steps_only(program: Solver) -> None:
    student = compiled(program)
    demos = [json.dumps(demo.toDict()) for predictor in student.predictors() for demo in predictor.demos]
    assert demos
    assert not [demo for demo in demos if any(text in demo for text in REJECTED)]


def test_an_answer_that_was_corrected_is_no_demo(index: Any) -> None:
    def corrected(prompt: str) -> Reply:
        last, asked = prompt.rsplit("\n", 1)[-1], prompt[prompt.rindex("Question: ") :]
        if last.endswith(("Fits:", "Answer is:")):
            verdict = "no" if "Answer: Varn" in asked else "yes"
            return Reply(verdict if last.endswith("Fits:") else f"a thing\nFits: {verdict}")
        return script("1871" if "Hint:" in asked else "Varn")(prompt)

    program = make_program("dr3", index)
    optimizer = dspy.BootstrapFewShot(metric=lambda example, prediction, trace=None: True, max_labeled_demos=0)
    with dspy.context(lm=scripted_lm(corrected)):
        student = optimizer.compile(program, trainset=trainset())
    (demo,) = student.solver.compose.demos
    assert demo["answer"] == "1871"


def test_each_step_that_counts_becomes_a_demo(index: Any) -> None:
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
    assert any(QUESTION in prompt for prompt in first.engine.prompts)


def test_labelled_demos_go_to_the_last_step_only(program: Solver) -> None:
    student = dspy.LabeledFewShot(k=1).compile(program, trainset=trainset())
    lm = scripted_lm(script())
    other = "When was the builder of the Osk Tower born?"
    run(student, lm, other)
    assert any(QUESTION in prompt for prompt in lm.engine.prompts)
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
