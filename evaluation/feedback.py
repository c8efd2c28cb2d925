"""What was right or wrong with a prediction, in words, for teleprompters that read feedback (GEPA)."""

from __future__ import annotations

from typing import Any

from ..core import InputError
from ..core.question_kinds import question_kind
from .metrics import cover_em, exact_match, retrieved_passages
from .normalisation import Accents, Normalisation
from .offtopic import off_topic

_WANTED = {
    "yes_no": "yes or no",
    "choice": "one of the things that it names",
    "number": "a number",
    "date": "a date",
    "thing": "a name, not yes or no",
}


def feedback(gold: Any, pred: Any, *, normalisation: Normalisation = "official", accents: Accents = "keep") -> str:
    """What was right or wrong with a prediction, in words.

    It names the gold answer, says if the answer is of another kind than the question wants, which supporting passages
    were never retrieved, and the gold decomposition of a question that was not answered right.

    Args:
        gold: The example.
        pred: What the program returned for it.
        normalisation: How answers are compared.
        accents: Whether ``strict`` keeps accents.
    """
    answers, given, question = gold_answers(gold), given_answer(pred), question_of(gold)
    right = exact_match(given, answers, normalisation=normalisation, accents=accents)
    accepted = f"{answers[0]!r}" + (f" (also accepted: {', '.join(map(repr, answers[1:]))})" if answers[1:] else "")
    if right:
        parts = [f"The answer {given!r} is right."]
    elif not (given or "").strip():
        parts = [f"No answer was given; the gold answer is {accepted}."]
    else:
        parts = [f"The answer {given!r} is wrong; the gold answer is {accepted}."]
        if off_topic(question, given):
            kind = question_kind(question)
            parts.append(f"The question wants {_WANTED[kind] if kind else 'something else'}, which this answer is not.")
        elif cover_em(given, answers, normalisation=normalisation, accents=accents):
            parts.append("It holds the gold answer among other words: answer with nothing but the answer.")
    missed = _missed(gold, pred)
    if missed:
        parts.append(f"These supporting passages were never retrieved: {', '.join(missed)}.")
    if not right:
        steps = getattr(gold, "decomposition", None) or ()
        if steps:
            listed = "; ".join(f"{number}. {_step(step)}" for number, step in enumerate(steps, start=1))
            parts.append(f"The sub-questions that lead to the answer: {listed}.")
    return " ".join(parts)


def _missed(gold: Any, pred: Any) -> list[str]:
    """The supporting passages that a trajectory lacks, by title where it is known."""
    trajectory = getattr(pred, "trajectory", None)
    if trajectory is None:
        return []
    found = retrieved_passages(trajectory)
    ids, titles = (list(getattr(gold, name, None) or ()) for name in ("supporting_ids", "supporting_titles"))
    if not ids:
        have = {passage.title for passage in found}
        return [repr(title) for title in titles if title not in have]
    have = {passage.id for passage in found}
    named = titles if len(titles) == len(ids) else ids
    return [repr(name) for name, identifier in zip(named, ids, strict=True) if identifier not in have]


def _step(step: Any) -> str:
    values = step if isinstance(step, dict) else {"question": step[0], "answer": step[1]}
    return f"{values.get('question')} -> {values.get('answer')}"


def gold_answers(gold: Any) -> list[str]:
    """The gold answer of an example and its aliases.

    Raises:
        InputError: It has none.
    """
    answers = getattr(gold, "answers", None) or getattr(gold, "answer", None)
    listed = [answers] if isinstance(answers, str) else answers
    if not listed or isinstance(listed, dict) or not all(isinstance(answer, str) for answer in listed):
        raise InputError(f"the example has no `answers` (a list of strings) and no `answer`, got {answers!r:.80}")
    return list(listed)


def given_answer(pred: Any) -> str | None:
    """The answer of a prediction; ``None`` if it has none."""
    answer = getattr(pred, "answer", None)
    return answer if answer is None or isinstance(answer, str) else str(answer)


def question_of(gold: Any) -> str:
    """The question of an example; empty if it has none."""
    return str(getattr(gold, "question", None) or "")
