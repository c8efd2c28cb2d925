"""The calculator: what it evaluates, what it refuses, when it is asked, and what a hop does with it."""

from __future__ import annotations

import ast
import math
from contextlib import suppress
from datetime import date, timedelta
from typing import Any

import dspy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopgate.lms.testing import Reply, scripted_lm
from hopgate.programs import ActiveQA, Hop, Trajectory
from hopgate.programs.calculator import calculable
from hopgate.programs.expressions import CalculationError, calculate

QUESTION = "How many years before the Osk Tower was Mira Dol born?"
days = st.dates(date(1000, 1, 1), date(2200, 1, 1))


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("1911 - 1871", "40"),
        ("7 / 2", "3.5"),
        ("10 / 4 * 2", "5"),
        ("-(3 + 4) % 5", "3"),
        ("2 ** 10", "1024"),
        ("0.1 + 0.2", "0.3"),
        ("1911 < 1974", "yes"),
        ("1911 == 1974 or not 3 > 2", "no"),
        ('"Brahms" if 1833 < 1813 else "Verdi"', "Verdi"),
        ('"A" if date("4 May 1868") < date("1871") else "B"', "A"),
        ('Mira Dol if date("12 March 1903") < date("1898") else Ann Ort', "Ann Ort"),
        ("3 if 1 < 2 else 4", "3"),
        ('years("4 May 1868", "3 May 1940")', "71"),
        ('years("4 May 1868", "4 May 1940")', "72"),
        ('years("1940", "May 4, 1868")', "72"),
        ("years(1868, 1940)", "72"),
        ('date("4 May 1868") < 1900', "yes"),
        ('date("1868") == date("1868")', "yes"),
        ('days("1 March 1900", "28 February 1900")', "1"),
        ('earlier("4 May 1868", "1867")', "1867"),
        ('later("4 May 1868", "3 May 1868")', "4 May 1868"),
        ('date("1868")', "1868"),
        ('count("Oslo", "Rome", "Oslo")', "2"),
        ("max(3, 12, 7)", "12"),
        ("round(10 / 3)", "3"),
        ("abs(3 - 12)", "9"),
    ],
)
def test_values(expression: str, value: str) -> None:
    assert calculate(expression) == value


@pytest.mark.parametrize(
    "expression",
    [
        "", "none", "Mira Dol", "1911 -", "1; 2", "x = 1", "lambda: 1", "[1, 2]", "{1: 2}", "[n for n in (1, 2)]",
        "__import__('os')",
        "().__class__", "'a'.upper()", "f'{1}'", "'abc'[0]", "open('x')", "eval('1')", "date.text",
        "max", "True.real", "1 if", "9 ** 9 ** 9", "2 ** 65", "(10 ** 14) ** 60", "1e308 * 10", "1 / 0",
        "2 ** 0.5 ** -99",
        "'a' * 1000000", "'a' + 'b'", "'a' - 1", "1 << 9", "7 ~ 2", "max()", "max(1)", "min('a', 1)", "''",
        "' '", "'Mira Dol'", "7",
        'date("Oslo")', 'date("May")', 'date("")', "date(12)", 'date("4 May")', 'date("1868") + 1',
        'days("1868", "1940")', 'years("Oslo", "1940")', 'earlier("May 1868", "1868")', "earlier()",
        'date("1868") < date("4 May 1868")', 'date("1868") < 5', "1868-10-12", "1868-05-04", "(" * 150 + ")" * 20,
        "((((((1", "1 +" * 70 + "1", "\x00", "1\n2", "1_0j", "None", "...", "round(1e400)", "-'a'",
    ],
)  # fmt: skip
def test_what_cannot_be_calculated_is_one_error(expression: str) -> None:
    with pytest.raises(CalculationError) as caught:
        calculate(expression)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ('"4 May 1868" < "3 May 1940"', "yes"),
        ('"4 May 1868" > "1868-05-03"', "yes"),
        ('"4 May 1868" >= "May 4, 1868"', "yes"),
        ('"4 May 1868" == "1868-05-04"', "yes"),
        ('"4 May 1868" != "1868-05-04"', "no"),
        ('"9" < "10"', "yes"),
        ('"1,500" < "900"', "no"),
        ('"1500" == 1500', "yes"),
        ('"1868" < "3 May 1940"', "yes"),
        ('"4 May 1868" < 1900', "yes"),
        ('"Oslo" == "Oslo"', "yes"),
        ('"Oslo" != "Rome"', "yes"),
        ('max("9", "10")', "10"),
        ('min("4 May 1940", "5 May 1868")', "5 May 1868"),
        ('count(date("4 May 1868"), date("1868-05-04"))', "1"),
        ('count("4 May 1868", date("1868-05-04"), "May 4, 1868")', "1"),
        ('count("4 May 1868", "5 May 1868", 1, "1", "Oslo")', "4"),
    ],
)
def test_texts_are_compared_as_the_numbers_or_dates_that_they_are(expression: str, value: str) -> None:
    assert calculate(expression) == value


