"""Telling whether questions are those of a run, which holds their ids and a digest, and not their texts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import Protocol

from ..core import InputError
from .run_schema import DataHeader


class Asked(Protocol):
    """What a digest is made of."""

    @property
    def id(self) -> str:
        """Id of the question."""
        ...

    @property
    def question(self) -> str:
        """Its text."""
        ...

    @property
    def answers(self) -> Sequence[str]:
        """The gold answer and its aliases."""
        ...


def questions_digest(questions: Iterable[Asked]) -> str:
    """SHA-256 of ids, questions and gold answers, whatever the order of the questions.

    Args:
        questions: The questions, with ids that are unique.
    """
    found = hashlib.sha256()
    for item in sorted(questions, key=lambda item: item.id):
        found.update(json.dumps([item.id, item.question, list(item.answers)]).encode() + b"\n")
    return found.hexdigest()


def check_questions(data: DataHeader, questions: Iterable[Asked], run: str) -> None:
    """Refuse questions that have the ids of a run's and other texts or gold answers.

    Nothing is said where the run has no digest, or some of its questions are not given.

    Args:
        data: The run's data.
        questions: The questions; those that are not the run's are left aside.
        run: The run's name, for messages.

    Raises:
        InputError: They are others.
    """
    if data.questions_sha256 is None:
        return
    wanted = set(data.ids)
    given = {item.id: item for item in questions if item.id in wanted}
    if len(given) == len(wanted) and questions_digest(given.values()) != data.questions_sha256:
        raise InputError(
            f"the questions have the ids of the run {run!r}, and other texts or gold answers; name the questions that "
            "it was made with"
        )
