"""What the LM calls of one step took, read from DSPy's history of that step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import dspy
from dspy.utils.usage_tracker import track_usage

from .trajectory import Cost


class Meter:
    """Collects the history entries and usage of the calls made while it is active.

    DSPy appends an entry for each LM call to every module that the call was made in; a meter takes part as one of
    these, so that calls of other threads are not counted. A cached call reports no usage there, but its stored
    response still has it. With DSPy's history disabled only usage is known, without the tokens of cached calls.
    """

    def __init__(self) -> None:
        self.history: list[dict[str, Any]] = []
        self._usage: list[Mapping[str, Any]] = []

    @contextmanager
    def active(self) -> Iterator[None]:
        """Count the calls made in the body."""
        callers = [*(dspy.settings.caller_modules or []), self]
        with track_usage() as tracker, dspy.context(caller_modules=callers):
            yield
        self._usage = [entry for entries in tracker.usage_data.values() for entry in entries]

    def completion(self) -> str:
        """The last completion as it was written; empty if DSPy's history is disabled."""
        outputs = self.history[-1].get("outputs") if self.history else None
        first = outputs[0] if isinstance(outputs, list) and outputs else None
        return str((first.get("text") if isinstance(first, Mapping) else first) or "")

    def cost(self) -> Cost:
        """LM calls and tokens so far."""
        total = Cost()
        for entry in self.history:
            total = total + _of_entry(entry)
        if not self.history:
            for usage in self._usage:
                total = total + _cost(usage, cached=False)
        return total


def _of_entry(entry: Mapping[str, Any]) -> Cost:
    billed = entry.get("usage") or {}
    if billed:
        return _cost(billed, cached=False)
    response = entry.get("response")
    responses = response if isinstance(response, tuple) else (response,)
    total = Cost(lm_calls=0)
    for item in responses:
        total = total + _cost(_usage_of(item), cached=True)
    # An LM that never reports usage is not a cache.
    return total if total.prompt_tokens else Cost(lm_calls=1)


def _usage_of(response: Any) -> dict[str, Any]:
    usage = getattr(response, "usage", None)
    if isinstance(usage, Mapping):
        return dict(usage)
    return {
        "prompt_tokens": getattr(usage, "input_tokens", None),
        "completion_tokens": getattr(usage, "output_tokens", None),
        "prompt_tokens_details": {"cached_tokens": getattr(usage, "cache_read_tokens", None)},
    }


def _cost(usage: Mapping[str, Any], *, cached: bool) -> Cost:
    prompt, completion = usage.get("prompt_tokens") or 0, usage.get("completion_tokens") or 0
    details = usage.get("prompt_tokens_details") or {}
    return Cost(
        lm_calls=1,
        prompt_tokens=prompt,
        completion_tokens=completion,
        prefix_tokens=(details.get("cached_tokens") or 0) if isinstance(details, Mapping) else 0,
        cached_calls=int(cached),
        billed_tokens=0 if cached else prompt + completion,
    )
