"""``hopgate diagnose``: why the answers of a recorded run are wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from .programs import is_address
from .run_inputs import recorded_lm, recorded_program, recorded_questions
from .terminal import make_console, note


@click.command()
@click.argument("run", metavar="RUN")
@click.option("--data", "source", metavar="QUESTIONS", help="The run's questions: a file, or the name of a data set.")
@click.option("--index", "where", metavar="DIR", help="The index that the run searched.")
@click.option("--checkpoint", metavar="DIR", help="The index's checkpoint, if it was made with a local folder.")
@click.option("--state", metavar="FILE", help="Saved state of the run's program, if it had demos.")
@click.option("--lm", "model", metavar="MODEL", help="Where the run's language model is, if its name does not say it.")
@click.option("--split", metavar="NAME", help="Split of the data set.")
@click.option("--config", metavar="NAME", help="Configuration of a data set on the hub.")
@click.option("--out", metavar="FILE", help="Where to write, or to go on.  [default: RUN.diagnosis.jsonl]")
@click.option("--all", "every", is_flag=True, help="Try every replacement, not only up to the first that helps.")
@click.option(
    "--retries", metavar="N", type=click.IntRange(0, 100), default=2, show_default=True, help="After 429, 5xx."
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "markdown", "json"]),
    default="table",
    show_default=True,
    help="For the terminal, for a document, or for a program.",
)
def diagnose(
    run: str,
    source: str | None,
    where: str | None,
    checkpoint: str | None,
    state: str | None,
    model: str | None,
    split: str | None,
    config: str | None,
    out: str | None,
    every: bool,
    retries: int,
    form: str,
) -> None:
    """Say what the wrong answers of a recorded RUN come from.

    Each is answered again with one thing replaced by what the data set says: gold sub-questions, a search at every hop
    or at none, gold passages, gold intermediate answers. An error is charged to the first that makes it right. The file
    is written as it goes; the same command goes on where it was.
    """
    from ..core import InputError
    from ..evaluation.records import read_run
    from ..evaluation.report_data import index_passages

    recorded = read_run(run)
    if where is not None and is_address(where):
        raise InputError(f"--index {where}: texts of passages are read from the index's folder; name that")
    with make_console(stderr=True).status("Loading..."):
        asked, _ = recorded_questions(recorded.header, source, split, config)
        made = recorded_program(recorded.header, None, state, where, checkpoint)
        passages = index_passages(where, [recorded]) if where is not None else lambda ids: ()
        lm = recorded_lm(recorded.header, model)
    import dspy

    from ..evaluation.diagnose import diagnose as run_diagnosis
    from ..lms import CompactAdapter

    target = out or str(Path(run).with_suffix(".diagnosis.jsonl"))
    with dspy.context(lm=lm, adapter=CompactAdapter()), _bar() as report:
        found = run_diagnosis(
            made.program, recorded, asked, passages, target, every=every, retries=retries, on_progress=report
        )
    if form == "json":
        click.echo(found.to_json(), nl=False)
    elif form == "markdown":
        click.echo(found.to_markdown(), nl=False)
    else:
        console = make_console()
        for number, table in enumerate(found.tables()):
            if number:
                console.print()
            console.print(table.to_rich())
        note(f"Written to {target}.")


@contextmanager
def _bar() -> Iterator[Callable[[int, int], None]]:
    """A progress bar on stderr, for terminals only."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = make_console(stderr=True)
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("wrong answers", total=None)

        def report(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        yield report
