"""``hopgate ask``: answer one question."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import click

from .programs import NAMES, SEARCHING, check_index, open_index
from .terminal import make_console, note, text_argument, write_json

if TYPE_CHECKING:
    import dspy


def _tau(context: click.Context, parameter: click.Parameter, value: float | None) -> float | None:
    if value is not None and not (math.isfinite(value) and value <= 0):
        raise click.BadParameter(
            f"{value} is not a mean log-probability, which is 0 or less; --gate never|always are the two ends"
        )
    return value


@click.command()
@click.argument("question")
@click.option("--index", "folder", metavar="DIR|URL", help="Index to search (`hopgate index build` makes one).")
@click.option("--checkpoint", metavar="DIR", help="The index's checkpoint, if it was made with a local folder.")
@click.option("--lm", "model", metavar="MODEL", help="Language model; by default the embedded one.")
@click.option(
    "--program",
    "name",
    type=click.Choice(NAMES),
    default="active",
    show_default=True,
    help="How to answer; docs/programs.md describes each.",
)
@click.option("--tau", type=float, callback=_tau, help="Search where a draft's confidence (nats) is below this.")
@click.option("--gate", type=click.Choice(["threshold", "always", "never"]), help="Whether to search at every hop.")
@click.option("-k", "k", type=click.IntRange(1, 100), help="Passages that one search puts before the LM.")
@click.option("--json", "as_json", is_flag=True, help="Write one JSON object: question, answer, trajectory, cost, ...")
def ask(
    question: str,
    folder: str | None,
    checkpoint: str | None,
    model: str | None,
    name: str,
    tau: float | None,
    gate: str | None,
    k: int | None,
    as_json: bool,
) -> None:
    """Answer QUESTION (- reads it from standard input)."""
    question = text_argument(question, "question")
    searches = name in SEARCHING
    settings: dict[str, Any] = {"tau": tau, "gate": gate, "k": k}
    settings = {setting: value for setting, value in settings.items() if value is not None}
    if searches:
        check_index(folder, name)

    with make_console(stderr=True).status("Loading...") as status:
        _check_length(question)
        from ..lms import DEFAULT_MODEL, lm_from_config
        from ..programs.registry import make_program

        lm = lm_from_config(DEFAULT_MODEL if model is None else model)
        index = open_index(folder, checkpoint) if searches and folder is not None else None
        program = make_program(name, index)
        program.settings.update(**_used(program, settings, searches))
        status.update(f"Answering with {lm.model}...")
        prediction = _answer(program, lm, question)
    if as_json:
        _write(question, prediction)
        return
    from .show import show_prediction

    values = _settings(program)
    show_prediction(prediction, values.get("tau") if values.get("gate") == "threshold" else None, make_console())


def _settings(program: Any) -> dict[str, Any]:
    """The settings of a program, and of the programs in it."""
    values: dict[str, Any] = {}
    for _, module in program.named_sub_modules():
        if hasattr(module, "settings"):
            values = {**module.settings.values.model_dump(), **values}
    return values


def _used(program: Any, settings: dict[str, Any], searches: bool) -> dict[str, Any]:
    """Those of the settings that make a difference to a program; a note tells the others."""
    values = _settings(program)
    used = set(values)
    if not searches:
        used.discard("k")
    if settings.get("gate", values.get("gate")) != "threshold":
        used.discard("tau")
    unused = sorted(set(settings) - used)
    if unused:
        note(f"Note: this program does not use {', '.join(unused)}.")
    return {setting: value for setting, value in settings.items() if setting in used}


def _check_length(question: str) -> None:
    from ..core import InputError
    from ..programs.solver import MAX_QUESTION_CHARACTERS

    if len(question) > MAX_QUESTION_CHARACTERS:
        raise InputError(
            f"the question has {len(question):,} characters and may have {MAX_QUESTION_CHARACTERS:,}; shorten it"
        )


def _answer(program: Any, lm: dspy.LM, question: str) -> dspy.Prediction:
    import dspy

    from ..lms import CompactAdapter

    with dspy.context(lm=lm, adapter=CompactAdapter()):
        return program(question=question)


def _write(question: str, prediction: Any) -> None:
    from dataclasses import asdict

    write_json(
        {
            "question": question,
            "answer": prediction.answer,
            **{name: prediction[name] for name in ("answered", "best_guess", "verdict") if name in prediction},
            "trajectory": prediction.trajectory.to_dict(),
            "cost": asdict(prediction.cost),
        }
    )
