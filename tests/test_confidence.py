"""Answer-span confidence: exactly the answer's tokens count, whatever adapter wrote the completion."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import dspy
import pytest
from dspy.clients.engines.base import validate_request
from dspy.lm15 import Message, Request, Response, TextPart, TokenLogprob, Usage, response_to_events
from hypothesis import given, settings
from hypothesis import strategies as st

from hopgate.core import ConfidenceError, Passage
from hopgate.lms import EMPTY_ANSWER, CompactAdapter, answer_confidence
from hopgate.lms.confidence import answer_tokens, first_token_alternatives
from hopgate.lms.testing import Reply, scripted_lm
from hopgate.programs import Trajectory
from hopgate.programs.registry import make_program

Token = tuple[bytes, float]
NOISE = -7.0  # log-probability of every token outside the answer

TWO_FIELDS = "question -> reasoning, answer"
ADAPTERS: dict[str, dspy.Adapter] = {
    "chat": dspy.ChatAdapter(),
    "json": dspy.JSONAdapter(),
    "xml": dspy.XMLAdapter(),
    "compact": CompactAdapter(),
}


class TokenEngine:
    """Returns given tokens with given log-probabilities."""

    supports_function_calling = False
    supports_reasoning = False
    supports_response_schema = True
    supported_params = frozenset({"temperature", "max_tokens", "stop", "logprobs", "response_format"})

    def __init__(self, tokens: Sequence[Token]) -> None:
        self.tokens = tokens

    def complete(self, request: Request) -> Response:
        validate_request(request)
        logprobs = tuple(
            TokenLogprob(token=piece.decode("utf-8", "replace"), logprob=logprob, bytes=tuple(piece))
            for piece, logprob in self.tokens
        )
        return Response(
            id=None,
            model=request.model,
            message=Message.assistant([TextPart(b"".join(piece for piece, _ in self.tokens).decode())]),
            finish_reason="stop",
            usage=Usage(input_tokens=1, output_tokens=len(self.tokens)),
            logprobs=logprobs,
        )

    def stream(self, request: Request) -> Iterator[Any]:
        yield from response_to_events(self.complete(request))


def completion(adapter: str, reasoning: str, answer: str) -> tuple[str, str, str]:
    """A completion in the form of an adapter: what stands before the answer, the answer as written, what follows."""
    if adapter == "chat":
        before = f"[[ ## reasoning ## ]]\n{reasoning}\n\n[[ ## answer ## ]]\n"
        return before, answer, "\n\n[[ ## completed ## ]]"
    if adapter == "json":
        return f'{{"reasoning": {json.dumps(reasoning)}, "answer": "', json.dumps(answer)[1:-1], '"}'
    if adapter == "xml":
        return f"<reasoning>\n{reasoning}\n</reasoning>\n<answer>\n", answer, "\n</answer>"
    return f"Reasoning: {reasoning}\nAnswer: ", answer, ""


def predict(adapter: dspy.Adapter, tokens: Sequence[Token], signature: Any = TWO_FIELDS) -> dspy.Prediction:
    lm = dspy.LM("tokens/lm", engine=TokenEngine(tokens), cache=False)
    with dspy.context(lm=lm, adapter=adapter):
        return dspy.Predict(signature)(question="Where?", config={"logprobs": True})


def prediction(tokens: Sequence[tuple[Any, Any]], answer: Any, **fields: Any) -> dspy.Prediction:
    content = [
        {"token": piece.decode("utf-8", "replace"), "logprob": logprob, "bytes": list(piece)}
        for piece, logprob in tokens
    ]
    return dspy.Prediction(answer=answer, logprobs={"content": content}, **fields)


def noise(text: str) -> list[Token]:
    return [(text.encode(), NOISE)] if text else []


# --- each adapter -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_only_the_tokens_of_the_answer_count(adapter: str) -> None:
    before, _, after = completion(adapter, "It lies on the Seine.", "New Lutetia City")
    answer = [(b"New", -0.3), (b" Lut", -0.1), (b"etia", -0.9), (b" City", -0.2)]
    result = predict(ADAPTERS[adapter], [*noise(before), *answer, *noise(after)])
    assert result.answer == "New Lutetia City"
    found = answer_confidence(result)
    assert found.tokens == 4
    assert found.mean == pytest.approx(-1.5 / 4)
    assert found.sum == pytest.approx(-1.5)
    assert found.min == -0.9
    assert found.first == -0.3
    assert not found.empty


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_an_answer_that_the_reasoning_names_before_is_taken_from_its_own_field(adapter: str) -> None:
    before, _, after = completion(adapter, "Paris is the capital, so Paris it is.", "Paris")
    found = answer_confidence(predict(ADAPTERS[adapter], [*noise(before), (b"Paris", -0.25), *noise(after)]))
    assert (found.mean, found.tokens) == (-0.25, 1)


@pytest.mark.parametrize("adapter", ADAPTERS)
@pytest.mark.parametrize("answer", ["answer", "reasoning", "a", "s", "e"])
def test_an_answer_that_also_stands_in_a_marker(adapter: str, answer: str) -> None:
    before, _, after = completion(adapter, "It is so.", answer)
    found = answer_confidence(predict(ADAPTERS[adapter], [*noise(before), (answer.encode(), -0.5), *noise(after)]))
    assert (found.mean, found.tokens) == (-0.5, 1)


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_an_emoji_split_over_tokens_counts_with_all_its_tokens(adapter: str) -> None:
    before, written, after = completion(adapter, "Look up.", "🌞 sun")
    data = written.encode()
    pieces = [(data[:2], -0.1), (data[2:3], -0.2), (data[3:], -0.6)]
    found = answer_confidence(predict(ADAPTERS[adapter], [*noise(before), *pieces, *noise(after)]))
    assert found.tokens == 3
    assert found.mean == pytest.approx(-0.3)


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_a_token_that_straddles_marker_and_answer_counts(adapter: str) -> None:
    before, _, after = completion(adapter, "Think.", "Paris")
    first = (before[-2:].encode() + b"Pa", -0.4)
    last = (b"ris" + after[:2].encode(), -0.2)
    found = answer_confidence(predict(ADAPTERS[adapter], [*noise(before[:-2]), first, last, *noise(after[2:])]))
    assert found.tokens == 2
    assert found.mean == pytest.approx(-0.3)


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_a_token_of_spaces_says_nothing_of_the_answer(adapter: str) -> None:
    before, _, after = completion(adapter, "Think.", "New York")
    tokens = [*noise(before), (b"New", -0.2), (b" ", -5.0), (b"York", -0.4), *noise(after)]
    found = answer_confidence(predict(ADAPTERS[adapter], tokens))
    assert found.tokens == 2
    assert found.mean == pytest.approx(-0.3)


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_an_answer_of_another_type_than_text(adapter: str) -> None:
    before, _, after = completion(adapter, "Six times seven is 42.", "42")
    if adapter == "json":
        before, after = before.removesuffix('"'), after.removeprefix('"')
    result = predict(
        ADAPTERS[adapter],
        [*noise(before), (b"4", -0.1), (b"2", -0.3), *noise(after)],
        "question -> reasoning, answer: int",
    )
    assert result.answer == 42
    found = answer_confidence(result)
    assert found.tokens == 2
    assert found.mean == pytest.approx(-0.2)


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_a_field_that_follows_the_answer_does_not_count(adapter: str) -> None:
    rendered = {
        "chat": ("[[ ## answer ## ]]\n", "\n\n[[ ## reason ## ]]\nSince 42.\n\n[[ ## completed ## ]]"),
        "json": ('{"answer": ', ', "reason": "Since 42."}'),
        "xml": ("<answer>", "</answer>\n<reason>Since 42.</reason>"),
        "compact": ("Answer: ", "\nReason: Since 42."),
    }
    before, after = rendered[adapter]
    result = predict(
        ADAPTERS[adapter], [*noise(before), (b"42", -0.1), *noise(after)], "question -> answer: int, reason"
    )
    assert answer_confidence(result).tokens == 1
    assert answer_confidence(result).mean == -0.1


# --- forms of one adapter ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ascii_only", [True, False])
@pytest.mark.parametrize("answer", ['He said "no"', "Łódź", "first\nsecond", "C:\\temp", "🌞", "tab\there"])
def test_json_escapes_are_part_of_the_answer(answer: str, ascii_only: bool) -> None:
    written = json.dumps(answer, ensure_ascii=ascii_only)[1:-1].encode()
    half = len(written) // 2
    tokens = [
        *noise('{"reasoning": "Well.", "answer": "'), (written[:half], -0.2), (written[half:], -0.4), *noise('"}')
    ]  # fmt: skip
    result = predict(dspy.JSONAdapter(), tokens)
    assert result.answer == answer
    found = answer_confidence(result)
    assert found.tokens == 2
    assert found.mean == pytest.approx(-0.3)


@pytest.mark.parametrize(
    ("annotation", "written"), [("bool", "true"), ("list[str]", '["a", "b"]'), ("float", "-1.5"), ("dict", '{"a": 1}')]
)
def test_json_values_that_are_not_text(annotation: str, written: str) -> None:
    tokens = [*noise('{"reasoning": "Well.", "answer": '), (written.encode(), -0.2), *noise("}")]
    found = answer_confidence(predict(dspy.JSONAdapter(), tokens, f"question -> reasoning, answer: {annotation}"))
    assert (found.mean, found.tokens) == (-0.2, 1)


def test_the_last_of_two_equal_json_keys_counts() -> None:
    tokens = [*noise('{"reasoning": "r", "answer": "Rome", "answer": "'), (b"Oslo", -0.2), *noise('"}')]
    result = predict(dspy.JSONAdapter(), tokens)
    assert result.answer == "Oslo"
    assert answer_confidence(result).mean == -0.2


def test_a_key_of_the_same_name_inside_another_field_is_not_the_answer() -> None:
    tokens = [*noise('{"answer": "'), (b"Oslo", -0.2), *noise('", "details": {"answer": "Rome"}}')]
    result = predict(dspy.JSONAdapter(), tokens, "question -> answer, details: dict")
    assert result.answer == "Oslo"
    assert answer_confidence(result).mean == -0.2


def test_a_json_fragment_in_the_reasoning_is_not_the_answer_of_compact_lines() -> None:
    tokens = [*noise('Reasoning: The form is {"answer": "Rome"}.\nAnswer: '), (b"Oslo", -0.2)]
    result = predict(CompactAdapter(), tokens)
    assert result.answer == "Oslo"
    assert answer_confidence(result).mean == -0.2


def test_entities_in_xml_are_part_of_the_answer() -> None:
    tokens = [*noise("<reasoning>r</reasoning><answer>"), (b"Simon &amp; Garfunkel", -0.2), *noise("</answer>")]
    result = predict(dspy.XMLAdapter(), tokens)
    assert result.answer == "Simon & Garfunkel"
    assert answer_confidence(result).mean == -0.2


def test_a_compact_answer_whose_label_the_prompt_gave() -> None:
    found = answer_confidence(predict(CompactAdapter(), [(b" Pa", -0.2), (b"ris", -0.4)], "question -> answer"))
    assert found.tokens == 2
    assert found.mean == pytest.approx(-0.3)


def test_a_compact_answer_with_a_bold_label() -> None:
    tokens = [*noise("Reasoning: Oslo, I think.\n**Answer:** "), (b"Oslo", -0.2)]
    assert answer_confidence(predict(CompactAdapter(), tokens)).mean == -0.2


def test_a_compact_answer_with_a_number_like_its_label() -> None:
    tokens = [*noise("Conclusion 1: "), (b"1", -0.2)]
    found = answer_confidence(prediction(tokens, "1"), label="Conclusion 1:")
    assert found.mean == -0.2


def test_a_compact_answer_of_several_lines() -> None:
    tokens = [
        *noise("Reasoning: r\nAnswer: "),
        (b"one\n", -0.1),
        (b"\xe2\x94\x82 two\n", -0.2),
        (b"\n\xe2\x94\x82 three", -0.6),
    ]
    result = predict(CompactAdapter(), tokens)
    assert result.answer == "one\ntwo\n\nthree"
    found = answer_confidence(result)
    assert found.tokens == 3
    assert found.mean == pytest.approx(-0.3)


def test_a_field_of_another_name() -> None:
    tokens = [*noise("[[ ## city ## ]]\n"), (b"Rome", -0.2), *noise("\n\n[[ ## completed ## ]]")]
    assert answer_confidence(predict(dspy.ChatAdapter(), tokens, "question -> city"), "city").mean == -0.2


# --- empty, missing, degenerate ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("answer", ["", "  \n", None])
def test_an_empty_answer_has_no_tokens(answer: str | None) -> None:
    found = answer_confidence(prediction([(b"[[ ## answer ## ]]", -0.1), (b"\n", -0.1)], answer))
    assert found == EMPTY_ANSWER
    assert found.empty
    assert found.mean is None


@pytest.mark.parametrize("logprobs", [None, {}, {"content": None}, {"content": []}])
def test_without_logprobs_the_error_names_backend_and_remedy(logprobs: Any) -> None:
    with dspy.context(lm=scripted_lm([])), pytest.raises(ConfidenceError) as caught:
        answer_confidence(dspy.Prediction(answer="Paris", logprobs=logprobs))
    message = str(caught.value)
    assert "scripted/lm" in message
    assert "logprobs=True" in message
    assert "hopgate lm check" in message
    assert "\n" not in message


def test_a_prediction_made_without_logprobs() -> None:
    with pytest.raises(ConfidenceError):
        answer_confidence(dspy.Prediction(answer="Paris"))


@pytest.mark.parametrize("value", [-9999.0, -10000, math.nan, math.inf, -math.inf, 0.5, "-0.1", None, True])
def test_degenerate_logprobs_are_refused(value: Any) -> None:
    with dspy.context(lm=scripted_lm([])), pytest.raises(ConfidenceError, match=r"scripted/lm.*cannot be used"):
        answer_confidence(prediction([(b"Pa", -0.1), (b"ris", value)], "Paris"))


def test_all_zero_is_refused_unless_alternatives_show_that_they_are_real() -> None:
    tokens = [(b"Pa", 0.0), (b"ris", 0.0)]
    with pytest.raises(ConfidenceError, match="all are 0"):
        answer_confidence(prediction(tokens, "Paris"))
    real = prediction(tokens, "Paris")
    real.logprobs["content"][0]["top_logprobs"] = [{"token": "Ly", "logprob": -18.0}]
    assert answer_confidence(real).mean == 0.0


def test_one_certain_token_is_not_degenerate() -> None:
    assert answer_confidence(prediction([(b"Paris", 0.0)], "Paris")).mean == 0.0
    assert answer_confidence(prediction([(b"Pa", 0.0), (b"ris", -0.4)], "Paris")).mean == -0.2


def test_rounding_just_above_zero_counts_as_zero() -> None:
    assert answer_confidence(prediction([(b"Pa", 1e-9), (b"ris", -0.4)], "Paris")).first == 0.0


def test_an_answer_that_is_not_in_the_completion() -> None:
    with pytest.raises(ConfidenceError, match="answer"):
        answer_confidence(prediction([(b"Rome", -0.1)], "Paris"))


@pytest.mark.parametrize("with_bytes", [True, False])
@pytest.mark.parametrize("kind", [dict, SimpleNamespace])
def test_mappings_and_attributes(kind: type, with_bytes: bool) -> None:
    def token(text: str, logprob: float) -> Any:
        return kind(token=text, logprob=logprob, **({"bytes": list(text.encode())} if with_bytes else {}))

    logprobs = kind(content=[token("[[ ## answer ## ]]\n", -3.0), token("Par", -0.2), token("ís", -0.6)])
    found = answer_confidence(dspy.Prediction(answer="París", logprobs=logprobs))
    assert found.mean == pytest.approx(-0.4)
    assert found.tokens == 2


def test_a_last_token_that_the_stop_sequence_took_away() -> None:
    # llama.cpp drops the log-probability of a token that a stop sequence cuts in two.
    found = answer_confidence(prediction([(b" Who", -0.2), (b" sang", -0.4)], "Who sang?"))
    assert found.tokens == 2
    assert found.mean == pytest.approx(-0.3)


def test_a_character_cut_off_at_the_token_limit() -> None:
    half = "🌞".encode()[:2]
    found = answer_confidence(prediction([(b"sun ", -0.2), (half, -0.4)], "sun \ufffd"))
    assert found.first == -0.2
    assert found.tokens in {1, 2}


# --- any split --------------------------------------------------------------------------------------------------------

_LETTERS = st.text(alphabet="abcAZ09 ,.'-éß日本🌞👩‍👩‍👧", min_size=1, max_size=24).map(
    lambda text: " ".join(text.split())
)
_ANSWERS = _LETTERS.filter(bool)


@settings(max_examples=150, deadline=None)
@given(data=st.data(), adapter=st.sampled_from(sorted(ADAPTERS)), answer=_ANSWERS, repeated=st.booleans())
def test_any_split_gives_the_mean_of_the_overlapping_tokens(
    data: st.DataObject, adapter: str, answer: str, repeated: bool
) -> None:
    reasoning = f"I think {answer} is it" if repeated else "I am not sure"
    before, written, after = completion(adapter, reasoning, answer)
    whole = (before + written + after).encode()
    start, end = len(before.encode()), len((before + written).encode())
    cuts = sorted(data.draw(st.sets(st.integers(1, len(whole) - 1), max_size=40)))
    bounds = list(zip([0, *cuts], [*cuts, len(whole)], strict=True))
    values = data.draw(st.lists(st.floats(-20, -0.01), min_size=len(bounds), max_size=len(bounds)))
    tokens = [(whole[low:high], value) for (low, high), value in zip(bounds, values, strict=True)]
    parsed = ADAPTERS[adapter].parse(dspy.Signature(TWO_FIELDS), whole.decode())
    assert parsed["answer"] == answer

    # A token of which only spaces lie within the answer says nothing of it.
    expected = [
        value
        for (low, high), value in zip(bounds, values, strict=True)
        if max(low, start) < min(high, end) and whole[max(low, start) : min(high, end)].strip()
    ]
    found = answer_confidence(prediction(tokens, **parsed))
    assert found.tokens == len(expected)
    assert found.sum == pytest.approx(math.fsum(expected))
    assert found.mean == pytest.approx(math.fsum(expected) / len(expected))
    assert found.min == min(expected)
    assert found.first == expected[0]


# --- predictions of solvers -------------------------------------------------------------------------------------------


def solved(name: str) -> dspy.Prediction:
    program = make_program(name, lambda query, k: [Passage("1", "T", f"a text on {query}")])
    with dspy.context(lm=scripted_lm(lambda prompt: Reply(" Varn", -0.25)), adapter=CompactAdapter()):
        return program(question="Where was she born?")


@pytest.mark.parametrize("name", ["active", "always", "direct", "rag"])
def test_the_confidence_of_a_solver_s_answer(name: str) -> None:
    prediction = solved(name)
    found = answer_confidence(prediction)
    assert found == prediction.trajectory.answer_confidence
    assert prediction.answer == "Varn" and found.mean == pytest.approx(-0.25)


@pytest.mark.parametrize("trajectory", [Trajectory("Who?", answer="Ann"), None])
def test_what_a_solver_s_prediction_cannot_tell(trajectory: Trajectory | None) -> None:
    prediction = solved("rag") if trajectory is None else dspy.Prediction(answer="Ann", trajectory=trajectory)
    calls: list[Any] = [
        lambda: answer_tokens(prediction),
        lambda: first_token_alternatives(prediction, "answer"),
        lambda: answer_confidence(prediction, "reasoning"),
    ]
    for call in calls if trajectory is None else [*calls, lambda: answer_confidence(prediction)]:
        with pytest.raises(ConfidenceError, match="a solver's prediction has no completion of its own") as caught:
            call()
        assert "backend" not in str(caught.value)


def test_a_trajectory_of_other_programs_is_none_of_a_solver() -> None:
    with pytest.raises(ConfidenceError, match="returned no log-probabilities"):
        answer_confidence(dspy.Prediction(answer="Ann", trajectory={"thought_0": "Ann"}))
