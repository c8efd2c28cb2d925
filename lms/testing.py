"""A scripted LM for tests: answers by rule, with token log-probabilities, without a model.

DSPy's own ``DummyLM`` gives no log-probabilities, which everything that reads a confidence needs.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import dspy
from dspy.clients.engines.base import validate_request
from dspy.lm15 import Message, Request, Response, TextPart, TokenLogprob, TopLogprob, Usage, response_to_events


@dataclass(frozen=True, slots=True)
class Reply:
    """One scripted completion.

    Attributes:
        text: The completion.
        logprob: Log-probability of each token, in nats; ``None`` gives no log-probabilities.
        alternatives: Log-probabilities, in nats, of other tokens that could have stood in place of the last; given
            where the request asks for alternatives (``top_logprobs``), the most likely ones.
    """

    text: str
    logprob: float | None = -0.1
    alternatives: Mapping[str, float] = field(default_factory=dict)


Script = Callable[[str], "Reply | str"] | Sequence[tuple[str, "Reply | str"]]


class ScriptedEngine:
    """A DSPy engine whose completions are scripted.

    Args:
        script: A function of the whole prompt (``role: content`` lines) that returns a reply, or pairs of a regular
            expression and a reply, of which the first that is found in the prompt counts.
        continues_assistant: Whether it continues a trailing assistant message, as the embedded engine does.

    Attributes:
        prompts: All prompts so far.

    Example:
        >>> lm = scripted_lm([(r"capital of France", Reply("Paris", -0.01))])
        >>> lm("What is the capital of France?")
        ['Paris']
    """

    supports_function_calling = False
    supports_reasoning = False
    supports_response_schema = True
    supported_params = frozenset(
        {"temperature", "max_tokens", "stop", "seed", "logprobs", "top_logprobs", "response_format"}
    )

    def __init__(self, script: Script, *, continues_assistant: bool = True) -> None:
        self.script = script
        self.continues_assistant = continues_assistant
        self.prompts: list[str] = []
        self._lock = threading.Lock()

    def complete(self, request: Request) -> Response:
        """The scripted completion of a request.

        Raises:
            LookupError: No rule of the script fits the prompt.
        """
        validate_request(request)
        prompt = _prompt(request)
        with self._lock:
            self.prompts.append(prompt)
        reply = self._reply(prompt)
        tokens = [] if reply.logprob is None else list(_tokens(reply, reply.logprob, request.config.logprobs or 0))
        return Response(
            id=None,
            model=request.model,
            message=Message.assistant([TextPart(reply.text)]),
            finish_reason="stop",
            usage=Usage(input_tokens=len(prompt.split()), output_tokens=len(reply.text.split())),
            logprobs=tuple(tokens) if tokens and request.config.logprobs is not None else None,
        )

    def _reply(self, prompt: str) -> Reply:
        if callable(self.script):
            reply = self.script(prompt)
        else:
            fitting = (reply for pattern, reply in self.script if re.search(pattern, prompt))
            reply = next(fitting, None)
            if reply is None:
                raise LookupError(f"no rule of the script fits this prompt:\n{prompt}")
        return Reply(reply) if isinstance(reply, str) else reply

    def stream(self, request: Request) -> Iterator[Any]:
        """The completion as events."""
        yield from response_to_events(self.complete(request))

    def __deepcopy__(self, memo: dict[int, Any]) -> ScriptedEngine:
        return self


class _Async:
    def __init__(self, engine: ScriptedEngine) -> None:
        self.engine = engine
        self.continues_assistant = engine.continues_assistant

    async def complete(self, request: Request) -> Response:
        await asyncio.sleep(0)
        return self.engine.complete(request)

    def __deepcopy__(self, memo: dict[int, Any]) -> _Async:
        return self


def scripted_lm(script: Script, *, continues_assistant: bool = True, **options: Any) -> dspy.LM:
    """An LM with a :class:`ScriptedEngine`, found as ``lm.engine``; DSPy's cache is off unless asked for."""
    engine = ScriptedEngine(script, continues_assistant=continues_assistant)
    return dspy.LM("scripted/lm", engine=engine, async_engine=_Async(engine), **{"cache": False, **options})


def _prompt(request: Request) -> str:
    parts = []
    if request.system is not None:
        system = request.system
        text = system if isinstance(system, str) else "".join(p.text for p in system if isinstance(p, TextPart))
        parts.append(f"system: {text}")
    parts += [f"{message.role}: {message.text or ''}" for message in request.messages]
    return "\n".join(parts)


def _tokens(reply: Reply, logprob: float, top: int) -> Iterator[TokenLogprob]:
    pieces = re.findall(r"\s*\S+|\s+$", reply.text)
    for number, piece in enumerate(pieces, 1):
        others = {**reply.alternatives, piece: logprob} if number == len(pieces) else {}
        ranked = sorted(others.items(), key=lambda item: -item[1])[:top]
        alternatives = tuple(TopLogprob(token=token, logprob=value) for token, value in ranked)
        yield TokenLogprob(token=piece, logprob=logprob, bytes=tuple(piece.encode(errors="replace")), top=alternatives)
