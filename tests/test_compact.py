"""CompactAdapter: what it writes, what it reads back, and the transcript form that all steps of a program share."""

from __future__ import annotations

from typing import Any, Literal

import dspy
import pytest
from dspy.utils.exceptions import AdapterParseError
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hopgate.core import InputError
from hopgate.lms import CompactAdapter, compact
from hopgate.lms.testing import Reply, scripted_lm
from hopgate.programs import ActiveQA
from hopgate.signatures import (
    AnswerDirectly,
    ComposeAnswer,
    DraftConclusion,
    NextSubQuestion,
    NextTask,
    PlanSubQuestions,
    ReadConclusion,
)

ADAPTER = CompactAdapter()
ONE = dspy.Signature("question -> answer")
TWO = dspy.Signature("question -> reasoning, answer")


def round_trip(signature: type[dspy.Signature], values: dict[str, Any]) -> dict[str, Any]:
    return ADAPTER.parse(signature, ADAPTER.format_assistant_message_content(signature, values))


def contents(messages: list[dict[str, Any]]) -> str:
    return "\n".join(f"{message['role']}: {message['content']}" for message in messages)


# --- round trips ------------------------------------------------------------------------------------------------------

_LINES = ["Answer: x", "Reasoning:", "**Answer:** y", "  Answer: z", "plain", "", "[1] a", "\u2028", "- b"]
_ANY = st.one_of(st.text(max_size=40), st.lists(st.sampled_from(_LINES), max_size=4).map("\n".join))
_TEXTS = _ANY.map(str.strip).filter(bool)


@settings(deadline=None)
@example("one\u2028two")
@example("Answer: x")
@example("first\nAnswer: second")
@example("first\n\n  indented\nlast")
@example("first \nsecond")
@given(_TEXTS)
def test_a_text_comes_back_unchanged(text: str) -> None:
    assert round_trip(ONE, {"answer": text}) == {"answer": text}


@settings(deadline=None)
@example("first\nAnswer: wrong", "right")
@example("Reasoning: really", "Reasoning: yes")
@given(_TEXTS, _TEXTS)
def test_two_texts_come_back_unchanged(reasoning: str, answer: str) -> None:
    values = {"reasoning": reasoning, "answer": answer}
    assert round_trip(TWO, values) == values


@settings(deadline=None)
@given(st.integers(), st.booleans(), st.sampled_from(["yes", "no", "unknown"]), st.lists(st.integers(), max_size=4))
def test_other_types_come_back_unchanged(number: int, flag: bool, choice: str, items: list[int]) -> None:
    class Typed(dspy.Signature):
        question: str = dspy.InputField()
        number: int = dspy.OutputField()
        flag: bool = dspy.OutputField()
        choice: Literal["yes", "no", "unknown"] = dspy.OutputField()
        items: list[int] = dspy.OutputField()

    values = {"number": number, "flag": flag, "choice": choice, "items": items}
    assert round_trip(Typed, values) == values


@pytest.mark.parametrize("names", [["Ann", "Bob, Jr."], [], ["line\nbreak", 'a "quoted" one'], ["é", "日本"]])
def test_a_list_of_texts_comes_back_unchanged(names: list[str]) -> None:
    assert round_trip(dspy.Signature("question -> names: list[str]"), {"names": names}) == {"names": names}


@pytest.mark.parametrize("reasoning", [None, "Since it is so."])
def test_an_optional_field_may_be_left_out(reasoning: str | None) -> None:
    signature = dspy.Signature("question -> reasoning: Optional[str], answer")
    assert round_trip(signature, {"reasoning": reasoning, "answer": "x"}) == {"reasoning": reasoning, "answer": "x"}


# --- reading what a model writes --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "completion",
    [
        "Paris",
        " Paris\n",
        "Answer: Paris",
        "answer: Paris",
        "**Answer:** Paris",
        "**Answer**: Paris",
        "Answer:\nParis",
        "Answer: Paris\nAnswer: Rome",
    ],
)
def test_the_label_may_be_given_or_not(completion: str) -> None:
    assert ADAPTER.parse(ONE, completion) == {"answer": "Paris"}


