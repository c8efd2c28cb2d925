"""The embedded engine: against a fake llama.cpp, and a few calls of the real one where it is there."""

from __future__ import annotations

import asyncio
import copy
import importlib.util
import json
import pickle
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import dspy
import pytest
from dspy.lm15 import (
    Config,
    ContextLengthError,
    FunctionTool,
    ImagePart,
    InvalidRequestError,
    LM15Error,
    Message,
    Reasoning,
    Request,
    ServerError,
    TextPart,
    UnsupportedFeatureError,
)

from hopgate.core import MissingDependencyError, ModelError, StateError, WeightsError
from hopgate.core.weights import resolve
from hopgate.lms import AsyncEmbeddedEngine, EmbeddedEngine, lm_from_config
from hopgate.signatures import AnswerDirectly

Answer = Callable[[dict[str, Any]], Any]


def reply(text: str, **more: Any) -> dict[str, Any]:
    return {
        "id": "c1",
        "choices": [{"message": {"content": text}, "finish_reason": "stop", **more}],
        "usage": {"prompt_tokens": 30, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 21}},
    }


class FakeLlama(ModuleType):
    """A module with the part of xllamacpp that the engine uses; records what it is asked."""

    def __init__(self) -> None:
        super().__init__("xllamacpp")
        self.bodies: list[dict[str, Any]] = []
        self.params: list[Any] = []
        self.answer: Answer = lambda body: reply("Paris")
        self.inside = self.most_inside = 0
        self.lock = threading.Lock()
        fake = self

        class CommonParams(SimpleNamespace):
            def __init__(self) -> None:
                super().__init__(
                    model=SimpleNamespace(path=""), cpuparams=SimpleNamespace(), cpuparams_batch=SimpleNamespace()
                )

        class Server:
            def __init__(self, params: Any) -> None:
                fake.params.append(params)

            def handle_chat_completions(self, body: dict[str, Any]) -> Any:
                with fake.lock:
                    fake.bodies.append(body)
                    fake.inside += 1
                    fake.most_inside = max(fake.most_inside, fake.inside)
                try:
                    return fake.answer(body)
                finally:
                    with fake.lock:
                        fake.inside -= 1

        self.CommonParams, self.Server = CommonParams, Server


@pytest.fixture
def llama(monkeypatch: pytest.MonkeyPatch) -> FakeLlama:
    fake = FakeLlama()
    monkeypatch.setitem(__import__("sys").modules, "xllamacpp", fake)
    return fake


@pytest.fixture
def gguf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOPGATE_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "tiny.gguf"
    # Engines of equal weights share a loaded model; each test has its own.
    path.write_bytes(b"GGUF and the rest " + str(tmp_path).encode())
    return path


@pytest.fixture
def engine(llama: FakeLlama, gguf: Path) -> EmbeddedEngine:
    return EmbeddedEngine(str(gguf))


def request(*messages: Message, system: Any = None, tools: Any = (), **config: Any) -> Request:
    return Request(
        model="embedded/tiny",
        messages=messages or (Message.user([TextPart("Capital of France?")]),),
        system=system,
        tools=tools,
        config=Config(**config),
    )


def user(text: str) -> Message:
    return Message.user([TextPart(text)])


def assistant(text: str) -> Message:
    return Message.assistant([TextPart(text)])


# --- requests ---------------------------------------------------------------------------------------------------------


def test_a_request_is_mapped(engine: EmbeddedEngine, llama: FakeLlama) -> None:
    engine.complete(
        request(
            user("One?"), assistant("1"), user("Two?"),
            system="Be short.", max_tokens=9, temperature=0.5, top_p=0.9, top_k=40, stop=("\n", "END"), seed=7,
            logprobs=3, frequency_penalty=0.1, presence_penalty=0.2,
        )
    )  # fmt: skip
    body = llama.bodies[0]
    assert body["messages"] == [
        {"role": "system", "content": "Be short."},
        {"role": "user", "content": "One?"},
        {"role": "assistant", "content": "1"},
        {"role": "user", "content": "Two?"},
    ]
    expected = {
        "max_tokens": 9, "temperature": 0.5, "top_p": 0.9, "top_k": 40, "stop": ["\n", "END"], "seed": 7,
        "logprobs": True, "top_logprobs": 3, "frequency_penalty": 0.1, "presence_penalty": 0.2, "cache_prompt": True,
    }  # fmt: skip
    assert {key: body[key] for key in expected} == expected


