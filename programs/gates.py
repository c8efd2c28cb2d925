"""Gates: whether an answer at stake is kept, or the program goes on and searches."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, NoReturn, Protocol, runtime_checkable

from dspy.predict.parameter import Parameter

from ..core import InputError, StateError
from ..lms.confidence import AnswerConfidence
from .settings import ActiveSettings
from .trajectory import Step, Trajectory


@dataclass(frozen=True, slots=True)
class Draft:
    """What a gate decides on.

    Attributes:
        trajectory: The trajectory before this hop; of a composed answer, with the last hop.
        sub_question: What the answer at stake is for: the open sub-question, or the whole question.
        text: The draft, or another answer at stake.
        confidence: Log-probabilities of its tokens; ``None`` where the backend gives none.
        step: What is decided on; a hop's draft, unless said otherwise.
    """

    trajectory: Trajectory
    sub_question: str
    text: str
    confidence: AnswerConfidence | None
    step: Step = "hop"


@runtime_checkable
class Gate(Protocol):
    """Decides on each draft.

    Of :class:`hopgate.programs.Escalation` it may also decide on answers to the whole question, where "to search" means
    to go on.
    """

    @property
    def needs_draft(self) -> bool:
        """Whether a draft must be made before the decision."""
        ...

    @property
    def needs_confidence(self) -> bool:
        """Whether the draft's log-probabilities are needed; a backend without them then is an error."""
        ...

    def keeps(self, draft: Draft) -> bool:
        """Whether the draft is the hop's answer; otherwise the program searches."""
        ...


@dataclass(frozen=True, slots=True)
class ThresholdGate:
    """Keeps a draft whose mean log-probability (nats a token) is at least ``tau``.

    A draft that only repeats words of the sub-question is not kept, however confident: copying is always likely, and
    tells nothing of what the LM knows. Answers that were read from passages are judged by their confidence alone.

    Raises:
        InputError: ``tau`` is no number.
    """

    tau: float
    needs_draft: bool = True
    needs_confidence: bool = True

    def __post_init__(self) -> None:
        if not _is_number(self.tau):
            raise InputError(f"`tau` is a number of nats, not {self.tau!r:.60}")

    def keeps(self, draft: Draft) -> bool:
        """See :class:`Gate`. A draft without confidence is not kept."""
        mean = None if draft.confidence is None else draft.confidence.mean
        if mean is None or mean < self.tau:
            return False
        return draft.step in ("grounded", "final") or not echoes(draft.text, draft.sub_question)


def echoes(text: str, sub_question: str) -> bool:
    """Whether an answer consists of words of the sub-question alone, which then does not offer them as a choice.

    Example:
        >>> echoes("the Osk Tower", "Who designed the Osk Tower?"), echoes("1911", "Which is earlier, 1911 or 1974?")
        (True, False)
    """
    asked = re.findall(r"\w+", sub_question.casefold())
    words = re.findall(r"\w+", text.casefold())
    return bool(words) and "or" not in asked and set(words) <= set(asked)


@dataclass(frozen=True, slots=True)
class ConstantGate:
    """Always searches, or never: the two ends that a threshold is measured against.

    Raises:
        InputError: ``search`` is neither true nor false.
    """

    search: bool

    def __post_init__(self) -> None:
        if not isinstance(self.search, bool):
            raise InputError(f"`search` is true or false, not {self.search!r:.60}")

    @property
    def needs_draft(self) -> bool:
        """Only what is kept needs to be drafted."""
        return not self.search

    @property
    def needs_confidence(self) -> bool:
        """The decision is made already."""
        return False

    def keeps(self, draft: Draft) -> bool:
        """See :class:`Gate`."""
        return not self.search


