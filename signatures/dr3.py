"""Signatures of the discriminator that tells off-topic answers (Gao et al. 2024, Dr3, section 3.1).

The answer that is judged is called ``candidate``, since labelled demos go wherever the name ``answer`` is.
"""

from __future__ import annotations

from typing import Any

import dspy


class NameAnswerKinds(dspy.Signature):
    """Name the kinds of answer that the question admits, separated by commas."""

    question: str = dspy.InputField()
    kinds: str = dspy.OutputField(desc="kinds of answer, such as: a person, a year, yes or no")


class JudgeAnswer(dspy.Signature):
    """Say what kind of thing the answer is, then whether the question admits that kind. It need not be right."""

    question: str = dspy.InputField()
    kinds: str = dspy.InputField(desc="kinds of answer that the question admits")
    candidate: str = dspy.InputField(desc="the answer to judge")
    candidate_kind: str = dspy.OutputField(desc="kind of thing that the answer is")
    fits: str = dspy.OutputField(desc="yes or no")


# The small LM's labels, and where its lines end (see CompactAdapter).
_changes: tuple[tuple[Any, dict[str, Any]], ...] = (
    (NameAnswerKinds.output_fields["kinds"], {"one_line": True}),
    (JudgeAnswer.input_fields["candidate"], {"prefix": "Answer:"}),
    (JudgeAnswer.output_fields["candidate_kind"], {"prefix": "Answer is:"}),
    (JudgeAnswer.output_fields["fits"], {"one_line": True, "stop": ["\nQuestion:"]}),
)
for _field, _change in _changes:
    _field.json_schema_extra.update(_change)