def test_a_chat_model_may_say_something_before_the_label() -> None:
    lm = scripted_lm(lambda prompt: "Sure, here it is:\n\nAnswer: Paris", continues_assistant=False)
    with dspy.context(lm=lm):
        assert dspy.Predict(ONE)(question="Capital of France?").answer == "Paris"


def test_the_first_label_may_be_missing_when_the_prompt_gave_it() -> None:
    assert ADAPTER.parse(TWO, " It is known.\nAnswer: Paris") == {"reasoning": "It is known.", "answer": "Paris"}


def test_lines_of_a_value_need_no_indent() -> None:
    parsed = ADAPTER.parse(TWO, "Reasoning: One.\nTwo: three.\nFour.\nAnswer: Paris")
    assert parsed == {"reasoning": "One.\nTwo: three.\nFour.", "answer": "Paris"}


@pytest.mark.parametrize(
    ("signature", "completion"),
    [
        ("question -> answer", ""),
        ("question -> answer", "  \n "),
        ("question -> answer", "Answer:"),
        ("question -> reasoning, answer", "Reasoning: It is known."),
        ("question -> answer: int", "Answer: many"),
        ("question -> answer: Literal['yes', 'no']", "Answer: maybe"),
        ("question -> answer: list[int]", "Answer: [1, two]"),
    ],
)
def test_what_cannot_be_read_is_a_parse_error(signature: str, completion: str) -> None:
    with pytest.raises(AdapterParseError):
        ADAPTER.parse(dspy.Signature(signature), completion)


@pytest.mark.parametrize(
    "prefix",
    [
        "Final answer:",
        "Final answer",
        "1) Answer:",
        "Short answer (a name, a date or a number):",
        "Answer, for example: Rome. Yours:",
        "The final and short answer to the question above, which is a name, a date or a number:",
        "→ Answer:",
    ],
)
def test_any_prefix_that_an_optimizer_may_set_is_read_back(prefix: str) -> None:
    signature = ONE.with_updated_fields("answer", prefix=prefix)
    request = ADAPTER.format(signature, [], {"question": "Where?"})[-1]["content"]
    label = prefix if prefix.endswith(":") else f"{prefix}:"
    assert label in request
    assert ADAPTER.parse(signature, f"{label} Paris") == {"answer": "Paris"}
    assert round_trip(signature, {"answer": "Paris"}) == {"answer": "Paris"}


# --- writing ----------------------------------------------------------------------------------------------------------


def test_passages_are_numbered_lines() -> None:
    signature = dspy.Signature("passages: list[str], question -> answer")
    content = ADAPTER.format(signature, [], {"passages": ["A | one", 'B | "two"\nmore'], "question": "Where?"})[-1]
    assert '[1] A | one\n[2] B | "two"\n\u2502 more\nQuestion: Where?' in content["content"]


def test_no_passages_are_none() -> None:
    signature = dspy.Signature("passages: list[str], question -> answer")
    assert "Passages: none" in ADAPTER.format(signature, [], {"passages": [], "question": "Where?"})[-1]["content"]


def test_instruction_type_and_description_are_told() -> None:
    class Counted(dspy.Signature):
        """Count the towers."""

        question: str = dspy.InputField()
        answer: int = dspy.OutputField(desc="towers that still stand")

    system = ADAPTER.format(Counted, [], {"question": "How many?"})[0]
    assert system["role"] == "system"
    for part in ("Count the towers.", "int", "towers that still stand"):
        assert part in system["content"]


