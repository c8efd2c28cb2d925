"""Decision trees: their leaves are what the program does, each call is made once, and files survive what may happen."""

from __future__ import annotations

import itertools
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import dspy
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tree_worlds import QUESTIONS, STEPS, lm_of, recorded, run_at, search

from hopgate.core import InputError, StateError
from hopgate.lms.testing import Reply, scripted_lm
from hopgate.optimizers import read_trees, record_trees
from hopgate.optimizers.curve import Boxes
from hopgate.programs import RAG, ActiveQA, ConstantGate, Escalation

CHANGES: list[dict[str, Any]] = [
    {},
    {"check_each_hop": True},
    {"decomposer": "plan"},
    {"fused_hop": True},
    {"prefer": "confident"},
    {"memory": False, "reread": True},
]
few = settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
tau = st.sampled_from([-5.0, -2.0, -1.0, -0.31, -0.305, -0.3, -0.1, -0.05, -0.01, 0.0]) | st.floats(-5, 0)


def taus() -> st.SearchStrategy[dict[str, float]]:
    return st.fixed_dictionaries(dict.fromkeys(STEPS, tau))


@few
@given(st.integers(0, 10**6), st.sampled_from(CHANGES), st.lists(taus(), min_size=8, max_size=8))
def test_a_leaf_is_what_the_program_does_at_its_thresholds(
    tmp_path_factory: pytest.TempPathFactory, seed: int, changes: dict[str, Any], points: list[dict[str, float]]
) -> None:
    program = Escalation(search, max_hops=3, **changes)
    path = tmp_path_factory.mktemp("t") / "trees.jsonl"
    trees, calls = recorded(program, seed, path, QUESTIONS[:1], leaves=200)
    (tree,) = trees.trees
    assert tree.exact
    assert calls == sum(leaf.new_calls for leaf in tree.leaves)
    for thresholds in points:
        leaf, exact = tree.leaf_at(thresholds)
        assert exact
        assert tree.possible(leaf.path)
        assert run_at(program, seed, QUESTIONS[0], thresholds) == (
            leaf.answer,
            (leaf.retrievals, leaf.lm_calls, leaf.prompt_tokens, leaf.completion_tokens, leaf.passages_read),
        )
        for step, (low, high) in tree.intervals(leaf.path).items():
            assert low < thresholds[step] <= high


@few
@given(st.integers(0, 10**6), st.booleans())
def test_the_leaves_of_a_complete_tree_are_all_there_are(
    tmp_path_factory: pytest.TempPathFactory, seed: int, check: bool
) -> None:
    path = tmp_path_factory.mktemp("t") / "trees.jsonl"
    (tree,) = recorded(ActiveQA(search, max_hops=3, check_each_hop=check), seed, path, QUESTIONS[:1], leaves=500)[
        0
    ].trees
    assert tree.complete
    assert tree.exact
    paths = {leaf.path for leaf in tree.leaves}
    for leaf in tree.leaves:
        for place in range(len(leaf.path)):
            node, kept = leaf.path[place]
            sibling = (*leaf.path[:place], (node, not kept))
            assert any(path[: place + 1] == sibling for path in paths)


@few
@given(st.integers(0, 10**6), st.integers(1, 12))
def test_one_threshold_makes_a_chain_and_each_call_is_made_once(
    tmp_path_factory: pytest.TempPathFactory, seed: int, limit: int
) -> None:
    path = tmp_path_factory.mktemp("t") / "trees.jsonl"
    trees, calls = recorded(ActiveQA(search, max_hops=3), seed, path, QUESTIONS[:2], leaves=limit)
    for tree in trees.trees:
        chain = [leaf for leaf in tree.leaves if tree.possible(leaf.path)]
        assert chain == list(tree.leaves[: len(chain)])
        lows = [tree.intervals(leaf.path).get("hop", (float("-inf"), 0.0)) for leaf in chain]
        assert lows == sorted(lows)
        assert all(high == low for (_, high), (low, _) in itertools.pairwise(lows))
        assert tree.exact is (len(chain) < len(tree.leaves) or lows[-1][1] == 0.0 or tree.complete)
    assert calls == sum(leaf.new_calls for tree in trees.trees for leaf in tree.leaves)


