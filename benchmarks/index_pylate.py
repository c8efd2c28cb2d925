"""PyLate with fast-plaid as a side of index_build.py; runs in an environment of its own, without hopgate.

    python3.11 -m venv PYLATE
    PYLATE/bin/pip install torch==2.11.0 fast-plaid==1.4.6.2110 pylate==1.6.0 transformers==4.57.6
    python benchmarks/index_build.py build DATA --work DIR --out FILE --pylate PYLATE/bin/python
    python benchmarks/index_build.py search DATA --work DIR --out FILE --pylate PYLATE/bin/python

fast-plaid is compiled against one release of torch, which the end of its version names (1.4.6.2110: torch 2.11.0); it
ends in a segmentation fault with torch 2.13, and PyLate 1.6.0 takes no later one than 1.4.6. On Linux torch 2.11.0
brings CUDA, some 5 GB unpacked, unless it comes from PyTorch's own CPU index; nothing here uses a GPU.

Defaults of PyLate are kept, with these exceptions: 2 bits a dimension as on the other sides, and no query expansion,
since the embedded checkpoint's mask tokens are padding, which colbert-ai and hopgate leave out and PyLate would search
with. Records are index_build.py's.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from index_common import corpus, long_text, serve, timed

K = 10
NBITS = 2


def model(checkpoint: str) -> Any:
    """The checkpoint, loaded by PyLate."""
    from pylate import models

    return models.ColBERT(model_name_or_path=checkpoint, device="cpu", do_query_expansion=False)


def index(folder: Path, *, new: bool) -> Any:
    """A fast-plaid index through PyLate."""
    from pylate import indexes

    return indexes.PLAID(
        index_folder=str(folder), index_name="index", override=new, nbits=NBITS, show_progress=False, device="cpu"
    )


def build_one(checkpoint: str, path: Path, folder: Path, result: Path) -> None:
    """Build one index."""
    passages = corpus(path)
    found: dict[str, Any] = {}
    with timed(found, "encoding"):
        texts = [long_text(passage) for passage in passages]
        vectors = model(checkpoint).encode(texts, batch_size=32, is_query=False, show_progress_bar=False)
    found["vectors"] = sum(map(len, vectors))
    with timed(found, "indexing"):
        index(folder, new=True).add_documents([passage["id"] for passage in passages], vectors)
    result.write_text(json.dumps(found))


def searcher(checkpoint: str, folder: Path) -> Callable[[str], list[str]]:
    """The search of an index that is there."""
    encoder, opened = model(checkpoint), index(folder, new=False)

    def search(query: str) -> list[str]:
        vectors = encoder.encode([query], is_query=True, show_progress_bar=False)
        return [found["id"] for found in opened(vectors, k=K)[0]]

    return search


def main(command: str, _: str, checkpoint: str, path: str, folder: str, result: str = "") -> None:
    """``build-one`` or ``serve-one``, as index_build.py calls it."""
    if command == "build-one":
        build_one(checkpoint, Path(path), Path(folder), Path(result))
    else:
        serve(lambda: searcher(checkpoint, Path(folder)))


if __name__ == "__main__":
    if len(sys.argv) < 6:
        sys.exit(__doc__)
    main(*sys.argv[1:])
