"""Prompt tokens that the embedded LM reads anew, beside those that a perfect prefix cache would read.

    python benchmarks/prefix_cache.py run DATA --index INDEX --first 7 --out results/hotpot-dev-prefix-cache.jsonl
    python benchmarks/prefix_cache.py report results/hotpot-dev-prefix-cache.jsonl

``run`` answers the first questions of DATA with ActiveQA, one after the other in one process, and records for each how
many characters its prompts have, and how many of these no earlier prompt began with: a perfect cache would read only
those. Beside them stand the tokens of the prompts, and those that llama.cpp took from its cache. A cache lives as long
as its process, so a run that was stopped begins again.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click
from index_common import append, read, table


class Prompts:
    """Counts the characters of all prompts, and of those that no earlier prompt began with."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.characters = 0
        self.distinct = 0

    def add(self, text: str) -> None:
        """Count one prompt."""
        self.characters += len(text)
        # Characters are meant, not parts of a path.
        known = max((len(os.path.commonprefix([text, old])) for old in self.texts), default=0)  # noqa: RUF071
        self.distinct += len(text) - known
        self.texts.append(text)


@click.group()
def main() -> None:
    """See the module's description."""


@main.command()
@click.argument("data")
@click.option("--index", "folder", type=click.Path(path_type=Path, exists=True), required=True)
@click.option("--out", type=click.Path(path_type=Path), required=True)
@click.option("--first", default=7, show_default=True, help="Only so many questions.")
@click.option("--tau", default=-0.26, show_default=True)
@click.option("--lm", "model", default="embedded/qwen2.5-coder-1.5b", show_default=True)
def run(data: str, folder: Path, out: Path, first: int, tau: float, model: str) -> None:
    """Answer and count."""
    import dspy
    from dspy.utils.callback import BaseCallback

    from hopgate.evaluation import load_questions
    from hopgate.index import ColBERTIndex
    from hopgate.lms import CompactAdapter, lm_from_config
    from hopgate.programs import ActiveQA

    class Watch(BaseCallback):
        def on_lm_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
            prompts.add("\0".join(f"{message['role']}:{message['content']}" for message in inputs["messages"]))

    if read(out):
        raise click.UsageError(
            f"{out} is there; a cache lives as long as its process, so remove the file to begin again"
        )
    prompts = Prompts()
    program = ActiveQA(ColBERTIndex.open(folder), tau=tau)
    lm = lm_from_config({"model": model, "cache": False})
    with dspy.context(lm=lm, adapter=CompactAdapter(), callbacks=[Watch()]):
        for question in load_questions(data)[:first]:
            before = (prompts.characters, prompts.distinct)
            cost = program(question=question.question).cost
            append(
                out,
                {
                    "id": question.id,
                    "prompt_characters": prompts.characters - before[0],
                    "distinct_characters": prompts.distinct - before[1],
                    "lm_calls": cost.lm_calls,
                    "prompt_tokens": cost.prompt_tokens,
                    "prefix_tokens": cost.prefix_tokens,
                },
            )


@main.command()
@click.argument("path", type=click.Path(path_type=Path, exists=True))
def report(path: Path) -> None:
    """Print a Markdown table."""
    rows = read(path)
    characters, distinct, calls, prompt, cached = (
        sum(row[name] for row in rows)
        for name in ("prompt_characters", "distinct_characters", "lm_calls", "prompt_tokens", "prefix_tokens")
    )
    # Characters are turned into tokens at the run's own rate.
    ideal, anew = distinct * prompt / characters, prompt - cached
    cells = [len(rows), calls, f"{prompt:,}", f"{anew:,}", f"{ideal:,.0f}", f"{anew / ideal:.2f}"]
    table(["questions", "LM calls", "prompt tokens", "read anew", "by a perfect cache", "ratio"], [cells])


if __name__ == "__main__":
    main()
