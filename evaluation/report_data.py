"""What a report page shows, as one JSON object: tables, points of the plots, trajectories, and joined texts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

from ..core import InputError, Passage, user_path
from .aligned import RecordedRun, align, name_runs
from .comparison import Comparison, Metric, compare
from .gate_analysis import analyse_gates
from .question_digest import Asked, check_questions
from .recorded_trajectories import Lookup
from .records import Run
from .reliability import Reliability, reliability
from .report_charts import ScoreChart
from .run_schema import RunRecord
from .tables import METRIC_NAMES, Table, comparison_tables

_DIGITS = 4


class QuestionText(Asked, Protocol):
    """A question of a data set, as the page shows it."""

    @property
    def supporting_ids(self) -> Sequence[str] | None:
        """Ids of the passages that hold the facts, where they are known."""
        ...


def report_data(
    runs: Sequence[Run | RecordedRun],
    *,
    questions: Iterable[QuestionText] | None = None,
    passages: Lookup | None = None,
    baseline: str | None = None,
    metric: Metric = "em",
    difference: float = 0.05,
    title: str = "hopgate report",
    charts: Iterable[ScoreChart] = (),
) -> dict[str, Any]:
    """All that a page shows.

    Args:
        runs: The runs.
        questions: The data set's questions, whose texts run files do not hold.
        passages: Takes passage ids and gives those passages that it has, in any order.
        baseline: See :func:`compare`.
        metric: See :func:`compare`.
        difference: See :func:`compare`.
        title: Title of the page.
        charts: Further charts, such as those of :func:`hopgate.optimizers.curve_chart`.

    Raises:
        InputError: As for :func:`compare`, or the questions have other texts or gold answers than those of a run.
    """
    aligned = align(runs)
    questions = None if questions is None else list(questions)
    for run in aligned.runs if questions is not None else ():
        check_questions(run.header.data, questions or (), run.name)
    comparison = compare(aligned, baseline=baseline, metric=metric, difference=difference)
    curves = {run.name: reliability(aligned.rows(run)) for run in aligned.runs}
    tables = comparison_tables(comparison, analyse_gates(aligned.runs, metric=metric))
    asked = sorted({key for run in aligned.runs for key in run.records})
    texts = _questions(asked, questions)
    shown = _passages(aligned.runs, passages)
    return {
        "title": title,
        "metric": {"name": metric, "label": METRIC_NAMES[metric]},
        "tables": [asdict(table) for table in [*tables, *_reliability_tables(curves)]],
        "runs": [_run(run, comparison) for run in aligned.runs],
        "reliability": [{"name": name, **_compact(curve.to_dict())} for name, curve in curves.items()],
        "byHops": [
            {
                "hops": group.value,
                "n": group.n,
                "retrievals": _compact({k: asdict(v) for k, v in group.retrievals.items()}),
            }
            for group in comparison.by_hops
            if group.value is not None
        ],
        "charts": [_compact(asdict(chart)) for chart in charts],
        "questions": texts,
        "passages": shown,
        "joined": {"questions": questions is not None, "passages": passages is not None},
    }


def index_passages(folder: str | Path, runs: Iterable[Run | RecordedRun] = ()) -> Lookup:
    """Texts of an index's passages, by their ids; neither its checkpoint nor its vectors are loaded.

    Args:
        folder: The index.
        runs: Runs whose passages are to be shown; those that searched must have searched this corpus, since the same
            ids mean other passages in another.

    Raises:
        IndexStoreError: The folder is not an index, or is damaged.
        InputError: A run searched another corpus.
    """
    from ..index.manifest import read_manifest
    from ..index.store import IndexStore

    path = user_path(folder).absolute()
    manifest = read_manifest(path)
    for run in name_runs(runs):
        searched = None if run.header.index is None else run.header.index.corpus_fingerprint
        if searched is not None and searched != manifest.corpus_fingerprint:
            raise InputError(
                f"run {run.name!r} searched another corpus (fingerprint {searched[:12]}) than {path} holds "
                f"({manifest.corpus_fingerprint[:12]}); name the index that it searched, or none"
            )
    store = IndexStore(path, manifest)

    def find(ids: Sequence[str]) -> list[Passage]:
        positions = [store.position(identifier) for identifier in ids]
        return [store[position] for position in positions if position is not None]

    return find


def _run(run: RecordedRun, comparison: Comparison) -> dict[str, Any]:
    summary = next(item for item in comparison.runs if item.name == run.name)
    header = run.header
    return {
        "name": run.name,
        "label": run.name if run.tau is None or f"{run.tau:g}" in run.name else f"{run.name} (tau {run.tau:g})",
        "gate": run.gate,
        "tau": run.tau,
        "score": _compact(asdict(summary.scores[comparison.metric])),
        "retrievals": _compact(asdict(summary.retrievals)),
        "made": {
            "program": run.program,
            "settings": dict(run.settings),
            "LM": run.lm,
            "seed": header.seed,
            "normalisation": header.normalisation,
            "data": " ".join(filter(None, (header.data.name, header.data.split))),
            "index": None if header.index is None else _compact(asdict(header.index)),
            "versions": header.versions,
            "started": header.started,
        },
        "records": [_record(run.records[key]) for key in _in_order(run)],
    }


def _in_order(run: RecordedRun) -> list[str]:
    """Ids in the order of the data set; a concurrent run's records stand in the order in which they finished."""
    listed = [key for key in dict.fromkeys(run.header.data.ids) if key in run.records]
    return [*listed, *sorted(set(run.records) - set(listed))]


