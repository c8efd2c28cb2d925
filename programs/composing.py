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
    r"(?:none|n/?a|null|nothing|unknown|unclear|not (?:known|given|mentioned|stated)|no answer)\W*", re.I
)


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
        others: What is the answer instead if that says nothing, best first; see :func:`says_something`.
        passages: The passages of the last reading.
        examples: The worked examples that the LM was shown.
    """
    rejected = {text.casefold() for text in trajectory.rejected}
    ranked: list[Candidate] = [(told.text or "", told.confidence)]
    ranked += [other for other in others if other[0].casefold() not in rejected]
    telling = (one for one in ranked if says_something(one[0], trajectory, examples))
    text, confidence = next(telling, None) or next((one for one in ranked if one[0]), ranked[0])
    return replace(
        trajectory,
        passages=passages,
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
    """Whether a text may answer the trajectory's question at all.

    It does not if it is empty or says that there is no answer, repeats a phrase of the question where that names
    nothing to choose from, or is an answer of a worked example that nothing in the trajectory speaks of: small models
    copy those.

    Args:
        text: The answer at stake.
        trajectory: The trajectory with the passages that were read.
        examples: The worked examples that the LM was shown.

    Example:
        >>> trajectory = Trajectory("Who designed the Osk Tower?")
        >>> [says_something(text, trajectory) for text in ("Mira Dol", "the Osk Tower", "unknown", "")]
        [True, False, False, False]
    """
    kind = question_kind(trajectory.question)
    if not text.strip() or (kind not in ("yes_no", "number") and _NOTHING.fullmatch(text.strip())):
        return False
    return not _repeats(text, trajectory.question) and not _copied(text, trajectory, examples)


def _repeats(text: str, question: str) -> bool:
    """Whether a text is a phrase of the question, which does not offer it as a choice."""
    said, asked = _words(text), _words(question)
    said = said[1:] if len(said) > 1 and said[0] in ("the", "a", "an") else said
    phrases = (asked[start : start + len(said)] for start in range(len(asked) - len(said) + 1))
    return bool(said) and "or" not in asked and said in phrases


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
