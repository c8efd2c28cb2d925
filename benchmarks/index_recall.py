"""Recall of the supporting passages: BM25, a dense encoder, exact MaxSim, PLAID and fused search; PLAID and the smaller
precisions beside exact single precision.

    python benchmarks/index_recall.py run DATA... --work DIR --out results/index-rankings.jsonl
    python benchmarks/index_recall.py run DATA --work DIR --out FILE --systems exact,plaid2,bf16,int8 --titles 1000
    python benchmarks/index_recall.py report results/index-rankings.jsonl DATA... [--rows 61:150]

DATA is a folder of corpus.jsonl and questions.jsonl with ``supporting_ids`` or ``supporting_titles`` and, for MuSiQue,
``decomposition``. ``run`` records the ids of the 20 best passages, once per system and query; what is there is not
searched again. Queries are the questions, the gold sub-questions (index_common.hops says what finding one means), and,
with ``--titles``, so many titles of the corpus. ``report`` makes the tables from the recorded ids: recall is the share
of a question's supporting passages in the k best (of a sub-question: whether one is there), differences are to
``fused`` and paired, intervals 95 % bootstrap intervals over queries.

bm25 is bm25s (`pip install --no-deps bm25s`) with k1 = .9, b = .4 and its English stop words; dense is all-MiniLM-L6-v2
as it was made to be used: mean of the token vectors, cosine, 256 tokens. exact is the embedded checkpoint, and fused it
with BM25, which is the default.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
from index_common import (
    Record,
    append,
    corpus,
    difference_interval,
    find,
    hops,
    long_text,
    mean_interval,
    questions,
    read,
    supporting,
    table,
)

KEPT = 20
KS = (2, 5, 10)
BASE = "exact"
"""What the overlap is with, in single precision."""
DEFAULT = "fused"
"""What users get with the embedded checkpoint; recall is compared with it."""

Search = Callable[[str], Sequence[str]]
DATA = click.argument("folders", type=click.Path(path_type=Path, exists=True), nargs=-1, required=True, metavar="DATA")


# --- systems: each is made of a corpus and a folder to work in, and is a function of a query that returns ids ---------


def bm25(passages: list[Record], work: Path) -> Search:
    """BM25."""
    import bm25s

    def words(texts: list[str]) -> Any:
        return bm25s.tokenize(texts, stopwords="en", show_progress=False)

    engine = bm25s.BM25(k1=0.9, b=0.4)
    engine.index(words([long_text(passage) for passage in passages]), show_progress=False)

    def search(query: str) -> list[str]:
        found, _ = engine.retrieve(words([query]), k=min(KEPT, len(passages)), show_progress=False)
        return [passages[int(position)]["id"] for position in found[0]]

    return search


def dense(passages: list[Record], work: Path) -> Search:
    """all-MiniLM-L6-v2 with mean pooling."""
    import json

    import torch
    from safetensors.torch import load_file
    from tokenizers import Tokenizer
    from transformers import BertConfig, BertModel

    from hopgate.core.weights import resolve

    weights = resolve("minilm")
    config = BertConfig(**json.loads((weights / "config.json").read_text(encoding="utf-8")))
    model = BertModel(config, add_pooling_layer=False).eval()
    model.load_state_dict(load_file(weights / "model.safetensors"), strict=False)
    tokenizer = Tokenizer.from_file(str(weights / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(256)

    def encode(texts: list[str]) -> np.ndarray:
        tokens = [torch.tensor(tokenizer.encode(text).ids) for text in texts]
        order = sorted(range(len(tokens)), key=lambda position: -len(tokens[position]))
        vectors = np.empty((len(tokens), config.hidden_size), np.float32)
        with torch.inference_mode():
            for start in range(0, len(order), 32):
                batch = order[start : start + 32]
                ids = torch.nn.utils.rnn.pad_sequence([tokens[position] for position in batch], batch_first=True)
                mask = torch.nn.utils.rnn.pad_sequence(
                    [torch.ones_like(tokens[position]) for position in batch], batch_first=True
                )
                hidden = model(ids, attention_mask=mask)[0] * mask[:, :, None]
                pooled = hidden.sum(1) / mask.sum(1, keepdim=True)
                vectors[batch] = torch.nn.functional.normalize(pooled, dim=-1).numpy()
        return vectors

    path = work / "dense.npy"
    if not path.exists():
        np.save(path, encode([long_text(passage) for passage in passages]))
    stored = np.load(path, allow_pickle=False)

    def search(query: str) -> list[str]:
        scores = stored @ encode([query])[0]
        return [passages[int(position)]["id"] for position in np.argsort(-scores, kind="stable")[:KEPT]]

    return search


def colbert(name: str, **options: Any) -> Callable[[list[Record], Path], Search]:
    """An index of hopgate."""

    def system(passages: list[Record], work: Path) -> Search:
        from hopgate.core import Passage
        from hopgate.index import ColBERTIndex

        given = [Passage(passage["id"], passage["title"], passage["text"]) for passage in passages]
        if name != BASE and options["precision"] == "fp32" and not (work / name).exists():
            # The vectors are the same, so they are taken over rather than encoded once more.
            ColBERTIndex.build(given, work / BASE, engine="exact", **SINGLE, replace=True)
            shutil.copytree(work / BASE, work / f"{name}.copy")
            (work / f"{name}.copy").rename(work / name)
        index = ColBERTIndex.build(given, work / name, **options, replace=True)
        return lambda query: [passage.id for passage in index.search(query, k=KEPT)]

    return system


SINGLE: dict[str, Any] = {"hybrid": False, "precision": "fp32"}
SYSTEMS: dict[str, Callable[[list[Record], Path], Search]] = {
    "bm25": bm25,
    "dense": dense,
    "exact": colbert("exact", engine="exact", **SINGLE),
    "plaid1": colbert("plaid1", engine="plaid", nbits=1, **SINGLE),
    "plaid2": colbert("plaid2", engine="plaid", nbits=2, **SINGLE),
    "plaid4": colbert("plaid4", engine="plaid", nbits=4, **SINGLE),
    "fused": colbert("fused", engine="exact", hybrid=True, precision="fp32"),
    "bf16": colbert("bf16", engine="exact", hybrid=False, precision="bf16"),
    "int8": colbert("int8", engine="exact", hybrid=False, precision="int8"),
}


# --- commands ---------------------------------------------------------------------------------------------------------


@click.group()
def main() -> None:
    """See the module's description."""