def test_what_a_request_leaves_open_is_left_open(engine: EmbeddedEngine, llama: FakeLlama) -> None:
    engine.complete(request(user("One?")))
    assert set(llama.bodies[0]) == {"messages", "cache_prompt", "id_slot"}


def test_a_system_message_in_parts(engine: EmbeddedEngine, llama: FakeLlama) -> None:
    engine.complete(request(user("a"), system=(TextPart("Be "), TextPart("short."))))
    assert llama.bodies[0]["messages"][0] == {"role": "system", "content": "Be short."}


def test_zero_is_a_value(engine: EmbeddedEngine, llama: FakeLlama) -> None:
    engine.complete(request(user("a"), temperature=0.0, seed=0, logprobs=0))
    body = llama.bodies[0]
    assert (body["temperature"], body["seed"], body["logprobs"]) == (0.0, 0, True)


def test_a_schema_gets_the_envelope_that_llama_cpp_reads(engine: EmbeddedEngine, llama: FakeLlama) -> None:
    # llama.cpp looks for response_format.json_schema.schema and takes any JSON where that is missing.
    schema = {"type": "object", "properties": {"answer": {"type": "string"}}}
    engine.complete(request(user("a"), response_format={"type": "json_schema", "schema": schema, "name": "reply"}))
    engine.complete(request(user("a"), response_format={"type": "json_object"}))
    assert llama.bodies[0]["response_format"]["type"] == "json_schema"
    assert llama.bodies[0]["response_format"]["json_schema"]["schema"] == schema
    assert llama.bodies[1]["response_format"] == {"type": "json_object"}


def test_the_json_adapter_sends_a_schema(engine: EmbeddedEngine, llama: FakeLlama) -> None:
    llama.answer = lambda body: reply('{"answer": 42}')
    lm = dspy.LM(engine.model_string, engine=engine, cache=False)
    with dspy.context(lm=lm, adapter=dspy.JSONAdapter()):
        assert dspy.Predict("question -> answer: int")(question="Six times seven?").answer == 42
    sent = llama.bodies[0]["response_format"]
    assert sent["json_schema"]["schema"]["properties"]["answer"]["type"] == "integer"


def test_what_it_cannot_carry_is_refused(engine: EmbeddedEngine, llama: FakeLlama) -> None:
    tool = FunctionTool(name="search", description="d", parameters={"type": "object", "properties": {}})
    image = Message.user([ImagePart(url="https://example.org/a.png", media_type="image/png")])
    for refused in (
        request(user("a"), tools=(tool,)),
        request(user("a"), extensions={"mirostat": 2}),
        request(user("a"), reasoning=Reasoning(effort="low")),
        request(image),
    ):
        with pytest.raises(UnsupportedFeatureError):
            engine.complete(refused)
    with pytest.raises(InvalidRequestError, match="top_logprobs"):
        engine.complete(request(user("a"), logprobs=51))
    assert llama.bodies == []


# --- responses --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("as_text", [True, False])
def test_a_response_is_mapped(engine: EmbeddedEngine, llama: FakeLlama, as_text: bool) -> None:
    raw = reply("Paris")
    llama.answer = lambda body: json.dumps(raw) if as_text else raw
    response = engine.complete(request(user("a")))
    assert response.message.text == "Paris"
    assert response.model == "embedded/tiny"
    assert response.finish_reason == "stop"
    usage = response.usage
    assert (usage.input_tokens, usage.output_tokens, usage.cache_read_tokens) == (30, 4, 21)
    assert response.logprobs is None


def test_the_length_limit_is_told(engine: EmbeddedEngine, llama: FakeLlama) -> None:
    llama.answer = lambda body: reply("Par", finish_reason="length")
    assert engine.complete(request(user("a"))).finish_reason == "length"


def test_the_given_beginning_is_cut_off(engine: EmbeddedEngine, llama: FakeLlama) -> None:
    llama.answer = lambda body: reply("Answer: Paris")
    assert engine.complete(request(user("a"), assistant("Answer:"))).message.text == " Paris"
    # Only a trailing assistant message is continued.
    assert engine.complete(request(user("a"), assistant("Answer:"), user("b"))).message.text == "Answer: Paris"


