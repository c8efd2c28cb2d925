"""The trials of a study in its storage: which parameter sets are known, and what became of each."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import optuna
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState, create_trial

from ..core import InputError, StateError
from .study_sampling import Proposal, distributions, in_memory, propose, quiet
from .study_spec import StudySpec
from .study_storage import Place

_SPEC = "hopgate"
_NUMBER, _WORKER, _NOTES, _REASON, _GIVEN_UP = "number", "worker", "notes", "reason", "given_up"

_MOST, _FEWEST, _WORK = 64, 8, 12_000
"""Trees of fANOVA, and how many times the choices in all times the trials they may be; this is a second or two."""


@dataclass(frozen=True)
class Attempt:
    """A parameter set that a worker evaluates.

    Attributes:
        number: Which distinct set of the study it is.
        parameters: The set.
        trial_id: Of Optuna's trial.
        sampler_notes: Optuna's system attributes.
    """

    number: int
    parameters: Mapping[str, Any]
    trial_id: int
    sampler_notes: Mapping[str, Any]


@dataclass(frozen=True)
class Known:
    """A parameter set that was given out.

    Attributes:
        number: Which distinct set of the study it is.
        trial: Optuna's trial that counts: the finished one, else the running one, else the last.
        queued: Whether nobody evaluates it though it was neither finished nor given up.
    """

    number: int
    trial: FrozenTrial
    queued: bool

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The set."""
        return self.trial.params

    @property
    def values(self) -> Sequence[float] | None:
        """One for each objective, if it is finished."""
        return self.trial.values if self.trial.state is TrialState.COMPLETE else None

    @property
    def notes(self) -> Mapping[str, Any]:
        """What was told with the values."""
        return self.trial.user_attrs.get(_NOTES, {})


class StudyRecord:
    """One study of a storage. All but making it is called while holding ``place.exclusive()``.

    Args:
        place: The storage.
        spec: What the study is about.

    Raises:
        InputError: The storage has a study of that name that differs.
    """

    def __init__(self, place: Place, spec: StudySpec) -> None:
        self.place = place
        self.spec = spec
        self._space = distributions(spec)
        with place.exclusive():
            self._id = self._opened()

    def _opened(self) -> int:
        storage, name = self.place.storage, self.spec.name
        try:
            identity = storage.get_study_id_from_name(name)
        except KeyError:
            with quiet():
                directions = [StudyDirection[direction.upper()] for direction in self.spec.directions]
                identity = storage.create_new_study(directions, name)
        recorded = storage.get_study_user_attrs(identity).get(_SPEC)
        if recorded is None and not storage.get_all_trials(identity, deepcopy=False):
            # New, or its maker was killed before the next line.
            self._check_directions(identity)
            storage.set_study_user_attr(identity, _SPEC, self.spec.record())
            return identity
        if found := self.spec.differences(recorded):
            raise self._other(found)
        self._check_directions(identity)
        return identity

    def _check_directions(self, identity: int) -> None:
        directions = tuple(each.name.lower() for each in self.place.storage.get_study_directions(identity))
        if directions != tuple(self.spec.directions):
            raise self._other([f"directions {', '.join(directions)}, now {', '.join(self.spec.directions)}"])

    def _other(self, found: list[str]) -> InputError:
        return InputError(
            f"{self.place.name}: its study {self.spec.name!r} is another one: {'; '.join(found)}; give what it was "
            "begun with, or another name or storage"
        )

    def known(self) -> list[Known]:
        """All sets that were given out, by number.

        Raises:
            StateError: Trials were added by something else.
        """
        attempts: list[list[FrozenTrial]] = []
        for trial in self.place.storage.get_all_trials(self._id, deepcopy=False):
            number = trial.user_attrs.get(_NUMBER)
            if not isinstance(number, int) or not 0 <= number <= len(attempts) or set(trial.params) != set(self._space):
                raise StateError(
                    f"{self.place.name}: trial {trial.number} of study {self.spec.name!r} was not added by hopgate; "
                    "begin another study"
                )
            if number == len(attempts):
                attempts.append([])
            attempts[number].append(trial)
        return [_known(number, trials) for number, trials in enumerate(attempts)]

    def take(self, sampler: Callable[[int], optuna.samplers.BaseSampler]) -> Attempt | None:
        """Give a set to this worker; ``None`` if all were given out."""
        known = [self._freed(each) for each in self.known()]
        for each in known:
            if each.queued:
                return self._begun(each.number, Proposal(dict(each.parameters), dict(each.trial.system_attrs)))
        proposal = propose(self.spec, [each.trial for each in known], sampler)
        return None if proposal is None else self._begun(len(known), proposal)

    def _freed(self, known: Known) -> Known:
        trial = known.trial
        if trial.state is not TrialState.RUNNING or self.place.alive(trial.user_attrs[_WORKER]):
            return known
        identity = self._trial_id(trial)
        self.place.storage.set_trial_user_attr(identity, _REASON, "its worker ended without telling a result")
        self.place.storage.set_trial_state_values(identity, TrialState.FAIL)
        return _known(known.number, [self.place.storage.get_trial(identity)])

    def _trial_id(self, trial: FrozenTrial) -> int:
        return self.place.storage.get_trial_id_from_study_id_trial_number(self._id, trial.number)

    def _begun(self, number: int, proposal: Proposal) -> Attempt:
        begun = self._new(number, proposal.parameters, proposal.sampler_notes, TrialState.RUNNING)
        return Attempt(number, proposal.parameters, begun, proposal.sampler_notes)

    def _new(
        self,
        number: int,
        parameters: Mapping[str, Any],
        sampler_notes: Mapping[str, Any],
        state: TrialState,
        values: list[float] | None = None,
        notes: Mapping[str, Any] | None = None,
    ) -> int:
        # One entry of the journal, one transaction of the database: a kill leaves all of it or nothing.
        trial = create_trial(
            state=state,
            values=values,
            params=dict(parameters),
            distributions=self._space,
            user_attrs={_NUMBER: number, _WORKER: self.place.worker} | ({} if notes is None else {_NOTES: dict(notes)}),
            system_attrs=dict(sampler_notes),
        )
        return self.place.storage.create_new_trial(self._id, trial)

    def finish(self, attempt: Attempt, values: list[float], notes: dict[str, Any]) -> None:
        """Record values, unless another worker did that for the same set."""
        if self._settled(attempt):
            return
        storage = self.place.storage
        if storage.get_trial(attempt.trial_id).state is TrialState.RUNNING:
            storage.set_trial_user_attr(attempt.trial_id, _NOTES, notes)
            storage.set_trial_state_values(attempt.trial_id, TrialState.COMPLETE, values)
        else:  # this worker was taken for dead
            self._new(
                attempt.number,
                attempt.parameters,
                attempt.sampler_notes,
                TrialState.COMPLETE,
                values=values,
                notes=notes,
            )

    def give_up(self, attempt: Attempt, reason: str) -> None:
        """Record that a set has no values, unless another worker finds them."""
        storage = self.place.storage
        if self._settled(attempt) or storage.get_trial(attempt.trial_id).state is not TrialState.RUNNING:
            return
        storage.set_trial_user_attr(attempt.trial_id, _REASON, reason)
        storage.set_trial_user_attr(attempt.trial_id, _GIVEN_UP, True)
        storage.set_trial_state_values(attempt.trial_id, TrialState.FAIL)

    def _settled(self, attempt: Attempt) -> bool:
        if self.known()[attempt.number].trial.state is not TrialState.COMPLETE:
            return False
        storage = self.place.storage
        if storage.get_trial(attempt.trial_id).state is TrialState.RUNNING:
            storage.set_trial_user_attr(attempt.trial_id, _REASON, "another worker finished the same parameters")
            storage.set_trial_state_values(attempt.trial_id, TrialState.FAIL)
        return True


