"""What a run was made with, told by the objects themselves: program, LM, index, data, versions."""

from __future__ import annotations

import hashlib
import json
import platform
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from typing import Any

from ..core import InputError
from .questions import Question
from .run_schema import DataHeader, FileHeader, IndexHeader, Normalisation, ProgramHeader, RunHeader

PACKAGES = ("hopgate", "dspy", "litellm", "torch", "transformers", "colbert-ai", "bm25s", "xllamacpp")
"""Packages whose versions may change what a program answers."""

_LOOKED_UP = 100
_SECRETS = {"key", "token", "password", "secret", "authorization", "credential", "credentials", "headers"}
_TEXTS = ("demos", "train", "traces", "examples")
"""Parts of a state that may hold the text of a data set."""


def describe_run(
    program: Any,
    data: DataHeader,
    *,
    name: str,
    seed: int,
    normalisation: Normalisation,
    state_file: str | None = None,
) -> RunHeader:
    """The header of a run that begins now, with the LM and the adapter of ``dspy.settings``.

    Args:
        program: The program.
        data: The questions.
        name: Name of the run.
        seed: Seed of the run.
        normalisation: How answers are compared.
        state_file: SHA-256 of the file that the program's state was loaded from.

    Raises:
        InputError: There is no LM.
    """
    import dspy

    adapter = dspy.settings.adapter
    return RunHeader(
        name=name,
        program=describe_program(program, state_file=state_file),
        lm=describe_lm(_lm(program)),
        seed=seed,
        normalisation=normalisation,
        versions=versions(),
        index=describe_index(program),
        data=data,
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        # DSPy's default where none is set.
        adapter="ChatAdapter" if adapter is None else type(adapter).__name__,
    )


def describe_program(program: Any, *, state_file: str | None = None) -> ProgramHeader:
    """Name, settings and state of a program; see :class:`ProgramHeader`.

    Args:
        program: A DSPy module; another callable has only a name.
        state_file: SHA-256 of the file that its state was loaded from.
    """
    state = _state(program)
    return ProgramHeader(
        name=_name(program),
        file=None if state_file is None else FileHeader(state_file),
        settings=_settings(program),
        state=None if state is None or _holds_texts(state) else state,
        state_sha256=None if state is None else digest(state),
    )


def describe_lm(lm: Any) -> dict[str, Any]:
    """``model`` and the other options of an LM, without secrets.

    Of an embedded LM these are the engine's too: ``n_ctx``, ``slots``, ``cache_mib``, and ``threads`` as used.
    """
    options = {**getattr(lm, "kwargs", {}), "cache": getattr(lm, "cache", None), **_engine_options(lm)}
    kept = {name: _json(value) for name, value in options.items() if value is not None and not _secret(name, value)}
    return {"model": str(getattr(lm, "model", type(lm).__name__)), **kept}


def describe_index(program: Any) -> IndexHeader | None:
    """What a program searches, by the manifest; ``None`` if it does not search.

    A retriever that is not one of hopgate's indexes is known by the name of its class only.
    """
    retriever = _retriever_of(program)
    if retriever is None:
        return None
    info = _info_of(retriever)
    if info is not None:
        return IndexHeader(**{name: info.get(name) for name in IndexHeader.__dataclass_fields__})
    return IndexHeader(engine=type(retriever).__name__)


def _info_of(retriever: Any) -> Mapping[str, Any] | None:
    tell = getattr(retriever, "info", None)
    try:
        info = tell() if callable(tell) else None
    except InputError:
        return None  # an original ColBERT server, which cannot say it
    return info if isinstance(info, Mapping) else None


