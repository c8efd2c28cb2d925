"""The encoder: a text becomes one vector a token, for queries and for passages.

This is the encoder of ColBERT (Khattab & Zaharia 2020, section 3.2), written for inference alone. It gives the vectors
that colbert-ai gives, without the C++ extension that colbert-ai compiles when it opens a checkpoint.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

import numpy as np

from ..core import InputError
from .checkpoint import Checkpoint
from .model import Model
from .processor import has_bfloat16_units, limited_threads

PRECISIONS = ("auto", "fp32", "bf16", "int8")


class Encoder:
    """Encodes texts with a checkpoint. Weights are loaded on first use; safe to use from several threads.

    Args:
        checkpoint: A checked checkpoint.
        device: Torch device; by default the first GPU if there is one, and the processor otherwise.
        precision: What passages are calculated in: ``fp32``, ``bf16``, ``int8`` (dynamic quantisation, on the processor
            only, which loses some recall, see benchmarks/README.md), or ``auto``: bf16 on processors with matrix
            units for it, and fp32 on others. Queries are always calculated in fp32.
        threads: Threads that torch calculates with. By default passages are encoded with torch's own number, but not
            more than there are cores to use, and queries with one: so short a text gains nothing from a second, and
            threads that wait for each other take many times as long where other programs run too. Torch's setting
            is put back afterwards.

    Raises:
        InputError: ``precision`` or ``threads`` has no possible value.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        *,
        device: str | None = None,
        precision: str = "auto",
        threads: int | None = None,
    ) -> None:
        if precision not in PRECISIONS:
            raise InputError(f"precision must be one of {', '.join(PRECISIONS)}, got {precision!r}")
        if threads is not None and (isinstance(threads, bool) or not isinstance(threads, int) or threads < 1):
            raise InputError(f"threads must be a whole number of at least 1, got {threads!r}")
        self.checkpoint = checkpoint
        self._device = device
        self._wanted = precision
        self.threads = threads
        self._model: Model | None = None
        self._loading = threading.Lock()

    @property
    def dim(self) -> int:
        """Dimensions of a vector."""
        return self.checkpoint.settings.dim

    @property
    def precision(self) -> str:
        """What passages are calculated in: ``fp32``, ``bf16`` or ``int8``."""
        return ("bf16" if has_bfloat16_units() else "fp32") if self._wanted == "auto" else self._wanted

    def encode_passages(
        self,
        texts: Sequence[str],
        *,
        batch_size: int = 32,
        precision: str | None = None,
        on_batch: Callable[[int], None] | None = None,
    ) -> list[np.ndarray]:
        """Encode passages.

        Args:
            texts: The passages' texts, titles included; what is longer than the checkpoint's ``doc_maxlen`` is cut.
            batch_size: Passages per forward pass; passages of like length go together.
            precision: In place of the encoder's own.
            on_batch: Called after each forward pass with the number of passages encoded so far.

        Returns:
            For each text, in the order given, a float32 array of shape (tokens, dim) whose rows have length 1.

        Raises:
            CheckpointError: The checkpoint's files do not fit together.
        """
        model = self._loaded()
        tokens = [model.passage_ids(text) for text in texts]
        # Sorted by length, a batch is hardly padded. Longest first, so that memory is exhausted at once or never.
        order = sorted(range(len(tokens)), key=lambda position: -len(tokens[position]))
        vectors: list[np.ndarray] = [np.empty((0, self.dim), np.float32)] * len(tokens)
        for start in range(0, len(order), batch_size):
            batch = order[start : start + batch_size]
            with limited_threads(self.threads):
                encoded = model.passage_vectors([tokens[position] for position in batch], precision or self.precision)
            for position, array in zip(batch, encoded, strict=True):
                vectors[position] = array
            if on_batch is not None:
                on_batch(min(start + batch_size, len(order)))
        return vectors

    def encode_query(self, text: str) -> np.ndarray:
        """Encode a query.

        Args:
            text: The query; what is longer than ``query_maxlen`` or 128 tokens is cut.

        Returns:
            A float32 array of shape (tokens, dim) whose rows have length 1, or the weight of the token where the
            checkpoint has weights (see :mod:`hopgate.index.checkpoint`). With a true mask token, short queries are
            padded with it to ``query_maxlen`` (query augmentation, section 3.2 of the paper).

        Raises:
            CheckpointError: The checkpoint's files do not fit together.
        """
        model = self._loaded()
        with self.for_queries():
            return model.query_vectors(text)

    def for_queries(self) -> AbstractContextManager[None]:
        """Limits torch's threads while a search runs."""
        return limited_threads(self.threads or 1)

    def count_tokens(self, texts: Sequence[str]) -> int:
        """Tokens of passages that get a vector, at most: punctuation is counted too."""
        model = self._loaded()
        return sum(len(model.passage_ids(text)) for text in texts)

    def _loaded(self) -> Model:
        if self._model is None:
            with self._loading:
                if self._model is None:
                    self._model = Model(self.checkpoint, self._device)
        return self._model
