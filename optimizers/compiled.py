"""Compiled programs as files: one plain JSON object that goes into another process, project or LM.

It is what ``program.save`` writes (the state of each parameter, and ``metadata``), with a manifest in the metadata that
says which program and which gates the state is for, and how it came about. So ``program.load`` reads it as well, and a
file that ``program.save`` wrote is read here as long as it tells its program. It holds no LM, no key and no path;
demos and worked examples may be texts of the training questions.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dspy.utils.saving import get_dependency_versions
from pydantic import ValidationError

from ..core import InputError, StateError, user_path, write_atomic
from ..evaluation.provenance import describe_program, versions
from ..evaluation.questions import Question
from ..programs import Solver
from ..programs.registry import PROGRAMS, make_program
from .compiled_gates import describe_gates, give_gates
from .compiled_manifest import VERSION, CompiledData, Manifest, ManifestPoint, lm_name, manifest_adapter
from .compiled_state import check_texts, checked_state, read_json

_MANIFEST = "hopgate"


@dataclass(frozen=True, slots=True)
class ProgramFile:
    """A saved program that was read and checked.

    Attributes:
        path: The file.
        state: The state of its parameters.
        manifest: How it came about; ``None`` if ``program.save`` wrote it.
    """

    path: Path
    state: dict[str, Any]
    manifest: Manifest | None

    @property
    def name(self) -> str:
        """The name that the program is made by.

        Raises:
            StateError: The file does not say it, and its state fits none of the programs, or several.
        """
        return program_of_state(self.state, str(self.path)) if self.manifest is None else self.manifest.program

    def make(self, retriever: Any = None, *, name: str | None = None) -> Solver:
        """The program.

        Args:
            retriever: What it searches; not used by programs that do not search.
            name: The name that it is made by, where the file does not say it.

        Raises:
            InputError: The program searches and there is no retriever.
            StateError: The state does not fit the program; the message names the file.
        """
        known = None if self.manifest is None else self.manifest.program
        if name is not None and known not in (None, name):
            raise StateError(f"{self.path}: holds the program {known!r} and not {name!r}; leave the name out")
        name = name or self.name
        if name in PROGRAMS and PROGRAMS[name].searches and retriever is None:
            raise InputError(f"{self.path}: the program {name!r} searches; give it an index")
        try:
            program = make_program(name, retriever)
            give_gates(program, () if self.manifest is None else self.manifest.gates)
        except (InputError, StateError) as error:
            raise StateError(f"{self.path}: {error}") from error
        load_state(program, self.state, str(self.path))
        return program


def save_program(
    program: Solver,
    path: str | Path,
    *,
    metric: str | None = None,
    train: CompiledData | Iterable[Question] | None = None,
    valid: CompiledData | Iterable[Question] | None = None,
    optimizer: str | None = None,
    options: Mapping[str, Any] | None = None,
    lm: Any = None,
    front: Iterable[ManifestPoint] = (),
    result: Mapping[str, Any] | None = None,
) -> Manifest:
    """Save a program with its gates and how it came about.

    LMs of predictors are left out: the file is for any LM.

    Args:
        program: One of hopgate's programs.
        path: The file; replaced at once, or not at all.
        metric: Name of the score that it was compiled for.
        train: The training questions, of which digests are kept.
        valid: The validation questions likewise.
        optimizer: Name of the optimizer.
        options: Its settings, as JSON values.
        lm: The LM that it was compiled with, or its name.
        front: What else could have been chosen.
        result: What it scores and takes, as JSON values.

    Returns:
        The manifest.

    Raises:
        InputError: The program is none of hopgate's, or the path cannot be written to.
        StateError: A gate or decomposer cannot be made anew from a file, or a value is no JSON.
        OSError: The file cannot be written.
    """
    target = user_path(path)
    name = describe_program(program).name if isinstance(program, Solver) else None
    if name is None or name not in PROGRAMS:
        raise InputError(
            f"a {type(program).__name__} is none of hopgate's programs ({', '.join(PROGRAMS)}), by which it could be "
            "made anew; save a solver of them, or use `program.save`"
        )
    for _, module in program.named_sub_modules():
        if (decomposer := getattr(module, "decomposer", None)) is not None:
            raise StateError(
                f"the decomposer is a {type(decomposer).__name__} of its own, which cannot be made anew from a "
                "file; choose one by the setting, or use `program.save`"
            )
    manifest = Manifest(
        program=name,
        gates=describe_gates(program),
        versions=versions(),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        metric=metric,
        train=_data(train),
        valid=_data(valid),
        optimizer=optimizer,
        options=dict(options or {}),
        lm=lm_name(lm),
        front=tuple(front),
        result=dict(result or {}),
    )
    state = program.dump_state()
    for part in state.values():
        if "lm" in part:
            part["lm"] = None
    try:
        described = json.loads(json.dumps(asdict(manifest), allow_nan=False))
        _manifest(described, target)
        metadata = {"dependency_versions": get_dependency_versions(), _MANIFEST: described}
        check_texts({**state, _MANIFEST: described}, str(target))
        text = json.dumps({**state, "metadata": metadata}, allow_nan=False, indent=1)
    except (TypeError, ValueError) as error:
        raise StateError(f"{target}: the program cannot be saved as JSON: {error}; demos must be JSON") from error
    write_atomic(target, text + "\n")
    return manifest


def read_program(path: str | Path) -> ProgramFile:
    """Read and check the file of a saved program.

    Raises:
        InputError: There is no such file.
        StateError: It is damaged, of a newer version, no program's, or not safe to load; the message names the file.
        OSError: It cannot be read.
    """
    file, record = read_json(path)
    metadata = record.get("metadata")
    given = metadata.get(_MANIFEST) if isinstance(metadata, dict) else None
    manifest = None if given is None else _manifest(given, file)
    return ProgramFile(file, checked_state(record, str(file)), manifest)


def load_program(path: str | Path, retriever: Any = None) -> Solver:
    """The program in a file that :func:`save_program` wrote, or ``program.save``.

    It answers with the LM of ``dspy.settings``, as every program does, and may stand inside a module of yours.

    Args:
        path: The file.
        retriever: An index or anything with ``search(query, k)``; not needed by programs that do not search.

    Raises:
        InputError: There is no such file, or the program searches and there is no retriever.
        StateError: The file is damaged, of a newer version, no program's, or not safe to load; the message names it.
        OSError: It cannot be read.

    Example:
        >>> program = load_program("program.json", ColBERTIndex.open("index"))  # doctest: +SKIP
    """
    return read_program(path).make(retriever)


def load_state(program: Any, state: dict[str, Any], source: str) -> None:
    """Let a program take a saved state, which must be for exactly its parameters.

    Args:
        program: The program.
        state: The state.
        source: Where it comes from, for messages.

    Raises:
        StateError: It is that of another program.
    """
    unknown = sorted(set(state) - {name for name, _ in program.named_parameters()})
    _check_gates(unknown, source)
    _check_fields(program, state, source)
    try:
        if unknown:
            raise KeyError(*unknown[:1])
        program.load_state(state)
    except StateError as error:
        raise StateError(f"{source}: {error}") from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StateError(
            f"{source}: is not the state of {type(program).__name__} ({type(error).__name__}: {error}); name the "
            "program that it was saved from with --program"
        ) from error


def program_of_state(state: dict[str, Any], source: str) -> str:
    """Name of the program that a state was saved from, told by its predictors, their fields and its settings.

    Programs that differ in settings alone are the same once the state is loaded; the first of them is named.

    Raises:
        StateError: It fits none of the programs, or several, or has gates of its own.
    """
    _check_gates(state, source)
    fitting: dict[str, list[str]] = {}
    for name in PROGRAMS:
        program = make_program(name)
        if _shape(program.dump_state()) == _shape(state) and _knows_settings(program, state):
            kinds = str([(part, type(module)) for part, module in program.named_sub_modules()])
            fitting.setdefault(kinds, []).append(name)
    if len(fitting) != 1:
        fit = "none of the programs" if not fitting else ", ".join(name for names in fitting.values() for name in names)
        raise StateError(
            f"{source}: which program it was saved from cannot be told (it fits {fit}); name it: "
            f"--program NAME --state {source}"
        )
    return next(iter(fitting.values()))[0]


def _check_gates(names: Iterable[str], source: str) -> None:
    """Refuse parameters of gates that a program does not have: a state does not say which gates they are."""
    if gates := [name for name in names if ".gate" in f".{name}"]:
        raise StateError(
            f"{source}: holds what was fitted in gates ({', '.join(gates)}) and does not say which gates they are; "
            "save the program with `save_program`, or give it such gates and load it in Python"
        )


def _check_fields(program: Any, state: dict[str, Any], source: str) -> None:
    """Refuse predictors with more or fewer fields than the program's, which DSPy would cut or pass over."""
    own, given = _shape(program.dump_state()), _shape(state)
    for name, n in own.items():
        if name in given and None not in (n, given[name]) and n != given[name]:
            raise StateError(
                f"{source}: `{name}.signature.fields` has {given[name]} fields, and that of {type(program).__name__} "
                f"{n}; is it the state of another program, or of another version?"
            )


