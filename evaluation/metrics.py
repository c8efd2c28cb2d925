"""Metrics of an answer: exact match, F1 and cover EM over the gold answer and its aliases; and retrieval recall.

In the official normalisation, exact match and F1 are those of the published scripts, bit for bit: Rajpurkar et al. 2016
(SQuAD) and Yang et al. 2018 (HotpotQA, section 5; ``hotpot_evaluate_v1.py``). Cover EM goes by two definitions in the
literature, which have a name each here: :func:`cover_em`, whether the answer is a substring of the prediction (Rosset
et al. 2020), and :func:`cover_em_tokens`, whether the token recall is 1, in any order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from .normalisation import Accents, Normalisation, check_normalisation, tokens
from .normalisation import normalize as normalize

if TYPE_CHECKING:
    from ..core import Passage
    from ..programs import Trajectory

_CLOSED = ("yes", "no", "noanswer")


def exact_match(
    prediction: str | None,
    answers: Iterable[str],
    *,
    normalisation: Normalisation = "official",
    accents: Accents = "keep",
) -> bool:
    """Whether the normalised prediction equals one of the normalised answers; ``None`` counts as wrong.

    Args:
        prediction: The answer that was given.
        answers: The gold answer and its aliases.
        normalisation: How both are normalised.
        accents: Whether ``strict`` keeps accents.

    Raises:
        InputError: There is no such normalisation.
    """
    return any(ours == gold for ours, gold in _pairs(prediction, answers, normalisation, accents))


def f1(
    prediction: str | None,
    answers: Iterable[str],
    *,
    normalisation: Normalisation = "official",
    accents: Accents = "keep",
) -> float:
    """Best token F1 over the answers, between 0 and 1; yes, no and noanswer only match themselves.

    As in the published script, two texts of which the official normalisation leaves nothing have an F1 of 0, though
    their exact match is true. Arguments and errors are those of :func:`exact_match`.
    """
    strict = normalisation == "strict"
    return max((_f1(*pair, strict) for pair in _pairs(prediction, answers, normalisation, accents)), default=0.0)


def cover_em(
    prediction: str | None,
    answers: Iterable[str],
    *,
    normalisation: Normalisation = "official",
    accents: Accents = "keep",
) -> bool:
    """Whether one of the normalised answers stands in the normalised prediction, as whole words in this order.

    Arguments and errors are those of :func:`exact_match`.
    """
    return any(
        ours == gold or (bool(gold) and f" {' '.join(gold)} " in f" {' '.join(ours)} ")
        for ours, gold in _pairs(prediction, answers, normalisation, accents)
    )


def cover_em_tokens(
    prediction: str | None,
    answers: Iterable[str],
    *,
    normalisation: Normalisation = "official",
    accents: Accents = "keep",
) -> bool:
    """Whether all words of one of the normalised answers are among the prediction's, as often and in any order.

    Arguments and errors are those of :func:`exact_match`.
    """
    return any(
        ours == gold or (bool(gold) and Counter(gold) <= Counter(ours))
        for ours, gold in _pairs(prediction, answers, normalisation, accents)
    )


def retrieval_recall(passage_ids: Iterable[str], supporting_ids: Iterable[str]) -> float | None:
    """Share of the supporting passages that were retrieved, between 0 and 1.

    Args:
        passage_ids: Identifiers of all passages that were retrieved for a question, in any order.
        supporting_ids: Identifiers of the passages that state the facts.

    Returns:
        The share; ``None`` if no supporting passage is known.
    """
    supporting = set(supporting_ids)
    return len(supporting & set(passage_ids)) / len(supporting) if supporting else None


def retrieved_passages(trajectory: Trajectory) -> list[Passage]:
    """The passages that a trajectory put before the LM, in this order, each once."""
    groups = [*(hop.passages for hop in trajectory.hops), trajectory.passages]
    return list({passage.id: passage for group in groups for passage in group}.values())


def _pairs(
    prediction: str | None, answers: Iterable[str], normalisation: Normalisation, accents: Accents
) -> Iterable[tuple[list[str], list[str]]]:
    """The words of the prediction with those of each answer."""
    check_normalisation(normalisation, accents)
    if prediction is None:
        return []
    ours = tokens(prediction, normalisation, accents=accents)
    return [(ours, tokens(answer, normalisation, accents=accents)) for answer in answers]


def _f1(ours: list[str], gold: list[str], strict: bool) -> float:
    if ours == gold:
        return 1.0 if ours or strict else 0.0
    if any(len(side) == 1 and side[0] in _CLOSED for side in (ours, gold)):
        return 0.0
    shared = sum((Counter(ours) & Counter(gold)).values())
    if shared == 0:
        return 0.0
    # In these steps, so that not even the last bit differs from the script's.
    precision, recall = shared / len(ours), shared / len(gold)
    return 2 * precision * recall / (precision + recall)
