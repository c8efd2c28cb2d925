"""The discriminator with a scripted LM: its verdicts, probabilities and what passes without a call."""

from __future__ import annotations

import asyncio
import json
import math
import re
from pathlib import Path
from typing import Any

import dspy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopgate.core import ConfidenceError, InputError, StateError
from hopgate.core.question_kinds import plainly_fits
from hopgate.lms.confidence import first_token_alternatives
from hopgate.lms.testing import Reply, scripted_lm
from hopgate.programs import Discriminator
from hopgate.programs.discriminator import on_topic_probability

QUESTION = "In which year was the designer of the Osk Tower born?"
CHOICE = "Which film came out first, Back To The Door or Charles, Dead Or Alive?"


def lm_that_says(verdict: Reply | str, kinds: Reply | str = " a year, a date", **options: Any) -> Any:
    return scripted_lm(lambda prompt: verdict if prompt.endswith("Fits:") else kinds, **options)


def judge(
    verdict: Reply | str, kinds: Reply | str = " a year, a date", *, answer: str | None = "Mira Dol", **settings: Any
) -> dspy.Prediction:
    with dspy.context(lm=lm_that_says(verdict, kinds)):
        return Discriminator(**settings)(question=QUESTION, answer=answer)


# --- verdicts ---------------------------------------------------------------------------------------------------------


def test_kinds_are_named_first_and_then_shown_to_the_judge() -> None:
    lm = lm_that_says(" no")
    with dspy.context(lm=lm):
        found = Discriminator()(question=QUESTION, answer="Mira Dol")
    naming, judging = lm.engine.prompts
    assert naming.endswith(f"user: Question: {QUESTION}\nassistant: Kinds:")
    assert judging.endswith(f"user: Question: {QUESTION}\nKinds: a year, a date\nAnswer: Mira Dol\nassistant: Fits:")
    assert (found.verdict, found.spoken, found.kinds) == ("off_topic", False, "a year, a date")


def test_kinds_that_are_known_are_not_named_again() -> None:
    lm = lm_that_says(" yes")
    with dspy.context(lm=lm):
        found = Discriminator()(question=QUESTION, answer="1871", kinds="a year")
    assert len(lm.engine.prompts) == 1
    assert (found.verdict, found.kinds) == ("on_topic", "a year")


@pytest.mark.parametrize(
    ("spoken", "alternatives", "verdict", "margin"),
    [
        (" yes", {" no": -2.0}, "on_topic", 1.5),
        (" no", {" yes": -2.0}, "off_topic", -1.5),
        # What was said is not what counts: all spellings of the other verdict are looked at.
        (" yes", {" no": -2.0, " No": -0.4, "NO": -3.0}, "off_topic", -0.1),
        (" no", {"Yes": -0.25, " maybe": -9.0}, "on_topic", 0.25),
        # A verdict that is not among the alternatives is at most as likely as the last of them.
        (" yes", {" perhaps": -4.0, " it": -5.5}, "on_topic", 5.0),
    ],
)
def test_the_margin_of_the_verdicts_decides(
    spoken: str, alternatives: dict[str, float], verdict: str, margin: float
) -> None:
    found = judge(Reply(spoken, -0.5, alternatives), threshold=0.5)
    assert found.verdict == verdict
    assert found.probability == pytest.approx(1 / (1 + math.exp(-margin)))


@pytest.mark.parametrize(
    ("settings", "verdict"),
    [
        ({"threshold": 0.2}, "on_topic"),
        ({"threshold": 0.4}, "off_topic"),
        ({"threshold": 0.4, "band": 0.2}, "undecided"),
        ({"threshold": 0.4, "band": 0.05}, "off_topic"),
    ],
)
def test_the_threshold_and_the_band_below_it(settings: dict[str, float], verdict: str) -> None:
    found = judge(Reply(" no", math.log(0.7), {" yes": math.log(0.3)}), **settings)
    assert found.probability == pytest.approx(0.3)
    assert found.verdict == verdict


@pytest.mark.parametrize("garbage", ["", " ", " perhaps", " The answer is a person.", " yesterday"])
def test_what_is_neither_yes_nor_no_is_undecided(garbage: str) -> None:
    found = judge(Reply(garbage, -0.1, {" yes": -0.2, " no": -3.0}))
    assert (found.verdict, found.probability) == ("undecided", None)
    assert found.note


def test_without_kinds_it_is_undecided() -> None:
    lm = lm_that_says(" yes", "")
    with dspy.context(lm=lm):
        assert Discriminator()(question=QUESTION, answer="1871").verdict == "undecided"
    assert len(lm.engine.prompts) == 1


