"""What a gate is worth, estimated from recorded runs: against always, never, an oracle and chance at an equal rate.

Three recorded runs of one program are needed: ``gated``, which decided hop by hop; ``always``, which searched at every
hop; and ``never``. All estimates are over the questions that the three answered, and are *question-level*: a recorded
run says what happened on a whole question under one policy, and not what would have happened had a single hop of it
been decided otherwise (that takes new LM calls: resuming prefixes with one decision flipped). So:

- ``always`` and ``never`` are plain means of the recorded runs.
- ``oracle`` chooses for each question between the two recorded runs, knowing which is right: it takes ``never`` unless
  only ``always`` is right. Its exact match is the share of questions that either got right, at the least retrievals for
  it. It bounds every gate that decides once a question; a gate that decides at each hop can mix the two and lie above.
- ``random`` searches on a question with one fixed probability, such that its expected retrievals a question equal those
  of ``gated``: p = r(gated) / r(always), and its expected score is p score(always) + (1 - p) score(never), which is
  computed and not drawn. It is chance over questions, not over hops. Where ``gated`` retrieves more than ``always``,
  no p will do; p is then 1 and the estimate says so.
- ``gain`` is gated less random, resampled over questions with p computed anew in each resample: what the confidence
  signal adds beyond searching less often.
- ``captured`` is that gain as a share of what an oracle would gain over the same random policy.

Deterministic decoding makes the runs differ by their decisions alone; with sampling they differ by chance too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ..core import InputError
from .aligned import RecordedRun, align, name_runs
from .comparison import Metric
from .records import Run
from .statistics import Interval, bootstrap_interval, mean_interval


@dataclass(frozen=True, slots=True)
class Policy:
    """A way to decide on searching.

    Attributes:
        name: ``always``, ``never``, ``oracle``, ``random`` or the gated run's name.
        score: Mean of the metric, as a fraction.
        retrievals: Mean retrievals a question.
    """

    name: str
    score: Interval
    retrievals: Interval


@dataclass(frozen=True, slots=True)
class GateAnalysis:
    """One gate beside the policies it is measured against.

    Attributes:
        name: The gated run.
        metric: The metric.
        n: Questions that all three runs answered.
        policies: The gated run, always, never, oracle and random, in this order.
        rate: Probability with which ``random`` searches.
        rate_capped: Whether the gated run retrieves more than always, so that no rate is equal.
        gain: Gated less random.
        captured: Gain over random as a share of the oracle's; ``None`` where the oracle gains nothing.
        decisions: Questions by what the gate did (``searched`` at least once, or ``kept`` to memory) and which
            of the other two runs is an exact match (``only_always``, ``only_never``, ``both``, ``neither``).
    """

    name: str
    metric: Metric
    n: int
    policies: tuple[Policy, ...]
    rate: float
    rate_capped: bool
    gain: Interval
    captured: float | None
    decisions: Mapping[str, Mapping[str, int]]

    def to_dict(self) -> dict[str, Any]:
        """A JSON object; shares are fractions."""
        return asdict(self)


def analyse_gate(
    gated: Run | RecordedRun, always: Run | RecordedRun, never: Run | RecordedRun, *, metric: Metric = "em"
) -> GateAnalysis:
    """Measure a gate, see the module's description for what is estimated from what.

    Args:
        gated: The run whose gate is measured.
        always: A run of the same program that searches at every hop.
        never: One that never searches.
        metric: The metric.

    Raises:
        InputError: The runs have no question in common, ``never`` searched, or ``always`` never did.
    """
    aligned = align([gated, always, never])
    gated, always, never = aligned.runs
    columns = {
        role: (np.array(aligned.score(run, metric)), np.array(aligned.retrievals(run)))
        for role, run in (("gated", gated), ("always", always), ("never", never))
    }
    (score, searches), (all_score, all_searches), (no_score, no_searches) = columns.values()
    if no_searches.any():
        raise InputError(f"run {never.name!r} searched, so it is no run that never does; name another as `never`")
    if not all_searches.any():
        raise InputError(f"run {always.name!r} never searched, so it is no run that always does; name another")
    helps = all_score > no_score
    oracle_score, oracle_searches = np.maximum(all_score, no_score), np.where(helps, all_searches, 0.0)
    samples = (score, searches, all_score, all_searches, no_score)
    asked = float(searches.mean() / all_searches.mean())
    rate = min(1.0, asked)
    chance = float(_chance(searches, all_score, all_searches, no_score))
    ceiling = float(oracle_score.mean()) - chance
    gain = bootstrap_interval(samples, lambda s, r, a, ra, m, axis=-1: np.mean(s, axis) - _chance(r, a, ra, m, axis))
    return GateAnalysis(
        name=gated.name,
        metric=metric,
        n=len(aligned.ids),
        policies=(
            _policy(gated.name, score, searches),
            _policy("always", all_score, all_searches),
            _policy("never", no_score, no_searches),
            _policy("oracle", oracle_score, oracle_searches),
            Policy(
                "random",
                bootstrap_interval(samples[1:], _chance),
                bootstrap_interval(
                    (searches, all_searches), lambda r, ra, axis=-1: np.minimum(r.mean(axis), ra.mean(axis))
                ),
            ),
        ),
        rate=rate,
        rate_capped=asked > 1,
        gain=gain,
        captured=None if ceiling <= 1e-12 else (float(score.mean()) - chance) / ceiling,
        decisions=_decisions(
            searches > 0, [bool(v) for v in aligned.score(always, "em")], [bool(v) for v in aligned.score(never, "em")]
        ),
    )


def analyse_gates(
    runs: Sequence[Run | RecordedRun], *, always: str | None = None, never: str | None = None, metric: Metric = "em"
) -> tuple[GateAnalysis, ...]:
    """Measure every gated run among several, where they hold what that takes.

    Args:
        runs: The runs. Gated is every run whose gate is ``threshold``.
        always: Name of the run that always searches; by default the one whose gate is ``always``, with the gated run's
            program, LM and other settings.
        never: Likewise.
        metric: The metric.

    Returns:
        One analysis for each gated run that has both counterparts; none where there are none.

    Raises:
        InputError: A name is unknown, or as for :func:`analyse_gate`.
    """
    named = name_runs(runs)
    found: list[GateAnalysis] = []
    for run in named:
        if run.gate != "threshold":
            continue
        searching, resting = _counterpart(named, run, "always", always), _counterpart(named, run, "never", never)
        if searching is not None and resting is not None:
            found.append(analyse_gate(run, searching, resting, metric=metric))
    return tuple(found)


def _counterpart(runs: Sequence[RecordedRun], gated: RecordedRun, gate: str, name: str | None) -> RecordedRun | None:
    if name is not None:
        found = next((run for run in runs if run.name == name), None)
        if found is None:
            raise InputError(f"no run is called {name!r}; there are {', '.join(run.name for run in runs)}")
        return found
    return next((run for run in runs if run.gate == gate and _but_gate(run) == _but_gate(gated)), None)


def _but_gate(run: RecordedRun) -> tuple[Any, ...]:
    settings = {name: value for name, value in run.settings.items() if name not in ("gate", "tau")}
    return run.program, run.lm, settings


def _chance(searches: Any, all_score: Any, all_searches: Any, no_score: Any, axis: int = -1) -> Any:
    total = np.mean(all_searches, axis)
    # A resample without any retrieval has nothing to be random about.
    rate = np.minimum(1.0, np.divide(np.mean(searches, axis), total, out=np.zeros_like(total), where=total > 0))
    return rate * np.mean(all_score, axis) + (1 - rate) * np.mean(no_score, axis)


def _policy(name: str, score: Any, searches: Any) -> Policy:
    return Policy(name, mean_interval(score.tolist()), mean_interval(searches.tolist()))


def _decisions(searched: Any, always: Sequence[bool], never: Sequence[bool]) -> dict[str, dict[str, int]]:
    table = {did: {"only_always": 0, "only_never": 0, "both": 0, "neither": 0} for did in ("searched", "kept")}
    for did, right, known in zip(searched, always, never, strict=True):
        case = "both" if right and known else "only_always" if right else "only_never" if known else "neither"
        table["searched" if did else "kept"][case] += 1
    return table
