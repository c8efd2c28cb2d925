"""How long ``hopgate --help`` takes, in multiples of bare Python.

    python benchmarks/startup.py run --runs 40 --out results/startup.jsonl
    python benchmarks/startup.py report results/startup.jsonl

The two are run in turn, once beforehand for the sake of compiled files and the disk's cache.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import click
import numpy as np
from index_common import append, interval, read, shown, table

GOAL = 6.0


def seconds(command: list[str]) -> float:
    """Wall time of a command."""
    start = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - start


@click.group()
def main() -> None:
    """See the module's description."""


@main.command()
@click.option("--runs", default=40, show_default=True, help="Runs of each command.")
@click.option("--out", type=click.Path(path_type=Path), required=True)
def run(runs: int, out: Path) -> None:
    """Measure and record."""
    script = Path(sys.executable).with_name("hopgate")
    if not script.exists():
        sys.exit(f"{script} is missing: install hopgate first")
    bare, own = [sys.executable, "-c", "pass"], [str(script), "--help"]
    for command in (bare, own):
        seconds(command)
    for _ in range(runs):
        append(out, {"python": round(seconds(bare), 6), "hopgate": round(seconds(own), 6)})


@main.command()
@click.argument("path", type=click.Path(path_type=Path, exists=True))
def report(path: Path) -> None:
    """Print a Markdown table: medians, and their ratio with a 95 % bootstrap interval over pairs of runs."""
    rows = read(path)
    bare, own = ([row[name] for row in rows] for name in ("python", "hopgate"))
    ratio = interval([own, bare], lambda a, b, axis=-1: np.median(a, axis) / np.median(b, axis))
    cells = [len(rows), f"{1000 * np.median(bare):.0f}", f"{1000 * np.median(own):.0f}", shown(ratio), f"{GOAL:g}"]
    table(["runs", "python -c pass, ms", "hopgate --help, ms", "ratio", "at most"], [cells])


if __name__ == "__main__":
    main()