def test_no_prompt_and_no_search_is_made_twice(tmp_path: Path) -> None:
    queries: list[str] = []

    def counted(query: str, k: int) -> Any:
        queries.append(query)
        return search(query, k)

    lm = lm_of(3)
    with dspy.context(lm=lm):
        trees = record_trees(Escalation(counted, rerank="none"), QUESTIONS[:1], tmp_path / "t.jsonl", leaves=30)
    assert len(lm.engine.prompts) == len(set(lm.engine.prompts))
    assert len(queries) == len(set(queries)) == sum(leaf.new_retrievals for t in trees.trees for leaf in t.leaves)
    assert sum(leaf.lm_calls for tree in trees.trees for leaf in tree.leaves) > len(lm.engine.prompts)


def test_a_limit_of_leaves_is_said(tmp_path: Path) -> None:
    full, _ = recorded(Escalation(search), 5, tmp_path / "full.jsonl", leaves=400)
    cut, _ = recorded(Escalation(search), 5, tmp_path / "cut.jsonl", leaves=2)
    assert [tree.leaves for tree in cut.trees] == [tree.leaves[:2] for tree in full.trees]
    assert not any(tree.complete for tree, whole in zip(cut.trees, full.trees, strict=True) if len(whole.leaves) > 2)
    worst = min(full.trees, key=lambda tree: -len(tree.leaves))
    small = next(tree for tree in cut.trees if tree.id == worst.id)
    assert not small.exact
    leaf, exact = small.leaf_at(dict.fromkeys(STEPS, 0.0))
    assert (leaf, exact) == (small.leaves[1], False)


@few
@given(st.integers(0, 10**6), st.lists(taus(), min_size=4, max_size=4))
def test_some_steps_alone_can_be_explored(
    tmp_path_factory: pytest.TempPathFactory, seed: int, points: list[dict[str, float]]
) -> None:
    path = tmp_path_factory.mktemp("t") / "trees.jsonl"
    program = Escalation(search, max_hops=3, tau=-0.305)
    trees, calls = recorded(program, seed, path, QUESTIONS[:1], leaves=200, steps=("grounded", "memory"))
    (tree,) = trees.trees
    assert trees.header.steps == ("memory", "grounded")
    assert {node.step for node in tree.nodes} <= {"memory", "grounded"}
    assert len(tree.leaves) <= 3
    assert tree.complete
    assert calls == sum(leaf.new_calls for leaf in tree.leaves)
    for thresholds in points:
        wanted = {step: thresholds[step] for step in ("memory", "grounded")}
        leaf, exact = tree.leaf_at(wanted)
        assert exact
        assert run_at(Escalation(search, max_hops=3, tau=-0.305), seed, QUESTIONS[0], wanted)[1] == (
            leaf.retrievals, leaf.lm_calls, leaf.prompt_tokens, leaf.completion_tokens, leaf.passages_read,
        )  # fmt: skip


@pytest.mark.parametrize(
    ("steps", "says_so"),
    [
        (("memory",), "no gate of the program needs a confidence at 'memory'; grounded, hop, final do"),
        (("grounded", "end"), "takes some of memory, grounded, hop, final"),
        ("grounded", "takes some of"),
        ((), "takes some of"),
        (1, "takes some of"),
    ],
)
def test_steps_that_cannot_be_explored_are_refused(tmp_path: Path, steps: Any, says_so: str) -> None:
    with pytest.raises(InputError, match=re.escape(says_so)):
        record_trees(
            Escalation(search, gates={"memory": ConstantGate(search=True)}),
            QUESTIONS[:1],
            tmp_path / "t.jsonl",
            steps=steps,
        )


