"""The last step of the programs that reason over several hops: which text is the answer."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from ..core import Passage
from ..core.question_kinds import question_kind
from ..lms.confidence import AnswerConfidence
from .requests import Told
from .trajectory import Hop, Trajectory

Candidate = tuple[str, AnswerConfidence | None]

_NOTHING = re.compile(
    r"(?:none|n/?a|null|nothing|unknown|unclear|no answer|not (?:known|given|mentioned|stated))\W*", re.I
)
_CHOICE = re.compile(r"\b(?:or|between|both)\b|\b(?:of|among)\b.*\band\b", re.I)
_NUMBER = re.compile(r"\bhow (?:many|much)\b|\bnumber\b", re.I)


def composed(
    trajectory: Trajectory,
    told: Told,
    *,
    others: Iterable[Candidate] = (),
    passages: tuple[Passage, ...] = (),
    examples: Sequence[Trajectory] = (),
) -> Trajectory:
    """The finished trajectory.

    Args:
        trajectory: The trajectory with all its hops.
        told: The last step's outcome.
        others: What is the answer instead if that says nothing, best first. If it only repeats the question, what was
            answered to the whole question goes before it; answers to sub-questions do not.
        passages: The passages of the last reading.
        examples: The worked examples that the LM was shown.
    """
    rejected = {text.casefold() for text in trajectory.rejected}
    last: Candidate = (told.text or "", told.confidence)
    left = [other for other in others if other[0].casefold() not in rejected]
    whole = {hop.answer: hop.passages for hop in trajectory.hops if hop.whole}
    telling = [other for other in left if says_something(other[0], trajectory, examples)]
    if says_something(last[0], trajectory, examples):
        ranked = [last]
    elif not is_nothing(last[0], trajectory, examples):
        ranked = [*(other for other in telling if other[0] in whole), last]
    else:
        ranked = [*telling, *(other for other in left if not is_nothing(other[0], trajectory, examples)), last, *left]
    text, confidence = next((one for one in ranked if one[0]), last)
    return replace(
        trajectory,
        passages=passages if text == last[0] else whole.get(text, passages),
        answer=text,
        answer_confidence=confidence,
        other_cost=trajectory.other_cost + told.cost,
    )


def conclusions(trajectory: Trajectory) -> list[Candidate]:
    """The hops' answers: to the whole question before those to sub-questions, of these the last one first."""
    said = [hop for hop in reversed(trajectory.hops) if hop.answer]
    hops = [*(hop for hop in said if hop.whole), *(hop for hop in said if not hop.whole)]
    return [(hop.answer, confidence_in(hop)) for hop in hops]


def confidence_in(hop: Hop) -> AnswerConfidence | None:
    """Log-probabilities of the tokens of a hop's answer, wherever it came from."""
    return hop.confidence if hop.source == "memory" else hop.answer_confidence


def says_something(text: str, trajectory: Trajectory, examples: Sequence[Trajectory] = ()) -> bool:
    """Whether a text says more than the trajectory's question does: it is not nothing, nor a phrase of the question.

    Phrases of a question that names things to choose from may be its answer, so they say something.

    Args:
        text: The answer at stake.
        trajectory: The trajectory with the passages that were read.
        examples: The worked examples that the LM was shown.

    Example:
        >>> trajectory = Trajectory("Who designed the Osk Tower?")
        >>> [says_something(text, trajectory) for text in ("Mira Dol", "the Osk Tower", "unknown", "")]
        [True, False, False, False]
    """
    return not is_nothing(text, trajectory, examples) and not _repeats(text, trajectory.question)


def is_nothing(text: str, trajectory: Trajectory, examples: Sequence[Trajectory] = ()) -> bool:
    """Whether a text is no answer at all: empty, "none" or the like, or copied from a worked example.

    It is copied if nothing in the trajectory speaks of it; small models do so. "None" may be a number, a thing that the
    question names, or the title of a passage.

    Args:
        text: The answer at stake.
        trajectory: The trajectory with the passages that were read.
        examples: The worked examples that the LM was shown.
    """
    said = _words(text)
    if not said:
        return not text.strip()
    if _NOTHING.fullmatch(text.strip()):
        question = trajectory.question
        counted = question_kind(question) in ("yes_no", "number") or _NUMBER.search(question)
        titles = [_words(passage.title or "") for hop in trajectory.hops for passage in hop.passages]
        named = said[0] in _words(question) or any(title[: len(said)] == said for title in titles)
        return not counted and not named
    return _copied(text, trajectory, examples)


def _repeats(text: str, question: str) -> bool:
    """Whether a text is a phrase of the question, which does not offer it as a choice."""
    said, asked = _words(text), _words(question)
    said = said[1:] if len(said) > 1 and said[0] in ("the", "a", "an") else said
    phrases = (asked[start : start + len(said)] for start in range(len(asked) - len(said) + 1))
    return bool(said) and said in phrases and not _CHOICE.search(question) and question_kind(question) != "yes_no"


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.casefold())


def _copied(text: str, trajectory: Trajectory, examples: Sequence[Trajectory]) -> bool:
    wanted = text.strip().casefold()
    if wanted in ("yes", "no"):
        return False
    shown = {said.casefold() for one in examples for said in (one.answer, *(hop.answer for hop in one.hops)) if said}
    if wanted not in shown:
        return False
    read = [passage.long_text for hop in trajectory.hops for passage in hop.passages]
    return not any(wanted in part.casefold() for part in (trajectory.question, *read))
