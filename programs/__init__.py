"""The DSPy modules: trajectory, gate, ActiveQA and the programs it is measured against."""

from __future__ import annotations

from .active import ActiveQA
from .baselines import RAG, ChainOfThought, Direct
from .corrector import Dr3Settings
from .decomposers import Decomposer, Fused, Iterative, Plan
from .discriminator import Discriminator, DiscriminatorSettings, Verdict
from .dr3 import Dr3
from .escalation import Escalation
from .flare import FLARE, FLARESettings
from .gates import ConstantGate, Draft, Gate, OracleGate, RandomGate, ThresholdGate
from .ircot import IRCoT, IRCoTSettings
from .memo import Memo
from .react import ReAct, ReActSettings
from .react_plus import ReActPlus, ReActPlusSettings
from .retrievers import Retriever, RetrieverHandle
from .self_ask import SelfAsk, SelfAskSettings
from .self_consistency import SelfConsistency, SelfConsistencySettings
from .settings import ActiveSettings, EscalationSettings, ExampleSettings, ProgramSettings, Settings
from .solver import Solver
from .trajectory import Cost, Decision, Hop, Source, Step, StopReason, Trajectory
from .worked_examples import DEFAULT_EXAMPLES

__all__ = [
    "DEFAULT_EXAMPLES",
    "FLARE",
    "RAG",
    "ActiveQA",
    "ActiveSettings",
    "ChainOfThought",
    "ConstantGate",
    "Cost",
    "Decision",
    "Decomposer",
    "Direct",
    "Discriminator",
    "DiscriminatorSettings",
    "Dr3",
    "Dr3Settings",
    "Draft",
    "Escalation",
    "EscalationSettings",
    "ExampleSettings",
    "FLARESettings",
    "Fused",
    "Gate",
    "Hop",
    "IRCoT",
    "IRCoTSettings",
    "Iterative",
    "Memo",
    "OracleGate",
    "Plan",
    "ProgramSettings",
    "RandomGate",
    "ReAct",
    "ReActPlus",
    "ReActPlusSettings",
    "ReActSettings",
    "Retriever",
    "RetrieverHandle",
    "SelfAsk",
    "SelfAskSettings",
    "SelfConsistency",
    "SelfConsistencySettings",
    "Settings",
    "Solver",
    "Source",
    "Step",
    "StopReason",
    "ThresholdGate",
    "Trajectory",
    "Verdict",
]