def _record(record: RunRecord) -> dict[str, Any]:
    return _compact(asdict(record))


def _compact(value: Any) -> Any:
    """JSON without what is unknown and with floats of four digits after the point, a third smaller."""
    if isinstance(value, Mapping):
        return {key: _compact(item) for key, item in value.items() if item is not None}
    if isinstance(value, list | tuple):
        return [_compact(item) for item in value]
    return round(value, _DIGITS) if isinstance(value, float) else value


def _questions(asked: Sequence[str], questions: Iterable[QuestionText] | None) -> dict[str, Any]:
    wanted, found = set(asked), {}
    for question in questions or ():
        if question.id in wanted:
            found[question.id] = {
                "question": question.question,
                "answers": list(question.answers),
                "supporting": list(question.supporting_ids or ()),
            }
    return dict(sorted(found.items()))


def _passages(runs: Iterable[RecordedRun], passages: Lookup | None) -> dict[str, list[str]]:
    if passages is None:
        return {}
    ids: set[str] = set()
    for run in runs:
        for record in run.records.values():
            if record.trajectory is not None:
                ids.update(item.id for item in record.trajectory.passages)
                ids.update(item.id for hop in record.trajectory.hops for item in hop.passages)
                ids.update(key for attempt in record.trajectory.revisions for key in attempt.passages)
    found = {passage.id: [passage.title, passage.text] for passage in passages(sorted(ids))}
    return dict(sorted(found.items()))


def _reliability_tables(curves: Mapping[str, Reliability]) -> list[Table]:
    rows = [
        (
            name,
            f"{item.low:.1f} to {item.high:.1f}",
            str(item.right.n),
            f"{item.confidence:.2f}",
            f"{item.right.value:.2f}",
        )
        for name, curve in curves.items()
        for item in curve.bins
    ]
    if not rows:
        return []
    notes = tuple(
        f"{name}: expected calibration error {curve.error:.2f} over {curve.n} answers"
        + (f"; {curve.without} have no confidence." if curve.without else ".")
        for name, curve in curves.items()
        if curve.error is not None
    )
    return [
        Table("Reliability", ("run", "confidence", "answers", "mean confidence", "share right"), tuple(rows), notes)
    ]
