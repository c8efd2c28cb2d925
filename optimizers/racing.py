"""Racing: candidates are compared on growing sets of questions, and those that are clearly worse are dropped early.

The idea is that of Hoeffding races (Maron and Moore 1994) and of F-Race (Birattari et al. 2002): all candidates answer
the same questions in the same order, and after so many of them a candidate goes no further if the evidence suffices.
Two things differ here:

- *A candidate is a whole front.* It may be the best for few retrievals and not for many, so it is compared at several
  budgets, and dropped only if it loses at each that it can keep to. What it does at a budget is estimated on questions
  that its thresholds were not fitted on (:func:`standing_of`), so that a candidate with more thresholds has no head
  start.
- *The test is exact for few questions.* Hoeffding's bound needs hundreds. Scores of the same question are compared, and
  the signs of their differences are flipped (Fisher's randomisation test; for scores of 0 and 1 the exact test of
  McNemar 1947).

Errors are shared out over the rungs and over the rivals (Bonferroni), so that a candidate which at some budget is at
least as good as each of its rivals is dropped with a probability of at most ``error``. Losing at *all* budgets needs no
further share: whoever is the best at one of them must be rejected there too (an intersection-union test).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..core import InputError
from .curve import Array

_TOLERANCE = 1e-12


@dataclass(frozen=True, slots=True)
class Standing:
    """What a candidate does at several budgets.

    Attributes:
        scores: Score of each question at each budget, with thresholds fitted on other questions; shape
            [budgets, questions].
        reached: Whether it can keep to each budget, shape [budgets].
    """

    scores: Array
    reached: Array

    def first(self, questions: int) -> Standing:
        """The standing on the first questions alone."""
        return Standing(self.scores[:, :questions], self.reached)


@dataclass(frozen=True, slots=True)
class Race:
    """Decides which candidates go on.

    Attributes:
        rungs: Questions after which candidates are compared, ascending; after the last one there is nothing to save, so
            nobody is dropped.
        error: Probability at most to drop a candidate that is at least as good as each rival at some budget.

    Raises:
        InputError: There is no rung, they do not ascend, or the error is not between 0 and 1.
    """

    rungs: tuple[int, ...]
    error: float = 0.1

    def __post_init__(self) -> None:
        ascending = all(a < b for a, b in zip(self.rungs, self.rungs[1:], strict=False))
        whole = all(isinstance(rung, int) and not isinstance(rung, bool) and rung >= 1 for rung in self.rungs)
        if not self.rungs or not whole or not ascending:
            raise InputError(f"`racing` takes growing numbers of questions such as (10, 20, 40), got {self.rungs!r}")
        if not 0 < self.error < 1:
            raise InputError(f"the `error` of a race must be between 0 and 1, got {self.error!r}")

    def level(self, rivals: int) -> float:
        """The level of one comparison with one of so many rivals."""
        return self.error / (max(1, len(self.rungs) - 1) * max(1, rivals))

    def drops(self, candidate: Standing, rivals: Sequence[Standing]) -> bool:
        """Whether a candidate is clearly worse at every budget that it can keep to.

        Args:
            candidate: Its standing on the questions so far.
            rivals: Those of others on the same questions, in the same order; further ones of theirs are left out.

        Raises:
            InputError: A rival has answered fewer questions, or has other budgets.
        """
        budgets, n = candidate.scores.shape
        if any(rival.scores.shape[0] != budgets or rival.scores.shape[1] < n for rival in rivals):
            raise InputError("rivals must have answered the questions of the candidate, at the same budgets")
        if not rivals or not candidate.reached.any():
            return False
        level = self.level(len(rivals))
        return all(
            any(
                rival.reached[budget] and worse(candidate.scores[budget], rival.scores[budget, :n]) <= level
                for rival in rivals
            )
            for budget in np.flatnonzero(candidate.reached)
        )


def worse(scores: Array, rival: Array) -> float:
    """One-sided p-value of scores being lower than a rival's on the same questions.

    Args:
        scores: One value a question.
        rival: The rival's, in the same order.

    Returns:
        How often flipping the signs of the differences at random gives a mean difference as large as the one observed:
        exact for differences of one size and for at most 13 that are not 0, otherwise from 9,999 seeded resamples.
    """
    differences = np.asarray(rival, dtype=float) - np.asarray(scores, dtype=float)
    differences = differences[np.abs(differences) > _TOLERANCE]
    if not len(differences) or differences.sum() <= 0:
        return 1.0
    if np.ptp(np.abs(differences)) <= _TOLERANCE:
        from scipy.stats import binomtest

        return float(binomtest(int((differences > 0).sum()), len(differences), alternative="greater").pvalue)
    from scipy.stats import permutation_test

    found = permutation_test(
        (differences,),
        lambda values, axis=-1: np.mean(values, axis=axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=9999,
        alternative="greater",
        rng=np.random.default_rng(0),
    )
    return float(found.pvalue)
