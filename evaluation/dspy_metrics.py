"""The metrics in the form that DSPy's evaluation and teleprompters call: ``metric(gold, pred, trace, ...)``.

One call has three meanings in DSPy 3.4, told apart by its arguments:

- without a trace (``dspy.Evaluate``, SIMBA, GEPA's scoring), the score as a number;
- with a trace (bootstrapping of demos), whether the run is good enough to learn from: strictly a boolean;
- with the name of a predictor (GEPA's reflection), a ``dspy.Prediction`` of the same score and a textual ``feedback``.

Gold examples are those of :meth:`~hopgate.evaluation.questions.Question.to_example`, or any with ``answer`` or
``answers``; predictions are those of hopgate's programs, or for the metrics of answers any with ``answer``.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal

from ..core import InputError
from .feedback import feedback, given_answer, gold_answers, question_of
from .metrics import cover_em, cover_em_tokens, exact_match, f1, retrieval_recall, retrieved_passages
from .normalisation import Accents, Normalisation, check_normalisation
from .offtopic import off_topic

if TYPE_CHECKING:
    import dspy


class Metric:
    """Base of the DSPy metrics; subclasses say how a prediction is scored and when it is good enough."""

    def __call__(
        self,
        gold: Any,
        pred: Any,
        trace: Any = None,
        pred_name: str | None = None,
        pred_trace: Any = None,
    ) -> bool | float | dspy.Prediction:
        """Score a prediction.

        Args:
            gold: The example.
            pred: What the program returned for it.
            trace: The trace of the run, if the question is whether to learn from it.
            pred_name: The predictor that feedback is wanted for.
            pred_trace: The part of the trace that is this predictor's.

        Returns:
            The score; a boolean where a trace is given; a score with feedback where a predictor is named.

        Raises:
            InputError: The example or the prediction lacks what the metric needs.
        """
        score = self.score(gold, pred)
        if pred_name is not None:
            import dspy

            return dspy.Prediction(score=score, feedback=self.feedback(gold, pred))
        return score if trace is None else bool(self.passes(score))

    def score(self, gold: Any, pred: Any) -> float:
        """The score of a prediction."""
        raise NotImplementedError

    def passes(self, score: float) -> bool:
        """Whether a run with this score is worth learning from."""
        return score >= 1.0

    def feedback(self, gold: Any, pred: Any) -> str:
        """What was wrong, for an LM that improves the program's instructions."""
        return feedback(gold, pred)


@dataclass(frozen=True)
class _AnswerMetric(Metric):
    normalisation: Normalisation = "official"
    accents: Accents = "keep"

    def __post_init__(self) -> None:
        check_normalisation(self.normalisation, self.accents)

    @property
    def _how(self) -> dict[str, Any]:
        return {"normalisation": self.normalisation, "accents": self.accents}

    def feedback(self, gold: Any, pred: Any) -> str:
        return feedback(gold, pred, normalisation=self.normalisation, accents=self.accents)


@dataclass(frozen=True)
class ExactMatch(_AnswerMetric):
    """Exact match, 0 or 1.

    Attributes:
        normalisation: How answers are compared.
        accents: Whether ``strict`` keeps accents.
    """

    def score(self, gold: Any, pred: Any) -> float:
        return float(exact_match(given_answer(pred), gold_answers(gold), **self._how))


@dataclass(frozen=True)
class F1(_AnswerMetric):
    """Token F1.

    Attributes:
        normalisation: How answers are compared.
        accents: Whether ``strict`` keeps accents.
        threshold: The least F1 of a run that is worth learning from.
    """

    threshold: float = 1.0

    def score(self, gold: Any, pred: Any) -> float:
        return f1(given_answer(pred), gold_answers(gold), **self._how)

    def passes(self, score: float) -> bool:
        return score >= self.threshold


@dataclass(frozen=True)
class CoverEM(_AnswerMetric):
    """Whether the prediction holds the answer, 0 or 1.

    Attributes:
        normalisation: How answers are compared.
        accents: Whether ``strict`` keeps accents.
        definition: ``substring`` (whole words in this order) or ``tokens`` (token recall of 1).
    """

    definition: Literal["substring", "tokens"] = "substring"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.definition not in ("substring", "tokens"):
            raise InputError(f"definition must be substring or tokens, got {self.definition!r:.80}")

    def score(self, gold: Any, pred: Any) -> float:
        metric = cover_em if self.definition == "substring" else cover_em_tokens
        return float(metric(given_answer(pred), gold_answers(gold), **self._how))


