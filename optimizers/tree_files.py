"""Files of decision trees: reading, checking, and appending so that a kill loses at most the question under way."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ..core import InputError, StateError, user_path, write_atomic
from ..evaluation.line_files import cut_off, lines_of, one_writer, parsed
from ..evaluation.run_differences import differences
from .tree_schema import SCHEMA, Tree, TreesHeader, header_adapter, tree_adapter

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
    paths = [leaf.path for leaf in tree.leaves]
    if any(not 0 <= place < len(tree.nodes) for path in paths for place, _ in path) or len(set(paths)) < len(paths):
        raise StateError(f"{where}: `leaves`: a path is not in the tree or occurs twice; {_REMEDY}")
    if not {node.step for node in tree.nodes} <= set(header.steps):
        raise StateError(f"{where}: `nodes`: a step is none of {', '.join(header.steps)}; {_REMEDY}")
