"""Comparisons as tables: Markdown for documents, rich for terminals, JSON for programs.

Shares are shown in percent and differences in points, both with one decimal; intervals stand in brackets.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .comparison import Comparison, Group, Trend
from .gate_analysis import GateAnalysis
from .statistics import LEVEL, Interval

if TYPE_CHECKING:
    from rich.table import Table as RichTable

METRIC_NAMES = {"em": "EM", "f1": "F1", "cover_em": "cover EM", "cover_em_tokens": "cover EM (tokens)"}
_UNKNOWN = "-"


@dataclass(frozen=True, slots=True)
class Table:
    """A table of texts.

    Attributes:
        title: What it shows.
        columns: Heads of the columns.
        rows: The cells; the first column is names, the others are figures.
        notes: Sentences that belong to it.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()

    def to_markdown(self) -> str:
        """The table in GitHub's Markdown, without a newline at its end."""
        lines = [f"**{_cell(self.title)}**", ""]
        lines.append(_row(self.columns))
        lines.append("|" + "|".join(["---", *["---:"] * (len(self.columns) - 1)]) + "|")
        lines.extend(_row(row) for row in self.rows)
        for note in self.notes:
            lines.extend(["", _cell(note)])
        return "\n".join(lines)

    def to_rich(self) -> RichTable:
        """The table for a terminal; texts are shown as they are, without markup."""
        from rich.table import Table as RichTable
        from rich.text import Text

        table = RichTable(title=Text(self.title, style="bold"), title_justify="left", caption_justify="left")
        if self.notes:
            table.caption = Text("\n".join(self.notes))
        for number, column in enumerate(self.columns):
            table.add_column(Text(column), justify="right" if number else "left")
        for row in self.rows:
            table.add_row(*(Text(_plain(cell)) for cell in row))
        return table


def comparison_tables(comparison: Comparison, gates: Sequence[GateAnalysis] = ()) -> list[Table]:
    """All that a comparison and its gate analyses say, as tables in reading order.

    Args:
        comparison: The comparison.
        gates: Analyses of gated runs.
    """
    tables = [_scores(comparison), _costs(comparison), _histogram(comparison)]
    if comparison.differences:
        tables.insert(1, _differences(comparison))
    if comparison.by_hops:
        tables.append(_breakdown(comparison, "hops", comparison.by_hops, comparison.trends))
    if comparison.by_type:
        tables.append(_breakdown(comparison, "question type", comparison.by_type, ()))
    tables.extend(_gate(gate) for gate in gates)
    return tables


def to_markdown(comparison: Comparison, gates: Sequence[GateAnalysis] = ()) -> str:
    """All tables in Markdown, with a newline at the end."""
    return "\n\n".join(table.to_markdown() for table in comparison_tables(comparison, gates)) + "\n"


def to_json(comparison: Comparison, gates: Sequence[GateAnalysis] = ()) -> str:
    """The comparison as one JSON object, with a newline at the end; ``gates`` is a list in it. Shares are fractions."""
    record = {"schema": 1, "kind": "comparison", **comparison.to_dict(), "gates": [gate.to_dict() for gate in gates]}
    return json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


# --- the tables -----------------------------------------------------------------------------------------------------


def _scores(comparison: Comparison) -> Table:
    rows = [
        (
            run.name,
            *(share(run.scores[metric]) for metric in ("em", "f1", "cover_em")),
            share(run.retrieval_recall),
            share(run.off_topic) + (f" of {run.off_topic.n}" if run.off_topic.n else ""),
            figure(run.retrievals),
            str(run.failed),
        )
        for run in comparison.runs
    ]
    columns = ("run", "EM", "F1", "cover EM", "retrieval recall", "off-topic of the wrong", "retrievals", "failed")
    notes = (
        f"n = {comparison.n:,}. In percent, retrievals a question; in brackets {LEVEL:.0%} intervals (bootstrap over "
        f"questions; Wilson's for off-topic). Normalisation: {comparison.normalisation}.",
        " ".join(comparison.notes),
    )
    return Table("Scores", columns, tuple(rows), notes)


def _differences(comparison: Comparison) -> Table:
    name, points = METRIC_NAMES[comparison.metric], f"{100 * comparison.target:g}"
    rows = [
        (
            item.name,
            share(item.score.difference, signed=True),
            p_value(item.score.p_value),
            f"{item.score.better} / {item.score.worse}",
            figure(item.retrievals.difference, signed=True),
            p_value(item.retrievals.p_value),
            f"{item.needed:,}",
        )
        for item in comparison.differences
    ]
    columns = ("run", name, "p", "better / worse on", "retrievals", "p", f"questions to see {points} points")
    note = (
        "Points and retrievals a question, paired over questions; two-sided permutation p-values. The last column: a "
        f"paired comparison with this discordance sees {points} points with a power of 80 % at the 5 % level (Connor "
        "1987)."
    )
    return Table(f"Difference to {comparison.baseline}", columns, tuple(rows), (note,))


