"""Many threads on one index find what one thread finds, and memory stays where it was.

    python benchmarks/index_threads.py INDEX... --out results/index-threads.jsonl

Each INDEX is searched for the same queries (titles) serially, then by 8 threads, each in an order of its own, 500
searches a thread. Ids and scores must be equal: exits with 1 if one differs. Prints and records a line an index.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import click
import numpy as np
from index_common import Record, append, resident_mb, timed

K = 10


@click.command()
@click.argument("paths", type=click.Path(path_type=Path, exists=True), nargs=-1, required=True, metavar="INDEX...")
@click.option("--out", type=click.Path(path_type=Path), required=True)
@click.option("--threads", default=8, show_default=True)
@click.option("--searches", default=500, show_default=True, help="Of each thread.")
@click.option("--queries", default=100, show_default=True, help="Different queries.")
@click.option("--checkpoint", help="If the indexes were made with a local folder.")
def main(paths: tuple[Path, ...], out: Path, threads: int, searches: int, queries: int, checkpoint: str | None) -> None:
    """See the module's description."""
    from hopgate.index import ColBERTIndex
    from hopgate.index.store import PassageFile

    different = 0
    for path in paths:
        index = ColBERTIndex.open(path, checkpoint=checkpoint)
        passages = PassageFile(path)
        rng = np.random.default_rng(0)
        chosen = rng.choice(len(passages), min(queries, len(passages)), replace=False)
        texts = [passages[int(position)].title or passages[int(position)].text for position in chosen]

        def found(text: str, index: ColBERTIndex = index) -> list[tuple[str, float | None]]:
            return [(passage.id, passage.score) for passage in index.search(text, k=K)]

        found(texts[0])
        record: Record = {"index": path.name, "engine": index.info()["engine"], "passages": len(passages)}
        with timed(record, "serial_seconds"):
            expected = [found(text) for text in texts]
        record["serial_searches"] = len(texts)

        def differing(seed: int, texts: list[str] = texts, expected: list = expected, found=found) -> int:
            order = np.random.default_rng(seed).integers(0, len(texts), searches)
            return sum(found(texts[number]) != expected[number] for number in order)

        record |= {"threads": threads, "searches": threads * searches, "rss_before_mb": resident_mb()}
        with timed(record, "threads_seconds"), ThreadPoolExecutor(threads) as pool:
            record["different"] = sum(pool.map(differing, range(threads)))
        record["rss_after_mb"] = resident_mb()
        different += record["different"]
        append(out, record)
        print(record)
    if different:
        sys.exit(f"{different} searches differ from the serial ones")


if __name__ == "__main__":
    main()
