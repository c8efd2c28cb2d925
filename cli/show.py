"""How a prediction is shown to people: hop by hop, then the answer and the cost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from .terminal import beginning, plain

if TYPE_CHECKING:
    from rich.console import Console

    from ..core import Passage
    from ..programs import Cost, Hop

_STOPPED = {
    "finished": "nothing more to ask",
    "max_hops": "the limit on hops was reached",
    "repeated": "the next sub-question was asked before",
    "empty": "the LM wrote nothing",
    "no_plan": "the plan was carried out, or none could be read",
    "context": "no room for more passages",
    "confident": "an answer to the whole question was sure enough",
}


def show_prediction(prediction: Any, tau: float | None, console: Console) -> None:
    """Show what a program did and answered.

    Args:
        prediction: What a program of :mod:`hopgate.programs` returned.
        tau: The threshold that drafts were compared with, in nats; ``None`` if there was none.
        console: Where to.
    """
    trajectory = prediction.trajectory
    for number, hop in enumerate(trajectory.hops, start=1):
        _hop(number, hop, tau, console)
    shown = {passage.id for hop in trajectory.hops for passage in hop.passages}
    if trajectory.passages:
        _line(console, "Read with the question", "")
        _passages(trajectory.passages, shown, console)
    reason = trajectory.stop_reason
    if trajectory.hops and reason is not None:
        _line(console, "Stopped", _STOPPED.get(reason, str(reason)), style="dim")
    for revision in trajectory.revisions:
        _line(console, "Attempt", _attempt(revision), style="dim")
    _line(console, "Answer", plain(prediction.answer) or "(none)", style="bold green")
    if prediction.get("answered") is False and prediction.get("best_guess"):
        _line(console, "Best guess", f"{plain(prediction.best_guess)} (nothing supports it)", style="dim")
    _line(console, "Cost", cost_line(prediction.cost), style="dim")


def _attempt(revision: Mapping[str, Any]) -> str:
    """One attempt of a corrector, by what its record has."""
    answer = plain(str(revision.get("answer") or "")) or "(none)"
    verdict = str(revision.get("error") or revision.get("verdict") or "not judged").replace("_", "-")
    kept = ", kept" if revision.get("kept") else ""
    return f"{revision.get('stage', 'other')}: {beginning(answer)} ({beginning(verdict)}{kept})"


def cost_line(cost: Cost) -> str:
    """What answering took, in one line."""
    from ..core.texts import counted

    parts = [
        counted(cost.retrievals, "retrieval"),
        counted(cost.lm_calls, "LM call") + (f" ({cost.cached_calls:,} from the cache)" if cost.cached_calls else ""),
        f"{cost.prompt_tokens:,} prompt and {cost.completion_tokens:,} completion tokens",
        f"{cost.seconds:.1f} seconds",
    ]
    return ", ".join(parts)


def _hop(number: int, hop: Hop, tau: float | None, console: Console) -> None:
    _line(console, "Whole question" if hop.whole else f"Hop {number}", plain(hop.sub_question), style="bold")
    if hop.draft is not None:
        _line(console, "  draft", f"{plain(hop.draft)} ({_judged(hop, tau)})")
    elif hop.note is not None:
        _line(console, "  draft", f"none ({beginning(hop.note)})")
    _line(console, "  source", _source(hop))
    if hop.passages:
        _line(console, "  passages", "")
        _passages(hop.passages, set(), console)
    _line(console, "  answer", plain(hop.answer) or "(none)")


def _judged(hop: Hop, tau: float | None) -> str:
    mean = None if hop.confidence is None else hop.confidence.mean
    outcome = "kept" if hop.source == "memory" else "not kept"
    if mean is None:
        return f"no confidence, {outcome}"
    confidence = f"confidence {mean:.2f} nats"
    if tau is None:
        return f"{confidence}, {outcome}"
    return f"{confidence}, {'at least' if mean >= tau else 'below'} tau {tau:.2f}: {outcome}"


def _source(hop: Hop) -> str:
    if hop.source == "memory":
        return "memory, no search"
    if hop.source == "calculator":
        return "calculated, from earlier answers"
    if hop.source == "already_read":
        return "already read, in the passages of an earlier hop"
    return f"search for: {plain(hop.query or hop.sub_question)}"


def _passages(passages: Iterable[Passage], shown: set[str], console: Console) -> None:
    for passage in passages:
        title = plain(passage.title) or plain(passage.id)
        # What was shown above is not shown in full again.
        _line(console, f"    [{title}]", "" if passage.id in shown else beginning(passage.text), separator="")


def _line(console: Console, label: str, value: str, *, style: str = "", separator: str = ":") -> None:
    from rich.padding import Padding
    from rich.text import Text

    indent = len(label) - len(label.lstrip())
    line = Text.assemble((f"{label.lstrip()}{separator}", "bold cyan"), (f" {value}" if value else "", style))
    if console.soft_wrap:
        console.print(" " * indent, line, sep="")
    else:
        console.print(Padding(line, (0, 0, 0, indent), expand=False))  # wrapped lines are indented as well
