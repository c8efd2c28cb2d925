"""The embedded LM: llama.cpp in this process, behind DSPy's engine contract.

One :class:`EmbeddedEngine` owns one llama.cpp server object. Copies of an LM, of a program and of the engine itself
share it: a second copy of the weights would halve the speed and double the memory.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import json
import os
import sys
import threading
import weakref
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

from dspy.clients.engines.base import validate_request
from dspy.lm15 import (
    ContextLengthError,
    InvalidRequestError,
    Message,
    Request,
    Response,
    ServerError,
    TextPart,
    TokenLogprob,
    TopLogprob,
    UnsupportedFeatureError,
    Usage,
    response_to_events,
)

from ..core import MissingDependencyError, ModelError, StateError, sha256_of, user_path
from ..core.weights import gguf_path
from .slots import Slots

_STATE_VERSION = 1
_FINISH = {"stop": "stop", "length": "length"}
# Beyond this many alternatives a token llama.cpp spends more time on sorting the vocabulary than on the model.
_MAX_TOP_LOGPROBS = 50


class EmbeddedEngine:
    """A DSPy engine that runs a GGUF model in this process through llama.cpp (``xllamacpp``).

    The model is loaded on the first call. A trailing assistant message is not answered but continued as it stands, and
    the continuation alone is returned (``continues_assistant``), which is what lets all steps of a program share one
    prompt prefix. Log-probabilities are natural logarithms (nats) of the model's own distribution, before temperature.

    Args:
        model: A name from ``hopgate lm list`` or the path of a GGUF file.
        n_ctx: Context size in tokens, shared by all slots.
        slots: How many requests are inside the model at once; further callers wait.
        threads: CPU threads; the number of cores that this process may use if not given.
        cache_mib: Memory for prompt prefixes that a slot has left, in MiB; returning to one then costs little.

    Raises:
        WeightsError: The weights are missing or damaged.
        ModelError: An option is out of range.

    Example:
        >>> engine = EmbeddedEngine("qwen2.5-coder-1.5b")                                          # doctest: +SKIP
        >>> lm = dspy.LM(engine.model_string, engine=engine, async_engine=engine.asynchronous())   # doctest: +SKIP
    """

    supports_function_calling = False
    supports_reasoning = False
    supports_response_schema = True
    supported_params = frozenset(
        {
            "temperature", "max_tokens", "top_p", "top_k", "stop", "seed", "logprobs", "top_logprobs",
            "frequency_penalty", "presence_penalty", "response_format",
        }
    )  # fmt: skip
    continues_assistant = True

    def __init__(
        self, model: str, *, n_ctx: int = 8192, slots: int = 2, threads: int | None = None, cache_mib: int = 1024
    ) -> None:
        for name, value, least in (("n_ctx", n_ctx, 256), ("slots", slots, 1), ("cache_mib", cache_mib, 0)):
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ModelError(f"{model}: `{name}` must be a whole number of at least {least}, got {value!r}")
        if threads is not None and (isinstance(threads, bool) or not isinstance(threads, int) or threads < 1):
            raise ModelError(f"{model}: `threads` must be a whole number of at least 1, got {threads!r}")
        self.model = model
        self.options: dict[str, Any] = {
            "n_ctx": n_ctx, "slots": slots, "threads": threads, "cache_mib": cache_mib
        }  # fmt: skip
        self.path = _model_file(model)
        self.digest = sha256_of(self.path)
        self._running: _Running | None = None

    @property
    def model_string(self) -> str:
        """Name for ``dspy.LM``: it holds the identity of the weights, since DSPy's cache key is made of it."""
        name = self.model if not _is_path(self.model) else Path(self.model).stem
        return f"embedded/{name}@{self.digest[:12]}"

    @property
    def threads(self) -> int:
        """CPU threads of the model: those asked for, or as many as this process may use."""
        return self.options["threads"] or _cores()

    def asynchronous(self) -> AsyncEmbeddedEngine:
        """The asynchronous counterpart, on the same weights and slots."""
        return AsyncEmbeddedEngine(self)

    # --- DSPy's engine contract -----------------------------------------------------------------------------------

    def complete(self, request: Request) -> Response:
        """One completion.

        Raises:
            InvalidRequestError, ContextLengthError, UnsupportedFeatureError: The request cannot be carried out.
            ServerError: llama.cpp failed.
        """
        validate_request(request)
        body = _chat_body(request)
        running = self._started()
        prompt = "\0".join(f"{message['role']}:{message['content']}" for message in body["messages"])
        with running.slots.taken(prompt) as slot:
            try:
                raw = running.server.handle_chat_completions({**body, "id_slot": slot})
                raw = json.loads(raw) if isinstance(raw, str | bytes) else raw
            except Exception as error:
                raise ServerError(f"llama.cpp failed: {error}") from error
        return _response(raw, request, body)

    def stream(self, request: Request) -> Iterator[Any]:
        """The completion as events; it arrives in one piece."""
        yield from response_to_events(self.complete(request))

    def close(self) -> None:
        """Let go of the model, which is freed with its last engine. The next call loads it again."""
        self._running = None

    def dump_state(self) -> dict[str, Any]:
        """What :meth:`load_state` needs: the model's name, its checksum and the options."""
        return {"version": _STATE_VERSION, "model": self.model, "sha256": self.digest, "options": dict(self.options)}

    @classmethod
    def load_state(cls, state: dict[str, Any]) -> EmbeddedEngine:
        """The inverse of :meth:`dump_state`.

        Raises:
            StateError: The state is of a newer version, or the weights are not those it was saved with.
        """
        if state.get("version") != _STATE_VERSION:
            raise StateError(f"embedded LM state has version {state.get('version')!r}, this is {_STATE_VERSION}")
        engine = cls(state["model"], **state["options"])
        if engine.digest != state["sha256"]:
            raise StateError(f"the weights of {state['model']} are not those that the state was saved with")
        return engine

    # --- sharing ----------------------------------------------------------------------------------------------------

    def __deepcopy__(self, memo: dict[int, Any]) -> EmbeddedEngine:
        return self

    def __copy__(self) -> EmbeddedEngine:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return (EmbeddedEngine.load_state, (self.dump_state(),))

    def _started(self) -> _Running:
        running = self._running
        if running is None:
            running = self._running = _start(self.path, self.digest, self.options)
        return running


