"""The discriminator: whether an answer is of a kind that the question asks for, right or wrong.

It first names the kinds of answer that the question admits, then judges (Gao et al. 2024, Dr3, section 3.1). A small
LM's spoken verdict is poor, and the margin between the log-probabilities of its two verdicts is much better, so the
margin decides where the backend gives it; the threshold on it is a setting.

::

    yes or no, one of the options? ─ no ─► name_kinds ─► judge ─► margin ─► on-topic, undecided, off-topic
                │ yes
                ▼
             on-topic
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import dspy
from dspy.utils.exceptions import AdapterParseError
from pydantic import Field

from ..core import ConfidenceError, InputError
from ..core.question_kinds import plainly_fits
from ..core.texts import encodable
from ..lms.confidence import first_token_alternatives
from ..signatures import JudgeAnswer, NameAnswerKinds
from .settings import Settings, SettingsModel, validated

Verdict = Literal["on_topic", "off_topic", "undecided"]
"""What a discriminator finds: the answer is of a kind that the question admits, it is not, or it cannot tell."""

# As many as hosted backends give.
_TOP = 20
_FITS: dict[str, bool] = {"yes": True, "no": False}


class DiscriminatorSettings(SettingsModel):
    """Settings of :class:`Discriminator`.

    Attributes:
        threshold: Probability of being on-topic from which an answer is on-topic. The default keeps nine of ten gold
            answers with the embedded LM (benchmarks/README.md).
        band: How far below the threshold an answer is still undecided rather than off-topic, as a probability.
        examples: Worked examples with the fields of both steps; those of hopgate if not given.
    """

    threshold: float = Field(default=0.6, ge=0, le=1)
    band: float = Field(default=0.0, ge=0, le=1)
    examples: list[dict[str, str]] | None = None


@dataclass(frozen=True, slots=True)
class _Heard:
    """A judgement: what was said, and how likely it was."""

    spoken: bool | None
    probability: float | None
    note: str | None = None


class Discriminator(dspy.Module):
    """Judge whether an answer is of a kind that the question asks for.

    Yes or no to a yes/no question passes without a call, and so does one of the things that a choice question names; an
    empty answer is off-topic without a call. A completion that cannot be read makes the verdict ``undecided``.

    Args:
        **settings: See :class:`DiscriminatorSettings`.

    Raises:
        InputError: A setting is unknown or out of range.

    Example:
        >>> Discriminator()(question="In which year did it open?", answer="the Rhine").verdict  # doctest: +SKIP
        'off_topic'
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self.settings: Settings[DiscriminatorSettings] = Settings(validated(DiscriminatorSettings, settings))
        self.name_kinds = dspy.Predict(NameAnswerKinds)
        self.judge = dspy.Predict(JudgeAnswer)

    def forward(self, question: str, answer: str | None, kinds: str | None = None) -> dspy.Prediction:
        """Judge an answer.

        Args:
            question: The question.
            answer: The answer to judge.
            kinds: Kinds of answer that the question admits, if they were named before.

        Returns:
            ``verdict`` (:data:`Verdict`); ``probability`` of being on-topic, ``None`` where the backend gives no
            log-probabilities of alternatives; ``spoken``, whether the LM said that it fits, ``None`` if it was not
            asked; ``kinds``; ``note`` on what is missing.

        Raises:
            InputError: The question is no text, or empty.
        """
        if (known := _without_a_call(question, answer)) is not None:
            return known
        note = None
        try:
            kinds = kinds or _kinds(self.name_kinds(**self._naming(question)))
            if kinds is not None:
                return self._verdict(self.judge(**self._judging(question, answer, kinds)), kinds)
        except AdapterParseError as error:
            note = _unreadable(error)
        return _prediction("undecided", None, kinds, note or "no kinds were named")

    async def aforward(self, question: str, answer: str | None, kinds: str | None = None) -> dspy.Prediction:
        """As :meth:`forward`, with awaited LM calls."""
        if (known := _without_a_call(question, answer)) is not None:
            return known
        note = None
        try:
            kinds = kinds or _kinds(await self.name_kinds.acall(**self._naming(question)))
            if kinds is not None:
                return self._verdict(await self.judge.acall(**self._judging(question, answer, kinds)), kinds)
        except AdapterParseError as error:
            note = _unreadable(error)
        return _prediction("undecided", None, kinds, note or "no kinds were named")

    def _naming(self, question: str) -> dict[str, Any]:
        demos = [{"question": example["question"], "kinds": example["kinds"]} for example in self._examples()]
        return {"question": question, "demos": [*demos, *self.name_kinds.demos]}

    def _judging(self, question: str, answer: str | None, kinds: str) -> dict[str, Any]:
        lm = self.judge.lm or dspy.settings.lm
        known = getattr(lm, "supported_params", ())
        config = {"logprobs": True, "top_logprobs": _TOP} if {"logprobs", "top_logprobs"} <= set(known) else {}
        demos = [*self._examples(), *self.judge.demos]
        return {"question": question, "kinds": kinds, "candidate": answer, "demos": demos, "config": config}

    def _examples(self) -> list[dict[str, str]]:
        given = self.settings.values.examples
        return list(KIND_EXAMPLES) if given is None else given

    def _verdict(self, judged: dspy.Prediction, kinds: str) -> dspy.Prediction:
        heard, settings = self._heard(judged), self.settings.values
        if heard.spoken is None:
            return _prediction("undecided", None, kinds, f"neither yes nor no: {str(judged.fits or '')[:80]!r}")
        told: dict[str, Any] = {"kinds": kinds, "spoken": heard.spoken}
        if heard.probability is None:
            return _prediction("on_topic" if heard.spoken else "off_topic", None, note=heard.note, **told)
        if heard.probability >= settings.threshold:
            return _prediction("on_topic", heard.probability, **told)
        sure = heard.probability < settings.threshold - settings.band or not settings.band
        return _prediction("off_topic" if sure else "undecided", heard.probability, **told)

    def _heard(self, judged: dspy.Prediction) -> _Heard:
        words = str(judged.fits or "").casefold().split()
        spoken = _FITS.get(words[0].strip(".,:;!*`'\"")) if words else None
        if spoken is None or "logprobs" not in judged:
            return _Heard(spoken, None, "the backend gives no log-probabilities of alternatives")
        signature: Any = self.judge.signature
        label = signature.output_fields["fits"].json_schema_extra["prefix"]
        try:
            alternatives = first_token_alternatives(judged, "fits", label=label)
        except ConfidenceError as error:
            return _Heard(spoken, None, str(error))
        return _Heard(spoken, on_topic_probability(alternatives), "no alternatives to the verdict's token were given")