def test_demos_complete_and_incomplete() -> None:
    demos = [
        {"question": "Capital of France?", "reasoning": "Known.", "answer": "Paris"},
        {"question": "Capital of Italy?", "answer": "Rome"},
    ]
    messages = ADAPTER.format(TWO, demos, {"question": "Capital of Spain?"})
    written = contents(messages)
    assert "assistant: Reasoning: Known.\nAnswer: Paris" in written
    assert "Question: Capital of Italy?" in written
    assert "assistant: Answer: Rome" in written
    assert "Capital of Spain?" in messages[-1]["content"]
    assert [message["role"] for message in messages].count("user") == 3


def test_a_demo_is_written_as_a_reply_is_read() -> None:
    demos = [{"question": "Capital of France?", "reasoning": "Known.\nWell known.", "answer": "Paris"}]
    reply = next(m["content"] for m in ADAPTER.format(TWO, demos, {"question": "?"}) if m["role"] == "assistant")
    assert ADAPTER.parse(TWO, reply) == {"reasoning": "Known.\nWell known.", "answer": "Paris"}


@pytest.mark.parametrize("continues", [True, False])
def test_a_history_becomes_turns(continues: bool) -> None:
    class Talk(dspy.Signature):
        history: dspy.History = dspy.InputField()
        question: str = dspy.InputField()
        answer: str = dspy.OutputField()

    lm = scripted_lm(lambda prompt: "Rome", continues_assistant=continues)
    history = dspy.History(messages=[{"question": "Capital of France?", "answer": "Paris"}])
    with dspy.context(lm=lm):
        assert dspy.Predict(Talk)(question="And of Italy?", history=history).answer == "Rome"
    prompt = lm.engine.prompts[0]
    assert "user: Question: Capital of France?" in prompt
    assert "assistant: Answer: Paris" in prompt
    assert prompt.index("Paris") < prompt.index("And of Italy?")
    assert prompt.count("And of Italy?") == 1


# --- the label, and where a reply ends --------------------------------------------------------------------------------


class Spy:
    """Keeps the requests of a scripted engine."""

    def __init__(self, lm: dspy.LM) -> None:
        self.requests: list[Any] = []
        complete = lm.engine.complete

        def spied(request: Any) -> Any:
            self.requests.append(request)
            return complete(request)

        lm.engine.complete = spied


def test_an_engine_that_continues_is_given_the_label() -> None:
    lm = scripted_lm(lambda prompt: " Paris", continues_assistant=True)
    spy = Spy(lm)
    with dspy.context(lm=lm):
        assert dspy.Predict(AnswerDirectly)(question="Where?").answer == "Paris"
    last = spy.requests[0].messages[-1]
    assert (last.role, last.text) == ("assistant", "Answer:")
    assert spy.requests[0].config.stop == ("\n",)
    assert spy.requests[0].config.max_tokens == 96


def test_a_chat_model_is_asked_for_the_label() -> None:
    lm = scripted_lm(lambda prompt: "Answer: Paris", continues_assistant=False)
    spy = Spy(lm)
    with dspy.context(lm=lm):
        assert dspy.Predict(ONE)(question="Where?").answer == "Paris"
    last = spy.requests[0].messages[-1]
    assert last.role == "user"
    assert "`Answer:`" in last.text
    assert not spy.requests[0].config.stop


def test_several_lines_end_where_the_signature_says() -> None:
    for continues, stop, limit in ((True, ("\nFound:", "\nConclusion", "\nAnswer:"), 2 * 96), (False, (), None)):
        lm = scripted_lm(lambda prompt: " Who?\nAction 1: whoever", continues_assistant=continues)
        spy = Spy(lm)
        with dspy.context(lm=lm):
            found = dspy.Predict(NextTask)(question="Where?", trajectory="")
        assert (found.task, found.action) == ("Who?", "whoever")
        assert (tuple(spy.requests[0].config.stop or ()), spy.requests[0].config.max_tokens) == (stop, limit)


