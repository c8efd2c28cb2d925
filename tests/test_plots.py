"""Plots and the report page's charts of what is optimised: what is drawn stands where the numbers say."""

from __future__ import annotations

import builtins
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import dspy
import numpy as np
import pytest
from click.testing import CliRunner
from test_comparison import make_run, record
from test_report import data_in
from test_report_browser import port, visit  # noqa: F401
from tree_worlds import recorded, search

from hopgate.cli.report import report
from hopgate.core import HopgateError, InputError, MissingDependencyError
from hopgate.evaluation.aligned import name_runs
from hopgate.evaluation.records import ProgramHeader, write_run
from hopgate.evaluation.report import write_report
from hopgate.evaluation.report_charts import ChartPoint, ChartSeries, ScoreChart
from hopgate.evaluation.report_data import report_data
from hopgate.lms import CompactAdapter
from hopgate.optimizers import (
    FrontPoint,
    JointResult,
    PolicyEpoch,
    Trees,
    always,
    budget_lines,
    curve_chart,
    evaluate_at,
    front_chart,
    never,
    oracle,
    plot_curve,
    plot_front,
    plot_importance,
    plot_learning,
    plot_reliability,
    quality,
    random_at,
    save_plot,
    tau_curve,
)
from hopgate.optimizers.joint_spending import Spent
from hopgate.programs import Escalation

pytest.importorskip("matplotlib", reason="plots need matplotlib")
CHOSEN = {"memory": -0.05, "grounded": -0.31, "hop": -0.31}


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> Trees:
    with dspy.context(adapter=CompactAdapter()):
        return recorded(Escalation(search), 3, tmp_path_factory.mktemp("trees") / "trees.jsonl", leaves=6)[0]


@dataclass(frozen=True)
class At:
    score: float
    retrievals: float
    lm_calls: float | None = None
    tokens: float | None = None


def drawn(axes: Any, label: str) -> list[tuple[float, float]]:
    """Coordinates of what stands in the legend under a label that begins so."""
    (line,) = [line for line in axes.lines if str(line.get_label()).startswith(label)]
    return [(float(x), float(y)) for x, y in line.get_xydata()]


def labels(axes: Any) -> tuple[str, str]:
    return axes.get_xlabel(), axes.get_ylabel()


# --- matplotlib -------------------------------------------------------------------------------------------------------


def test_the_curve_with_the_chosen_point_and_its_references(trees: Trees) -> None:
    fixed = {"memory": -0.05, "hop": -0.31}
    curve, lines = tau_curve(trees, fixed=fixed), budget_lines(trees, fixed=fixed)
    (axes,) = plot_curve(curve, chosen=-0.31, lines=lines).axes
    assert labels(axes) == ("retrievals a question", "EM (%)")
    point = evaluate_at(trees, CHOSEN)
    assert drawn(axes, "chosen") == [(pytest.approx(point.retrievals), pytest.approx(100 * point.score))]
    assert drawn(axes, "grounded") == [
        (pytest.approx(x), pytest.approx(100 * y)) for x, y in zip(curve.retrievals, curve.score, strict=True)
    ]
    assert drawn(axes, "always") == [(always(trees).retrievals, 100 * always(trees).score)]
    assert drawn(axes, "never") == [(never(trees).retrievals, 100 * never(trees).score)]
    assert drawn(axes, "oracle")[-1][1] == pytest.approx(100 * oracle(trees).score)
    assert len(drawn(axes, "random")) > 3
    (axes,) = plot_curve(curve, chosen=At(0.5, 1.0, 4.0, 900.0), against="tokens", label="F1").axes
    assert labels(axes) == ("tokens a question", "F1 (%)") and drawn(axes, "chosen") == [(900.0, 50.0)]


def test_the_curve_against_the_threshold_itself(trees: Trees) -> None:
    curve = tau_curve(trees)
    (axes,) = plot_curve(curve, chosen=-0.4, against="tau").axes
    assert "(nats)" in labels(axes)[0]
    assert drawn(axes, "chosen") == [(-0.4, pytest.approx(100 * curve.at(-0.4).score))]
    (stairs,) = [patch for patch in axes.patches if hasattr(patch, "get_data")]
    values, edges, _ = stairs.get_data()
    assert np.allclose(values, 100 * curve.score) and np.isfinite(edges).all() and edges[-1] == 0
    for wrong in ({"against": "pages"}, {"against": "tau", "chosen": At(0.5, 1.0)}, {"chosen": 0.1}):
        with pytest.raises(InputError):
            plot_curve(curve, **wrong)  # type: ignore[arg-type]