def _costs(comparison: Comparison) -> Table:
    rows = []
    for run in comparison.runs:
        cost = run.costs
        tokens = (cost[name] for name in ("prompt_tokens", "prefix_tokens", "completion_tokens"))
        usd = _number(run.usd, 5)
        if run.usd is None and run.usd_known:
            usd = f"known for {run.usd_known} of {comparison.n}"
        rows.append(
            (
                run.name,
                _number(cost["retrievals"], 2),
                _number(cost["lm_calls"], 2),
                " / ".join(_number(value, 0) for value in tokens),
                _number(cost["passages_read"], 1),
                _number(cost["seconds"], 1),
                usd,
            )
        )
    columns = (
        "run",
        "retrievals",
        "LM calls",
        "tokens in / from prefix cache / out",
        "passages read",
        "seconds",
        "USD",
    )
    return Table("Cost of a question (means)", columns, tuple(rows))


def _histogram(comparison: Comparison) -> Table:
    counts = sorted({count for run in comparison.runs for count in run.histogram})
    rows = [(run.name, *(str(run.histogram.get(count, 0)) for count in counts)) for run in comparison.runs]
    return Table("Questions by number of retrievals", ("run", *map(str, counts)), tuple(rows))


def _breakdown(comparison: Comparison, what: str, groups: Iterable[Group], trends: Iterable[Trend]) -> Table:
    names = [run.name for run in comparison.runs]
    others = [item.name for item in comparison.differences]
    rows = [
        (
            "not known" if group.value is None else str(group.value),
            str(group.n),
            *(f"{share(group.scores[name])}; {_number(group.retrievals[name].value, 2)}" for name in names),
            *(share(group.differences[name], signed=True) for name in others),
        )
        for group in groups
    ]
    columns = (what, "n", *names, *(f"{name} less {comparison.baseline}" for name in others))
    notes = tuple(
        f"{trend.name}: the gain changes by {share(trend.slope, signed=True)} points with one hop more "
        f"(p = {p_value(trend.p_value)})."
        for trend in trends
    )
    return Table(f"{METRIC_NAMES[comparison.metric]}; retrievals, by {what}", columns, tuple(rows), notes)


def _gate(gate: GateAnalysis) -> Table:
    rows = tuple((policy.name, share(policy.score), figure(policy.retrievals)) for policy in gate.policies)
    captured = "" if gate.captured is None else f", {100 * gate.captured:.0f} % of what the oracle gains over it"
    capped = " (it retrieves more than always, so no rate is equal)" if gate.rate_capped else ""
    cases = {"only_always": "only always", "only_never": "only never", "both": "both", "neither": "neither"}
    decisions = "; ".join(
        f"{did} on {sum(table.values())} questions (exact match: "
        + ", ".join(f"{cases[case]} {count}" for case, count in table.items())
        + ")"
        for did, table in gate.decisions.items()
    )
    notes = (
        f"n = {gate.n:,}. Estimated question by question from three recorded runs: oracle takes never unless "
        f"always scores higher; random searches on a question with probability {gate.rate:.2f}{capped}. The gate gains "
        f"{share(gate.gain, signed=True)} points over random{captured}. It {decisions}.",
    )
    columns = ("policy", METRIC_NAMES[gate.metric], "retrievals")
    return Table(f"The gate of {gate.name}", columns, rows, notes)


# --- cells ----------------------------------------------------------------------------------------------------------


def share(interval: Interval, *, signed: bool = False) -> str:
    """A fraction and its interval in percent: ``52.5 [37.5, 67.5]``."""
    return _interval(interval, 100.0, 1, signed)


def figure(interval: Interval, *, signed: bool = False) -> str:
    """A figure and its interval: ``1.25 [1.05, 1.48]``."""
    return _interval(interval, 1.0, 2, signed)


def p_value(value: float | None) -> str:
    """A p-value: ``0.032``, ``<0.001``."""
    if value is None:
        return _UNKNOWN
    return "<0.001" if value < 0.001 else f"{value:.3f}"


def _interval(interval: Interval, scale: float, digits: int, signed: bool) -> str:
    def written(value: float) -> str:
        # Adding 0.0 turns a negative zero into a plain one.
        return format(round(value * scale, digits) + 0.0, f"{'+' if signed else ''}.{digits}f")

    if interval.value is None:
        return _UNKNOWN
    if interval.low is None or interval.high is None:
        return written(interval.value)
    return f"{written(interval.value)} [{written(interval.low)}, {written(interval.high)}]"


def _number(value: float | None, digits: int) -> str:
    return _UNKNOWN if value is None else f"{value:,.{digits}f}"


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(map(_cell, cells)) + " |"


def _cell(text: str) -> str:
    """A text that stays in its cell: on one line, and with what Markdown or HTML would take for its own escaped."""
    escaped = _plain(text).replace("\\", "\\\\").replace("|", "\\|")
    return escaped.replace("<", "&lt;").replace(">", "&gt;")


def _plain(text: str) -> str:
    return " ".join("".join(character if character.isprintable() else " " for character in text).split())
