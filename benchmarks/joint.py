"""Joint optimisation of prompts, settings and thresholds on a data set's training questions.

    python benchmarks/joint.py run DATA --index INDEX --rows 1:60 --val-rows 61:80 --folder DIR --seconds 36000
    python benchmarks/joint.py run DATA --index INDEX --rows 1:60 --folder DIR --dry-run
    python benchmarks/joint.py report DIR --json benchmarks/results/joint.json
    python benchmarks/joint.py report benchmarks/results/joint.json

A run that was stopped goes on when the command is given again. LM calls go through DSPy's cache, so that what other
recordings asked already is not asked again. The report has the candidates, the front and the choice, without a text of
the data set; ``hopgate evaluate`` runs the chosen program (``DIR/program.json``) on other questions.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
from index_common import table


@click.group()
def main() -> None:
    """See the module's description."""


@main.command()
@click.argument("data")
@click.option("--index", "index_path", required=True, help="Folder of the index, or address of an index server.")
@click.option("--program", "name", default="escalation", show_default=True, help="Name of the program.")
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="A setting of the program.")
@click.option("--choose", "choices", multiple=True, metavar="NAME=[VALUES]", help="Choose among these settings only.")
@click.option("--split", help="Split of the data.")
@click.option("--rows", help="First and last training question, counted from 1: 1:60.")
@click.option("--val-rows", help="Likewise of validation questions.")
@click.option("--folder", type=click.Path(path_type=Path), required=True, help="Where everything is kept.")
@click.option("--trials", default=6, show_default=True, help="Candidates, the original one among them.")
@click.option("--racing", default="10,20,40", show_default=True, help="Questions after which candidates are compared.")
@click.option("--demo-sets", default=2, show_default=True, help="Sets of whole trajectories to choose among.")
@click.option("--instructions", type=click.Choice(["mipro", "copro", "gepa"]), help="Who writes instructions.")
@click.option("--weight", default=0.05, show_default=True, help="What a search is worth in exact matches.")
@click.option("--within", type=float, help="Choose the best within so many searches a question instead.")
@click.option("--leaves", default=8, show_default=True, help="Limit on the leaves of a question.")
@click.option("--step", "steps", multiple=True, help="A step whose threshold is fitted; all by default.")
@click.option("--lm", "model", help="The LM; the embedded one by default.")
@click.option("--seed", default=0, show_default=True)
@click.option("--calls", type=int, help="Stop after so many LM calls in all.")
@click.option("--seconds", type=float, help="Stop after so many seconds in all.")
@click.option("--dry-run", is_flag=True, help="Only print what it may take.")
def run(data: str, index_path: str, name: str, settings: tuple[str, ...], **given: Any) -> None:
    """Optimise a program; stopped in any way, the same command goes on."""
    import dspy

    from hopgate.cli.programs import named_values
    from hopgate.cli.run_inputs import lm_of, program_of, questions_of
    from hopgate.evaluation import Budget
    from hopgate.lms import CompactAdapter
    from hopgate.optimizers import JointOptimizer, JointProgress, Tradeoff, WithinBudget

    def questions(rows: str | None) -> Any:
        first, _, last = (rows or ":").partition(":")
        chosen = (int(first or 1), int(last or 10**9)) if rows else None
        return questions_of(data, given["split"], None, None, 0, None, chosen)[0]

    def progress(told: JointProgress) -> None:
        best = "" if told.best is None else f", best so far {told.best.score:.3f} at {told.best.retrievals:.2f}"
        spent = f"{told.spent.calls} LM calls, {told.spent.seconds:.0f} s"
        click.echo(f"{told.done}/{told.total} candidates{best}, {spent}", err=True)

    optimizer = JointOptimizer(
        "em",
        space=named_values(given["choices"]) or None,
        rule=Tradeoff(given["weight"]) if given["within"] is None else WithinBudget(given["within"]),
        racing=tuple(int(part) for part in given["racing"].split(",")),
        trials=given["trials"],
        demo_sets=given["demo_sets"],
        instructions=given["instructions"],
        leaves=given["leaves"],
        steps=given["steps"] or None,
        folder=given["folder"],
        budget=Budget(calls=given["calls"], seconds=given["seconds"]),
        seed=given["seed"],
        on_progress=progress,
    )
    program = program_of(name, None, settings, index_path, None).program
    train = list(questions(given["rows"]))
    val = list(questions(given["val_rows"])) if given["val_rows"] else None
    with dspy.context(lm=lm_of(given["model"], (), cache=True), adapter=CompactAdapter()):
        if given["dry_run"]:
            click.echo(optimizer.estimate(program, train, valset=val))
            return
        optimizer.compile(program, trainset=train, valset=val)
    if optimizer.result is not None and optimizer.result.stopped:
        click.echo(f"Stopped: {optimizer.result.stopped}; the same command with a higher limit goes on.", err=True)


@main.command()
@click.argument("path", type=click.Path(path_type=Path, exists=True))
@click.option("--json", "out", type=click.Path(path_type=Path), help="Also write the result to this file.")
def report(path: Path, out: Path | None) -> None:
    """Print the candidates, the front, and what was chosen."""
    from hopgate.optimizers import JointResult

    result = JointResult.load(path / "result.json" if path.is_dir() else path)
    rows = []
    for one in result.candidates:
        chosen = ", ".join(f"{name} {value}" for name, value in one.parameters.items())
        held = f"{one.held_out:.3f} at {one.held_out_cost:.2f}"
        checked = "" if one.validated is None else f"{one.validated:.3f} at {one.validated_cost:.2f}"
        rows.append([one.trial, chosen, one.questions, "dropped" if one.dropped else "", held, checked])
    table(["trial", "candidate", "questions", "", "held out", "validation"], rows)
    numbers = {one.candidate: one.trial for one in result.candidates}
    rows = []
    for point in result.front:
        taus = ", ".join(f"{step} {tau:.3f}" for step, tau in point.thresholds.items())
        ends = "" if point.low is None or point.high is None else f"{point.low:.2f} to {point.high:.2f}"
        cost = [f"{point.retrievals:.2f}", f"{point.lm_calls:.1f}", f"{point.tokens:.0f}"]
        rows.append([numbers[point.candidate], taus, f"{point.score:.3f}", ends, *cost])
    table(["trial", "thresholds", "score", "95 %", "searches", "LM calls", "tokens"], rows)
    told = "the original is kept" if result.kept_original else f"chosen: {result.chosen}"
    click.echo(f"{result.rule}: {told}")
    shares = ", ".join(f"{name} {share:.2f}" for name, share in result.importances.items())
    click.echo(f"importance: {shares or 'too few candidates'}; spent: {result.spent}")
    if out is not None:
        out.write_text(json.dumps(result.to_dict(), indent=1) + "\n")


if __name__ == "__main__":
    main()
