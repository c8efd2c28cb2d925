"""ColBERT indexes: corpora, checkpoints, building, exact and compressed search, reranking.

Importing this room loads neither torch nor transformers; they come with the first text that is encoded.
"""

from __future__ import annotations

from .checkpoint import EMBEDDED, Checkpoint, open_checkpoint
from .colbert_index import ColBERTIndex, read_info
from .corpus import corpus_fingerprint, read_corpus
from .encoder import Encoder
from .interface import Filter, PassageIndex

__all__ = [
    "EMBEDDED",
    "Checkpoint",
    "ColBERTIndex",
    "Encoder",
    "Filter",
    "PassageIndex",
    "corpus_fingerprint",
    "open_checkpoint",
    "read_corpus",
    "read_info",
]
