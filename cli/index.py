"""``hopgate index``: build an index, search it, change it, serve it, say what it is."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from .corpus_options import corpus_of, corpus_options
from .programs import is_address, open_index
from .serve import serve
from .terminal import beginning, goes_on, make_console, note, plain, size, text_argument, write_json

if TYPE_CHECKING:
    from rich.progress import Task
    from rich.text import Text


_WORTH_SAYING = 10.0
"""Seconds of encoding from which on they are told beforehand; less is over before it is read."""

_checkpoint = click.option(
    "--checkpoint", metavar="DIR", help="The index's checkpoint, if it was made with a local folder."
)


@click.group(invoke_without_command=True)
@click.pass_context
def index(context: click.Context) -> None:
    """Build, search, change and serve ColBERT indexes."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@index.command()
@click.argument("corpus")
@click.option("--out", "folder", metavar="DIR", required=True, help="Folder to make.")
@click.option("--checkpoint", metavar="NAME|DIR", help="ColBERT checkpoint; by default the embedded one.")
@click.option(
    "--engine",
    type=click.Choice(["auto", "exact", "plaid"]),
    default="auto",
    show_default=True,
    help="Score every passage, or search compressed vectors; auto: by size.",
)
@click.option(
    "--nbits",
    type=click.Choice(["1", "2", "4", "8"]),
    default="2",
    show_default=True,
    help="Bits per dimension that PLAID keeps.",
)
@click.option(
    "--hybrid/--no-hybrid", default=None, help="Fuse searches with BM25; by default with the embedded checkpoint."
)
@click.option(
    "--precision",
    type=click.Choice(["auto", "fp32", "bf16", "int8"]),
    default="auto",
    show_default=True,
    help="What passages are encoded in; auto: bf16 where the processor gains from it.",
)
@click.option("--threads", metavar="N", type=click.IntRange(min=1), help="Threads for encoding; by default all cores.")
@click.option(
    "--force",
    is_flag=True,
    help="Replace an index of something else in that place, or unfinished work on one, or one that was changed since.",
)
@corpus_options
def build(
    corpus: str,
    folder: str,
    checkpoint: str | None,
    engine: str,
    nbits: str,
    hybrid: bool | None,
    precision: str,
    threads: int | None,
    force: bool,
    reading: dict[str, Any],
) -> None:
    """Build an index of CORPUS: a file, a folder or a dataset with an id, a title and a text in each record.

    CORPUS is a JSON Lines, CSV, TSV or Parquet file, a ColBERT collection.tsv, a folder that Hugging Face datasets
    saved, or OWNER/NAME of a dataset on the hub. Without ids, the records are numbered from 0. A build that was
    interrupted goes on where it stopped, and a finished index of this corpus is left as it is.
    """
    from ..core.texts import counted
    from ..index import EMBEDDED, BuildEstimate, ColBERTIndex

    passages = corpus_of(corpus, reading)
    start, encoded = time.perf_counter(), False
    with _encoding() as report:

        def on_progress(done: int, total: int) -> None:
            nonlocal encoded
            encoded = True
            report(done, total)

        def on_estimate(estimate: BuildEstimate) -> None:
            seconds = estimate.seconds or 0.0
            duration = f", encoding for about {_duration(seconds)}" if seconds >= _WORTH_SAYING else ""
            note(f"{counted(estimate.passages, 'passage')}: about {size(estimate.bytes)} on the disk{duration}.")

        built = ColBERTIndex.build(
            passages,
            folder,
            checkpoint=checkpoint or EMBEDDED,
            engine=engine,
            nbits=int(nbits),
            hybrid=hybrid,
            precision=precision,
            threads=threads,
            replace=force,
            on_progress=on_progress,
            on_estimate=on_estimate,
        )
    info, seconds = built.info(), time.perf_counter() - start
    if not encoded:
        note(f"{folder} is already the index of this corpus.")
        return
    note(
        f"Built {folder}: {counted(info['passages'], 'passage')}, {counted(info['vectors'], 'vector')}, "
        f"{size(info['bytes'])}, engine {info['engine']} ({plain(info['engine_reason'])}), in {seconds:.1f} seconds, "
        "loading included."
    )


@index.command()
@click.argument("where", metavar="DIR|URL")
@click.argument("query")
@click.option("-k", "k", type=click.IntRange(min=1), default=5, show_default=True, help="Number of passages.")
@_checkpoint
@click.option("--json", "as_json", is_flag=True, help="Write one JSON object: query, passages.")
def search(where: str, query: str, k: int, checkpoint: str | None, as_json: bool) -> None:
    """Show the best passages of an index for QUERY (- reads it from standard input).

    The index is a folder, or the address of an index server, which is sent the token in the environment variable
    HOPGATE_TOKEN if there is one.
    """
    query = text_argument(query, "query")
    found = open_index(where, checkpoint).search(query, k)
    if as_json:
        write_json({"query": query, "passages": [passage.to_dict() for passage in found]})
        return
    from rich.table import Table

    table = Table("", "score", "id", "title", "text", box=None, pad_edge=False)
    table.columns[0].justify = table.columns[1].justify = "right"
    for rank, passage in enumerate(found, start=1):
        score = "" if passage.score is None else f"{passage.score:.2f}"
        table.add_row(str(rank), score, plain(passage.id), plain(passage.title), beginning(passage.text))
    make_console().print(table)


