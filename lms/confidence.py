"""Confidence of an answer: the log-probabilities of exactly the tokens that the answer field is made of.

The completion also holds markers, quotation marks, reasoning and other fields. Their tokens say how sure the LM is of
the format, not of the answer, and are left out. Tokens are aligned to the text by bytes, since a character may be
split over several tokens.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..core import ConfidenceError

# What some servers send for "no value".
_NO_VALUE = -9999.0
# Characters that one token cut by a stop sequence may have had.
_CUT = 16


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


def answer_confidence(prediction: Any, field: str = "answer", *, label: str | None = None) -> AnswerConfidence:
    """The confidence of one output field of a prediction.

    Works on the completions of ``ChatAdapter``, ``JSONAdapter``, ``XMLAdapter`` and ``CompactAdapter``. Where the field
    occurs more than once, the occurrence that the adapter parsed counts (the first, in JSON the last).

    Args:
        prediction: A ``dspy.Prediction`` made with ``logprobs=True``.
        field: Name of the output field.
        label: The line label of the field in ``CompactAdapter``'s rendering, if it is not the one made of the name.

    Returns:
        The confidence; for an empty answer :data:`EMPTY_ANSWER`.

    Raises:
        ConfidenceError: There are no log-probabilities, they are degenerate, or the answer is not in the completion.
    """
    value = getattr(prediction, field, None)
    tokens = _tokens(getattr(prediction, "logprobs", None))
    if value is None or (isinstance(value, str) and not value.strip()):
        return EMPTY_ANSWER
    data = b"".join(piece for piece, _ in tokens)
    start, end = _find(data, field, value, label or field.replace("_", " ").title() + ":")
    chosen, position = [], 0
    for piece, logprob in tokens:
        # A token belongs to the answer if any visible byte of it does.
        low, high = max(position, start), min(position + len(piece), end)
        if low < high and data[low:high].strip():
            chosen.append(logprob)
        position += len(piece)
    if not chosen:
        return EMPTY_ANSWER
    total = math.fsum(chosen)
    return AnswerConfidence(total / len(chosen), total, min(chosen), chosen[0], len(chosen))


def _tokens(logprobs: Any) -> list[tuple[bytes, float]]:
    content = _get(logprobs, "content")
    if not content:
        raise ConfidenceError(
            f"{_backend()} returned no log-probabilities; ask for them (logprobs=True), or choose a backend that gives "
            "them (`hopgate lm check MODEL` tells), or set the program's gate to 'always' or 'never'"
        )
    tokens, alternatives = [], False
    for token in content:
        logprob = _get(token, "logprob")
        if isinstance(logprob, bool) or not isinstance(logprob, int | float) or not math.isfinite(logprob):
            raise _degenerate(f"a token has the log-probability {logprob!r}")
        if logprob <= _NO_VALUE or logprob > 1e-6:
            raise _degenerate(f"a token has the log-probability {logprob}")
        raw = _get(token, "bytes")
        piece = bytes(raw) if raw is not None else str(_get(token, "token") or "").encode()
        alternatives = alternatives or any(_get(top, "logprob") for top in _get(token, "top_logprobs") or ())
        tokens.append((piece, min(float(logprob), 0.0)))
    # One token may well be certain to the last digit of a float; a whole completion is not.
    if len(tokens) > 1 and not alternatives and all(logprob == 0.0 for _, logprob in tokens):
        raise _degenerate("all are 0")
    return tokens


def _degenerate(what: str) -> ConfidenceError:
    return ConfidenceError(
        f"{_backend()} returned log-probabilities that cannot be used ({what}); choose another backend "
        "(`hopgate lm check MODEL`), or set the program's gate to 'always' or 'never'"
    )


def _backend() -> str:
    import dspy

    model = getattr(dspy.settings.lm, "model", None)
    return f"the LM {model!r}" if model else "the LM"


def _get(source: Any, key: str) -> Any:
    return source.get(key) if isinstance(source, Mapping) else getattr(source, key, None)


# --- finding the field in the completion ------------------------------------------------------------------------------


def _find(data: bytes, field: str, value: Any, label: str) -> tuple[int, int]:
    """Byte range ``[start, end)`` of a field's value within a completion."""
    # Undecodable bytes (a character cut off at the token limit) keep their place as lone surrogates.
    text = data.decode("utf-8", "surrogateescape")
    wanted = value if isinstance(value, str) else None
    for begin, limit, encoded in _regions(text, field, label):
        if wanted is None or encoded:
            span = _trim(text, begin, limit)
            if span[0] < span[1]:
                return _bytes(text, *span)
            continue
        for candidate in _spellings(wanted):
            at = text.find(candidate, begin, limit)
            if at >= 0:
                return _bytes(text, at, at + len(candidate))
            # Some servers drop the log-probability of a token that a stop sequence cuts in two ("?\\n"): the tokens
            # then end shortly before the value does.
            known = text[begin:limit].lstrip()
            if limit == len(text) and known and candidate.startswith(known) and len(candidate) - len(known) <= _CUT:
                return _bytes(text, len(text) - len(known), len(text))
    raise ConfidenceError(f"the value of `{field}` ({str(value)[:60]!r}) is not in the completion it was parsed from")


def _regions(text: str, field: str, label: str) -> Iterable[tuple[int, int, bool]]:
    """Where a field's value may stand, best guess first: (start, end, whether exactly this range is the value)."""
    name = re.escape(field)
    if match := re.search(rf"^[ \t]*\[\[ ## {name} ## \]\]", text, re.MULTILINE):
        following = re.search(r"^[ \t]*\[\[ ## \w+ ## \]\]", text[match.end() :], re.MULTILINE)
        yield match.end(), match.end() + following.start() if following else len(text), False
    if match := re.search(rf"<{name}>(.*?)</{name}>", text, re.DOTALL):
        yield match.start(1), match.end(1), False
    for match in reversed(list(re.finditer(rf'"{name}"\s*:\s*', text))):
        try:
            _, end = json.JSONDecoder().raw_decode(text, match.end())
        except ValueError:
            yield match.end(), len(text), False
        else:
            quoted = int(text[match.end()] == '"')
            yield match.end() + quoted, end - quoted, True
    if match := re.search(rf"^{re.escape(label)}[ \t]*", text, re.MULTILINE | re.IGNORECASE):
        yield match.end(), len(text), False
    yield 0, len(text), False


def _spellings(value: str) -> Iterable[str]:
    """The forms in which an adapter may have rendered a text value."""
    stripped = value.strip()
    yield stripped
    yield stripped.rstrip("\ufffd")  # A character cut off at the token limit.
    yield stripped.replace("\n", "\n  ")  # CompactAdapter indents continuation lines.


def _trim(text: str, start: int, end: int) -> tuple[int, int]:
    piece = text[start:end]
    return start + len(piece) - len(piece.lstrip()), start + len(piece.rstrip())


def _bytes(text: str, start: int, end: int) -> tuple[int, int]:
    prefix = len(text[:start].encode("utf-8", "surrogateescape"))
    return prefix, prefix + len(text[start:end].encode("utf-8", "surrogateescape"))
