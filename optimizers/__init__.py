"""Optimizers: fitting what a program decides by."""

from __future__ import annotations

from .curve import Curve, Point, Score, Thresholds, evaluate_at, scored_by, tau_curve
from .fitting import SETTING_OF, Fitted, drafts_as_trees, fit_tau
from .references import Chance, always, leaf_probabilities, never, oracle, random_at
from .rules import Rule, Tradeoff, WithinBest, WithinBudget
from .transfer import AtBudget, Transfer, transfer
from .tree_files import Trees, read_trees
from .tree_schema import Leaf, Node, Tree
from .trees import TreeProgress, record_trees

__all__ = [
    "SETTING_OF",
    "AtBudget",
    "Chance",
    "Curve",
    "Fitted",
    "Leaf",
    "Node",
    "Point",
    "Rule",
    "Score",
    "Thresholds",
    "Tradeoff",
    "Transfer",
    "Tree",
    "TreeProgress",
    "Trees",
    "WithinBest",
    "WithinBudget",
    "always",
    "drafts_as_trees",
    "evaluate_at",
    "fit_tau",
    "leaf_probabilities",
    "never",
    "oracle",
    "random_at",
    "read_trees",
    "record_trees",
    "scored_by",
    "tau_curve",
    "transfer",
]
