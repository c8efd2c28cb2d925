"""What thresholds that were fitted on some questions do on others, at several budgets of retrievals."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..core import InputError
from ..evaluation.statistics import Interval, mean_interval
from .curve import Boxes, Point, Score
from .fitting import Fitted, fit_tau
from .references import always, never, oracle, random_at
from .rules import WithinBudget
from .tree_files import Trees, check_alike
from .tree_schema import Tree


@dataclass(frozen=True, slots=True)
class AtBudget:
    """One budget.

    Attributes:
        budget: Searches a question that the thresholds were to keep to, on the questions that they were fitted on.
        fitted: The thresholds, and what they do there.
        score: Mean score on the other questions, with its bootstrap interval.
        retrievals: Their searches a question.
        random: Expected score of going on at random there with as many searches.
        gain: Score less that, paired over questions.
        oracle: The best that decisions could do there with as many searches.
        nearest: Questions whose leaf was not explored and stands for another.
    """

    budget: float
    fitted: Fitted
    score: Interval
    retrievals: Interval
    random: Interval
    gain: Interval
    oracle: Point
    nearest: int


@dataclass(frozen=True, slots=True)
class Transfer:
    """All budgets, and the two ends of all thresholds.

    Attributes:
        rows: One a budget.
        always: Going on wherever thresholds can, on the other questions.
        never: Keeping every answer there.
        chance_at: The steps at which going on at random is drawn; elsewhere it decides by the fitted thresholds.
    """

    rows: tuple[AtBudget, ...]
    always: Point
    never: Point
    chance_at: tuple[str, ...]


def transfer(
    train: Trees | Iterable[Tree],
    test: Trees | Iterable[Tree],
    *,
    budgets: Sequence[float] = (1.0, 1.5, 2.0),
    chance_at: Sequence[str] | None = None,
    score: Score = "em",
    seed: int = 0,
) -> Transfer:
    """Fit thresholds on trees for each budget of searches, and apply them to other trees.

    Args:
        train: Trees to fit on.
        test: Trees of other questions, of the same program.
        budgets: Searches a question.
        chance_at: Steps at which random decisions are drawn; by default that of the whole question's own passages where
            it was explored, which is where an escalation decides on going on to sub-questions, and else all.
        score: As of :func:`hopgate.optimizers.evaluate_at`.
        seed: Of Optuna, where it is needed.

    Raises:
        InputError: The trees share a question, those to apply to decide at a further step, or there are none.
    """
    check_alike(train, test, "test")
    fit_on, apply_to = (trees if isinstance(trees, Trees) else tuple(trees) for trees in (train, test))
    fit_boxes, boxes = Boxes(fit_on, score), Boxes(apply_to, score)
    if shared := {tree.id for tree in fit_boxes.trees} & {tree.id for tree in boxes.trees}:
        raise InputError(
            f"{len(shared)} questions are in both sets, such as {min(shared)!r}; thresholds must be applied to others "
            "than they were fitted on"
        )
    if more := [step for step in boxes.steps if step not in fit_boxes.steps]:
        raise InputError(f"the trees to fit on have no decision at the step {more[0]!r}, and the others do")
    if chance_at is None:
        chance_at = ("grounded",) if "grounded" in boxes.steps else boxes.steps
    found: list[AtBudget] = []
    for budget in budgets:
        fitted = fit_tau(fit_on, WithinBudget(budget), original={}, folds=0, score=score, seed=seed)
        rows, nearest = boxes.rows(fitted.thresholds)
        scores, searches = boxes.score[rows], boxes.costs["retrievals"][rows]
        others = {step: tau for step, tau in fitted.thresholds.items() if step not in chance_at}
        chance = random_at(apply_to, float(searches.mean()), steps=chance_at, thresholds=others, score=score)
        found.append(
            AtBudget(
                budget=budget,
                fitted=fitted,
                score=mean_interval(scores.tolist()),
                retrievals=mean_interval(searches.tolist()),
                random=mean_interval(chance.score.tolist()),
                gain=mean_interval((scores - chance.score).tolist()),
                oracle=oracle(apply_to, float(searches.mean()), score=score),
                nearest=nearest,
            )
        )
    return Transfer(tuple(found), always(apply_to, score=score), never(apply_to, score=score), tuple(chance_at))