def test_lines_hold_what_the_references_give(trees: Trees) -> None:
    fixed = {"memory": -0.05, "hop": -0.31}
    lines = budget_lines(trees, fixed=fixed, points=5)
    for searches, score in lines.random:
        found = random_at(trees, searches, steps=["grounded"], thresholds=fixed)
        assert (found.retrievals.mean(), found.score.mean()) == (pytest.approx(searches), pytest.approx(score))
    assert len(lines.random) == 5
    scores = [score for _, score in lines.oracle]
    assert scores == sorted(scores) and scores[-1] == oracle(trees).score
    curve = tau_curve(trees, fixed=fixed)
    for searches, score in zip(curve.retrievals, curve.score, strict=True):
        assert oracle(trees, float(searches)).score >= score - 1e-9
    with pytest.raises(InputError, match="points"):
        budget_lines(trees, points=1)


def test_the_front_with_what_it_is_compared_with() -> None:
    points = [At(0.5, 2.0, 9.0), At(0.3, 0.5, 4.0)]
    figure = plot_front(points, chosen=points[0], baselines={"IRCoT": At(0.4, 1.7, 5.0)})
    (axes,) = figure.axes
    assert labels(axes) == ("retrievals a question", "EM (%)")
    assert drawn(axes, "front") == [(0.5, 30.0), (2.0, 50.0)]
    assert drawn(axes, "chosen") == [(2.0, 50.0)] and drawn(axes, "IRCoT") == [(1.7, 40.0)]
    (axes,) = plot_front(points, against="lm_calls").axes
    assert labels(axes)[0] == "LM calls a question" and drawn(axes, "front")[0] == (4.0, 30.0)
    for given, against in (([], "retrievals"), (points, "tokens"), (points, "pages")):
        with pytest.raises(InputError):
            plot_front(given, against=against)  # type: ignore[arg-type]


def test_reliability_with_the_risk_of_what_is_kept() -> None:
    p, y = [0.95, 0.91, 0.55, 0.12], [True, False, True, False]
    left, right = plot_reliability({"platt": (p, y), "none": ([0.5] * 4, y)}).axes
    assert labels(left) == ("probability of being right", "share right")
    assert labels(right) == ("answers kept, the most probable first (%)", "wrong among those kept (%)")
    bars = left.containers[0]
    assert [tuple(xy) for xy in bars[0].get_xydata()] == [(0.12, 0.0), (0.55, 1.0), (pytest.approx(0.93), 0.5)]
    assert f"ECE {quality(p, y).ece:.3f}" in bars.get_label() and "(n = 4)" in bars.get_label()
    assert drawn(right, "platt") == [(25.0, 0.0), (50.0, 50.0), (75.0, pytest.approx(100 / 3)), (100.0, 50.0)]
    for wrong in ({}, {"a": ([], [])}, {"a": ([1.5], [True])}):
        with pytest.raises(InputError):
            plot_reliability(wrong)


def test_learning_and_importance() -> None:
    epochs = [
        PolicyEpoch(seed, n, 0.1 * n, 0.2 * n, None, 0.1 if seed else None, 0.5) for seed in (0, 1) for n in (0, 1)
    ]
    left, right = plot_learning(epochs).axes
    assert labels(left) == ("epoch", "reward a question") and labels(right)[1].endswith("(nats)")
    assert drawn(left, "seed 1, the policy") == [(0.0, 0.0), (1.0, 0.2)]
    assert drawn(left, "seed 1, held out") == [(0.0, 0.1), (1.0, 0.1)]
    assert not [line for line in left.lines if line.get_label() == "seed 0, held out"]
    (axes,) = plot_importance({"k": 0.25, "demos": 0.75}).axes
    assert labels(axes) == ("share in the variance of the score (%)", "parameter")
    bars = zip(axes.patches, axes.get_yticklabels(), strict=True)
    assert [(bar.get_width(), text.get_text()) for bar, text in bars] == [(25.0, "k"), (75.0, "demos")]
    with pytest.raises(InputError):
        plot_learning([])
    with pytest.raises(InputError):
        plot_importance({})


