"""``hopgate evaluate``: answer questions with a program and record the run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from .programs import NAMES
from .run_inputs import lm_of, program_of, questions_of, recorded_lm, recorded_program, recorded_questions, rows_option
from .terminal import goes_on, make_console, note, write_json

if TYPE_CHECKING:
    from ..evaluation.records import Run
    from ..evaluation.runner import Progress

_STOPPED = 1
"""Exit code of a run that ended before all questions were asked, or in which every question failed."""
_UNREACHED = "LMTransportError"
"""DSPy's error of an LM whose server cannot be reached."""


@click.command()
@click.argument("questions", required=False)
@click.option("--out", metavar="RUN.jsonl", required=True, help="Run file to write, or to go on with.")
@click.option(
    "--program", "name", metavar="NAME|FILE", help=f"{', '.join(NAMES)}, or a saved program.  [default: active]"
)
@click.option("--state", metavar="FILE", help="Saved program's file, where it does not say the program's name.")
@click.option("--set", "settings", metavar="NAME=VALUE", multiple=True, help="A setting of the program; VALUE is JSON.")
@click.option("--index", "where", metavar="DIR|URL", help="Index to search.")
@click.option("--checkpoint", metavar="DIR", help="The index's checkpoint, if it was made with a local folder.")
@click.option("--lm", "model", metavar="MODEL", help="Language model; by default the embedded one.")
@click.option("--lm-set", "lm_options", metavar="NAME=VALUE", multiple=True, help="An option of the LM: temperature=0.")
@click.option("--cache", is_flag=True, help="Let DSPy's cache answer; calls and tokens count alike, seconds do not.")
@click.option("--split", metavar="NAME", help="Split of the data set.")
@click.option("--config", metavar="NAME", help="Configuration of a data set on the hub: distractor, fullwiki, ...")
@click.option("--sample", metavar="N", type=click.IntRange(min=1), help="Draw so many questions.")
@click.option("--seed", metavar="S", type=int, default=0, show_default=True, help="What to draw with.")
@click.option("--first", metavar="N", type=click.IntRange(min=1), help="Only the first N questions.")
@click.option("--rows", metavar="A:B", callback=rows_option, help="Only questions A to B, counted from 1.")
@click.option("--workers", metavar="N", type=click.IntRange(1, 256), default=1, show_default=True, help="At a time.")
@click.option(
    "--timeout", metavar="S", type=click.FloatRange(min=0, min_open=True), help="Seconds that a question may take."
)
@click.option(
    "--retries", metavar="N", type=click.IntRange(0, 100), default=2, show_default=True, help="After 429, 5xx."
)
@click.option("--max-calls", metavar="N", type=click.IntRange(min=1), help="Stop after so many LM calls.")
@click.option(
    "--max-usd", metavar="X", type=click.FloatRange(min=0, min_open=True), help="Stop after so many US dollars."
)
@click.option(
    "--max-seconds", metavar="S", type=click.FloatRange(min=0, min_open=True), help="Stop after so much time."
)
@click.option("--retry-errors", is_flag=True, help="Ask questions again that failed before.")
@click.option("--normalisation", type=click.Choice(["official", "strict"]), help="How answers are compared.")
@click.option("--repeat", metavar="RUN", help="Do a recorded run again, with what its header says.")
@click.option("--json", "as_json", is_flag=True, help="Write one JSON object with the means.")
def evaluate(
    questions: str | None,
    out: str,
    name: str | None,
    state: str | None,
    settings: tuple[str, ...],
    where: str | None,
    checkpoint: str | None,
    model: str | None,
    lm_options: tuple[str, ...],
    cache: bool,
    split: str | None,
    config: str | None,
    sample: int | None,
    seed: int,
    first: int | None,
    rows: tuple[int, int] | None,
    workers: int,
    timeout: float | None,
    retries: int,
    max_calls: int | None,
    max_usd: float | None,
    max_seconds: float | None,
    retry_errors: bool,
    normalisation: Any,
    repeat: str | None,
    as_json: bool,
) -> None:
    """Answer QUESTIONS with a program, and record answers, scores, trajectories and costs.

    QUESTIONS is hotpotqa, 2wikimultihopqa, musique, bamboogle, sample, or a file or folder. A run that was stopped goes
    on with the same command. The exit code is 1 if it ends before all questions were asked, by a budget or since
    question after question fails, and if every question failed.

    --repeat RUN does a run again: questions from the hub, program, settings and LM come from its header; files, the
    index and a saved state are named again, and must be the same.
    """
    from ..core import InputError, check_file, user_path
    from ..core.texts import counted
    from ..evaluation.budget import Budget
    from ..evaluation.records import read_header

    target = user_path(out)
    check_file(target)
    old = None if repeat is None else read_header(repeat)
    if repeat is not None and target.exists() and target.samefile(user_path(repeat)):
        raise InputError(f"--out {out} is the run that --repeat does again; write the repetition to another file")
    if old is not None:
        given = {
            "--set": settings, "--lm-set": lm_options, "--first": first, "--rows": rows, "--sample": sample,
            "--cache": cache, "--normalisation": normalisation,
        }  # fmt: skip
        for option, value in given.items():
            if value:
                raise InputError(f"{option} would change what --repeat does again; leave it out")
    if first is not None and rows is not None:
        raise InputError("--first and --rows both choose questions; leave one of them out")
    budget = Budget(calls=max_calls, usd=max_usd, seconds=max_seconds)
    with make_console(stderr=True).status("Loading..."):
        if old is None:
            if questions is None:
                raise InputError("name the questions: hotpotqa, musique, sample, ... or a file")
            made = program_of(name, state, settings, where, checkpoint)
            asked, data = questions_of(questions, split, config, sample, seed, first, rows)
            lm = lm_of(model, lm_options, cache)
        else:
            made = recorded_program(old, name, state, where, checkpoint)
            asked, data = recorded_questions(old, questions, split, config)
            lm = recorded_lm(old, model)
    import dspy

    from ..evaluation.runner import evaluate as run_evaluation
    from ..lms import CompactAdapter

    done: list[tuple[int, int]] = []

    def note_done(progress: Progress) -> None:
        done[:] = [(progress.done, len(asked))]
        report(progress)

    with (
        goes_on("questions", lambda: done[0] if done else None),
        dspy.context(lm=lm, adapter=CompactAdapter()),
        _bar(len(asked)) as report,
    ):
        run = run_evaluation(
            made.program,
            asked,
            out,
            workers=workers,
            timeout=timeout,
            retries=retries,
            budget=budget,
            normalisation=normalisation or (old.normalisation if old is not None else "official"),
            retry_errors=retry_errors,
            seed=old.seed if old is not None else seed,
            data=data,
            state_file=made.state_file,
            same_as=old,
            on_progress=note_done,
        )
    _tell(run, as_json)
    _tell_address(run, lm)
    if run.stopped is not None:
        left = counted(len(run.missing), "question")
        verb, them = ("is", "it") if len(run.missing) == 1 else ("are", "them")
        note(f"Stopped: {run.stopped}. {left} {verb} left; the same command goes on with {them}.")
        raise click.exceptions.Exit(_STOPPED)
    if not run.answered:
        note("Every question failed; --retry-errors asks them again.")
        raise click.exceptions.Exit(_STOPPED)


