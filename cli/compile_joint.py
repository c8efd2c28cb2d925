"""The joint optimizer in ``hopgate compile``: made of the command's options, and its progress."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from .terminal import make_console

if TYPE_CHECKING:
    from ..optimizers.joint import JointOptimizer
    from ..optimizers.joint_estimate import Estimate
    from .compile_job import Job


def make_optimizer(job: Job, **more: Any) -> JointOptimizer:
    """The optimizer.

    Args:
        job: What is compiled.
        **more: Further arguments.

    Raises:
        InputError: An option is out of range.
    """
    from ..optimizers.joint import JointOptimizer

    given = {name: job.options[name] for name in ("trials", "racing", "demo_sets", "instructions")}
    return JointOptimizer(
        job.options["metric"],
        rule=job.rule,
        leaves=job.options["leaves"],
        retries=job.options["retries"],
        budget=job.budget,
        seed=job.options["seed"],
        **{name: value for name, value in given.items() if value is not None},
        **more,
    )


def estimate(job: Job) -> Estimate:
    """What it takes, without an LM; refuses what could not be compiled.

    Raises:
        InputError: Something cannot be used.
    """
    import dspy

    from ..lms import CompactAdapter

    with dspy.context(lm=dspy.LM("none/none"), adapter=CompactAdapter()):  # nothing is asked of it
        return make_optimizer(job).estimate(job.program, job.train, valset=job.valid or None)


@contextmanager
def bar(total: int) -> Iterator[Callable[[Any], None]]:
    """A progress bar over candidates on stderr, for terminals only."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    console = make_console(stderr=True)
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as shown:
        task = shown.add_task("", total=total)

        def show(progress: Any) -> None:
            parts = [f"{progress.spent.calls:,} LM calls"]
            if progress.best is not None:
                parts.append(f"best so far {progress.best.score:.3f} at {progress.best.retrievals:.2f} searches")
            shown.update(task, completed=progress.done, description=", ".join(parts))

        yield show
