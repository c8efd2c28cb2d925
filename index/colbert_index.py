"""The index as users see it: build, open, search, rerank, update."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..core import IndexStoreError, InputError, Passage
from .build import Request, build_index
from .checkpoint import EMBEDDED, is_hub_name, open_checkpoint
from .chunks import OnProgress
from .encoder import PRECISIONS, Encoder
from .estimate import OnEstimate
from .exact import maxsim
from .folders import index_folder
from .interface import Filter, PassageIndex, check_k, check_passages, check_queries, check_query, checked_ids
from .manifest import Manifest, read_manifest, verify_files
from .updates import add_passages, compact_index, delete_passages
from .view import View, open_view, while_it_changes


class ColBERTIndex(PassageIndex):
    """A ColBERT index on disk: search and rerank passages by MaxSim over token vectors.

    Made by :meth:`build` or :meth:`open`. Threads may share it, also while :meth:`add`, :meth:`delete` or
    :meth:`compact` run: each search sees the passages of one moment. Copies (``copy``, ``deepcopy``) are the index
    itself, and a pickle holds where to open it again. As a callable it is a tool for ``dspy.ReAct`` that returns texts.

    Late interaction and MaxSim: Khattab & Zaharia 2020, https://arxiv.org/abs/2004.12832. Compressed search: Santhanam
    et al. 2022, ColBERTv2, https://arxiv.org/abs/2112.01488, and PLAID, https://arxiv.org/abs/2205.09707.
    """

    def __init__(self, view: View, encoder: Encoder, hybrid: bool | None) -> None:
        super().__init__()
        self._view = view
        self._encoder = encoder
        self._hybrid = hybrid

    @classmethod
    def build(
        cls,
        corpus: str | Path | Iterable[Passage],
        path: str | Path,
        *,
        checkpoint: str | Path = EMBEDDED,
        engine: str = "auto",
        nbits: int = 2,
        hybrid: bool | None = None,
        precision: str = "auto",
        threads: int | None = None,
        replace: bool = False,
        on_progress: OnProgress | None = None,
        on_estimate: OnEstimate | None = None,
    ) -> ColBERTIndex:
        """Build an index and open it.

        A build that was interrupted goes on where it stopped. If the index is there already, made of the same corpus
        with the same settings, it is opened as it is, or built anew if it is damaged. An index of something else in
        that place, or one that was updated, is left alone unless ``replace`` is true.

        Args:
            corpus: A corpus file, saved dataset or dataset name, see :func:`~hopgate.index.read_corpus`, or passages.
            path: The folder to make.
            checkpoint: ``embedded/minilm-colbert``, a local ColBERT checkpoint folder, or a hub name such as
                ``colbert-ir/colbertv2.0``.
            engine: ``exact`` (every passage is scored), ``plaid`` (compressed; needs a C++ compiler), or ``auto``: by
                size.
            nbits: Bits per dimension that PLAID keeps of a residual: 1, 2, 4 or 8.
            hybrid: Whether searches fuse late interaction with BM25 by reciprocal rank; by default with the embedded
                checkpoint, for which it was measured to gain.
            precision: What passages are encoded in, ``fp32``, ``bf16``, ``int8`` or ``auto``; see
                :class:`~hopgate.index.Encoder`.
            threads: Threads for encoding and searching, see :class:`~hopgate.index.Encoder`.
            replace: Whether an index in that place that is of another corpus, checkpoint or setting, or was updated, is
                replaced, once the new one is whole, and what an interrupted build of something else has finished there
                is dropped. Vectors that are the same are taken over.
            on_progress: Called with the number of passages encoded so far, and of all.
            on_estimate: Called with what the build will take, before it begins to encode.

        Raises:
            InputError: An argument has no possible value.
            CorpusError: The corpus is missing, empty, or holds something that is not a passage.
            CheckpointError: The checkpoint is missing, incomplete or not safe to load.
            WeightsError: The checkpoint's weights are not here and cannot be fetched.
            IndexStoreError: The folder cannot be written, is the working folder, holds something that is not an index
                or, without ``replace``, another index or work on one; or the disk is too small.
            MissingDependencyError: PLAID was asked for and cannot run here.
            HopgateError: Another process is building the same index.
        """
        folder = index_folder(path)
        if not isinstance(hybrid, bool | None):
            raise InputError(f"hybrid must be True, False or None, got {hybrid!r}")
        if not isinstance(replace, bool):
            raise InputError(f"replace must be True or False, got {replace!r:.80}")
        found = open_checkpoint(checkpoint)
        encoder = Encoder(found, precision=precision, threads=threads)
        fuse = found.name == EMBEDDED if hybrid is None else hybrid
        build_index(corpus, Request(folder, encoder, engine, nbits, fuse, on_progress, on_estimate, replace))
        return cls(open_view(folder, encoder, None), encoder, None)

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        checkpoint: str | Path | None = None,
        hybrid: bool | None = None,
        threads: int | None = None,
    ) -> ColBERTIndex:
        """Open an index, whose files are compared with their checksums; large ones only if they were changed.

        Args:
            path: Its folder, which may have been moved.
            checkpoint: The checkpoint it was made with; needed only if that was a local folder.
            hybrid: Whether searches fuse late interaction with BM25; by default if the index was built so.
            threads: Threads for encoding and searching, see :class:`~hopgate.index.Encoder`.

        Raises:
            IndexStoreError: The folder is missing, incomplete or damaged, was made with another checkpoint, or has no
                BM25 index and ``hybrid`` is true.
            CheckpointError: The checkpoint is missing, incomplete or not safe to load.
            WeightsError: The checkpoint's weights are not here and cannot be fetched.
            MissingDependencyError: The engine of the index cannot run here.
        """
        folder = index_folder(path)
        if not isinstance(hybrid, bool | None):
            raise InputError(f"hybrid must be True, False or None, got {hybrid!r}")
        manifest = while_it_changes(folder, lambda: read_manifest(folder))
        if checkpoint is None and manifest.checkpoint_is_local:
            raise IndexStoreError(
                f"{folder}: was made with the local checkpoint {manifest.checkpoint!r}; name its folder as `checkpoint`"
            )
        if (
            checkpoint is None
            and manifest.checkpoint != EMBEDDED
            and (not is_hub_name(manifest.checkpoint) or manifest.checkpoint.startswith("embedded/"))
        ):
            raise IndexStoreError(f"{folder}: `checkpoint` is {manifest.checkpoint!r:.80}; build the index again")
        found = open_checkpoint(manifest.checkpoint if checkpoint is None else checkpoint)
        if found.fingerprint != manifest.checkpoint_fingerprint:
            raise IndexStoreError(
                f"{folder}: was made with another checkpoint ({manifest.checkpoint}, fingerprint "
                f"{manifest.checkpoint_fingerprint[:12]}) than {found.name} ({found.fingerprint[:12]}); name the right "
                "one as `checkpoint` or build the index again"
            )
        if found.settings.dim != manifest.dim or manifest.precision not in PRECISIONS[1:]:
            raise IndexStoreError(f"{folder}: `dim` and `precision` do not fit the checkpoint; build the index again")
        encoder = Encoder(found, precision=manifest.precision, threads=threads)
        return cls(open_view(folder, encoder, hybrid), encoder, hybrid)

    def search_many(
        self,
        queries: Sequence[str],
        k: int = 3,
        *,
        filter: Filter | None = None,  # noqa: A002
    ) -> list[list[Passage]]:
        """Search for several queries at once; see :meth:`PassageIndex.search`.

        A score is MaxSim, the sum over the query's tokens of the largest similarity with a token of the passage; in a
        hybrid index it is the fused reciprocal rank, from 0 to 1. Of a query the encoder reads the first 128 tokens.
        """
        check_queries(queries)
        check_k(k)
        return self._view.search(queries, int(k), filter)

    def rerank(self, query: str, passages: Sequence[Passage]) -> list[Passage]:
        """Order passages by full-precision MaxSim; see :meth:`PassageIndex.rerank`.

        The vectors of passages of this index are taken from it; others are encoded now.
        """
        check_query(query)
        check_passages(passages)
        if not passages:
            return []
        vectors = self._view.vectors_of(passages)
        with self._encoder.for_queries():
            scores = maxsim(self._encoder.encode_query(query), vectors)
        return [passages[int(i)].with_score(float(scores[i])) for i in np.argsort(-scores, kind="stable")]

    def passages(self, ids: Iterable[str]) -> list[Passage]:
        """See :meth:`PassageIndex.passages`."""
        store = self._view.store
        found: list[Passage] = []
        for identifier in checked_ids(ids):
            position = store.position(identifier)
            if position is None:
                raise InputError(f"no passage with id {identifier!r} in {store.folder}")
            found.append(store[position])
        return found

    def add(self, passages: str | Path | Iterable[Passage], *, on_progress: OnProgress | None = None) -> None:
        """Add passages, without a rebuild; this object finds them afterwards, and so does who opens the index then.

        Adding that was interrupted goes on where it stopped if it is called again with the same passages. With PLAID,
        what was added is searched exactly until :meth:`compact`. In a hybrid index BM25 is counted anew.

        Args:
            passages: A corpus, see :func:`~hopgate.index.read_corpus`, or passages.
            on_progress: Called with the number of passages encoded so far, and of all to be added.

        Raises:
            InputError: It is neither a path nor passages.
            CorpusError: It cannot be read, is empty, or holds an id that the index has.
            IndexStoreError: The index cannot be read or written.
            HopgateError: Another process is changing the index.
        """
        if not isinstance(passages, str | Path | Iterable):
            raise InputError(f"passages must be a path or passages, got a {type(passages).__name__}")
        add_passages(self._folder, passages, self._encoder, on_progress)
        self._refresh()

    def delete(self, ids: Iterable[str]) -> None:
        """Delete passages; :meth:`compact` gives their space back.

        Raises:
            InputError: There is no passage with one of the ids, or none would be left.
            IndexStoreError: The index cannot be read or written.
            HopgateError: Another process is changing the index.
        """
        delete_passages(self._folder, checked_ids(ids), self._encoder)
        self._refresh()

    def compact(self, *, on_progress: OnProgress | None = None) -> None:
        """Rewrite the index in one piece, without deleted passages; nothing is encoded again, PLAID is built anew.

        Args:
            on_progress: Called with the number of passages copied so far, and of all.

        Raises:
            IndexStoreError: The index cannot be read or written.
            MissingDependencyError: The index needs PLAID, which cannot run here.
            HopgateError: Another process is changing the index.
        """
        compact_index(self._folder, self._encoder, on_progress)
        self._refresh()

    def info(self) -> dict[str, Any]:
        """What the index holds and was made with; see :func:`read_info`."""
        return _info(self._folder, self._view.store.manifest)

    def verify(self) -> None:
        """Read all files in full and compare them with the manifest's checksums.

        Raises:
            IndexStoreError: A file is missing or is not the one that was built.
        """
        while_it_changes(self._folder, lambda: verify_files(self._folder, read_manifest(self._folder), again=True))

    def __len__(self) -> int:
        """Number of passages."""
        return self._view.store.manifest.passages

    def __repr__(self) -> str:
        manifest = self._view.store.manifest
        kind = f"{manifest.engine}, hybrid" if self._view.hybrid else manifest.engine
        return f"ColBERTIndex({str(self._folder)!r}, {manifest.passages:,} passages, {kind})"

    def __copy__(self) -> ColBERTIndex:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> ColBERTIndex:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        checkpoint = self._encoder.checkpoint
        local = str(checkpoint.path) if checkpoint.is_local else None
        return _reopen, (str(self._folder), local, self._hybrid, self._encoder.threads)

    @property
    def _folder(self) -> Path:
        return self._view.store.folder

    def _refresh(self) -> None:
        # One assignment: a search that is under way keeps the view that it began with.
        self._view = open_view(self._folder, self._encoder, self._hybrid)


def read_info(path: str | Path, *, verify: bool = False) -> dict[str, Any]:
    """What an index folder holds and was made with, without its checkpoint.

    Args:
        path: The folder.
        verify: Read all files in full and compare them with the manifest's checksums.

    Returns:
        The manifest's fields, except that the size in bytes stands in place of the list of files, and ``path``.

    Raises:
        IndexStoreError: The folder is missing, incomplete or damaged.
    """
    folder = index_folder(path)

    def read() -> Manifest:
        manifest = read_manifest(folder)
        if verify:
            verify_files(folder, manifest, again=True)
        return manifest

    return _info(folder, while_it_changes(folder, read))


def _info(folder: Path, manifest: Manifest) -> dict[str, Any]:
    fields = {name: getattr(manifest, name) for name in Manifest.__dataclass_fields__ if name != "files"}
    return {"path": str(folder), **fields, "bytes": manifest.size}


def _reopen(path: str, checkpoint: str | None, hybrid: bool | None, threads: int | None) -> ColBERTIndex:
    return ColBERTIndex.open(path, checkpoint=checkpoint, hybrid=hybrid, threads=threads)
