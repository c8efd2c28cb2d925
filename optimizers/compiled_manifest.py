"""What the file of a compiled program says beside the program's state: how it came about, and which gates it needs."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

from pydantic import ConfigDict, TypeAdapter

from ..evaluation.question_digest import questions_digest
from ..evaluation.questions import Question

VERSION = 1
"""Version of the manifest; a reader refuses newer ones."""


@dataclass(frozen=True, slots=True)
class GateRecord:
    """A gate that was given to a program as an object.

    Attributes:
        module: The module inside the program that has it, as ``named_sub_modules`` names it: ``self``.
        steps: The steps that it decides at; ``gate`` is the argument of that name.
        kind: ``threshold``, ``constant``, ``random``, or of the gates whose fitted values stand in the state,
            ``calibrated`` or ``policy``.
        values: Arguments of the former three.
    """

    module: str
    steps: tuple[str, ...]
    kind: str
    values: dict[str, float | int | bool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CompiledData:
    """Questions that a program was compiled with, by digests and not by their texts.

    Attributes:
        name: Name of the data set.
        split: Its split.
        n: How many questions.
        ids_sha256: SHA-256 of their ids, in order.
        questions_sha256: SHA-256 of ids, questions and gold answers.
    """

    name: str
    split: str | None
    n: int
    ids_sha256: str
    questions_sha256: str

    @classmethod
    def of(cls, questions: Iterable[Question], *, name: str | None = None, split: str | None = None) -> CompiledData:
        """Describe questions.

        Args:
            questions: The questions, with ids that are unique.
            name: Name of the data set; by default what the collection says.
            split: Its split; likewise.
        """
        name = name or str(getattr(questions, "name", None) or "questions")
        split = split or getattr(questions, "split", None)
        asked = list(questions)
        ids = json.dumps([question.id for question in asked])
        digest = hashlib.sha256(ids.encode()).hexdigest()
        return cls(name, split, len(asked), digest, questions_digest(asked))


@dataclass(frozen=True, slots=True)
class ManifestPoint:
    """One choice that no other beats in both score and cost, on the training questions.

    Attributes:
        score: Mean score.
        retrievals: Searches a question.
        lm_calls: LM calls a question.
        tokens: Tokens a question.
        settings: What gives it.
    """

    score: float
    retrievals: float
    lm_calls: float | None = None
    tokens: float | None = None
    settings: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Manifest:
    """How a program came about.

    Attributes:
        program: The name that :func:`hopgate.programs.registry.make_program` makes an empty one by.
        gates: Gates that were given to it as objects.
        versions: Versions of Python and of the packages that take part.
        created: When it was saved, as ISO 8601 with the zone.
        metric: Name of the score that it was compiled for.
        train: The training questions.
        valid: The validation questions.
        optimizer: Name of the optimizer: ``tau``, ``policy``, ``joint``, or that of a teleprompter's class.
        options: Its settings.
        lm: Name of the LM that it was compiled with, without key, path or host.
        front: What else could have been chosen.
        result: What the program scores and takes, and how that was measured.
        version: Version of the manifest.
        kind: ``hopgate-program``.
    """

    program: str
    gates: tuple[GateRecord, ...]
    versions: dict[str, str]
    created: str
    metric: str | None = None
    train: CompiledData | None = None
    valid: CompiledData | None = None
    optimizer: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    lm: str | None = None
    front: tuple[ManifestPoint, ...] = ()
    result: dict[str, Any] = field(default_factory=dict)
    version: int = VERSION
    kind: Literal["hopgate-program"] = "hopgate-program"


@cache
def manifest_adapter() -> TypeAdapter[Manifest]:
    """Checks and reads a manifest."""
    return TypeAdapter(Manifest)


def lm_name(lm: Any) -> str | None:
    """The name of an LM: provider and model, without the address of a server and without the folders of a file.

    Args:
        lm: An LM, or what DSPy names it; ``None`` gives ``None``.

    Example:
        >>> lm_name("openai/http://10.0.0.7:8000/v1/qwen"), lm_name("embedded//home/me/any.gguf")
        ('openai/qwen', 'embedded/any.gguf')
    """
    if lm is None:
        return None
    model = lm if isinstance(lm, str) else str(getattr(lm, "model", type(lm).__name__))
    model = re.sub(r"\w+://\S*[/@]|\w+://\S*|[?#].*", "", model).replace("\\", "/")
    provider, separator, name = model.partition("/")
    if provider in ("", "~", ".", ".."):
        provider = separator = ""
        name = name.rstrip("/").rpartition("/")[2]
    elif name.startswith(("/", "~", ".")) or ".gguf" in name:
        name = name.rstrip("/").rpartition("/")[2]
    return f"{provider}{separator}{name}".strip("/") or "unknown"


# Not in the class bodies, where they would become fields of the dataclasses.
for _class in (GateRecord, CompiledData, ManifestPoint, Manifest):
    _class.__pydantic_config__ = ConfigDict(extra="forbid", allow_inf_nan=False, strict=True)  # type: ignore[attr-defined]