@pytest.mark.parametrize("operator", ["<", "<=", ">", ">="])
@pytest.mark.parametrize(
    ("left", "right"),
    [('"Brahms"', '"Verdi"'), ('"Brahms"', "5"), ('"Brahms"', '"4 May 1868"'), ('"4 May"', '"5 May"')],
)
def test_texts_that_are_neither_have_no_order(operator: str, left: str, right: str) -> None:
    for expression in (f"{left} {operator} {right}", f"{right} {operator} {left}", f"max({left}, {right})"):
        with pytest.raises(CalculationError):
            calculate(expression)


@given(days, days)
def test_texts_of_dates_are_in_the_order_of_time(left: date, right: date) -> None:
    first, second = f'"{left.day} {left:%B} {left.year}"', f'"{right}"'
    assert calculate(f"{first} < {second}") == ("yes" if left < right else "no")
    assert calculate(f"{first} == {second}") == ("yes" if left == right else "no")
    assert calculate(f"count(date({first}), date({second}))") == ("1" if left == right else "2")


@pytest.mark.parametrize(
    "expression",
    [
        "round(5, -99*99*99*9)", "round(5, 99*99*99*9)", "round(5.5, -99*99*99*99)", "round(5, 0.5)", "round('5')",
        "round(5, -16)", "round(2 ** 64, -99 ** 9)", 'round("a", 1)', "round(date('1868'))",
        "0 ** -1", "2 ** -99999", "abs('a')", "max('abc')", "min('abc')", "max(7)", "count(*'abc')",
    ],
)  # fmt: skip
def test_no_argument_makes_a_function_run_on(expression: str) -> None:
    with pytest.raises(CalculationError):
        calculate(expression)


@pytest.mark.parametrize("piece", ["a", " if ", " else ", "a if ", " else a", "a if b else ", "1+", "(", "9", " "])
def test_a_long_expression_is_refused_before_it_is_read(piece: str) -> None:
    with pytest.raises(CalculationError):
        calculate("x" + piece * 100_000 + "x", known="1,234 and 5,678 " * 1000)


@pytest.mark.parametrize(
    "expression",
    [
        '"5" in "15"',
        '"5" not in "15"',
        "1 is 1",
        "1 is not 2",
        "3 if 1 is 2 else 4",
        "1 > 2 > (1 in 2)",
        "1 @ 2",
        "1 | 2",
    ],
)
def test_an_operator_that_is_not_offered_is_that_error(expression: str) -> None:
    with pytest.raises(CalculationError):
        calculate(expression)


