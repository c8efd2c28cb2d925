"""Build time, search time and peak memory as the corpus grows, exact and PLAID.

    python benchmarks/index_growth.py run INDEX --work DIR --out results/index-growth.jsonl
    python benchmarks/index_growth.py report results/index-growth.jsonl --plot results/index-growth.png

INDEX is an exact index (``hopgate index build CORPUS --out INDEX --engine exact``) with the embedded checkpoint, whose
vectors are taken in place of encoding anew: build seconds are those of everything but encoding. Beyond its size its
passages are repeated under new ids, their vectors perturbed with normal noise (0.02 a dimension, then length 1 again).
Each point is built and searched in a process of its own; queries are titles, encoded as part of the search. ``report``
exits with 1 if a point's peak memory exceeds its bound, see :func:`bound_mb`. The plot needs matplotlib. A run that was
stopped goes on.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
from index_common import Record, append, child, find, folder_bytes, read, table, timed

POINTS = ("exact:1000", "plaid:1000", "exact:5000", "plaid:5000", "exact:20000", "plaid:20000", "exact:100000")
NOISE = 0.02
WARM = 5


def bound_mb(record: Record) -> float:
    """The most memory that a point may take, in MB.

    1,200 for Python, torch, the model and what it takes to score. Exact search maps the vectors (2 bytes a number),
    reads all of them and, up to 2 GB, keeps a copy; mapped ones count as resident although the system can drop them at
    any time. PLAID's clustering holds a sample of them, at most all, in single precision (4 bytes) some three times
    over.
    """
    vectors = record["vectors"] * record["dim"] / 2**20
    return 1200 + vectors * (2 * 2.25 if record["engine"] == "exact" else 4 * 3.5)


@click.group()
def main() -> None:
    """See the module's description."""