def test_a_plot_is_a_file_that_is_replaced_at_once(tmp_path: Path) -> None:
    path = tmp_path / "sub" / "plot.png"
    figure = plot_front([At(0.5, 1.0)])
    save_plot(figure, path)
    first = path.read_bytes()
    assert first.startswith(b"\x89PNG\r\n\x1a\n")
    save_plot(plot_front([At(0.5, 1.0)]), path)
    assert path.read_bytes() == first and [item.name for item in path.parent.iterdir()] == ["plot.png"]
    with pytest.raises(InputError, match=r"\.png"):
        save_plot(figure, tmp_path / "plot.pdf")


def test_nothing_global_is_touched() -> None:
    import sys

    before = set(sys.modules)
    plot_front([At(0.5, 1.0)])
    assert "matplotlib.pyplot" not in set(sys.modules) - before


def test_without_matplotlib_the_remedy_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def absent(name: str, *given: Any, **named: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *given, **named)

    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(MissingDependencyError, match=r"hopgate\[plots\]"):
        plot_front([At(0.5, 1.0)])


# --- the report page --------------------------------------------------------------------------------------------------


def run_of(trees: Trees, name: str = "own", **settings: Any) -> Any:
    """A run that the trees stand for, but for settings."""
    own = trees.header.run
    run = make_run(name, [record("a"), record("b")])
    program = ProgramHeader(own.program.name, settings={**own.program.settings, **settings})
    header = replace(run.header, program=program, lm=own.lm, normalisation=own.normalisation)
    return replace(run, header=header)


def series(chart: ScoreChart | Mapping[str, Any], name: str) -> list[tuple[float, float]]:
    given = chart.series if isinstance(chart, ScoreChart) else [ChartSeries(**one) for one in chart["series"]]
    (found,) = [one for one in given if one.name.startswith(name)]
    points = [point if isinstance(point, ChartPoint) else ChartPoint(**point) for point in found.points]
    return [(point.retrievals, point.score) for point in points]


def test_the_curve_of_the_page_has_the_runs_own_point(trees: Trees) -> None:
    taus = {"tau_memory": -0.05, "tau_grounded": -0.31, "tau": -0.31}
    runs = name_runs([run_of(trees, **taus), run_of(trees, "deep", k=9), make_run("rag", [record("a")])])
    chart = curve_chart(trees, runs)
    point = evaluate_at(trees, CHOSEN)
    assert series(chart, "own") == [(point.retrievals, point.score)]
    curve = tau_curve(trees, fixed={"memory": -0.05, "hop": -0.31})
    assert series(chart, "grounded") == list(zip(curve.retrievals.tolist(), curve.score.tolist(), strict=True))
    assert (point.retrievals, point.score) in series(chart, "grounded")
    assert series(chart, "oracle") and series(chart, "random")
    told = " ".join(chart.notes)
    assert "deep is not drawn: its setting k is 9" in told and "rag is not drawn: its program is" in told
    assert "Fixed thresholds: memory -0.05, hop -0.31." in told
    assert {one.name for one in chart.series} >= {"always", "never"}
    assert curve_chart(trees, metric="f1").label == "F1" and curve_chart(trees, metric="cover_em").label == "EM"


def test_trees_of_another_lm_or_normalisation_do_not_stand_for_a_run(trees: Trees) -> None:
    run = run_of(trees)
    other = replace(run, header=replace(run.header, name="other", lm={"model": "another/lm"}))
    strict = replace(run, header=replace(run.header, name="strict", normalisation="strict"))
    told = " ".join(curve_chart(trees, name_runs([run, other, strict])).notes)
    assert "other is not drawn: its LM is another/lm" in told and "strict is not drawn" in told and "own is" not in told


