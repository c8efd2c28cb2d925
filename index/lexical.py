"""BM25 beside late interaction: a passage that has the question's rare words, whatever the encoder makes of them.

BM25 is the one of bm25s (Lù 2024, https://arxiv.org/abs/2407.03618) with its "lucene" formula (Robertson & Zaragoza
2009), English stop words left out, no stemming.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core import IndexStoreError, MissingDependencyError, Passage

if TYPE_CHECKING:
    import bm25s

K1 = 0.9
B = 0.4
"""Term saturation and length normalisation: the values of Anserini, which suit short passages."""


def build_lexical(passages: Iterable[Passage], folder: Path) -> bool:
    """Count the words of passages and write the index; returns whether there were any words.

    Args:
        passages: All passages in the order of their positions, those of deleted ones included.
        folder: Where to put the files; made here.

    Raises:
        MissingDependencyError: bm25s is not installed.
        OSError: The folder cannot be written.
    """
    library = _library()
    tokens = library.tokenize([passage.long_text for passage in passages], stopwords="en", show_progress=False)
    if not tokens.vocab:
        return False
    model = library.BM25(k1=K1, b=B)
    model.index(tokens, show_progress=False)
    folder.mkdir()
    model.save(str(folder), show_progress=False)
    return True


class Lexical:
    """An opened BM25 index. Any thread may use it.

    Args:
        folder: The folder that :func:`build_lexical` filled.
        count: Number of positions.

    Raises:
        MissingDependencyError: bm25s is not installed.
        IndexStoreError: The files are missing or do not fit together.
    """

    def __init__(self, folder: Path, count: int) -> None:
        library = _library()
        try:
            self._model: bm25s.BM25 = library.BM25.load(str(folder), mmap=True, show_progress=False)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise IndexStoreError(f"{folder}: cannot be read ({error}); build the index again") from error
        self._tokenize: Any = library.tokenize
        self._count = count
        if int(self._model.scores["num_docs"]) != count:
            raise IndexStoreError(f"{folder}: does not fit the passages; build the index again")

    def scores(self, query: str) -> np.ndarray:
        """BM25 scores of all positions, float64 rounded to four decimals; 0 where no word is shared."""
        words = self._tokenize([query], stopwords="en", return_ids=False, show_progress=False)[0]
        known = [word for word in words if word in self._model.vocab_dict]
        if not known:
            return np.zeros(self._count)
        return np.round(self._model.get_scores(known).astype(np.float64), 4)


def _library() -> Any:
    try:
        import bm25s
    except ImportError as error:
        raise MissingDependencyError("a hybrid index needs bm25s; run `pip install bm25s`") from error
    return bm25s