@index.command()
@click.argument("where", metavar="DIR|URL")
@click.option("--json", "as_json", is_flag=True, help="Write one JSON object.")
def info(where: str, as_json: bool) -> None:
    """Say what an index, a folder or at the address of an index server, holds and was made with."""
    from ..index import read_info

    record = open_index(where, None).info() if is_address(where) else read_info(where)
    if as_json:
        write_json(record)
        return
    from rich.table import Table

    table = Table(box=None, show_header=False, pad_edge=False)
    for name, value in record.items():
        table.add_row(plain(name.replace("_", " ")), plain(_shown(name, value)))
    make_console().print(table)


@index.command()
@click.argument("folder", metavar="DIR")
def verify(folder: str) -> None:
    """Read all files of the index DIR and compare them with their checksums."""
    from ..core.texts import counted
    from ..index import read_info

    record = read_info(folder, verify=True)
    note(f"{folder} is whole: {counted(record['passages'], 'passage')}, {size(record['bytes'])}.")


@index.command()
@click.argument("folder", metavar="DIR")
@click.argument("corpus")
@_checkpoint
@corpus_options
def add(folder: str, corpus: str, checkpoint: str | None, reading: dict[str, Any]) -> None:
    """Add the passages of CORPUS to the index DIR; adding that was interrupted goes on where it stopped."""
    from ..core.texts import counted
    from ..index import ColBERTIndex

    passages = corpus_of(corpus, reading)
    opened = ColBERTIndex.open(folder, checkpoint=checkpoint)
    before = len(opened)
    with _encoding() as report:
        opened.add(passages, on_progress=report)
    note(f"Added {counted(len(opened) - before, 'passage')} to {folder}, which holds {len(opened):,} now.")


@index.command()
@click.argument("folder", metavar="DIR")
@click.argument("ids", nargs=-1, required=True)
@_checkpoint
def delete(folder: str, ids: tuple[str, ...], checkpoint: str | None) -> None:
    """Delete the passages with these IDS from the index DIR."""
    from ..core.texts import counted
    from ..index import ColBERTIndex

    opened = ColBERTIndex.open(folder, checkpoint=checkpoint)
    before = len(opened)
    opened.delete(ids)
    note(f"Deleted {counted(before - len(opened), 'passage')} from {folder}, which holds {len(opened):,} now.")


@index.command()
@click.argument("folder", metavar="DIR")
@_checkpoint
def compact(folder: str, checkpoint: str | None) -> None:
    """Rewrite the index DIR in one piece, without what was deleted."""
    from ..index import ColBERTIndex, read_info

    before = read_info(folder)["bytes"]
    with _progress("Copying") as report:
        ColBERTIndex.open(folder, checkpoint=checkpoint).compact(on_progress=report)
    note(f"{folder} is in one piece: {size(read_info(folder)['bytes'])}, before {size(before)}.")


index.add_command(serve)


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{max(1, round(seconds))} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"


def _shown(name: str, value: Any) -> str:
    if isinstance(value, list):
        return f"{len(value):,}"
    if isinstance(value, dict):
        return ", ".join(f"{key} {item}" for key, item in value.items())
    if name == "bytes":
        return f"{value:,} ({size(value)})"
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    return f"{value:,}" if isinstance(value, int) else str(value)


@contextmanager
def _encoding() -> Iterator[Callable[[int, int], None]]:
    """A progress bar of encoding; Ctrl-C says how many passages are in finished chunks, which are kept."""
    from ..index.chunks import kept_passages

    reached: tuple[int, int] | None = None

    def on_progress(done: int, total: int) -> None:
        nonlocal reached
        reached = kept_passages(done, total), total
        report(done, total)

    with goes_on("passages", lambda: reached), _progress() as report:
        yield on_progress


@contextmanager
def _progress(action: str = "Encoding") -> Iterator[Callable[[int, int], None]]:
    """A progress bar on stderr; gives the function that moves it, and at its first call shows it.

    Where stderr is no terminal nothing is shown.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn
    from rich.text import Text

    class Speed(ProgressColumn):
        """Passages per second."""

        def render(self, task: Task) -> Text:
            # A small corpus is done before there is a speed to estimate.
            speed = task.finished_speed or task.speed or (task.completed / task.elapsed if task.elapsed else None)
            return Text("" if speed is None else f"{speed:,.0f} passages/s", style="dim")

    console = make_console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), Speed(), TimeRemainingColumn())
    bar = Progress(*columns, console=console)
    task = bar.add_task(action, total=None)
    waiting = console.status("Reading the corpus and loading the encoder...")
    waiting.start()

    def report(done: int, total: int) -> None:
        waiting.stop()
        if console.is_terminal:
            bar.start()
        bar.update(task, completed=done, total=total)

    try:
        yield report
    finally:
        waiting.stop()
        if bar.live.is_started:
            bar.stop()
