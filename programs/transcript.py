"""How a trajectory is written for the LM: one text that only grows while a question is worked on.

The lines are those of the worked examples: ``Task 1`` (a sub-question), ``Found``,
``Conclusion 1``, ``Task 2`` and so on, at the end ``Answer``. Numbered tasks make a small model ask for one fact at a
time; the same model copies the whole question behind the label ``Sub Question`` (benchmarks/README.md).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from ..core import Passage
from .trajectory import Hop, Trajectory

NO_MORE = "none"
"""What the LM writes in place of a sub-question when nothing is missing."""


def line(label: str, text: str) -> str:
    """One line of a transcript; line breaks within the text become spaces."""
    return f"{label} {' '.join(text.split())}"


def found(passages: Iterable[Passage], words: int) -> list[str]:
    """One line a passage, cut to at most so many words."""
    return [line("Found:", shorten(passage.long_text, words)) for passage in passages]


def shorten(text: str, words: int) -> str:
    """The first ``words`` words of a text; a cut is marked with an ellipsis."""
    match = re.match(rf"(?:\s*\S+){{1,{words}}}", text)
    return text if match is None or match.end() >= len(text.rstrip()) else f"{match.group().rstrip()} ..."


def hop_lines(hop: Hop, number: int, *, words: int | None, conclusion: bool = True) -> list[str]:
    """The lines of one hop.

    Args:
        hop: The hop.
        number: Its number, from 1.
        words: Words to show of each passage; ``None`` leaves the passages out.
        conclusion: Whether the hop is finished.
    """
    lines = [line(f"Task {number}:", hop.sub_question)]
    if words is not None:
        lines += found(hop.passages, words)
    return [*lines, line(f"Conclusion {number}:", hop.answer)] if conclusion else lines


def transcript(trajectory: Trajectory, *, words: int | None) -> str:
    """All finished hops of a trajectory but the whole question's own.

    Args:
        trajectory: The trajectory.
        words: Words to show of each passage; ``None`` gives the conclusions alone.
    """
    hops = enumerate(trajectory.tasks, 1)
    return "\n".join(text for number, hop in hops for text in hop_lines(hop, number, words=words))


def opened(trajectory: Trajectory, hop: Hop) -> str:
    """The conclusions so far and an open sub-question, without any passage."""
    task = line(f"Task {len(trajectory.tasks) + 1}:", hop.sub_question)
    return "\n".join(filter(None, [transcript(trajectory, words=None), task]))


def hint(trajectory: Trajectory) -> list[str]:
    """The line that keeps composing from giving the last rejected answer again; none if none was rejected.

    Only the last one is shown, so that no prompt grows from one attempt into the next (Gao et al. 2024, Dr3, section
    3.2, Re-Compose).
    """
    return [line("Hint:", f"the answer is not {trajectory.rejected[-1]}.")] if trajectory.rejected else []


def failed_plan(trajectory: Trajectory) -> list[str]:
    """The line that tells decomposing which plan failed last; none if none failed."""
    return [line("Failed plan:", " | ".join(trajectory.failed_plans[-1]))] if trajectory.failed_plans else []


def worked_example(trajectory: Trajectory, *, words: int) -> str:
    """A finished trajectory as a worked example: the question, its hops and its answer."""
    lines = [line("Question:", trajectory.question), transcript(trajectory, words=words)]
    lines += [line(f"Task {len(trajectory.tasks) + 1}:", NO_MORE), line("Answer:", trajectory.answer or "")]
    return "\n".join(filter(None, lines))
