"""One Optuna study that several processes or machines share, that a kill does not harm, and that resumes exactly."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

if TYPE_CHECKING:
    import optuna


@dataclass(frozen=True)
class StudySpec:
    """What a study is about; workers that share it give the same.

    Attributes:
        name: The study's name in its storage.
        directions: For each objective, whether more or less is better.
        space: The choices of each (categorical) parameter: JSON scalars, all different.
        fingerprint: What the trials mean (program, digest of the data, metric, versions): JSON.
        seed: Of the sampler.
        first: Parameter sets that are evaluated before the sampler is asked, such as the unchanged program.
    """

    name: str
    directions: tuple[Literal["maximize", "minimize"], ...]
    space: Mapping[str, tuple[Any, ...]]
    fingerprint: Mapping[str, Any]
    seed: int = 0
    first: tuple[Mapping[str, Any], ...] = ()


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
    """A study in a journal file, in PostgreSQL or in memory; open it with :meth:`open`, close it or use `with`."""

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
            stale_after: Seconds after which a worker whose machine is gone counts as dead (PostgreSQL).

        Raises:
            InputError: The spec cannot be used, or the storage has a study of that name that differs from it.
            StateError: The journal is damaged.
            MissingDependencyError: PostgreSQL's driver is not installed.
        """
        raise NotImplementedError

    def ask(self) -> Trial | None:
        """The next parameter set: first those of workers that died over them, then a new one of the sampler.

        Returns:
            A set that nobody evaluated or evaluates; ``None`` once every set of the space was given out.
        """
        raise NotImplementedError

    def tell(self, trial: Trial, values: Sequence[float], notes: Mapping[str, Any]) -> None:
        """Record the values of a trial, with notes (JSON).

        Raises:
            InputError: A value is not a finite number, their count is not that of the objectives, or a note is not JSON.
        """
        raise NotImplementedError

    def give_up(self, trial: Trial, reason: str) -> None:
        """Record that a trial has no values; its parameters are not asked again in this study."""
        raise NotImplementedError

    def finished(self) -> tuple[FinishedTrial, ...]:
        """The trials with values, by number."""
        raise NotImplementedError

    def front(self) -> tuple[FinishedTrial, ...]:
        """The finished trials that no other one dominates, by number."""
        raise NotImplementedError

    def importances(self) -> dict[str, float]:
        """The share of each parameter in the variance of the first objective; empty where there are too few trials."""
        raise NotImplementedError

    def close(self) -> None:
        """Leave the study. Trials that this worker asked for and did not tell are given to the next one that asks."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
