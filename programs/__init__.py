"""The DSPy modules: trajectory, gate, ActiveQA and the programs it is measured against."""

from __future__ import annotations

from .active import ActiveQA
from .baselines import RAG, ChainOfThought, Direct
from .decomposers import Decomposer, Iterative, Plan
from .gates import ConstantGate, Draft, Gate, ThresholdGate
from .retrievers import Retriever, RetrieverHandle
from .settings import ActiveSettings, ProgramSettings, Settings
from .solver import Solver
from .trajectory import Cost, Hop, Source, StopReason, Trajectory
from .worked_examples import DEFAULT_EXAMPLES

__all__ = [
    "DEFAULT_EXAMPLES",
    "RAG",
    "ActiveQA",
    "ActiveSettings",
    "ChainOfThought",
    "ConstantGate",
    "Cost",
    "Decomposer",
    "Direct",
    "Draft",
    "Gate",
    "Hop",
    "Iterative",
    "Plan",
    "ProgramSettings",
    "Retriever",
    "RetrieverHandle",
    "Settings",
    "Solver",
    "Source",
    "StopReason",
    "ThresholdGate",
    "Trajectory",
]
