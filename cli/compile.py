"""``hopgate compile``: fit a program on training questions, and save it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .compile_report import report, tell_estimate
from .programs import SEARCHING, check_index, program_name
from .run_inputs import lm_of, program_of, questions_of, rows_option
from .terminal import goes_on, make_console, note

if TYPE_CHECKING:
    from ..optimizers.rules import Rule

_STOPPED = 1
"""Exit code of a compilation that a budget ended before all questions were recorded."""
_RULES = ("--penalty", "--within", "--budget-retrievals")


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
    "--optimizer", type=click.Choice(["tau", "policy"]), default="tau", show_default=True,
    help="Thresholds, or a policy that starts from them.",
)  # fmt: skip
@click.option(
    "--metric", type=click.Choice(["em", "f1"]), default="em", show_default=True, help="What is a good answer."
)
@click.option("--penalty", metavar="X", type=float, help="What a search is worth in score.  [default: 0.05]")
@click.option("--within", metavar="X", type=float, help="Instead: fewest searches with a score of X below the best.")
@click.option("--budget-retrievals", metavar="N", type=float, help="Instead: best score with N searches a question.")
@click.option("--split", metavar="NAME", help="Split of the data set.")
@click.option("--config", metavar="NAME", help="Configuration of a data set on the hub: distractor, fullwiki, ...")
@click.option("--sample", metavar="N", type=click.IntRange(min=1), help="Draw so many questions.")
@click.option("--seed", metavar="S", type=int, default=0, show_default=True, help="Of all that is drawn.")
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
@click.option("--max-calls", metavar="N", type=int, help="Stop after so many LM calls.")
@click.option("--max-tokens", metavar="N", type=int, help="Stop after so many tokens.")
@click.option("--max-usd", metavar="X", type=float, help="Stop after so many US dollars.")
@click.option("--max-seconds", metavar="S", type=float, help="Stop after so much time.")
@click.option("--dry-run", is_flag=True, help="Say what would be recorded, and how many LM calls it takes at most.")
@click.option("--json", "as_json", is_flag=True, help="Write one JSON object.")
def compile_command(questions: str, out: str, dry_run: bool, as_json: bool, **options: Any) -> None:
    """Fit a program on the questions TRAIN, and save it to PROGRAM.json.

    What the program answers under every decision is recorded first, once, in the folder --work; fitting then takes no
    LM call. A command that was stopped goes on when it is given again, and one with another rule or optimizer uses what
    is recorded. Budgets are for one session; with one used up, the program is fitted on what was recorded so far, and
    the exit code is 1.

    The file holds settings, prompts, demos and how the program came about; use it by --program of `hopgate ask` and
    `hopgate evaluate`, or load_program of hopgate.optimizers, with any LM.
    """
    job = _job(questions, out, **options)
    if dry_run:
        tell_estimate(job, as_json)
        return
    with make_console(stderr=True).status("Loading..."):
        lm = lm_of(options["model"], options["lm_options"], options["cache"])
    compiled = _recorded(job, lm)
    manifest = _save(job, compiled, lm)
    report(job, compiled, manifest, as_json)
    if compiled.stopped is not None:
        note(f"Stopped: {compiled.stopped}. The same command goes on with the questions that are left.")
        raise click.exceptions.Exit(_STOPPED)


@dataclass(frozen=True, slots=True)
class Job:
    """What is to be compiled; all that needs no LM is checked."""

    program: Any
    name: str
    train: list[Any]
    data: Any
    valid: list[Any]
    valid_data: Any
    rule: Rule
    out: Path
    trees: Path
    budget: Any
    options: dict[str, Any]


def _job(questions: str, out: str, **options: Any) -> Job:
    from ..core import InputError, check_file, user_path
    from ..evaluation.budget import Budget

    target = user_path(out)
    check_file(target)
    work = user_path(options["work"]) if options["work"] is not None else target.with_name(f"{target.stem}.work")
    for place in (target, work / "trees.jsonl"):
        _check_writable(place)
    rule = _rule(options)
    budget = Budget(options["max_calls"], options["max_usd"], options["max_seconds"], options["max_tokens"])
    if options["first"] is not None and options["rows"] is not None:
        raise InputError("--first and --rows both choose questions; leave one of them out")
    if options["name"] in SEARCHING:
        check_index(options["where"], options["name"])
    with make_console(stderr=True).status("Loading..."):
        _check_replaceable(target)
        chosen = (options["sample"], options["seed"], options["first"], options["rows"])
        train, data = questions_of(questions, options["split"], options["config"], *chosen)
        valid, valid_data = _valid(questions, options)
        if shared := {question.id for question in train} & {question.id for question in valid}:
            raise InputError(
                f"{len(shared):,} of the validation questions are also trained on, such as {min(shared)!r}; choose "
                "others by --rows and --valid-rows"
            )
        program = program_of(options["name"], None, options["settings"], options["where"], options["checkpoint"])
        from ..optimizers.compiled_recording import solver_with_thresholds

        solver_with_thresholds(program.program)
    return Job(
        program.program, options["name"], train, data, valid, valid_data, rule, target, work / "trees.jsonl", budget,
        options,
    )  # fmt: skip


def _check_writable(path: Path) -> None:
    from ..core import InputError

    folder = path.parent
    while not folder.exists():
        folder = folder.parent
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        raise InputError(f"{path}: cannot be written, as {folder} is no folder that may be written to; name another")


def _check_replaceable(target: Path) -> None:
    """Replace a compiled program, and nothing else."""
    from ..core import HopgateError, InputError
    from ..optimizers.compiled import read_program

    if not target.exists() or target.stat().st_size == 0:
        return
    try:
        compiled = read_program(target).manifest is not None
    except HopgateError:
        compiled = False
    if not compiled:
        raise InputError(
            f"{target}: is there and no compiled program, so it is not replaced; name another file by --out"
        )


def _rule(options: dict[str, Any]) -> Rule:
    from ..core import InputError
    from ..optimizers.rules import Tradeoff, WithinBest, WithinBudget

    values = (options["penalty"], options["within"], options["budget_retrievals"])
    given = [option for option, value in zip(_RULES, values, strict=True) if value is not None]
    if len(given) > 1:
        raise InputError(f"{' and '.join(given)} are different rules; leave all but one out")
    if options["optimizer"] == "policy" and given not in ([], ["--penalty"]):
        raise InputError(f"a policy is trained for a penalty on searches; give it --penalty in place of {given[0]}")
    penalty, within, budget = values
    try:
        if within is not None:
            return WithinBest(within)
        return Tradeoff(0.05 if penalty is None else penalty) if budget is None else WithinBudget(budget)
    except InputError as error:
        raise InputError(f"{given[0]}: {error}") from error


def _valid(questions: str, options: dict[str, Any]) -> tuple[list[Any], Any]:
    source, wanted = options["valid"], options["valid_rows"]
    if source is None and wanted is None and options["valid_split"] is None:
        return [], None
    split = options["valid_split"] or options["split"]
    return questions_of(source or questions, split, options["config"], None, options["seed"], None, wanted)


def _recorded(job: Job, lm: Any) -> Any:
    import dspy

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
        return compile_recorded(
            job.program,
            job.train,
            recorder,
            data=job.data,
            valid=job.valid,
            optimizer=job.options["optimizer"],
            rule=job.rule,
            metric=job.options["metric"],
            folds=job.options["folds"],
            seed=job.options["seed"],
        )


def _save(job: Job, compiled: Any, lm: Any) -> Any:
    from dataclasses import asdict

    from ..optimizers.compiled import save_program
    from ..optimizers.compiled_manifest import CompiledData

    options = {name: job.options[name] for name in ("leaves", "folds", "seed")}
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
                parts.append(f"best so far {best.score:.3f} at {best.retrievals:.2f} searches")
            bar.update(task, completed=progress.done, description=", ".join(parts))

        yield show
