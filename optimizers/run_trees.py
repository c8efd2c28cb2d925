"""Decision trees from runs that were recorded anyway: two of them that differ in one decision."""

from __future__ import annotations

from ..core import InputError
from ..evaluation.aligned import RecordedRun
from ..evaluation.run_schema import RunRecord
from ..evaluation.trajectory_schema import DecisionRecord
from ..programs import Step
from .tree_schema import Leaf, Node, Path, Tree


def runs_as_trees(kept: RecordedRun, gone_on: RecordedRun, *, step: Step = "grounded") -> tuple[Tree, ...]:
    """Trees of one decision, from a run that keeps the answer at stake and one that goes on from it.

    Standard RAG and ``Escalation(memory=False, tau_grounded=0)`` are such runs: they give the exact score and cost at
    every threshold of the grounded answer, as :func:`hopgate.optimizers.record_trees` does, for further thresholds as
    they were set.

    Args:
        kept: The run whose answers are those at stake.
        gone_on: The run that records them as decisions of ``step``, and goes on whatever they are.
        step: The decision.

    Returns:
        One tree for each question that both runs answered, in the order of ``gone_on``.

    Raises:
        InputError: The runs have no answered question in common, a question has no such decision or was not gone on
            from, or its answer at stake is not the other run's.
    """
    trees = []
    for identity, record in gone_on.records.items():
        if not {identity} <= gone_on.answered & kept.answered:
            continue
        decision, other = _decision(record, step, gone_on.name), kept.records[identity]
        if decision.kept and (decision.confidence is None or decision.confidence.mean < 0):
            raise InputError(
                f"{gone_on.name}, question {identity!r}: keeps the answer at stake; run it with the threshold at 0"
            )
        if decision.text != (other.answer or ""):
            raise InputError(
                f"question {identity!r}: the answer at stake in {gone_on.name} is {decision.text!r:.60}, and "
                f"{kept.name} answers {other.answer!r:.60}; take runs of one LM, index and set of worked examples"
            )
        sure = decision.confidence
        if sure is None or decision.kept:  # no threshold can keep it, or none can go on from what is certain
            trees.append(Tree(identity, (), (leaf_of(record, ()),), exact=True, complete=True))
            continue
        node = Node(step, decision.hop, decision.text, sure.mean, sure.minimum, right=other.scores.em)
        trees.append(
            Tree(
                identity,
                (node,),
                (leaf_of(other, ((0, True),)), leaf_of(record, ((0, False),))),
                exact=True,
                complete=True,
            )
        )
    if not trees:
        raise InputError(f"{kept.name} and {gone_on.name} have no answered question in common")
    return tuple(trees)


def _decision(record: RunRecord, step: Step, name: str) -> DecisionRecord:
    decisions = record.trajectory.decisions if record.trajectory is not None else ()
    found = next((decision for decision in decisions if decision.step == step), None)
    if found is None:
        raise InputError(f"{name}, question {record.id!r}: has no decision at the step {step!r}")
    return found


def leaf_of(record: RunRecord, path: Path = ()) -> Leaf:
    """The leaf that an answered question of a run comes to."""
    cost = record.cost
    return Leaf(
        path=path,
        answer=record.answer or "",
        em=record.scores.em,
        f1=record.scores.f1,
        retrievals=cost.retrievals,
        lm_calls=cost.lm_calls,
        prompt_tokens=cost.prompt_tokens,
        completion_tokens=cost.completion_tokens,
        passages_read=cost.passages_read,
        new_calls=cost.lm_calls,
        new_retrievals=cost.retrievals,
    )