def test_limits_of_the_call_win() -> None:
    lm = scripted_lm(lambda prompt: " Paris")
    spy = Spy(lm)
    with dspy.context(lm=lm):
        dspy.Predict(AnswerDirectly)(question="Where?", config={"max_tokens": 7, "stop": ["END"]})
        dspy.Predict(AnswerDirectly)(question="Where?", config={"max_tokens": 7})
    assert (spy.requests[0].config.max_tokens, spy.requests[0].config.stop) == (7, ("END",))
    assert (spy.requests[1].config.max_tokens, spy.requests[1].config.stop) == (7, ("\n",))


@pytest.mark.parametrize("continues", [True, False])
def test_a_subclass_keeps_what_it_overrides(continues: bool) -> None:
    class Mine(CompactAdapter):
        def format_system_message(self, signature: type[dspy.Signature]) -> str:
            return "Mind the XYZZY."

    lm = scripted_lm(lambda prompt: " Paris", continues_assistant=continues)
    with dspy.context(lm=lm, adapter=Mine()):
        dspy.Predict(ONE)(question="Where?")
    assert "XYZZY" in lm.engine.prompts[0]


@pytest.mark.parametrize("case", ["two outputs", "not text", "a longer text"])
def test_longer_outputs_do_not_end_with_their_line(case: str) -> None:
    replies = {"two outputs": " r\nAnswer: x", "not text": " [1,\n2]", "a longer text": " a\nb"}
    signatures = {"two outputs": TWO, "not text": dspy.Signature("question -> items: list[int]"), "a longer text": ONE}
    lm = scripted_lm(lambda prompt: replies[case])
    spy = Spy(lm)
    with dspy.context(lm=lm, adapter=CompactAdapter()):
        dspy.Predict(signatures[case])(question="Where?")
    assert not spy.requests[0].config.stop


def test_sync_and_async_send_the_same_prompt() -> None:
    import asyncio

    lm = scripted_lm(lambda prompt: " Paris")
    with dspy.context(lm=lm):
        assert dspy.Predict(ONE)(question="Where?").answer == "Paris"
        assert asyncio.run(dspy.Predict(ONE).acall(question="Where?")).answer == "Paris"
    assert lm.engine.prompts[0] == lm.engine.prompts[1]


# --- the transcript form ----------------------------------------------------------------------------------------------

QUESTION = "When was the designer of the Osk Tower born?"
CALLS = ["next_sub_question", "draft", "read", "next_sub_question", "draft", "read", "next_sub_question", "compose"]
REPLIES = [
    "Who designed the Osk Tower?", "Ann Ort", "Mira Dol", "When was Mira Dol born?", "1902", "1871", "none", "in 1871"
]  # fmt: skip
FIELDS = {"next_sub_question": "sub_question", "draft": "draft", "read": "conclusion", "compose": "answer"}


def run(index: Any, change: Any = None, *, continues: bool = True, **options: Any) -> list[str]:
    """The prompts of one run with two hops that search, whatever the prompts say."""
    replies = iter(REPLIES)
    lm = scripted_lm(lambda prompt: Reply(next(replies), -5.0), continues_assistant=continues)
    program = ActiveQA(index, **options)
    if change:
        change(program)
    with dspy.context(lm=lm):
        assert program(question=QUESTION).answer == "in 1871"
    assert len(lm.engine.prompts) == len(CALLS)
    return lm.engine.prompts


def test_all_steps_share_one_prefix_and_history_only_grows(index: Any) -> None:
    prompts = run(index)
    start = prompts[0].removesuffix("Task 1:")
    assert start != prompts[0]
    assert f"user: Question: {QUESTION}" in start
    assert "Example:" in start
    assert all(prompt.startswith(start) for prompt in prompts)
    # What a step wrote stands in the next prompt where it was written.
    for asked, read, sub_question in ((0, 2, REPLIES[0]), (3, 5, REPLIES[3])):
        assert prompts[read].startswith(f"{prompts[asked]} {sub_question}\nFound: ")
    assert prompts[3].startswith(f"{prompts[2]} Mira Dol\n")
    assert prompts[6].startswith(f"{prompts[5]} 1871\n")


