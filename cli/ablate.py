"""``hopgate ablate``: what each part of ActiveQA is worth, in one table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from .programs import check_index, named_values, open_index
from .run_inputs import lm_of, questions_of
from .terminal import make_console, note

_STOPPED = 1
"""Exit code of runs that ended before all questions were asked."""


@click.command()
@click.argument("questions")
@click.option("--index", "where", metavar="DIR|URL", required=True, help="Index to search.")
@click.option("--out", "folder", metavar="DIR", required=True, help="Folder of the run files, and of the table.")
@click.option(
    "--programs",
    "names",
    metavar="NAME",
    multiple=True,
    help="Only this run, or any program beside them; may be repeated. --dry-run lists the runs.",
)
@click.option(
    "--set", "settings", metavar="NAME=VALUE", multiple=True, help="A setting, for programs that have it: tau."
)
@click.option("--checkpoint", metavar="DIR", help="The index's checkpoint, if it was made with a local folder.")
@click.option("--lm", "model", metavar="MODEL", help="Language model; by default the embedded one.")
@click.option("--lm-set", "lm_options", metavar="NAME=VALUE", multiple=True, help="An option of the LM: temperature=0.")
@click.option("--split", metavar="NAME", help="Split of the data set.")
@click.option("--config", metavar="NAME", help="Configuration of a data set on the hub.")
@click.option("--sample", metavar="N", type=click.IntRange(min=1), help="Draw so many questions.")
@click.option("--seed", metavar="S", type=int, default=0, show_default=True, help="Of the draw and the random gate.")
@click.option("--first", metavar="N", type=click.IntRange(min=1), help="Only the first N questions.")
@click.option("--workers", metavar="N", type=click.IntRange(1, 256), default=1, show_default=True, help="At a time.")
@click.option("--timeout", metavar="S", type=float, help="Seconds that a question may take.")
@click.option(
    "--retries", metavar="N", type=click.IntRange(0, 100), default=2, show_default=True, help="After 429, 5xx."
)
@click.option("--baseline", metavar="NAME", help="Run that the others are compared with; by default the first.")
@click.option("--dry-run", is_flag=True, help="Say what would be run, and about how many LM calls it takes.")
def ablate(
    questions: str,
    where: str,
    folder: str,
    names: tuple[str, ...],
    settings: tuple[str, ...],
    checkpoint: str | None,
    model: str | None,
    lm_options: tuple[str, ...],
    split: str | None,
    config: str | None,
    sample: int | None,
    seed: int,
    first: int | None,
    workers: int,
    timeout: float | None,
    retries: int,
    baseline: str | None,
    dry_run: bool,
) -> None:
    """Run the ablations of ActiveQA on QUESTIONS, and compare them in one table.

    Each goes to DIR/NAME.jsonl as `hopgate evaluate` writes it; the same command goes on where it was stopped. The
    table is printed, and written to DIR/ablation.md and DIR/ablation.json.
    """
    from ..core import InputError
    from ..evaluation.ablations import check_settings, check_tables, chosen, plan_table

    values = named_values(settings)
    wanted = chosen(names)
    if baseline is not None and baseline not in {item.name for item in wanted}:
        raise InputError(f"--baseline {baseline}: there are {', '.join(item.name for item in wanted)}")
    check_settings(wanted, values)
    check_tables(folder)
    check_index(where, wanted[0].program)
    asked, data = questions_of(questions, split, config, sample, seed, first, None)
    if dry_run:
        make_console().print(plan_table(wanted, folder, len(asked)).to_rich())
        return
    with make_console(stderr=True).status("Loading..."):
        lm = lm_of(model, lm_options, cache=False)
        index = open_index(where, checkpoint)
    import dspy

    from ..evaluation.ablations import run_ablations
    from ..lms import CompactAdapter

    with dspy.context(lm=lm, adapter=CompactAdapter()), _bars(len(asked)) as on_run:
        runs = run_ablations(
            wanted,
            index,
            asked,
            folder,
            data=data,
            settings=values,
            seed=seed,
            on_run=on_run,
            workers=workers,
            timeout=timeout,
            retries=retries,
        )
    stopped = runs[-1].stopped
    if stopped is not None:
        note(f"Stopped in {runs[-1].header.name}: {stopped}. The same command goes on from there.")
        raise click.exceptions.Exit(_STOPPED)
    _tell(runs, folder, baseline)


@contextmanager
def _bars(total: int) -> Iterator[Callable[[Any], Callable[[Any], None]]]:
    """A progress bar for each run, on stderr and for terminals only."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = make_console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:

        def begin(ablation: Any) -> Callable[[Any], None]:
            task = bar.add_task(ablation.name, total=total)
            return lambda progress: bar.update(task, completed=progress.done)

        yield begin


def _tell(runs: list[Any], folder: str, baseline: str | None) -> None:
    from ..core import write_atomic
    from ..evaluation.ablations import check_tables
    from ..evaluation.aligned import align
    from ..evaluation.comparison import compare
    from ..evaluation.gate_analysis import analyse_gates
    from ..evaluation.tables import comparison_tables, to_json, to_markdown

    aligned = align(runs)
    found = compare(aligned, baseline=baseline)
    gates = analyse_gates(aligned.runs)
    document, figures = check_tables(folder)  # hours may have passed
    write_atomic(document, to_markdown(found, gates))
    write_atomic(figures, to_json(found, gates))
    console = make_console()
    for number, table in enumerate(comparison_tables(found, gates)):
        if number:
            console.print()
        console.print(table.to_rich())
    note(f"Written to {document} and {figures}.")
