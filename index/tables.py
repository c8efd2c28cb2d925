"""The records of Parquet files and of Hugging Face ``datasets``; both libraries are imported when they are needed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ..core import CorpusError
from ..core.hub import hub_answers
from .readers import Located, check_file, one_line
from .records import Layout

_ROWS = 500  # read at a time


def read_parquet(path: Path, layout: Layout) -> Located:
    """The passages of a Parquet file, and where each stands; rows are counted from 0.

    Raises:
        CorpusError: The file is missing, damaged or of another format, or a row is not a passage.
    """
    import pyarrow
    import pyarrow.parquet

    check_file(path, "parquet")
    try:
        file = pyarrow.parquet.ParquetFile(path)
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise CorpusError(f"{path}: not a whole Parquet file ({one_line(error)}); fetch or write it again") from error
    with file:
        columns = file.schema_arrow.names
        layout.check(columns, str(path))
        batches = file.iter_batches(batch_size=_ROWS, columns=layout.wanted(columns))
        yield from _rows(str(path), batches, layout)


def read_folder(path: Path, layout: Layout, split: str | None) -> Located:
    """The passages of a folder that ``save_to_disk`` of ``datasets`` made, and where each stands.

    Raises:
        CorpusError: The folder is something else or damaged, the split is not there, or a row is not a passage.
    """
    if not any((path / name).is_file() for name in ("dataset_dict.json", "state.json")):
        raise CorpusError(
            f"{path}: is a folder, but none that `save_to_disk` of Hugging Face datasets made; give such a folder or a "
            "file"
        )
    import datasets

    try:
        found = datasets.load_from_disk(str(path))
    except Exception as error:  # anything may be wrong with what the files hold
        raise CorpusError(f"{path}: cannot be read as a dataset ({one_line(error)}); save it again") from error
    yield from _dataset(str(path), found, layout, split)


def read_hub(name: str, layout: Layout, split: str | None) -> Located:
    """The passages of a dataset on the Hugging Face hub, and where each stands; streamed, and without running its code.

    Args:
        name: ``OWNER/NAME``, with ``:CONFIGURATION`` behind it where there are several.
        layout: Which column is which.
        split: The split, if there are several.

    Raises:
        CorpusError: The hub cannot be reached or does not give the dataset, or a row is not a passage.
    """
    if not hub_answers():
        raise CorpusError(
            f"{name}: no such file or folder, and the model hub cannot be reached to look for a dataset of that name; "
            "correct the path, or connect to the network"
        )
    import datasets

    repo, _, configuration = name.partition(":")
    try:
        found = datasets.load_dataset(repo, configuration or None, streaming=True)
    except Exception as error:  # errors of the hub, of HTTP, of many file formats
        raise CorpusError(
            f"{name}: no such file or folder, and no dataset that can be read from the model hub ({one_line(error)}); "
            "correct the name"
        ) from error
    yield from _dataset(name, found, layout, split)


def _dataset(where: str, found: Any, layout: Layout, split: str | None) -> Located:
    if isinstance(found, dict):
        splits = ", ".join(map(str, found))
        if split is None and len(found) != 1:
            raise CorpusError(f"{where}: has the splits {splits:.300}; choose one with split (--split)")
        if split is not None and split not in found:
            raise CorpusError(f"{where}: no split {split!r:.80}; it has {splits:.300}")
        found = found[split] if split is not None else next(iter(found.values()))
    elif split is not None and str(found.split) != split:
        raise CorpusError(f"{where}: no split {split!r:.80}; it has {found.split or 'no splits, so leave split out'}")
    columns = found.column_names
    if columns:  # Not known of every dataset before its first row.
        layout.check(columns, where)
        found = found.select_columns(layout.wanted(columns))
    yield from _rows(where, found.with_format("arrow").iter(batch_size=_ROWS), layout)


def _rows(source: str, batches: Iterable[Any], layout: Layout) -> Located:
    numbered: bool | None = None
    count = 0
    for columns, records in _records(source, batches):
        if numbered is None:
            layout.check(columns, source)
            numbered = not layout.has_id(columns)
        for record in records:
            where = f"{source}: row {count}"
            yield where, layout.passage(record, where, count if numbered else None)
            count += 1


def _records(source: str, batches: Iterable[Any]) -> Iterator[tuple[list[str], list[dict[str, Any]]]]:
    """The column names and the rows of each batch."""
    rest, count = iter(batches), 0
    while True:
        try:
            batch = next(rest, None)
            records = [] if batch is None else batch.to_pylist()
        except Exception as error:  # what damaged data raises differs from format to format
            raise CorpusError(
                f"{source}: row {count} or one soon after it cannot be read ({one_line(error)}); fetch or write the "
                "data again"
            ) from error
        if batch is None:
            return
        yield batch.schema.names, records
        count += len(records)
