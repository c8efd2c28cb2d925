"""The worked examples that a solver shows if it has not been given others.

They show the form of the lines, that a sub-question asks for one fact and stands for itself, and that a conclusion is
short. Compiled programs carry their own.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from ..core import InputError, Passage
from .trajectory import Hop, Trajectory
from .transcript import NO_MORE, found, hop_lines, opened, transcript, worked_example


def _hop(sub_question: str, answer: str, *passages: tuple[str, str]) -> Hop:
    found = tuple(Passage(id="", title=title, text=text) for title, text in passages)
    return Hop(sub_question, source="search" if found else "memory", passages=found, answer=answer)


DEFAULT_EXAMPLES: tuple[Trajectory, ...] = (
    Trajectory(
        question="In which year was the architect of the Halden Lighthouse born?",
        hops=(
            _hop(
                "Who was the architect of the Halden Lighthouse?",
                "Ivar Brenne",
                (
                    "Halden Lighthouse",
                    "The Halden Lighthouse is a stone tower of 1911 built after plans by Ivar Brenne.",
                ),
            ),
            _hop(
                "In which year was Ivar Brenne born?",
                "1868",
                ("Ivar Brenne", "Ivar Brenne (4 May 1868 - 1940) was a Norwegian architect of harbours and towers."),
            ),
        ),
        answer="1868",
    ),
    Trajectory(
        question="Were the composers Johannes Brahms and Giuseppe Verdi from the same country?",
        hops=(
            _hop("Which country was the composer Johannes Brahms from?", "Germany"),
            _hop("Which country was the composer Giuseppe Verdi from?", "Italy"),
        ),
        answer="no",
    ),
    Trajectory(
        question="The singer of the ballad Quiet Harbour was treasurer of a town that lies on which river?",
        hops=(
            _hop(
                "Who is the singer of the ballad Quiet Harbour?",
                "Lena Ostrow",
                ("Quiet Harbour", "Quiet Harbour is a ballad of 1974 sung by Lena Ostrow and arranged by Paul Emery."),
            ),
            _hop(
                "Lena Ostrow was treasurer of which town?",
                "Torvik",
                ("Lena Ostrow", "Lena Ostrow left the stage in 1980 and became treasurer of Torvik, her home town."),
            ),
            _hop(
                "On which river does the town Torvik lie?",
                "the Aune",
                ("Torvik", "Torvik is a town of 3,000 people at the mouth of the Aune, known for its salmon."),
            ),
        ),
        answer="the Aune",
    ),
)


def _calculation(sub_question: str, expression: str, *known: tuple[str, str]) -> dict[str, Any]:
    hops = tuple(_hop(*pair) for pair in known)
    shown = opened(Trajectory("", hops), Hop(sub_question))
    return {"question": sub_question, "trajectory": shown, "expression": expression}


CALCULATIONS: tuple[dict[str, Any], ...] = (
    _calculation(
        "How many years before the Halden Lighthouse was Ivar Brenne born?",
        'years("1868", "1911")',
        ("In which year was the Halden Lighthouse built?", "1911"),
        ("When was Ivar Brenne born?", "4 May 1868"),
    ),
    _calculation(
        "Who is older, Lena Ostrow or Paul Emery?",
        '"Lena Ostrow" if date("3 June 1941") < date("1938") else "Paul Emery"',
        ("When was Lena Ostrow born?", "3 June 1941"),
        ("When was Paul Emery born?", "1938"),
    ),
    _calculation(
        "Which was built first, the Halden Lighthouse or the Torvik Mill?",
        '"the Halden Lighthouse" if date("1911") < date("1898") else "the Torvik Mill"',
        ("In which year was the Halden Lighthouse built?", "1911"),
        ("In which year was the Torvik Mill built?", "1898"),
    ),
    _calculation(
        "What is the total number of towers in Torvik and Halden?",
        "12 + 31",
        ("How many towers are in Torvik?", "12"),
        ("How many towers are in Halden?", "31"),
    ),
    _calculation(
        "Who was mayor of Torvik in 1974?",
        NO_MORE,
        ("In which year was Quiet Harbour released?", "1974"),
        ("How many people live in Torvik?", "3,000"),
    ),
)
"""Demos of the step that writes an expression, which no worked example shows."""


def step_demos(example: Trajectory, step: str, words: int) -> list[dict[str, Any]]:
    """A worked example as demos of one step.

    Each demo has the fields of the step's signature, for adapters that render examples turn by turn, and the whole
    example as ``transcript``, which ``CompactAdapter`` shows once, the same for all steps.

    Args:
        example: A finished trajectory.
        step: ``plan``, ``next_sub_question``, ``next_with_draft``, ``draft``, ``read`` or ``compose``.
        words: Words to show of each passage.

    Raises:
        InputError: The example has no answer.
    """
    if example.answer is None:
        raise InputError(f"a worked example needs an answer: {example.question[:80]!r}")
    example = replace(example, hops=example.tasks)
    if step == "plan":
        # A plan is a line of its own kind, which the transcript does not show.
        return [{"question": example.question, "trajectory": "", "plan": _plan(example)}]
    if step == "compose":
        lines = [transcript(example, words=None), *found(example.passages, words)]
        moments = [("\n".join(filter(None, lines)), {"answer": example.answer})]
    elif step == "next_sub_question":
        asked = [*(hop.sub_question for hop in example.hops), NO_MORE]
        moments = [
            (transcript(example.prefix(number), words=words), {"sub_question": sub_question})
            for number, sub_question in enumerate(asked)
        ]
    elif step == "next_with_draft":
        moments = [_fused_moment(example, number) for number in range(len(example.hops) + 1)]
    else:
        moments = [_hop_moment(example, number, step, words) for number in range(len(example.hops))]
        wanted = "search" if step == "read" else "memory"
        moments = [moment for moment, hop in zip(moments, example.hops, strict=True) if hop.source == wanted]
    whole = worked_example(example, words=words)
    if not moments:
        return [{"question": example.question, "transcript": whole}]
    return [{"question": example.question, "trajectory": text, **out, "transcript": whole} for text, out in moments]


def _plan(example: Trajectory) -> str:
    steps = []
    for number, hop in enumerate(example.hops):
        sub_question = hop.sub_question
        for earlier, before in enumerate(example.hops[:number], 1):
            whole = rf"(?<!\w){re.escape(before.answer)}(?!\w)" if before.answer else r"(?!)"
            sub_question = re.sub(whole, f"#{earlier}", sub_question)
        steps.append(sub_question)
    return " | ".join(steps)


def _fused_moment(example: Trajectory, number: int) -> tuple[str, dict[str, str]]:
    before = transcript(example.prefix(number), words=None)
    if number == len(example.hops):
        return before, {"sub_question": NO_MORE}
    hop = example.hops[number]
    # What had to be searched for is no example of a draft.
    return before, {"sub_question": hop.sub_question, **({"draft": hop.answer} if hop.source == "memory" else {})}


def _hop_moment(example: Trajectory, number: int, step: str, words: int) -> tuple[str, dict[str, str]]:
    before, hop = example.prefix(number), example.hops[number]
    if step == "read":
        lines = [transcript(before, words=words), *hop_lines(hop, number + 1, words=words, conclusion=False)]
        return "\n".join(filter(None, lines)), {"conclusion": hop.answer}
    return opened(before, hop), {"draft": hop.answer}