def _known(number: int, trials: Sequence[FrozenTrial]) -> Known:
    for state in (TrialState.COMPLETE, TrialState.RUNNING):
        for trial in trials:
            if trial.state is state:
                return Known(number, trial, queued=False)
    given_up = [trial for trial in trials if trial.user_attrs.get(_GIVEN_UP)]
    return Known(number, (given_up or trials)[-1], queued=not given_up)


def dominated(values: Sequence[Sequence[float]], directions: Sequence[str]) -> list[bool]:
    """For each vector of values, whether another one is at least as good in each objective and better in one."""
    signs = np.array([1.0 if direction == "maximize" else -1.0 for direction in directions])
    gains = np.array(values, dtype=float).reshape(len(values), len(directions)) * signs
    return [bool((np.all(gains >= own, axis=1) & np.any(gains > own, axis=1)).any()) for own in gains]


def importances(spec: StudySpec, known: Sequence[Known]) -> dict[str, float]:
    """fANOVA of the first objective, or PED-ANOVA where that would take minutes; empty if there is nothing to explain.

    fANOVA takes a column for each choice, and its time grows with their number and that of the trials.
    """
    finished = [each.trial for each in known if each.values is not None]
    if len({trial.values[0] for trial in finished}) < 2:
        return {}
    trees = min(_MOST, _WORK // (sum(map(len, spec.space.values())) * len(finished)))
    sign = 1.0
    if trees >= _FEWEST:
        evaluator = optuna.importance.FanovaImportanceEvaluator(n_trees=trees, seed=spec.seed % (1 << 32))
    else:
        sign = -1.0 if spec.directions[0] == "maximize" else 1.0  # it takes low values for good ones
        evaluator = optuna.importance.PedAnovaImportanceEvaluator()
    with warnings.catch_warnings():  # PED-ANOVA warns of a target of one's own, whatever it is
        warnings.simplefilter("ignore")
        found = optuna.importance.get_param_importances(
            in_memory(spec, finished), evaluator=evaluator, target=lambda trial: sign * trial.values[0]
        )
    return {name: float(share) for name, share in found.items()}