def test_logprobs_without_the_end_token(engine: EmbeddedEngine, llama: FakeLlama) -> None:
    other = {"token": " Lyon", "logprob": -3.0, "bytes": list(b" Lyon")}
    content = [
        {"id": 5, "token": " Paris", "logprob": -0.25, "bytes": list(b" Paris"), "top_logprobs": [other, other]},
        {"id": 2, "token": "", "logprob": -0.5, "bytes": [], "top_logprobs": []},
    ]
    llama.answer = lambda body: reply(" Paris", logprobs={"content": content})
    response = engine.complete(request(user("a"), logprobs=1))
    assert response.logprobs is not None
    assert [(token.token, token.logprob) for token in response.logprobs] == [(" Paris", -0.25)]
    token = response.logprobs[0]
    assert (bytes(token.bytes or ()), token.token_id) == (b" Paris", 5)
    assert [top.token for top in token.top] == [" Lyon"]


def test_an_empty_completion_has_an_empty_text(engine: EmbeddedEngine, llama: FakeLlama) -> None:
    llama.answer = lambda body: reply("")
    assert not engine.complete(request(user("a"))).message.text
    llama.answer = lambda body: {"choices": [{"message": {"content": None}, "finish_reason": "stop"}]}
    assert not engine.complete(request(user("a"))).message.text


# --- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "error"),
    [
        ({"error": {"code": 400, "type": "exceed_context_size_error", "message": "too long"}}, ContextLengthError),
        ({"error": {"code": 400, "type": "invalid_request_error", "message": "bad"}}, InvalidRequestError),
        ({"error": {"code": 500, "type": "server_error", "message": "oops"}}, ServerError),
        ({"error": "plain"}, ServerError),
        ({}, ServerError),
        ([], ServerError),
        ({"choices": []}, ServerError),
    ],
    ids=str,
)
def test_errors_of_the_server(engine: EmbeddedEngine, llama: FakeLlama, raw: Any, error: type[Exception]) -> None:
    llama.answer = lambda body: raw
    with pytest.raises(error):
        engine.complete(request(user("a")))


def test_a_context_overflow_names_the_remedy(engine: EmbeddedEngine, llama: FakeLlama) -> None:
    detail = {"code": 400, "type": "exceed_context_size_error", "message": "9000 tokens do not fit"}
    llama.answer = lambda body: {"error": detail}
    with pytest.raises(ContextLengthError, match=r"9000 tokens.*n_ctx"):
        engine.complete(request(user("a")))


@pytest.mark.parametrize("failure", ["raises", "no JSON"])
def test_a_failing_server_is_a_typed_error_and_frees_its_slot(gguf: Path, llama: FakeLlama, failure: str) -> None:
    def fail(body: dict[str, Any]) -> Any:
        if failure == "raises":
            raise RuntimeError("decode failed")
        return "not JSON"

    engine = EmbeddedEngine(str(gguf), slots=1)
    llama.answer = fail
    with pytest.raises(LM15Error):
        engine.complete(request(user("a")))
    llama.answer = lambda body: reply("Paris")
    assert engine.complete(request(user("a"))).message.text == "Paris"  # would wait for ever on a lost slot


def test_a_model_that_does_not_load(engine: EmbeddedEngine, llama: FakeLlama) -> None:
    def broken(params: Any) -> Any:
        raise RuntimeError("unknown architecture")

    llama.Server = broken  # type: ignore[assignment, misc]
    with pytest.raises(ModelError, match=r"tiny\.gguf.*unknown architecture"):
        engine.complete(request(user("a")))


def test_without_the_bindings(gguf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "xllamacpp", None)
    with pytest.raises(MissingDependencyError, match=r"hopgate\[embedded\]"):
        EmbeddedEngine(str(gguf)).complete(request(user("a")))


# --- the server -------------------------------------------------------------------------------------------------------


