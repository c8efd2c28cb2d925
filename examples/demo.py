"""Answer three questions of the bundled sample, and show each hop: what the LM knew, and what was searched for.

python examples/demo.py INDEX
"""

from __future__ import annotations

from pathlib import Path

import click
import dspy
from rich.console import Console

from hopgate.cli.show import show_prediction
from hopgate.evaluation import sample_questions
from hopgate.index import ColBERTIndex
from hopgate.lms import DEFAULT_MODEL, CompactAdapter, lm_from_config
from hopgate.programs import ActiveQA

QUESTIONS = ("q-r13", "q-i18", "q-i24")


@click.command()
@click.argument("index", type=click.Path(path_type=Path, exists=True))
@click.option("--lm", "model", default=DEFAULT_MODEL, show_default=True)
def main(index: Path, model: str) -> None:
    """Answer the questions one after the other."""
    console = Console()
    solver = ActiveQA(ColBERTIndex.open(index))
    with dspy.context(lm=lm_from_config(model), adapter=CompactAdapter()):
        for question in sample_questions():
            if question.id in QUESTIONS:
                console.rule(f"{question.id}, {question.world} world, {question.hops} hops")
                console.print(f"Question: {question.question}", highlight=False)
                with console.status("Answering..."):
                    prediction = solver(question=question.question)
                show_prediction(prediction, solver.tau, console)
                console.print(f"Expected: {' or '.join(question.answers)}", highlight=False)


if __name__ == "__main__":
    main()
