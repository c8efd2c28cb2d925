"""Builds that are killed at random moments and started again give the bytes of an undisturbed build.

    python benchmarks/index_kill.py run [CORPUS] --work DIR --out results/index-kill.jsonl
    python benchmarks/index_kill.py report results/index-kill.jsonl

CORPUS is by default the bundled one (189 passages); chunks are 8 passages, so that there is much to interrupt. A build
is killed (SIGKILL) at a moment drawn evenly from the time that an undisturbed build takes after its imports, and
started again; all files, the manifest included, are compared byte for byte. Exits with 1 if one differs. A run that was
stopped goes on.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

import click
import numpy as np
from index_common import append, environment, find, read

CHUNK = 8

BUILD = """
import sys
from hopgate.index import ColBERTIndex, chunks
chunks.CHUNK = int(sys.argv[4])
import torch, transformers
print("begins", flush=True)
ColBERTIndex.build(sys.argv[1], sys.argv[2], checkpoint=sys.argv[5], engine=sys.argv[3])
"""


@click.group()
def main() -> None:
    """See the module's description."""


@main.command()
@click.argument("corpus", type=click.Path(path_type=Path, exists=True), required=False)
@click.option("--work", type=click.Path(path_type=Path), required=True)
@click.option("--out", type=click.Path(path_type=Path), required=True)
@click.option("--engine", type=click.Choice(["exact", "plaid"]), default="exact", show_default=True)
@click.option("--checkpoint", default="embedded/minilm-colbert", show_default=True)
@click.option("--trials", default=20, show_default=True)
@click.option("--threads", default=1, show_default=True)
def run(corpus: Path | None, work: Path, out: Path, engine: str, checkpoint: str, trials: int, threads: int) -> None:
    """Kill and compare."""
    if corpus is None:
        from hopgate.evaluation import sample_corpus_path

        corpus = Path(str(sample_corpus_path()))
    work.mkdir(parents=True, exist_ok=True)

    def build(folder: Path, kill_after: float | None = None) -> float | None:
        """Build; returns its seconds after the imports, ``None`` if it was killed."""
        command = [sys.executable, "-c", BUILD, str(corpus), str(folder), engine, str(CHUNK), checkpoint]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment(threads)) as process:
            if process.stdout is None or process.stdout.readline() != "begins\n":
                sys.exit("the build did not begin")
            start = time.perf_counter()
            try:
                process.wait(kill_after)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                return None
        if process.returncode:
            sys.exit(f"a build failed with {process.returncode}")
        return time.perf_counter() - start

    whole = work / f"whole-{engine}"
    shutil.rmtree(whole, ignore_errors=True)
    duration = build(whole)
    if duration is None:
        sys.exit("the undisturbed build was killed")
    expected = files(whole)
    for trial in range(trials):
        key = {"engine": engine, "trial": trial}
        if find(read(out), **key):
            continue
        # A folder of its own name would not matter, but none may be left of an earlier run.
        root = work / f"trial-{engine}"
        rng = np.random.default_rng([trial, len(engine)])
        while True:
            shutil.rmtree(root, ignore_errors=True)
            root.mkdir()
            moment = float(rng.uniform(0, duration))
            if build(root / "index", moment) is None:
                break  # otherwise it was done before its time, and is drawn again
        kept = len(list(root.glob(".index.hopgate-part/vectors/?????.npy")))
        in_place = (root / "index").exists()
        build(root / "index")
        found = files(root / "index")
        differing = sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name))
        share = round(moment / duration, 4)
        record = {**key, "share": share, "chunks_kept": kept, "in_place": in_place, "files": len(expected)}
        append(out, {**record, "differing": differing})
        click.echo(f"{record} differing: {differing or 'none'}")
    verdict(out)


def files(folder: Path) -> dict[str, bytes]:
    """The bytes of all files, by relative path."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@main.command()
@click.argument("path", type=click.Path(path_type=Path, exists=True))
def report(path: Path) -> None:
    """Say what is recorded."""
    verdict(path)


def verdict(path: Path) -> None:
    """Print a line an engine; exits with 1 if a file differs."""
    records = read(path)
    for engine in dict.fromkeys(record["engine"] for record in records):
        own = find(records, engine=engine)
        equal = sum(not record["differing"] for record in own)
        shares = sorted(record["share"] for record in own)
        kept = sum(record["chunks_kept"] > 0 for record in own)
        print(
            f"{engine}: {equal} of {len(own)} killed and resumed builds equal the undisturbed one in all "
            f"{own[0]['files']} files; killed at {shares[0]:.0%} to {shares[-1]:.0%} of its time, "
            f"{kept} with finished chunks"
        )
    if any(record["differing"] for record in records):
        sys.exit(1)


if __name__ == "__main__":
    main()