def test_labels_are_numbered(index: Any) -> None:
    last = [prompt.rsplit("\n", 1)[-1].removeprefix("assistant: ") for prompt in run(index)]
    assert last == [
        "Task 1:", "Conclusion 1:", "Conclusion 1:", "Task 2:", "Conclusion 2:", "Conclusion 2:", "Task 3:", "Answer:"
    ]  # fmt: skip


def test_a_numbered_label_is_read_back() -> None:
    for completion in ("Conclusion 2: 1871", "Conclusion #: 1871", "1871"):
        assert ADAPTER.parse(DraftConclusion, completion) == {"draft": "1871"}


@pytest.mark.parametrize("continues", [True, False])
@pytest.mark.parametrize("what", ["instruction", "prefix", "demos"])
@pytest.mark.parametrize("step", FIELDS)
def test_a_change_of_one_predictor_reaches_exactly_its_prompts(
    index: Any, step: str, what: str, continues: bool
) -> None:
    def change(program: ActiveQA) -> None:
        predictor = getattr(program, step)
        if what == "instruction":
            predictor.signature = predictor.signature.with_instructions("Mind the XYZZY.")
        elif what == "prefix":
            predictor.signature = predictor.signature.with_updated_fields(FIELDS[step], prefix="XYZZY:")
        else:
            predictor.demos = [{"question": "Why?", "trajectory": "Task 1: Who?", FIELDS[step]: "XYZZY"}]

    before, after = run(index, continues=continues), run(index, change, continues=continues)
    changed = [call for call, left, right in zip(CALLS, before, after, strict=True) if left != right]
    assert changed == [call for call in CALLS if call == step]
    assert all(("XYZZY" in prompt) == (call == step) for call, prompt in zip(CALLS, after, strict=True))


def test_a_changed_instruction_of_the_plan_reaches_its_prompt(index: Any) -> None:
    lm = scripted_lm(lambda prompt: "Who designed the Osk Tower?" if prompt.endswith("Plan:") else Reply("x", -0.1))
    program = ActiveQA(index)
    program.settings.update(decomposer="plan")
    program.plan.signature = program.plan.signature.with_instructions("Mind the XYZZY.")
    with dspy.context(lm=lm):
        program(question=QUESTION)
    assert ["XYZZY" in prompt for prompt in lm.engine.prompts] == [True, *[False] * (len(lm.engine.prompts) - 1)]


def test_shared_examples_are_written_once() -> None:
    shared = {"transcript": "Question: q1\nAnswer: a1"}
    own = {"question": "q2", "trajectory": "Task 1: t", "answer": "a2"}
    system = ADAPTER.format(ComposeAnswer, [shared, shared, own], {"question": "q", "trajectory": ""})[0]["content"]
    assert system.count("Question: q1") == 1
    assert "Example:\nQuestion: q2\nTask 1: t\nAnswer: a2" in system


@pytest.mark.parametrize(
    "signature", [NextSubQuestion, PlanSubQuestions, DraftConclusion, ReadConclusion, ComposeAnswer]
)
def test_hosted_models_get_turns(signature: type[dspy.Signature]) -> None:
    text = "Task 1: Who?\nConclusion 1: Ann\nTask 2: When?"
    messages = ADAPTER.format(signature, [], {"question": "q?", "trajectory": text})
    assert [message["role"] for message in messages] == ["system", "user", "assistant", "user"]
    assert messages[2]["content"] == text
    assert " ".join(signature.instructions.split()) in messages[3]["content"]
    assert "#:" not in messages[3]["content"]
    without = ADAPTER.format(signature, [], {"question": "q?", "trajectory": ""})
    assert [message["role"] for message in without][-1] == "user"
    assert all(message["content"] for message in without)


def test_hosted_models_are_asked_for_numbered_lines(index: Any) -> None:
    prompts = run(index, continues=False)
    assert "`Conclusion 1:`" in prompts[1].rsplit("\n", 1)[-1]
    assert "`Task 2:`" in prompts[3].rsplit("\n", 1)[-1]


