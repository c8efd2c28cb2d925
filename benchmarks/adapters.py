"""CompactAdapter beside ChatAdapter, both with standard RAG: tokens that they spend beyond the field values, and runs.

    python benchmarks/adapters.py tokens --out results/adapter-tokens.jsonl
    python benchmarks/adapters.py report results/adapter-tokens.jsonl
    python benchmarks/adapters.py run DATA --index INDEX --adapter chat --out results/hotpot-dev-rag-chat.jsonl

``tokens`` asks one question whose values are one token long each, so whatever else the LM reads and writes is the
adapter's (and the chat template's). ``run`` records a run file as ``hopgate evaluate`` does, which always has
CompactAdapter.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from index_common import append, read, table

PASSAGES, QUESTION = ["red", "blue", "red"], "color"
ADAPTERS = ("compact", "chat")
DEFAULT_LM = "embedded/qwen2.5-coder-1.5b"


def adapter_of(name: str) -> Any:
    """One of the two adapters."""
    import dspy

    from hopgate.lms import CompactAdapter

    return CompactAdapter() if name == "compact" else dspy.ChatAdapter(use_json_adapter_fallback=False)


@click.group()
def main() -> None:
    """See the module's description."""


@main.command()
@click.option("--out", type=click.Path(path_type=Path), required=True)
@click.option("--lm", "model", default=DEFAULT_LM, show_default=True)
def tokens(out: Path, model: str) -> None:
    """Record the tokens of one call with each adapter."""
    import dspy

    from hopgate.lms import lm_from_config
    from hopgate.signatures import AnswerFromPassages

    lm = lm_from_config({"model": model, "cache": False})
    for name in ADAPTERS:
        with dspy.context(lm=lm, adapter=adapter_of(name)):
            prediction = dspy.Predict(AnswerFromPassages)(passages=PASSAGES, question=QUESTION)
            usage = lm.history[-1]["usage"]
        # A one-word answer is one token, as are the passages and the question.
        values = len(PASSAGES) + 1 + len(prediction.answer.split())
        counts = {"tokens_in": usage["prompt_tokens"], "tokens_out": usage["completion_tokens"], "values": values}
        append(out, {"adapter": name, "lm": lm.model, **counts})


@main.command()
@click.argument("path", type=click.Path(path_type=Path, exists=True))
def report(path: Path) -> None:
    """Print a Markdown table."""
    rows = [(r, r["tokens_in"] + r["tokens_out"] - r["values"]) for r in read(path)]
    base = next(beyond for record, beyond in rows if record["adapter"] == "chat")
    table(
        ["adapter", "tokens in", "tokens out", "beyond the values", "ratio to chat"],
        [[r["adapter"], r["tokens_in"], r["tokens_out"], beyond, f"{beyond / base:.2f}"] for r, beyond in rows],
    )


@main.command()
@click.argument("data")
@click.option("--index", "folder", type=click.Path(path_type=Path, exists=True), required=True)
@click.option("--checkpoint", help="The index's checkpoint, if it was made with a local folder.")
@click.option("--adapter", "name", type=click.Choice(ADAPTERS), required=True)
@click.option("--first", default=20, show_default=True, help="Only so many questions.")
@click.option("--out", type=click.Path(path_type=Path), required=True)
@click.option("--lm", "model", default=DEFAULT_LM, show_default=True)
def run(data: str, folder: Path, checkpoint: str | None, name: str, first: int, out: Path, model: str) -> None:
    """Record a run of standard RAG; one that was stopped goes on."""
    import dspy

    from hopgate.evaluation import evaluate, load_questions
    from hopgate.evaluation.records import DataHeader
    from hopgate.index import ColBERTIndex
    from hopgate.lms import lm_from_config
    from hopgate.programs import RAG

    questions = load_questions(data)
    chosen = questions[:first]
    manifest = DataHeader(questions.name, questions.split, ids=tuple(question.id for question in chosen))
    program = RAG(ColBERTIndex.open(folder, checkpoint=checkpoint))
    # The cache is off: seconds are those of a first run.
    with dspy.context(lm=lm_from_config({"model": model, "cache": False}), adapter=adapter_of(name)):
        found = evaluate(program, chosen, out, data=manifest)
    print(f"{out}: {len(found.answered)} of {len(chosen)} questions answered, {len(found.failed)} failed")


if __name__ == "__main__":
    main()
