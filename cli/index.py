"""``hopgate index``: build an index, search it, say what it is."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from .terminal import beginning, make_console, note, plain, size, text_argument, write_json

if TYPE_CHECKING:
    from rich.progress import Task
    from rich.text import Text


@click.group(invoke_without_command=True)
@click.pass_context
def index(context: click.Context) -> None:
    """Build and search ColBERT indexes."""
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
    "--format",
    "form",
    type=click.Choice(["jsonl", "csv", "tsv", "parquet", "datasets"]),
    help="Format of CORPUS; by default told by its name.",
)
@click.option("--split", metavar="NAME", help="Split of a dataset that has several.")
@click.option("--id-field", metavar="NAME", help="Field that is the id, if it is not called id, _id, pid or docid.")
@click.option("--title-field", metavar="NAME", help="Field that is the title, if it is not called title, page or name.")
@click.option("--text-field", metavar="NAME", help="Field that is the text, if it is not called text or contents.")
@click.option("--metadata", metavar="NAMES", help="Other fields to keep, with commas between; by default all.")
@click.option("--passage-words", metavar="N", type=int, help="Split texts longer than N words at ends of sentences.")
@click.option("--overlap-words", metavar="N", type=int, help="Words that split passages may share.  [default: N/5]")
def build(
    corpus: str,
    folder: str,
    checkpoint: str | None,
    engine: str,
    nbits: str,
    form: str | None,
    split: str | None,
    id_field: str | None,
    title_field: str | None,
    text_field: str | None,
    metadata: str | None,
    passage_words: int | None,
    overlap_words: int | None,
) -> None:
    """Build an index of CORPUS: a file, a folder or a dataset with an id, a title and a text in each record.

    CORPUS is a JSON Lines, CSV, TSV or Parquet file, a ColBERT collection.tsv, a folder that Hugging Face datasets
    saved, or OWNER/NAME of a dataset on the hub. Without ids, the records are numbered from 0. A build that was
    interrupted goes on where it stopped.
    """
    from ..index import EMBEDDED, ColBERTIndex, read_corpus

    named = {"id": id_field, "title": title_field, "text": text_field}
    reading: dict[str, Any] = {
        "format": form,
        "split": split,
        "fields": {role: name for role, name in named.items() if name is not None} or None,
        "metadata": None if metadata is None else [name.strip() for name in metadata.split(",") if name.strip()],
        "passage_words": passage_words,
        "overlap_words": overlap_words,
    }
    # The first passage shows whether there is a corpus at all, before an encoder is sought.
    next(read_corpus(corpus, **reading))
    plain_path = all(option is None for option in reading.values())
    passages = corpus if plain_path else read_corpus(corpus, **reading)
    start, encoded = time.perf_counter(), False
    with _progress() as report:

        def on_progress(done: int, total: int) -> None:
            nonlocal encoded
            encoded = True
            report(done, total)

        built = ColBERTIndex.build(
            passages,
            folder,
            checkpoint=checkpoint or EMBEDDED,
            engine=engine,
            nbits=int(nbits),
            on_progress=on_progress,
        )
    info, seconds = built.info(), time.perf_counter() - start
    if not encoded:
        note(f"{folder} is already the index of this corpus.")
        return
    note(
        f"Built {folder}: {info['passages']:,} passages, {info['vectors']:,} vectors, {size(info['bytes'])}, engine "
        f"{info['engine']} ({info['engine_reason']}), in {seconds:.1f} seconds."
    )


@index.command()
@click.argument("folder", metavar="DIR")
@click.argument("query")
@click.option("-k", "k", type=click.IntRange(min=1), default=5, show_default=True, help="Number of passages.")
@click.option("--checkpoint", metavar="DIR", help="The index's checkpoint, if it was made with a local folder.")
@click.option("--json", "as_json", is_flag=True, help="Write one JSON object: query, passages.")
def search(folder: str, query: str, k: int, checkpoint: str | None, as_json: bool) -> None:
    """Show the best passages of the index DIR for QUERY (- reads it from standard input)."""
    query = text_argument(query, "query")
    from ..index import ColBERTIndex

    found = ColBERTIndex.open(folder, checkpoint=checkpoint).search(query, k)
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
@click.argument("folder", metavar="DIR")
@click.option("--json", "as_json", is_flag=True, help="Write one JSON object.")
@click.option("--verify", is_flag=True, help="Read all files and compare them with their checksums.")
def info(folder: str, as_json: bool, verify: bool) -> None:
    """Say what the index DIR holds and was made with."""
    from ..index import read_info

    record = read_info(folder, verify=verify)
    if as_json:
        write_json(record)
        return
    from rich.table import Table

    table = Table(box=None, show_header=False, pad_edge=False)
    for name, value in record.items():
        table.add_row(name.replace("_", " "), _shown(name, value))
    make_console().print(table)


def _shown(name: str, value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {item}" for key, item in value.items())
    if name == "bytes":
        return f"{value:,} ({size(value)})"
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    return f"{value:,}" if isinstance(value, int) else plain(str(value))


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None]]:
    """A progress bar on stderr; gives the function that moves it, and at its first call shows it."""
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
    task = bar.add_task("Encoding", total=None)
    waiting = console.status("Reading the corpus and loading the encoder...")
    waiting.start()

    def report(done: int, total: int) -> None:
        waiting.stop()
        bar.start()
        bar.update(task, completed=done, total=total)

    try:
        yield report
    finally:
        waiting.stop()
        if bar.live.is_started:
            bar.stop()
