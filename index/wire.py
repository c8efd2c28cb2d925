"""What goes over the wire between an index server and its clients: requests and answers, as JSON objects."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from ..core import Passage

WIRE_VERSION = 1
"""Version of this format; a change that old clients cannot read gets a new number."""

Count = Annotated[int, Field(ge=1, description="How many passages; all if the index has fewer.")]
# A list of millions of wrong items has one fault: to list them all takes half a minute.
Ids = Annotated[
    list[str] | None,
    Field(fail_fast=True, description="Only passages with these ids are found; unknown ids are ignored."),
]
Query = Annotated[str, Field(description="A question or keywords, at most 10,000 characters.")]


class _Request(BaseModel):
    # Nothing is converted ("5" is no number) and nothing ignored (a misspelt field is an error).
    model_config = ConfigDict(strict=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _has_no_other_field(cls, data: Any) -> Any:
        # Before pydantic finds each of them, however many there are.
        if isinstance(data, dict):
            for name in data:
                if name not in cls.model_fields:
                    raise PydanticCustomError("extra_forbidden", "there is no field {name}", {"name": f"{name!a:.80}"})
        return data


class SearchRequest(_Request):
    """One query, in the form that ``dspy.ColBERTv2`` sends with ``post_requests=True``."""

    query: Query
    k: Count = 10
    ids: Ids = None


class SearchManyRequest(_Request):
    """Several queries."""

    queries: Annotated[list[Query], Field(fail_fast=True)]
    k: Count = 3
    ids: Ids = None


class PassageToRank(_Request):
    """A passage of the index or from elsewhere. A score is accepted and not used."""

    id: str
    title: str = ""
    text: str
    metadata: dict[str, Any] = Field(default_factory=dict)
    score: float | int | None = None

    def to_passage(self) -> Passage:
        """The passage, without a score."""
        return Passage(self.id, self.title, self.text, None, self.metadata)


class RerankRequest(_Request):
    """A query and the passages to order."""

    query: Query
    passages: Annotated[list[PassageToRank], Field(fail_fast=True)]


class PassagesRequest(_Request):
    """The ids of the passages to look up."""

    ids: Annotated[list[str], Field(fail_fast=True)]


class PassageRecord(BaseModel):
    """A passage, as ``Passage.to_dict()`` writes it."""

    id: str
    title: str
    text: str = Field(description="The text without the title.")
    score: float | None = Field(None, description="Left out where there is none.")
    metadata: dict[str, Any] | None = Field(None, description="Left out where it is empty.")


class TopPassage(BaseModel):
    """A passage in the form of the original ColBERT server, and what that form leaves out."""

    text: str = Field(description="`title | text`, as the original server has it; the text alone without a title.")
    long_text: str = Field(description="The same as `text`.")
    pid: str = Field(description="The passage's id; a string, where the original server has a number.")
    rank: int = Field(description="1 for the best.")
    score: float | None
    prob: float = Field(description="Softmax over the scores of this answer.")
    id: str = Field(description="The same as `pid`.")
    title: str
    body: str = Field(description="The text without the title.")
    metadata: dict[str, Any]


class SearchAnswer(BaseModel):
    """Answer to one query; of equal scores the smaller id comes first."""

    query: str
    topk: list[TopPassage]


class SearchManyAnswer(BaseModel):
    """For each query, in the order given, its passages, best first."""

    results: list[list[PassageRecord]]


class Ranked(BaseModel):
    """Place of a passage in the request, counted from 0, and its score."""

    index: int
    score: float


class RerankAnswer(BaseModel):
    """All passages of the request, best first; of equal scores in the order given."""

    results: list[Ranked]


class PassagesAnswer(BaseModel):
    """The passages, in the order of the ids."""

    passages: list[PassageRecord]


class ServerRecord(BaseModel):
    """Version of this format and the largest requests that are answered."""

    version: int
    max_k: int
    max_queries: int
    max_results: int
    max_passages: int
    max_body: int


class InfoAnswer(BaseModel):
    """What the index holds and was made with; further fields depend on the index."""

    model_config = ConfigDict(extra="allow")
    passages: int
    server: ServerRecord


class HealthAnswer(BaseModel):
    """The server answers."""

    status: str


class Failure(BaseModel):
    """What is wrong with a request, in words."""

    detail: str


def topk(passages: Sequence[Passage]) -> list[dict[str, Any]]:
    """Search results in the form of :class:`TopPassage`."""
    return [
        {
            "text": passage.long_text,
            "long_text": passage.long_text,
            "pid": passage.id,
            "rank": rank,
            "score": passage.score,
            "prob": probability,
            "id": passage.id,
            "title": passage.title,
            "body": passage.text,
            "metadata": dict(passage.metadata),
        }
        for rank, (passage, probability) in enumerate(zip(passages, _softmax(passages), strict=True), start=1)
    ]


def _softmax(passages: Sequence[Passage]) -> list[float]:
    scores = [passage.score or 0.0 for passage in passages]
    highest = max(scores, default=0.0)
    weights = [math.exp(score - highest) for score in scores]
    total = sum(weights)
    return [weight / total for weight in weights]
