"""Charts of the report page from what optimisers leave: recorded trees, and fronts in files."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ..core import InputError
from ..evaluation.aligned import RecordedRun
from ..evaluation.report_charts import ChartPoint, ChartSeries, ScoreChart, along
from ..evaluation.tables import METRIC_NAMES
from .budget_lines import budget_lines
from .compiled import read_program
from .compiled_state import read_json
from .curve import Boxes, Point, Score, evaluate_at, tau_curve
from .fitting import SETTING_OF
from .joint_result import JointResult
from .tree_files import Trees


def curve_chart(trees: Trees, runs: Iterable[RecordedRun] = (), *, metric: str = "em") -> ScoreChart:
    """Score against retrievals at every threshold, with oracle and random decisions and the points of runs.

    The threshold that varies is that of the whole question's own passages where it was explored, and else one for all
    steps; the others are those of the first run that the trees stand for, or of the trees' own program.

    Args:
        trees: Recorded trees.
        runs: Runs; the point of each one that the trees stand for is where its thresholds lead on the trees' questions.
        metric: ``em`` or ``f1``; for others, which trees do not hold, EM is drawn.

    Raises:
        InputError: There are no trees with decisions, or a threshold is not known.
    """
    score: Score = "f1" if metric == "f1" else "em"
    label, boxes = METRIC_NAMES[str(score)], Boxes(trees, score)
    if not boxes.steps:
        raise InputError("no decision was recorded in these trees, so that there is no threshold to draw")
    own = trees.header.run.program.settings
    marks: list[tuple[str, dict[str, float]]] = []
    notes = [f"{len(boxes.trees)} questions of {_named(trees)}, replayed from recorded decisions."]
    for run in runs:
        if reasons := _differences(trees, run):
            notes.append(f"{run.name} is not drawn: {'; '.join(reasons)}.")
        else:
            marks.append((run.name, _thresholds(run.settings, boxes.steps)))
    varies = ("grounded",) if "grounded" in boxes.steps else boxes.steps
    around = marks[0][1] if marks else _thresholds(own, boxes.steps)
    fixed = {step: tau for step, tau in around.items() if step not in varies}
    curve, lines = tau_curve(trees, fixed=fixed, score=score), budget_lines(trees, fixed=fixed, score=score)
    if fixed:
        notes.append(f"Fixed thresholds: {_texts(fixed)}.")
    if open_ended := sum(not tree.exact for tree in boxes.trees):
        notes.append(f"{open_ended} questions were not explored to the end; the nearest explored outcome stands in.")
    dots = tuple(
        ChartPoint(float(x), float(y), _range(float(low), float(high)))
        for x, y, low, high in zip(curve.retrievals, curve.score, curve.edges[:-1], curve.edges[1:], strict=True)
    )
    ends = (_mark("always", lines.always), _mark("never", lines.never))
    chosen = (
        ChartSeries(name, (_point(evaluate_at(trees, thresholds, score=score), _texts(thresholds)),), "marks")
        for name, thresholds in marks
    )
    series = (
        along("oracle", lines.oracle),
        along("random (expected)", lines.random),
        ChartSeries(f"{' and '.join(varies)} at every threshold", dots, "dots"),
        *ends,
        *chosen,
    )
    return ScoreChart(f"{label} against retrievals at every threshold", label, series, tuple(notes))


def front_chart(path: str | Path) -> ScoreChart:
    """The front in the file of a compiled program, or in the result of a joint optimisation, with the chosen point.

    Args:
        path: The file.

    Raises:
        InputError: There is no such file, or it has no front.
        StateError: It is damaged, or of another version.
    """
    file, record = read_json(path)
    marks: list[ChartSeries] = []
    if "front" in record:
        result = JointResult.load(file)
        metric, points = result.metric, result.front
        marks += [
            _mark(name, point) for name, point in (("original", result.original), ("chosen", result.chosen)) if point
        ]
    else:
        manifest = read_program(file).manifest
        metric, points = (manifest.metric, manifest.front) if manifest else (None, ())
        known = manifest.result if manifest else {}
        for name, key in (("original", "original"), ("chosen", "train")):
            if (measured := _measured(known.get(key), name)) is not None:
                marks.append(measured)
    if not points:
        raise InputError(f"{file}: holds no front; give a program that was compiled, or the result of a study")
    label = METRIC_NAMES.get(str(metric), str(metric or "score"))
    front = ChartSeries("front", tuple(_point(point) for point in points), "dots")
    notes = (f"{file.name}; on the questions that it was fitted on, which flatters it.",)
    return ScoreChart(f"Front of {label} against retrievals", label, (front, *marks), notes)


def _differences(trees: Trees, run: RecordedRun) -> list[str]:
    """What a run was made with that the trees were not, thresholds and questions aside."""
    header = trees.header.run
    if header.program.name != run.program:
        return [f"its program is {run.program}, and the trees' {header.program.name}"]
    found = []
    if header.lm.get("model") != run.lm:
        found.append(f"its LM is {run.lm}, and the trees' {header.lm.get('model')}")
    if header.normalisation != run.header.normalisation:
        found.append(f"its answers were normalised otherwise ({run.header.normalisation})")
    fitted, own = set(SETTING_OF.values()), header.program.settings
    names = sorted({*own, *run.settings} - fitted)
    other = [name for name in names if own.get(name) != run.settings.get(name)]
    return [*found, *(f"its setting {name} is {run.settings.get(name)!r:.40}" for name in other)]


def _thresholds(settings: Any, steps: Iterable[str]) -> dict[str, float]:
    found = {step: settings.get(SETTING_OF[step]) for step in steps}
    if unknown := [step for step, tau in found.items() if isinstance(tau, bool) or not isinstance(tau, int | float)]:
        raise InputError(f"there is no threshold in the settings for the step {unknown[0]!r}")
    return {step: float(tau) for step, tau in found.items()}


def _range(low: float, high: float) -> str:
    return f"threshold {f'above {low:.2f}, ' if math.isfinite(low) else ''}up to {high:.2f}"


def _named(trees: Trees) -> str:
    return " ".join(filter(None, (trees.header.run.data.name, trees.header.run.data.split)))


def _texts(thresholds: dict[str, float]) -> str:
    return ", ".join(f"{step} {tau:.2f}" for step, tau in thresholds.items())


def _point(point: Any, text: str = "") -> ChartPoint:
    return ChartPoint(float(point.retrievals), float(point.score), text)


def _mark(name: str, point: Point | Any) -> ChartSeries:
    return ChartSeries(name, (_point(point),), "marks")


def _measured(record: Any, name: str) -> ChartSeries | None:
    """A point from a manifest's figures, where they are means with intervals."""
    means = [record.get(key) if isinstance(record, dict) else None for key in ("retrievals", "score")]
    values = [mean.get("value") if isinstance(mean, dict) else mean for mean in means]
    if not all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        return None
    retrievals, score = (float(value) for value in values if value is not None)
    return ChartSeries(name, (ChartPoint(retrievals, score),), "marks")