def test_the_model_is_loaded_once_with_its_options(gguf: Path, llama: FakeLlama) -> None:
    engine = EmbeddedEngine(str(gguf), n_ctx=1024, slots=3, threads=2, cache_mib=64)
    assert llama.params == []
    engine.complete(request(user("a")))
    engine.complete(request(user("b")))
    (params,) = llama.params
    assert params.model.path == str(gguf)
    assert (params.n_ctx, params.n_parallel, params.cache_ram_mib, params.kv_unified) == (1024, 3, 64, True)
    assert params.cpuparams.n_threads == params.cpuparams_batch.n_threads == 2


def test_a_closed_engine_loads_again(engine: EmbeddedEngine, llama: FakeLlama) -> None:
    engine.complete(request(user("a")))
    engine.close()
    assert engine.complete(request(user("a"))).message.text == "Paris"
    assert len(llama.params) == 2


def test_never_more_requests_inside_than_slots(gguf: Path, llama: FakeLlama) -> None:
    engine = EmbeddedEngine(str(gguf), slots=2)
    both = threading.Barrier(2)

    def answer(body: dict[str, Any]) -> Any:
        both.wait(timeout=20)  # passes only once two are inside
        return reply(body["messages"][0]["content"])

    llama.answer = answer
    texts = [f"question {number}" for number in range(16)]
    with ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda text: engine.complete(request(user(text))).message.text, texts))
    assert replies == texts
    assert llama.most_inside == 2
    assert len(llama.params) == 1
    assert {body["id_slot"] for body in llama.bodies} == {0, 1}


def test_one_slot_serves_one_after_the_other(gguf: Path, llama: FakeLlama) -> None:
    engine = EmbeddedEngine(str(gguf), slots=1)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: engine.complete(request(user(str(number)))), range(16)))
    assert llama.most_inside == 1
    assert {body["id_slot"] for body in llama.bodies} == {0}


EXAMPLES = "Work line by line. " + "Example: a worked example that all steps share. " * 40
LONG = "Task 1: Who? Found: " + "many words of a passage " * 20


def slots_of(engine: EmbeddedEngine, llama: FakeLlama, *continued: str, question: str = "q?") -> list[int]:
    """The slots that prompts with these beginnings of a reply were sent to."""
    before = len(llama.bodies)
    for text in continued:
        engine.complete(request(user(question), assistant(text), system=EXAMPLES))
    return [body["id_slot"] for body in llama.bodies[before:]]


def test_a_growing_transcript_stays_in_its_slot(engine: EmbeddedEngine, llama: FakeLlama) -> None:
    steps = [LONG, f"{LONG}\nConclusion 1: x", f"{LONG}\nConclusion 1: x\nTask 2:"]
    assert len(set(slots_of(engine, llama, *steps))) == 1


def test_a_fork_does_not_evict_the_transcript(engine: EmbeddedEngine, llama: FakeLlama) -> None:
    grown = f"{LONG}\nConclusion 1: x\nTask 2:"
    fork = "Task 1: Who?\nConclusion 1: x\nTask 2: When? Conclusion 2:"
    later = f"{grown} When? Found: more\nConclusion 2:"
    second_fork = "Task 1: Who?\nConclusion 1: x\nTask 2: When?\nConclusion 2: y\nTask 3: Where?\nConclusion 3:"
    first, forked, back, forked_again = slots_of(engine, llama, grown, fork, later, second_fork)
    assert forked != first
    assert back == first
    assert forked_again == forked


def test_another_question_takes_the_slot_that_loses_less(engine: EmbeddedEngine, llama: FakeLlama) -> None:
    long, short = slots_of(engine, llama, LONG, "Task 1: Who? Conclusion 1:")
    assert long != short
    assert slots_of(engine, llama, "Task 1:", question="Another?") == [short]
    assert slots_of(engine, llama, f"{LONG}\nConclusion 1: x") == [long]


def test_with_one_slot_a_fork_uses_it(gguf: Path, llama: FakeLlama) -> None:
    assert slots_of(EmbeddedEngine(str(gguf), slots=1), llama, LONG, "Task 1: Who?", LONG) == [0, 0, 0]


# --- identity, copies, state ------------------------------------------------------------------------------------------


