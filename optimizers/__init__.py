"""Optimizers: fitting what a program decides by."""

from __future__ import annotations

from .tau import FittedTau, fit_tau
from .tree_files import Trees, read_trees
from .tree_schema import Leaf, Node, Tree
from .trees import TreeProgress, record_trees

__all__ = ["FittedTau", "Leaf", "Node", "Tree", "TreeProgress", "Trees", "fit_tau", "read_trees", "record_trees"]
