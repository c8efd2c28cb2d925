"""A joint optimisation under way: candidates are made, recorded, raced and chosen among."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import dspy

from ..core import StateError, locked, write_atomic
from ..programs import Step
from .candidates import DemoKind, DemoSet, InstructionSet, Proposer, bootstrap, propose_instructions
from .curve import Score
from .fitting import SETTING_OF
from .joint_front import Record, Solved, thresholds_of
from .joint_record import Asked, CandidateFailed, Recorder, Stopped, has_thresholds
from .joint_result import CandidateSummary, FrontPoint, front_point
from .joint_space import changed, identity_of
from .joint_spending import BudgetReached, Ledger
from .nested import decider_in
from .racing import Race, Standing
from .rules import Rule
from .study import FinishedTrial, Trial
from .tree_schema import Tree

LEARNED = 20
"""Questions at most that proposers of instructions answer."""


@dataclass(frozen=True)
class Prompts:
    """How prompts are proposed.

    Attributes:
        kinds: Kinds of demos, taken in turn.
        most: Runs that a demo set is made of.
        instructions: Who writes instructions.
        count: How many sets of them.
        metric: The metric as teleprompters call it.
        teacher: What is bootstrapped in the program's place.
        prompt_model: What writes instructions.
    """

    kinds: tuple[DemoKind, ...]
    most: int
    instructions: Proposer | None
    count: int
    metric: Callable[..., Any]
    teacher: dspy.Module | None
    prompt_model: Any


@dataclass
class Work:
    """What the trials of one process share.

    Attributes:
        student: The original program.
        folder: Where everything is kept.
        racing: The racing questions, in their order.
        learning: The questions that prompts are learned from.
        race: The race.
        score: The metric as a score of leaves.
        rule: What chooses.
        seed: Of bootstrapping and of folds.
        prompts: How prompts are proposed.
        recorder: Answers questions.
        ledger: What is spent.
    """

    student: dspy.Module
    folder: Path
    racing: Asked
    learning: Asked
    race: Race
    score: Score
    rule: Rule
    seed: int
    prompts: Prompts
    recorder: Recorder
    ledger: Ledger
    _records: dict[str, Record] = field(default_factory=dict)
    _standings: dict[str, Standing] = field(default_factory=dict)

    # --- making candidates --------------------------------------------------------------------------------------------

    def candidate(self, parameters: Mapping[str, Any]) -> dspy.Module:
        """The program of a choice; proposes the prompts that it needs, if that was not done before.

        Raises:
            Stopped: A limit was reached while they were proposed.
        """
        settings = {name: value for name, value in parameters.items() if name not in ("demos", "instructions")}
        program = changed(self.student, settings)
        if number := parameters.get("demos", 0):
            self._demos(number).apply(program)
        if number := parameters.get("instructions", 0):
            found = self._instructions()
            if number <= len(found):
                found[number - 1].apply(program)
        return program

    def _demos(self, number: int) -> DemoSet:
        kinds = self.prompts.kinds

        def propose() -> Any:
            found = bootstrap(
                self.student,
                self.learning.examples,
                self.prompts.metric,
                kind=kinds[(number - 1) % len(kinds)],
                seed=self.seed + (number - 1) // len(kinds),
                most=self.prompts.most,
                teacher=self.prompts.teacher,
            )
            return asdict(found)

        return DemoSet(**self._kept(self.folder / "demos" / f"{number:03d}.json", propose))

    def _instructions(self) -> tuple[InstructionSet, ...]:
        def propose() -> Any:
            found = propose_instructions(
                self.prompts.instructions or "mipro",
                self.student,
                self.learning.examples[:LEARNED],
                self.prompts.metric,
                count=self.prompts.count,
                seed=self.seed,
                prompt_model=self.prompts.prompt_model,
            )
            return [asdict(one) for one in found]

        return tuple(InstructionSet(**one) for one in self._kept(self.folder / "instructions.json", propose))

    def _kept(self, path: Path, propose: Callable[[], Any]) -> Any:
        with locked(path.with_name(f".{path.name}.lock"), timeout=1e7, busy=f"{path}: another worker makes it"):
            if not path.exists():
                if reason := self.ledger.stopped():
                    raise Stopped(reason)
                try:
                    with self.ledger.strict():
                        found = propose()
                except BudgetReached:
                    raise Stopped(self.ledger.stopped() or "a limit was reached") from None
                finally:
                    self.ledger.save()
                write_atomic(path, json.dumps(found, ensure_ascii=False) + "\n")
            try:
                return json.loads(path.read_text())
            except ValueError as error:
                raise StateError(f"{path}: is damaged ({error}); remove it, and it is made again") from error

    # --- evaluating them ----------------------------------------------------------------------------------------------

    def evaluate(self, trial: Trial, finished: Sequence[FinishedTrial]) -> tuple[tuple[float, ...], dict[str, Any]]:
        """Values of the study's objectives, and notes.

        Raises:
            Stopped: A limit was reached.
            CandidateFailed: The candidate does not answer.
        """
        program = self.candidate(trial.parameters)
        identity = identity_of(program)
        budgets = next((one.notes.get("budgets") for one in finished if one.number == 0), None)
        trees: list[Tree] = []
        dropped = False
        record: Record | None = None
        for start, end in self._parts():
            trees += self.recorder.record(program, identity, f"{end:04d}", self.racing.questions[start:end])
            record = self._record(program, trees)
            if trial.number == 0 and budgets is None:
                budgets = list(record.budgets(self.rule.cost))
            elif budgets is not None and trial.number and end < self.race.rungs[-1]:
                rivals = self._rivals(identity, end, finished, budgets)
                if rivals and self.race.drops(record.standing(budgets, self.rule.cost, seed=self.seed), rivals):
                    dropped = True
                    break
        if record is None:
            raise CandidateFailed("there are no questions")  # not reached: a race has at least one rung
        solved = record.fit(self.rule, seed=self.seed)
        front = [front_point(identity, trial.parameters, one) for one in record.front(self.rule.cost)]
        notes: dict[str, Any] = {
            "candidate": identity,
            "questions": len(trees),
            "dropped": dropped,
            "chosen": asdict(front_point(identity, trial.parameters, solved)),
            "held_out": solved.held_out,
            "held_out_cost": solved.held_out_cost,
            "front": [asdict(point) for point in front],
        }
        if trial.number == 0:
            notes["budgets"] = budgets
            notes["original"] = asdict(front_point(identity, trial.parameters, record.at(record.original)))
        point = solved.point
        return (point.score, point.retrievals, point.tokens), notes

    def _parts(self) -> list[tuple[int, int]]:
        return list(zip((0, *self.race.rungs), self.race.rungs, strict=False))

    def _record(self, program: dspy.Module, trees: Sequence[Tree]) -> Record:
        return Record(trees, _thresholds(program, trees), self.score)

    def _rivals(
        self, identity: str, questions: int, finished: Sequence[FinishedTrial], budgets: Sequence[float]
    ) -> list[Standing]:
        found: dict[str, Standing] = {}
        for other in finished:
            name = other.notes["candidate"]
            if name in (identity, *found) or other.notes["dropped"] or other.notes["questions"] < questions:
                continue
            if name not in self._standings:
                record = self._recorded(other)
                self._standings[name] = record.standing(budgets, self.rule.cost, seed=self.seed)
            found[name] = self._standings[name].first(questions)
        return list(found.values())

    def _recorded(self, trial: FinishedTrial) -> Record:
        """The record of a finished trial, from its files."""
        name = trial.notes["candidate"]
        if name not in self._records:
            program = self.candidate(trial.parameters)
            trees: list[Tree] = []
            for start, end in self._parts():
                if end <= trial.notes["questions"]:
                    trees += self.recorder.record(program, name, f"{end:04d}", self.racing.questions[start:end])
            self._records[name] = self._record(program, trees)
        return self._records[name]

    # --- choosing -----------------------------------------------------------------------------------------------------

    def validate(self, summary: CandidateSummary, asked: Asked, score: Score) -> Solved:
        """What a candidate's chosen thresholds do on other questions; raises as :meth:`evaluate`."""
        program = self.candidate(summary.parameters)
        return self._other(program, summary.candidate, asked, score).at(summary.chosen.thresholds)

    def validate_original(self, identity: str, asked: Asked, score: Score) -> Solved:
        """What the unchanged program does on other questions; raises as :meth:`evaluate`."""
        record = self._other(self.student, identity, asked, score)
        return record.at(record.original)

    def _other(self, program: dspy.Module, identity: str, asked: Asked, score: Score) -> Record:
        trees = self.recorder.record(program, identity, "val", asked.questions)
        return Record(trees, _thresholds(program, trees), score)

    def program(self, point: FrontPoint) -> dspy.Module:
        """The program of a point."""
        program = self.candidate(point.parameters)
        decider = decider_in(program)
        if decider is not None and point.thresholds:
            decider.settings.update(**{SETTING_OF[step]: tau for step, tau in point.thresholds.items()})
        return program


def _thresholds(program: dspy.Module, trees: Sequence[Tree]) -> dict[str, float]:
    decider = decider_in(program)
    if decider is None or not has_thresholds(program):
        return {}
    steps: dict[Step, None] = {node.step: None for tree in trees for node in tree.nodes}
    return thresholds_of(decider.settings.values, list(steps))