@dataclass(frozen=True, slots=True)
class RandomGate:
    """Searches at a given rate, whatever the draft says: what a gate must beat at the same number of searches.

    The decision depends on the seed, the question, the step and the sub-question alone, so it repeats in any order.

    Args:
        rate: Share of the drafts that are not kept, 0 to 1.
        seed: Another seed decides otherwise.

    Raises:
        InputError: The rate is no number or out of range, or the seed is no integer.

    Example:
        >>> RandomGate(0.0).keeps(Draft(Trajectory("q"), "q", "yes", None))
        True
    """

    rate: float
    seed: int = 0
    needs_draft: bool = True
    needs_confidence: bool = False

    def __post_init__(self) -> None:
        if not _is_number(self.rate) or not 0 <= self.rate <= 1:
            raise InputError(f"the rate of a random gate is between 0 and 1, not {self.rate!r:.60}")
        if not isinstance(self.seed, int):
            raise InputError(f"the seed of a random gate is an integer, not {self.seed!r:.60}")

    def keeps(self, draft: Draft) -> bool:
        """See :class:`Gate`."""
        drawn_for = "\0".join([str(self.seed), draft.trajectory.question, draft.step, draft.sub_question])
        drawn = int.from_bytes(hashlib.sha256(drawn_for.encode()).digest()[:8]) / 2**64
        return drawn >= self.rate


class OracleGate(Parameter):
    """Keeps exactly the drafts that are right: the best that any gate could do. **For evaluation only.**

    It knows the gold answers, so it must be given to a program as an object, and a program that has it cannot be saved.

    Args:
        right: Whether an answer is right, given the gold ones, such as ``hopgate.evaluation.exact_match``.
        answers: The gold answers of each question.
        intermediate: The gold answers of each question's sub-questions, where the data has them; drafts of hops may be
            any of them.

    Raises:
        InputError: ``right`` cannot be called, or the answers are no lists by question.

    Example:
        >>> gate = OracleGate(lambda text, golds: text in golds, {"Who?": ["Ivar"]})
        >>> gate.keeps(Draft(Trajectory("Who?"), "Who?", "Ivar", None))
        True
    """

    needs_draft = True
    needs_confidence = False

    def __init__(
        self,
        right: Callable[[str, Sequence[str]], bool],
        answers: Mapping[str, Sequence[str]],
        intermediate: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        if not callable(right):
            raise InputError(f"`right` is a function of an answer and the gold ones, not {right!r:.60}")
        intermediate = {} if intermediate is None else intermediate
        for name, given in (("answers", answers), ("intermediate", intermediate)):
            if not isinstance(given, Mapping):
                raise InputError(f"`{name}` takes a mapping of questions to lists of answers, not {given!r:.60}")
            if any(isinstance(golds, str) or not isinstance(golds, Iterable) for golds in given.values()):
                raise InputError(f"`{name}` takes a list of answers for each question")
        self.right = right
        self.answers = answers
        self.intermediate = intermediate

    def keeps(self, draft: Draft) -> bool:
        """See :class:`Gate`.

        Raises:
            InputError: The question has no gold answer here.
        """
        question = draft.trajectory.question
        if question not in self.answers:
            raise InputError(f"the oracle gate has no gold answer of {question[:80]!r}")
        golds = list(self.answers[question])
        if draft.step == "hop":
            golds += self.intermediate.get(question, ())
        return self.right(draft.text, golds)

    def reset(self) -> None:
        """Keep everything: there is nothing fitted."""

    def dump_state(self, json_mode: bool = True) -> NoReturn:
        """Refuse: gold answers are no part of a program.

        Raises:
            StateError: Always.
        """
        raise StateError(
            "a program with an oracle gate cannot be saved: it knows the gold answers; give it another gate"
        )

    def load_state(self, state: Any) -> NoReturn:
        """Refuse, as :meth:`dump_state` does.

        Raises:
            StateError: Always.
        """
        self.dump_state()

    def __reduce__(self) -> NoReturn:
        self.dump_state()

    def __deepcopy__(self, memo: dict[int, Any]) -> OracleGate:
        return self


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and not math.isnan(value)


def keeps_final(gate: Gate, draft: Draft) -> bool:
    """Whether an answer to the whole question is kept: the gate keeps it, and it was not rejected before."""
    rejected = {text.casefold() for text in draft.trajectory.rejected}
    return bool(draft.text) and draft.text.casefold() not in rejected and gate.keeps(draft)


def gate_of(settings: ActiveSettings) -> Gate:
    """The gate that the settings name."""
    if settings.gate == "threshold":
        return ThresholdGate(settings.tau)
    if settings.gate == "random":
        return RandomGate(settings.search_rate, settings.seed)
    return ConstantGate(search=settings.gate == "always")
