"""``hopgate ask``: answer one question."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import click

from .programs import NAMES, SEARCHING, check_index, named_values, program_name
from .run_inputs import program_of
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
    metavar="NAME|FILE",
    callback=program_name,
    help=f"{', '.join(NAMES)} (docs/programs.md describes each), or a saved program's file.  [default: active]",
)
@click.option("--state", metavar="FILE", help="Saved program's file, where it does not say the program's name.")
@click.option("--set", "pairs", metavar="NAME=VALUE", multiple=True, help="A setting of the program; VALUE is JSON.")
@click.option("--tau", type=float, callback=_tau, help="Search where a draft's confidence (nats) is below this.")
@click.option("--gate", type=click.Choice(["threshold", "always", "never"]), help="Whether to search at every hop.")
@click.option("-k", "k", type=click.IntRange(1, 100), help="Passages that one search puts before the LM.")
@click.option("--json", "as_json", is_flag=True, help="Write one JSON object: question, answer, trajectory, cost, ...")
def ask(
    question: str,
    folder: str | None,
    checkpoint: str | None,
    model: str | None,
    name: str | None,
    state: str | None,
    pairs: tuple[str, ...],
    tau: float | None,
    gate: str | None,
    k: int | None,
    as_json: bool,
) -> None:
    """Answer QUESTION (- reads it from standard input)."""
    question = text_argument(question, "question")
    named: dict[str, Any] = {"tau": tau, "gate": gate, "k": k}
    named = {setting: value for setting, value in named.items() if value is not None}
    _check_named_once(pairs, named)
    if state is None and (name is None or name in SEARCHING):
        check_index(folder, name or "active")

    with make_console(stderr=True).status("Loading...") as status:
        _check_length(question)
        from ..lms import DEFAULT_MODEL, lm_from_config

        program = program_of(name, state, pairs, folder, checkpoint).program
        lm = lm_from_config(DEFAULT_MODEL if model is None else model)
        program.settings.update(**_used(program, named))
        status.update(f"Answering with {lm.model}...")
        prediction = _answer(program, lm, question)
    if as_json:
        _write(question, prediction)
        return
    from .show import show_prediction

    values = _settings(program)
    compared = values.get("gate") == "threshold" and not _own_gate(program)
    show_prediction(prediction, values.get("tau") if compared else None, make_console())


def _check_named_once(pairs: tuple[str, ...], named: dict[str, Any]) -> None:
    from ..core import InputError

    for setting in named_values(pairs):
        if setting in named:
            raise InputError(f"`{setting}` is given twice, by an option of its own and by --set")


def _settings(program: Any) -> dict[str, Any]:
    """The settings of a program, and of the programs in it."""
    values: dict[str, Any] = {}
    for _, module in program.named_sub_modules():
        if hasattr(module, "settings"):
            values = {**module.settings.values.model_dump(), **values}
    return values


def _own_gate(program: Any) -> bool:
    """Whether a gate of its own, and no setting, decides on drafts."""
    return any(
        getattr(module, "gate", None) is not None or "hop" in getattr(module, "gates", {})
        for _, module in program.named_sub_modules()
    )


def _used(program: Any, named: dict[str, Any]) -> dict[str, Any]:
    """Those of the settings that make a difference to a program; a note tells the others."""
    values = _settings(program)
    used = set(values)
    if program.retriever is None:
        used.discard("k")
    if _own_gate(program):
        used -= {"tau", "gate"}
    elif named.get("gate", values.get("gate")) != "threshold":
        used.discard("tau")
    unused = sorted(set(named) - used)
    if unused:
        note(f"Note: this program does not use {', '.join(unused)}.")
    return {setting: value for setting, value in named.items() if setting in used}


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
