"""Dr3: an answer that does not fit the question is corrected, or the best one found on the way is kept.

A discriminator judges the solver's answer. If it is off-topic, the trajectory is revised from its end to its beginning,
each attempt judged anew (Gao et al. 2024, Dr3, section 3.3):

- Re-Compose composes again, with a hint that names the rejected answer;
- Re-Solve takes the hops from the last to the first, puts passages of lower ranks in place of a hop's own, and goes on
  from there; a hop that was answered without a search is searched first;
- Re-Decompose begins anew and is told which plan failed.

Every attempt starts from the original trajectory, so no prompt grows from one attempt into the next.

::

    solver ─► discriminator ─ on-topic ─► answer
                 │ off-topic
                 ├─► Re-Compose:    hint, compose ───────────────────────► discriminator
                 ├─► Re-Solve:      [search], lower ranks, read, go on ──► discriminator    (hop by hop, page by page)
                 └─► Re-Decompose:  other plan, solver ──────────────────► discriminator
                 │ none passes
                 ▼
               the best answer so far
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import dspy

from ..core import InputError
from .corrector import Correction, Dr3Settings
from .discriminator import Discriminator
from .requests import Ran, Reached, Run, Steps
from .settings import ProgramSettings, Settings, validated
from .solver import Solver, accept
from .trajectory import Trajectory

_SHARED = frozenset(ProgramSettings.model_fields)


class Dr3(Solver):
    """Correct a solver's off-topic answers.

    The prediction has also the ``verdict`` on the answer and its ``probability`` of being on-topic. All attempts are in
    the trajectory's ``revisions``, that of the answer with ``kept`` set. An attempt that fails ends the correction with
    the best answer so far; its record has the ``error``.

    Teleprompters see only the calls of the run whose answer is returned, from where it was resumed, and no judgements:
    accepted answers have verdicts of one kind, so a discriminator is compiled on its own.

    Args:
        solver: Any solver that can be resumed. A compiled one is no longer frozen.
        discriminator: A module that takes ``question`` and ``answer`` and returns ``verdict`` (``on_topic``,
            ``off_topic`` or ``undecided``) and perhaps ``probability``; a new :class:`Discriminator` if not given.
        **settings: See :class:`Dr3Settings`. Other names are settings of the solver, or else of the discriminator;
            ``settings.update`` takes them too.

    Raises:
        InputError: The solver is no :class:`Solver`, the discriminator no module, or a setting is unknown.

    Example:
        >>> Dr3(ReActPlus(index), resolve_depth=6)(question="...").verdict  # doctest: +SKIP
        'on_topic'
    """

    def __init__(self, solver: Solver, discriminator: dspy.Module | None = None, **settings: Any) -> None:
        if not isinstance(solver, Solver):
            raise InputError(f"Dr3 corrects a solver such as ReActPlus(index), got {type(solver).__name__}")
        if discriminator is not None and not isinstance(discriminator, dspy.Module):
            raise InputError(f"a discriminator is a dspy.Module, got {type(discriminator).__name__}")
        super().__init__(None, Dr3Settings())
        self.retriever = solver.retriever
        self.solver = solver
        self.discriminator = Discriminator() if discriminator is None else discriminator
        for adopted in (self.solver, self.discriminator):
            # DSPy freezes what was compiled, also inside another module, which then has nothing to save or optimise.
            adopted._compiled = False
        shared = {name: getattr(solver.settings.values, name) for name in _SHARED}
        self.settings = _OuterSettings(Dr3Settings(**shared), (self.solver, self.discriminator))
        self.settings.update(**settings)

    def _steps(self, question: str, trajectory: Trajectory) -> Steps:
        if trajectory.answer is not None:
            return trajectory
        # The record of the answer is made anew, as the answer is.
        earlier = tuple(record for record in trajectory.revisions if not record.get("kept"))
        ran: Ran = yield Run("solver", {"question": question, "trajectory": replace(trajectory, revisions=earlier)})
        yield Reached(ran.prediction.trajectory)
        k, names_kinds = self.solver.settings.values.k, isinstance(self.discriminator, Discriminator)
        correction = Correction(ran, self.settings.values, k=k, names_kinds=names_kinds)
        yield from correction.run()
        if correction.best.ran is not None:
            accept(correction.best.ran)
        return correction.result()

    def _prediction(self, trajectory: Trajectory) -> dspy.Prediction:
        kept = next((record for record in reversed(trajectory.revisions) if record.get("kept")), {})
        prediction = super()._prediction(trajectory)
        prediction.verdict, prediction.probability = kept.get("verdict"), kept.get("probability")
        return prediction


class _OuterSettings(Settings[Dr3Settings]):
    """Dr3's own settings; those that it has not are passed on to the modules inside, those of all programs to both."""

    def __init__(self, values: Dr3Settings, inside: Sequence[dspy.Module]) -> None:
        super().__init__(values)
        self._inside = inside

    def update(self, **changes: Any) -> None:
        """Change some settings; all or none of them.

        Raises:
            InputError: A name is unknown or a value is out of range.
        """
        own = frozenset(Dr3Settings.model_fields) - _SHARED
        passed: list[tuple[Settings[Any], Any]] = []
        for module in self._inside:
            settings = getattr(module, "settings", None)
            if isinstance(settings, Settings):
                model = type(settings.values)
                taken = {name: changes[name] for name in changes if name in model.model_fields and name not in own}
                passed.append((settings, validated(model, {**settings.values.model_dump(), **taken})))
                changes = {name: value for name, value in changes.items() if name in _SHARED or name not in taken}
        others = [name for settings, _ in passed for name in type(settings.values).model_fields]
        self.values = validated(Dr3Settings, {**self.values.model_dump(), **changes}, others=others)
        for settings, values in passed:
            settings.values = values