def test_gates_that_need_no_confidence_stay(tmp_path: Path) -> None:
    program = Escalation(search, escalate="always", gates={"memory": ConstantGate(search=True)})
    trees, _ = recorded(program, 1, tmp_path / "t.jsonl")
    assert trees.header.steps == ("hop", "final")
    assert {node.step for tree in trees.trees for node in tree.nodes} == {"hop"}
    assert program.memo is None
    assert set(program.gates) == {"memory"}


@pytest.mark.parametrize("text", ["the uncle of number", ""])
def test_an_answer_that_no_threshold_keeps_is_no_decision(tmp_path: Path, text: str) -> None:
    with dspy.context(lm=scripted_lm(lambda prompt: "none" if prompt.rstrip().endswith("Task 1:") else Reply(text))):
        (tree,) = record_trees(Escalation(search, grounded=False), QUESTIONS[:1], tmp_path / "t.jsonl").trees
    assert not tree.nodes
    assert len(tree.leaves) == 1
    assert tree.complete


# --- files ------------------------------------------------------------------------------------------------------------


def test_a_file_is_read_as_it_was_recorded_and_holds_no_texts(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    trees, _ = recorded(Escalation(search), 2, path)
    assert read_trees(path) == trees
    text = path.read_text()
    assert not any(question.question in text for question in QUESTIONS)
    assert "Text of" not in text
    assert [tree.id for tree in trees.explored] == [question.id for question in QUESTIONS]
    assert {node.right for tree in trees.trees for node in tree.nodes if node.step == "grounded"} <= {True, False}


@pytest.mark.parametrize("cut", [0.1, 0.5, 0.9, 0.999])
def test_recording_goes_on_where_it_was_stopped(tmp_path: Path, cut: float) -> None:
    whole, calls = recorded(Escalation(search), 2, tmp_path / "whole.jsonl")
    data = (tmp_path / "whole.jsonl").read_bytes()
    header = data.index(b"\n") + 1
    (tmp_path / "t.jsonl").write_bytes(data[: header + int((len(data) - header) * cut)])
    before = {tree.id for tree in read_trees(tmp_path / "t.jsonl").trees}
    again, more = recorded(Escalation(search), 2, tmp_path / "t.jsonl")
    assert again.trees == whole.trees
    assert more == sum(leaf.new_calls for tree in whole.trees if tree.id not in before for leaf in tree.leaves)
    assert (more < calls) is bool(before)


def test_a_failure_is_recorded_and_may_be_tried_again(tmp_path: Path) -> None:
    path, broken = tmp_path / "t.jsonl", True

    def script(prompt: str) -> Any:
        if broken and "number 1" in prompt.rsplit("user: ", 1)[-1]:
            raise LookupError("gone")
        return Reply("b", -0.5) if "Task" not in prompt.rsplit("\n", 1)[-1] else "none"

    seen: list[Any] = []
    with dspy.context(lm=scripted_lm(script)):
        trees = record_trees(Escalation(search), QUESTIONS[:3], path, on_progress=seen.append)
        assert [tree.error is None for tree in trees.trees] == [True, False, True]
        assert [(told.done, told.errors) for told in seen] == [(0, 0), (1, 0), (2, 1), (3, 1)]
        assert len(trees.explored) == 2
        broken = False
        assert record_trees(Escalation(search), QUESTIONS[:3], path).trees == trees.trees
        again = record_trees(Escalation(search), QUESTIONS[:3], path, retry_errors=True)
    assert all(tree.error is None for tree in again.trees)


def test_failures_in_a_row_stop_it(tmp_path: Path) -> None:
    with dspy.context(lm=scripted_lm(lambda prompt: Reply("b", None))):
        trees = record_trees(Escalation(search), QUESTIONS, tmp_path / "t.jsonl", errors_in_row=2)
    assert len(trees.trees) == 2
    assert "log-probabilities" in str(trees.stopped)
    assert trees.missing == ("2", "3", "4", "5")


def test_bad_arguments_are_said(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    searching = ActiveQA(search, gates=dict.fromkeys(("hop", "final"), ConstantGate(search=True)))
    for program, message in ((RAG(search), "RAG"), (searching, "confidence")):
        with pytest.raises(InputError, match=message):
            record_trees(program, QUESTIONS, path)  # type: ignore[arg-type]
    for leaves in (0, True, 2.0):
        with pytest.raises(InputError, match="leaves"):
            record_trees(ActiveQA(search), QUESTIONS, path, leaves=leaves)  # type: ignore[arg-type]
    with dspy.context(lm=lm_of(1)), pytest.raises(InputError, match="no questions"):
        record_trees(ActiveQA(search), [], path)
    recorded(Escalation(search), 1, path, QUESTIONS[:1])
    for given_, message in (({"leaves": 3}, "leaves 8, now 3"), ({"questions": QUESTIONS[:2]}, "question")):
        with pytest.raises(InputError, match=message):
            recorded(Escalation(search), 1, path, **{"questions": QUESTIONS[:1], **given_})
    with pytest.raises(InputError, match="tau"):
        recorded(Escalation(search, tau=-1), 1, path, QUESTIONS[:1])
    with pytest.raises(InputError, match="steps"):
        recorded(Escalation(search, gates={"memory": ConstantGate(search=True)}), 1, path, QUESTIONS[:1])


def test_a_program_that_decides_otherwise_is_refused(tmp_path: Path) -> None:
    count = 0

    class Wavering(ActiveQA):
        def _next(self, trajectory: Any, settings: Any) -> Any:
            nonlocal count
            count += 1
            decided = yield from super()._next(trajectory, settings)
            return replace(decided, sub_question=f"{decided.sub_question} {count}")

    with dspy.context(lm=lm_of(1)), pytest.raises(StateError, match="decides otherwise"):
        record_trees(Wavering(search), QUESTIONS, tmp_path / "t.jsonl")


@pytest.mark.parametrize(
    ("line", "change", "message"),
    [
        (1, {"schema": 9}, "schema"),
        (1, {"kind": "run"}, "header"),
        (1, {"extra": 1}, "line 1: `extra`"),
        (2, {"id": "x"}, "line 2: question 'x'"),
        (2, {"exact": "yes"}, "line 2: `exact`"),
        (2, {"leaves": []}, "line 2: `leaves`"),
        (2, {"nodes": []}, "line 2: `leaves`"),
        (2, {"complete": None}, "line 2: `complete`"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, line: int, change: dict[str, Any], message: str) -> None:
    path = tmp_path / "t.jsonl"
    recorded(Escalation(search), 2, path, QUESTIONS[:2])
    lines = [json.loads(text) for text in path.read_text().splitlines()]
    lines[line - 1] |= change
    path.write_text("".join(json.dumps(item) + "\n" for item in lines))
    with pytest.raises((InputError, StateError), match=message):
        read_trees(path)


@pytest.mark.parametrize("content", ["", "{", "[]\n", "null\n", '{"kind": "trees"}\n'])
def test_what_is_no_file_of_trees_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "t.jsonl").write_text(content)
    with pytest.raises((InputError, StateError), match=r"t\.jsonl"):
        read_trees(tmp_path / "t.jsonl")
    with pytest.raises(InputError, match="no such"):
        read_trees(tmp_path / "none.jsonl")


def written(path: Path, paths: list[Any]) -> Path:
    """A file of one recorded tree whose leaves have other paths."""
    recorded(Escalation(search), 2, path, QUESTIONS[:1])
    lines = [json.loads(text) for text in path.read_text().splitlines()]
    leaf = lines[1]["leaves"][0]
    lines[1] |= {"nodes": [lines[1]["nodes"][0]] * 4, "leaves": [{**leaf, "path": one} for one in paths]}
    path.write_text("".join(json.dumps(item) + "\n" for item in lines))
    return path


YES, NO = [0, True], [0, False]


@pytest.mark.parametrize(
    ("paths", "message"),
    [
        ([[], [YES]], "leaf 1: goes on where another leaf ends"),
        ([[YES], [NO], []], "leaf 0: goes on where another"),
        ([[NO, [1, True]], [NO]], "leaf 0: goes on where another"),
        ([[YES, NO]], "decision 0 is met after different"),
        ([[YES], [NO, [1, True], NO]], "decision 0 is met after different"),
        ([[YES], [[1, False]]], "decision 1 follows where for another leaf 0 does"),
        ([[YES], [NO, [1, True]], [NO, [2, False]]], "decision 2 follows where for another leaf 1 does"),
        ([[YES, [1, True]], [NO, [1, False]]], "decision 1 is met after different"),
        ([[YES], [YES]], "occurs twice"),
        ([[[-1, True]]], "not in the tree"),
        ([[[4, True]]], "not in the tree"),
    ],
)
def test_paths_that_make_no_tree_are_refused(tmp_path: Path, paths: list[Any], message: str) -> None:
    with pytest.raises(StateError, match=rf"t\.jsonl, line 2: `leaves`: .*{message}"):
        read_trees(written(tmp_path / "t.jsonl", paths))


@pytest.mark.parametrize("paths", [[[]], [[YES]], [[YES], [NO]], [[YES, [2, True]], [NO, [1, False]]]])
def test_paths_of_a_tree_that_was_not_explored_to_the_end_are_read(tmp_path: Path, paths: list[Any]) -> None:
    (tree,) = read_trees(written(tmp_path / "t.jsonl", paths)).trees
    assert [[list(one) for one in leaf.path] for leaf in tree.leaves] == paths


@pytest.fixture(scope="module")
def intact(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("intact") / "t.jsonl"
    recorded(Escalation(search), 3, path, QUESTIONS[:3], leaves=6)
    return path.read_text()


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_damaged_tree_is_refused_or_still_leads_somewhere(
    data: st.DataObject, intact: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    lines = [json.loads(text) for text in intact.splitlines()]
    for _ in range(data.draw(st.integers(1, 3))):
        tree = data.draw(st.sampled_from([line for line in lines[1:] if line["leaves"]]))
        path = data.draw(st.sampled_from(tree["leaves"]))["path"]
        place = data.draw(st.integers(0, len(path)))
        way = data.draw(st.sampled_from(["cut", "put", "drop", "leaf", "node"]))
        if way == "cut":
            del path[place:]
        elif way == "put":
            path.insert(place, [data.draw(st.integers(0, len(tree["nodes"]))), data.draw(st.booleans())])
        elif way == "drop" and place < len(path):
            del path[place]
        elif way == "leaf":
            del tree["leaves"][data.draw(st.integers(0, len(tree["leaves"]) - 1))]
        elif tree["nodes"]:
            tree["nodes"][data.draw(st.integers(0, len(tree["nodes"]) - 1))]["mean"] = data.draw(tau)
    damaged = tmp_path_factory.getbasetemp() / "damaged.jsonl"
    damaged.write_text("".join(json.dumps(line) + "\n" for line in lines))
    try:
        trees = read_trees(damaged)
    except StateError as error:
        assert "damaged.jsonl, line" in str(error)
        return
    boxes, thresholds = Boxes(trees), data.draw(taus())
    rows, nearest = boxes.rows(thresholds)
    leaves = [leaf for tree in boxes.trees for leaf in tree.leaves]
    assert boxes.tree[rows].tolist() == list(range(len(boxes.trees)))
    found = [tree.leaf_at(thresholds) for tree in boxes.trees]
    assert [leaves[row] for row in rows] == [leaf for leaf, _ in found]
    assert nearest == sum(not exact for _, exact in found)
