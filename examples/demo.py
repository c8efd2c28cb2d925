"""Answer three questions of the bundled sample, and show each hop: what the LM knew, and what was searched for.

python examples/demo.py INDEX
"""

from __future__ import annotations

from pathlib import Path

import click
import dspy
from rich.console import Console

from hopgate.cli.show import show_prediction
from hopgate.evaluation import exact_match, sample_questions
from hopgate.index import ColBERTIndex
from hopgate.lms import DEFAULT_MODEL, CompactAdapter, lm_from_config
from hopgate.programs import ActiveQA

QUESTIONS = ("q-r13", "q-i14", "q-i18")
"""One from memory, one that takes a search, and one that takes two; benchmarks/results has recorded answers to all."""


@click.command()
@click.argument("index", type=click.Path(path_type=Path, exists=True))
@click.option("--lm", "model", default=DEFAULT_MODEL, show_default=True)
def main(index: Path, model: str) -> None:
    """Answer the questions one after the other."""
    console = Console()
    if model == DEFAULT_MODEL:
        console.print(
            "The embedded LM is a small one, of 1.5 billion parameters: some of its answers are wrong. A question "
            "takes it 20 seconds to some minutes, by the machine; the first one also loads it. --lm names another.",
            highlight=False,
        )
    right = 0
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
                right += exact_match(prediction.answer, question.answers)
    console.rule()
    console.print(f"{right} of {len(QUESTIONS)} answers are right.", highlight=False)


if __name__ == "__main__":
    main()
