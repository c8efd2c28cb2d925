"""Confidence of an answer: the log-probabilities of exactly the tokens that the answer field is made of.

The completion also holds markers, quotation marks, reasoning and other fields. Their tokens say how sure the LM is of
the format, not of the answer, and are left out. Tokens are aligned to the text by bytes, since a character may be
split over several tokens.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..core import ConfidenceError
from .spans import find_answer

# What some servers send for "no value".
_NO_VALUE = -9999.0


@dataclass(frozen=True, slots=True)
class AnswerConfidence:
    """Log-probabilities, in nats, of the tokens of one answer.

    Attributes:
        mean: Mean over the tokens; ``None`` for an empty answer, which has no tokens.
        sum: Sum over the tokens: the log-probability of the answer as a whole.
        min: The least certain token.
        first: The first token.
        tokens: How many tokens the answer has.
    """

    mean: float | None
    sum: float | None
    min: float | None
    first: float | None
    tokens: int

    @property
    def empty(self) -> bool:
        """Whether the answer was empty; it then counts as less certain than any other."""
        return self.tokens == 0


EMPTY_ANSWER = AnswerConfidence(None, None, None, None, 0)


def answer_confidence(
    prediction: Any, field: str = "answer", *, label: str | None = None, backend: str | None = None
) -> AnswerConfidence:
    """The confidence of one output field of a prediction.

    Works on the completions of ``ChatAdapter``, ``JSONAdapter``, ``XMLAdapter`` and ``CompactAdapter``. Where the field
    occurs more than once, the occurrence that the adapter parsed counts (the first, in JSON the last). Of a solver's
    prediction, whose answer is that of one of many calls, the ``answer_confidence`` of its trajectory is given.

    Args:
        prediction: A ``dspy.Prediction`` made with ``logprobs=True``, or a solver's.
        field: Name of the output field.
        label: The line label of the field in ``CompactAdapter``'s rendering, if it is not the one made of the name; a
            ``#`` in it stands for a number.
        backend: Name of the LM for error messages; the one of ``dspy.settings`` if not given.

    Returns:
        The confidence; for an empty answer :data:`EMPTY_ANSWER`.

    Raises:
        ConfidenceError: There are no log-probabilities, they are degenerate, or the answer is not in the completion.
    """
    if field == "answer" and _is_of_solver(prediction):
        recorded = getattr(prediction.trajectory, "answer_confidence", None)
        if isinstance(recorded, AnswerConfidence):
            return recorded
    tokens = answer_tokens(prediction, field, label=label, backend=backend)
    return confidence_of([logprob for _, logprob in tokens])


def confidence_of(logprobs: Sequence[float]) -> AnswerConfidence:
    """The confidence of an answer whose tokens have these log-probabilities, in nats."""
    if not logprobs:
        return EMPTY_ANSWER
    total = math.fsum(logprobs)
    return AnswerConfidence(total / len(logprobs), total, min(logprobs), logprobs[0], len(logprobs))


def answer_tokens(
    prediction: Any, field: str = "answer", *, label: str | None = None, backend: str | None = None
) -> list[tuple[bytes, float]]:
    """The tokens of one output field, in order: their bytes and log-probabilities in nats; none for an empty field.

    Takes and raises what :func:`answer_confidence` does.
    """
    tokens = _tokens_of(prediction, backend)
    return [tokens[place] for place in _places(prediction, field, label, [piece for piece, _ in tokens])]


def first_token_alternatives(
    prediction: Any, field: str, *, label: str | None = None, backend: str | None = None
) -> dict[str, float]:
    """What the first token of a field could have been: each token's text with its log-probability, in nats.

    Args:
        prediction: A ``dspy.Prediction`` made with ``logprobs=True`` and ``top_logprobs``.
        field: Name of the output field.
        label: As for :func:`answer_confidence`.
        backend: As for :func:`answer_confidence`.

    Returns:
        The alternatives that the backend gave, the chosen token among them; none for an empty field.

    Raises:
        ConfidenceError: There are no log-probabilities, they are degenerate, or the field is not in the completion.
    """
    tokens = _tokens_of(prediction, backend)
    places = _places(prediction, field, label, [piece for piece, _ in tokens])
    if not places:
        return {}
    piece, logprob = tokens[places[0]]
    others = _get(_get(prediction.logprobs, "content")[places[0]], "top_logprobs") or ()
    usable = {str(_get(top, "token")): _get(top, "logprob") for top in others}
    usable = {token: value for token, value in usable.items() if _is_logprob(value)}
    return {**usable, piece.decode(errors="replace"): logprob}


def _places(prediction: Any, field: str, label: str | None, pieces: list[bytes]) -> list[int]:
    """Which tokens of a completion a field is made of."""
    value = getattr(prediction, field, None)
    if value is None or (isinstance(value, str) and not value.strip()):
        return []
    data = b"".join(pieces)
    start, end = find_answer(data, field, value, label or field.replace("_", " ").title() + ":")
    chosen, position = [], 0
    for place, piece in enumerate(pieces):
        # A token belongs to the answer if any visible byte of it does.
        low, high = max(position, start), min(position + len(piece), end)
        if low < high and data[low:high].strip():
            chosen.append(place)
        position += len(piece)
    return chosen


def _is_of_solver(prediction: Any) -> bool:
    """Whether a prediction was put together from the calls of a trajectory, so that it has no completion of its own."""
    return getattr(prediction, "logprobs", None) is None and hasattr(
        getattr(prediction, "trajectory", None), "answer_confidence"
    )


def _tokens_of(prediction: Any, backend: str | None) -> list[tuple[bytes, float]]:
    if _is_of_solver(prediction):
        raise ConfidenceError(
            "a solver's prediction has no completion of its own, whose tokens could be read; what is known stands in "
            "its trajectory: the confidences of its hops, and `answer_confidence`, which is None where the last step's "
            "log-probabilities were not asked for"
        )
    return _tokens(getattr(prediction, "logprobs", None), backend or _backend())


def _tokens(logprobs: Any, backend: str) -> list[tuple[bytes, float]]:
    content = _get(logprobs, "content")
    if not content:
        raise ConfidenceError(
            f"the backend {backend!r} returned no log-probabilities; ask for them (logprobs=True), or choose a backend "
            "that gives them (`hopgate lm check MODEL` tells), or set the program's gate to 'always' or 'never'"
        )
    tokens, alternatives = [], False
    for token in content:
        logprob = _get(token, "logprob")
        if not _is_logprob(logprob):
            raise _degenerate(f"a token has the log-probability {logprob!r}", backend)
        raw = _get(token, "bytes")
        piece = bytes(raw) if raw is not None else str(_get(token, "token") or "").encode(errors="replace")
        alternatives = alternatives or any(_get(top, "logprob") for top in _get(token, "top_logprobs") or ())
        tokens.append((piece, min(float(logprob), 0.0)))
    # One token may well be certain to the last digit of a float; a whole completion is not.
    if len(tokens) > 1 and not alternatives and all(logprob == 0.0 for _, logprob in tokens):
        raise _degenerate("all are 0", backend)
    return tokens


def _is_logprob(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and _NO_VALUE < value <= 1e-6


def _degenerate(what: str, backend: str) -> ConfidenceError:
    return ConfidenceError(
        f"the backend {backend!r} returned log-probabilities that cannot be used ({what}); choose another backend "
        "(`hopgate lm check MODEL`), or set the program's gate to 'always' or 'never'"
    )


def _backend() -> str:
    import dspy

    model = getattr(dspy.settings.lm, "model", None)
    return str(model) if model else "the LM"


def _get(source: Any, key: str) -> Any:
    return source.get(key) if isinstance(source, Mapping) else getattr(source, key, None)