def test_the_model_string_holds_the_identity_of_the_weights(gguf: Path, tmp_path: Path) -> None:
    first = EmbeddedEngine(str(gguf))
    other = tmp_path / "other" / "tiny.gguf"
    other.parent.mkdir()
    other.write_bytes(b"GGUF and something else")
    second = EmbeddedEngine(str(other))
    assert first.model_string != second.model_string
    assert first.digest[:12] in first.model_string
    assert str(tmp_path) not in first.model_string
    assert EmbeddedEngine(str(gguf)).model_string == first.model_string
    gguf.write_bytes(b"GGUF and a longer rest than before")
    assert EmbeddedEngine(str(gguf)).model_string != first.model_string


def test_a_path_without_suffix_works(gguf: Path) -> None:
    plain = gguf.with_name("blob")
    gguf.rename(plain)
    assert EmbeddedEngine(str(plain)).path == plain


def test_what_is_no_gguf_is_refused(tmp_path: Path) -> None:
    empty = tmp_path / "empty.gguf"
    empty.write_bytes(b"")
    for path in (empty, tmp_path / "missing.gguf", tmp_path):
        with pytest.raises(ModelError) as caught:
            EmbeddedEngine(f"{path}")
        assert "\n" not in str(caught.value)


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(WeightsError, match="qwen"):
        EmbeddedEngine("no-such-model")


def test_copies_share_the_engine(engine: EmbeddedEngine) -> None:
    lm = dspy.LM(engine.model_string, engine=engine)
    assert copy.copy(engine) is engine
    assert copy.deepcopy(engine) is engine
    assert copy.deepcopy(lm).engine is engine
    assert lm.copy(temperature=1.0).engine is engine
    asynchronous = engine.asynchronous()
    assert copy.deepcopy(asynchronous).engine is engine
    module = dspy.Predict("question -> answer")
    module.lm = lm
    assert module.deepcopy().lm.engine is engine


def test_state_goes_to_json_and_back(gguf: Path) -> None:
    engine = EmbeddedEngine(str(gguf), n_ctx=1024, slots=3)
    loaded = EmbeddedEngine.load_state(json.loads(json.dumps(engine.dump_state())))
    assert (loaded.model_string, loaded.options) == (engine.model_string, engine.options)
    loaded_async = AsyncEmbeddedEngine.load_state(engine.asynchronous().dump_state())
    assert loaded_async.engine.model_string == engine.model_string


def test_pickling_carries_a_name_and_no_weights(engine: EmbeddedEngine, llama: FakeLlama) -> None:
    engine.complete(request(user("a")))
    data = pickle.dumps(engine)
    assert len(data) < 1000
    loaded = pickle.loads(data)
    assert (loaded.model_string, loaded.options) == (engine.model_string, engine.options)
    assert loaded.complete(request(user("a"))).message.text == "Paris"
    loaded_async = pickle.loads(pickle.dumps(engine.asynchronous()))
    assert loaded_async.engine.model_string == engine.model_string


def test_state_of_other_weights_or_a_newer_version(gguf: Path) -> None:
    state = EmbeddedEngine(str(gguf)).dump_state()
    with pytest.raises(StateError, match="version"):
        EmbeddedEngine.load_state({**state, "version": 2})
    gguf.write_bytes(b"GGUF but other weights")
    with pytest.raises(StateError, match="weights"):
        EmbeddedEngine.load_state(state)


# --- through DSPy -----------------------------------------------------------------------------------------------------


def test_a_predict_call_through_the_engine(engine: EmbeddedEngine, llama: FakeLlama) -> None:
    content = [{"id": 5, "token": " Paris", "logprob": -0.25, "bytes": list(b" Paris"), "top_logprobs": []}]
    llama.answer = lambda body: reply("Answer: Paris", logprobs={"content": content})
    lm = dspy.LM(engine.model_string, engine=engine, async_engine=engine.asynchronous(), cache=False)
    with dspy.context(lm=lm):
        result = dspy.Predict(AnswerDirectly)(question="Capital of France?", config={"logprobs": True})
    assert result.answer == "Paris"
    assert result.logprobs["content"][0]["logprob"] == -0.25
    assert llama.bodies[0]["messages"][-1] == {"role": "assistant", "content": "Answer:"}
    assert llama.bodies[0]["stop"] == ["\n"]


