"""What candidates answer, recorded rung by rung: decision trees where there are thresholds, else one answer each."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import dspy

from ..core import HopgateError, InputError, locked
from ..evaluation.budget import Budget
from ..evaluation.dspy_metrics import F1, ExactMatch
from ..evaluation.feedback import gold_answers
from ..evaluation.provenance import describe_data, digest
from ..evaluation.questions import Question
from ..evaluation.run_schema import QUESTION, RunRecord
from ..evaluation.runner import evaluate
from ..programs import Cost, Solver, Step, ThresholdGate
from .curve import Score
from .joint_spending import Ledger
from .nested import Costed, decider_in
from .run_trees import leaf_of
from .tree_schema import Leaf, Tree
from .trees import record_trees

_ERRORS_IN_ROW = 5


class Stopped(Exception):
    """A limit was reached; what was recorded is kept."""


class CandidateFailed(HopgateError):
    """A candidate does not answer: so many questions in a row failed."""


class Asked:
    """Training questions as both DSPy and hopgate know them.

    Args:
        items: ``dspy.Example`` with ``question`` and ``answer`` or ``answers``, or :class:`Question`.
        answers_needed: Whether each must have an answer.

    Raises:
        InputError: An item is neither, or lacks what is needed, or two have one id.
    """

    def __init__(self, items: Iterable[Any], *, answers_needed: bool, what: str) -> None:
        if isinstance(items, str | bytes | PathLike | Mapping) or not isinstance(items, Iterable):
            raise InputError(
                f"`{what}` takes a list of questions, got {items!r:.60}; read a file of them by load_questions(path)"
            )
        self.examples: list[dspy.Example] = []
        self.questions: list[Question] = []
        for number, item in enumerate(items, 1):
            if isinstance(item, Question):
                self.questions.append(item)
                self.examples.append(item.to_example())
                continue
            text = item.get("question") if isinstance(item, dspy.Example) else None
            if not isinstance(text, str):
                raise InputError(f"{what}, example {number}: needs a text `question`, as a dspy.Example or a Question")
            try:
                answers = gold_answers(item)
            except InputError as error:
                if answers_needed:
                    raise InputError(f"{what}, example {number}: {error}") from error
                answers = ["(none)"]
            identity = str(item.get("id", None) or f"q-{digest([text, answers])[:16]}")
            self.questions.append(Question(identity, text, tuple(answers), type=item.get("type", None)))
            self.examples.append(item if item._input_keys else item.with_inputs("question"))
        if self.questions:
            describe_data(self.questions, [question.id for question in self.questions])

    def __len__(self) -> int:
        return len(self.questions)

    def split(self, most: int, *, apart: bool, seed: int) -> tuple[Asked, Asked]:
        """Those that candidates are compared on, and those that prompts are learned from, in an order that is drawn.

        Args:
            most: How many to compare on.
            apart: Whether prompts are learned at all: from the rest, or from a third where less is left.
            seed: Of the order.
        """
        order = list(range(len(self)))
        random.Random(seed).shuffle(order)
        rest = max(len(order) - most, max(1, len(order) // 3)) if apart else 0
        return self._take(order[: min(most, len(order) - rest)]), self._take(order[len(order) - rest :])

    def _take(self, places: Sequence[int]) -> Asked:
        some = Asked([], answers_needed=False, what="")
        some.examples = [self.examples[place] for place in places]
        some.questions = [self.questions[place] for place in places]
        return some


def metric_of(metric: Any) -> Callable[..., Any]:
    """The metric as DSPy's teleprompters call it.

    Raises:
        InputError: It is neither ``em``, ``f1`` nor a callable.
    """
    named = {"em": ExactMatch(), "f1": F1()}
    if callable(metric):
        return metric
    if not isinstance(metric, str) or metric not in named:
        raise InputError(f"`metric` is em, f1, or a function metric(example, prediction, trace), got {metric!r:.60}")
    return named[metric]


def score_of(metric: Any, asked: Asked) -> Score:
    """The metric as a score of leaves, called once for each.

    A metric of one's own gets the example and a prediction with ``answer`` and ``cost``; there is no trajectory.
    """
    if not callable(metric):
        return metric
    examples = {
        question.id: (question.question, example)
        for question, example in zip(asked.questions, asked.examples, strict=True)
    }
    known: dict[tuple[str, str, int, int], float] = {}
    measure: Any = metric

    def score(tree: Tree, leaf: Leaf) -> float:
        key = (tree.id, leaf.answer, leaf.retrievals, leaf.lm_calls)
        if key not in known:
            text, example = examples[tree.id]
            cost = Cost(leaf.retrievals, leaf.lm_calls, leaf.prompt_tokens, leaf.completion_tokens)
            prediction = dspy.Prediction(answer=leaf.answer.replace(QUESTION, text), cost=cost)
            try:
                value = float(measure(example, prediction))
            except Exception as error:
                raise InputError(
                    f"the metric failed on question {tree.id!r} ({type(error).__name__}: {str(error)[:200]}); it is "
                    "called as metric(example, prediction) with a prediction that has `answer` and `cost`"
                ) from error
            if not math.isfinite(value):
                raise InputError(f"the metric gave {value!r} for question {tree.id!r}; scores are finite numbers")
            known[key] = value
        return known[key]

    return score


def has_thresholds(program: dspy.Module) -> bool:
    """Whether thresholds of the program's settings decide anything.

    Raises:
        InputError: A gate of one's own decides in their place.
    """
    decider = decider_in(program)
    if decider is None:
        return False
    found = False
    for step in decider.steps:
        gate = decider.gate_at(step)
        if not gate.needs_confidence:
            continue
        found = True
        own = decider.gate if step == "hop" else decider.gates.get(step)
        if own is not None or not isinstance(gate, ThresholdGate):
            raise InputError(
                f"at the step {step!r} the program has a gate of its own ({type(gate).__name__}), which decides in "
                "place of the thresholds that would be fitted; compile the program without it, and give it afterwards"
            )
    return found


class Recorder:
    """Answers questions with candidates, each in a folder of its own that a later session goes on with.

    Args:
        folder: Where the candidates' folders are.
        leaves: Limit on the leaves of a tree.
        steps: The steps whose decisions are explored; all by default.
        ledger: What is spent.
        retries: Further attempts after transient failures of the LM.
        report: Called after each question.
    """

    def __init__(
        self,
        folder: Path,
        *,
        leaves: int,
        steps: Collection[Step] | None = None,
        ledger: Ledger,
        retries: int,
        report: Callable[[], None],
    ) -> None:
        self._folder = folder
        self._leaves = leaves
        self._steps = steps
        self._ledger = ledger
        self._retries = retries
        self._report = report

    def record(self, program: dspy.Module, identity: str, part: str, questions: Sequence[Question]) -> tuple[Tree, ...]:
        """What a candidate answers.

        Args:
            program: The candidate.
            identity: Its name.
            part: Name of this part of its record.
            questions: The questions.

        Returns:
            One tree a question, in their order; failed questions count as answered wrongly, at no cost.

        Raises:
            Stopped: A limit was reached.
            CandidateFailed: Too many questions failed in a row, or all of them.
        """
        folder = self._folder / identity
        with locked(folder / ".lock", timeout=1e7, busy=f"{folder}: another worker evaluates this candidate"):
            record = self._trees if self._explored(program) else self._answers
            whole = program if isinstance(program, Solver) else Costed(program)
            trees, stopped = record(whole, folder, part, questions)
        failed = [tree for tree in trees if tree.error is not None]
        errors = f"{failed[-1].error.type}: {failed[-1].error.message}" if failed and failed[-1].error else ""
        if len(trees) < len(questions):
            if (reason := self._ledger.stopped()) is None and len(failed) >= _ERRORS_IN_ROW:
                raise CandidateFailed(stopped or errors)
            raise Stopped(reason or stopped or "recording ended early")
        if len(failed) == len(trees):
            raise CandidateFailed(f"all {len(trees)} questions failed, the last with {errors}")
        return tuple(_as_wrong(tree) if tree.error is not None else tree for tree in trees)

    def _explored(self, program: dspy.Module) -> tuple[Step, ...]:
        """The steps to explore: of those wanted, the ones that the candidate decides at by a threshold."""
        decider = decider_in(program)
        if decider is None or not has_thresholds(program):
            return ()
        wanted = decider.steps if self._steps is None else self._steps
        return tuple(step for step in wanted if decider.gate_at(step).needs_confidence)

    def _done(self, _: Any) -> None:
        self._ledger.save()
        self._report()

    def _budget(self) -> Budget:
        # A file that is complete is read without spending, so a used up budget is no reason not to open it.
        return self._ledger.left()

    def _trees(
        self, program: dspy.Module, folder: Path, part: str, questions: Sequence[Question]
    ) -> tuple[tuple[Tree, ...], str | None]:
        found = record_trees(
            program,
            questions,
            folder / f"trees-{part}.jsonl",
            leaves=self._leaves,
            steps=None if self._steps is None else self._explored(program),
            retries=self._retries,
            errors_in_row=_ERRORS_IN_ROW,
            budget=self._budget() if self._ledger.stopped() is None else _NOTHING,
            on_progress=self._done,
        )
        return found.trees, found.stopped

    def _answers(
        self, program: dspy.Module, folder: Path, part: str, questions: Sequence[Question]
    ) -> tuple[tuple[Tree, ...], str | None]:
        run = evaluate(
            program,
            questions,
            folder / f"run-{part}.jsonl",
            retries=self._retries,
            errors_in_row=_ERRORS_IN_ROW,
            budget=self._budget() if self._ledger.stopped() is None else _NOTHING,
            on_progress=self._done,
        )
        records = [run.by_id[question.id] for question in questions if question.id in run.by_id]
        return tuple(_as_tree(record) for record in records), run.stopped


_NOTHING = Budget(seconds=1e-9)


def _as_tree(record: RunRecord) -> Tree:
    if record.error is not None:
        return Tree(record.id, (), (), exact=False, complete=False, error=record.error)
    return Tree(record.id, (), (leaf_of(record),), exact=True, complete=True)


def _as_wrong(tree: Tree) -> Tree:
    nothing: Mapping[str, int] = dict.fromkeys(
        (
            "retrievals",
            "lm_calls",
            "prompt_tokens",
            "completion_tokens",
            "passages_read",
            "new_calls",
            "new_retrievals",
        ),
        0,
    )
    return Tree(tree.id, (), (Leaf((), "", em=False, f1=0.0, **nothing),), exact=True, complete=True)
