"""The index as users see it: build, open, search, rerank."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ..core import IndexStoreError, InputError, Passage, user_path
from .build import OnProgress, build_index
from .checkpoint import EMBEDDED, open_checkpoint
from .encoder import Encoder
from .exact import ExactEngine, best, maxsim
from .interface import Filter, PassageIndex, check_k, check_passages, check_queries, check_query, checked_ids
from .manifest import Manifest, read_manifest, verify_files
from .store import DTYPE, IndexStore


class Engine(Protocol):
    """What finds passages for an encoded query."""

    def search(self, query: np.ndarray, k: int) -> list[tuple[int, float]]:
        """Positions and MaxSim scores of the k best passages, best first, for float32 vectors (tokens, dim)."""
        ...


class ColBERTIndex(PassageIndex):
    """A ColBERT index on disk: search and rerank passages by MaxSim over token vectors.

    Made by :meth:`build` or :meth:`open`. Nothing about it changes once it is open, so threads may share it; copies
    (``copy``, ``deepcopy``) are the index itself, and a pickle holds where to open it again. As a callable it is a tool
    for ``dspy.ReAct`` that returns texts.

    Late interaction and MaxSim: Khattab & Zaharia 2020, https://arxiv.org/abs/2004.12832. Compressed search: Santhanam
    et al. 2022, ColBERTv2, https://arxiv.org/abs/2112.01488, and PLAID, https://arxiv.org/abs/2205.09707.
    """

    def __init__(self, store: IndexStore, encoder: Encoder) -> None:
        super().__init__()
        self._store = store
        self._encoder = encoder
        self._engine = _engine(store)

    @classmethod
    def build(
        cls,
        corpus: str | Path | Iterable[Passage],
        path: str | Path,
        *,
        checkpoint: str | Path = EMBEDDED,
        engine: str = "auto",
        nbits: int = 2,
        on_progress: OnProgress | None = None,
    ) -> ColBERTIndex:
        """Build an index and open it.

        A build that was interrupted goes on where it stopped. If the index is there already, made of the same corpus
        with the same checkpoint, it is opened as it is. An index of something else in that place is replaced.

        Args:
            corpus: A JSON Lines file (``id``, ``title``, ``text``), or passages.
            path: The folder to make.
            checkpoint: ``embedded/minilm-colbert``, a local ColBERT checkpoint folder, or a hub name such as
                ``colbert-ir/colbertv2.0``.
            engine: ``exact`` (every passage is scored), ``plaid`` (compressed; needs a C++ compiler), or ``auto``: by
                size.
            nbits: Bits per dimension that PLAID keeps of a residual: 1, 2, 4 or 8.
            on_progress: Called with the number of passages encoded so far, and of all.

        Raises:
            InputError: An argument has no possible value.
            CorpusError: The corpus is missing, empty, or holds something that is not a passage.
            CheckpointError: The checkpoint is missing, incomplete or not safe to load.
            WeightsError: The checkpoint's weights are not here and cannot be fetched.
            IndexStoreError: The folder cannot be written, or holds something that is not an index.
            MissingDependencyError: PLAID was asked for and cannot run here.
            HopgateError: Another process is building the same index.
        """
        # Where a link leads is replaced, not the link.
        try:
            folder = user_path(path).resolve()
        except (OSError, RuntimeError) as error:
            raise IndexStoreError(f"{path}: is a link that leads nowhere; name another folder") from error
        encoder = Encoder(open_checkpoint(checkpoint))
        build_index(corpus, folder, encoder, engine=engine, nbits=nbits, on_progress=on_progress)
        return cls(IndexStore(folder, read_manifest(folder)), encoder)

    @classmethod
    def open(cls, path: str | Path, *, checkpoint: str | Path | None = None) -> ColBERTIndex:
        """Open an index, whose files are compared with their checksums; large ones only if they were changed.

        Args:
            path: Its folder, which may have been moved.
            checkpoint: The checkpoint it was made with; needed only if that was a local folder.

        Raises:
            IndexStoreError: The folder is missing, incomplete or damaged, or was made with another checkpoint.
            CheckpointError: The checkpoint is missing, incomplete or not safe to load.
            WeightsError: The checkpoint's weights are not here and cannot be fetched.
        """
        folder = user_path(path).absolute()
        manifest = read_manifest(folder)
        if checkpoint is None and manifest.checkpoint_is_local:
            raise IndexStoreError(
                f"{folder}: was made with the local checkpoint {manifest.checkpoint!r}; name its folder as `checkpoint`"
            )
        found = open_checkpoint(manifest.checkpoint if checkpoint is None else checkpoint)
        if found.fingerprint != manifest.checkpoint_fingerprint:
            raise IndexStoreError(
                f"{folder}: was made with another checkpoint ({manifest.checkpoint}, fingerprint "
                f"{manifest.checkpoint_fingerprint[:12]}) than {found.name} ({found.fingerprint[:12]}); name the right "
                "one as `checkpoint` or build the index again"
            )
        return cls(IndexStore(folder, manifest), Encoder(found))

    def search_many(
        self,
        queries: Sequence[str],
        k: int = 3,
        *,
        filter: Filter | None = None,  # noqa: A002
    ) -> list[list[Passage]]:
        """See :meth:`PassageIndex.search_many`."""
        check_queries(queries)
        check_k(k)
        found = [self._engine.search(self._encoder.encode_query(query), int(k)) for query in queries]
        return [[self._store.passages[position].with_score(score) for position, score in one] for one in found]

    def rerank(self, query: str, passages: Sequence[Passage]) -> list[Passage]:
        """Order passages by full-precision MaxSim with a query.

        Args:
            query: A question or keywords, at most 10,000 characters.
            passages: A list of what to order. The vectors of passages of this index are taken from it; others are
                encoded now.

        Returns:
            The same passages with their scores, best first; of equal scores in the order given.

        Raises:
            InputError: The query is empty, too long or not text, or the passages are not a list of usable passages.
            IndexStoreError: A score is not a finite number, since the vectors are damaged.
            CheckpointError: The checkpoint's files do not fit together.
        """
        check_query(query)
        check_passages(passages)
        if not passages:
            return []
        scores = maxsim(self._encoder.encode_query(query), self._vectors_of(passages))
        return [passages[position].with_score(score) for position, score in best(scores, len(passages))]

    def passages(self, ids: Iterable[str]) -> list[Passage]:
        """The passages with these ids, in the order given, without scores.

        Raises:
            InputError: There is no passage with one of the ids, or they are not a list of strings.
        """
        found: list[Passage] = []
        for identifier in checked_ids(ids):
            position = self._store.passages.position(identifier)
            if position is None:
                raise InputError(f"no passage with id {identifier!r} in {self._store.folder}")
            found.append(self._store.passages[position])
        return found

    def info(self) -> dict[str, Any]:
        """What the index holds and was made with; see :func:`read_info`."""
        return _info(self._store.folder, self._store.manifest)

    def verify(self) -> None:
        """Read all files in full and compare them with the manifest's checksums.

        Raises:
            IndexStoreError: A file is missing or is not the one that was built.
        """
        verify_files(self._store.folder, self._store.manifest, again=True)

    def __len__(self) -> int:
        """Number of passages."""
        return len(self._store.passages)

    def __repr__(self) -> str:
        manifest = self._store.manifest
        return f"ColBERTIndex({str(self._store.folder)!r}, {manifest.passages:,} passages, {manifest.engine})"

    def __copy__(self) -> ColBERTIndex:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> ColBERTIndex:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        checkpoint = self._encoder.checkpoint
        return _reopen, (str(self._store.folder), str(checkpoint.path) if checkpoint.is_local else None)

    def _vectors_of(self, passages: Sequence[Passage]) -> list[np.ndarray]:
        vectors: list[np.ndarray | None] = [self._stored(passage) for passage in passages]
        foreign = [number for number, array in enumerate(vectors) if array is None]
        if foreign:
            encoded = self._encoder.encode_passages([passages[number].long_text for number in foreign])
            for number, array in zip(foreign, encoded, strict=True):
                # Rounded like the stored ones, so that equal passages get equal scores.
                vectors[number] = array.astype(DTYPE)
        return [array for array in vectors if array is not None]

    def _stored(self, passage: Passage) -> np.ndarray | None:
        position = self._store.passages.position(passage.id)
        # The id alone is not enough: passages of another corpus may be numbered alike.
        if position is None or self._store.passages[position] != passage.with_score(None):
            return None
        return self._store.vectors[position]


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
    folder = user_path(path).absolute()
    manifest = read_manifest(folder)
    if verify:
        verify_files(folder, manifest, again=True)
    return _info(folder, manifest)


def _info(folder: Path, manifest: Manifest) -> dict[str, Any]:
    fields = {name: getattr(manifest, name) for name in Manifest.__dataclass_fields__ if name != "files"}
    return {"path": str(folder), **fields, "bytes": manifest.size}


def _reopen(path: str, checkpoint: str | None) -> ColBERTIndex:
    return ColBERTIndex.open(path, checkpoint=checkpoint)


def _engine(store: IndexStore) -> Engine:
    if store.manifest.engine == "exact":
        return ExactEngine(store.vectors)
    if store.manifest.engine == "plaid":
        from .plaid import PlaidEngine

        return PlaidEngine(store.folder / "plaid", store.vectors)
    raise IndexStoreError(
        f"{store.folder}: manifest names the engine {store.manifest.engine!r}, which is unknown; build the index again"
    )