def test_the_command_adds_the_curve_and_fronts(trees: Trees, tmp_path: Path) -> None:
    from hopgate.optimizers.tree_files import appending

    with appending(tmp_path / "trees.jsonl", trees.header) as (_, append):
        for tree in trees.trees:
            append(tree)
    run, page = run_of(trees), tmp_path / "page.html"
    write_run(tmp_path / "run.jsonl", run.header, list(run.records))
    arguments = [tmp_path / "run.jsonl", "--trees", tmp_path / "trees.jsonl", "--out", page]
    result = CliRunner().invoke(report, list(map(str, arguments)), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    (chart,) = data_in(page.read_text("utf-8"))["charts"]
    found = curve_chart(trees, name_runs([run]))
    for one in found.series:
        assert series(chart, one.name) == [pytest.approx(point, abs=1e-4) for point in series(found, one.name)]
    for option, file, said in (
        ("--trees", "absent.jsonl", "absent.jsonl"), ("--trees", "run.jsonl", "trees"),
        ("--front", "absent.json", "absent.json"), ("--front", "run.jsonl", "run.jsonl"),
    ):  # fmt: skip
        arguments = [tmp_path / "run.jsonl", option, tmp_path / file, "--out", page]
        with pytest.raises(HopgateError, match=said):
            CliRunner().invoke(report, list(map(str, arguments)), catch_exceptions=False)


def test_a_front_of_a_compiled_program(index: Any, tmp_path: Path) -> None:
    from hopgate.optimizers.compiled import save_program
    from hopgate.optimizers.compiled_manifest import ManifestPoint

    mean = {"value": 0.4, "low": None, "high": None, "n": 9}
    save_program(
        Escalation(index), tmp_path / "program.json", metric="em", optimizer="tau",
        front=[ManifestPoint(0.3, 0.5), ManifestPoint(0.4, 1.5)],
        result={"train": {"score": mean, "retrievals": {**mean, "value": 1.5}, "n": 9}},
    )  # fmt: skip
    chart = front_chart(tmp_path / "program.json")
    assert chart.label == "EM" and series(chart, "front") == [(0.5, 0.3), (1.5, 0.4)]
    assert series(chart, "chosen") == [(1.5, 0.4)]
    Escalation(index).save(tmp_path / "plain.json")
    with pytest.raises(InputError, match="holds no front"):
        front_chart(tmp_path / "plain.json")


def test_a_front_of_a_joint_optimisation(tmp_path: Path) -> None:
    points = [
        FrontPoint("c", {}, {}, score, None, None, cost, 900.0, 4.0, 9) for score, cost in ((0.3, 0.5), (0.4, 1.5))
    ]
    result = JointResult(tuple(points), (), points[1], points[0], False, {}, "rule", "f1", Spent())
    result.save(tmp_path / "result.json")
    chart = front_chart(tmp_path / "result.json")
    assert chart.label == "F1" and series(chart, "front") == [(0.5, 0.3), (1.5, 0.4)]
    assert series(chart, "chosen") == [(1.5, 0.4)] and series(chart, "original") == [(0.5, 0.3)]
    (axes,) = plot_front(result.front, chosen=result.chosen, against="tokens").axes
    assert drawn(axes, "chosen") == [(900.0, 40.0)]


def test_a_chart_without_points_or_numbers_is_refused() -> None:
    for points in ((), (ChartPoint(math.nan, 0.5),), (ChartPoint(1.0, math.inf),)):
        with pytest.raises(InputError):
            ScoreChart("t", "EM", (ChartSeries("s", points),))


ATTACK = "</script><img src=x onerror='window.pwned = 1'>"


@pytest.fixture(scope="module")
def page(trees: Trees, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    run = run_of(trees, f"own {ATTACK}")
    write_report(path, report_data([run], charts=[curve_chart(trees, name_runs([run]))]))
    assert "<img" not in path.read_text("utf-8")
    return path


def test_the_page_draws_the_curve(visit: Any, trees: Trees) -> None:  # noqa: F811
    async def body(tab: Any) -> None:
        captions = await tab.run("[...document.querySelectorAll('figcaption')].map((node) => node.textContent)")
        assert captions[-1] == "EM against retrievals at every threshold"
        chart = "[...document.querySelectorAll('figure')].at(-1)"
        kinds = await tab.run(f"[...{chart}.querySelectorAll('svg.chart > [data-kind]')].map((g) => g.dataset.kind)")
        assert kinds == ["line", "line", "dots", "marks", "marks", "marks"]
        told = await tab.run(f"{chart}.querySelector('[data-kind]:last-child title').textContent")
        assert told.startswith(f"own {ATTACK}: EM ")
        # The run's point lies on the curve.
        place = await tab.run(f"{chart}.querySelector('[data-kind]:last-child g').getAttribute('transform')")
        dots = await tab.run(
            f"[...{chart}.querySelectorAll('[data-kind=dots] circle')].map((dot) =>"
            " `translate(${dot.getAttribute('cx')} ${dot.getAttribute('cy')})`)"
        )
        assert place in dots

    visit(body)
