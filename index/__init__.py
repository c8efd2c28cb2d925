"""ColBERT indexes: corpora, checkpoints, building, exact and compressed search, reranking.

Importing this room loads neither torch nor transformers; they come with the first text that is encoded.
"""

from __future__ import annotations

from .checkpoint import EMBEDDED, Checkpoint, open_checkpoint
from .colbert_index import ColBERTIndex, read_info
from .corpus import corpus_fingerprint, read_corpus
from .encoder import Encoder
from .estimate import BuildEstimate
from .interface import Filter, PassageIndex
from .limits import ServerLimits
from .remote import RemoteIndex
from .server import IndexServer
from .splitting import split_passages

__all__ = [
    "EMBEDDED",
    "BuildEstimate",
    "Checkpoint",
    "ColBERTIndex",
    "Encoder",
    "Filter",
    "IndexServer",
    "PassageIndex",
    "RemoteIndex",
    "ServerLimits",
    "corpus_fingerprint",
    "open_checkpoint",
    "read_corpus",
    "read_info",
    "split_passages",
]
