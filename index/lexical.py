"""BM25 beside late interaction: a passage that has the question's rare words, whatever the encoder makes of them.

BM25 is the one of bm25s (Lù 2024, https://arxiv.org/abs/2407.03618) with its "lucene" formula (Robertson & Zaragoza
2009), English stop words left out, no stemming.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from tokenize import TokenError
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core import IndexStoreError, MissingDependencyError, Passage

if TYPE_CHECKING:
    import bm25s

_PARAMETERS = "params.index.json"
FILES = (_PARAMETERS, "vocab.index.json", "data.csc.index.npy", "indices.csc.index.npy", "indptr.csc.index.npy")
"""The files that :func:`build_lexical` makes."""
_EXPECTED = {"backend": "numpy", "dtype": "float32", "int_dtype": "int32", "method": "lucene"}

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
            parameters = json.loads((folder / _PARAMETERS).read_text(encoding="utf-8"))
            if (
                any(parameters.get(name) != value for name, value in _EXPECTED.items())
                or type(parameters.get("num_docs")) is not int
            ):
                raise ValueError("unknown parameters")
            self._model: bm25s.BM25 = library.BM25.load(str(folder), mmap=True, show_progress=False)
            self._check(count, parameters["num_docs"])
        except (
            OSError,
            ValueError,
            KeyError,
            TypeError,
            AttributeError,
            ArithmeticError,
            ImportError,
            MemoryError,
            SyntaxError,
            TokenError,
            RecursionError,
        ) as error:
            reason = str(error).strip().split("\n")[0][:100]
            raise IndexStoreError(f"{folder}: cannot be read ({reason}); build the index again") from error
        self._tokenize: Any = library.tokenize
        self._count = count

    def _check(self, count: int, documents: int) -> None:
        """Raise ValueError unless all numbers fit together: compiled code does not look."""
        data, indices, ends = (self._model.scores[name] for name in ("data", "indices", "indptr"))
        kinds = (data.dtype.kind, indices.dtype.kind, ends.dtype.kind)
        if documents != count or kinds != ("f", "i", "i") or not data.ndim == indices.ndim == ends.ndim == 1:
            raise ValueError("does not fit the passages")
        words = self._model.vocab_dict
        if len(data) != len(indices) or len(ends) < 2 or int(ends[0]) != 0 or int(ends[-1]) != len(data):
            raise ValueError("its arrays do not fit together")
        if (np.diff(ends) < 0).any() or not np.isfinite(data).all():
            raise ValueError("its arrays are damaged")
        if len(indices) and not 0 <= int(indices.min()) <= int(indices.max()) < count:
            raise ValueError("names passages that are not there")
        last = len(ends) - 1
        if not all(type(number) is int and (0 <= number < last or not word) for word, number in words.items()):
            raise ValueError("its vocabulary is damaged")

    def scores(self, query: str) -> np.ndarray:
        """BM25 scores of all positions, float64 rounded to four decimals; 0 where no word is shared."""
        words = self._tokenize([query], stopwords="en", return_ids=False, show_progress=False)[0]
        known = [word for word in words if word and word in self._model.vocab_dict]
        if not known:
            return np.zeros(self._count)
        return np.round(self._model.get_scores(known).astype(np.float64), 4)


def _library() -> Any:
    try:
        import bm25s
    except ImportError as error:
        raise MissingDependencyError("a hybrid index needs bm25s; run `pip install bm25s`") from error
    return bm25s
