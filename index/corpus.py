"""Corpora: reading passages from files and datasets, checking them, and a fingerprint of what was read."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import ujson

from ..core import CorpusError, InputError, Passage, user_path
from .faults import is_broken as is_broken
from .faults import passage_fault
from .readers import Located, read_csv, read_jsonl, read_tsv
from .records import Layout
from .splitting import check_lengths, split_passages
from .tables import read_folder, read_hub, read_parquet

FORMATS = ("jsonl", "csv", "tsv", "parquet", "datasets")

_SUFFIXES = {
    **{".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl"},
    **{".csv": "csv", ".tsv": "tsv", ".parquet": "parquet"},
}
_HUB_NAME = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?(:[\w.+-]+)?", re.ASCII)


def read_corpus(
    source: str | Path,
    *,
    format: str | None = None,  # noqa: A002
    split: str | None = None,
    fields: Mapping[str, str] | None = None,
    metadata: Sequence[str] | None = None,
    passage_words: int | None = None,
    overlap_words: int | None = None,
) -> Iterator[Passage]:
    """Read passages from a file, a folder or the Hugging Face hub, one at a time.

    The formats:

    - ``jsonl``: an object a line. Blank lines are skipped.
    - ``csv``, ``tsv``: a row of column names, then rows; cells may be quoted with ``"``. Metadata are texts: ``"1990"``
      is no number, and filters convert it.
    - ``tsv`` as ColBERT's ``collection.tsv``, known by a number at its beginning: no names, rows of number, text and
      maybe title, nothing quoted.
    - ``parquet``: a Parquet file.
    - ``datasets``: a folder that ``save_to_disk`` of Hugging Face datasets made, or the name of a dataset on the hub,
      ``OWNER/NAME`` or ``OWNER/NAME:CONFIGURATION``. Datasets on the hub are streamed; none of their code is run.

    A record has its id in ``id``, ``_id``, ``pid``, ``docid`` or ``doc_id`` (a string or an integer; integers become
    strings), its title in ``title``, ``page`` or ``name``, if it has one, and its text in ``text``, ``abstract``,
    ``contents`` or ``sentences``, as a string, a list of sentences or a list of paragraphs that are lists of sentences.
    If the first record has no id, none may have one, and their numbers from 0 are the ids. All other fields become
    metadata, as JSON: dates become ISO 8601 strings, and NaN becomes ``None``. The fields of an object ``metadata``
    are put among them. Texts are kept exactly as they are.

    Args:
        source: The path of a file (UTF-8, and with the suffix ``.gz`` compressed, if it is text) or folder, or the
            name of a dataset.
        format: One of :data:`FORMATS`. By default told by the suffix; a file with an unknown one is read as ``jsonl``,
            a folder as a dataset, and a name without a suffix that is no path is sought on the hub.
        split: The split of a dataset with several.
        fields: The source's names for ``id``, ``title`` and ``text``, where they are others than those above.
        metadata: The fields to keep as metadata; by default all. Each must occur in a record. Where records can differ
            (``jsonl``), that one is in none of them shows at the end of the source.
        passage_words: Words from which on a text is split, see :func:`~hopgate.index.splitting.split_passages`.
        overlap_words: Words that split passages may share; by default a fifth of ``passage_words``.

    Returns:
        An iterator over the passages, in the order of the source. What is wrong with the source shows while it is
        read. The ids of all passages are kept in memory until the end, to find those that occur twice, and nothing
        else is.

    Raises:
        InputError: An argument has no possible value, or the path starts with the home folder of an unknown user.
        CorpusError: The source is missing, empty or not readable; or a record has no text, an id of the wrong type or
            one that occurs twice, or cannot be read. The message starts with ``file:line:`` or ``file: row N:``, with
            rows counted from 0.
    """
    if format is not None and format not in FORMATS:
        raise InputError(f"format must be one of {', '.join(FORMATS)}, got {format!r:.80}")
    if split is not None and (not isinstance(split, str) or not split):
        raise InputError(f"split must be the name of a split, got {split!r:.80}")
    layout = Layout.of(fields, metadata)
    if passage_words is None:
        if overlap_words is not None:
            raise InputError("overlap_words needs passage_words, the words that a passage may have")
        return _read(source, format, split, layout)
    overlap = 0 if overlap_words is None else overlap_words
    check_lengths(passage_words, overlap)
    overlap = passage_words // 5 if overlap_words is None else overlap_words
    return _read(source, format, split, layout, (passage_words, overlap))


def _read(
    source: str | Path, form: str | None, split: str | None, layout: Layout, lengths: tuple[int, int] | None = None
) -> Iterator[Passage]:
    # A generator, so that the source is looked at only when it is read.
    located = _located(source, form, split, layout)
    located = _all_found(located, layout, source)
    empty = f"{source}: holds no passages; give a source with at least one record"
    if lengths is not None:
        located = _split(_checked(located, empty=empty), *lengths)
    yield from checked_passages(located, empty=empty)


def _all_found(located: Located, layout: Layout, source: str | Path) -> Located:
    """Refuse, at the end, names of metadata that no record has."""
    missing = layout.sought()
    is_empty = True
    for where, passage in located:
        is_empty = False
        missing.difference_update(passage.metadata)
        yield where, passage
    if missing and not is_empty:
        raise CorpusError(f"{source}: no record has `{min(missing):.80}`, to be kept as metadata; correct the name")


def _split(located: Located, words: int, overlap: int) -> Located:
    for where, passage in located:
        try:
            for part in split_passages([passage], words=words, overlap=overlap):
                yield where, part
        except CorpusError as error:
            raise CorpusError(f"{where}: {error}") from error


def _located(source: str | Path, form: str | None, split: str | None, layout: Layout) -> Located:
    path = user_path(source)
    try:
        is_folder, exists = path.is_dir(), path.exists()
    except OSError:  # a name that is too long
        is_folder = exists = False
    suffixes = [suffix.lower() for suffix in path.suffixes[-2:]]
    if suffixes and suffixes[-1] == ".gz":
        suffixes.pop()
    known = _SUFFIXES.get(suffixes[-1]) if suffixes else None
    if form is None:
        form = known or "jsonl"
        if is_folder or (not exists and known is None and _may_be_on_hub(source)):
            form = "datasets"
    if form == "datasets":
        if exists and not is_folder:
            raise CorpusError(f"{path}: is a file; give a folder made by `save_to_disk`, or another format")
        return read_folder(path, layout, split) if is_folder else read_hub(str(source), layout, split)
    if split is not None:
        raise InputError(f"split is for datasets, and {source} is read as {form}; leave it out")
    match form:
        case "csv":
            return read_csv(path, layout)
        case "tsv":
            return read_tsv(path, layout)
        case "parquet":
            return read_parquet(path, layout)
        case _:
            return read_jsonl(path, layout)


def _may_be_on_hub(source: str | Path) -> bool:
    """Whether what is no path is rather the name of a dataset than a path with a mistake."""
    if not isinstance(source, str) or not _HUB_NAME.fullmatch(source):
        return False
    owner, slash, _ = source.partition("/")
    return not Path(owner).exists() if slash else "." not in source


def checked_passages(located: Iterable[tuple[str, Passage]], *, empty: str) -> Iterator[Passage]:
    """Pass passages on, refusing those that no index can hold.

    The ids, not the texts, of all passages are kept in memory until the end.

    Args:
        located: Pairs of where a passage comes from (for messages) and the passage.
        empty: The message if there are none.

    Raises:
        CorpusError: A field is not a string, a text is empty, an id occurs twice, a string cannot be written as UTF-8,
            metadata is not a JSON object of a sensible size, or there are no passages.
    """
    return (passage for _, passage in _checked(located, empty=empty))


def _checked(located: Iterable[tuple[str, Passage]], *, empty: str) -> Located:
    seen: set[str] = set()
    for where, passage in located:
        fault = passage_fault(passage)
        if fault is not None:
            raise CorpusError(f"{where}: {fault}")
        if not passage.text.strip():
            raise CorpusError(f"{where}: passage {passage.id!r} has no `text`; add one or remove the passage")
        if passage.id in seen:
            raise CorpusError(f"{where}: id {passage.id!r} occurs a second time; ids must be unique")
        seen.add(passage.id)
        yield where, passage
    if not seen:
        raise CorpusError(empty)


def passage_line(passage: Passage) -> str:
    """The normal form of a passage: a JSON object on one line, without line end.

    Its fields are ``id``, ``title``, ``text`` and, if there is any, ``metadata``.
    """
    record: dict[str, Any] = {"id": passage.id, "title": passage.title, "text": passage.text}
    if passage.metadata:
        record["metadata"] = dict(passage.metadata)
    return ujson.dumps(record, ensure_ascii=False, escape_forward_slashes=False)


class CorpusFingerprint:
    """SHA-256 over the normal forms of passages; their order counts."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()

    def add(self, line: str) -> None:
        """Take in one line of :func:`passage_line`."""
        self._digest.update(line.encode())
        self._digest.update(b"\n")

    def hexdigest(self) -> str:
        """The fingerprint of what was added so far, as lower-case hexadecimal digits."""
        return self._digest.hexdigest()


def corpus_fingerprint(passages: Iterable[Passage]) -> str:
    """The fingerprint of a corpus that is at hand; see :class:`CorpusFingerprint`."""
    fingerprint = CorpusFingerprint()
    for passage in passages:
        fingerprint.add(passage_line(passage))
    return fingerprint.hexdigest()
