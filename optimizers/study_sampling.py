"""The next parameter set of a study, as a function of its seed and of what is recorded alone.

Optuna's samplers draw from a random state that lives as long as their process, and see the failed attempts of killed
workers. Here each draw makes its own sampler, seeded from the study's seed and the number of the parameter set, and
shows it a copy of the study in memory in which every parameter set stands once. So a study that was killed and resumed
goes on as if nothing had happened, random start-up trials included.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.trial import FrozenTrial, TrialState, create_trial

from .study_spec import StudySpec

_TRIES = 5
"""Draws of the sampler before a set is drawn evenly from those that are left."""

_TELLING = ("study.study", "storages._in_memory", "storages._rdb.storage", "storages.journal._storage")
"""Modules of Optuna that log each study that is made."""


@dataclass(frozen=True)
class Proposal:
    """A parameter set to try.

    Attributes:
        parameters: A choice for each parameter.
        sampler_notes: What the sampler looks for later, such as a generation (Optuna's system attributes).
    """

    parameters: dict[str, Any]
    sampler_notes: dict[str, Any]


def default_sampler(seed: int) -> optuna.samplers.BaseSampler:
    """Optuna's tree-structured Parzen estimator, also for several objectives (Watanabe 2023, arXiv 2304.11127)."""
    return optuna.samplers.TPESampler(seed=seed)


def distributions(spec: StudySpec) -> dict[str, BaseDistribution]:
    """The space as Optuna has it."""
    return {name: CategoricalDistribution(tuple(choices)) for name, choices in spec.space.items()}


def propose(
    spec: StudySpec, known: Sequence[FrozenTrial], sampler: Callable[[int], optuna.samplers.BaseSampler]
) -> Proposal | None:
    """Draw a parameter set that is not known yet.

    Args:
        spec: The study.
        known: One trial for each known set, in their order.
        sampler: Makes a sampler from a seed.

    Returns:
        The set, or ``None`` if all sets of the space are known.
    """
    number = len(known)
    places = {spec.place(trial.params) for trial in known}
    if len(places) >= spec.size:
        return None
    if number < len(spec.first):
        return Proposal(spec.at(spec.place(spec.first[number])), {})  # 1.0 is the choice 1
    random = np.random.SeedSequence([spec.seed, number])
    copied = in_memory(spec, known, sampler(int(random.generate_state(1)[0])))
    space = distributions(spec)
    notes: dict[str, Any] = {}
    for _ in range(_TRIES):
        asked = copied.ask(space)
        drawn = copied.get_trials(deepcopy=False)[asked.number]
        notes = dict(drawn.system_attrs)
        if spec.place(drawn.params) not in places:
            return Proposal({name: drawn.params[name] for name in spec.space}, notes)
    left = int(np.random.default_rng(random).integers(spec.size - len(places)))
    for place in sorted(places):  # the left-th of those that are not known
        left += place <= left
    return Proposal(spec.at(left), notes)


def in_memory(
    spec: StudySpec, trials: Sequence[FrozenTrial], sampler: optuna.samplers.BaseSampler | None = None
) -> optuna.Study:
    """A study in memory with copies of some trials, numbered from 0."""
    with quiet():
        copied = optuna.create_study(directions=list(spec.directions), sampler=sampler)
    space = distributions(spec)
    for trial in trials:
        copied.add_trial(
            create_trial(
                state=trial.state,
                values=trial.values if trial.state is TrialState.COMPLETE else None,
                params=trial.params,
                distributions=space,
                system_attrs=trial.system_attrs,
            )
        )
    return copied


@contextmanager
def quiet() -> Iterator[None]:
    """Keep Optuna's notes of made studies off the log while the body runs; those of other threads are not touched."""
    thread = threading.get_ident()

    def passes(record: logging.LogRecord) -> bool:
        return record.levelno > logging.INFO or record.thread != thread

    with ExitStack() as stack:
        for name in _TELLING:
            logger = logging.getLogger(f"optuna.{name}")
            logger.addFilter(passes)
            stack.callback(logger.removeFilter, passes)
        yield
