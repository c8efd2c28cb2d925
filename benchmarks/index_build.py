"""Build and search: hopgate's engines beside colbert-ai's own Indexer and Searcher, with the same checkpoint.

    python benchmarks/index_build.py build DATA --work DIR --out results/index-build.jsonl --rounds 3
    python benchmarks/index_build.py search DATA --work DIR --out results/index-build.jsonl --rounds 3
    python benchmarks/index_build.py report results/index-build.jsonl

DATA is a folder with corpus.jsonl and questions.jsonl. ``build`` makes an index from nothing in a process of its own,
one side after the other, the order turned in every round; it records wall seconds of the whole process, its peak
memory, and bytes on disk. C++ extensions are compiled beforehand. ``search`` keeps one warm process a side and asks
each question of all of them in turn (k = 10, the query's encoding included). With ``--pylate PYTHON`` a further side is
PyLate with fast-plaid, see index_pylate.py. Ratios are medians over rounds. A run that was stopped goes on.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
from index_common import (
    Record,
    Served,
    append,
    child,
    corpus,
    find,
    folder_bytes,
    interval,
    long_text,
    mean_interval,
    questions,
    read,
    serve,
    shown,
    table,
)

K = 10
NBITS = 2
# As users get them: fused with BM25, and encoded in bf16 where the processor gains from it, but for one side.
OURS: dict[str, dict[str, Any]] = {
    "exact": {"engine": "exact", "hybrid": True},
    "exact-fp32": {"engine": "exact", "hybrid": True, "precision": "fp32"},
    "plaid": {"engine": "plaid", "nbits": 2, "hybrid": True},
}
THEIRS = "colbert-ai"
PYLATE = "pylate"
EXPERIMENT = "benchmark"
WARM = 5

DATA = click.argument("data", type=click.Path(path_type=Path, exists=True, file_okay=False))


def shared(command: Any) -> Any:
    """The options of both measurements."""
    for option in (
        click.option("--work", type=click.Path(path_type=Path), required=True, help="Folder for indexes and logs."),
        click.option("--out", type=click.Path(path_type=Path), required=True),
        click.option("--rounds", default=3, show_default=True),
        click.option("--threads", default=2, show_default=True),
        click.option("--first", type=int, help="Only so many passages (and questions)."),
        click.option("--pylate", type=click.Path(path_type=Path, exists=True), help="Python that has PyLate."),
        click.option("--checkpoint", default="embedded/minilm-colbert", show_default=True, help="Of all sides."),
        click.option("--sides", default=",".join((*OURS, THEIRS)), show_default=True),
    ):
        command = option(command)
    return command


@click.group()
def main() -> None:
    """See the module's description."""


@main.command()
@DATA
@shared
def build(
    data: Path,
    work: Path,
    out: Path,
    rounds: int,
    threads: int,
    first: int | None,
    pylate: Path | None,
    checkpoint: str,
    sides: str,
) -> None:
    """Build with each side, in every round from nothing."""
    passages = corpus(data, first)
    work.mkdir(parents=True, exist_ok=True)
    subset = work / "corpus.jsonl"
    subset.write_text("".join(json.dumps(passage) + "\n" for passage in passages), encoding="utf-8")
    child([__file__, "compile"], work / "compile.log", threads)
    for number, name in _turns(_sides(sides, pylate), rounds):
        key = {"kind": "build", "data": data.name, "passages": len(passages), "side": name, "round": number}
        folder = work / name
        if find(read(out), **key) and folder.exists():
            continue
        shutil.rmtree(folder, ignore_errors=True)
        result = work / f"{name}.json"
        python, script = _program(name, pylate)
        command = [script, "build-one", name, _folder_of(checkpoint), str(subset), str(folder), str(result)]
        usage = child(command, work / "logs" / f"{name}-build-{number}.log", threads, python)
        inside = json.loads(result.read_text())
        if not find(read(out), **key):
            append(out, {**key, "threads": threads, **usage, **inside, "bytes": folder_bytes(folder)})
        click.echo(f"round {number} {name}: {usage}")