@pytest.mark.parametrize(
    "completion",
    [
        "Answer: Varn\n\nExplanation: because I know it.",
        "- Answer: Varn",
        "### Answer:\nVarn",
        "`Answer:` Varn",
        "  Answer: Varn",
        "Of course.\n\n**Answer**: Varn",
        "Answer: **Varn**",
        "Answer: `Varn`",
        "Varn\nI hope this helps.",
    ],
)
def test_a_short_answer_is_found_in_what_a_chat_model_says(completion: str) -> None:
    assert ADAPTER.parse(AnswerDirectly, completion) == {"answer": "Varn"}


def test_the_number_of_a_label_may_be_left_out() -> None:
    assert ADAPTER.parse(DraftConclusion, "Conclusion: Mira Lund") == {"draft": "Mira Lund"}


@pytest.mark.parametrize("code", ["def f():\n    if x:\n        return 1\n    return 2", "a\n  b", "x\n | y |\n | z |"])
def test_what_the_lm_indents_stays_as_it_is(code: str) -> None:
    assert ADAPTER.parse(dspy.Signature("question -> code"), f"Code: {code}") == {"code": code}


def test_labelled_demos_without_an_output_of_the_step_are_left_out() -> None:
    demo = {"question": "XYZZY", "answer": "a"}
    text = "".join(m["content"] for m in ADAPTER.format(NextSubQuestion, [demo], {"question": "q", "trajectory": ""}))
    assert "XYZZY" not in text


@pytest.mark.parametrize("kind", ["dspy.Image", "dspy.History"])
def test_a_transcript_takes_text_only(kind: str) -> None:
    signature = dspy.Signature(f"extra: {kind}, trajectory: str -> answer")
    with pytest.raises(InputError, match="extra"):
        ADAPTER.format(signature, [], {"trajectory": ""})


def slow_parse(signature: type[dspy.Signature], completion: str, *, continues: bool) -> dict[str, Any]:
    """What `parse` finds in labelled lines, said plainly and without care for time."""
    names = list(signature.output_fields)
    found: dict[str, list[str]] = {name: [] for name in names}
    current: str | None = names[0]
    seen = False
    for line in completion.strip().split("\n"):
        name = next((name for name in names if line.startswith(f"{name.title()}:")), None)
        if name is None:
            if current is not None:
                found[current].append(line)
            continue
        current = None if "".join(found[name]).strip() else name
        if name == names[0] and not continues and not seen:
            current = name
        seen = True
        if current is not None:
            found[current] = [line.partition(":")[2].strip()]
    texts = {name: "\n".join(lines).strip() for name, lines in found.items()}
    return {name: text for name, text in texts.items() if text}


@given(
    st.lists(st.sampled_from(["Reasoning:", "Reasoning: a", "Answer:", "Answer: b", "", " ", "c", "d"])), st.booleans()
)
def test_labelled_lines_in_any_order(lines: list[str], continues: bool) -> None:
    adapter = CompactAdapter()
    adapter._continues = continues
    completion = "\n".join(lines)
    expected = slow_parse(TWO, completion, continues=continues)
    if set(expected) == {"reasoning", "answer"}:
        assert adapter.parse(TWO, completion) == expected
    else:
        with pytest.raises(AdapterParseError):
            adapter.parse(TWO, completion)


def test_work_grows_with_the_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forty thousand lines, each label thousands of times: work by the square would take minutes."""
    made: list[str] = []
    original = compact.label_pattern
    monkeypatch.setattr(compact, "label_pattern", lambda label: made.append(label) or original(label))
    long = "\n".join(f"line {number} of the reasoning" for number in range(20_000))
    completion = f"Reasoning: {long}\n" + "Reasoning: again\n" * 20_000 + "Answer: Paris\n" + "Answer: Rome\n" * 20_000
    parsed = CompactAdapter().parse(TWO, completion)
    assert parsed == {"reasoning": long, "answer": "Paris"}
    assert made == ["Reasoning:", "Answer:"]
