"""A question of a data set, and sets of them."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple, overload

from ..core import InputError, Passage
from ..core.texts import MAX_QUESTION_CHARACTERS, encodable

if TYPE_CHECKING:
    import dspy


class Step(NamedTuple):
    """One step of a gold decomposition.

    Attributes:
        question: The sub-question; ``#1``, ``#2``, ... stand for the answers of earlier steps. MuSiQue and
            2WikiMultiHopQA also write relations: ``Hello Love >> performer``.
        answer: Its answer.
        support_id: Identifier of the passage that states it; ``None`` if there is none or it is not known.
    """

    question: str
    answer: str
    support_id: str | None = None


@dataclass(frozen=True, slots=True)
class Question:
    """One multi-hop question with its gold labels, as far as its data set gives them.

    Attributes:
        id: Identifier, unique within its data set.
        question: The question.
        answers: The gold answer, followed by its aliases.
        type: The question's type, as its data set names it.
        hops: How many facts must be looked up: the number of supporting pages, or of steps of the decomposition.
        supporting_ids: Identifiers of the passages that state the facts, in hop order where the data set gives it.
            Empty where they are not known, and where not all of them are among the contexts.
        supporting_titles: Titles of the pages that state the facts.
        decomposition: The steps, in order.
        answerable: Whether the contexts hold the answer (MuSiQue-Full has questions of which they do not).
        contexts: The passages that come with the question: the supporting ones among distractors.

    Raises:
        InputError: There is no id, no question or no answer; the question is longer than programs read; or a text holds
            half of a surrogate pair, which neither a prompt nor a file can hold.
    """

    id: str
    question: str
    answers: tuple[str, ...]
    type: str | None = None
    hops: int | None = None
    supporting_ids: tuple[str, ...] = ()
    supporting_titles: tuple[str, ...] = ()
    decomposition: tuple[Step, ...] = ()
    answerable: bool = True
    contexts: tuple[Passage, ...] = ()

    def __post_init__(self) -> None:
        for name in ("id", "question"):
            value = getattr(self, name)
            if not isinstance(value, str) or not value.strip():
                raise InputError(f"`{name}` must be a string that is not empty, got {value!r:.80}")
        if not self.answers or not all(isinstance(answer, str) and answer.strip() for answer in self.answers):
            raise InputError(f"`answers` must hold at least one string and no empty one, got {self.answers!r:.80}")
        if len(self.question) > MAX_QUESTION_CHARACTERS:
            raise InputError(
                f"`question` has {len(self.question):,} characters, and programs read at most "
                f"{MAX_QUESTION_CHARACTERS:,}; shorten it or leave it out"
            )
        for name in ("id", "question", "answers", "type", "supporting_ids", "supporting_titles"):
            value = getattr(self, name) or ()
            for text in (value,) if isinstance(value, str) else value:
                if text != encodable(text):
                    raise InputError(
                        f"`{name}` holds half of a surrogate pair; replace the broken character: {text!r:.80}"
                    )

    @property
    def answer(self) -> str:
        """The gold answer, without its aliases."""
        return self.answers[0]

    def to_example(self) -> dspy.Example:
        """The question as a DSPy example, with ``question`` as its input and all but the contexts as labels."""
        import dspy

        return dspy.Example(
            question=self.question,
            answer=self.answer,
            answers=list(self.answers),
            id=self.id,
            type=self.type,
            hops=self.hops,
            supporting_ids=list(self.supporting_ids),
            supporting_titles=list(self.supporting_titles),
            decomposition=[step._asdict() for step in self.decomposition],
            answerable=self.answerable,
        ).with_inputs("question")


class QuestionSet(Sequence[Question]):
    """Questions in the order of their source, and what is needed to draw them again.

    Args:
        questions: The questions.
        name: Name of the data set.
        split: Its split, if it has several.
        sample: How many questions were asked for; ``None`` for all.
        seed: What the sample was drawn with; ``None`` for all.
    """

    def __init__(
        self,
        questions: Iterable[Question],
        *,
        name: str,
        split: str | None = None,
        sample: int | None = None,
        seed: int | None = None,
    ) -> None:
        self._questions = tuple(questions)
        self.name = name
        self.split = split
        self.sample = sample
        self.seed = seed

    @overload
    def __getitem__(self, index: int) -> Question: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Question, ...]: ...

    def __getitem__(self, index: int | slice) -> Question | tuple[Question, ...]:
        return self._questions[index]

    def __len__(self) -> int:
        return len(self._questions)

    def __repr__(self) -> str:
        return f"QuestionSet({self.name!r}, split={self.split!r}, {len(self)} questions)"

    @property
    def ids(self) -> tuple[str, ...]:
        """The identifiers, in order."""
        return tuple(question.id for question in self._questions)

    def manifest(self) -> dict[str, Any]:
        """A JSON object that says which questions these are, without their text: name, split, seed, sample, ids."""
        return {
            "name": self.name,
            "split": self.split,
            "seed": self.seed,
            "sample": self.sample,
            "ids": list(self.ids),
        }

    def select(self, ids: Iterable[str]) -> QuestionSet:
        """The questions of a manifest, in its order.

        Raises:
            InputError: A question is not there.
        """
        by_id = {question.id: question for question in self._questions}
        wanted = list(ids)
        absent = [identifier for identifier in wanted if identifier not in by_id]
        if absent:
            raise InputError(
                f"{self.name}: {len(absent)} of {len(wanted)} questions are not there, the first is {absent[0]!r:.80}; "
                "load the data and the split that they come from"
            )
        chosen = (by_id[identifier] for identifier in wanted)
        return QuestionSet(chosen, name=self.name, split=self.split, sample=self.sample, seed=self.seed)

    def first(self, count: int) -> QuestionSet:
        """The first questions, for work that keeps the others for later.

        Raises:
            InputError: ``count`` is not positive.
        """
        if count < 1:
            raise InputError(f"the number of first questions must be positive, got {count!r:.80}")
        return QuestionSet(
            self._questions[:count], name=self.name, split=self.split, sample=self.sample, seed=self.seed
        )

    def examples(self) -> list[dspy.Example]:
        """The questions as DSPy examples."""
        return [question.to_example() for question in self._questions]

    def pooled_corpus(self) -> list[Passage]:
        """The contexts of all questions as one corpus for an index, each passage once, in order of their first use.

        The ids are those in the questions' ``supporting_ids``. In data sets whose contexts have no ids, they are made
        of the passages' content, so that they do not depend on which questions are pooled.

        Raises:
            InputError: No question has contexts, or two different passages have one id.
        """
        pool: dict[str, Passage] = {}
        for question in self._questions:
            for passage in question.contexts:
                if pool.setdefault(passage.id, passage) != passage:
                    raise InputError(
                        f"{self.name}: question {question.id!r:.80} has another passage {passage.id!r:.80} than one "
                        "before it; give the passages ids that are unique within the file"
                    )
        if not pool:
            raise InputError(
                f"{self.name}: these questions come without contexts to pool; take HotpotQA, 2WikiMultiHopQA or "
                "MuSiQue, or the corpus that goes with the data (for the bundled sample sample_corpus_path())"
            )
        return list(pool.values())


def content_id(title: str, text: str) -> str:
    """An identifier made of a passage's content."""
    digest = sha256(f"{title}\n{text}".encode(errors="surrogatepass"))
    return f"p-{digest.hexdigest()[:16]}"


def draw(questions: Iterable[Question], sample: int | None, seed: int) -> Iterator[Question]:
    """A sample of questions, in their own order.

    The questions are ranked by a hash of seed and id. So a sample does not depend on the order of the source or on the
    version of Python, and with one seed smaller samples are part of larger ones.

    Args:
        questions: The questions; only those of the sample are kept in memory.
        sample: How many to draw; ``None`` draws all, and so does a number that is larger than theirs.
        seed: What to draw with.
    """
    if sample is None:
        yield from questions
        return

    def rank(numbered: tuple[int, Question]) -> bytes:
        return sha256(f"{seed}:{numbered[1].id}".encode(errors="surrogatepass")).digest()

    chosen = heapq.nsmallest(sample, enumerate(questions), key=rank)
    yield from (question for _, question in sorted(chosen, key=lambda numbered: numbered[0]))
