"""Signature of ReAct+ (Gao et al. 2024, Dr3, section 3.2): a hop's task and the action that it takes, in one call.

Its other steps are those that all solvers share.
"""

from __future__ import annotations

from typing import Any

import dspy


class NextTask(dspy.Signature):
    """Set the next task of the plan and what to search for, or write none."""

    question: str = dspy.InputField()
    trajectory: str = dspy.InputField(desc="the plan, then tasks, actions, passages found and conclusions so far")
    task: str = dspy.OutputField(desc="a question about one fact, or none if the question can be answered")
    action: str | None = dspy.OutputField(desc="what to search for")


# The lines of the worked examples, numbered; what the program writes next ends them (see CompactAdapter).
_task: Any = NextTask.output_fields["task"].json_schema_extra
_task.update({"prefix": "Task #:", "implied_instruction": NextTask.instructions})
_action: Any = NextTask.output_fields["action"].json_schema_extra
_action.update({"prefix": "Action #:", "stop": ["\nFound:", "\nConclusion", "\nAnswer:"]})
