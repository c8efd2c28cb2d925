"""``hopgate compile``: fit a program on training questions, and save it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from .compile_job import Job, job_of
from .compile_report import report, tell_estimate
from .programs import program_name
from .run_inputs import lm_of, rows_option
from .terminal import goes_on, make_console, note

_STOPPED = 1
"""Exit code of a compilation that a budget ended before all questions were recorded."""


def _rungs(context: click.Context, parameter: click.Parameter, value: str | None) -> tuple[int, ...] | None:
    if value is None:
        return None
    parts = value.split(",")
    if not all(part.strip().isdecimal() for part in parts):
        raise click.BadParameter(f"{value!r} is not numbers with commas between, such as 10,20,40")
    return tuple(int(part) for part in parts)


def _storage(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    if value is not None:
        from ..optimizers.study_address import is_address

        is_address(value)  # before the LM is loaded
    return value


@click.command("compile")
@click.argument("questions", metavar="TRAIN")
@click.option("--out", metavar="PROGRAM.json", required=True, help="File of the compiled program.")
@click.option("--index", "where", metavar="DIR|URL", help="Index to search.")
@click.option("--checkpoint", metavar="DIR", help="The index's checkpoint, if it was made with a local folder.")
@click.option(
    "--program", "name", metavar="NAME|FILE", callback=program_name, default="escalation", show_default=True,
    help="Program to begin with, or a saved one's file.",
)  # fmt: skip
@click.option("--set", "settings", metavar="NAME=VALUE", multiple=True, help="A setting of the program; VALUE is JSON.")
@click.option("--lm", "model", metavar="MODEL", help="Language model; by default the embedded one.")
@click.option("--lm-set", "lm_options", metavar="NAME=VALUE", multiple=True, help="An option of the LM: temperature=0.")
@click.option("--cache", is_flag=True, help="Let DSPy's cache answer.")
@click.option(
    "--optimizer", type=click.Choice(["tau", "policy", "joint", "calibration"]), default="tau", show_default=True,
    help="Thresholds; a policy that starts from them; prompts and settings too; or a compiled program for another LM.",
)  # fmt: skip
@click.option(
    "--metric", type=click.Choice(["em", "f1"]), default="em", show_default=True, help="What is a good answer."
)
@click.option("--penalty", metavar="X", type=float, help="What a search is worth in score.  [default: 0.05]")
@click.option("--within", metavar="X", type=float, help="Instead: fewest searches with a score of X below the best.")
@click.option("--budget-retrievals", metavar="N", type=float, help="Instead: best score with N searches a question.")
@click.option(
    "--calibrate", type=click.Choice(["platt", "isotonic", "temperature"]), help="Thresholds as probabilities, by this."
)
@click.option("--split", metavar="NAME", help="Split of the data set.")
@click.option("--config", metavar="NAME", help="Configuration of a data set on the hub: distractor, fullwiki, ...")
@click.option("--sample", metavar="N", type=click.IntRange(min=1), help="Draw so many questions.")
@click.option(
    "--seed", metavar="S", type=click.IntRange(min=0), default=0, show_default=True, help="Of all that is drawn."
)
@click.option("--first", metavar="N", type=click.IntRange(min=1), help="Only the first N questions.")
@click.option("--rows", metavar="A:B", callback=rows_option, help="Only questions A to B, counted from 1.")
@click.option("--valid", metavar="DATA", help="Questions to measure on.  [default: TRAIN, if --valid-rows is given]")
@click.option("--valid-split", metavar="NAME", help="Their split.  [default: that of TRAIN]")
@click.option("--valid-rows", metavar="A:B", callback=rows_option, help="Only questions A to B of them.")
@click.option("--work", metavar="DIR", help="Folder of what is recorded.  [default: PROGRAM.work beside --out]")
@click.option(
    "--leaves", metavar="N", type=click.IntRange(1, 1000), default=8, show_default=True, help="Ways to answer explored."
)
@click.option(
    "--folds", metavar="N", type=click.IntRange(2, 100), default=5, show_default=True, help="Of cross-validation."
)
@click.option(
    "--retries", metavar="N", type=click.IntRange(0, 100), default=2, show_default=True, help="After 429, 5xx."
)
@click.option("--retry-errors", is_flag=True, help="Record questions again that failed before.")
@click.option("--max-calls", metavar="N", type=click.IntRange(min=1), help="Stop after so many LM calls.")
@click.option("--max-tokens", metavar="N", type=click.IntRange(min=1), help="Stop after so many tokens.")
@click.option(
    "--max-usd", metavar="X", type=click.FloatRange(min=0, min_open=True), help="Stop after so many US dollars."
)
@click.option(
    "--max-seconds", metavar="S", type=click.FloatRange(min=0, min_open=True), help="Stop after so much time."
)
@click.option("--trials", metavar="N", type=click.IntRange(min=1), help="Joint: candidates in all.  [default: 20]")
@click.option(
    "--racing", metavar="N,N,..", callback=_rungs, help="Joint: questions to compare after.  [default: 10,20,40]"
)
@click.option("--demo-sets", metavar="N", type=click.IntRange(min=0), help="Joint: sets of demos.  [default: 2]")
@click.option("--instructions", type=click.Choice(["mipro", "copro", "gepa"]), help="Joint: who writes instructions.")
@click.option("--prompt-lm", metavar="MODEL", help="Joint: language model that writes them.")
@click.option(
    "--storage", metavar="URL", callback=_storage, help="Joint: postgresql://... of a study that machines share."
)
@click.option("--dry-run", is_flag=True, help="Say what would be recorded, and how many LM calls it takes at most.")
@click.option("--json", "as_json", is_flag=True, help="Write one JSON object.")
def compile_command(questions: str, out: str, dry_run: bool, as_json: bool, **options: Any) -> None:
    """Fit a program on the questions TRAIN, and save it to PROGRAM.json.

    What the program answers under every decision is recorded first, once, in the folder --work; fitting then takes no
    LM call. The joint optimizer records so many candidates for demos, instructions and settings, and drops poor ones
    early. A command that was stopped goes on when it is given again, and one with another rule or optimizer uses what
    is recorded. Budgets are for one session; with one used up, the program is fitted on what was recorded so far, and
    the exit code is 1.

    The file holds settings, prompts, demos and how the program came about; use it by --program of `hopgate ask` and
    `hopgate evaluate`, or load_program of hopgate.optimizers, with any LM.
    """
    job = job_of(questions, out, **options)
    if dry_run:
        tell_estimate(job, as_json)
        return
    with make_console(stderr=True).status("Loading..."):
        lm = lm_of(options["model"], options["lm_options"], options["cache"])
    compiled = _joint(job, lm) if options["optimizer"] == "joint" else _recorded(job, lm)
    manifest = _save(job, compiled, lm)
    report(job, compiled, manifest, as_json)
    if compiled.stopped is not None:
        note(f"Stopped: {compiled.stopped}. The same command goes on with the questions that are left.")
        raise click.exceptions.Exit(_STOPPED)


def _recorded(job: Job, lm: Any) -> Any:
    import dspy

    from ..core import InputError
    from ..lms import CompactAdapter
    from ..optimizers.compiled_recorded import compile_recorded
    from ..optimizers.compiled_recording import Recorder

    done: list[tuple[int, int]] = []
    with (
        goes_on("questions", lambda: done[0] if done else None),
        dspy.context(lm=lm, adapter=CompactAdapter()),
        _bar(len(job.train) + len(job.valid)) as show,
    ):

        def on_progress(progress: Any, best: Any) -> None:
            done[:] = [(progress.done, progress.total)]
            show(progress, best)

        recorder = Recorder(
            job.trees,
            leaves=job.options["leaves"],
            retries=job.options["retries"],
            retry_errors=job.options["retry_errors"],
            budget=job.budget,
            on_progress=on_progress,
        )
        try:
            return compile_recorded(
                job.program,
                job.train,
                recorder,
                data=job.data,
                valid=job.valid,
                optimizer=job.options["optimizer"],
                rule=job.rule,
                calibration=job.options["calibrate"],
                metric=job.options["metric"],
                folds=job.options["folds"],
                seed=job.options["seed"],
            )
        except InputError as error:
            if str(error).startswith(f"{job.trees}: was made with something else"):
                raise InputError(f"{error}: --work DIR") from error
            raise


def _joint(job: Job, lm: Any) -> Any:
    import dspy

    from ..lms import CompactAdapter
    from ..optimizers.compiled_joint import compile_joint
    from .compile_joint import bar, make_optimizer

    done: list[tuple[int, int]] = []
    more: dict[str, Any] = {"folder": job.work, "storage": job.options["storage"]}
    if job.options["prompt_lm"] is not None:
        more["prompt_model"] = lm_of(job.options["prompt_lm"], (), job.options["cache"])
    with (
        goes_on("candidates", lambda: done[0] if done else None),
        dspy.context(lm=lm, adapter=CompactAdapter()),
        bar(job.options["trials"] or 20) as show,
    ):

        def on_progress(progress: Any) -> None:
            done[:] = [(progress.done, progress.total)]
            show(progress)

        optimizer = make_optimizer(job, on_progress=on_progress, **more)
        return compile_joint(optimizer, job.program, job.train, job.valid)


def _save(job: Job, compiled: Any, lm: Any) -> Any:
    from dataclasses import asdict

    from ..optimizers.compiled import save_program
    from ..optimizers.compiled_manifest import CompiledData

    named = ("leaves", "folds", "seed", "calibrate", "trials", "racing", "demo_sets", "instructions")
    options = {name: job.options[name] for name in named if job.options[name] is not None}
    if job.options["optimizer"] != "calibration":
        options |= {"rule": type(job.rule).__name__, **asdict(job.rule)}  # type: ignore[call-overload]
    return save_program(
        compiled.program,
        job.out,
        metric=job.options["metric"],
        train=CompiledData.of(job.train, name=job.data.name, split=job.data.split),
        valid=CompiledData.of(job.valid, name=job.valid_data.name, split=job.valid_data.split) if job.valid else None,
        optimizer=job.options["optimizer"],
        options=options,
        lm=lm,
        front=compiled.front,
        result=compiled.result(),
    )


@contextmanager
def _bar(total: int) -> Iterator[Callable[[Any, Any], None]]:
    """A progress bar on stderr, for terminals only."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = make_console(stderr=True)
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=total)

        def show(progress: Any, best: Any) -> None:
            parts = [f"{progress.leaves:,} leaves", f"{progress.calls:,} LM calls"]
            if progress.errors:
                parts.insert(0, f"{progress.errors:,} failed")
            if best is not None:
                parts.append(f"best EM so far {best.score:.3f} at {best.retrievals:.2f} searches")
            bar.update(task, completed=progress.done, description=", ".join(parts))

        yield show
