"""The index that is there already where one is to be built: what can be used of it, and whether it may be replaced."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..core import IndexStoreError
from .manifest import NAME, Manifest, is_index, is_newer, read_manifest
from .store import IndexStore


@dataclass(frozen=True, slots=True)
class Wanted:
    """What an index would be that was built now.

    Attributes:
        corpus_fingerprint: Of the passages.
        checkpoint_fingerprint: Of the checkpoint.
        precision: What passages are encoded in.
        engine: ``exact``, ``plaid``, or ``auto``, which any of the two is.
        nbits: Bits per dimension, where the engine is PLAID.
        hybrid: Whether it holds BM25.
    """

    corpus_fingerprint: str
    checkpoint_fingerprint: str
    precision: str
    engine: str
    nbits: int
    hybrid: bool

    def has_vectors(self, manifest: Manifest) -> bool:
        """Whether an index has the vectors that are wanted."""
        return not self._other_vectors(asdict(manifest).get)

    def is_there(self, manifest: Manifest) -> bool:
        """Whether an index is the wanted one."""
        return self.has_vectors(manifest) and not self._other_settings(asdict(manifest).get)

    def _other_vectors(self, found: Callable[[str], Any]) -> list[str]:
        others: list[str] = []
        if found("corpus_fingerprint") != self.corpus_fingerprint:
            others.append("of another corpus")
        if found("checkpoint_fingerprint") != self.checkpoint_fingerprint:
            others.append(f"of another checkpoint, {found('checkpoint')!r:.80}")
        if found("precision") != self.precision:
            others.append(f"with precision={found('precision')!r:.80}")
        return others

    def _other_settings(self, found: Callable[[str], Any]) -> list[str]:
        others: list[str] = []
        if self.engine not in ("auto", found("engine")):
            others.append(f"with engine={found('engine')!r:.80}")
        if found("nbits") not in (None, self.nbits):
            others.append(f"with nbits={found('nbits')!r:.80}")
        if found("hybrid") != self.hybrid:
            others.append(f"with hybrid={found('hybrid')!r:.80}")
        return others

    def reason_to_keep(self, record: Mapping[str, Any]) -> str | None:
        """Why an index with this manifest, whole or not, is not to be built over; ``None`` if it is the wanted one."""
        form = record.get("format")
        if is_newer(form):
            return f"is an index of format {form}, which needs a newer hopgate"
        updates = record.get("revision", 0)
        if updates != 0:
            times = f"{updates} times " if isinstance(updates, int) and updates > 1 else ""
            return f"was changed {times}since it was built, which would be lost"
        others = [*self._other_vectors(record.get), *self._other_settings(record.get)]
        return f"is an index {', and '.join(others)}" if others else None


def present_index(path: Path) -> Manifest | None:
    """The manifest of the index in a place, if there is one and it is whole."""
    if not is_index(path):
        return None
    try:
        manifest = read_manifest(path)
        IndexStore(path, manifest)
    except IndexStoreError:
        return None  # Damaged or of another format.
    return manifest if manifest.engine in ("exact", "plaid") else None


def check_replacing(path: Path, wanted: Wanted) -> None:
    """Refuse to put a new index in the place of one that is something else.

    One of the same corpus and settings that is damaged, or of an older version's format, may be replaced.

    Raises:
        IndexStoreError: There is an index that building would lose.
    """
    if not is_index(path):
        return
    try:
        record = json.loads((path / NAME).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        record = None
    unknown = "is an index whose manifest cannot be read"
    reason = wanted.reason_to_keep(record) if isinstance(record, dict) else unknown
    if reason is not None:
        raise IndexStoreError(f"{path}: {reason}; name another folder, or replace it with replace=True")
