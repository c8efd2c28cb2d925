"""``hopgate compare``: recorded runs side by side."""

from __future__ import annotations

import click

from .terminal import make_console


@click.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN...")
@click.option("--baseline", metavar="NAME", help="Run that the others are compared with; by default the first.")
@click.option(
    "--metric",
    type=click.Choice(["em", "f1", "cover_em", "cover_em_tokens"]),
    default="em",
    show_default=True,
    help="Metric of differences and breakdowns.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "markdown", "json"]),
    default="table",
    show_default=True,
    help="For the terminal, for a document, or for a program.",
)
@click.option(
    "--difference",
    type=click.FloatRange(0, 100, min_open=True),
    default=5.0,
    show_default=True,
    metavar="POINTS",
    help="Say how many questions a difference of so many points needs.",
)
@click.option("--always", metavar="NAME", help="Run that searches at every hop, for judging gates; else found.")
@click.option("--never", metavar="NAME", help="Run that never searches, for judging gates; else found.")
def compare(
    runs: tuple[str, ...],
    baseline: str | None,
    metric: str,
    form: str,
    difference: float,
    always: str | None,
    never: str | None,
) -> None:
    """Compare recorded RUNs (files of `hopgate evaluate`) on the questions that all of them answered.

    The same files give the same figures, to the last digit.
    """
    from typing import cast

    from ..evaluation.aligned import align, read_runs
    from ..evaluation.comparison import Metric
    from ..evaluation.comparison import compare as compare_runs
    from ..evaluation.gate_analysis import analyse_gates
    from ..evaluation.tables import comparison_tables, to_json, to_markdown

    aligned = align(read_runs(runs))
    chosen = cast(Metric, metric)
    found = compare_runs(aligned, baseline=baseline, metric=chosen, difference=difference / 100)
    gates = analyse_gates(aligned.runs, always=always, never=never, metric=chosen)
    if form == "json":
        click.echo(to_json(found, gates), nl=False)
    elif form == "markdown":
        click.echo(to_markdown(found, gates), nl=False)
    else:
        console = make_console()
        for number, table in enumerate(comparison_tables(found, gates)):
            if number:
                console.print()
            console.print(table.to_rich())