@main.command()
@DATA
@shared
def search(
    data: Path,
    work: Path,
    out: Path,
    rounds: int,
    threads: int,
    first: int | None,
    pylate: Path | None,
    checkpoint: str,
    sides: str,
) -> None:
    """Ask all sides every question, in turn, of the indexes that ``build`` has left in the work folder."""
    rows = questions(data)[:first]
    count = len(corpus(work))
    key = {"kind": "search", "data": data.name, "passages": count, "questions": len(rows)}
    names = _sides(sides, pylate)
    missing = [n for n in range(rounds) if any(not find(read(out), **key, side=name, round=n) for name in names)]
    if not missing:
        return
    served: dict[str, Served] = {}
    for name in names:
        python, script = _program(name, pylate)
        command = [script, "serve-one", name, _folder_of(checkpoint), str(work / "corpus.jsonl"), str(work / name)]
        served[name] = Served(command, work / "logs" / f"{name}-search.log", threads, python)
    for row in rows[:WARM]:
        for side in served.values():
            side.ask(row["question"])
    for number in missing:
        seconds: dict[str, list[float]] = {name: [] for name in names}
        ids: dict[str, list[list[str]]] = {name: [] for name in names}
        for turn, row in enumerate(rows):
            start = (turn + number) % len(names)
            for name in (*names[start:], *names[:start]):
                found = served[name].ask(row["question"])
                seconds[name].append(found["seconds"])
                ids[name].append(found["ids"])
        for name in names:
            record = {**key, "side": name, "round": number, "threads": threads, "seconds": seconds[name]}
            append(out, {**record, "ids": ids[name]} if number == 0 else record)
        click.echo(f"round {number}: " + ", ".join(f"{n} {1000 * np.median(s):.0f} ms" for n, s in seconds.items()))
    for name, side in served.items():
        append(out, {**key, "kind": "search-memory", "side": name, **side.close()})


def _folder_of(checkpoint: str) -> str:
    from hopgate.index import open_checkpoint

    return str(open_checkpoint(checkpoint).path)


def _sides(text: str, pylate: Path | None) -> list[str]:
    return [*text.split(","), *([PYLATE] if pylate else [])]


def _turns(names: list[str], rounds: int) -> list[tuple[int, str]]:
    return [(number, name) for number in range(rounds) for name in (names if number % 2 == 0 else names[::-1])]


def _program(name: str, pylate: Path | None) -> tuple[Path | None, str]:
    """Python and script of a side's children."""
    return (pylate, str(Path(__file__).with_name("index_pylate.py"))) if name == PYLATE else (None, __file__)


# --- what runs in the children ----------------------------------------------------------------------------------------


@main.command("compile", hidden=True)
def compile_() -> None:
    """Have the C++ extensions compiled."""
    from hopgate.index.colbert_ai import load_extensions

    load_extensions()


@main.command(hidden=True)
@click.argument("name")
@click.argument("checkpoint")
@click.argument("path", type=click.Path(path_type=Path))
@click.argument("folder", type=click.Path(path_type=Path))
@click.argument("result", type=click.Path(path_type=Path))
def build_one(name: str, checkpoint: str, path: Path, folder: Path, result: Path) -> None:
    """Build one index."""
    found: Record = {}
    if name in OURS:
        from hopgate.index import ColBERTIndex

        info = ColBERTIndex.build(path, folder, checkpoint=checkpoint, **OURS[name]).info()
        found = {"vectors": info["vectors"]}
    else:
        import torch
        from colbert import Indexer
        from colbert.infra import ColBERTConfig, Run, RunConfig

        texts = [long_text(passage) for passage in corpus(path)]
        with Run().context(RunConfig(nranks=1, experiment=EXPERIMENT, root=str(folder), avoid_fork_if_possible=True)):
            indexer = Indexer(checkpoint=checkpoint, config=ColBERTConfig(nbits=NBITS))
            indexer.index(name="index", collection=texts, overwrite="force_silent_overwrite")
        found = {"torch_threads": torch.get_num_threads()}
    result.write_text(json.dumps(found))


@main.command(hidden=True)
@click.argument("name")
@click.argument("checkpoint")
@click.argument("path", type=click.Path(path_type=Path))
@click.argument("folder", type=click.Path(path_type=Path))
def serve_one(name: str, checkpoint: str, path: Path, folder: Path) -> None:
    """Answer queries from one index."""
    serve(lambda: _our_search(checkpoint, folder) if name in OURS else _their_search(checkpoint, path, folder))


def _our_search(checkpoint: str, folder: Path) -> Callable[[str], list[str]]:
    from hopgate.index import ColBERTIndex

    index = ColBERTIndex.open(folder, checkpoint=checkpoint)
    return lambda query: [passage.id for passage in index.search(query, k=K)]


