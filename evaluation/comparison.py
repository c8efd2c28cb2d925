"""Comparing recorded runs: means with intervals, paired differences, breakdowns, costs.

Only questions that every run answered are compared. All resampling is seeded, so that the same files give the same
figures.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

import numpy as np

from ..core import InputError
from .aligned import AlignedRuns, RecordedRun, align
from .records import Run
from .statistics import Interval, PairedTest, mean_interval, needed_questions, paired_test, share_interval, slope_test

Metric = Literal["em", "f1", "cover_em", "cover_em_tokens"]

COSTS = ("retrievals", "lm_calls", "prompt_tokens", "prefix_tokens", "completion_tokens", "passages_read", "seconds")


@dataclass(frozen=True, slots=True)
class RunSummary:
    """What one run did on the common questions.

    Attributes:
        name: The run.
        program: Name of its program.
        lm: Name of its LM.
        gate: Its gate, if it has one.
        tau: Its threshold (nats), if it has one.
        failed: Questions of the whole run that ended in an error.
        dropped: Questions that it answered and another run did not.
        scores: Mean of each metric, as a fraction.
        retrieval_recall: Mean share of the gold passages that were retrieved, over the questions where it is known.
        wrong: Answers that are no exact match.
        off_topic: Share of the wrong answers that are off-topic, over those that were judged (its ``n``), with Wilson's
            interval.
        retrievals: Mean retrievals a question.
        histogram: Number of retrievals to the number of questions that took so many.
        costs: Mean of each field of the cost, a question; ``None`` unless it is known of every one.
        usd: Mean price of a question; ``None`` unless the price of every one is known.
        usd_known: Questions whose price is known.
    """

    name: str
    program: str | None
    lm: str | None
    gate: str | None
    tau: float | None
    failed: int
    dropped: int
    scores: Mapping[str, Interval]
    retrieval_recall: Interval
    wrong: int
    off_topic: Interval
    retrievals: Interval
    histogram: Mapping[int, int]
    costs: Mapping[str, float | None]
    usd: float | None
    usd_known: int


@dataclass(frozen=True, slots=True)
class Difference:
    """One run less the baseline.

    Attributes:
        name: The run.
        score: Paired test of the metric.
        retrievals: Paired test of the retrievals a question.
        needed: Questions that a paired comparison of these two runs would need to see ``Comparison.target``.
    """

    name: str
    score: PairedTest
    retrievals: PairedTest
    needed: int


@dataclass(frozen=True, slots=True)
class Group:
    """The questions of one hop count or type.

    Attributes:
        value: The hop count or type; ``None`` where the data set names none.
        n: Questions.
        scores: Each run's mean of the metric.
        retrievals: Each run's mean retrievals.
        differences: Each other run's mean difference to the baseline.
    """

    value: int | str | None
    n: int
    scores: Mapping[str, Interval]
    retrievals: Mapping[str, Interval]
    differences: Mapping[str, Interval]


@dataclass(frozen=True, slots=True)
class Trend:
    """Whether a run's gain over the baseline grows with the hops.

    Attributes:
        name: The run.
        slope: Change of the difference with one hop more (least squares over questions).
        p_value: Two-sided permutation p-value of no association; ``None`` where all questions have the same hops.
    """

    name: str
    slope: Interval
    p_value: float | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """Several runs on their common questions.

    Attributes:
        metric: The metric of differences and breakdowns.
        baseline: The run that the others are compared with; ``None`` for a single run.
        n: Common questions.
        target: The difference, as a fraction, that ``Difference.needed`` is about.
        normalisation: How answers were normalised.
        runs: One summary a run.
        differences: One for each run but the baseline.
        by_hops: Groups by the number of gold hops, ascending; empty where no hops are known.
        by_type: Groups by question type; empty where no types are known.
        trends: One for each run but the baseline, where there are different hop counts.
        notes: What a reader must know, in sentences.
    """

    metric: Metric
    baseline: str | None
    n: int
    target: float
    normalisation: str
    runs: tuple[RunSummary, ...]
    differences: tuple[Difference, ...]
    by_hops: tuple[Group, ...]
    by_type: tuple[Group, ...]
    trends: tuple[Trend, ...]
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """A JSON object; all shares and differences are fractions."""
        return asdict(self)


def compare(
    runs: Sequence[Run | RecordedRun] | AlignedRuns,
    *,
    baseline: str | None = None,
    metric: Metric = "em",
    difference: float = 0.05,
) -> Comparison:
    """Compare runs on the questions that all of them answered.

    Args:
        runs: The runs, see :func:`~hopgate.evaluation.records.read_run`.
        baseline: Name of the run that the others are compared with; by default the first.
        metric: The metric of differences and breakdowns.
        difference: The difference, as a fraction, to say the needed number of questions for.

    Raises:
        InputError: An argument is unknown or out of range, or the runs cannot be compared, see :func:`align`.
    """
    aligned = runs if isinstance(runs, AlignedRuns) else align(runs)
    if metric not in get_args(Metric):
        raise InputError(f"`metric` must be one of {', '.join(get_args(Metric))}, got {metric!r}")
    if not 0 < difference <= 1:
        raise InputError(f"`difference` must be a fraction above 0 and up to 1 (0.05 for 5 points), got {difference!r}")
    base = _baseline(aligned, baseline)
    others = [run for run in aligned.runs if run is not base] if len(aligned.runs) > 1 else []
    scores = {run.name: aligned.score(run, metric) for run in aligned.runs}
    searches = {run.name: aligned.retrievals(run) for run in aligned.runs}
    hops, types = aligned.facet("hops"), aligned.facet("type")
    notes = list(aligned.notes)
    if len(others) > 1:
        notes.append(f"The p-values are of {len(others)} comparisons and are not corrected for their number.")
    return Comparison(
        metric=metric,
        baseline=base.name if others else None,
        n=len(aligned.ids),
        target=difference,
        normalisation=base.header.normalisation,
        runs=tuple(_summary(aligned, run) for run in aligned.runs),
        differences=tuple(_difference(run.name, base.name, scores, searches, difference) for run in others),
        by_hops=_groups(hops, scores, searches, base.name),
        by_type=_groups(types, scores, searches, base.name),
        trends=_trends(hops, scores, base.name),
        notes=tuple(notes),
    )


def _baseline(aligned: AlignedRuns, name: str | None) -> RecordedRun:
    if name is None:
        return aligned.runs[0]
    found = next((run for run in aligned.runs if run.name == name), None)
    if found is None:
        raise InputError(f"no run is called {name!r}; there are {', '.join(run.name for run in aligned.runs)}")
    return found


def _summary(aligned: AlignedRuns, run: RecordedRun) -> RunSummary:
    rows = aligned.rows(run)
    recalls = [row.scores.retrieval_recall for row in rows]
    wrong = [row for row in rows if not row.scores.em]
    judged = [row.scores.off_topic for row in wrong]
    judged = [bool(value) for value in judged if value is not None]
    searches = aligned.retrievals(run)
    return RunSummary(
        name=run.name,
        program=run.program,
        lm=run.lm,
        gate=run.gate,
        tau=run.tau,
        failed=run.failed,
        dropped=aligned.dropped[run.name],
        scores={metric: mean_interval(aligned.score(run, metric)) for metric in get_args(Metric)},
        retrieval_recall=mean_interval([float(value) for value in recalls if value is not None]),
        wrong=len(wrong),
        off_topic=share_interval(sum(judged), len(judged)),
        retrievals=mean_interval(searches),
        histogram=dict(sorted(Counter(map(int, searches)).items())),
        costs={field: _known_mean(aligned.cost(run, field)) for field in COSTS},
        usd=_known_mean(aligned.cost(run, "usd")),
        usd_known=sum(value is not None for value in aligned.cost(run, "usd")),
    )


def _known_mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if len(known) == len(values) else None


def _difference(
    name: str,
    base: str,
    scores: Mapping[str, Sequence[float]],
    searches: Mapping[str, Sequence[float]],
    target: float,
) -> Difference:
    score = paired_test(scores[name], scores[base])
    needed = needed_questions(target, score.mean_square)
    return Difference(name, score, paired_test(searches[name], searches[base]), needed)


def _groups(
    values: Sequence[Any], scores: Mapping[str, Sequence[float]], searches: Mapping[str, Sequence[float]], base: str
) -> tuple[Group, ...]:
    known = sorted({value for value in values if value is not None})
    if not known:
        return ()
    unknown = [None] if None in values else []
    groups: list[Group] = []
    for value in [*known, *unknown]:
        chosen = [i for i, other in enumerate(values) if other == value]
        picked = {name: [column[i] for i in chosen] for name, column in scores.items()}
        groups.append(
            Group(
                value=value,
                n=len(chosen),
                scores={name: mean_interval(column) for name, column in picked.items()},
                retrievals={name: mean_interval([column[i] for i in chosen]) for name, column in searches.items()},
                differences={
                    name: mean_interval([a - b for a, b in zip(column, picked[base], strict=True)])
                    for name, column in picked.items()
                    if name != base
                },
            )
        )
    return tuple(groups)


def _trends(hops: Sequence[Any], scores: Mapping[str, Sequence[float]], base: str) -> tuple[Trend, ...]:
    known = [i for i, value in enumerate(hops) if value is not None]
    steps = [float(hops[i]) for i in known]
    if len(set(steps)) < 2:
        return ()
    return tuple(
        Trend(name, *slope_test(steps, [column[i] - scores[base][i] for i in known]))
        for name, column in scores.items()
        if name != base
    )