def on_topic_probability(alternatives: Mapping[str, float]) -> float | None:
    """The probability of "yes" against "no", each by the likeliest of its spellings.

    A verdict that is not among the alternatives is taken to be as likely as the least likely of them, which it is at
    most.

    Args:
        alternatives: Tokens with their log-probabilities, in nats.

    Returns:
        The probability; ``None`` if there is only one alternative, or neither verdict is among them.
    """
    best: dict[bool, float] = {}
    for token, logprob in alternatives.items():
        fits = _FITS.get(token.strip().casefold())
        if fits is not None:
            best[fits] = max(logprob, best.get(fits, -math.inf))
    if not best or len(alternatives) < 2:
        return None
    floor = min(alternatives.values())
    margin = best.get(True, floor) - best.get(False, floor)
    return 1 / (1 + math.exp(-margin)) if margin >= 0 else math.exp(margin) / (1 + math.exp(margin))


def _without_a_call(question: str, answer: str | None) -> dspy.Prediction | None:
    if not isinstance(question, str):
        raise InputError(f"the question must be a text, got a {type(question).__name__}")
    if not question.strip():
        raise InputError("the question is empty")
    if not isinstance(answer, str | None):
        raise InputError(f"the answer must be a text, got a {type(answer).__name__}")
    if answer is None or not answer.strip():
        return _prediction("off_topic", 0.0, None, "the answer is empty")
    return _prediction("on_topic", 1.0, None) if plainly_fits(question, answer) else None


def _kinds(named: dspy.Prediction) -> str | None:
    return " ".join(encodable(str(named.kinds or "")).split()) or None


def _prediction(
    verdict: Verdict,
    probability: float | None,
    kinds: str | None,
    note: str | None = None,
    spoken: bool | None = None,
) -> dspy.Prediction:
    return dspy.Prediction(verdict=verdict, probability=probability, spoken=spoken, kinds=kinds, note=note)


def _unreadable(error: AdapterParseError) -> str:
    return f"unreadable: {str(error.lm_response or '')[:80]}"


def _example(question: str, kinds: str, candidate: str, fits: str) -> dict[str, str]:
    return {"question": question, "kinds": kinds, "candidate": candidate, "fits": fits}


KIND_EXAMPLES: tuple[dict[str, str], ...] = (
    _example("In which year was the architect of the Halden Lighthouse born?", "a year, a date", "Ivar Brenne", "no"),
    _example("The singer of Quiet Harbour was treasurer of a town on which river?", "a river", "the Rhine", "yes"),
    _example(
        "What is the population of the town where Lena Ostrow was born?", "a number of people", "Torvik, Norway", "no"
    ),
    _example("Who founded the company that built the Osk Tower?", "a person, several people", "Mira Dol", "yes"),
    _example("What kind of school did the author of Tall Grass attend?", "a kind of school", "boarding school", "yes"),
    _example("Who directed the film that was shot in Varn in 1986?", "a person", "The Long Winter", "no"),
    _example("When did the company that owns Aune Airlines close?", "a year, a date", "3 May 1984", "yes"),
    _example("Which league does the team of Paul Emery's brother play in?", "a sports league", "1974", "no"),
)
"""The worked examples of a discriminator: wrong answers of the right kind fit, answers that stopped half way do not."""