class _Running:
    """A loaded model and its slots, shared by all engines of the same weights and options."""

    def __init__(self, server: Any, slots: int) -> None:
        self.server = server
        self.slots = Slots(slots)


# An engine that was pickled or loaded from a state is a new object, but must not load the weights a second time.
_RUNNING: weakref.WeakValueDictionary[str, _Running] = weakref.WeakValueDictionary()
_STARTING = threading.Lock()


class AsyncEmbeddedEngine:
    """The asynchronous face of an :class:`EmbeddedEngine`: calls wait in worker threads, never on the event loop."""

    def __init__(self, engine: EmbeddedEngine) -> None:
        self.engine = engine
        self.continues_assistant = engine.continues_assistant

    async def complete(self, request: Request) -> Response:
        """See :meth:`EmbeddedEngine.complete`."""
        return await asyncio.to_thread(self.engine.complete, request)

    async def stream(self, request: Request) -> AsyncIterator[Any]:
        """See :meth:`EmbeddedEngine.stream`."""
        for event in response_to_events(await self.complete(request)):
            yield event

    async def aclose(self) -> None:
        """See :meth:`EmbeddedEngine.close`."""
        await asyncio.to_thread(self.engine.close)

    def dump_state(self) -> dict[str, Any]:
        """See :meth:`EmbeddedEngine.dump_state`."""
        return self.engine.dump_state()

    @classmethod
    def load_state(cls, state: dict[str, Any]) -> AsyncEmbeddedEngine:
        """See :meth:`EmbeddedEngine.load_state`."""
        return EmbeddedEngine.load_state(state).asynchronous()

    def __deepcopy__(self, memo: dict[int, Any]) -> AsyncEmbeddedEngine:
        return self


def _is_path(model: str) -> bool:
    return model.endswith(".gguf") or "/" in model or os.sep in model


def _model_file(model: str) -> Path:
    if not _is_path(model):
        return gguf_path(model)
    path = user_path(model)
    if not path.is_file():
        raise ModelError(f"{model}: no such GGUF file; give the path of one, or a name from `hopgate lm list`")
    with path.open("rb") as file:
        if file.read(4) != b"GGUF":
            raise ModelError(f"{model}: not a GGUF file (its first bytes are not `GGUF`)")
    return path


def _start(path: Path, digest: str, options: dict[str, Any]) -> _Running:
    key = json.dumps([digest, options])
    with _STARTING:
        running = _RUNNING.get(key)
        if running is None:
            running = _RUNNING[key] = _Running(_load(path, options), options["slots"])
        return running


def _load(path: Path, options: dict[str, Any]) -> Any:
    check_bindings()
    xllamacpp: Any = importlib.import_module("xllamacpp")  # its compiled names are not declared
    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.n_ctx = options["n_ctx"]
    params.n_parallel = options["slots"]
    # Without it the context is divided among the slots.
    params.kv_unified = True
    # A slot that rests would be emptied into a cache that requests for a given slot never look into.
    params.cache_idle_slots = False
    params.cache_ram_mib = options["cache_mib"]
    threads = options["threads"] or _cores()
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    params.verbosity = -1
    params.warmup = False
    params.ui = False
    params.endpoint_slots = False
    try:
        return xllamacpp.Server(params)
    except Exception as error:
        raise ModelError(f"{path.name}: llama.cpp could not load it: {error}") from error


