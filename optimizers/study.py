"""One Optuna study that several processes or machines share, that a kill does not harm, and that resumes exactly."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from ..core import InputError, StateError
from .study_spec import StudySpec, as_json

if TYPE_CHECKING:
    import optuna

    from .study_record import Attempt, StudyRecord


@dataclass(frozen=True)
class Trial:
    """A parameter set to evaluate.

    Attributes:
        number: Which distinct parameter set of the study it is, from 0. It stays the same when a killed worker's set is
            evaluated again, so seed by it whatever an evaluation draws. (Optuna's own numbers count each attempt.)
        parameters: A choice for each parameter.
    """

    number: int
    parameters: dict[str, Any]


@dataclass(frozen=True)
class FinishedTrial:
    """An evaluated parameter set.

    Attributes:
        number: As of :class:`Trial`.
        parameters: A choice for each parameter.
        values: One for each objective.
        notes: What was told with them.
    """

    number: int
    parameters: dict[str, Any]
    values: tuple[float, ...]
    notes: dict[str, Any] = field(default_factory=dict)


class SharedStudy:
    """A study in a journal file, in PostgreSQL or in memory; open it with :meth:`open`, close it or use `with`.

    A worker may use it from several threads. Nothing is pickled: what is recorded is Optuna's journal or its tables,
    and its dashboard shows them.
    """

    def __init__(self, record: StudyRecord, sampler: Callable[[int], optuna.samplers.BaseSampler]) -> None:
        self._record = record
        self._sampler = sampler
        self._held: dict[int, Attempt] = {}
        self._closed = False

    @classmethod
    def open(
        cls,
        storage: str | Path | None,
        spec: StudySpec,
        *,
        sampler: Callable[[int], optuna.samplers.BaseSampler] | None = None,
        stale_after: float = 60.0,
    ) -> SharedStudy:
        """Open a study, or begin it where the storage has none of that name.

        Args:
            storage: A path of a journal file, a ``postgresql://`` URL, or ``None`` for memory.
            spec: What the study is about.
            sampler: Makes a sampler from a seed; one is made for each trial. Optuna's TPE by default.
            stale_after: Seconds after which a worker whose machine is gone counts as dead (PostgreSQL; a worker whose
                process ended is known to be dead at once).

        Raises:
            HopgateError: Another process keeps the storage locked.
            InputError: The storage cannot be used, or has a study of that name that differs from the spec.
            MissingDependencyError: PostgreSQL's driver is not installed.
            StateError: The journal is damaged.
        """
        number = isinstance(stale_after, int | float) and not isinstance(stale_after, bool)
        if not number or not 0 < stale_after < math.inf:
            raise InputError(f"`stale_after` must be a positive number of seconds, got {stale_after!r:.60}")
        if not isinstance(spec, StudySpec):
            raise InputError(f"`spec` must be a StudySpec, got a {type(spec).__name__}")
        from .study_record import StudyRecord
        from .study_sampling import default_sampler
        from .study_storage import place_of

        place = place_of(storage, stale_after)
        try:
            return cls(StudyRecord(place, spec), sampler or default_sampler)
        except BaseException:
            place.close()
            raise

    @property
    def spec(self) -> StudySpec:
        """What the study is about."""
        return self._record.spec

    @property
    def storage(self) -> str:
        """Where it is kept, without passwords."""
        return self._record.place.name

    def __repr__(self) -> str:
        return f"SharedStudy({self.spec.name!r} at {self.storage})"

    def ask(self) -> Trial | None:
        """The next parameter set: first those of workers that died over them, then a new one of the sampler.

        Returns:
            A set that nobody has evaluated and nobody evaluates now; ``None`` once every set of the space was given
            out (another worker may still be evaluating one).

        Raises:
            HopgateError: The storage cannot be used any more.
        """
        with self._exclusive():
            attempt = self._record.take(self._sampler)
            if attempt is None:
                return None
            self._held[attempt.number] = attempt
            return Trial(attempt.number, self._ordered(attempt.parameters))

    def _ordered(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        return {name: parameters[name] for name in self.spec.space}  # storages have orders of their own

    def tell(self, trial: Trial, values: Sequence[float], notes: Mapping[str, Any] | None = None) -> None:
        """Record the values of a trial.

        Where the connection to the database was lost so long that another worker finished the same set, the values of
        that one stay.

        Args:
            trial: What :meth:`ask` gave to this worker.
            values: One for each objective.
            notes: More about it: JSON.

        Raises:
            HopgateError: The storage cannot be used any more.
            InputError: A value is not a finite number, their count is not that of the objectives, the notes are not
                JSON, or the trial is not one that this worker asked for and did not tell yet.
        """
        numbers = self._checked(trial, values)
        try:
            kept = as_json(dict(notes or {}))
        except (TypeError, ValueError, RecursionError) as error:
            raise InputError(
                f"study {self.spec.name}, trial {trial.number}: the notes must be JSON: {error}"
            ) from error
        with self._exclusive():
            self._record.finish(self._mine(trial), numbers, kept)
            del self._held[trial.number]

    def _checked(self, trial: Trial, values: Sequence[float]) -> list[float]:
        where = f"study {self.spec.name}, trial {self._asked(trial).number}"
        if isinstance(values, str) or not hasattr(values, "__len__"):
            raise InputError(
                f"{where}: `values` takes a list with a number for each objective, got a {type(values).__name__}"
            )
        if len(values) != len(self.spec.directions):
            raise InputError(f"{where}: {len(values)} values for {len(self.spec.directions)} objectives")
        for place, value in enumerate(values):
            try:
                usable = math.isfinite(value)
            except OverflowError:
                raise InputError(f"{where}: value {place + 1} is a whole number beyond all floats") from None
            except TypeError:
                usable = False
            if not usable:
                raise InputError(f"{where}: value {place + 1} must be a finite number, got {value!r:.60}")
        return [float(value) for value in values]

    def _asked(self, trial: Trial) -> Trial:
        if not isinstance(trial, Trial):
            raise InputError(f"study {self.spec.name}: a trial is what ask() gives, got a {type(trial).__name__}")
        return trial

    def _mine(self, trial: Trial) -> Attempt:
        attempt = self._held.get(trial.number)
        if attempt is None:
            raise InputError(
                f"study {self.spec.name}, trial {trial.number}: this worker did not ask for it, or has told it already"
            )
        return attempt

    def give_up(self, trial: Trial, reason: str) -> None:
        """Record that a trial has no values; its parameters are not asked again in this study.

        Leave a trial untold instead, and close the study, if it failed through no fault of its parameters: then the
        next worker that asks evaluates it.

        Raises:
            HopgateError: The storage cannot be used any more.
            InputError: The trial is not one that this worker asked for and did not tell yet, or the reason is no text.
        """
        if not isinstance(reason, str):
            where = f"study {self.spec.name}, trial {self._asked(trial).number}"
            raise InputError(f"{where}: the `reason` must be a text, got a {type(reason).__name__}")
        self._asked(trial)
        with self._exclusive():
            self._record.give_up(self._mine(trial), reason)
            del self._held[trial.number]

    def finished(self) -> tuple[FinishedTrial, ...]:
        """The trials with values, of all workers, by number."""
        with self._exclusive():
            return tuple(
                FinishedTrial(known.number, self._ordered(known.parameters), tuple(known.values), dict(known.notes))
                for known in self._record.known()
                if known.values is not None
            )

    def front(self) -> tuple[FinishedTrial, ...]:
        """The finished trials that no other one dominates, by number; of one objective, all of its best value."""
        from .study_record import dominated

        finished = self.finished()
        worse = dominated([trial.values for trial in finished], self.spec.directions)
        return tuple(trial for trial, out in zip(finished, worse, strict=True) if not out)

    def importances(self) -> dict[str, float]:
        """The share of each parameter in what makes the first objective differ, the largest first.

        It is the share in its variance (fANOVA, Hutter et al. 2014), or, where there are too many choices and trials
        for that, in what tells its best tenth from the others (PED-ANOVA, Watanabe et al. 2023). Empty where there are
        fewer than two finished trials, or all have the same value.
        """
        from .study_record import importances

        with self._exclusive():
            return importances(self.spec, self._record.known())

    @property
    def worker(self) -> str:
        """The id of this worker, another one each time that a study is opened."""
        return self._record.place.worker

    def _exclusive(self) -> Any:
        if self._closed:
            raise StateError(f"study {self.spec.name}: is closed; open it again")
        return self._record.place.exclusive()

    def close(self) -> None:
        """Leave the study. Trials that this worker asked for and did not tell are given to the next one that asks."""
        if self._closed:
            return
        self._closed = True
        # Nothing is recorded: the trials count as those of a dead worker as soon as the lock is free.
        self._record.place.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
