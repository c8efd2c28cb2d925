"""The worked examples that a solver shows if it has not been given others.

They show the form of the lines, that a sub-question asks for one fact and stands for itself, and that a conclusion is
short. Compiled programs carry their own.
"""

from __future__ import annotations

from ..core import Passage
from .trajectory import Hop, Trajectory


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
                ("Halden Lighthouse", "The Halden Lighthouse is a stone tower built in 1911 after plans by Ivar Brenne."),
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
        question="Which has more moons, the planet Mars or the planet Venus?",
        hops=(
            _hop("How many moons does the planet Mars have?", "two"),
            _hop("How many moons does the planet Venus have?", "none"),
        ),
        answer="Mars",
    ),
    Trajectory(
        question="What position did the singer of the song Quiet Harbour hold in the Marlow city council?",
        hops=(
            _hop(
                "Who sang the song Quiet Harbour?",
                "Lena Ostrow",
                ("Quiet Harbour", "Quiet Harbour is a ballad of 1974 sung by Lena Ostrow and arranged by Paul Emery."),
            ),
            _hop(
                "What position did Lena Ostrow hold in the Marlow city council?",
                "treasurer",
                ("Lena Ostrow", "Lena Ostrow left the stage in 1980 and was treasurer of the Marlow city council."),
            ),
        ),
        answer="treasurer",
    ),
)
