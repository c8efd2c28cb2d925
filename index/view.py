"""A view of an index folder at one moment: its passages, its engine, and searching them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ..core import IndexStoreError, InputError, Passage
from .encoder import Encoder
from .exact import ExactEngine
from .folders import restore
from .interface import Filter, checked_filter
from .lexical import Lexical
from .manifest import NAME, read_manifest
from .ranking import FUSED_DEPTH, Engine, Scored, fused, fused_depth, ranked, top
from .store import DTYPE, IndexStore

_ATTEMPTS = 5

T = TypeVar("T")


class View:
    """What an open index searches. Nothing about it changes, so any thread may use it; an update makes a new one.

    Args:
        store: The opened folder.
        encoder: Encoder with the index's checkpoint.
        hybrid: Whether to fuse BM25 into searches; by default if the index holds it.

    Raises:
        IndexStoreError: The engine is unknown, its files do not fit, or BM25 is asked for and not there.
        MissingDependencyError: The engine or BM25 cannot run here.
    """

    def __init__(self, store: IndexStore, encoder: Encoder, hybrid: bool | None) -> None:
        self.store = store
        self._encoder = encoder
        self._engine = _engine(store)
        self._lexical = _lexical(store, hybrid)

    @property
    def hybrid(self) -> bool:
        """Whether searches are fused with BM25."""
        return self._lexical is not None

    def search(self, queries: Sequence[str], k: int, chosen: Filter | None) -> list[list[Passage]]:
        """Search with checked queries and k; see :meth:`hopgate.index.interface.PassageIndex.search_many`."""
        allowed = self._allowed(chosen)
        if allowed is not None and not allowed.any():
            return [[] for _ in queries]
        depth = k if self._lexical is None else fused_depth(k)
        # One by one: padded together they would come out a little different than alone.
        encoded = [self._encoder.encode_query(query) for query in queries]
        found: list[list[Passage]] = []
        with self._encoder.for_queries():
            candidates = self._engine.candidates(encoded, depth, allowed) if encoded else []
            rankings = [ranked(self.store, *one, depth) for one in zip(encoded, candidates, strict=True)]
        for query, scored in zip(queries, rankings, strict=True):
            if self._lexical is not None:
                scored = fused(self.store, scored, self._by_words(self._lexical, query, allowed), k)
            found.append([self.store[position].with_score(score) for position, score in scored[:k]])
        return found

    def vectors_of(self, passages: Sequence[Passage]) -> list[np.ndarray]:
        """Vectors (tokens, dim) of passages: the stored ones, and those of foreign passages encoded now."""
        vectors = [self._stored(passage) for passage in passages]
        foreign = [number for number, array in enumerate(vectors) if array is None]
        if foreign:
            # In bf16 each new shape of a batch costs memory that the library behind torch keeps; few are needed here.
            texts = [passages[number].long_text for number in foreign]
            encoded = self._encoder.encode_passages(texts, precision="fp32")
            for number, array in zip(foreign, encoded, strict=True):
                # Rounded like the stored ones, so that equal passages get equal scores.
                vectors[number] = array.astype(DTYPE)
        return [array for array in vectors if array is not None]

    def _stored(self, passage: Passage) -> np.ndarray | None:
        position = self.store.position(passage.id)
        # The id alone is not enough: passages of another corpus may be numbered alike.
        if position is None or self.store[position] != passage.with_score(None):
            return None
        return self.store.vectors[position]

    def _by_words(self, lexical: Lexical, query: str, allowed: np.ndarray | None) -> Scored:
        scores = lexical.scores(query)
        if allowed is not None:
            scores[~allowed] = 0.0
        positions = np.flatnonzero(scores > 0)
        return top(self.store, positions, scores[positions], FUSED_DEPTH)

    def _allowed(self, chosen: Filter | None) -> np.ndarray | None:
        """For each position whether it may be found; ``None`` allows all."""
        if chosen is None:
            return self.store.live
        wanted = checked_filter(chosen)
        allowed = np.zeros(len(self.store), bool)
        if callable(wanted):
            metadata, live = self.store.metadata(), self.store.live
            for position in range(len(allowed)) if live is None else np.flatnonzero(live):
                allowed[position] = _accepts(wanted, metadata[int(position)])
        else:
            positions = (self.store.position(identifier) for identifier in wanted)
            allowed[[position for position in positions if position is not None]] = True
        return allowed if self.store.live is None else allowed & self.store.live


def open_view(folder: Path, encoder: Encoder, hybrid: bool | None) -> View:
    """Open an index folder.

    Raises:
        IndexStoreError: The folder is missing, incomplete or damaged.
        MissingDependencyError: Its engine or BM25 cannot run here.
    """
    return while_it_changes(folder, lambda: View(IndexStore(folder, read_manifest(folder)), encoder, hybrid))


def while_it_changes(folder: Path, read: Callable[[], T]) -> T:
    """Read an index folder, and once more if another process has changed it meanwhile.

    Raises:
        IndexStoreError: The folder is missing, incomplete or damaged.
    """
    for attempt in range(_ATTEMPTS):
        before = _manifest_bytes(folder)
        try:
            return read()
        except IndexStoreError:
            if before is None:  # being replaced at this moment, or killed at such a moment
                restore(folder)
            if attempt == _ATTEMPTS - 1 or _manifest_bytes(folder) == before:
                raise
    raise IndexStoreError(f"{folder}: keeps changing; try again")


def _manifest_bytes(folder: Path) -> bytes | None:
    try:
        return (folder / NAME).read_bytes()
    except OSError:
        return None


def _accepts(predicate: Callable[[Mapping[str, Any]], bool], metadata: Mapping[str, Any]) -> bool:
    try:
        return bool(predicate(metadata))
    except Exception as error:
        remedy = _remedy(error, metadata)
        raise InputError(
            f"the filter raised {type(error).__name__} ({error}) for the metadata {dict(metadata)!r:.200}; {remedy}"
        ) from error


def _remedy(error: Exception, metadata: Mapping[str, Any]) -> str:
    if isinstance(error, KeyError):
        return "a passage may lack a field: use .get"
    if isinstance(error, TypeError | ValueError):
        # Which value the predicate used is not known, so what is most likely is named.
        text = next((value for value in metadata.values() if _is_number(value)), None)
        if isinstance(error, TypeError) and text is not None:
            return f"what was read from CSV or TSV is text, also {text!r:.40}: convert it, with int or float"
        empty = next((name for name, value in metadata.items() if value == ""), None)
        if empty is not None:
            return f"an empty cell of CSV or TSV is '', here `{empty:.80}`: test for that before converting a value"
        if isinstance(error, TypeError):
            return "a passage may lack a field, or have another type or null in it: test for that"
    return "it must give true or false for the metadata of any passage"


def _is_number(value: Any) -> bool:
    """Whether a value is a number written as text."""
    if not isinstance(value, str):
        return False
    try:
        float(value)
    except ValueError:
        return False
    return True


def _engine(store: IndexStore) -> Engine:
    if store.manifest.engine == "exact":
        return ExactEngine(store.vectors)
    if store.manifest.engine == "plaid":
        from .plaid import PlaidEngine

        return PlaidEngine(store.folder / "plaid", store.vectors, store.manifest.segments[0]["passages"])
    raise IndexStoreError(
        f"{store.folder}: manifest names the engine {store.manifest.engine!r}, which is unknown; build the index again"
    )


def _lexical(store: IndexStore, hybrid: bool | None) -> Lexical | None:
    manifest = store.manifest
    if hybrid and not manifest.hybrid:
        raise IndexStoreError(f"{store.folder}: was built without BM25; build it with hybrid=True")
    # A corpus without words, numbers of one digit say, has no BM25 index.
    if hybrid is False or manifest.lexical is None:
        return None
    return Lexical(store.folder / manifest.lexical, len(store))
