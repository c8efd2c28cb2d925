"""The bundled sample: a small corpus and multi-hop questions about it.

Half of the passages and questions are about the real world, with facts that even a small LM knows by heart; the other
half is about an invented archipelago, so nothing of it can be known and it has to be retrieved. A program that searches
only when it must should search for few of the former and for all of the latter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

import ujson

from ..core import CorpusError, InputError

if TYPE_CHECKING:
    import dspy

Split = Literal["train", "test"]
World = Literal["real", "invented"]
QuestionType = Literal["bridge", "comparison", "date"]


@dataclass(frozen=True, slots=True)
class SubQuestion:
    """One step of a decomposition; ``#1``, ``#2``, ... in its question stand for the answers of earlier steps."""

    question: str
    answer: str


@dataclass(frozen=True, slots=True)
class SampleQuestion:
    """One multi-hop question of the bundled sample.

    Attributes:
        id: Identifier, unique within the sample.
        question: The question.
        answers: The canonical answer, followed by its aliases.
        hops: How many facts must be looked up. The last step of a comparison or of date arithmetic is computed from
            them and does not count as a hop.
        type: ``bridge``, ``comparison`` or ``date`` (date arithmetic).
        world: ``real``, or ``invented`` where only the passages can tell.
        supporting_ids: Identifiers of the passages that state the facts, in the order of the steps.
        decomposition: The steps, in order.
        split: ``train`` or ``test``.
    """

    id: str
    question: str
    answers: tuple[str, ...]
    hops: int
    type: QuestionType
    world: World
    supporting_ids: tuple[str, ...]
    decomposition: tuple[SubQuestion, ...]
    split: Split

    @property
    def answer(self) -> str:
        """The canonical answer."""
        return self.answers[0]

    def to_example(self) -> dspy.Example:
        """The question as a DSPy example, with ``question`` as its input and all other fields as labels."""
        import dspy

        return dspy.Example(
            question=self.question,
            answer=self.answer,
            answers=list(self.answers),
            id=self.id,
            hops=self.hops,
            type=self.type,
            world=self.world,
            supporting_ids=list(self.supporting_ids),
            decomposition=[asdict(step) for step in self.decomposition],
            split=self.split,
        ).with_inputs("question")


def sample_corpus_path() -> Path:
    """Path of the bundled corpus, a JSON Lines file of passages.

    Raises:
        CorpusError: The file is missing from the installation.
    """
    return _data_file("corpus.jsonl")


def sample_questions(split: Split | None = None) -> list[SampleQuestion]:
    """The bundled questions, in the order of the file.

    Args:
        split: Which half to return; ``None`` returns both.

    Raises:
        InputError: ``split`` is unknown, or a line of the file is not a question.
        CorpusError: The file is missing from the installation.
    """
    if split is not None and split not in get_args(Split):
        raise InputError(f"`split` must be 'train', 'test' or None, got {split!r}")
    path = _data_file("questions.jsonl")
    questions: list[SampleQuestion] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip():
            continue
        try:
            question = _parse(ujson.loads(line))
        except (ValueError, InputError) as error:
            raise InputError(f"{path}, line {number}: {error}; reinstall hopgate") from error
        if split is None or question.split == split:
            questions.append(question)
    return questions


def _data_file(name: str) -> Path:
    path = Path(str(files("hopgate.evaluation") / "data" / name))
    if not path.is_file():
        raise CorpusError(f"{path} is missing from the installation; reinstall hopgate")
    return path


def _parse(record: Any) -> SampleQuestion:
    if not isinstance(record, Mapping):
        raise InputError(f"expected a JSON object, got {record!r}")
    hops = record.get("hops")
    if not isinstance(hops, int) or isinstance(hops, bool) or hops < 1:
        raise InputError(f"`hops` must be a positive whole number, got {hops!r}")
    steps = record.get("decomposition")
    if not isinstance(steps, list) or not steps or not all(isinstance(step, Mapping) for step in steps):
        raise InputError("`decomposition` must be a list of objects that is not empty")
    return SampleQuestion(
        id=_text(record, "id"),
        question=_text(record, "question"),
        answers=_texts(record, "answers"),
        hops=hops,
        type=cast(QuestionType, _choice(record, "type", get_args(QuestionType))),
        world=cast(World, _choice(record, "world", get_args(World))),
        supporting_ids=_texts(record, "supporting_ids"),
        decomposition=tuple(SubQuestion(_text(step, "question"), _text(step, "answer")) for step in steps),
        split=cast(Split, _choice(record, "split", get_args(Split))),
    )


def _text(record: Mapping[str, Any], field: str) -> str:
    value = record.get(field)
    if not isinstance(value, str) or not value.strip():
        raise InputError(f"`{field}` must be a string that is not empty, got {value!r}")
    return value


def _texts(record: Mapping[str, Any], field: str) -> tuple[str, ...]:
    values = record.get(field)
    if not isinstance(values, list) or not values or not all(isinstance(value, str) and value for value in values):
        raise InputError(f"`{field}` must be a list of strings that is not empty, got {values!r}")
    return tuple(values)


def _choice(record: Mapping[str, Any], field: str, choices: tuple[str, ...]) -> str:
    value = _text(record, field)
    if value not in choices:
        raise InputError(f"`{field}` must be one of {', '.join(choices)}, got {value!r}")
    return value