@contextmanager
def _bar(total: int) -> Iterator[Callable[[Progress], None]]:
    """A progress bar on stderr, for terminals only."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = make_console(stderr=True)
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=total)

        def report(progress: Any) -> None:
            bar.update(task, completed=progress.done, description=_line(progress))

        yield report


def _line(progress: Progress) -> str:
    from ..core.texts import counted

    parts = [f"EM {'-' if progress.em is None else format(progress.em, '.3f')}", counted(progress.calls, "LM call")]
    if progress.errors:
        parts.insert(1, f"{progress.errors:,} failed")
    if progress.usd:
        parts.append(f"{progress.usd:.4f} USD")
    return ", ".join(parts)


def _tell(run: Run, as_json: bool) -> None:
    """Print the means over the questions that have an answer, and what all took."""
    from ..core.texts import counted

    answered, records = run.answered, run.records
    prices = [record.cost.usd for record in records]
    means: dict[str, float | None] = {
        name: sum(float(getattr(record.scores, name)) for record in answered) / len(answered) if answered else None
        for name in ("em", "f1", "cover_em")
    }
    summary: dict[str, Any] = {
        "out": str(run.path),
        "n": len(run.header.data.ids),
        "answered": len(answered),
        "errors": len(run.failed),
        **means,
        "retrievals": sum(record.cost.retrievals for record in records),
        "lm_calls": sum(record.cost.lm_calls for record in records),
        "usd": None if None in prices else sum(price for price in prices if price is not None),
        "seconds": sum(record.cost.seconds for record in records),
        "stopped": run.stopped,
    }
    if as_json:
        write_json(summary)
        return
    texts = {name: "-" if value is None else f"{value:.3f}" for name, value in means.items()}
    price = {None: "unknown", 0: "0"}.get(summary["usd"]) or f"{summary['usd']:.4f}"
    click.echo(
        f"{len(answered):,} of {counted(summary['n'], 'question')} answered, {summary['errors']:,} failed: "
        f"EM {texts['em']}, F1 {texts['f1']}, cover EM {texts['cover_em']}; "
        f"{counted(summary['retrievals'], 'retrieval')}, {counted(summary['lm_calls'], 'LM call')}, USD {price}, "
        f"{summary['seconds']:.1f} seconds. Written to {run.path}."
    )
    errors = [record.error for record in run.failed if record.error is not None]
    if errors:
        note(f"The first failure: {errors[0].type}: {errors[0].message}")


def _tell_address(run: Run, lm: Any) -> None:
    """Say what to do where the LM's server was not reached."""
    if not any(record.error is not None and record.error.type == _UNREACHED for record in run.failed):
        return
    address = next((lm.kwargs[name] for name in ("api_base", "base_url") if lm.kwargs.get(name)), None)
    if address is None:
        note(
            f"The server of {lm.model} could not be reached: connect to the network, or name a server of your own with "
            "--lm-set api_base=URL."
        )
    else:
        note(f"No LM server could be reached at {address}: start it, or correct --lm-set api_base=URL.")
