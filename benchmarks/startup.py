"""How long ``hopgate --help`` takes, in multiples of bare Python: the two are run in turn, and the medians compared.

python benchmarks/startup.py --runs 40
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from pathlib import Path

GOAL = 6.0


def seconds(command: list[str]) -> float:
    """Wall time of a command."""
    start = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - start


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=40, help="runs of each command")
    runs = parser.parse_args().runs
    script = Path(sys.executable).with_name("hopgate")
    if not script.exists():
        sys.exit(f"{script} is missing: install hopgate first")
    commands = {"python -c pass": [sys.executable, "-c", "pass"], "hopgate --help": [str(script), "--help"]}
    for command in commands.values():  # compiled files and the disk's cache
        seconds(command)
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(runs):
        for name, command in commands.items():
            times[name].append(seconds(command))
    medians = {name: statistics.median(found) for name, found in times.items()}
    for name, median in medians.items():
        print(f"{name:16} {median * 1000:7.1f} ms (median of {runs}, fastest {min(times[name]) * 1000:.1f})")
    bare, measured = medians.values()
    print(f"ratio            {measured / bare:7.2f} (goal: at most {GOAL:g})")


if __name__ == "__main__":
    main()
