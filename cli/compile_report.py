"""What ``hopgate compile`` prints: the estimate before, and the figures at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from .terminal import note, write_json

if TYPE_CHECKING:
    from .compile import Job


_CHOSEN = {
    "tau": "Thresholds",
    "policy": "Policy, trained from the thresholds",
    "joint": "Chosen",
    "calibration": "Probabilities",
}


def tell_estimate(job: Job, as_json: bool) -> None:
    """Print what would be recorded, without an LM."""
    if job.options["optimizer"] == "joint":
        _tell_joint(job, as_json)
        return
    from ..optimizers.compiled_recording import most_calls, solver_with_thresholds
    from ..optimizers.tree_files import read_trees

    there = job.trees.exists() and job.trees.stat().st_size > 0
    recorded = read_trees(job.trees) if there else None
    asked = [question.id for question in (*job.train, *job.valid)]
    known = {} if recorded is None else {tree.id: tree for tree in recorded.explored if tree.id in set(asked)}
    left = len(asked) - len(known)
    leaf = most_calls(job.program, solver_with_thresholds(job.program).settings.values)
    calls = [sum(leaf.new_calls for leaf in tree.leaves) for tree in known.values()]
    estimate: dict[str, Any] = {
        "questions": len(asked),
        "recorded": len(known),
        "leaves_at_most": left * job.options["leaves"],
        "lm_calls_at_most": left * job.options["leaves"] * leaf,
        "lm_calls_about": round(sum(calls) / len(calls) * left) if calls else None,
    }
    if as_json:
        write_json(estimate)
        return
    click.echo(
        f"{len(job.train):,} training and {len(job.valid):,} validation questions, {len(known):,} of them recorded: at "
        f"most {estimate['leaves_at_most']:,} leaves and {estimate['lm_calls_at_most']:,} LM calls are left "
        f"({job.options['leaves']} leaves a question, {leaf} calls each; leaves share calls, so it is far less)."
    )
    if calls:
        click.echo(f"By the questions that are recorded, about {estimate['lm_calls_about']:,} LM calls.")


def _tell_joint(job: Job, as_json: bool) -> None:
    from dataclasses import asdict

    from .compile_joint import estimate

    found = estimate(job)
    if as_json:
        write_json(asdict(found))
        return
    low, high = found.questions
    calls, most = found.lm_calls
    click.echo(
        f"{len(job.train):,} training and {len(job.valid):,} validation questions, {found.candidates:,} candidates: "
        f"{low:,} to {high:,} answers in all, which take {calls:,} LM calls at least and "
        f"{'an unknown number' if most is None else format(most, ',')} at most (candidates that are dropped early and "
        "decisions that share calls take far less than the most)."
    )


def report(job: Job, compiled: Any, manifest: Any, as_json: bool) -> None:
    """Print what was chosen and what it is worth."""
    if as_json:
        from ..optimizers.compiled_manifest import manifest_adapter

        write_json({"out": str(job.out), **manifest_adapter().dump_python(manifest, mode="json")})
        return
    metric = job.options["metric"].upper()
    chosen = ", ".join(f"{name} {_value(value)}" for name, value in compiled.settings.items())
    kept = " (the original ones: nothing was gained)" if compiled.kept_original else ""
    click.echo(f"{_CHOSEN[job.options['optimizer']]}: {chosen}{kept}")
    where = compiled.original_on or compiled.measured_on
    told = (("Compiled", compiled.measured_on, compiled.held_out), ("Original", where, compiled.original))
    for title, place, measured in told:
        if measured is not None:
            click.echo(
                f"{title}, on {place}: {metric} {_interval(measured.score)}, retrievals "
                f"{_interval(measured.retrievals)}, n = {measured.n:,}"
            )
    if compiled.held_out is None:
        click.echo(f"There are {compiled.measured_on}; give some by --valid.")
    click.echo(
        f"Compiled, on what it was fitted on: {metric} {compiled.train.score:.3f}, retrievals "
        f"{compiled.train.retrievals:.2f}, n = {compiled.train.n:,}"
    )
    click.echo(f"Original kept: {'yes' if compiled.kept_original else 'no'}. Written to {job.out}.")
    for line in compiled.notes:
        note(f"Note: {line}.")


def _value(value: Any) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def _interval(interval: Any) -> str:
    if interval.low is None:
        return f"{interval.value:.3f}"
    return f"{interval.value:.3f} [{interval.low:.3f}, {interval.high:.3f}]"
