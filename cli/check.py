"""What ``hopgate lm check`` finds out by asking a language model three short things."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .terminal import beginning, make_console, write_json

if TYPE_CHECKING:
    import dspy

    from ..core import ConfidenceError
    from ..programs import Cost

_QUESTION = "What is the capital of France? Answer with its name alone."
_FACTS = "The harbour of Varn has {number} moorings, of which every second one is let to a fisherman. "
_LONG_PROMPT = "Read this, then count from one to fifty in words.\n" + "".join(
    _FACTS.format(number=number) for number in range(11, 31)
)
_NEW_TOKENS = 32


@dataclass(frozen=True, slots=True)
class _Call:
    text: str
    logprobs: Any
    cost: Cost
    seconds: float


def check_model(model: str | None, *, as_json: bool) -> None:
    """Print what a model can do.

    Args:
        model: Its name; the default one if not given.
        as_json: Whether to print JSON.

    Raises:
        ConfidenceError: It gives no log-probabilities that can be used; what is known is printed before.
    """
    from ..lms import DEFAULT_MODEL, lm_from_config

    # DSPy's cache would answer in no time.
    lm = lm_from_config({"model": model or DEFAULT_MODEL, "cache": False})
    with make_console(stderr=True).status(f"Asking {lm.model}..."):
        first = _call(lm, _QUESTION, logprobs=True, max_tokens=16)
        confidence, problem = _confidence(lm, first)
        prompt_speed, speed = _speeds(lm)
    record = {
        "model": lm.model,
        "log_probabilities": problem is None,
        "confidence": confidence,
        "reply": first.text,
        "first_reply_seconds": round(first.seconds, 2),
        "prompt_tokens_per_second": prompt_speed,
        "generated_tokens_per_second": speed,
    }
    if as_json:
        write_json(record)
    else:
        _show(record)
    if problem is not None:
        raise problem


def _call(lm: dspy.LM, prompt: str, **options: Any) -> _Call:
    import dspy

    from ..lms import CompactAdapter
    from ..programs.metering import Meter

    meter, start = Meter(), time.perf_counter()
    with dspy.context(lm=lm, adapter=CompactAdapter()), meter.active(), _meant_to_be_short():
        output: Any = lm(prompt, **options)[0]
    seconds = time.perf_counter() - start
    if isinstance(output, dict):
        return _Call(str(output.get("text") or ""), output.get("logprobs"), meter.cost(), seconds)
    return _Call(str(output or ""), None, meter.cost(), seconds)


@contextmanager
def _meant_to_be_short() -> Iterator[None]:
    """Keep DSPy's warnings that a reply was cut back: these are cut on purpose."""
    logger = logging.getLogger("dspy.clients.lm")

    def other(record: logging.LogRecord) -> bool:
        return "truncated" not in record.getMessage()

    logger.addFilter(other)
    try:
        yield
    finally:
        logger.removeFilter(other)


def _confidence(lm: dspy.LM, call: _Call) -> tuple[float | None, ConfidenceError | None]:
    """The confidence of a reply, read the way the programs read it, or why it cannot be read."""
    import dspy

    from ..core import ConfidenceError
    from ..lms import answer_confidence

    with dspy.context(lm=lm):
        try:
            found = answer_confidence(dspy.Prediction(answer=call.text, logprobs=call.logprobs))
        except ConfidenceError as error:
            return None, error
    if found.mean is None:
        return None, ConfidenceError(f"the LM {lm.model!r} answered a simple question with nothing")
    return found.mean, None


def _speeds(lm: dspy.LM) -> tuple[float | None, float | None]:
    """Tokens a second of reading a prompt and of writing; ``None`` where they cannot be told."""
    import dspy

    try:
        read = _call(lm, _LONG_PROMPT, max_tokens=1)
        written = _call(lm, _LONG_PROMPT, max_tokens=_NEW_TOKENS)
    except dspy.DSPyError:
        return None, None  # Some backends refuse so short an answer.
    fresh = read.cost.prompt_tokens - read.cost.prefix_tokens
    # A backend that still knows the prompt spends the second call on writing alone.
    known = written.cost.prefix_tokens > written.cost.prompt_tokens / 2
    seconds = written.seconds if known else written.seconds - read.seconds
    tokens = written.cost.completion_tokens if known else written.cost.completion_tokens - 1
    return _rate(fresh, read.seconds), _rate(tokens, seconds)


def _rate(tokens: int, seconds: float) -> float | None:
    return round(tokens / seconds, 1) if tokens > 0 and seconds > 0 else None


def _show(record: dict[str, Any]) -> None:
    def rate(name: str) -> str:
        return "not measured" if record[name] is None else f"{record[name]:,.1f} tokens/s"

    usable, confidence = record["log_probabilities"], record["confidence"]
    rows = {
        "model": record["model"],
        "log-probabilities": "yes" if usable else "no",
        "reply": beginning(record["reply"], 80) + (f" (confidence {confidence:.2f} nats)" if usable else ""),
        "first reply": f"{record['first_reply_seconds']:.1f} seconds, loading included",
        "reading": rate("prompt_tokens_per_second"),
        "writing": rate("generated_tokens_per_second"),
        "usable for the gate": "yes" if usable else "no",
    }
    from rich.table import Table

    table = Table(box=None, show_header=False, pad_edge=False)
    for name, value in rows.items():
        table.add_row(name, value)
    make_console().print(table)
