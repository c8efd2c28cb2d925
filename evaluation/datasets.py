"""Data sets of multi-hop questions: by name from the Hugging Face hub, from files, and the bundled sample.

The names: ``hotpotqa`` (Yang et al. 2018), ``2wikimultihopqa`` (Ho et al. 2020), ``musique`` (Trivedi et al. 2022),
``bamboogle`` (Press et al. 2023), and ``sample``, which is bundled and needs no network.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, cast

from ..core import InputError, user_path
from .dataset_files import Located, one_line, read_records
from .dataset_formats import parser_of
from .questions import Question, QuestionSet, Step, draw
from .sample import SampleQuestion, Split, sample_questions

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class HubSource:
    """Where the hub has a data set.

    Attributes:
        repository: Its repository. Those of 2WikiMultiHopQA, MuSiQue and Bamboogle are copies by third parties.
        split: The split that is taken by default, which has public answers.
        configs: Its configurations, the default one first.
    """

    repository: str
    split: str
    configs: tuple[str, ...] = ()


HUB = {
    "hotpotqa": HubSource("hotpotqa/hotpot_qa", "validation", ("distractor", "fullwiki")),
    "2wikimultihopqa": HubSource("framolfese/2WikiMultihopQA", "validation"),
    "musique": HubSource("bdsaglam/musique", "validation", ("answerable", "full")),
    "bamboogle": HubSource("chiayewken/bamboogle", "test"),
}
"""The data sets that are known by name."""

SAMPLE = "sample"
_FILES = ("questions.jsonl", "questions.json", "questions.csv")


def load_questions(
    source: str | Path,
    *,
    split: str | None = None,
    sample: int | None = None,
    seed: int = 0,
    name: str | None = None,
    config: str | None = None,
) -> QuestionSet:
    """Load the questions of a data set.

    Args:
        source: ``hotpotqa``, ``2wikimultihopqa``, ``musique``, ``bamboogle`` (from the Hugging Face hub, none of whose
            code is run) or ``sample``; or the path of a file as the data set's authors publish it or in the simple form
            (JSON, JSON Lines or CSV, told by their content; see :mod:`~hopgate.evaluation.dataset_formats`), or of a
            folder with a ``questions.jsonl``. A path that is also a name is written ``./hotpotqa``.
        split: The split; by default the one of the hub that has public answers, and both of the sample. Records of a
            file are chosen by their field ``split``.
        sample: How many questions to draw; by default all.
        seed: What to draw with; the same seed draws the same questions, in the order of the source.
        name: What the set is called in records; by default the source's name, or that of its file or folder.
        config: Configuration on the hub: ``distractor`` (the default) or ``fullwiki`` for HotpotQA, ``answerable`` (the
            default) or ``full`` for MuSiQue.

    Returns:
        The questions. In MuSiQue-Full, where questions come in pairs of one id, the second of a pair gets
        ``:answerable`` or ``:unanswerable`` behind it.

    Raises:
        InputError: An argument has no possible value; the source is missing, empty or cannot be read; a record lacks a
            field or has a wrong one; or an id occurs twice. The message names the file and line.
    """
    if sample is not None and (isinstance(sample, bool) or not isinstance(sample, int) or sample < 1):
        raise InputError(f"sample must be a positive number of questions, got {sample!r:.80}")
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise InputError(f"seed must be a whole number, got {seed!r:.80}")
    known = source.lower() if isinstance(source, str) else None
    if known == SAMPLE:
        _no_config(config, SAMPLE)
        found, default = _sample(split), SAMPLE
    elif known in HUB:
        hub = HUB[known]
        split = hub.split if split is None else split
        config = _config(known, config)
        found, default = _from_hub(hub.repository, config, split), known if config is None else f"{known}-{config}"
    else:
        path = _file(source)
        _no_config(config, str(source))
        found = _parsed(str(path), _of_split(path, read_records(path), split))
        default = path.resolve().parent.name if path.name in _FILES else path.name.partition(".")[0]
    drawn = tuple(draw(found, sample, seed))
    drawn_seed = None if sample is None else seed
    return QuestionSet(drawn, name=name or default, split=split, sample=sample, seed=drawn_seed)


def _no_config(config: str | None, source: str) -> None:
    if config is not None:
        raise InputError(f"{source:.200}: has no configurations; leave config={config!r:.80} out")


def _config(known: str, config: str | None) -> str | None:
    configs = HUB[known].configs
    if not configs:
        _no_config(config, known)
        return None
    if config is not None and config not in configs:
        raise InputError(f"{known}: config must be {' or '.join(configs)}, got {config!r:.80}")
    return config or configs[0]


# --- files ------------------------------------------------------------------------------------------------------------


def _file(source: str | Path) -> Path:
    path = user_path(source)
    try:
        if path.is_dir():
            inside = next((path / file for file in _FILES if (path / file).is_file()), None)
            if inside is None:
                raise InputError(f"{path}: a folder without {' or '.join(_FILES)}; name the file with the questions")
            return inside
        exists = path.exists()
    except OSError:  # a name that is too long
        exists = False
    if not exists:
        names = ", ".join([*HUB, SAMPLE])
        raise InputError(f"{source!s:.200}: no such file, and no data set of that name; the names are {names}")
    return path


def _of_split(path: Path, records: Located, split: str | None) -> Located:
    if split is None:
        yield from records
        return
    seen: dict[str, None] = {}
    matched = False
    for where, record in records:
        of = record.get("split")
        if not isinstance(of, str):
            raise InputError(f"{where}: has no `split` to choose {split!r:.80} by; leave the split out")
        seen[of] = None
        if of == split:
            matched = True
            yield where, record
    if not matched:
        raise InputError(f"{path}: no question of the split {split!r:.80}; there are {', '.join(seen)[:200]}")


def _parsed(source: str, records: Iterable[tuple[str, Any]]) -> Iterator[Question]:
    """The questions of records of one form, with unique ids."""
    rest = iter(records)
    first = next(rest, None)
    if first is None:
        raise InputError(f"{source}: holds no questions; give a source with at least one")
    parse, told = None, False
    places: dict[str, tuple[str, bool]] = {}
    for number, (where, record) in enumerate(chain([first], rest), start=1):
        try:
            parse = parse or parser_of(record)
            question = parse(record, number)
        except InputError as error:
            raise InputError(f"{where}: {error}") from error
        before = places.get(question.id)
        if before is not None and before[1] != question.answerable:
            question = replace(question, id=f"{question.id}:{'' if question.answerable else 'un'}answerable")
            before = places.get(question.id)
        if before is not None:
            raise InputError(f"{where}: the id {question.id!r:.80} is that of {before[0]} too; make the ids unique")
        places[question.id] = (where, question.answerable)
        if not told and _looks_like_several(record.get("answers")):
            told = True
            _LOG.warning(
                '%s: %r counts as one answer; several are given as a JSON list: ["Rome", "Roma"]',
                where,
                record["answers"][:80],
            )
        yield question


def _looks_like_several(answers: Any) -> bool:
    return isinstance(answers, str) and not answers.lstrip().startswith("[") and re.search("[;|]", answers) is not None


# --- the hub ----------------------------------------------------------------------------------------------------------


def _from_hub(repository: str, config: str | None, split: str) -> Iterator[Question]:
    from huggingface_hub import constants

    from ..core.hub import hub_answers

    # Its own retries take minutes. Where it is told to be offline, what was fetched before is used.
    if not constants.HF_HUB_OFFLINE and not hub_answers():
        raise InputError(
            f"{repository}: the Hugging Face hub cannot be reached; connect to the network, set HF_HUB_OFFLINE=1 to "
            "use what was fetched before, or give the path of the data set's file"
        )
    import datasets

    try:
        # Not streamed: it is kept, so that later runs need no network.
        table = cast(Any, datasets.load_dataset(repository, config, split=split))
    except Exception as error:  # errors of the hub, of HTTP, of many file formats
        raise InputError(
            f"{repository}: the split {split!r:.80} cannot be read from the Hugging Face hub ({one_line(error)}); "
            "correct the split, or give the path of the data set's file"
        ) from error
    where = f"{repository} ({split})"
    yield from _parsed(where, ((f"{where}: row {row}", record) for row, record in enumerate(table)))


# --- the bundled sample -----------------------------------------------------------------------------------------------


def _sample(split: str | None) -> list[Question]:
    return [_from_sample(question) for question in sample_questions(cast("Split | None", split))]


def _from_sample(question: SampleQuestion) -> Question:
    # The last step of a comparison is computed and has no passage.
    ids = [*question.supporting_ids, *[None] * len(question.decomposition)]
    steps = zip(question.decomposition, ids, strict=False)
    return Question(
        id=question.id,
        question=question.question,
        answers=question.answers,
        type=question.type,
        hops=question.hops,
        supporting_ids=question.supporting_ids,
        decomposition=tuple(Step(step.question, step.answer, support) for step, support in steps),
    )