@pytest.mark.parametrize("spoken", [" Yes.", " yes, a year", ' "yes"'])
def test_spellings_of_a_verdict(spoken: str) -> None:
    assert judge(Reply(spoken, None)).spoken is True


@pytest.mark.parametrize("reply", [Reply(" no", None), Reply(" no", -0.1)], ids=["no logprobs", "no alternatives"])
def test_without_alternatives_the_spoken_verdict_counts(reply: Reply) -> None:
    found = judge(reply, threshold=0.0)
    assert (found.verdict, found.probability) == ("off_topic", None)
    assert "log-probabilities" in found.note or "alternatives" in found.note


def test_a_backend_that_does_not_know_logprobs_is_not_asked_for_them() -> None:
    class Plain(type(lm_that_says("").engine)):
        supported_params = frozenset({"temperature", "max_tokens", "stop"})

    engine = Plain(lambda prompt: " yes" if prompt.endswith("Fits:") else " a year")
    with dspy.context(lm=dspy.LM("scripted/plain", engine=engine, cache=False)):
        found = Discriminator()(question=QUESTION, answer="1871")
    assert (found.verdict, found.probability) == ("on_topic", None)


def test_an_lm_that_fails_is_an_error() -> None:
    with dspy.context(lm=scripted_lm([])), pytest.raises(dspy.LMError):
        Discriminator()(question=QUESTION, answer="1871")


@pytest.mark.parametrize("question", ["", "  ", None])
def test_an_empty_question_is_refused(question: Any) -> None:
    with pytest.raises(InputError, match="question"):
        Discriminator()(question=question, answer="1871")


# --- without a call ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("Were Brahms and Verdi from the same country?", "no"),
        ("Were Brahms and Verdi from the same country?", "Yes."),
        ("Who is older, Annie Morton or Terry Richardson?", "Annie Morton"),
        ("Which plant is larger, the Pterocarya or the Cotula?", "the cotula"),
        (CHOICE, "Back To The Door"),
        (CHOICE, "Charles, Dead or Alive"),
    ],
)
def test_what_plainly_fits_passes_without_a_call(question: str, answer: str) -> None:
    lm = scripted_lm([])
    with dspy.context(lm=lm):
        found = Discriminator()(question=question, answer=answer)
    assert (found.verdict, lm.engine.prompts) == ("on_topic", [])


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("Were Brahms and Verdi from the same country?", "Germany"),
        ("Were Brahms and Verdi from the same country?", "no one knows"),
        ("Was it red or blue?", "yes"),
        ("Who is older, Annie Morton or Terry Richardson?", "yes"),
        ("Who is older, Annie Morton or Terry Richardson?", "Annie Morton or Terry Richardson"),
        ("Who is older, Annie Morton or Terry Richardson?", "Terry"),
        (QUESTION, "no"),
        (QUESTION, "1871"),
    ],
)
def test_all_else_is_asked(question: str, answer: str) -> None:
    lm = lm_that_says(" no")
    with dspy.context(lm=lm):
        Discriminator()(question=question, answer=answer)
    assert len(lm.engine.prompts) == 2


@pytest.mark.parametrize("answer", [None, "", " \n"])
def test_an_empty_answer_is_off_topic_without_a_call(answer: str | None) -> None:
    found = judge(" yes", answer=answer)
    assert (found.verdict, found.probability) == ("off_topic", 0.0)


@given(st.text(max_size=60), st.text(max_size=30))
def test_the_rule_takes_any_text(question: str, answer: str) -> None:
    assert plainly_fits(question, answer) in (True, False)
    assert not plainly_fits(question, "")


# --- probabilities ----------------------------------------------------------------------------------------------------

logprobs = st.floats(min_value=-50, max_value=0)


@given(logprobs, logprobs, st.dictionaries(st.sampled_from(["maybe", "it", "the"]), logprobs))
def test_the_probability_is_that_of_yes_against_no(yes: float, no: float, others: dict[str, float]) -> None:
    found = on_topic_probability({" yes": yes, "No": no, **others})
    assert found == pytest.approx(math.exp(yes) / (math.exp(yes) + math.exp(no)), abs=1e-9)
    assert on_topic_probability({"no": yes, "yes": no}) == pytest.approx(1 - (found or 0.0), abs=1e-9)


@given(logprobs, logprobs)
def test_a_missing_verdict_never_makes_the_other_surer_than_it_can_be(yes: float, least: float) -> None:
    found = on_topic_probability({"yes": yes, "it": least})
    assert found is not None
    assert found <= 1 / (1 + math.exp(min(yes, least) - yes)) + 1e-9


