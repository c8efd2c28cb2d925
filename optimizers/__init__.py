"""Optimizers: fitting what a program decides by."""

from __future__ import annotations

from .budget_lines import BudgetLines, budget_lines
from .calibration import CalibratedGate, Calibrator, Quality, calibrate, fit_calibrator, quality
from .compiled import ProgramFile, load_program, read_program, save_program
from .compiled_figures import Compiled, Measured
from .compiled_joint import compile_joint
from .compiled_manifest import CompiledData, Manifest, ManifestPoint
from .compiled_recorded import compile_recorded
from .compiled_recording import Recorder
from .curve import Curve, Point, Score, Thresholds, evaluate_at, scored_by, tau_curve
from .fitting import SETTING_OF, Fitted, drafts_as_trees, fit_tau
from .joint import JointOptimizer, JointProgress
from .joint_estimate import Estimate
from .joint_result import CandidateSummary, FrontPoint, JointResult
from .plots import plot_curve, plot_front, plot_importance, plot_learning, plot_reliability, save_plot
from .policy import PolicyGate, Weight
from .policy_features import FEATURES, features
from .policy_training import PolicyEpoch, TrainedPolicy, train_policy
from .policy_trees import PolicyValue, evaluate_policy
from .racing import Race, Standing
from .references import Chance, always, leaf_probabilities, never, oracle, random_at
from .report_charts import curve_chart, front_chart
from .rules import Rule, Tradeoff, WithinBest, WithinBudget
from .run_trees import runs_as_trees
from .study import FinishedTrial, SharedStudy, Trial
from .study_spec import StudySpec
from .transfer import AtBudget, Transfer, transfer
from .tree_files import Trees, read_trees
from .tree_schema import Leaf, Node, Tree
from .trees import TreeProgress, record_trees

__all__ = [
    "FEATURES",
    "SETTING_OF",
    "AtBudget",
    "BudgetLines",
    "CalibratedGate",
    "Calibrator",
    "CandidateSummary",
    "Chance",
    "Compiled",
    "CompiledData",
    "Curve",
    "Estimate",
    "FinishedTrial",
    "Fitted",
    "FrontPoint",
    "JointOptimizer",
    "JointProgress",
    "JointResult",
    "Leaf",
    "Manifest",
    "ManifestPoint",
    "Measured",
    "Node",
    "Point",
    "PolicyEpoch",
    "PolicyGate",
    "PolicyValue",
    "ProgramFile",
    "Quality",
    "Race",
    "Recorder",
    "Rule",
    "Score",
    "SharedStudy",
    "Standing",
    "StudySpec",
    "Thresholds",
    "Tradeoff",
    "TrainedPolicy",
    "Transfer",
    "Tree",
    "TreeProgress",
    "Trees",
    "Trial",
    "Weight",
    "WithinBest",
    "WithinBudget",
    "always",
    "budget_lines",
    "calibrate",
    "compile_joint",
    "compile_recorded",
    "curve_chart",
    "drafts_as_trees",
    "evaluate_at",
    "evaluate_policy",
    "features",
    "fit_calibrator",
    "fit_tau",
    "front_chart",
    "leaf_probabilities",
    "load_program",
    "never",
    "oracle",
    "plot_curve",
    "plot_front",
    "plot_importance",
    "plot_learning",
    "plot_reliability",
    "quality",
    "random_at",
    "read_program",
    "read_trees",
    "record_trees",
    "runs_as_trees",
    "save_plot",
    "save_program",
    "scored_by",
    "tau_curve",
    "train_policy",
    "transfer",
]
