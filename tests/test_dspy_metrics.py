"""The metrics as DSPy calls them: numbers, booleans with a trace, feedback with the name of a predictor."""

from __future__ import annotations

import inspect
import pickle
from typing import Any

import dspy
import pytest

from hopgate.core import InputError, Passage
from hopgate.evaluation.dspy_metrics import (
    F1,
    AnswerAndCost,
    CostOf,
    CoverEM,
    ExactMatch,
    Metric,
    OnTopic,
    RetrievalRecall,
)
from hopgate.evaluation.questions import Question, Step
from hopgate.lms.testing import scripted_lm
from hopgate.programs import Cost, Hop, Trajectory

QUESTION = Question(
    "1",
    "How many towers did the designer of the Osk Tower build?",
    ("three", "3"),
    supporting_ids=("a", "b"),
    supporting_titles=("Osk Tower", "Mira Dol"),
    decomposition=(
        Step("Who designed the Osk Tower?", "Mira Dol", "a"),
        Step("How many towers did #1 build?", "three"),
    ),
)
GOLD = QUESTION.to_example()
METRICS: list[Metric] = [
    ExactMatch(),
    F1(threshold=0.5),
    CoverEM(),
    CoverEM(definition="tokens"),
    OnTopic(),
    RetrievalRecall(),
    CostOf("seconds", at_most=1.0),
    AnswerAndCost(lam=0.1),
]


def predicted(answer: str, *ids: str, retrievals: int = 1) -> dspy.Prediction:
    hop = Hop("?", passages=tuple(Passage(i, i.upper(), "text") for i in ids), cost=Cost(retrievals=retrievals))
    trajectory = Trajectory(QUESTION.question, (hop,), answer=answer)
    return dspy.Prediction(answer=answer, trajectory=trajectory, cost=trajectory.cost)


@pytest.mark.parametrize("metric", METRICS, ids=repr)
@pytest.mark.parametrize("pred", [predicted("three", "a", "b"), predicted("Mira Dol", retrievals=3)], ids=["ok", "not"])
def test_the_three_meanings_of_a_call(metric: Metric, pred: dspy.Prediction) -> None:
    inspect.signature(metric).bind(None, None, None, None, None)  # as GEPA checks it
    score = metric(GOLD, pred)
    assert type(score) is float
    for trace in ([], [1]):
        assert type(metric(GOLD, pred, trace)) is bool
    told = metric(GOLD, pred, [], "read", [])
    assert isinstance(told, dspy.Prediction)
    # GEPA wants the score that it got without the name.
    assert told.score == score and isinstance(told.feedback, str) and told.feedback
    assert pickle.loads(pickle.dumps(metric)) == metric


@pytest.mark.parametrize(
    ("metric", "pred", "score", "passes"),
    [
        (ExactMatch(), predicted("Three."), 1.0, True),
        (ExactMatch(), predicted("three towers"), 0.0, False),
        (F1(), predicted("three towers"), 2 / 3, False),
        (F1(threshold=0.6), predicted("three towers"), 2 / 3, True),
        (CoverEM(), predicted("three towers"), 1.0, True),
        (OnTopic(), predicted("Mira Dol"), 0.0, False),
        (OnTopic(), predicted("seven"), 1.0, True),
        (RetrievalRecall(), predicted("x", "a", "z"), 0.5, False),
        (RetrievalRecall(threshold=0.5), predicted("x", "a", "z"), 0.5, True),
        (CostOf(), predicted("x", retrievals=3), 3.0, True),
        (CostOf(at_most=2), predicted("x", retrievals=3), 3.0, False),
        (AnswerAndCost(lam=0.1), predicted("three", retrievals=2), 0.8, True),
        (AnswerAndCost(lam=0.1, at_most=1), predicted("three", retrievals=2), 0.8, False),
        (AnswerAndCost(lam=0.1), predicted("four", retrievals=2), -0.2, False),
    ],
)
def test_scores(metric: Metric, pred: dspy.Prediction, score: float, passes: bool) -> None:
    assert metric(GOLD, pred) == pytest.approx(score)
    assert metric(GOLD, pred, []) is passes


def test_normalisation() -> None:
    gold = dspy.Example(question="?", answer="July 5, 1984").with_inputs("question")
    pred = dspy.Prediction(answer="5 July 1984")
    assert (ExactMatch()(gold, pred), ExactMatch("strict")(gold, pred)) == (0.0, 1.0)
    assert ExactMatch("strict", "fold")(dspy.Example(answer="é"), dspy.Prediction(answer="e")) == 1.0
    assert ExactMatch()(gold, dspy.Prediction()) == 0.0


def told(pred: Any, gold: Any = GOLD, metric: Metric | None = None) -> str:
    result = (metric or ExactMatch())(gold, pred, [], "read", [])
    assert isinstance(result, dspy.Prediction)
    return result.feedback


def test_feedback() -> None:
    wrong = told(predicted("Mira Dol", "a"))
    assert "'Mira Dol' is wrong; the gold answer is 'three' (also accepted: '3')" in wrong
    assert "wants a number" in wrong
    assert "never retrieved: 'Mira Dol'." in wrong and "Osk Tower'" not in wrong
    assert "1. Who designed the Osk Tower? -> Mira Dol; 2. How many" in wrong
    right = told(predicted("3", "a", "b"))
    assert right == "The answer '3' is right."
    assert "nothing but the answer" in told(predicted("three towers"))
    assert "No answer was given" in told(predicted(""))
    assert "It took 2 retrievals, each of which costs 0.05" in told(
        predicted("3", retrievals=2), metric=AnswerAndCost()
    )
    by_title = dspy.Example(answer="3", supporting_titles=["A", "C"])
    assert "never retrieved: 'C'." in told(predicted("3", "a"), by_title)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ExactMatch()(dspy.Example(question="?"), predicted("x")), "no `answers`"),
        (lambda: ExactMatch()(dspy.Example(answers=[3]), predicted("x")), "no `answers`"),
        (lambda: RetrievalRecall()(GOLD, dspy.Prediction(answer="x")), "`trajectory`"),
        (lambda: RetrievalRecall()(dspy.Example(answer="x"), predicted("x")), "`supporting_ids`"),
        (lambda: AnswerAndCost()(GOLD, dspy.Prediction(answer="x")), "`cost`"),
        (lambda: AnswerAndCost(lam=-1), "lam"),
        (lambda: AnswerAndCost(lam=float("nan")), "lam"),
        (lambda: CostOf("dollars"), "must be one of retrievals"),
        (lambda: CoverEM(definition="words"), "substring or tokens"),  # type: ignore[arg-type]
        (lambda: ExactMatch("loose"), "official or strict"),  # type: ignore[arg-type]
    ],
)
def test_what_is_missing_is_named(call: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()


def test_evaluate_and_bootstrapping_take_them() -> None:
    lm = scripted_lm([(r"first", "[[ ## answer ## ]]\nyes\n\n[[ ## completed ## ]]"), (r"", "[[ ## answer ## ]]\nno")])
    examples = [
        dspy.Example(question=question, answer="yes").with_inputs("question") for question in ("first", "second")
    ]
    program = dspy.Predict("question -> answer")
    with dspy.context(lm=lm, adapter=dspy.ChatAdapter()):
        evaluate = dspy.Evaluate(devset=examples, metric=ExactMatch(), num_threads=1)
        assert evaluate(program).score == 50.0
        compiled = dspy.BootstrapFewShot(metric=ExactMatch(), max_labeled_demos=0).compile(program, trainset=examples)
    assert [demo.question for demo in compiled.demos] == ["first"]
