"""Scores of an answer, and of predictions made elsewhere against gold answers."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..core import InputError, user_path
from .dataset_files import (
    LONGEST_RECORD,
    first_character,
    one_line,
    open_data,
    read_lines,
    read_records,
)
from .metrics import cover_em, cover_em_tokens, exact_match, f1, retrieval_recall
from .normalisation import Accents, Normalisation, check_normalisation, normalize
from .offtopic import off_topic
from .questions import Question, QuestionSet
from .recorded_texts import joined_answer

ABSTENTIONS = frozenset({"", "noanswer", "no answer", "unanswerable", "not answerable", "unknown"})
"""What answers a question that cannot be answered from its contexts (in the official normalisation)."""


def score_answer(
    question: Question,
    answer: str | None,
    *,
    normalisation: Normalisation = "official",
    accents: Accents = "keep",
    passage_ids: Iterable[str] | None = None,
) -> dict[str, Any]:
    """The scores of one answer, as they stand in a run file.

    The answer to a question that is not answerable is right if it abstains: if it is empty or one of
    :data:`ABSTENTIONS`.

    Args:
        question: The question.
        answer: The answer; ``None`` if none was given, which counts as wrong.
        normalisation: How answers are compared.
        accents: Whether ``strict`` keeps accents.
        passage_ids: Identifiers of all passages that were retrieved, where that is known.

    Returns:
        ``em``, ``f1``, ``cover_em`` (substring), ``cover_em_tokens`` (token recall), ``retrieval_recall`` (``None``
        where it is not known) and ``off_topic`` (by :func:`~hopgate.evaluation.offtopic.off_topic`, ``None`` where the
        rule cannot tell).

    Raises:
        InputError: There is no such normalisation.
    """
    check_normalisation(normalisation, accents)
    recall = None if passage_ids is None else retrieval_recall(passage_ids, question.supporting_ids)
    if not question.answerable:
        right = answer is not None and normalize(answer) in ABSTENTIONS
        scores = {"em": right, "f1": float(right), "cover_em": right, "cover_em_tokens": right}
        return {**scores, "retrieval_recall": recall, "off_topic": None}
    how: dict[str, Any] = {"normalisation": normalisation, "accents": accents}
    return {
        "em": exact_match(answer, question.answers, **how),
        "f1": f1(answer, question.answers, **how),
        "cover_em": cover_em(answer, question.answers, **how),
        "cover_em_tokens": cover_em_tokens(answer, question.answers, **how),
        "retrieval_recall": recall,
        "off_topic": off_topic(question.question, answer),
    }


@dataclass(frozen=True, slots=True)
class PredictionScores:
    """Means over all gold questions; one without a prediction counts as wrong.

    Attributes:
        n: Gold questions.
        em: Exact match, a fraction as all that follow.
        f1: Token F1.
        cover_em: Answer found as a substring.
        cover_em_tokens: All words of the answer found.
        off_topic: Answers that the cheap rule finds to be of another kind than the question wants.
        missing: Number of gold questions without a prediction.
        unknown: Number of predictions for ids that no gold question has; they are left out.
        normalisation: How answers were compared.
        accents: Whether accents were kept.
        unknown_ids: The first few of these ids.
        missing_ids: The first few of the ids of questions without a prediction.
    """

    n: int
    em: float
    f1: float
    cover_em: float
    cover_em_tokens: float
    off_topic: float
    missing: int
    unknown: int
    normalisation: str
    accents: str
    unknown_ids: tuple[str, ...] = ()
    missing_ids: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """A JSON object of all but the examples of ids."""
        record = asdict(self)
        del record["unknown_ids"], record["missing_ids"]
        return record


def score_predictions(
    questions: QuestionSet,
    predictions: Mapping[str, str | None],
    *,
    normalisation: Normalisation = "official",
    accents: Accents = "keep",
) -> PredictionScores:
    """Score predictions against gold answers.

    Args:
        questions: The gold questions.
        predictions: Answers by question id; ``None`` is no answer. ``{question}`` in one stands for the question's
            text, as in a run file.
        normalisation: How answers are compared.
        accents: Whether ``strict`` keeps accents.

    Raises:
        InputError: There are no questions, no prediction is for any of them, or there is no such normalisation.
    """
    check_normalisation(normalisation, accents)
    known = set(questions.ids)
    unknown = [identifier for identifier in predictions if identifier not in known]
    if not questions:
        raise InputError(f"{questions.name}: there are no questions to score against")
    if len(unknown) == len(predictions):
        raise InputError(
            f"none of the {len(predictions)} predictions is for a question of {questions.name} (the first are for "
            f"{unknown[:1]!r:.80} and {questions.ids[0]!r:.80}); give the gold file that they were made for"
        )
    scores: list[dict[str, Any]] = []
    missing: list[str] = []
    for question in questions:
        answer = predictions.get(question.id)
        if answer is None:
            missing.append(question.id)
        else:
            answer = joined_answer(answer, question.question)
        scores.append(score_answer(question, answer, normalisation=normalisation, accents=accents))

    def mean(name: str) -> float:
        return sum(float(score[name] or 0.0) for score in scores) / len(scores)

    return PredictionScores(
        n=len(scores),
        em=mean("em"),
        f1=mean("f1"),
        cover_em=mean("cover_em"),
        cover_em_tokens=mean("cover_em_tokens"),
        off_topic=mean("off_topic"),
        missing=len(missing),
        unknown=len(unknown),
        normalisation=normalisation,
        accents=accents,
        unknown_ids=tuple(unknown[:3]),
        missing_ids=tuple(missing[:3]),
    )


# --- files of predictions ---------------------------------------------------------------------------------------------

_ANSWERS = ("answer", "prediction", "predicted_answer")


def read_predictions(source: str | Path) -> dict[str, str | None]:
    """The answers of a file of predictions, by question id.

    The forms: a JSON object of ids and answers; HotpotQA's, ``{"answer": {id: answer}, "sp": ...}``; JSON Lines or a
    JSON list of objects with ``id`` (or ``_id``) and ``answer`` (or ``prediction``, or MuSiQue's ``predicted_answer``);
    a CSV file with such columns; and hopgate's run files. Numbers count as text.

    Args:
        source: The path of the file.

    Raises:
        InputError: The file is missing, empty, too long, not UTF-8 or of another form, or an id occurs twice.
    """
    path = user_path(source)
    with open_data(path) as file:
        try:
            mapping = _mapping(path, file) if first_character(path, file) == "{" else None
        except (OSError, EOFError, zlib.error) as error:
            raise InputError(f"{path}: cannot be read ({one_line(error)}); fetch or pack it again") from error
    if mapping is not None:
        found = {identifier: _answer(f"{path}: {identifier!r:.80}", answer) for identifier, answer in mapping.items()}
    else:
        found = _listed_predictions(path)
    if not found:
        raise InputError(f"{path}: holds no predictions; give a file with at least one")
    return found


def _mapping(path: Path, file: Any) -> dict[str, Any] | None:
    """The answers of a file that is one JSON object; ``None`` if it is JSON Lines."""
    try:
        written = (line for _, line in read_lines(path, file) if line.strip())
        first = json.loads(next(written))
        if first.get("kind") == "run" or _is_line(first) or next(written, None) is not None:
            return None
    except (ValueError, RecursionError):  # an object over several lines
        pass
    file.seek(0)
    data = file.read(LONGEST_RECORD + 1)
    if len(data) > LONGEST_RECORD:
        raise InputError(
            f"{path}: longer than {LONGEST_RECORD:,} bytes, the most that is read at once; write JSON Lines with "
            "id and answer"
        )
    try:
        record = json.loads(data.decode("utf-8-sig"), object_pairs_hook=_unique)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 at byte {error.start + 1}; convert the file to UTF-8") from error
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"{path}: not JSON ({one_line(error)}); write an object of ids and answers, or one object with id and "
            "answer a line"
        ) from error
    answers = record.get("answer")
    return answers if isinstance(answers, dict) else record


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise InputError(f"the id {key!r:.80} occurs twice; keep one prediction for each question")
        found[key] = value
    return found


def _is_line(record: Mapping[str, Any]) -> bool:
    identifier = record.get("_id", record.get("id"))
    return isinstance(identifier, str | int) and any(field in record for field in _ANSWERS)


def _listed_predictions(path: Path) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    is_run = False
    for number, (where, record) in enumerate(read_records(path)):
        if number == 0 and record.get("kind") == "run":
            is_run = True
            continue
        if not _is_line(record):
            fields = ", ".join(f"{name!s:.40}" for name in record)[:200] or "none"
            raise InputError(f"{where}: a prediction needs `id` and `answer`, and the fields are {fields}")
        identifier = str(record.get("_id", record.get("id")))
        if identifier in found and not is_run:  # of a run's records the last counts
            raise InputError(f"{where}: the id {identifier!r:.80} occurs twice; keep one prediction for each question")
        field = next(name for name in _ANSWERS if name in record)
        found[identifier] = _answer(where, record[field])
    return found


def _answer(where: str, value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    raise InputError(f"{where}: the answer must be a string or null, got {value!r:.80}")