def _their_search(checkpoint: str, path: Path, folder: Path) -> Callable[[str], list[str]]:
    from colbert import Searcher
    from colbert.infra import Run, RunConfig

    passages = corpus(path)
    with Run().context(RunConfig(nranks=1, experiment=EXPERIMENT, root=str(folder))):
        searcher = Searcher(
            index="index",
            checkpoint=checkpoint,
            collection=[long_text(passage) for passage in passages],
        )
    return lambda query: [passages[position]["id"] for position in searcher.search(query, k=K)[0]]


# --- report -----------------------------------------------------------------------------------------------------------


@main.command()
@click.argument("paths", type=click.Path(path_type=Path, exists=True), nargs=-1, required=True)
@click.option("--against", default=THEIRS, show_default=True, help="The side that ratios are to.")
def report(paths: tuple[Path, ...], against: str) -> None:
    """Print Markdown tables."""
    records = [record for path in paths for record in read(path)]
    for kind, print_one in (("build", _report_build), ("search", _report_search)):
        chosen = find(records, kind=kind)
        for data, passages in dict.fromkeys((record["data"], record["passages"]) for record in chosen):
            print_one(find(chosen, data=data, passages=passages), f"{data}, {passages:,} passages", against)


def _report_build(records: list[Record], title: str, against: str) -> None:
    print(f"Build of {title}, {records[0]['threads']} threads; medians [least, most] over rounds.\n")
    rows = []
    for side, own, base in _beside(records, against):
        walls = np.array([record["wall"] for record in own])
        ratios = walls / [record["wall"] for record in base] if base else np.array([])
        memory = np.median([record["peak_mb"] for record in own])
        size = own[-1]["bytes"] / own[-1]["passages"]
        rows.append([side, len(own), _range(walls, 1), _range(ratios, 3), f"{memory:,.0f}", f"{size:,.0f}"])
    table(["side", "n rounds", "seconds", f"ratio to {against}", "peak memory, MB", "bytes a passage"], rows)


def _report_search(records: list[Record], title: str, against: str) -> None:
    count = len(records[0]["seconds"])
    print(f"Search, k = {K}, {title}, n = {count} questions, {records[0]['threads']} threads; 95 % intervals.\n")
    exact = next((record["ids"] for record in records if record["side"] == "exact" and "ids" in record), None)
    rows = []
    for side, own, base in _beside(records, against):
        times = np.array([record["seconds"] for record in own])
        cells: list[Any] = [side, len(own)]
        for percent in (50, 95):
            cells.append(f"{1000 * np.median(np.percentile(times, percent, axis=1)):.1f}")
            cells.append(_ratio(times, np.array([record["seconds"] for record in base]), percent) if base else "-")
        ids = next((record["ids"] for record in own if "ids" in record), None)
        shared_ids = "-" if exact is None or ids is None else mean_interval(map(overlap, ids, exact))
        rows.append([*cells, shared_ids])
    header = ["side", "n rounds", "p50, ms", f"p50 to {against}", "p95, ms", f"p95 to {against}", f"overlap@{K}, exact"]
    table(header, rows)


def overlap(found: list[str], reference: list[str]) -> float:
    """Share of the reference's ids that were found."""
    return len(set(found) & set(reference)) / max(1, len(reference))


def _beside(records: list[Record], against: str) -> list[tuple[str, list[Record], list[Record]]]:
    """For each side its records, and those of the other side of the same rounds."""
    rows = []
    for side in dict.fromkeys(record["side"] for record in records):
        pairs = [(one, find(records, side=against, round=one["round"])) for one in find(records, side=side)]
        whole = all(other for _, other in pairs)
        rows.append((side, [one for one, _ in pairs], [other[0] for _, other in pairs] if whole else []))
    return rows


def _ratio(times: np.ndarray, base: np.ndarray, percent: float) -> str:
    """Median over rounds of the ratio of percentiles; the interval is over questions, drawn in pairs."""

    def statistic(one: np.ndarray, other: np.ndarray, axis: int) -> Any:
        return np.median(np.percentile(one, percent, axis=axis) / np.percentile(other, percent, axis=axis), axis=0)

    return shown(interval([times, base], statistic, resamples=2000), 3)


def _range(values: np.ndarray, digits: int) -> str:
    if not len(values):
        return "-"
    return f"{np.median(values):,.{digits}f} [{values.min():,.{digits}f}, {values.max():,.{digits}f}]"


if __name__ == "__main__":
    main()
