"""Exact match, F1 and cover EM in the official SQuAD/HotpotQA normalisation.

Source: Rajpurkar et al. 2016 (SQuAD), evaluation script; Yang et al. 2018 (HotpotQA), section 5.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Iterable

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_CLOSED = {"yes", "no", "noanswer"}


def normalize(text: str) -> str:
    """Lower case, without punctuation and articles, with single spaces."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(prediction: str | None, answers: Iterable[str]) -> bool:
    """Whether the normalised prediction equals one of the normalised answers; ``None`` counts as wrong."""
    return prediction is not None and any(normalize(prediction) == normalize(answer) for answer in answers)


def cover_em(prediction: str | None, answers: Iterable[str]) -> bool:
    """Whether one of the normalised answers stands in the normalised prediction as whole words."""
    if prediction is None:
        return False
    words = f" {normalize(prediction)} "
    return any(f" {gold} " in words for gold in map(normalize, answers) if gold)


def f1(prediction: str | None, answers: Iterable[str]) -> float:
    """Best token F1 over the answers, between 0 and 1; yes, no and noanswer only match themselves."""
    return max((_f1(prediction, answer) for answer in answers), default=0.0) if prediction is not None else 0.0


def _f1(prediction: str, answer: str) -> float:
    left, right = normalize(prediction), normalize(answer)
    if left == right:
        return 1.0
    if left in _CLOSED or right in _CLOSED:
        return 0.0
    ours, gold = left.split(), right.split()
    shared = sum((Counter(ours) & Counter(gold)).values())
    return 0.0 if shared == 0 else 2 * shared / (len(ours) + len(gold))