@pytest.mark.parametrize("alternatives", [{}, {" yes": -0.1}, {"maybe": -0.1, "it": -2.0}])
def test_no_probability_without_two_alternatives_and_a_verdict(alternatives: dict[str, float]) -> None:
    assert on_topic_probability(alternatives) is None


def test_alternatives_are_those_of_the_fields_first_token() -> None:
    content = [
        {"token": "Fits:", "logprob": -0.2, "bytes": None, "top_logprobs": [{"token": "no", "logprob": -0.1}]},
        {
            "token": " yes",
            "logprob": -0.3,
            "bytes": None,
            "top_logprobs": [{"token": " no", "logprob": -1.0}, {"token": "x", "logprob": -9999.0}],
        },
    ]
    prediction = dspy.Prediction(fits="yes", logprobs={"content": content})
    assert first_token_alternatives(prediction, "fits") == {" no": -1.0, " yes": -0.3}
    assert first_token_alternatives(dspy.Prediction(fits="", logprobs={"content": content}), "fits") == {}
    with pytest.raises(ConfidenceError):
        first_token_alternatives(dspy.Prediction(fits="yes"), "fits")


# --- DSPy -------------------------------------------------------------------------------------------------------------


def test_acall_gives_the_same() -> None:
    reply = Reply(" no", -0.5, {" yes": -1.5})
    expected = judge(reply)
    with dspy.context(lm=lm_that_says(reply)):
        result = asyncio.run(Discriminator().acall(question=QUESTION, answer="Mira Dol"))
        empty = asyncio.run(Discriminator().acall(question=QUESTION, answer=""))
    assert result.toDict() == expected.toDict()
    assert empty.verdict == "off_topic"
    with dspy.context(lm=lm_that_says("", "")):
        assert asyncio.run(Discriminator().acall(question=QUESTION, answer="Mira Dol")).verdict == "undecided"


def test_it_is_saved_with_its_threshold(tmp_path: Path) -> None:
    program = Discriminator(threshold=0.2)
    program.judge.demos = [dspy.Example(question="Why?", kinds="a reason", candidate="XYZZY", fits="no")]
    program.save(tmp_path / "program.json")
    fresh = Discriminator()
    fresh.load(tmp_path / "program.json")
    assert fresh.settings.values.threshold == 0.2
    lm = lm_that_says(" yes")
    with dspy.context(lm=lm):
        fresh(question=QUESTION, answer="1871")
    assert "XYZZY" in lm.engine.prompts[-1]
    assert program.reset_copy().settings.values.threshold == 0.2
    assert [name for name, _ in program.named_predictors()] == ["name_kinds", "judge"]


def test_a_state_that_does_not_fit_is_refused() -> None:
    state = Discriminator().dump_state()
    with pytest.raises(StateError):
        Discriminator().load_state({**state, "settings": {**state["settings"], "threshold": 2}})


@pytest.mark.parametrize("settings", [{"threshold": 1.5}, {"band": -0.1}, {"k": 3}], ids=json.dumps)
def test_settings_that_cannot_be(settings: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(settings))):
        Discriminator(**settings)


def test_worked_examples_may_be_others_or_none() -> None:
    example = {"question": "Why?", "kinds": "a reason", "candidate": "XYZZY", "fits": "no"}
    for examples, count in (([example], 1), ([], 0)):
        lm = lm_that_says(" yes")
        with dspy.context(lm=lm):
            Discriminator(examples=examples)(question=QUESTION, answer="1871")
        assert [prompt.count("user: Question: Why?") for prompt in lm.engine.prompts] == [count, count]


@pytest.mark.parametrize("adapter", [dspy.ChatAdapter(), dspy.JSONAdapter()], ids=["chat", "json"])
def test_it_works_with_dspys_own_adapters(adapter: Any) -> None:
    def reply(prompt: str) -> Reply:
        judging = re.search(r"`fits`|`\[\[ ## fits ## ]]`", prompt.rsplit("user: ", 1)[1])
        fields = {"fits": "no"} if judging else {"kinds": "a year"}
        if isinstance(adapter, dspy.JSONAdapter):
            return Reply(json.dumps(fields), -0.2)
        return Reply("\n\n".join(f"[[ ## {name} ## ]]\n{value}" for name, value in fields.items()), -0.2)

    with dspy.context(lm=scripted_lm(reply), adapter=adapter):
        found = Discriminator()(question=QUESTION, answer="Mira Dol")
    assert (found.verdict, found.kinds) == ("off_topic", "a year")