def check_bindings() -> None:
    """See that the llama.cpp bindings are installed, without loading them.

    Raises:
        MissingDependencyError: They are not.
    """
    if sys.modules.get("xllamacpp") is None and importlib.util.find_spec("xllamacpp") is None:
        raise MissingDependencyError(
            "the embedded LM needs xllamacpp: pip install 'hopgate[embedded]', or choose another LM"
        )


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _chat_body(request: Request) -> dict[str, Any]:
    """The request as llama.cpp's chat endpoint takes it; what it cannot carry is refused rather than dropped."""
    config = request.config
    for name in ("tool_choice", "reasoning", "probabilities", "cache", "service_tier", "user_id", "store"):
        if getattr(config, name) is not None:
            raise UnsupportedFeatureError(f"the embedded LM has no `{name}`")
    if request.tools:
        raise UnsupportedFeatureError("the embedded LM has no native function calling; use an adapter that needs none")
    if config.extensions:
        raise UnsupportedFeatureError(f"the embedded LM does not know {sorted(config.extensions)}")
    messages = []
    if request.system is not None:
        system = request.system
        messages.append({"role": "system", "content": system if isinstance(system, str) else _text(system)})
    messages += [{"role": message.role, "content": _text(message.parts)} for message in request.messages]
    body: dict[str, Any] = {"messages": messages, "cache_prompt": True}
    for name in ("max_tokens", "temperature", "top_p", "top_k", "seed", "frequency_penalty", "presence_penalty"):
        if getattr(config, name) is not None:
            body[name] = getattr(config, name)
    if config.stop:
        body["stop"] = list(config.stop)
    if config.logprobs is not None:
        if config.logprobs > _MAX_TOP_LOGPROBS:
            raise InvalidRequestError(f"top_logprobs must be at most {_MAX_TOP_LOGPROBS}, got {config.logprobs}")
        body["logprobs"] = True
        body["top_logprobs"] = max(1, config.logprobs)
    if config.response_format is not None:
        body["response_format"] = _response_format(config.response_format)
    return body


def _response_format(value: Any) -> dict[str, Any]:
    # A request holds the schema beside its type; llama.cpp reads it from OpenAI's envelope.
    if value.get("type") == "json_schema" and "schema" in value:
        return {"type": "json_schema", "json_schema": {"name": value.get("name") or "response", **_schema(value)}}
    return dict(value)


def _schema(value: Any) -> dict[str, Any]:
    return {key: value[key] for key in ("schema", "strict") if key in value}


def _text(parts: Any) -> str:
    pieces = []
    for part in parts:
        if not isinstance(part, TextPart):
            raise UnsupportedFeatureError(f"the embedded LM reads text only, got a {part.type} part")
        pieces.append(part.text)
    return "".join(pieces)


def _response(raw: Any, request: Request, body: dict[str, Any]) -> Response:
    if not isinstance(raw, dict) or not raw.get("choices"):
        raise _error(raw)
    choice = raw["choices"][0]
    text = choice["message"].get("content") or ""
    last = body["messages"][-1]
    # llama.cpp returns a continued message together with the beginning that it was given.
    if last["role"] == "assistant" and text.startswith(last["content"]):
        text = text[len(last["content"]) :]
    usage, content = raw.get("usage") or {}, (choice.get("logprobs") or {}).get("content")
    return Response(
        id=raw.get("id"),
        model=request.model,
        message=Message.assistant([TextPart(text)]),
        finish_reason=_FINISH.get(choice.get("finish_reason"), "stop"),  # type: ignore[arg-type]
        usage=Usage(
            input_tokens=usage.get("prompt_tokens"),
            output_tokens=usage.get("completion_tokens"),
            cache_read_tokens=(usage.get("prompt_tokens_details") or {}).get("cached_tokens"),
        ),
        logprobs=None if content is None else tuple(_logprobs(content, request.config.logprobs or 0)),
    )


def _logprobs(content: list[dict[str, Any]], top: int) -> Iterator[TokenLogprob]:
    for token in content:
        # The end token comes with an empty text; it is no part of any answer.
        if token["bytes"]:
            alternatives = tuple(
                TopLogprob(token=other["token"], logprob=other["logprob"], bytes=tuple(other["bytes"]))
                for other in token.get("top_logprobs", ())[:top]
            )
            yield TokenLogprob(
                token=token["token"],
                logprob=token["logprob"],
                bytes=tuple(token["bytes"]),
                token_id=token.get("id"),
                top=alternatives,
            )


def _error(raw: Any) -> InvalidRequestError | ServerError:
    detail = raw.get("error") if isinstance(raw, dict) else None
    if not isinstance(detail, dict):
        return ServerError(f"llama.cpp answered without a completion: {str(raw)[:200]}")
    message = str(detail.get("message"))
    if detail.get("type") == "exceed_context_size_error":
        return ContextLengthError(f"{message} (raise `n_ctx` of the embedded LM or lower the context budget)")
    return InvalidRequestError(message) if 400 <= int(detail.get("code", 500)) < 500 else ServerError(message)
