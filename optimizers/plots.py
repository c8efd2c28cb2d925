"""Plots of what is optimised, as matplotlib figures: curves, fronts, reliability, learning, importance.

matplotlib is optional (``pip install 'hopgate[plots]'``) and is imported when a plot is made. Figures are made without
``pyplot``, so nothing global is kept or shown, and no display is needed; in a notebook a figure shows itself.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

from ..core import InputError, MissingDependencyError, user_path, write_atomic
from ..evaluation.statistics import share_interval
from .budget_lines import BudgetLines
from .calibration import quality
from .curve import Cost, Curve

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from .policy_training import PolicyEpoch

_UNITS: Mapping[str, str] = {
    "retrievals": "retrievals a question",
    "lm_calls": "LM calls a question",
    "tokens": "tokens a question",
    "tau": "threshold on the mean log-probability (nats)",
}
_DPI = 150
_BINS = 10
_LEAST_SPAN = 10.0
"""Points of a score that an axis shows at least."""


class Scored(Protocol):
    """What can be drawn as a point of score against cost: points of curves and of fronts."""

    @property
    def score(self) -> float:
        """Mean score, a share."""
        ...

    @property
    def retrievals(self) -> float:
        """Searches a question."""
        ...


def plot_curve(
    curve: Curve,
    *,
    chosen: Scored | float | None = None,
    lines: BudgetLines | None = None,
    against: Cost | Literal["tau"] = "retrievals",
    label: str = "EM",
) -> Figure:
    """The score at every threshold.

    Args:
        curve: The curve.
        chosen: The chosen threshold, in nats, or where it leads.
        lines: Oracle and random decisions, always and never; drawn against retrievals only.
        against: What the score is drawn against: a cost, or the threshold itself.
        label: Name of the score.

    Raises:
        InputError: There is no such cost, the chosen threshold is above 0, or none is given to draw against ``tau``.
        MissingDependencyError: matplotlib is not installed.
    """
    if against not in _UNITS:
        raise InputError(f"`against` must be one of {', '.join(_UNITS)}, got {against!r}")
    if against == "tau" and chosen is not None and not isinstance(chosen, int | float):
        raise InputError("against `tau`, the chosen point is given as a threshold in nats")
    figure, (axes,) = _figure(1)
    name = f"{' and '.join(curve.steps)}, every threshold (n = {curve.n})"
    if against == "tau":
        edges = np.array(curve.edges, dtype=float)
        # The first step has no lower end; it is shown as far as the others are on average.
        edges[0] = edges[1] - max(0.1, float(np.diff(edges[1:]).mean()) if len(edges) > 2 else 0.1)
        axes.stairs(100 * curve.score, edges, baseline=None, color="C0", linewidth=1.6, label=name)
    else:
        axes.plot(getattr(curve, against), 100 * curve.score, "o-", color="C0", markersize=3, linewidth=1, label=name)
    if lines is not None and against == "retrievals":
        _draw_lines(axes, lines)
    if isinstance(chosen, int | float):
        point = curve.at(float(chosen))
        _mark(axes, float(chosen) if against == "tau" else getattr(point, against), point.score, "chosen")
    elif chosen is not None:
        _mark(axes, getattr(chosen, against), chosen.score, "chosen")
    return _labelled(figure, _in_percent(axes), _UNITS[against], f"{label} (%)")


def plot_front(
    points: Iterable[Scored],
    *,
    chosen: Scored | None = None,
    baselines: Mapping[str, Scored] | None = None,
    against: Cost = "retrievals",
    label: str = "EM",
) -> Figure:
    """The front of score against cost, and what it is compared with.

    Args:
        points: The points that no other beats, in any order.
        chosen: The chosen one.
        baselines: Other programs on the same questions, by name.
        against: The cost.
        label: Name of the score.

    Raises:
        InputError: There are no points, or one does not know that cost.
        MissingDependencyError: matplotlib is not installed.
    """
    if against not in ("retrievals", "lm_calls", "tokens"):
        raise InputError(f"`against` must be one of retrievals, lm_calls, tokens, got {against!r}")
    front = sorted((_cost(point, against), 100 * point.score) for point in points)
    if not front:
        raise InputError("there are no points to draw")
    figure, (axes,) = _figure(1)
    axes.plot(*zip(*front, strict=True), "o-", drawstyle="steps-post", color="C0", markersize=5, label="front")
    for number, (name, point) in enumerate((baselines or {}).items()):
        marker, color = "sD^vPX"[number % 6], f"C{1 + number % 9}"
        axes.plot([_cost(point, against)], [100 * point.score], marker, color=color, markersize=7, label=name)
    if chosen is not None:
        _mark(axes, _cost(chosen, against), chosen.score, "chosen")
    return _labelled(figure, _in_percent(axes), _UNITS[against], f"{label} (%)")


def plot_reliability(given: Mapping[str, tuple[Sequence[float], Sequence[bool]]]) -> Figure:
    """Whether probabilities say how often answers are right, and what keeping only the most probable ones gives.

    Args:
        given: By name, such as that of a calibrator: the probabilities of answers, and whether each is right; best of
            other answers than it was fitted on.

    Raises:
        InputError: There is nothing to draw, or as of :func:`hopgate.optimizers.quality`.
        MissingDependencyError: matplotlib is not installed.
    """
    if not given:
        raise InputError("there are no probabilities to draw")
    figure, (left, right) = _figure(2)
    left.plot([0, 1], [0, 1], "--", color="0.6", linewidth=1)
    for number, (name, (probabilities, outcomes)) in enumerate(given.items()):
        found, color = quality(probabilities, outcomes), f"C{number % 10}"
        p, y = np.asarray(probabilities, dtype=float), np.asarray(outcomes, dtype=bool)
        places = np.minimum((p * _BINS).astype(int), _BINS - 1)
        inside = [places == place for place in sorted(set(places.tolist()))]
        shares = [share_interval(int(y[mask].sum()), int(mask.sum())) for mask in inside]
        x, middle = [float(p[mask].mean()) for mask in inside], [share.value or 0.0 for share in shares]
        ends = [
            [max(0.0, value - (share.low or 0.0)) for value, share in zip(middle, shares, strict=True)],
            [max(0.0, (share.high or 0.0) - value) for value, share in zip(middle, shares, strict=True)],
        ]
        auroc = "unknown" if found.auroc is None else f"{found.auroc:.2f}"
        text = f"{name}: ECE {found.ece:.3f}, Brier {found.brier:.3f}, AUROC {auroc} (n = {found.n})"
        left.errorbar(x, middle, yerr=ends, fmt="o-", color=color, markersize=5, linewidth=1, capsize=2, label=text)
        coverage, risk = zip(*found.risk_coverage, strict=True)
        right.plot(100 * np.array(coverage), 100 * np.array(risk), "o-", color=color, markersize=3, label=name)
    left.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
    right.set(xlim=(0, 102), ylim=(-2, 102))
    _labelled(figure, right, "answers kept, the most probable first (%)", "wrong among those kept (%)")
    return _labelled(figure, left, "probability of being right", "share right")


def plot_learning(records: Iterable[PolicyEpoch]) -> Figure:
    """How training went: the reward on the questions trained on and held out, one line a seed, and the entropy.

    Args:
        records: The points, as of :attr:`hopgate.optimizers.TrainedPolicy.curve`.

    Raises:
        InputError: There are none.
        MissingDependencyError: matplotlib is not installed.
    """
    by_seed: dict[int, list[PolicyEpoch]] = {}
    for record in records:
        by_seed.setdefault(record.seed, []).append(record)
    if not by_seed:
        raise InputError("there are no epochs to draw")
    figure, (left, right) = _figure(2)
    for number, (seed, epochs) in enumerate(sorted(by_seed.items())):
        x, color = [epoch.epoch for epoch in epochs], f"C{number % 10}"
        left.plot(x, [epoch.expected for epoch in epochs], "--", color=color, label=f"seed {seed}, drawn decisions")
        left.plot(x, [epoch.value for epoch in epochs], "-", color=color, label=f"seed {seed}, the policy")
        known = [(epoch.epoch, epoch.validation) for epoch in epochs if epoch.validation is not None]
        if known:
            left.plot(*zip(*known, strict=True), ":", color=color, linewidth=2, label=f"seed {seed}, held out")
        right.plot(x, [epoch.entropy for epoch in epochs], "-", color=color, label=f"seed {seed}")
    _labelled(figure, right, "epoch", "entropy of a question's leaves (nats)")
    return _labelled(figure, left, "epoch", "reward a question")


def plot_importance(importances: Mapping[str, float]) -> Figure:
    """How much each parameter matters.

    Args:
        importances: Share of each parameter in the variance of the score, as of
            :attr:`hopgate.optimizers.JointResult.importances`.

    Raises:
        InputError: There are none.
        MissingDependencyError: matplotlib is not installed.
    """
    if not importances:
        raise InputError("there are no importances to draw: too few trials, or one parameter only")
    figure, (axes,) = _figure(1)
    ordered = sorted(importances.items(), key=lambda item: (item[1], item[0]))
    bars = axes.barh([name for name, _ in ordered], [100 * share for _, share in ordered], color="C0")
    axes.bar_label(bars, fmt="%.0f", padding=3)
    axes.set_xlim(0, 110 * max(importances.values()) or 1)
    axes.set(xlabel="share in the variance of the score (%)", ylabel="parameter")
    return figure


def save_plot(figure: Figure, path: str | Path) -> None:
    """Write a figure as a PNG, replacing the file at once.

    Args:
        figure: The figure.
        path: The file, which ends in ``.png``.

    Raises:
        InputError: The name has another ending.
        OSError: The file cannot be written.
    """
    target = user_path(path)
    if target.suffix.lower() != ".png":
        raise InputError(f"{target}: plots are written as PNG; give a name that ends in .png")
    written = io.BytesIO()
    # Without the version of matplotlib the same figure is the same file.
    figure.savefig(written, format="png", dpi=_DPI, metadata={"Software": None})
    write_atomic(target, written.getvalue())


def _draw_lines(axes: Axes, lines: BudgetLines) -> None:
    axes.plot(*_percent(lines.oracle), "-", color="C2", linewidth=1.2, label="oracle")
    axes.plot(*_percent(lines.random), "--", color="0.45", linewidth=1.2, label="random (expected)")
    for name, point, marker in (("always", lines.always, "s"), ("never", lines.never, "D")):
        axes.plot([point.retrievals], [100 * point.score], marker, color="0.25", markersize=6, label=name)


def _percent(line: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [cost for cost, _ in line], [100 * score for _, score in line]


def _mark(axes: Axes, x: float, score: float, name: str) -> None:
    text = f"{name}: {100 * score:.1f} % at {x:.3g}"
    axes.plot([x], [100 * score], "*", color="C3", markersize=15, markeredgecolor="white", zorder=5, label=text)


def _cost(point: Scored, against: str) -> float:
    value = getattr(point, against, None)
    if value is None:
        raise InputError(f"a point does not know its {against}: {point!r:.80}")
    return float(value)


def _figure(panels: int) -> tuple[Figure, Sequence[Any]]:
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingDependencyError("plots need matplotlib; run `pip install 'hopgate[plots]'`") from error
    figure = Figure(figsize=(6.8 * panels, 4.6), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(1, panels, squeeze=False)[0]


def _in_percent(axes: Axes) -> Axes:
    """Scores that hardly differ are not blown up, and none is below 0."""
    low, high = axes.get_ylim()
    if high - low < _LEAST_SPAN:
        low, high = (low + high - _LEAST_SPAN) / 2, (low + high + _LEAST_SPAN) / 2
    axes.set_ylim(max(low, -1.0), max(high, _LEAST_SPAN))
    return axes


def _labelled(figure: Figure, axes: Axes, x: str, y: str) -> Figure:
    axes.set(xlabel=x, ylabel=y)
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    return figure