@pytest.mark.parametrize(
    "expression",
    [
        "0xfff + 1", "0b111 + 1", "0o17 + 1", "1e9 + 1", "1E2 + 1", "1_234 + 1", "1j * 1j", "True + 1", "None == 1",
        'years("18" "68", "1911")', r'years("\x31868", "1911")', 'date("186" "8") < 12', "b'1911' == b'1911'",
    ],
)  # fmt: skip
def test_numbers_cannot_be_hidden_from_what_is_known(expression: str) -> None:
    with pytest.raises(CalculationError):
        calculate(expression, known="built in 1911")


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("1 / 10000000", "0.0000001"), ("3 / 100000", "0.00003"), ("-3 / 100000", "-0.00003"), ("2 / 3", "0.666667"),
        ("10 ** 15 / 1", "1000000000000000"), ("1 / 4", "0.25"), ("0 / 5", "0"), ("-0.0 * 1", "0"),
        ("2 / 30000", "0.0000666667"), ("round(2 / 3, 2)", "0.67"), ("round(1234, -2)", "1200"),
    ],
)  # fmt: skip
def test_numbers_are_written_plainly(expression: str, value: str) -> None:
    assert calculate(expression) == value


@given(st.integers(-(10**6), 10**6), st.integers(1, 10**6))
def test_a_share_is_never_rounded_to_nothing(part: int, whole: int) -> None:
    said = calculate(f"{part} / {whole}")
    assert "e" not in said
    assert float(said) == pytest.approx(part / whole, rel=1e-5)


@given(st.text(st.sampled_from("0123456789+-*/%()<>=.,'\" abdeijlmnorstxyz_[]{}:"), max_size=60))
def test_whatever_an_lm_writes_gives_an_answer_or_that_error(expression: str) -> None:
    with suppress(CalculationError):
        assert calculate(expression)


@given(st.integers(-(10**6), 10**6), st.integers(-(10**6), 10**6))
def test_arithmetic(left: int, right: int) -> None:
    assert calculate(f"{left} + {right}") == str(left + right)
    assert calculate(f"{left} * {right} - 1") == str(left * right - 1)
    assert calculate(f"{left} < {right}") == ("yes" if left < right else "no")


@given(days, days)
def test_dates(left: date, right: date) -> None:
    first, second = (f"{one.day} {one:%B} {one.year}" for one in (left, right))
    assert calculate(f'days("{first}", "{second}")') == str(abs((left - right).days))
    early, late = sorted((left, right))
    years = late.year - early.year - ((late.month, late.day) < (early.month, early.day))
    assert calculate(f'years("{first}", "{second}")') == str(years)
    assert calculate(f'earlier("{first}", "{second}")') == (first if left <= right else second)
    assert calculate(f'date("{first}") <= date("{second}")') == ("yes" if left <= right else "no")


@given(days)
def test_a_day_later_is_a_day(one: date) -> None:
    following = one + timedelta(1)
    assert calculate(f'days("{one}", "{following}")') == "1"


@pytest.mark.parametrize(
    ("expression", "known", "right"),
    [
        ("1911 - 1871", "built in 1911 by one born 1871", True),
        ("1911 - 1902", "built in 1911 by one born 1871", False),
        ('years("4 May 1868", "1911")', "1911, 4 May 1868", True),
        ("3000 + 12", "3,000 people", True),
        ("12,400 - 9,800", "12,400 people and 9,800 people", True),
        ("max(12, 400)", "12 or 400 people", True),
        ("12 * 31 / 100 + 365", "nothing", True),
        ("3000", "13,000 and 30001", False),
    ],
)
def test_numbers_come_from_what_is_known(expression: str, known: str, right: bool) -> None:
    if right:
        assert float(calculate(expression, known)) > 0
    else:
        with pytest.raises(CalculationError, match="known"):
            calculate(expression, known)


def test_numbers_that_no_float_holds_are_refused() -> None:
    assert math.isfinite(float(calculate("10 ** 15")))
    with pytest.raises(CalculationError):
        calculate("10 ** 16")


def known(*answers: str) -> Trajectory:
    return Trajectory("?", tuple(Hop(f"task {n}?", answer=text) for n, text in enumerate(answers)))


