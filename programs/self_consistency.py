"""Self-consistency over chain of thought (Wang et al. 2023).

::

    question ──┬──► reasoning, answer (sample 1) ──┐
               ├──► reasoning, answer (sample 2) ──┼──► the answer of most samples
               └──► ...               (sample n) ──┘

Chains of thought are sampled at a temperature above 0, and the answer that most of them arrive at is given (section
2: "marginalise out" the reasoning by a majority vote). The share of the samples that agree says how sure it is (section
3.5). Answers that are the same but for case, punctuation and articles count as one; of equally frequent ones the first
that was given wins.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import dspy
from dspy.evaluate import normalize_text
from pydantic import Field

from ..signatures import AnswerDirectly
from .baselines import answer_demos
from .requests import Ask, Reached, Steps, Told
from .settings import ExampleSettings, validated
from .solver import Solver, accept, lm_of
from .trajectory import Hop, Trajectory


class SelfConsistencySettings(ExampleSettings):
    """Settings of :class:`SelfConsistency`.

    Attributes:
        samples: Chains of thought to sample; the paper takes 40, and gains most from the first 5 to 10.
        temperature: Temperature of the samples; 0.7 is the paper's for GPT-3 (section 3.1).
    """

    samples: int = Field(default=5, ge=1, le=100)
    temperature: float = Field(default=0.7, gt=0, le=2)


class SelfConsistency(Solver):
    """Answer by a vote over sampled chains of thought, from the LM's own knowledge.

    A hop is one sample. The prediction has the winner's share of all samples as its ``confidence``, from 0 to 1.

    Args:
        **settings: See :class:`SelfConsistencySettings`.

    Raises:
        InputError: A setting is unknown or out of range.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(None, validated(SelfConsistencySettings, settings))
        self.respond = dspy.ChainOfThought(AnswerDirectly)

    def _steps(self, question: str, trajectory: Trajectory) -> Steps:
        if trajectory.answer is not None:
            return trajectory
        settings: SelfConsistencySettings = self.settings.values
        demos = answer_demos(settings, "reasoning")
        sampled: dict[int, Told] = {}
        while len(trajectory.hops) < settings.samples:
            number = len(trajectory.hops)
            config = self._sampling(number, settings)
            told: Told = yield Ask("respond", "answer", {"question": question}, demos, tentative=True, config=config)
            sampled[number] = told
            answer = told.text or ""
            hop = Hop(question, draft=told.text, confidence=told.confidence, note=told.note, answer=answer)
            trajectory = trajectory.with_hop(replace(hop, cost=told.cost))
            yield Reached(trajectory)
        winner, _ = _vote(trajectory)
        if winner is None:
            return replace(trajectory, answer="", stop_reason="empty")
        if winner in sampled:
            accept(sampled[winner])
        chosen = trajectory.hops[winner]
        return replace(trajectory, answer=chosen.answer, answer_confidence=chosen.confidence, stop_reason="finished")

    def _prediction(self, trajectory: Trajectory) -> dspy.Prediction:
        prediction = super()._prediction(trajectory)
        prediction.confidence = _vote(trajectory)[1]
        return prediction

    def _sampling(self, number: int, settings: SelfConsistencySettings) -> dict[str, Any]:
        lm = lm_of(self.respond)
        # A teleprompter that tries a program again gives the LM a rollout of its own, which must stay another one.
        rollout = int(getattr(lm, "kwargs", {}).get("rollout_id") or 0) * settings.samples + number + 1
        config: dict[str, Any] = {"temperature": settings.temperature, "rollout_id": rollout}
        if "seed" in getattr(lm, "supported_params", ()):
            config["seed"] = rollout
        return config


def _vote(trajectory: Trajectory) -> tuple[int | None, float]:
    """Which sample gave the winning answer first, and the share of the samples that gave it.

    Answers that were judged off-topic do not take part.
    """
    votes: dict[str, list[int]] = {}
    rejected = {_normal(answer) for answer in trajectory.rejected}
    for number, hop in enumerate(trajectory.hops):
        if hop.answer and _normal(hop.answer) not in rejected:
            votes.setdefault(_normal(hop.answer), []).append(number)
    if not votes:
        return None, 0.0
    chosen = max(votes.values(), key=len)
    return chosen[0], len(chosen) / len(trajectory.hops)


def _normal(answer: str) -> str:
    # An answer of punctuation or an article alone is still an answer.
    return normalize_text(answer) or answer.strip()
