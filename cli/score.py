"""``hopgate score``: score predictions that were made elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from .terminal import make_console, note, plain, write_json

if TYPE_CHECKING:
    from ..evaluation.scoring import PredictionScores


@click.command()
@click.argument("predictions", metavar="PREDICTIONS")
@click.option(
    "--gold",
    metavar="FILE",
    required=True,
    help="Gold answers: a file of the data set or in our simple form, or hotpotqa, 2wikimultihopqa, musique, bamboogle "
    "or sample.",
)
@click.option("--split", metavar="NAME", help="Split of the gold data, if it has several.")
@click.option("--config", metavar="NAME", help="Configuration of the gold data on the hub, as fullwiki for hotpotqa.")
@click.option(
    "--normalisation",
    type=click.Choice(["official", "strict"]),
    default="official",
    show_default=True,
    help="How answers are compared: as the published scripts do, or keeping 3.14 and 314, C++ and C apart.",
)
@click.option(
    "--accents",
    type=click.Choice(["keep", "fold"]),
    default="keep",
    show_default=True,
    help="Whether the strict normalisation tells é from e.",
)
@click.option("--json", "as_json", is_flag=True, help="Write one JSON object; scores are fractions.")
def score(
    predictions: str,
    gold: str,
    split: str | None,
    config: str | None,
    normalisation: Any,
    accents: Any,
    as_json: bool,
) -> None:
    """Score PREDICTIONS, a file of ids and answers, against gold answers.

    PREDICTIONS is a JSON object of ids and answers, JSON Lines with id and answer, a HotpotQA prediction file, or a run
    file of hopgate. Gold questions without a prediction count as wrong.
    """
    from ..evaluation.datasets import load_questions
    from ..evaluation.normalisation import check_normalisation
    from ..evaluation.scoring import read_predictions, score_predictions

    check_normalisation(normalisation, accents)
    answers = read_predictions(predictions)
    questions = load_questions(gold, split=split, config=config)
    scores = score_predictions(questions, answers, normalisation=normalisation, accents=accents)
    _warn(scores)
    if as_json:
        write_json(scores.to_dict())
    else:
        _show(scores, questions.name)


def _warn(scores: PredictionScores) -> None:
    if scores.unknown:
        count = f"{scores.unknown:,} prediction{'s' if scores.unknown > 1 else ''}"
        first = plain(scores.unknown_ids[0])[:80]
        note(f"Warning: {count} left out, for ids that the gold data does not have (the first is {first}).")
    if scores.missing:
        count = f"{scores.missing:,} question{'s' if scores.missing > 1 else ''}"
        first = plain(scores.missing_ids[0])[:80]
        note(f"Warning: {count} without a prediction counted as wrong (the first is {first}).")


def _show(scores: PredictionScores, name: str) -> None:
    from rich.table import Table

    table = Table(title=f"{plain(name)}: {scores.n:,} questions, {scores.normalisation} normalisation")
    table.add_column("metric")
    table.add_column("%", justify="right")
    for label, value in (
        ("exact match", scores.em),
        ("F1", scores.f1),
        ("cover EM (substring)", scores.cover_em),
        ("cover EM (token recall)", scores.cover_em_tokens),
        ("off-topic (cheap rule)", scores.off_topic),
    ):
        table.add_row(label, f"{100 * value:.1f}")
    make_console().print(table)
