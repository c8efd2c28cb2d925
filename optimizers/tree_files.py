"""Files of decision trees: reading, checking, and appending so that a kill loses at most the question under way."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path

from ..core import InputError, StateError, user_path, write_atomic
from ..evaluation.line_files import cut_off, lines_of, one_writer, parsed
from ..evaluation.run_differences import differences
from .tree_schema import SCHEMA, Tree, TreesHeader, header_adapter, tree_adapter
from .tree_schema import Path as Decisions

_WHAT = "file of decision trees; `hopgate.optimizers.record_trees` makes one"
_REMEDY = "record the trees again into another file"


@dataclass(frozen=True)
class Trees:
    """Recorded decision trees.

    Attributes:
        header: What they were recorded with.
        trees: One a question, in the order of the data; questions that were not explored yet have none.
        stopped: Why recording ended early, if it did in this process.
    """

    header: TreesHeader
    trees: tuple[Tree, ...]
    stopped: str | None = None

    @cached_property
    def explored(self) -> tuple[Tree, ...]:
        """The trees of the questions that did not fail."""
        return tuple(tree for tree in self.trees if tree.error is None)

    @property
    def missing(self) -> tuple[str, ...]:
        """Ids of the questions that were not explored yet."""
        known = {tree.id for tree in self.trees}
        return tuple(identity for identity in self.header.run.data.ids if identity not in known)


def trees_of(trees: Trees | Iterable[Tree], what: str = "trees") -> tuple[Tree, ...]:
    """Recorded trees of different questions, failed ones included.

    Args:
        trees: The trees.
        what: The argument that they were given as.

    Raises:
        InputError: They are no trees, or two are of one question.
    """
    if isinstance(trees, str | bytes | PathLike) or not isinstance(trees, Trees | Iterable):
        raise InputError(f"`{what}` takes recorded trees, got {trees!r:.80}; read a file of them by read_trees(path)")
    found = trees.trees if isinstance(trees, Trees) else tuple(trees)
    seen: set[str] = set()
    for place, tree in enumerate(found):
        if not isinstance(tree, Tree):
            more = (
                "give one `Trees` at a time" if isinstance(tree, Trees) else "read a file of them by read_trees(path)"
            )
            raise InputError(f"`{what}` takes recorded trees, but number {place} is a {type(tree).__name__}; {more}")
        if tree.id in seen:
            raise InputError(
                f"`{what}`: there are two trees of the question {tree.id!r}; give one a question, of one program"
            )
        seen.add(tree.id)
    return found


def check_alike(trees: object, others: object, what: str) -> None:
    """Refuse recorded trees of another program, LM or steps than others; those without a header are taken as given.

    Thresholds and other settings may differ.

    Raises:
        InputError: They are of another; ``what`` names the argument.
    """
    if not isinstance(trees, Trees) or not isinstance(others, Trees):
        return
    one, other = trees.header.run, others.header.run
    for kind, first, second in (
        ("program", one.program.name, other.program.name),
        ("LM", one.lm.get("model"), other.lm.get("model")),
    ):
        if first != second:
            raise InputError(f"`{what}`: was recorded with the {kind} {second}, and the other trees with {first}")
    if set(trees.header.steps) != set(others.header.steps):
        explored = " and ".join(", ".join(header.steps) for header in (others.header, trees.header))
        raise InputError(f"`{what}`: other steps were explored than in the other trees: {explored}; record both alike")


def read_trees(path: str | Path) -> Trees:
    """Read and check a file of decision trees.

    A last line that was cut by a kill is left out; the later of two trees of one question counts.

    Args:
        path: The file.

    Raises:
        InputError: The file is missing, or holds no trees.
        StateError: It has another version, or a line is damaged; the message names the line.
    """
    return _load(user_path(path))[0]


@contextmanager
def appending(path: str | Path, header: TreesHeader) -> Iterator[tuple[Trees, Callable[[Tree], None]]]:
    """Open a file of trees to append to, or make it: what it holds already, and what writes a further tree.

    The file is locked while the body runs (``.NAME.lock`` beside it, which stays). A cut last line is removed.

    Args:
        path: The file.
        header: What the trees are recorded with. A file that is there must have been made with the same.

    Raises:
        HopgateError: Another process writes the file.
        InputError: The file was made with something else, holds no trees, or is no regular file.
        StateError: As for :func:`read_trees`.
        OSError: The file cannot be written.
    """
    target = user_path(path)
    with one_writer(target, "process"):
        if not target.exists() or target.stat().st_size == 0:
            write_atomic(target, header_adapter().dump_json(header) + b"\n")
            before = Trees(header, ())
        else:
            before, end = _load(target)
            _check_same(target, before.header, header)
            cut_off(target, end)
        with target.open("ab") as file:

            def append(tree: Tree) -> None:
                file.write(tree_adapter().dump_json(tree) + b"\n")
                file.flush()
                os.fsync(file.fileno())  # a tree takes many seconds of an LM, this some milliseconds

            yield before, append


def _check_same(target: Path, old: TreesHeader, new: TreesHeader) -> None:
    other = differences(old.run, new.run)
    if old.leaves != new.leaves:
        other.append(f"limit of leaves {old.leaves}, now {new.leaves}")
    if old.steps != new.steps:
        other.append(f"steps {', '.join(old.steps)}, now {', '.join(new.steps)}")
    if other:
        raise InputError(
            f"{target}: was made with something else and cannot be resumed: {'; '.join(other)}; give what it was made "
            "with, or write to another file"
        )


def _load(path: Path) -> tuple[Trees, int]:
    """The trees, and the bytes of the file up to its last usable line."""
    header: TreesHeader | None = None
    found: dict[str, Tree] = {}
    end = 0
    for number, line, whole in lines_of(path, _WHAT):
        if header is None:
            header = _header(path, number, line)
        elif line.strip():
            try:
                tree = parsed(tree_adapter(), path, number, line, _REMEDY)
                _check_tree(tree, header, f"{path}, line {number}")
            except StateError:
                if whole:
                    raise
                break  # cut by a kill
            found[tree.id] = tree
        end += len(line)
    if header is None:
        raise InputError(f"{path}: is empty, and no {_WHAT}")
    ordered = tuple(found[identity] for identity in header.run.data.ids if identity in found)
    return Trees(header, ordered), end


def _header(path: Path, number: int, line: bytes) -> TreesHeader:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}, line {number}: is not the header of a {_WHAT} ({error})") from error
    if not isinstance(record, dict) or record.get("kind") != "trees":
        raise InputError(f"{path}, line {number}: is not the header of a {_WHAT}")
    if record.get("schema") != SCHEMA:
        raise StateError(
            f"{path}: `schema` is {record.get('schema')!r} and this version of hopgate reads {SCHEMA}; read it with "
            "the version that wrote it, or install a newer hopgate"
        )
    return parsed(header_adapter(), path, number, line, _REMEDY)


def _check_tree(tree: Tree, header: TreesHeader, where: str) -> None:
    if tree.id not in header.run.data.ids:
        raise StateError(f"{where}: question {tree.id!r} is not in the header; {_REMEDY}")
    if (tree.error is None) != bool(tree.leaves):
        raise StateError(f"{where}: `leaves`: a tree has either leaves or an error; {_REMEDY}")
    if (wrong := _wrong_paths(tree)) is not None:
        raise StateError(f"{where}: `leaves`: {wrong}; {_REMEDY}")
    if not {node.step for node in tree.nodes} <= set(header.steps):
        raise StateError(f"{where}: `nodes`: a step is none of {', '.join(header.steps)}; {_REMEDY}")


def _wrong_paths(tree: Tree) -> str | None:
    """Why the leaves' paths make no tree: after the same decisions the same comes next, and it comes nowhere else."""
    paths = {leaf.path for leaf in tree.leaves}
    if len(paths) < len(tree.leaves):
        return "a path occurs twice"
    next_after: dict[Decisions, int] = {}
    before: dict[int, Decisions] = {}
    for number, path in enumerate(leaf.path for leaf in tree.leaves):
        for length, (place, _) in enumerate(path):
            start = path[:length]
            if not 0 <= place < len(tree.nodes):
                return f"leaf {number}: decision {place} is not in the tree"
            if start in paths:
                return f"leaf {number}: goes on where another leaf ends"
            if next_after.setdefault(start, place) != place:
                return f"leaf {number}: decision {place} follows where for another leaf {next_after[start]} does"
            if before.setdefault(place, start) != start:
                return f"leaf {number}: decision {place} is met after different decisions"
    return None
