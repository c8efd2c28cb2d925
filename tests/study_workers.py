"""A scripted study, and workers of it that run in processes of their own and may be killed at a given moment."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import optuna

from hopgate.core import write_atomic
from hopgate.optimizers import FinishedTrial, SharedStudy, StudySpec, Trial

_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(  # what takes long to import, once for all workers
    [
        "hopgate.optimizers.study_postgresql",
        "hopgate.optimizers.study_record",
        "alembic.command",
        "optuna.samplers._tpe.sampler",
        "optuna.storages._rdb.models",
        "psycopg",
        "pytest",
        "sqlalchemy.dialects.postgresql.psycopg",
    ]
)

Sampler = Callable[[int], optuna.samplers.BaseSampler]

SPACE: dict[str, tuple[Any, ...]] = {"demos": (0, 1, 2, 4), "k": (1, 3, 5), "form": ("question", "keywords", None)}
TRIALS = 12


def spec(**changes: Any) -> StudySpec:
    """The scripted study, with changes."""
    given: dict[str, Any] = {
        "name": "scripted",
        "directions": ("maximize", "minimize"),
        "space": SPACE,
        "fingerprint": {"program": "active", "data": {"name": "sample", "questions": 20}},
        "seed": 11,
        "first": ({"demos": 0, "k": 3, "form": None},),
    }
    return StudySpec(**(given | changes))


def sampler(seed: int) -> optuna.samplers.BaseSampler:
    """TPE, after five random trials."""
    return optuna.samplers.TPESampler(seed=seed, n_startup_trials=5)


def values(trial: Trial) -> list[float]:
    """The scripted objectives."""
    chosen = trial.parameters
    gain = {"question": 0.2, "keywords": 0.5, None: 0.0}[chosen["form"]]
    return [chosen["demos"] * 0.7 + gain - abs(chosen["k"] - 3) / 7, chosen["demos"] + chosen["k"] / 3]


def random_sampler(seed: int) -> optuna.samplers.BaseSampler:
    """Draws that do not depend on what was found."""
    return optuna.samplers.RandomSampler(seed=seed)


def opened(storage: str | Path | None = None, sampler: Sampler = random_sampler, **changes: Any) -> SharedStudy:
    """The scripted study, with changes of its spec."""
    return SharedStudy.open(storage, spec(**changes), sampler=sampler)


def asked(study: SharedStudy) -> Trial:
    """A trial that has to be there."""
    trial = study.ask()
    if trial is None:
        raise ValueError("every parameter set was given out")
    return trial


def go_on(study: SharedStudy, trials: int) -> tuple[FinishedTrial, ...]:
    """Evaluate so many further trials; all that are finished then."""
    for _ in range(trials):
        trial = asked(study)
        study.tell(trial, values(trial))
    return study.finished()


def work(storage: str | Path | None, log: Path | None = None, *, trials: int = TRIALS, seconds: float = 0.0) -> None:
    """Evaluate until the study has as many trials; each evaluation is logged before it is told."""
    with SharedStudy.open(storage, spec(), sampler=sampler) as study:
        while len(study.finished()) < trials and (trial := study.ask()) is not None:
            if log is not None:
                with log.open("a") as file:
                    file.write(f"{os.getpid()} {trial.number} {sorted(trial.parameters.items(), key=str)}\n")
            time.sleep(seconds)
            study.tell(trial, values(trial), {"worker": "scripted", "number": trial.number})


def killed(storage: str | Path, log: Path, write: int, moment: str) -> None:
    """As :func:`work`, but killed at its ``write``-th write to the journal: before, half way, or after."""
    from optuna.storages.journal import JournalFileBackend

    append = JournalFileBackend.append_logs
    count = 0

    def appending(self: JournalFileBackend, logs: list[dict[str, Any]]) -> None:
        nonlocal count
        count += 1
        if count == write and moment == "half way":
            line = json.dumps(logs[0]).encode()
            with Path(storage).open("ab") as file:
                file.write(line[: len(line) // 2])
        if count < write or moment == "after":
            append(self, logs)
        if count == write:
            os.kill(os.getpid(), signal.SIGKILL)

    JournalFileBackend.append_logs = appending  # type: ignore[method-assign]
    work(storage, log)


def hold(storage: str | Path, asked: Path, release: Path) -> None:
    """Ask for a trial, write it down, and finish it once a file tells to."""
    with SharedStudy.open(storage, spec(), sampler=sampler) as study:
        trial = study.ask()
        if trial is None:
            return
        write_atomic(asked, json.dumps(trial.parameters))
        appears(release)
        study.tell(trial, values(trial))


def appears(path: Path, seconds: float = 60.0) -> str:
    """Wait for a file; its text. (What `multiprocessing` shares hangs when one of those who wait is killed.)"""
    end = time.monotonic() + seconds
    while not path.exists():
        if time.monotonic() > end:
            raise TimeoutError(f"{path.name} was not written")
        time.sleep(0.01)
    return path.read_text()


@contextmanager
def started(target: Callable[..., None], *arguments: Any, **options: Any) -> Iterator[Any]:
    """A process while the body runs; killed if it is still there at its end."""
    process = _processes.Process(target=target, args=arguments, kwargs=options)
    process.start()
    try:
        yield process
    finally:
        if process.is_alive():
            process.kill()
        process.join(60)


def run(target: Callable[..., None], *arguments: Any, **options: Any) -> int | None:
    """Run a process to its end; its exit code, negative for a signal."""
    with started(target, *arguments, **options) as process:
        process.join(60)
        return process.exitcode


def two_share(storage: str | Path, log: Path, *, trials: int, seconds: float) -> int:
    """Two workers share a study until it has as many trials: how many they evaluated, none of them twice."""
    with (
        started(work, storage, log, trials=trials, seconds=seconds) as one,
        started(work, storage, log, trials=trials, seconds=seconds) as other,
    ):
        one.join(60)
        other.join(60)
        assert (one.exitcode, other.exitcode) == (0, 0)
    lines = [line.split(maxsplit=2) for line in log.read_text().splitlines()]
    assert len({process for process, _, _ in lines}) == 2
    assert len({parameters for _, _, parameters in lines}) == len(lines), "the same parameters were evaluated twice"
    return len(lines)
