"""The outcome of a joint optimisation in the form of every other compilation, so that it is saved and told alike."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..core import HopgateError
from ..evaluation.questions import Question
from ..evaluation.statistics import Interval
from ..programs import Solver
from .compiled_figures import Compiled, Measured
from .compiled_manifest import ManifestPoint
from .curve import Point
from .fitting import SETTING_OF
from .joint import JointOptimizer
from .joint_result import CandidateSummary, FrontPoint


def compile_joint(
    optimizer: JointOptimizer, program: Solver, train: Iterable[Question], valid: Iterable[Question] = ()
) -> Compiled:
    """Optimise a program jointly; the LM and the adapter are those of ``dspy.settings``.

    Args:
        optimizer: The optimizer.
        program: The program; it is not changed.
        train: The training questions.
        valid: Questions that the choice among the best candidates is made on.

    Raises:
        HopgateError: As :meth:`JointOptimizer.compile`; or a limit was reached before there was a candidate.
    """
    made: Any = optimizer.compile(program, trainset=list(train), valset=list(valid) or None)
    found = optimizer.result
    if found is None or found.chosen is None:
        stopped = "nothing" if found is None else found.stopped
        raise HopgateError(f"no candidate was evaluated ({stopped}); the same command goes on")
    summary = next((one for one in found.candidates if one.candidate == found.chosen.candidate), None)
    held_out, where = (None, "no other questions") if summary is None else _held_out(summary)
    notes = [] if summary is None or held_out is None else ["the candidate was chosen by these figures"]
    return Compiled(
        program=made,
        settings=_settings(found.chosen),
        kept_original=found.kept_original,
        measured_on=where,
        held_out=held_out,
        original=None if found.original is None else _measured(found.original),
        train=_point(found.chosen),
        front=tuple(_manifest_point(point) for point in found.front),
        notes=tuple(notes),
        stopped=found.stopped,
        original_on="the questions that candidates are compared on",
    )


def _held_out(summary: CandidateSummary) -> tuple[Measured, str]:
    n = summary.questions
    if summary.validated is not None and summary.validated_cost is not None:
        score, cost, where = summary.validated, summary.validated_cost, "the validation questions"
    else:
        score, cost, where = summary.held_out, summary.held_out_cost, "thresholds fitted on other questions"
    return Measured(Interval(score, None, None, n), Interval(cost, None, None, n), n), where


def _measured(point: FrontPoint) -> Measured:
    score = Interval(point.score, point.low, point.high, point.n)
    return Measured(score, Interval(point.retrievals, None, None, point.n), point.n)


def _settings(point: FrontPoint) -> dict[str, Any]:
    return {**point.parameters, **{SETTING_OF[step]: tau for step, tau in point.thresholds.items()}}


def _point(point: FrontPoint) -> Point:
    return Point(point.score, point.retrievals, point.lm_calls, point.tokens, 0, point.n)


def _manifest_point(point: FrontPoint) -> ManifestPoint:
    return ManifestPoint(point.score, point.retrievals, point.lm_calls, point.tokens, _settings(point))
