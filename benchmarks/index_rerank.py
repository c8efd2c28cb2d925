"""What reranking by the sub-question changes in what a hop reads, on MuSiQue's gold sub-questions.

    python benchmarks/index_rerank.py run DATA INDEX --out results/index-rerank.jsonl
    python benchmarks/index_rerank.py report results/index-rerank.jsonl DATA

As in a program's hop (programs/active.py, programs/solver.py): the query carries the answers of earlier hops that the
sub-question does not name, 10 passages are fetched, reranked by the sub-question alone (or both rankings are fused),
and 3 are read. Answers are the gold ones. Records hold ids alone. index_common.hops says what finding a passage means.
Where query and sub-question are the same text, programs leave reranking out, which is the row "default": in a hybrid
index MaxSim alone would undo the fusion.
"""

from __future__ import annotations

from pathlib import Path

import click
from index_common import (
    Record,
    append,
    corpus,
    difference_interval,
    find,
    hops,
    mean_interval,
    questions,
    read,
    table,
)

DATA = click.argument("data", type=click.Path(path_type=Path, exists=True, file_okay=False))


@click.group()
def main() -> None:
    """See the module's description."""


def _all_hops(data: Path) -> list[Record]:
    by_id = {passage["id"]: passage for passage in corpus(data)}
    return [{**hop, "whole": row["question"]} for row in questions(data) for hop in hops(row, by_id)]


@main.command()
@DATA
@click.argument("index_path", type=click.Path(path_type=Path, exists=True), metavar="INDEX")
@click.option("--out", type=click.Path(path_type=Path), required=True)
@click.option("--first", type=int, help="Only so many sub-questions.")
def run(data: Path, index_path: Path, out: Path, first: int | None) -> None:
    """Record the three rankings of each sub-question."""
    from hopgate.index import ColBERTIndex
    from hopgate.programs import Hop, Trajectory
    from hopgate.programs.active import _query  # the very text that a hop searches for
    from hopgate.programs.settings import ActiveSettings
    from hopgate.programs.solver import _fuse

    index = ColBERTIndex.open(index_path)
    settings = ActiveSettings()
    engine = index.info()["engine"]
    done = {record["hop"] for record in find(read(out), engine=engine)}
    for hop in _all_hops(data)[:first]:
        if hop["id"] in done:
            continue
        trajectory = Trajectory(hop["whole"])
        for answer in hop["earlier"]:
            trajectory = trajectory.with_hop(Hop("", answer=answer))
        query = _query(trajectory, hop["question"], settings)
        searched = index.search(query, k=max(settings.k, settings.depth))
        reranked = index.rerank(hop["question"], searched)
        rankings = {"none": searched, "sub_question": reranked, "fused": _fuse(searched, reranked)}
        record = {"engine": engine, "hop": hop["id"], "carries": query != hop["question"], "k": settings.k}
        append(out, {**record, **{name: [passage.id for passage in found] for name, found in rankings.items()}})


def _top(record: Record, how: str) -> list[str]:
    if how == "default":
        how = "sub_question" if record["carries"] else "none"
    return record[how][: record["k"]]


@main.command()
@click.argument("path", type=click.Path(path_type=Path, exists=True))
@DATA
def report(path: Path, data: Path) -> None:
    """Print a Markdown table."""
    gold = {hop["id"]: set(hop["supporting"]) for hop in _all_hops(data)}
    records = [record for record in read(path) if record["hop"] in gold]
    rows = []
    for engine in dict.fromkeys(record["engine"] for record in records):
        for carries in (None, True, False):
            own = [r for r in records if r["engine"] == engine and carries in (None, r["carries"])]
            labelled = [record for record in own if gold[record["hop"]]]
            if not labelled:
                continue

            def recall(how: str, labelled: list[Record] = labelled) -> list[float]:
                return [float(bool(set(_top(r, how)) & gold[r["hop"]])) for r in labelled]

            which = {None: "all", True: "query carries answers", False: "query is the sub-question"}[carries]
            for how in ("none", "sub_question", "fused", "default"):
                order = [float(_top(r, how) != _top(r, "none")) for r in own]
                members = [float(set(_top(r, how)) != set(_top(r, "none"))) for r in own]
                changed = ["-"] * 3
                if how != "none":
                    less = difference_interval(recall(how), recall("none"))
                    changed = [mean_interval(order), mean_interval(members), less]
                cells = [engine, which, how, len(own), len(labelled), *changed[:2], mean_interval(recall(how))]
                rows.append([*cells, changed[2]])
    print("95 % intervals over sub-questions; differences in pairs.\n")
    header = ["engine", "sub-questions", "rerank", "n", "n with a supporting passage", "top 3 changed"]
    table([*header, "top 3 changed as a set", "recall@3", "less none"], rows)


if __name__ == "__main__":
    main()
