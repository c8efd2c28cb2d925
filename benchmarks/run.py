"""Record a program's answers on a data folder or on the bundled sample, and compare recorded runs.

python benchmarks/run.py answer active --index DIR --data DIR --out runs/active.jsonl
python benchmarks/run.py answer direct --split test --out benchmarks/results/sample-direct.jsonl
python benchmarks/run.py table benchmarks/results/hotpot-*.jsonl
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import dspy
from records import interval, questions, read, run, share

from hopgate.index import ColBERTIndex
from hopgate.lms import DEFAULT_MODEL, CompactAdapter, lm_from_config
from hopgate.programs import RAG, ActiveQA, ChainOfThought, Direct

ADAPTERS = {"compact": CompactAdapter, "chat": dspy.ChatAdapter}


@click.group()
def main() -> None:
    """See the module's description."""


@main.command()
@click.argument("program", type=click.Choice(["active", "rag", "direct", "cot"]))
@click.option("--index", "index_path", type=click.Path(path_type=Path, exists=True))
@click.option(
    "--data", type=click.Path(path_type=Path, exists=True), help="Folder of questions.jsonl; else the sample."
)
@click.option("--split", type=click.Choice(["train", "test"]), help="Half of the sample.")
@click.option("--first", default=10_000, help="Only so many questions.")
@click.option("--out", type=click.Path(path_type=Path), required=True)
@click.option("--lm", "model", default=DEFAULT_MODEL, show_default=True)
@click.option("--adapter", type=click.Choice(list(ADAPTERS)), default="compact", show_default=True)
@click.option("--set", "settings", multiple=True, metavar="NAME=JSON", help="A setting of the program.")
def answer(
    program: str,
    index_path: Path | None,
    data: Path | None,
    split: str | None,
    first: int,
    out: Path,
    model: str,
    adapter: str,
    settings: tuple[str, ...],
) -> None:
    """Answer questions; a run that was stopped goes on where it was."""
    values: dict[str, Any] = {}
    for setting in settings:
        name, _, text = setting.partition("=")
        values[name] = json.loads(text)
    index = ColBERTIndex.open(index_path) if index_path else None
    solvers = {
        "active": lambda: ActiveQA(index, **values),
        "rag": lambda: RAG(index, **values),
        "direct": Direct,
        "cot": ChainOfThought,
    }
    solver = solvers[program]()
    # The cache is off: seconds and the prefix cache's share are those of a first run.
    lm = lm_from_config({"model": model, "cache": False})
    with dspy.context(lm=lm, adapter=ADAPTERS[adapter]()):
        extra = {"program": program, "adapter": adapter, "model": lm.model, "settings": values}
        run(lambda question: solver(question=question), questions(data, split, first), out, extra)


@main.command()
@click.argument("paths", type=click.Path(path_type=Path, exists=True), nargs=-1)
def table(paths: tuple[Path, ...]) -> None:
    """Print a Markdown table of the questions that all runs have."""
    runs = {path.stem: {record["id"]: record for record in read(path)} for path in paths}
    common = set.intersection(*(set(records) for records in runs.values()))
    dropped = {name: len(records) - len(common) for name, records in runs.items() if len(records) > len(common)}
    print(f"n = {len(common)}" + (f" (left out, not in all runs: {dropped})" if dropped else ""))
    print("| run | EM | F1 | cover EM | retrievals | LM calls | tokens in / from prefix cache / out | seconds |")
    print("|---|---|---|---|---|---|---|---|")
    for name, records in runs.items():
        rows = [records[key] for key in sorted(common)]

        def cost(key: str, rows: list[dict[str, Any]] = rows) -> float:
            return sum(row["cost"][key] for row in rows) / max(1, len(rows))

        scores = " | ".join(interval(row[key] for row in rows) for key in ("em", "f1", "cover"))
        tokens = " / ".join(f"{cost(key):.0f}" for key in ("prompt_tokens", "prefix_tokens", "completion_tokens"))
        counts = f"{cost('retrievals'):.2f} | {cost('lm_calls'):.2f}"
        print(f"| {name} | {scores} | {counts} | {tokens} | {cost('seconds'):.1f} |")


@main.command()
@click.argument("path", type=click.Path(path_type=Path, exists=True))
@click.option("--labels", type=click.Path(path_type=Path, exists=True), required=True)
def worlds(path: Path, labels: Path) -> None:
    """Print, for each world of the sample, how many hops search and how many answers from memory are right.

    LABELS is a JSON object of `id/hop`: whether that answer from memory is right, as judged by hand.
    """
    judged = json.loads(labels.read_text())
    print("| world | questions | hops | hops that search | answers from memory | of these right | EM |")
    print("|---|---|---|---|---|---|---|")
    searched: dict[str, list[list[bool]]] = {}
    for world in ("real", "invented"):
        rows = [row for row in read(path) if row["world"] == world]
        hops = [[hop["source"] == "search" for hop in row["hops"]] for row in rows]
        searched[world] = hops
        memory = [
            judged[f"{row['id']}/{number}"]
            for row in rows
            for number, hop in enumerate(row["hops"], 1)
            if hop["source"] == "memory"
        ]
        flat = [value for values in hops for value in values]
        em = interval(row["em"] for row in rows)
        shares = f"{share(hops)} | {len(memory)} | {interval(memory)} | {em}"
        print(f"| {world} | {len(rows)} | {len(flat)} | {shares} |")
    print(f"difference in the share of hops that search: {share(searched['invented'], searched['real'])}")


@main.command()
@click.argument("path", type=click.Path(path_type=Path, exists=True))
def prefix(path: Path) -> None:
    """Print the prompt tokens that the backend read anew, beside those that a perfect prefix cache would read."""
    rows = [row for row in read(path) if "distinct" in row]
    prompt, cached = (sum(row["cost"][key] for row in rows) for key in ("prompt_tokens", "prefix_tokens"))
    characters, distinct = (sum(row[key] for row in rows) for key in ("prompt_characters", "distinct"))
    # Characters are turned into tokens at the run's own rate.
    ideal = distinct * prompt / characters
    print(f"n = {len(rows)}; prompt tokens {prompt}, read anew {prompt - cached}, distinct {ideal:.0f}, ", end="")
    print(f"ratio {(prompt - cached) / ideal:.2f}")


if __name__ == "__main__":
    main()
