"""Decision trees: what a program answers under every decision, recorded once.

A program that decides by thresholds answers a question in one of a few ways: each answer at stake is kept, or the
program goes on. These ways are explored by answering the question again and again with decisions that are given
beforehand, where all that an earlier answer came by already is taken from it (:class:`hopgate.programs.Memo`). So each
distinct LM call and search is made once, confidences are recorded and never computed again, and a leaf's cost is what
the program itself takes with thresholds that lead there.

The first leaf keeps everything. Each further one flips one decision of an explored one; decisions that follow are kept
unless a threshold that fits those before would not keep them. Flips that thresholds can lead to come before others, and
of these the least sure decision's first. So with one threshold the leaves that it can lead to are a chain: the
threshold is raised to just above the smallest confidence that was kept, and again. At most ``leaves`` are explored of
a question, which is then marked as not exact if thresholds can lead to further ones.

Once recorded, trees give the exact score and cost at every threshold without an LM call.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path as FilePath
from typing import Any, get_args

import dspy

from ..core import ConfidenceError, InputError, StateError
from ..core.texts import encodable
from ..evaluation.attempts import HISTORY, Outcome, QuestionMeter, answer_question, global_history, trim_history
from ..evaluation.budget import Budget, Spending
from ..evaluation.metrics import cover_em
from ..evaluation.provenance import describe_data, describe_run
from ..evaluation.questions import Question
from ..evaluation.recorded_texts import recorded_answer
from ..evaluation.recorded_trajectories import passages_read
from ..evaluation.run_schema import DataHeader, Failure
from ..evaluation.scoring import score_answer
from ..programs import Cost, Draft, Memo, Step, ThresholdGate, Trajectory
from .nested import decider_in, solvers_in
from .policy_features import observed
from .tree_files import Trees, appending, read_trees
from .tree_schema import Leaf, Node, Path, Tree, TreesHeader

_ANY = ThresholdGate(float("-inf"))


@dataclass(frozen=True, slots=True)
class TreeProgress:
    """How far recording is, earlier sessions included.

    Attributes:
        done: Questions that have a tree.
        total: Questions in all.
        errors: Those of them that failed.
        leaves: Leaves explored.
        calls: LM calls that exploring made.
        seconds: Wall time of this session.
    """

    done: int
    total: int
    errors: int
    leaves: int
    calls: int
    seconds: float


def record_trees(
    program: dspy.Module,
    questions: Iterable[Question],
    path: str | FilePath,
    *,
    leaves: int = 8,
    steps: Collection[Step] | None = None,
    retries: int = 0,
    errors_in_row: int | None = 5,
    retry_errors: bool = False,
    budget: Budget | None = None,
    name: str | None = None,
    data: DataHeader | None = None,
    on_progress: Callable[[TreeProgress], None] | None = None,
    needs_decisions: bool = False,
) -> Trees:
    """Explore the decisions of a program on questions, and write one line a question as it is done.

    The LM and the adapter are those of ``dspy.settings``. Decisions of gates that need a confidence are explored; a
    gate that always or never keeps stays as it is. Stopped in any way, recording goes on when it is called again with
    the same arguments. A question that fails is recorded as such; what would meet every question is raised.

    Args:
        program: The program, or one that holds a single solver with thresholds, whose decisions are then explored; its
            thresholds do not matter.
        questions: The questions; their ids are unique.
        path: The file to write or to resume.
        leaves: Limit on the leaves of a question.
        steps: The steps whose decisions are explored, such as ``("grounded",)``; at others the program decides as it
            does, so that far fewer LM calls are made. By default all that need a confidence.
        retries: Further attempts after transient failures of the LM.
        errors_in_row: Recording stops after so many failures without a tree in between; ``None`` sets no limit.
        retry_errors: Explore questions again that failed before; the later tree counts.
        budget: Limits; recording stops between questions when one is reached.
        name: Name in the header; by default the file's name without its ending.
        data: Which questions they are; by default what the collection says.
        on_progress: Called at the beginning and after each question.
        needs_decisions: Stop at the first question if no answer at stake has a confidence.

    Raises:
        InputError: The program has no thresholds, an argument cannot be used, or the file was made with something else.
        ConfidenceError: Decisions are needed, and the LM gives no log-probabilities.
        HopgateError: Another process writes the file.
        StateError: The file is damaged, or the program decides otherwise when it is asked again.
        OSError: The file cannot be written.
    """
    if isinstance(leaves, bool) or not isinstance(leaves, int) or leaves < 1:
        raise InputError(f"`leaves` must be a whole number of at least 1, got {leaves!r}")
    explored_steps = steps_of(program, steps)
    asked = list(questions)
    data = data or describe_data(questions, [question.id for question in asked])
    if [question.id for question in asked] != list(data.ids):
        raise InputError("`data` must have the ids of the questions, in their order")
    run = describe_run(program, data, name=name or FilePath(path).stem, seed=0, normalisation="official")
    header = TreesHeader(run, explored_steps, leaves)
    kept_history = max(HISTORY, global_history())
    with appending(path, header) as (before, append):
        spending = Spending(budget or Budget(), errors_in_row=errors_in_row)
        found = {tree.id: tree for tree in before.trees}
        start = time.monotonic()

        def report() -> None:
            if on_progress is not None:
                explored = [leaf for tree in found.values() for leaf in tree.leaves]
                failed = sum(tree.error is not None for tree in found.values())
                calls = sum(leaf.new_calls for leaf in explored)
                seconds = time.monotonic() - start
                on_progress(TreeProgress(len(found), len(asked), failed, len(explored), calls, seconds))

        report()
        failed = {tree.id for tree in before.trees if tree.error is not None}
        wanted = {*before.missing, *(failed if retry_errors else ())}
        for question in (question for question in asked if question.id in wanted):
            if not spending.allows():
                break
            exploring = _Exploring(program, explored_steps, question, spending, retries)
            tree = exploring.tree(leaves)
            if needs_decisions and exploring.unsure and not any(one.nodes for one in (*found.values(), tree)):
                raise ConfidenceError(
                    f"{path}: question {question.id!r}: no answer at stake has a confidence, without which there is no "
                    "decision to record: the LM gives no log-probabilities; name one that does, and another file, or "
                    "see by without_confidence=raise what is missing"
                )
            append(tree)
            found[tree.id] = tree
            spending.finished(tree.error)
            trim_history(kept_history)
            report()
    trees = read_trees(path)
    return Trees(trees.header, trees.trees, spending.stopped if trees.missing else None)


def steps_of(program: Any, wanted: Collection[Step] | None) -> tuple[Step, ...]:
    """The steps of a program that are explored: all that need a confidence, or those wanted.

    Raises:
        InputError: There are none, or one that is wanted is not among them.
    """
    solver = decider_in(program) if isinstance(program, dspy.Module) else None
    if solver is None:
        raise InputError(
            f"decision trees are recorded of programs with thresholds, ActiveQA and Escalation, and not of "
            f"{type(program).__name__}"
        )
    found: tuple[Step, ...] = tuple(step for step in solver.steps if solver.gate_at(step).needs_confidence)
    if not found:
        raise InputError("no gate of the program needs a confidence, so there is nothing to explore")
    check_steps(wanted)
    if wanted is None:
        return found
    if unknown := [step for step in wanted if step not in found]:
        raise InputError(f"`steps`: no gate of the program needs a confidence at {unknown[0]!r}; {', '.join(found)} do")
    return tuple(step for step in found if step in wanted)


def check_steps(steps: Any) -> None:
    """Refuse what is no collection of the steps of programs.

    Raises:
        InputError: It is neither ``None`` nor some of the steps.
    """
    if steps is None:
        return
    known = get_args(Step)
    if isinstance(steps, str) or not isinstance(steps, Collection) or not steps or any(s not in known for s in steps):
        raise InputError(f"`steps` takes some of {', '.join(known)}, such as ('grounded',), got {steps!r:.60}")


@dataclass(slots=True)
class _Forced:
    """A gate that decides as it is told, then keeps what a threshold may keep, and notes all it decided on.

    Attributes:
        forced: The first decisions.
        note: Makes a decision's node.
        made: What was decided on, and whether it was kept.
        unsure: Answers that had no confidence to decide by.
    """

    forced: tuple[bool, ...]
    note: Callable[[Draft], Node]
    made: list[tuple[Node, bool]] = field(default_factory=list)
    unsure: int = 0
    needs_draft: bool = True
    needs_confidence: bool = True

    def keeps(self, draft: Draft) -> bool:
        if not _ANY.keeps(draft):
            self.unsure += bool(draft.text) and (draft.confidence is None or draft.confidence.mean is None)
            return False  # whatever the threshold
        node, position = self.note(draft), len(self.made)
        if position < len(self.forced):
            kept = self.forced[position]
        else:
            refused = [other.mean for other, kept in self.made if not kept and other.step == node.step]
            kept = node.mean > max(refused, default=float("-inf"))
        self.made.append((node, kept))
        return kept


class _Exploring:
    """The tree of one question while it is explored."""

    def __init__(
        self, program: dspy.Module, steps: tuple[Step, ...], question: Question, spending: Spending, retries: int
    ) -> None:
        self._program = copy.deepcopy(program)
        self._solver: Any = decider_in(self._program)
        self._memos: list[Memo] = []
        for solver in solvers_in(self._program):
            solver.memo = memo = Memo()
            self._memos.append(memo)
        self._steps = steps
        self._question = question
        self._meter_for = lambda: QuestionMeter(spending)
        self._retries = retries
        self._nodes: list[Node] = []
        self._places: dict[Path, int] = {}
        self._leaves: list[Leaf] = []
        self.unsure = 0

    def tree(self, limit: int) -> Tree:
        """Explore up to ``limit`` leaves."""
        # What is left to explore: paths whose last decision is the other way than in an explored leaf.
        frontier: list[Path] = [()]
        while frontier and len(self._leaves) < limit:
            found = self._so_far()
            reachable = [path for path in frontier if found.possible(path)]
            start = min(reachable, key=self._sureness) if reachable else frontier[0]
            frontier.remove(start)
            leaf, failure = self._answer(start)
            if leaf is None:
                return Tree(self._question.id, (), (), exact=False, complete=False, error=failure)
            self._leaves.append(leaf)
            flips = range(len(start), len(leaf.path))
            frontier += [(*leaf.path[:place], _other(leaf.path[place])) for place in flips]
        found = self._so_far()
        exact = not any(found.possible(path) for path in frontier)
        return Tree(found.id, found.nodes, found.leaves, exact=exact, complete=not frontier)

    def _sureness(self, path: Path) -> float:
        """Confidence of the last decision on a path."""
        return self._nodes[path[-1][0]].mean if path else 0.0

    def _so_far(self) -> Tree:
        return Tree(self._question.id, tuple(self._nodes), tuple(self._leaves), exact=False, complete=False)

    def _answer(self, start: Path) -> tuple[Leaf | None, Failure | None]:
        before = self._made()
        gate = _Forced((), self._node)

        def answer(*, question: str) -> Any:
            nonlocal gate
            gate = _Forced(tuple(kept for _, kept in start), self._node)
            self._solver.gates = {**self._solver.gates, **dict.fromkeys(self._steps, gate)}
            return self._program(question=question)

        outcome = answer_question(answer, self._question.question, self._meter_for(), retries=self._retries, backoff=1)
        self.unsure += gate.unsure
        if outcome.fatal is not None:
            raise outcome.fatal
        if outcome.answer is None:
            return None, outcome.failure
        path = self._path(gate.made)
        if path[: len(start)] != start:
            raise StateError(
                f"question {self._question.id!r}: the program decides otherwise when it is asked again; give it a "
                "temperature of 0 and parts of its own that always do the same"
            )
        made = self._made()
        new = (made.lm_calls - before.lm_calls, made.retrievals - before.retrievals)
        return self._leaf(path, outcome, new), None

    def _made(self) -> Cost:
        return sum((memo.made for memo in self._memos), Cost())

    def _path(self, made: list[tuple[Node, bool]]) -> Path:
        path: Path = ()
        for node, kept in made:
            place = self._places.setdefault(path, len(self._nodes))
            if place == len(self._nodes):
                self._nodes.append(node)
            path = (*path, (place if self._nodes[place] == node else -1, kept))
        return path

    def _leaf(self, path: Path, outcome: Outcome, new: tuple[int, int]) -> Leaf:
        scores = score_answer(self._question, outcome.answer)
        # The trajectory's own account: attempts that failed are no cost of the decisions.
        cost = outcome.trajectory.cost if outcome.trajectory is not None else outcome.cost
        return Leaf(
            path=path,
            answer=_clean(outcome.answer or "", self._question, outcome.trajectory),
            em=bool(scores["em"]),
            f1=float(scores["f1"]),
            retrievals=cost.retrievals,
            lm_calls=cost.lm_calls,
            prompt_tokens=cost.prompt_tokens,
            completion_tokens=cost.completion_tokens,
            passages_read=cost.passages_read,
            new_calls=new[0],
            new_retrievals=new[1],
        )

    def _node(self, draft: Draft) -> Node:
        node, asked = observed(draft), self._question
        if node is None:
            raise StateError("a decision without a confidence")  # not reached: no threshold keeps such an answer
        if draft.step == "hop":
            golds = [step.answer for step in asked.decomposition]
            right = cover_em(draft.text, golds) if golds else None
        else:
            right = bool(score_answer(asked, draft.text)["em"])
        return replace(node, text=_clean(draft.text, asked, draft.trajectory), right=right)


def _clean(text: str, question: Question, trajectory: Trajectory | None) -> str:
    return encodable(recorded_answer(text, question.question, passages_read(trajectory)))


def _other(decision: tuple[int, bool]) -> tuple[int, bool]:
    place, kept = decision
    return place, not kept
