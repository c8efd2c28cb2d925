"""Joint optimisation of prompts, settings and thresholds by one study.

What a threshold is worth depends on the prompt, and the other way round, so they are not fitted one after the other:

::

    BootstrapFewShot ─► demo sets ───┐
    MIPROv2, COPRO, GEPA ─► instr. ──┼─► Optuna chooses ─► candidate ─► decision trees, 10 questions ─► race ─► 20 ...
    k, depth, hops, query, ... ──────┘         ▲                             │                           │ dropped
                                               │ score, retrievals, tokens   ▼                           ▼
                                               └──────────────── thresholds, solved exactly: its front of score and cost
                                                                             │
                                                            front over all ──┴─► rule, validation ─► program

A trial so costs the LM calls of its prompts and settings alone, and returns the scores at every threshold. Poor
candidates are dropped on few questions by a race (:mod:`hopgate.optimizers.racing`); Optuna cannot prune trials of
several objectives. The questions that demos and instructions are learned from are others than those that candidates are
compared on: a demo would otherwise hold the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import dspy
from dspy.teleprompt import Teleprompter

from ..core import InputError, user_path
from ..evaluation.budget import Budget
from ..programs import Step
from .candidates import DemoKind, Proposer, demo_kinds, uncompiled
from .joint_choice import choose, ranked, summaries
from .joint_estimate import Estimate, estimate_of, proposing_of
from .joint_manifest import check_folder, check_folder_path, fingerprint_of, folder_at
from .joint_record import Asked, CandidateFailed, Recorder, Stopped, has_thresholds, metric_of, score_of
from .joint_result import FrontPoint, JointResult
from .joint_space import changed, identity_of, original_of, space_of
from .joint_spending import Ledger, Spent
from .joint_work import Prompts, Work
from .racing import Race
from .rules import Rule, Tradeoff, check_rule
from .study import FinishedTrial, SharedStudy, StudySpec
from .study_address import is_address
from .trees import check_steps, steps_of

_DIRECTIONS: tuple[Literal["maximize", "minimize"], ...] = ("maximize", "minimize", "minimize")


@dataclass(frozen=True, slots=True)
class JointProgress:
    """How far an optimisation is, all sessions included.

    Attributes:
        done: Candidates that were evaluated.
        total: Candidates in all.
        best: What the rule would choose so far; ``None`` while there is nothing.
        spent: What was spent.
    """

    done: int
    total: int
    best: FrontPoint | None
    spent: Spent


class JointOptimizer(Teleprompter):
    """Choose demos, instructions, settings and thresholds of a program together.

    Args:
        metric: ``em``, ``f1``, or a DSPy metric ``metric(example, prediction, trace=None)``; candidates are scored with
            predictions that have ``answer`` and ``cost``.
        space: Settings with their choices; by default what :data:`hopgate.optimizers.joint_space.CHOICES` has for the
            program. Its own values are always among them.
        demo_sets: Demo sets to choose among, beside the program's own.
        demos: ``trajectories`` (worked examples that all steps share; the default where the program shows them),
            ``predictors``, or ``both`` in turn.
        demo_size: Runs that a demo set is made of.
        instructions: Who writes instructions: ``mipro``, ``copro``, ``gepa``, or nobody, which is the default: a small
            LM writes poor ones for itself, and they take many calls. Give ``prompt_model`` a larger LM with it.
        instruction_sets: How many sets to choose among, beside the program's own.
        prompt_model: The LM that writes instructions.
        rule: Chooses thresholds and the program: :class:`~hopgate.optimizers.Tradeoff` of .05 a search by default.
        racing: Numbers of training questions after which candidates are compared.
        error: Probability at most to drop a candidate that is at least as good as each other one at some budget.
        trials: Candidates in all, the original one among them.
        leaves: Limit on the leaves of a question's decision tree.
        steps: The steps whose thresholds are fitted, such as ``("grounded",)``; others keep theirs, which spares LM
            calls. By default all that the program has.
        finalists: Candidates that answer the validation questions, besides the original.
        retries: Further attempts after transient failures of the LM.
        folder: Where candidates, records and results are kept, so that a stopped optimisation goes on when it is called
            again with the same arguments; without it nothing outlives the call.
        storage: The study's: a journal file, a ``postgresql://`` address, by default ``study.log`` in the folder. Other
            processes that share a storage and a folder share the work.
        budget: Limits for all sessions together; what was found so far is returned when one is reached.
        seed: Of the order of questions, of bootstrapping and of the study.
        on_progress: Called after each question, and when a candidate is done.

    Attributes:
        result: The :class:`JointResult` of the last compilation.

    Raises:
        InputError: An argument is out of range.

    Example:
        >>> optimizer = JointOptimizer("em", folder="joint", rule=WithinBudget(1.5), trials=6)  # doctest: +SKIP
        >>> program = optimizer.compile(Escalation(index), trainset=train, valset=val)  # doctest: +SKIP
        >>> optimizer.result.chosen.parameters, optimizer.result.chosen.thresholds  # doctest: +SKIP
    """

    def __init__(
        self,
        metric: str | Callable[..., Any] = "em",
        *,
        space: Mapping[str, Sequence[Any]] | None = None,
        demo_sets: int = 2,
        demos: DemoKind | Literal["both"] | None = None,
        demo_size: int = 3,
        instructions: Proposer | None = None,
        instruction_sets: int = 2,
        prompt_model: dspy.BaseLM | None = None,
        rule: Rule | None = None,
        racing: Sequence[int] = (10, 20, 40),
        error: float = 0.1,
        trials: int = 20,
        leaves: int = 8,
        steps: Collection[Step] | None = None,
        finalists: int = 3,
        retries: int = 1,
        folder: str | Path | None = None,
        storage: str | Path | None = None,
        budget: Budget | None = None,
        seed: int = 0,
        on_progress: Callable[[JointProgress], None] | None = None,
    ) -> None:
        super().__init__()
        least = {
            "demo_sets": (demo_sets, 0), "demo_size": (demo_size, 1), "instruction_sets": (instruction_sets, 1),
            "trials": (trials, 1), "leaves": (leaves, 1), "finalists": (finalists, 1), "retries": (retries, 0),
            "seed": (seed, 0),
        }  # fmt: skip
        for name, (value, smallest) in least.items():
            if isinstance(value, bool) or not isinstance(value, int) or value < smallest:
                raise InputError(f"`{name}` must be a whole number of at least {smallest}, got {value!r}")
        if instructions not in (None, "mipro", "copro", "gepa"):
            raise InputError(f"`instructions` is mipro, copro, gepa, or None, got {instructions!r:.60}")
        if isinstance(racing, str) or not isinstance(racing, Sequence):
            raise InputError(f"`racing` takes growing numbers of questions such as (10, 20, 40), got {racing!r:.60}")
        if budget is not None and not isinstance(budget, Budget):
            raise InputError(f"`budget` is a hopgate.evaluation.Budget, got {budget!r:.60}")
        self.metric, self._bootstrap_metric = metric, metric_of(metric)
        self.race = Race(tuple(racing), error)
        self.rule: Rule = Tradeoff(0.05) if rule is None else rule
        check_rule(self.rule)
        check_steps(steps)
        is_address(storage)
        if folder is not None:
            check_folder_path(user_path(folder))
        self.space, self.demo_sets, self.demo_size = space, demo_sets, demo_size
        self.demos: DemoKind | Literal["both"] | None = demos
        self.instructions: Proposer | None = instructions
        self.instruction_sets = instruction_sets if instructions else 0
        self.prompt_model, self.trials, self.leaves, self.finalists = prompt_model, trials, leaves, finalists
        self.steps = None if steps is None else tuple(dict.fromkeys(steps))
        self.retries, self.folder, self.storage, self.seed = retries, folder, storage, seed
        self.budget, self.on_progress = budget or Budget(), on_progress
        self.result: JointResult | None = None

    def compile(
        self,
        student: dspy.Module,
        *,
        trainset: Sequence[Any],
        valset: Sequence[Any] | None = None,
        teacher: dspy.Module | None = None,
        **kwargs: Any,
    ) -> dspy.Module:
        """Optimise a program; the LM and the adapter are those of ``dspy.settings``.

        Args:
            student: The program; it is not changed. One of hopgate's, or a module that is called with ``question`` and
                holds a single one of them.
            trainset: Questions with answers, as ``dspy.Example`` or :class:`~hopgate.evaluation.Question`; a third of
                them is set apart for prompts if they are not more than the last rung.
            valset: Questions that the choice among the best candidates is made on; without them it is made by
                cross-validation on the racing questions.
            teacher: What demos are bootstrapped from; by default the student.

        Returns:
            A copy with the chosen prompts, settings and thresholds; the unchanged program where nothing was gained.

        Raises:
            InputError: Something cannot be used, or the folder or the storage holds something else.
            CandidateFailed: The unchanged program does not answer.
            HopgateError: What would meet every question: no access to the LM, a missing index.
        """
        if kwargs:
            raise InputError(f"compile() does not take {', '.join(map(repr, kwargs))}")
        opened = self._at_work(student, trainset, valset, teacher, self.folder)
        with opened as (work, val, spec, storage), work.ledger.active():
            with SharedStudy.open(storage, spec) as study:
                stopped = self._run(work, study)
                finished, importances = study.finished(), study.importances()
            program, self.result = choose(
                work, finished, val, importances, stopped, finalists=self.finalists, metric=self.metric
            )
            self.result.save(work.folder / "result.json")
            program.save(str(work.folder / "program.json"))
        program._compiled = True
        return program

    def estimate(
        self, student: dspy.Module, trainset: Sequence[Any], *, valset: Sequence[Any] | None = None, probe: bool = False
    ) -> Estimate:
        """What :meth:`compile` may take.

        Args:
            student: As of :meth:`compile`, as those that follow.
            trainset: Training questions.
            valset: Validation questions.
            probe: Whether the program first answers the questions of the first rung, so that what they take stands for
                all; with a ``folder`` they are not asked again later. Otherwise nothing is asked or written, and the
                numbers are a worst case.

        Raises:
            InputError: As of :meth:`compile`.
        """
        with self._at_work(student, trainset, valset, None, self.folder if probe else None) as (work, val, spec, _):
            hops = [value for value in spec.space.get("max_hops", ()) if isinstance(value, int)]
            widest = changed(student, {"max_hops": max(hops)}) if hops else student
            first, before, trees = work.race.rungs[0], work.ledger.spent, ()
            if probe:
                with work.ledger.active():
                    trees = work.recorder.record(
                        uncompiled(student),
                        identity_of(uncompiled(student)),
                        f"{first:04d}",
                        work.racing.questions[:first],
                    )
            after = work.ledger.spent
            return estimate_of(
                widest,
                candidates=self.trials,
                rungs=work.race.rungs,
                finalists=min(self.finalists, max(0, self.trials - 1)),
                validation=len(val) if val else 0,
                leaves=self.leaves,
                steps=self.steps,
                proposing=proposing_of(
                    student, len(work.learning), self.demo_sets, self.instructions, self.instruction_sets
                ),
                probe=trees,
                seconds=after.seconds - before.seconds,
                tokens=after.tokens - before.tokens,
            )

    @contextmanager
    def _at_work(
        self,
        student: Any,
        trainset: Sequence[Any],
        valset: Sequence[Any] | None,
        teacher: Any,
        path: str | Path | None,
    ) -> Iterator[tuple[Work, Asked | None, StudySpec, str | Path | None]]:
        """Check everything, then open the folder."""
        if not isinstance(student, dspy.Module):
            raise InputError(f"the student must be a dspy.Module, got {type(student).__name__}")
        custom = callable(self.metric)
        asked = Asked(trainset, answers_needed=not custom, what="trainset")
        if len(asked) < 2:
            raise InputError(f"`trainset` has {len(asked)} questions; candidates are compared on at least two")
        val = None if valset is None else Asked(valset, answers_needed=not custom, what="valset")
        val = val if val is not None and len(val) else None
        student = uncompiled(student)
        has_thresholds(student)
        if self.steps is not None:
            steps_of(student, self.steps)
        kinds = demo_kinds(student, self.demos) if self.demo_sets else ()
        space = space_of(student, self.space, demos=self.demo_sets, instructions=self.instruction_sets)
        prompted = bool(self.demo_sets or self.instructions)
        racing, learning = asked.split(self.race.rungs[-1], apart=prompted, seed=self.seed)
        rungs = (*(rung for rung in self.race.rungs if rung < len(racing)), len(racing))
        race = replace(self.race, rungs=rungs)
        prints = fingerprint_of(
            student,
            racing.questions,
            learning.questions,
            seed=self.seed,
            metric=self.metric,
            rule=repr(self.rule),
            race=[list(rungs), race.error],
            leaves=self.leaves,
            steps=None if self.steps is None else sorted(self.steps),
            demos=[list(kinds), self.demo_size if kinds else 0],
            instructions=self.instructions,
            teacher=None if teacher is None else identity_of(teacher),
        )
        first = original_of(student, space)
        spec = StudySpec("joint", _DIRECTIONS, space, prints, seed=self.seed, first=(first,))
        with folder_at(path) as folder:
            check_folder(folder, {**prints, "space": {name: list(values) for name, values in space.items()}})
            ledger = Ledger(folder / "spent", self.budget)
            work = Work(
                student, folder, racing, learning, race, score_of(self.metric, racing), self.rule, self.seed,
                Prompts(kinds, self.demo_size, self.instructions, self.instruction_sets, self._bootstrap_metric,
                        teacher, self.prompt_model),
                Recorder(folder / "candidates", leaves=self.leaves, steps=self.steps, ledger=ledger,
                         retries=self.retries, report=lambda: self._tell(ledger)),
                ledger,
            )  # fmt: skip
            self._finished: tuple[FinishedTrial, ...] = ()
            yield work, val, spec, folder / "study.log" if self.storage is None else self.storage

    def _tell(self, ledger: Ledger) -> None:
        if self.on_progress is not None:
            candidates = [one for one in summaries(self._finished) if not one.dropped]
            best = ranked(candidates, self.rule)[0].chosen if candidates else None
            self.on_progress(JointProgress(len(self._finished), self.trials, best, ledger.spent))

    def _run(self, work: Work, study: SharedStudy) -> str | None:
        """Evaluate candidates until there are enough, or a limit is reached, which is returned."""
        while len(self._known(study)) < self.trials:
            if reason := work.ledger.stopped():
                return reason
            trial = study.ask()
            if trial is None or trial.number >= self.trials:
                break  # what was asked too much is given to a later session that wants more
            try:
                values, notes = work.evaluate(trial, self._finished)
            except Stopped as stop:
                return str(stop)
            except CandidateFailed as failure:
                if trial.number == 0:
                    raise CandidateFailed(f"the unchanged program does not answer: {failure}") from failure
                study.give_up(trial, str(failure))
            else:
                study.tell(trial, values, notes)
            self._known(study)
            self._tell(work.ledger)
        return None

    def _known(self, study: SharedStudy) -> tuple[FinishedTrial, ...]:
        self._finished = study.finished()
        return self._finished
