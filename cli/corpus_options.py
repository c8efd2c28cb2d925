"""Options that say how a corpus is read, shared by the commands that take one."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..core import Passage

_OPTIONS = (
    click.option(
        "--format",
        "form",
        type=click.Choice(["jsonl", "csv", "tsv", "parquet", "datasets"]),
        help="Format of CORPUS; by default told by its name.",
    ),
    click.option("--split", metavar="NAME", help="Split of a dataset that has several."),
    click.option("--id-field", metavar="NAME", help="Field that is the id, if it is not called id, _id, pid or docid."),
    click.option(
        "--title-field", metavar="NAME", help="Field that is the title, if it is not called title, page or name."
    ),
    click.option("--text-field", metavar="NAME", help="Field that is the text, if it is not called text or contents."),
    click.option("--metadata", metavar="NAMES", help="Other fields to keep, with commas between; by default all."),
    click.option(
        "--passage-words", metavar="N", type=int, help="Split texts longer than N words at ends of sentences."
    ),
    click.option("--overlap-words", metavar="N", type=int, help="Words that split passages may share.  [default: N/5]"),
)


def corpus_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command these options; it gets them as ``reading``, the arguments of ``read_corpus``."""

    @functools.wraps(command)
    def collected(
        *args: Any,
        form: str | None,
        split: str | None,
        id_field: str | None,
        title_field: str | None,
        text_field: str | None,
        metadata: str | None,
        passage_words: int | None,
        overlap_words: int | None,
        **others: Any,
    ) -> Any:
        named = {"id": id_field, "title": title_field, "text": text_field}
        reading = {
            "format": form,
            "split": split,
            "fields": {role: name for role, name in named.items() if name is not None} or None,
            "metadata": None if metadata is None else [name.strip() for name in metadata.split(",") if name.strip()],
            "passage_words": passage_words,
            "overlap_words": overlap_words,
        }
        return command(*args, reading=reading, **others)

    for option in reversed(_OPTIONS):
        collected = option(collected)
    return collected


def corpus_of(path: str, reading: dict[str, Any]) -> str | Iterator[Passage]:
    """What to build of: the path itself if it is to be read as it is, else its passages.

    Raises:
        CorpusError: The first passage cannot be read: told before an encoder is sought.
    """
    from ..index import read_corpus

    next(read_corpus(path, **reading))
    return path if all(option is None for option in reading.values()) else read_corpus(path, **reading)
