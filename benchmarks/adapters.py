"""Tokens that CompactAdapter and ChatAdapter spend beyond the field values, for standard RAG with three passages.

Every value is one token long, so whatever else the LM reads and writes is the adapter's (and the chat template's).

    python benchmarks/adapters.py
"""

from __future__ import annotations

import click
import dspy

from hopgate.lms import DEFAULT_MODEL, CompactAdapter, lm_from_config
from hopgate.signatures import AnswerFromPassages

PASSAGES, QUESTION = ["red", "blue", "red"], "color"


@click.command()
@click.option("--lm", "model", default=DEFAULT_MODEL, show_default=True)
def main(model: str) -> None:
    """Print tokens in, tokens out and the ratio of what is beyond the values."""
    lm = lm_from_config({"model": model, "cache": False})
    beyond = {}
    print("| adapter | tokens in | tokens out | beyond the values |")
    print("|---|---|---|---|")
    for adapter in (CompactAdapter(), dspy.ChatAdapter(use_json_adapter_fallback=False)):
        with dspy.context(lm=lm, adapter=adapter, track_usage=True):
            prediction = dspy.Predict(AnswerFromPassages)(passages=PASSAGES, question=QUESTION)
            usage = lm.history[-1]["usage"]
        tokens_in, tokens_out = usage["prompt_tokens"], usage["completion_tokens"]
        name = type(adapter).__name__
        # A one-word answer is one token, as are the passages and the question.
        beyond[name] = tokens_in + tokens_out - len(PASSAGES) - 1 - len(prediction.answer.split())
        print(f"| {name} | {tokens_in} | {tokens_out} | {beyond[name]} |")
    print(f"ratio {beyond['CompactAdapter'] / beyond['ChatAdapter']:.2f}")


if __name__ == "__main__":
    main()
