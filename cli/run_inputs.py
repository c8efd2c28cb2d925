"""What ``hopgate evaluate`` works with: program, questions and LM, from its options or from a recorded run."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from .programs import NAMES, SEARCHING, check_index, is_file, named_values, open_index
from .terminal import note

if TYPE_CHECKING:
    from ..evaluation.questions import Question, QuestionSet
    from ..evaluation.records import DataHeader, RunHeader


def rows_option(context: click.Context, parameter: click.Parameter, value: str | None) -> tuple[int, int] | None:
    """Callback of ``--rows``: the first and the last question."""
    if value is None:
        return None
    first, separator, last = value.partition(":")
    if not separator or not first.isdecimal() or not last.isdecimal() or not 1 <= int(first) <= int(last):
        raise click.BadParameter(f"{value!r} is not A:B with 1 <= A <= B, such as 61:150")
    return int(first), int(last)


@dataclass(frozen=True, slots=True)
class Made:
    """A program, and what its state was loaded from."""

    program: Any
    state_file: str | None


def program_of(
    name: str | None, state: str | None, settings: tuple[str, ...], where: str | None, checkpoint: str | None
) -> Made:
    """The program that the command line names.

    Args:
        name: Its name, or the file that it was saved in; ``None`` for the default.
        state: The file that it was saved in.
        settings: Settings as ``name=value``, which go before those of the state.
        where: The index folder, or the address of an index server.
        checkpoint: The folder of the index's checkpoint, if it was made with a local one.

    Raises:
        HopgateError: It cannot be made.
    """
    from ..core import InputError, sha256_file
    from ..optimizers.compiled import read_program
    from ..programs.registry import make_program

    values = named_values(settings)
    if name is not None and is_file(name):
        if state is not None:
            raise InputError(f"--program {name} and --state {state} both name a saved program; leave one of them out")
        name, state = None, name
    if name is not None and name not in NAMES:
        raise InputError(
            f"--program {name or repr(name)}: there are {', '.join(NAMES)}, or the file of a saved program"
        )
    saved = None if state is None else read_program(state)
    name = name or ("active" if saved is None else saved.name)
    index = None
    if name in SEARCHING:
        check_index(where, name)
        index = open_index(str(where), checkpoint)
    elif where is not None and name in NAMES:
        note(f"Note: --program {name} does not search, and leaves the index alone.")
    program = make_program(name, index) if saved is None else saved.make(index, name=name)
    program.settings.update(**values)
    return Made(program, None if saved is None else sha256_file(saved.path))


def recorded_program(
    old: RunHeader, name: str | None, state: str | None, where: str | None, checkpoint: str | None
) -> Made:
    """The program of a recorded run.

    Args:
        old: The run's header.
        name: The name or state file that was given, if one was; it must be the run's.
        state: The file of a saved state.
        where: The index folder, or the address of an index server.
        checkpoint: The folder of the index's checkpoint, if it was made with a local one.

    Raises:
        HopgateError: It cannot be made from the header and what was named.
    """
    from ..core import InputError
    from ..optimizers.compiled import load_state
    from ..optimizers.compiled_state import checked_state

    recorded = old.program
    if name is not None and is_file(name):
        name, state = None, name
    if recorded.name not in NAMES or name not in (None, recorded.name):
        raise InputError(
            f"the run was made with the program {recorded.name!r}; name it, or leave --program out"
            if recorded.name in NAMES
            else f"the run was made with {recorded.name!r}, which is none of {', '.join(NAMES)}; repeat it in Python, "
            "with evaluate(..., same_as=read_header(RUN))"
        )
    if old.index is not None and where is None:
        raise InputError(
            f"the run searched an index of {old.index.passages or 'unknown'} passages (corpus "
            f"{old.index.corpus_fingerprint}, checkpoint {old.index.checkpoint}); name it with --index"
        )
    if state is not None or recorded.state_sha256 is None:
        settings = tuple(f"{setting}={json.dumps(value)}" for setting, value in recorded.settings.items())
        return program_of(recorded.name, state, settings, where, checkpoint)
    if recorded.state is None:
        raise InputError(
            "the run's program has demos or worked examples, which a run file does not hold; name the file of its "
            "saved state with --state"
        )
    if any("gate" in parameter for parameter in recorded.state):
        raise InputError(
            "the run's program has gates of its own, of which a run file holds only what was fitted; name the file "
            "that the program was saved in with --state"
        )
    made = program_of(recorded.name, None, (), where, checkpoint)
    load_state(made.program, checked_state(recorded.state, "the run's header"), "the run's header")
    return made


def questions_of(
    source: str,
    split: str | None,
    config: str | None,
    sample: int | None,
    seed: int,
    first: int | None,
    rows: tuple[int, int] | None,
) -> tuple[list[Question], DataHeader]:
    """The questions that the command line names, and their manifest.

    Args:
        source: Name or path of the data set.
        split: Its split.
        config: Its configuration on the hub.
        sample: How many to draw.
        seed: What to draw with.
        first: How many to take from the beginning.
        rows: The first and the last to take, counted from 1.

    Raises:
        InputError: There are none, or the source cannot be read.
    """
    from ..core import InputError
    from ..evaluation.datasets import load_questions
    from ..evaluation.records import DataHeader

    found = load_questions(source, split=split, config=config, sample=sample, seed=seed)
    start, end = (1, first or len(found)) if rows is None else rows
    if start > len(found):
        raise InputError(f"--rows {start}:{end}: {source} has {len(found):,} questions")
    chosen = list(found[start - 1 : end])
    manifest = DataHeader(found.name, found.split, found.seed, found.sample, tuple(q.id for q in chosen))
    return chosen, manifest


def recorded_questions(
    old: RunHeader, source: str | None, split: str | None, config: str | None
) -> tuple[list[Question], DataHeader]:
    """The questions of a recorded run, in their order, and their manifest.

    Args:
        old: The run's header.
        source: Name or path of the data set, if the header's name alone does not find it.
        split: Its split, if it is not the one of the header.
        config: Its configuration on the hub.

    Raises:
        InputError: Not all of them can be found, or they have other texts or gold answers.
    """
    from ..core import InputError
    from ..evaluation.datasets import load_questions
    from ..evaluation.question_digest import check_questions

    data = old.data
    known: QuestionSet = (
        _by_name(data) if source is None else load_questions(source, split=split or data.split, config=config)
    )
    by_id = {question.id: question for question in known}
    lost = [identity for identity in data.ids if identity not in by_id]
    if lost:
        raise InputError(
            f"{len(lost):,} of the run's {len(data.ids):,} questions are not in {known.name} (the first is "
            f"{lost[0]!r}); name the questions that it was made with"
        )
    chosen = [by_id[identity] for identity in data.ids]
    check_questions(data, chosen, old.name)
    return chosen, data


def _by_name(data: DataHeader) -> QuestionSet:
    from ..core import InputError
    from ..evaluation.datasets import HUB, load_questions

    for name in ("sample", *HUB):
        if data.name == name or data.name.startswith(f"{name}-"):
            return load_questions(name, split=data.split, config=data.name[len(name) + 1 :] or None)
    raise InputError(f"the run was made with {len(data.ids):,} questions of {data.name!r}; name their file: QUESTIONS")


def lm_of(model: str | None, options: tuple[str, ...], cache: bool) -> Any:
    """The LM that the command line declares."""
    from ..lms import DEFAULT_MODEL, lm_from_config

    return lm_from_config({"model": model or DEFAULT_MODEL, "cache": cache, **named_values(options)})


def recorded_lm(old: RunHeader, model: str | None) -> Any:
    """The LM of a recorded run; ``model`` says where it is, if its name alone does not."""
    from ..lms import lm_from_config

    recorded = str(old.lm["model"])
    if recorded.startswith("embedded/"):
        # What follows the name is the digest of the weights, which the LM adds by itself.
        recorded = recorded.partition("@")[0]
    # As many threads as this machine has, whatever the other one had.
    options = {name: value for name, value in old.lm.items() if name != "threads"}
    return lm_from_config({**options, "model": model or recorded})