@main.command()
@DATA
@click.option("--work", type=click.Path(path_type=Path), required=True, help="Folder for indexes, which are kept.")
@click.option("--out", type=click.Path(path_type=Path), required=True)
@click.option("--systems", default=",".join(SYSTEMS), show_default=True)
@click.option("--rows", metavar="FIRST:LAST", help="Only these questions, counted from 1.")
@click.option("--titles", default=0, help="Search for so many titles too.")
@click.option("--first", type=int, help="Only so many passages, for a trial.")
def run(
    folders: tuple[Path, ...], work: Path, out: Path, systems: str, rows: str | None, titles: int, first: int | None
) -> None:
    """Record rankings."""
    for data in folders:
        passages = corpus(data, first)
        place = work / (data.name if first is None else f"{data.name}-{first}")
        place.mkdir(parents=True, exist_ok=True)
        queries = _queries(data, passages, rows, titles)
        for name in systems.split(","):
            key = {"data": place.name, "system": name}
            done = {(record["kind"], record["query"]) for record in find(read(out), **key)}
            missing = [query for query in queries if query[:2] not in done]
            if not missing:
                continue
            search = SYSTEMS[name](passages, place)
            for start in range(0, len(missing), 50):
                append(
                    out,
                    *(
                        {**key, "kind": kind, "query": identifier, "ids": list(search(text))[:KEPT]}
                        for kind, identifier, text in missing[start : start + 50]
                    ),
                )
            click.echo(f"{place.name} {name}: {len(missing)} queries")


