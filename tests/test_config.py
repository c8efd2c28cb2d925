"""Declared LM backends: tables become LMs, secrets and unknown things are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dspy
import pytest

from hopgate.core import ModelError, WeightsError
from hopgate.lms import DEFAULT_MODEL, EmbeddedEngine, embedded_models, lm_from_config


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOPGATE_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def gguf(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.gguf"
    path.write_bytes(b"GGUF and the rest")
    return path


def test_a_model_string_is_a_table() -> None:
    lm = lm_from_config("openai/gpt-4o-mini")
    assert isinstance(lm, dspy.LM)
    assert lm.model == "openai/gpt-4o-mini"


def test_arguments_reach_the_lm() -> None:
    table = {"model": "openai/gpt-4o-mini", "temperature": 0.5, "max_tokens": 77, "cache": False}
    lm = lm_from_config(table)
    assert (lm.kwargs["temperature"], lm.kwargs["max_tokens"], lm.cache) == (0.5, 77, False)
    assert table["model"] == "openai/gpt-4o-mini"  # the table itself stays as it was


@pytest.mark.parametrize(
    "secret", ["api_key", "API_KEY", "azure_ad_token", "password", "aws_secret_access_key", "authorization"]
)
def test_secrets_are_refused_and_not_repeated(secret: str) -> None:
    with pytest.raises(ModelError, match="environment") as caught:
        lm_from_config({"model": "openai/gpt-4o-mini", secret: "sk-very-private"})
    assert "sk-very-private" not in str(caught.value)
    assert secret in str(caught.value)


@pytest.mark.parametrize(
    "table",
    [
        {"extra_headers": {"Authorization": "Bearer sk-very-private"}},
        {"headers": {"x-api-key": "sk-very-private"}},
        {"vertex_credentials": "sk-very-private"},
    ],
    ids=str,
)
def test_secrets_in_other_places_are_refused(table: dict[str, Any]) -> None:
    with pytest.raises(ModelError) as caught:
        lm_from_config({"model": "openai/gpt-4o-mini", **table})
    assert "sk-very-private" not in str(caught.value)


def test_a_limit_on_tokens_is_no_secret() -> None:
    lm_from_config({"model": "openai/gpt-4o-mini", "max_tokens": 5})
    lm_from_config({"model": "openai/gpt-4o-mini", "max_completion_tokens": 20000})


@pytest.mark.parametrize("table", [{}, {"model": ""}, {"model": "  "}, {"model": None}, {"model": 7}, ""], ids=repr)
def test_a_table_needs_a_model(table: Any) -> None:
    with pytest.raises(ModelError, match="model"):
        lm_from_config(table)


@pytest.mark.parametrize("model", ["gpt-4o-mini", "openai/", "/gpt", "embedded/", "embedded/unknown-9b"])
def test_an_unknown_model_is_refused_with_those_that_there_are(model: str) -> None:
    with pytest.raises(ModelError, match="unknown model") as caught:
        lm_from_config(model)
    assert DEFAULT_MODEL in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_default_model_is_an_embedded_one() -> None:
    assert DEFAULT_MODEL in embedded_models()


def test_embedded_weights_that_were_not_fetched() -> None:
    with pytest.raises(WeightsError, match="hopgate lm fetch"):
        lm_from_config(DEFAULT_MODEL)


def test_an_embedded_path(gguf: Path) -> None:
    lm = lm_from_config({"model": f"embedded/{gguf}", "n_ctx": 2048, "slots": 3, "threads": 1, "cache_mib": 0})
    assert isinstance(lm.engine, EmbeddedEngine)
    assert lm.engine.options == {"n_ctx": 2048, "slots": 3, "threads": 1, "cache_mib": 0}
    assert lm.model == lm.engine.model_string
    # llama.cpp has no limit of its own.
    assert (lm.kwargs["temperature"], lm.kwargs["max_tokens"]) == (0.0, 512)


def test_options_win_over_the_embedded_defaults(gguf: Path) -> None:
    lm = lm_from_config({"model": f"embedded/{gguf}", "temperature": 0.7, "max_tokens": 20})
    assert (lm.kwargs["temperature"], lm.kwargs["max_tokens"]) == (0.7, 20)


@pytest.mark.parametrize(
    "options",
    [
        {"n_ctx": 10}, {"n_ctx": "8192"}, {"n_ctx": True}, {"slots": 0}, {"slots": 1.5}, {"threads": 0},
        {"threads": "all"}, {"cache_mib": -1},
    ],
    ids=str,
)  # fmt: skip
def test_embedded_options_out_of_range(gguf: Path, options: dict[str, Any]) -> None:
    with pytest.raises(ModelError, match=next(iter(options))):
        lm_from_config({"model": f"embedded/{gguf}", **options})


@pytest.mark.parametrize(
    "option", ["temprature", "max_token", "engine", "n", "api_base", "n_gpu_layers", "Temperature"]
)
def test_options_that_an_embedded_lm_does_not_have(gguf: Path, option: str) -> None:
    with pytest.raises(ModelError, match=f"no option `{option}`; there are cache, .*n_ctx, .*temperature"):
        lm_from_config({"model": f"embedded/{gguf}", "temperature": 0, option: 1})


def test_every_option_that_is_named_is_taken(gguf: Path) -> None:
    with pytest.raises(ModelError) as caught:
        lm_from_config({"model": f"embedded/{gguf}", "none": 1})
    values: dict[str, Any] = {
        "model_type": "chat",
        "callbacks": [],
        "stop": ["x"],
        "n_ctx": 2048,
        "response_format": None,
        "cache": True,
        "use_developer_role": False,
    }
    values["temperature"] = values["rollout_id"] = None
    for name in str(caught.value).rpartition("there are ")[2].split(", "):
        lm_from_config({"model": f"embedded/{gguf}", name: values.get(name, 1)})


def test_what_litellm_may_know_is_passed_on() -> None:
    assert lm_from_config({"model": "openai/x", "some_new_option": 3}).kwargs["some_new_option"] == 3


def test_a_path_that_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no such GGUF file"):
        lm_from_config(f"embedded/{tmp_path / 'missing.gguf'}")
    other = tmp_path / "text.gguf"
    other.write_text("not a model")
    with pytest.raises(ModelError, match="not a GGUF file"):
        lm_from_config(f"embedded/{other}")


def test_the_state_of_a_declared_lm_holds_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-private")
    assert "sk-very-private" not in repr(lm_from_config("openai/gpt-4o-mini").dump_state())


WRONG = [
    {"temperature": "hot"}, {"temperature": "0.5"}, {"temperature": True}, {"temperature": -1}, {"temperature": 2.5},
    {"temperature": float("nan")}, {"top_p": "all"}, {"top_p": 1.5}, {"top_k": 0.5}, {"top_k": 0},
    {"max_tokens": "many"}, {"max_tokens": 0}, {"max_tokens": 60.5}, {"max_tokens": True},
    {"max_completion_tokens": -1}, {"n": "two"}, {"n": 0}, {"seed": "x"}, {"seed": 1.5}, {"stop": 5}, {"stop": ""},
    {"stop": [1]}, {"stop": ["", "x"]}, {"stop": {"a": 1}}, {"logprobs": "yes"}, {"top_logprobs": -1},
    {"frequency_penalty": 3}, {"presence_penalty": "low"}, {"cache": "no"}, {"num_retries": -1},
    {"rollout_id": "a"}, {"model_type": "talk"}, {"use_developer_role": 1}, {"api_base": 8000}, {"api_base": ""},
]  # fmt: skip


@pytest.mark.parametrize("options", WRONG, ids=str)
def test_options_that_no_model_takes_are_refused_when_it_is_declared(gguf: Path, options: dict[str, Any]) -> None:
    name, value = next(iter(options.items()))
    models = ["openai/gpt-4o-mini"]
    if name in {"cache", "num_retries", "rollout_id", *EmbeddedEngine.supported_params}:
        models.append(f"embedded/{gguf}")
    for model in models:
        with pytest.raises(ModelError, match=f"`{name}` must be ") as caught:
            lm_from_config({"model": model, **options})
        message = str(caught.value)
        assert f"got {value!r}" in message and "Input should" not in message and "\n" not in message


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 0}, {"temperature": None}, {"temperature": 1.5}, {"top_p": 1}, {"max_tokens": None},
        {"stop": "\n"}, {"stop": ["\n", "Q:"]}, {"logprobs": True}, {"logprobs": 5}, {"seed": -1}, {"cache": False},
        {"reasoning_effort": "low"}, {"api_base": "http://127.0.0.1:8000/v1"}, {"timeout": 5},
    ],
    ids=str,
)  # fmt: skip
def test_options_that_models_take_are_theirs(options: dict[str, Any]) -> None:
    lm = lm_from_config({"model": "openai/gpt-4o-mini", **options})
    (name, value), *_ = options.items()
    assert (lm.cache if name == "cache" else lm.kwargs[name]) == value


def test_a_tuple_of_stops() -> None:
    assert lm_from_config({"model": "openai/gpt-4o-mini", "stop": ("a", "b")}).kwargs["stop"] == ("a", "b")
