"""``hopgate report``: recorded runs as one page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from .terminal import note, size


@click.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN...")
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), required=True, metavar="FILE", help="The page to write."
)
@click.option("--data", metavar="QUESTIONS", help="The questions' own texts and answers, which run files do not hold.")
@click.option("--index", "folder", metavar="DIR", help="Index that holds the passages' texts.")
@click.option("--baseline", metavar="NAME", help="Run that the others are compared with; by default the first.")
@click.option(
    "--metric",
    type=click.Choice(["em", "f1", "cover_em", "cover_em_tokens"]),
    default="em",
    show_default=True,
    help="Metric of plots, differences and breakdowns.",
)
@click.option(
    "--trees",
    "trees",
    type=click.Path(path_type=Path),
    metavar="TREES",
    help="Decision trees, for the curve over every threshold; the point of each run that they stand for is drawn.",
)
@click.option(
    "--front",
    "fronts",
    type=click.Path(path_type=Path),
    multiple=True,
    metavar="FILE",
    help="Compiled program or result of a study whose front is drawn; may be repeated.",
)
@click.option("--title", default="hopgate report", show_default=True, help="Title of the page.")
def report(
    runs: tuple[str, ...],
    out: Path,
    data: str | None,
    folder: str | None,
    baseline: str | None,
    metric: str,
    trees: Path | None,
    fronts: tuple[Path, ...],
    title: str,
) -> None:
    """Write one page that shows recorded RUNs (files of `hopgate evaluate`) and every trajectory.

    The page works without a network. With --data and --index it holds texts of the data set: mind its licence before
    you publish the page.
    """
    from typing import cast

    from ..evaluation.aligned import read_runs
    from ..evaluation.comparison import Metric
    from ..evaluation.report import check_target, write_report
    from ..evaluation.report_data import index_passages, report_data

    check_target(out, [*runs, *fronts, *filter(None, (data, trees))])
    recorded = read_runs(runs)
    questions = None
    if data is not None:
        from ..evaluation.datasets import load_questions

        questions = load_questions(data)
    found = report_data(
        recorded,
        questions=questions,
        passages=None if folder is None else index_passages(folder, recorded),
        baseline=baseline,
        metric=cast(Metric, metric),
        title=title,
        charts=_charts(recorded, trees, fronts, metric),
    )
    count = write_report(out, found)
    if data is not None:
        asked = {key for run in recorded for key in run.records}
        missing = len(asked) - len(found["questions"])
        if missing:
            note(f"Note: {missing:,} of {len(asked):,} questions are not in {data}; the page shows their ids only.")
    note(f"{out}: {size(count)}, {sum(len(run.records) for run in recorded):,} trajectories.")


def _charts(recorded: Any, trees: Path | None, fronts: tuple[Path, ...], metric: str) -> list[Any]:
    if trees is None and not fronts:
        return []
    from ..optimizers.report_charts import curve_chart, front_chart
    from ..optimizers.tree_files import read_trees

    charts = [] if trees is None else [curve_chart(read_trees(trees), recorded, metric=metric)]
    return [*charts, *map(front_chart, fronts)]