@dataclass(frozen=True)
class OnTopic(Metric):
    """1 less the off-topic rate by the cheap rule; an answer that the rule cannot judge counts as on topic."""

    def score(self, gold: Any, pred: Any) -> float:
        return float(not off_topic(question_of(gold), given_answer(pred)))


@dataclass(frozen=True)
class RetrievalRecall(Metric):
    """Share of the supporting passages that the program retrieved; only for examples with ``supporting_ids``.

    Attributes:
        threshold: The least recall of a run that is worth learning from.
    """

    threshold: float = 1.0

    def score(self, gold: Any, pred: Any) -> float:
        trajectory = getattr(pred, "trajectory", None)
        if trajectory is None:
            raise InputError("retrieval recall needs predictions with a `trajectory`, which hopgate's programs give")
        ids = [passage.id for passage in retrieved_passages(trajectory)]
        recall = retrieval_recall(ids, getattr(gold, "supporting_ids", None) or ())
        if recall is None:
            raise InputError("retrieval recall needs examples with `supporting_ids`; leave out those without")
        return recall

    def passes(self, score: float) -> bool:
        return score >= self.threshold


@dataclass(frozen=True)
class CostOf(Metric):
    """One of the costs, as an amount: for means by ``dspy.Evaluate``, not to be maximised (see :class:`AnswerAndCost`).

    Attributes:
        field: A field of :class:`~hopgate.programs.Cost`: ``retrievals``, ``lm_calls``, ``seconds``, ...
        at_most: The greatest amount of a run that is worth learning from; ``None`` for any.
    """

    field: str = "retrievals"
    at_most: float | None = None

    def __post_init__(self) -> None:
        from ..programs import Cost

        names = [item.name for item in fields(Cost)]
        if self.field not in names:
            raise InputError(f"field must be one of {', '.join(names)}, got {self.field!r:.80}")

    def score(self, gold: Any, pred: Any) -> float:
        return _cost(pred, self.field)

    def passes(self, score: float) -> bool:
        return self.at_most is None or score <= self.at_most


@dataclass(frozen=True)
class AnswerAndCost(_AnswerMetric):
    """Exact match less ``lam`` for each retrieval; a run is worth learning from if its answer is right.

    Attributes:
        normalisation: How answers are compared.
        accents: Whether ``strict`` keeps accents.
        lam: What a retrieval costs, in exact matches.
        at_most: The most retrievals of a run that is worth learning from; ``None`` for any number.
    """

    lam: float = 0.05
    at_most: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0.0 <= self.lam < float("inf"):
            raise InputError(f"lam must be a number that is not negative, got {self.lam!r:.80}")

    def __call__(
        self,
        gold: Any,
        pred: Any,
        trace: Any = None,
        pred_name: str | None = None,
        pred_trace: Any = None,
    ) -> bool | float | dspy.Prediction:
        """See :meth:`Metric.__call__`."""
        if trace is None or pred_name is not None:
            return super().__call__(gold, pred, trace, pred_name, pred_trace)
        affordable = self.at_most is None or _cost(pred, "retrievals") <= self.at_most
        return affordable and exact_match(given_answer(pred), gold_answers(gold), **self._how)

    def score(self, gold: Any, pred: Any) -> float:
        right = exact_match(given_answer(pred), gold_answers(gold), **self._how)
        return float(right) - self.lam * _cost(pred, "retrievals")

    def feedback(self, gold: Any, pred: Any) -> str:
        taken = int(_cost(pred, "retrievals"))
        price = f"It took {taken} retrieval{'' if taken == 1 else 's'}, each of which costs {self.lam:g} of the score."
        return f"{super().feedback(gold, pred)} {price}"


def _cost(pred: Any, field: str) -> float:
    cost = getattr(pred, "cost", None)
    if cost is None:
        raise InputError("the cost is not known: predictions need a `cost`, which hopgate's programs give")
    return float(getattr(cost, field))