def knows_gold_passages(program: Any, questions: Iterable[Question]) -> bool:
    """Whether the index that a program searches has a passage that the questions name as supporting.

    If it has none of some of them, its ids are others than those of the data set, and retrieval recall would be 0
    whatever is found. Anything but an index that describes itself is believed: other retrievers, and original ColBERT
    servers, need not look passages up.
    """
    retriever = _retriever_of(program)
    look_up = getattr(retriever, "passages", None)
    if not callable(look_up) or _info_of(retriever) is None:
        return True
    named = [question.supporting_ids[0] for question in questions if question.supporting_ids]
    some = named[:: max(1, len(named) // _LOOKED_UP)]
    return not some or any(_known(look_up, identity) for identity in some)


def _known(look_up: Callable[[list[str]], Any], identity: str) -> bool:
    try:
        look_up([identity])
    except InputError:
        return False
    return True


def _retriever_of(program: Any) -> Any:
    handle = getattr(program, "retriever", None)
    return getattr(handle, "retriever", handle)


def describe_data(questions: Any, ids: Iterable[str], name: str | None = None) -> DataHeader:
    """Which questions they are, by the manifest of their set if they come from one.

    Args:
        questions: A ``QuestionSet`` or another collection.
        ids: Their ids, in order.
        name: Name of the data set, where the collection has none.

    Raises:
        InputError: Two questions have the same id, or there is none.
    """
    chosen = tuple(ids)
    if not chosen:
        raise InputError("there are no questions to evaluate")
    seen: set[str] = set()
    for identity in chosen:
        if identity in seen:
            raise InputError(f"two questions have the id {identity!r}; give each its own")
        seen.add(identity)
    return DataHeader(
        name=name or str(getattr(questions, "name", None) or "questions"),
        split=getattr(questions, "split", None),
        seed=getattr(questions, "seed", None),
        sample=getattr(questions, "sample", None),
        ids=chosen,
    )


def versions() -> dict[str, str]:
    """Versions of Python and of those packages that are installed."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def digest(state: Any) -> str:
    """SHA-256 of a JSON value, whatever the order of its keys."""
    text = json.dumps(state, sort_keys=True, ensure_ascii=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def _lm(program: Any) -> Any:
    import dspy

    if dspy.settings.lm is not None:
        return dspy.settings.lm
    predictors = program.predictors() if isinstance(program, dspy.Module) else []
    own = [predictor.lm for predictor in predictors if predictor.lm is not None]
    if predictors and not own:
        raise InputError("no LM: set one by dspy.configure(lm=...) or dspy.context(lm=...)")
    return own[0] if own else None


def _engine_options(lm: Any) -> dict[str, Any]:
    from ..lms.embedded import EmbeddedEngine

    engine = getattr(lm, "engine", None)
    return {**engine.options, "threads": engine.threads} if isinstance(engine, EmbeddedEngine) else {}


def _name(program: Any) -> str:
    """The name that the program is made by, or that of its class if it is none of hopgate's.

    Programs that differ in settings alone have the name of the first of them.
    """
    own = _modules(program)
    return next((name for name, modules in _named_modules().items() if modules == own), type(program).__name__)


@cache
def _named_modules() -> dict[str, list[tuple[str, type]]]:
    from ..programs.registry import PROGRAMS

    return {name: _modules(entry.make(None)) for name, entry in PROGRAMS.items()}


def _modules(program: Any) -> list[tuple[str, type]]:
    """A program and the modules inside, by their places and classes: a wrapper alone does not say what it wraps."""
    inside: Any = getattr(program, "named_sub_modules", None)
    return [("self", type(program))] if inside is None else [(name, type(module)) for name, module in inside()]


def _state(program: Any) -> dict[str, Any] | None:
    import dspy

    if not isinstance(program, dspy.Module):
        return None
    state = _json(program.dump_state())
    for part in state.values():
        # LMs are not part of a state, and may hold addresses.
        if isinstance(part, dict) and isinstance(part.get("lm"), dict):
            part["lm"] = {"model": part["lm"].get("model")}
    return state


def _settings(program: Any) -> dict[str, Any]:
    values = getattr(getattr(program, "settings", None), "values", None)
    dump = getattr(values, "model_dump", None)
    settings = dump(mode="json") if callable(dump) else {}
    return {name: value for name, value in settings.items() if name not in _TEXTS} if isinstance(settings, dict) else {}


def _holds_texts(state: Any) -> bool:
    if isinstance(state, dict):
        return any((name in _TEXTS and bool(value)) or _holds_texts(value) for name, value in state.items())
    return isinstance(state, list) and any(_holds_texts(item) for item in state)


def _secret(name: str, value: Any) -> bool:
    words = set(re.split(r"[^a-z]+", name.lower()))
    return bool(_SECRETS & words) or (isinstance(value, str) and re.match(r"\w+://[^/]*@", value) is not None)


def _json(value: Any) -> Any:
    """A JSON value; what is none becomes the name of its type."""
    if isinstance(value, Mapping):
        return {str(key): _json(item) for key, item in value.items() if not _secret(str(key), item)}
    if isinstance(value, list | tuple):
        return [_json(item) for item in value]
    return value if value is None or isinstance(value, str | int | float | bool) else type(value).__name__