@main.command()
@click.argument("index", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--work", type=click.Path(path_type=Path), required=True, help="Folder for indexes, removed after use.")
@click.option("--out", type=click.Path(path_type=Path), required=True)
@click.option("--points", default=",".join(POINTS), show_default=True, help="ENGINE:PASSAGES, separated by commas.")
@click.option("--queries", default=50, show_default=True)
@click.option("--threads", default=2, show_default=True)
def run(index: Path, work: Path, out: Path, points: str, queries: int, threads: int) -> None:
    """Measure the points that are not recorded yet."""
    for point in points.split(","):
        engine, _, passages = point.partition(":")
        key = {"engine": engine, "passages": int(passages)}
        if find(read(out), **key):
            continue
        folder, result = work / f"{engine}-{passages}", work / "result.json"
        # What a stopped build kept is left out: the prepared vectors are taken from the first one on.
        for old in (folder, *work.glob(f".{folder.name}.hopgate-part")):
            shutil.rmtree(old, ignore_errors=True)
        command = [__file__, "one", str(index), str(folder), engine, passages, str(queries), str(result)]
        usage = child(command, work / f"{engine}-{passages}.log", threads)
        append(out, {**key, "threads": threads, **json.loads(result.read_text()), **usage})
        shutil.rmtree(folder)
        click.echo(f"{point}: {usage}")


@main.command(hidden=True)
@click.argument("source", type=click.Path(path_type=Path))
@click.argument("folder", type=click.Path(path_type=Path))
@click.argument("engine")
@click.argument("passages", type=int)
@click.argument("queries", type=int)
@click.argument("result", type=click.Path(path_type=Path))
def one(source: Path, folder: Path, engine: str, passages: int, queries: int, result: Path) -> None:
    """Build and search one point."""
    from hopgate.core import Passage
    from hopgate.index import ColBERTIndex, Encoder
    from hopgate.index.manifest import read_manifest
    from hopgate.index.store import IndexStore, PassageFile

    vectors_of, originals = IndexStore(source, read_manifest(source)).vectors, PassageFile(source)
    count = len(originals)
    rng = np.random.default_rng(0)

    def prepared() -> Iterator[np.ndarray]:
        for position in range(passages):
            vectors = vectors_of[position % count].astype(np.float32)
            if position >= count:
                vectors += NOISE * rng.standard_normal(vectors.shape, np.float32)
                vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
            yield vectors

    stream = prepared()

    def take(self: Encoder, texts: Sequence[str], **options: Any) -> list[np.ndarray]:
        if "on_batch" not in options:  # the sample that the estimate is made of
            return [vectors_of[0].astype(np.float32) for _ in texts]
        # A build from nothing encodes the passages in the order of the corpus.
        return [next(stream) for _ in texts]

    def named(position: int) -> Passage:
        passage = originals[position % count]
        return Passage(str(position), passage.title, passage.text)

    record: Record = {}
    original, Encoder.encode_passages = Encoder.encode_passages, take
    try:
        with timed(record, "build_seconds"):
            index = ColBERTIndex.build(map(named, range(passages)), folder, engine=engine, hybrid=False)
    finally:
        Encoder.encode_passages = original
    if next(stream, None) is not None:
        sys.exit("the build did not take all prepared vectors")
    info = index.info()
    record |= {"vectors": info["vectors"], "dim": info["dim"], "bytes": folder_bytes(folder)}
    record |= {"encoded": count, "repeated": max(0, passages - count)}
    chosen = rng.choice(min(count, passages), WARM + queries, replace=min(count, passages) < WARM + queries)
    seconds: list[float] = []
    for position in chosen:
        passage = originals[int(position)]
        start = time.perf_counter()
        index.search(passage.title or passage.text, k=10)
        seconds.append(round(time.perf_counter() - start, 6))
    result.write_text(json.dumps({**record, "seconds": seconds[WARM:]}))


@main.command()
@click.argument("path", type=click.Path(path_type=Path, exists=True))
@click.option("--plot", type=click.Path(path_type=Path), help="PNG file to draw.")
def report(path: Path, plot: Path | None) -> None:
    """Print a Markdown table, draw the plot, and check the bound on memory."""
    records = sorted(read(path), key=lambda record: (record["engine"], record["passages"]))
    rows, beyond = [], False
    for record in records:
        p50, p95 = (1000 * np.percentile(record["seconds"], percent) for percent in (50, 95))
        within = record["peak_mb"] <= bound_mb(record)
        beyond |= not within
        rows.append(
            [
                record["engine"],
                f"{record['passages']:,}",
                f"{record['repeated']:,}",
                f"{record['vectors']:,}",
                f"{record['build_seconds']:.1f}",
                f"{p50:.0f}",
                f"{p95:.0f}",
                len(record["seconds"]),
                f"{record['peak_mb']:,.0f}",
                f"{bound_mb(record):,.0f}" + ("" if within else " (exceeded)"),
                f"{record['bytes'] / record['passages']:,.0f}",
            ]
        )
    header = ["engine", "passages", "of these repeated with noise", "vectors", "build without encoding, s"]
    header += ["search p50, ms", "p95, ms", "n queries", "peak memory, MB", "bound, MB", "bytes a passage"]
    table(header, rows)
    if plot:
        draw(records, plot)
    if beyond:
        sys.exit(1)


def draw(records: list[Record], path: Path) -> None:
    """Three panels over the number of passages."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, 3, figsize=(12, 3.6), layout="constrained")
    for engine in dict.fromkeys(record["engine"] for record in records):
        own = find(records, engine=engine)
        passages = [record["passages"] for record in own]
        lines = (
            [record["build_seconds"] for record in own],
            [1000 * float(np.percentile(record["seconds"], 50)) for record in own],
            [record["peak_mb"] for record in own],
        )
        for panel, values in zip(panels, lines, strict=True):
            panel.plot(passages, values, marker="o", label=engine)
        panels[2].plot(passages, [bound_mb(record) for record in own], linestyle=":", color="grey")
    titles = ("build without encoding, s", "search p50, ms", "peak memory, MB (dotted: bound)")
    for panel, title in zip(panels, titles, strict=True):
        panel.set(title=title, xlabel="passages", xscale="log", yscale="log")
        panel.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    # Without the date and version, the same records give the same file.
    figure.savefig(path, dpi=110, metadata={"Software": None})


if __name__ == "__main__":
    main()