@pytest.mark.parametrize(
    ("sub_question", "answers", "asked"),
    [
        ("How many years before the tower was Mira Dol born?", ["1911", "1871"], True),
        ("Who is older, Mira Dol or Ann Ort?", ["4 May 1868", "1871"], True),
        ("Which was earlier, 1911 or 1974?", [], True),
        ("What is 12 * 7?", [], True),
        ("How many of the two are rivers?", ["yes", "no"], True),
        ("Who is older, Mira Dol or Ann Ort?", ["1871"], False),
        ("Who is older, Mira Dol or Ann Ort?", [], False),
        ("Where was Mira Dol born?", ["1911", "1871"], False),
        ("How many of the two are rivers?", ["yes"], False),
    ],
)
def test_it_is_asked_where_known_numbers_are_compared(sub_question: str, answers: list[str], asked: bool) -> None:
    assert calculable(sub_question, known(*answers)) is asked


# --- in a hop ---------------------------------------------------------------------------------------------------------

TASKS = [
    "When was the Osk Tower built?",
    "When was Mira Dol born?",
    "How many years are between 1911 and 1871 in total?",
]


def script(expression: str | Reply, *, draft: Reply | None = None) -> Any:
    def reply(prompt: str) -> Reply | str:
        label = prompt.rsplit("\n", 1)[-1].removeprefix("assistant: ")
        if label == "Calculation:":
            return expression
        if label == "Answer:":
            return "40 years"
        name, _, number = label.rstrip(":").partition(" ")
        if name == "Task":
            return TASKS[int(number) - 1] if int(number) <= 3 else "none"
        if "\nFound:" in prompt.rsplit("Task", 1)[1]:
            return "39"
        return Reply(["1911", "1871"][int(number) - 1], -0.01) if int(number) < 3 else draft or Reply("50", -3.0)

    return reply


def run(index: Any, lm: dspy.LM, **settings: Any) -> Trajectory:
    with dspy.context(lm=lm, trace=[]):
        result = ActiveQA(index, **{"calculator": True, **settings})(question=QUESTION)
        steps = [name for predictor, _, outputs in dspy.settings.trace for name in outputs]
        assert ("expression" in steps) is any(hop.source == "calculator" for hop in result.trajectory.hops)
    return result.trajectory


def test_a_hop_may_be_calculated(index: Any) -> None:
    lm = scripted_lm(script("1911 - 1871"))
    last = run(index, lm).hops[-1]
    assert (last.source, last.query, last.answer, last.passages) == ("calculator", "1911 - 1871", "40", ())
    assert (last.draft, last.note, last.cost.lm_calls, last.cost.retrievals) == (None, None, 2, 0)
    (asked,) = [prompt for prompt in lm.engine.prompts if prompt.endswith("Calculation:")]
    assert f"Conclusion 2: 1871\nTask 3: {TASKS[2]}" in asked
    assert "none" in asked
    assert "years(" in asked
    assert "Conclusion 3: 40" in lm.engine.prompts[-1]
    assert index.queries == []


@pytest.mark.parametrize(
    ("expression", "note"),
    [
        ("none", None), ("None.", None), ('"none"', None),
        ("", None), (" ", None), ("1911 - 1902", "known"), ("1911 -", "calculated"),
        ("1911 / 0", "calculated"), ("the tower", "calculated"),
    ],
)  # fmt: skip
def test_what_fails_falls_through_to_the_other_sources(index: Any, expression: str, note: str | None) -> None:
    last = run(index, scripted_lm(script(expression))).hops[-1]
    assert (last.source, last.draft, last.answer) == ("search", "50", "39")
    assert last.note is None if note is None else last.note and note in last.note and "calculator" in last.note
    kept = run(index, scripted_lm(script(expression, draft=Reply("40", -0.01)))).hops[-1]
    assert (kept.source, kept.answer) == ("memory", "40")


CHOICE = "Of 1911 and 1871, which is older, the Mill or the Tower?"


