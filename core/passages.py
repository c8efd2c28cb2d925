"""The passage, the unit that corpora hold, indexes store and retrievers return."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from .errors import InputError


@dataclass(frozen=True, slots=True)
class Passage:
    """One retrievable piece of text.

    Attributes:
        id: Identifier, unique within its corpus.
        title: Title of the page or document; may be empty.
        text: The text itself, without the title.
        score: Score that the retriever gave it (MaxSim: sum over the query's tokens of the best cosine similarity);
            ``None`` for a passage that does not come from a search.
        metadata: What else the corpus says about the passage (a JSON object), for filters and for users. Not searched
            and not shown to an LM.
    """

    id: str
    title: str
    text: str
    score: float | None = None
    # A mapping cannot be hashed; passages that are equal still have equal hashes.
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def long_text(self) -> str:
        """Title and text as one string, in the form that DSPy's retrievers use: ``title | text``."""
        return f"{self.title} | {self.text}" if self.title else self.text

    def with_score(self, score: float | None) -> Passage:
        """The same passage with another score."""
        return replace(self, score=score)

    def to_dict(self) -> dict[str, Any]:
        """A JSON object with ``id``, ``title``, ``text`` and, where there are any, ``score`` and ``metadata``."""
        record: dict[str, Any] = {"id": self.id, "title": self.title, "text": self.text}
        if self.score is not None:
            record["score"] = self.score
        if self.metadata:
            record["metadata"] = dict(self.metadata)
        return record

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Passage:
        """The inverse of :meth:`to_dict`.

        Raises:
            InputError: A field is missing or has the wrong type.
        """
        for name in ("id", "text"):
            if not isinstance(record.get(name), str):
                raise InputError(f"a passage needs a string `{name}`, got {record.get(name)!r}")
        title, score = record.get("title") or "", record.get("score")
        if not isinstance(title, str):
            raise InputError(f"passage {record['id']!r}: `title` must be a string, got {title!r}")
        metadata = record.get("metadata") or {}
        if not isinstance(metadata, Mapping):
            raise InputError(f"passage {record['id']!r}: `metadata` must be a JSON object, got {metadata!r:.80}")
        try:
            number = None if score is None else float(score)
        except (TypeError, ValueError, OverflowError) as error:
            raise InputError(f"passage {record['id']!r}: `score` must be a number, got {score!r:.80}") from error
        return cls(record["id"], title, record["text"], number, metadata)