def test_the_async_engine_never_blocks_the_loop(gguf: Path, llama: FakeLlama) -> None:
    engine = EmbeddedEngine(str(gguf), slots=2)
    lm = dspy.LM(engine.model_string, engine=engine, async_engine=engine.asynchronous(), cache=False)
    both = threading.Barrier(2)

    def answer(body: dict[str, Any]) -> Any:
        both.wait(timeout=20)  # broken, and so an error, if the loop ran one after the other
        return reply("Answer: Paris")

    llama.answer = answer

    async def main() -> list[Any]:
        predict = dspy.Predict("question -> answer")
        return await asyncio.gather(*(predict.acall(question=f"{number}?") for number in range(4)))

    with dspy.context(lm=lm):
        assert [result.answer for result in asyncio.run(main())] == ["Paris"] * 4
    assert llama.most_inside == 2


def test_a_declared_lm_is_synchronous_and_asynchronous(gguf: Path, llama: FakeLlama) -> None:
    lm = lm_from_config({"model": f"embedded/{gguf}", "cache": False})
    with dspy.context(lm=lm):
        predict = dspy.Predict("question -> answer")
        assert predict(question="One?").answer == "Paris"
        assert asyncio.run(predict.acall(question="One?")).answer == "Paris"
    assert len(llama.params) == 1
    assert llama.bodies[0]["messages"] == llama.bodies[1]["messages"]


def test_a_predictor_with_an_embedded_lm_can_be_saved_and_loaded(gguf: Path, llama: FakeLlama, tmp_path: Path) -> None:
    predict = dspy.Predict("question -> answer")
    predict.lm = lm_from_config(f"embedded/{gguf}")
    predict.save(tmp_path / "program.json")
    fresh = dspy.Predict("question -> answer")
    fresh.load(tmp_path / "program.json", allow_unsafe_lm_state=True)
    assert fresh.lm.model == predict.lm.model


def test_streams_end_with_the_whole_completion(engine: EmbeddedEngine) -> None:
    async def collected() -> list[Any]:
        return [event async for event in engine.asynchronous().stream(request(user("a")))]

    for events in (list(engine.stream(request(user("a")))), asyncio.run(collected())):
        assert "Paris" in "".join(repr(event) for event in events)
        assert len(events) >= 2


# --- the real model ---------------------------------------------------------------------------------------------------

REAL = "qwen2.5-coder-1.5b"


@pytest.fixture(scope="module")
def real_lm() -> dspy.LM:
    if importlib.util.find_spec("xllamacpp") is None:
        pytest.skip("xllamacpp is not installed: pip install 'hopgate[embedded]'")
    try:
        resolve(REAL)
    except WeightsError as error:
        pytest.skip(str(error))
    return lm_from_config({"model": f"embedded/{REAL}", "n_ctx": 1024, "slots": 1, "cache": False})


@pytest.mark.lm
def test_real_logprobs_and_continuation(real_lm: dspy.LM) -> None:
    with dspy.context(lm=real_lm):
        result = dspy.Predict("question -> answer")(
            question="What is the capital of France?", config={"logprobs": True, "max_tokens": 8}
        )
    assert "Paris" in result.answer
    assert not result.answer.startswith("Answer")
    tokens = result.logprobs["content"]
    assert all(token["logprob"] <= 0 and token["bytes"] for token in tokens)
    assert "Paris" in b"".join(bytes(token["bytes"]) for token in tokens).decode()


@pytest.mark.lm
def test_real_json_schema(real_lm: dspy.LM) -> None:
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer"}},
        "required": ["n"],
        "additionalProperties": False,
    }
    asked = Request(
        model=real_lm.model,
        messages=(user("How many legs has a cat? Reply in JSON."),),
        config=Config(max_tokens=16, temperature=0.0, response_format={"type": "json_schema", "schema": schema}),
    )
    assert isinstance(json.loads(real_lm.engine.complete(asked).message.text or "")["n"], int)


@pytest.mark.lm
def test_real_seed(real_lm: dspy.LM) -> None:
    def sampled() -> str | None:
        asked = Request(
            model=real_lm.model,
            messages=(user("Name an animal."),),
            config=Config(max_tokens=4, temperature=1.5, seed=11),
        )
        return real_lm.engine.complete(asked).message.text

    # The first call fills the prefix cache; from then on the numbers are the same to the last digit.
    sampled()
    assert sampled() == sampled()