def _queries(data: Path, passages: list[Record], rows: str | None, titles: int) -> list[tuple[str, str, str]]:
    """Kind, id and text of each query."""
    by_id = {passage["id"]: passage for passage in passages}
    chosen = questions(data, rows)
    found = [("question", str(row["id"]), row["question"]) for row in chosen]
    for row in chosen:
        if all(str(identifier) in by_id for identifier in row.get("supporting_ids", ())):
            found += [("sub-question", hop["id"], hop["question"]) for hop in hops(row, by_id)]
    if titles:
        distinct = list({passage["title"]: passage["id"] for passage in passages if passage["title"]}.items())
        order = np.random.default_rng(0).permutation(len(distinct))[:titles]
        found += [("title", distinct[number][1], distinct[number][0]) for number in order]
    return found


@main.command()
@click.argument("path", type=click.Path(path_type=Path, exists=True))
@DATA
@click.option("--rows", metavar="FIRST:LAST", help="Only these questions, counted from 1.")
def report(path: Path, folders: tuple[Path, ...], rows: str | None) -> None:
    """Print Markdown tables of what is recorded."""
    records = read(path)
    for data in folders:
        own = find(records, data=data.name)
        passages = corpus(data)
        by_id = {passage["id"]: passage for passage in passages}
        chosen = questions(data, rows)
        gold = {
            "question": {str(row["id"]): supporting(row, passages) for row in chosen},
            "sub-question": {hop["id"]: hop["supporting"] for row in chosen for hop in hops(row, by_id)},
        }
        for kind, wanted in gold.items():
            labelled = {query: ids for query, ids in wanted.items() if ids}
            _report_recall(find(own, kind=kind), labelled, kind, f"{data.name}{f', rows {rows}' if rows else ''}")
        _report_overlap(find(own, kind="title"), data.name)


def _report_recall(records: list[Record], gold: dict[str, list[str]], kind: str, title: str) -> None:
    ranked: dict[str, dict[str, list[str]]] = {}
    for record in records:
        ranked.setdefault(record["system"], {})[record["query"]] = record["ids"]
    common = [query for query in gold if all(query in found for found in ranked.values())]
    if not ranked or not common:
        return

    def recalls(name: str, k: int) -> list[float]:
        found = [(set(gold[query]), set(ranked[name][query][:k])) for query in common]
        if kind == "sub-question":
            return [float(bool(wanted & best)) for wanted, best in found]
        return [len(wanted & best) / len(wanted) for wanted, best in found]

    print(f"{title}: recall of {kind}s, n = {len(common)}; 95 % intervals; differences to {DEFAULT} in pairs.\n")
    rows = []
    for name in ranked:
        cells = [name, *(mean_interval(recalls(name, k)) for k in KS)]
        if DEFAULT in ranked:
            same = name == DEFAULT
            cells += ["-" if same else difference_interval(recalls(name, k), recalls(DEFAULT, k)) for k in KS]
        rows.append(cells)
    header = ["system", *(f"@{k}" for k in KS)]
    table([*header, *(f"@{k} less {DEFAULT}" for k in KS)] if DEFAULT in ranked else header, rows)


def _report_overlap(records: list[Record], title: str) -> None:
    base = {record["query"]: record["ids"][:10] for record in find(records, system=BASE)}
    rows = []
    for name in dict.fromkeys(record["system"] for record in records):
        pairs = [(r["ids"][:10], base[r["query"]]) for r in find(records, system=name) if r["query"] in base]
        if name != BASE and pairs:
            shares = [len(set(found) & set(wanted)) / len(wanted) for found, wanted in pairs]
            first = mean_interval(float(found[:1] == wanted[:1]) for found, wanted in pairs)
            rows.append([name, len(pairs), mean_interval(shares, 4), first])
    if rows:
        print(f"{title}: titles as queries, beside {BASE} in single precision; 95 % intervals.\n")
        table(["system", "n queries", "overlap@10", "same first passage"], rows)


if __name__ == "__main__":
    main()