def _manifest(given: Any, file: Path) -> Manifest:
    version = given.get("version") if isinstance(given, dict) else None
    if type(version) is bool or (isinstance(version, int) and version < 1):
        raise StateError(f"{file}: `metadata.{_MANIFEST}.version` is {version}, and versions begin at 1; save it again")
    if isinstance(version, int) and version > VERSION:
        raise StateError(
            f"{file}: the program's file has version {version} and this hopgate reads up to {VERSION}; install a newer "
            "hopgate"
        )
    try:
        return manifest_adapter().validate_json(json.dumps(given))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, ("metadata", _MANIFEST, *first["loc"])))
        raise StateError(f"{file}: `{place}`: {first['msg']}; save the program again") from error


def _data(given: CompiledData | Iterable[Question] | None) -> CompiledData | None:
    return given if given is None or isinstance(given, CompiledData) else CompiledData.of(given)


def _shape(state: dict[str, Any]) -> dict[str, int | None]:
    """Names of the parameters, and how many fields the predictors among them have."""
    shape: dict[str, int | None] = {}
    for name, part in state.items():
        signature = part.get("signature") if isinstance(part, dict) else None
        fields = signature.get("fields") if isinstance(signature, dict) else None
        shape[name] = len(fields) if isinstance(fields, list) else None
    return shape


def _knows_settings(program: Any, state: dict[str, Any]) -> bool:
    """Whether a program has all the settings of a state; an older state may lack some of the program's."""
    known = program.dump_state()
    return all(
        set(part) <= set(known[name])
        for name, part in state.items()
        if isinstance(part, dict) and "signature" not in part
    )
