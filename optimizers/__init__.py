"""Optimizers: fitting what a program decides by."""

from __future__ import annotations

from .calibration import CalibratedGate, Calibrator, Quality, calibrate, fit_calibrator, quality
from .curve import Curve, Point, Score, Thresholds, evaluate_at, scored_by, tau_curve
from .fitting import SETTING_OF, Fitted, drafts_as_trees, fit_tau
from .references import Chance, always, leaf_probabilities, never, oracle, random_at
from .rules import Rule, Tradeoff, WithinBest, WithinBudget
from .run_trees import runs_as_trees
from .transfer import AtBudget, Transfer, transfer
from .tree_files import Trees, read_trees
from .tree_schema import Leaf, Node, Tree
from .trees import TreeProgress, record_trees

__all__ = [
    "SETTING_OF",
    "AtBudget",
    "CalibratedGate",
    "Calibrator",
    "Chance",
    "Curve",
    "Fitted",
    "Leaf",
    "Node",
    "Point",
    "Quality",
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
    "calibrate",
    "drafts_as_trees",
    "evaluate_at",
    "fit_calibrator",
    "fit_tau",
    "leaf_probabilities",
    "never",
    "oracle",
    "quality",
    "random_at",
    "read_trees",
    "record_trees",
    "runs_as_trees",
    "scored_by",
    "tau_curve",
    "transfer",
]
