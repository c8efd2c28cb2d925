"""What every room needs: the error family, passages, atomic files and locks, weights."""

from __future__ import annotations

from .errors import (
    CheckpointError,
    ConfidenceError,
    CorpusError,
    HopgateError,
    IndexStoreError,
    InputError,
    MissingDependencyError,
    ModelError,
    RemoteIndexError,
    RetrievalError,
    StateError,
    WeightsError,
)
from .files import cache_dir, check_file, locked, sha256_file, sha256_of, user_path, write_atomic
from .passages import Passage

__all__ = [
    "CheckpointError",
    "ConfidenceError",
    "CorpusError",
    "HopgateError",
    "IndexStoreError",
    "InputError",
    "MissingDependencyError",
    "ModelError",
    "Passage",
    "RemoteIndexError",
    "RetrievalError",
    "StateError",
    "WeightsError",
    "cache_dir",
    "check_file",
    "locked",
    "sha256_file",
    "sha256_of",
    "user_path",
    "write_atomic",
]
