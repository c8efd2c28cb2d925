"""Signatures of the discriminator that tells off-topic answers (Gao et al. 2024, Dr3, section 3.1).

The answer that is judged is called ``candidate``, since labelled demos go wherever the name ``answer`` is.
"""

from __future__ import annotations

import dspy


class NameAnswerKinds(dspy.Signature):
    """Name the kinds of answer that the question admits, separated by commas."""

    question: str = dspy.InputField()
    kinds: str = dspy.OutputField(desc="kinds of answer, such as: a person, a year, yes or no")


class JudgeAnswer(dspy.Signature):
    """Is the answer of a kind that the question admits? It need not be right. Reply yes or no."""

    question: str = dspy.InputField()
    kinds: str = dspy.InputField(desc="kinds of answer that the question admits")
    candidate: str = dspy.InputField(desc="the answer to judge")
    fits: str = dspy.OutputField(desc="yes or no")


# Verdicts and kinds end with their line (see CompactAdapter).
JudgeAnswer.input_fields["candidate"].json_schema_extra["prefix"] = "Answer:"  # type: ignore[index]
for _output in (NameAnswerKinds.output_fields["kinds"], JudgeAnswer.output_fields["fits"]):
    _output.json_schema_extra["one_line"] = True  # type: ignore[index]