@pytest.mark.parametrize(
    ("task", "expression", "answer"),
    [
        ("How many years are between 1911 and 1871 in total?", "1911 - 1871", "40"),
        ("How many years are between 1911 and 1871 in total?", '"A" if 1911 < 1871 else "B"', None),
        ("How many more years is 1911 than 1871?", "1911 > 1871", None),
        ("Was 1911 before 1871?", "1911 < 1871", "no"),
        ("Was 1911 before 1871?", "1911 - 1871", None),
        (CHOICE, '"the Mill" if 1911 < 1871 else "the Tower"', "the Tower"),
        (CHOICE, "1911 + 1871", None),
        (CHOICE, '"the Bridge" if 1911 > 1871 else "the Tower"', None),
        ("Who was older in 1911, the son of 1871?", "1911 - 1871", None),
        ("Who was older in 1911, the son of 1871?", '"Ann" if 1911 > 1871 else "Mira"', "Ann"),
        ("In which year before 1911 and 1871 was that?", "1911 - 100", "1811"),
        ("The older one by 1911 or 1871?", "1911 > 1871", "yes"),
    ],
)
def test_a_value_of_another_kind_than_asked_for_is_refused(
    index: Any, task: str, expression: str, answer: str | None
) -> None:
    def reply(prompt: str) -> Reply | str:
        label = prompt.rsplit("\n", 1)[-1].removeprefix("assistant: ")
        said = {"Task 1:": task, "Task 2:": "none", "Calculation:": expression, "Answer:": "x"}
        return said.get(label, "something else")

    (hop,) = run(index, scripted_lm(reply), gate="always").hops
    assert (hop.source, hop.answer) == (("search", "something else") if answer is None else ("calculator", answer))
    assert hop.note is None if answer else hop.note and "asks for" in hop.note


def test_what_fails_is_noted_beside_a_missing_draft(index: Any) -> None:
    last = run(index, scripted_lm(script("1911 -", draft=Reply("", -0.01)))).hops[-1]
    assert last.source == "search"
    assert last.note and last.note.startswith("calculator: ") and last.note.endswith("; empty")


def test_it_is_off_by_default(index: Any) -> None:
    lm = scripted_lm(script("1911 - 1871"))
    assert run(index, lm, calculator=False).hops[-1].source == "search"
    assert not any(prompt.endswith("Calculation:") for prompt in lm.engine.prompts)


def test_it_needs_no_gate_and_no_confidence(index: Any) -> None:
    last = run(index, scripted_lm(script(Reply("1911 - 1871", None))), gate="never").hops[-1]
    assert (last.source, last.answer) == ("calculator", "40")


@pytest.mark.parametrize("hops", range(4))
def test_resuming_gives_the_rest(index: Any, hops: int) -> None:
    program, lm = ActiveQA(index, calculator=True), scripted_lm(script("1911 - 1871"))
    with dspy.context(lm=lm):
        whole = program(question=QUESTION).trajectory
        again = program(question=QUESTION, trajectory=Trajectory.from_dict(whole.prefix(hops).to_dict())).trajectory
    assert [hop.answer for hop in again.hops] == ["1911", "1871", "40"]
    assert (again.answer, again.decisions, again.cost.lm_calls) == (whole.answer, whole.decisions, whole.cost.lm_calls)


def test_another_threads_expression_does_not_spoil_this_one() -> None:
    parse, failures = ast.parse, iter(range(3))

    def sometimes(*arguments: Any, **options: Any) -> Any:
        if next(failures, None) is not None:
            raise SystemError("AST constructor recursion depth mismatch")
        return parse(*arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ast.parse", sometimes)
        value = calculate("1 + 2")
    assert value == "3"


def test_an_expression_that_cannot_be_parsed_beside_other_threads_is_refused() -> None:
    def never(*_: Any, **__: Any) -> Any:
        raise SystemError("AST constructor recursion depth mismatch")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ast.parse", never)
        with pytest.raises(CalculationError, match="other threads"):
            calculate("1 + 2")
