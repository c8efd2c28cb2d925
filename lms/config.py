"""Declared LM backends: a table becomes a ``dspy.LM``.

    {"model": "openai/gpt-4o-mini", "temperature": 0}
    {"model": "embedded/qwen2.5-coder-1.5b", "temperature": 0, "max_tokens": 60}
    {"model": "embedded//models/any.gguf"}

Secrets are never written into a table: providers read them from their environment variables.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import dspy

from ..core import ModelError
from ..core.known_weights import WEIGHTS
from .embedded import EmbeddedEngine, check_bindings
from .options import check_options

EMBEDDED_PREFIX = "embedded/"
DEFAULT_MODEL = "embedded/qwen2.5-coder-1.5b"

_ENGINE_OPTIONS = ("n_ctx", "slots", "threads", "cache_mib")
_LM_OPTIONS = ("cache", "callbacks", "model_type", "num_retries", "rollout_id", "use_developer_role")
"""Those of ``dspy.LM`` itself; it takes any others for the model and does not tell whether the model has them."""
_SECRETS = {"key", "token", "password", "secret", "authorization", "credential", "credentials"}


def lm_from_config(table: str | Mapping[str, Any]) -> dspy.LM:
    """The LM that a table declares.

    Args:
        table: A model string, or a table with ``model`` and any arguments of ``dspy.LM``. A model is named as DSPy
            names it (``provider/name``), or ``embedded/NAME`` for embedded weights (``hopgate lm list``), or
            ``embedded/PATH`` for a GGUF file; the embedded engine also takes ``n_ctx``, ``slots``, ``threads`` and
            ``cache_mib``, and has temperature 0 and at most 512 new tokens unless the table says otherwise. What it
            does not know is refused; options of other models go to LiteLLM as they are.

    Returns:
        The LM, not called yet; embedded weights are loaded on the first call.

    Raises:
        ModelError: The model is unknown or an option is wrong.
        WeightsError: The weights of an embedded model are missing or damaged.

    Example:
        >>> lm = lm_from_config({"model": "openai/gpt-4o-mini", "temperature": 0})
        >>> lm.kwargs["temperature"]
        0
    """
    if not isinstance(table, str | Mapping):
        raise ModelError(f"an LM is declared by a model string or a table, got {type(table).__name__}")
    options: dict[str, Any] = {"model": table} if isinstance(table, str) else dict(table)
    model = options.pop("model", None)
    if not isinstance(model, str) or not model.strip():
        raise ModelError("an LM table needs a `model`, such as 'openai/gpt-4o-mini' or 'embedded/qwen2.5-coder-1.5b'")
    if model.startswith(EMBEDDED_PREFIX):
        _check_embedded_options(model, options)
    secret = _secret(options)
    if secret is not None:
        raise ModelError(
            f"{model}: `{secret}` does not belong in an LM table; set the provider's environment variable instead"
        )
    check_options(model, options)
    if model.startswith(EMBEDDED_PREFIX):
        return _embedded(model, model.removeprefix(EMBEDDED_PREFIX), options)
    for name in _ENGINE_OPTIONS:
        if name in options:
            raise ModelError(f"{model}: `{name}` is an option of embedded models only")
    provider, separator, name = model.partition("/")
    if not separator or not provider or not name:
        raise ModelError(f"unknown model {model!r}: write provider/name, or one of {', '.join(embedded_models())}")
    try:
        return dspy.LM(model, **options)
    except (TypeError, ValueError, dspy.LMError) as error:
        raise ModelError(f"{model}: {error}") from error


def embedded_models() -> list[str]:
    """Model strings of the embedded LMs whose weights hopgate knows how to fetch."""
    return [f"{EMBEDDED_PREFIX}{name}" for name, weights in WEIGHTS.items() if weights.kind == "lm"]


def _secret(options: Mapping[str, Any]) -> str | None:
    """The first name, at any depth, that is made of words for a secret."""
    for name, value in options.items():
        if _SECRETS & set(re.split(r"[^a-z]+", str(name).lower())):
            return str(name)
        if isinstance(value, str) and re.match(r"\w+://[^/]*@", value):
            return str(name)  # A user or a password within an address.
        inner = _secret(value) if isinstance(value, Mapping) else None
        if inner is not None:
            return inner
    return None


def _check_embedded_options(model: str, options: Mapping[str, Any]) -> None:
    known = {*_ENGINE_OPTIONS, *_LM_OPTIONS, *EmbeddedEngine.supported_params}
    unknown = sorted(set(map(str, options)) - known)
    if unknown:
        raise ModelError(f"{model}: there is no option `{unknown[0]:.80}`; there are {', '.join(sorted(known))}")


def _embedded(model: str, name: str, options: dict[str, Any]) -> dspy.LM:
    if "/" not in name and not name.endswith(".gguf") and model not in embedded_models():
        raise ModelError(f"unknown model {model!r}: there are {', '.join(embedded_models())}, or embedded/PATH.gguf")
    check_bindings()
    engine_options = {key: options.pop(key) for key in _ENGINE_OPTIONS if key in options}
    engine = EmbeddedEngine(name, **engine_options)
    # llama.cpp itself would go on for ever.
    options = {"temperature": 0.0, "max_tokens": 512, **options}
    try:
        return dspy.LM(engine.model_string, engine=engine, async_engine=engine.asynchronous(), **options)
    except (TypeError, ValueError, dspy.LMError) as error:
        raise ModelError(f"{model}: {error}") from error
