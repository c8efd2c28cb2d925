"""Recorded runs side by side: the questions that all of them answered, in one order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core import InputError
from ..core.texts import counted
from .records import Run, read_run
from .run_schema import RunHeader, RunRecord
from .trajectory_schema import LARGEST


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """One run under a name that tells it from the others.

    Attributes:
        name: The run's name, unique among those that are compared.
        header: What is needed to know the run.
        records: One record for each question id, failures included.
    """

    name: str
    header: RunHeader
    records: Mapping[str, RunRecord]

    @property
    def answered(self) -> set[str]:
        """Ids of the questions that got an answer, right or wrong."""
        return {key for key, record in self.records.items() if record.status == "ok"}

    @property
    def failed(self) -> int:
        """Questions that ended in an error."""
        return len(self.records) - len(self.answered)

    @property
    def program(self) -> str | None:
        """Name of the program, if it has one."""
        return self.header.program.name

    @property
    def settings(self) -> Mapping[str, Any]:
        """The program's settings."""
        return self.header.program.settings

    @property
    def lm(self) -> str | None:
        """Name of the LM."""
        return _text(self.header.lm.get("model"))

    @property
    def gate(self) -> str | None:
        """``threshold``, ``always`` or ``never``; ``None`` for programs without a gate."""
        return _text(self.settings.get("gate"))

    @property
    def tau(self) -> float | None:
        """The threshold on a draft's mean log-probability, in nats, where the gate is one."""
        tau = self.settings.get("tau")
        # Programs of users may have settings of any kind.
        if self.gate != "threshold" or not isinstance(tau, int | float) or not -LARGEST <= tau <= LARGEST:
            return None
        return float(tau)


@dataclass(frozen=True, slots=True)
class AlignedRuns:
    """Runs and the questions that they have in common.

    Attributes:
        runs: The runs, in the order given.
        ids: Questions that every run answered, sorted.
        dropped: For each run, how many questions it answered and another run did not; they are not compared.
        notes: What a reader of the comparison must know, in sentences.
    """

    runs: tuple[RecordedRun, ...]
    ids: tuple[str, ...]
    dropped: Mapping[str, int]
    notes: tuple[str, ...]

    def rows(self, run: RecordedRun) -> list[RunRecord]:
        """The run's records of the common questions, in their order."""
        return [run.records[key] for key in self.ids]

    def score(self, run: RecordedRun, metric: str) -> list[float]:
        """The run's values of a metric, a field of :class:`~hopgate.evaluation.run_schema.Scores` that is never
        unknown, on the common questions."""
        return [float(getattr(record.scores, metric)) for record in self.rows(run)]

    def cost(self, run: RecordedRun, field: str) -> list[float | None]:
        """One field of the run's cost on the common questions; ``None`` where it is not known."""
        return [getattr(record.cost, field) for record in self.rows(run)]

    def retrievals(self, run: RecordedRun) -> list[float]:
        """Retrievals of each common question."""
        return [float(record.cost.retrievals) for record in self.rows(run)]

    def facet(self, name: str) -> list[Any]:
        """``hops`` or ``type`` of each common question, from the first run that has it; ``None`` where none has."""
        return [
            next((value for run in self.runs if (value := getattr(run.records[key], name)) is not None), None)
            for key in self.ids
        ]


def read_runs(paths: Iterable[str | Path]) -> list[RecordedRun]:
    """Read run files, see :func:`~hopgate.evaluation.records.read_run` and :func:`name_runs`."""
    return name_runs([read_run(path) for path in paths])


def name_runs(runs: Iterable[Run | RecordedRun]) -> list[RecordedRun]:
    """Give each run a name of its own: the one in its header, or where two runs would share one, all their files'.

    Runs that were not read from a file keep the name in their header, and those that are named already keep theirs.

    Raises:
        InputError: Two runs cannot be told apart.
    """
    given = list(runs)
    by_header = len({run.header.name for run in given}) == len(given)
    found: list[RecordedRun] = []
    for run in given:
        if isinstance(run, RecordedRun):
            found.append(run)
            continue
        name = run.header.name if by_header or run.path is None else run.path.stem
        found.append(RecordedRun(name, run.header, run.by_id))
    twice = [name for name, count in Counter(run.name for run in found).items() if count > 1]
    if twice:
        raise InputError(f"two runs are called {twice[0]!r}, and so are their files; rename one of the files")
    return found


def align(runs: Sequence[Run | RecordedRun]) -> AlignedRuns:
    """The questions that all runs answered.

    Failures are no answers: a question that failed in one run is compared in none, and is counted.

    Raises:
        InputError: There is no run, no question is common to all, or the runs were scored in different normalisations.
    """
    if not runs:
        raise InputError("no run to compare; name at least one run file")
    given = name_runs(runs)
    forms = {run.header.normalisation for run in given}
    if len(forms) > 1:
        raise InputError(
            f"the runs were scored in different normalisations ({', '.join(sorted(forms))}), which cannot be "
            "compared; evaluate one of them again with the other's"
        )
    common = set.intersection(*(run.answered for run in given))
    if not common:
        raise InputError(
            "no question was answered by all runs "
            f"({', '.join(f'{run.name}: {len(run.answered)} answered' for run in given)}); compare runs of one data set"
        )
    dropped = {run.name: len(run.answered) - len(common) for run in given}
    return AlignedRuns(tuple(given), tuple(sorted(common)), dropped, tuple(_notes(given, common, dropped)))


def _notes(runs: Sequence[RecordedRun], common: set[str], dropped: Mapping[str, int]) -> Iterable[str]:
    if len(runs) > 1:
        yield f"Only questions that every run answered are compared: {len(common):,}."
    for run in runs:
        if dropped[run.name]:
            lost = counted(dropped[run.name], "answered question")
            yield f"{run.name}: {lost} fell away, since another run has no answer."
        if run.failed:
            apart = "it is counted apart and is no wrong answer"
            if run.failed > 1:
                apart = "they are counted apart and are not wrong answers"
            yield f"{run.name}: {counted(run.failed, 'question')} failed; {apart}."
        missing = len(set(run.header.data.ids) - set(run.records))
        if missing:
            are = f"{counted(missing, 'question')} of its data {'is' if missing == 1 else 'are'}"
            yield f"{run.name}: {are} not in the file; the run is not finished."
    digests: dict[frozenset[str], set[str]] = {}
    for run in runs:
        if run.header.data.questions_sha256 is not None:
            digests.setdefault(frozenset(run.header.data.ids), set()).add(run.header.data.questions_sha256)
    if any(len(found) > 1 for found in digests.values()):
        yield "The runs have other questions or gold answers under the same ids; they cannot be compared as they are."
    for what, values in (("data sets", [_data(run) for run in runs]), ("LMs", [str(run.lm) for run in runs])):
        different = list(dict.fromkeys(values))
        if len(different) > 1:
            yield f"The runs are of different {what}: {', '.join(different)}."


def _data(run: RecordedRun) -> str:
    data = run.header.data
    return " ".join(filter(None, (data.name, data.split))) or "unnamed"


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
