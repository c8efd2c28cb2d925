"""Check that a wheel holds every file of the rooms that git knows: modules, `py.typed` and data."""

from __future__ import annotations

import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path


def main() -> int:
    """Compare the wheel named on the command line with the repository in the current folder."""
    folders = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]["package-dir"]
    tracked = subprocess.run(
        ["git", "ls-files", "-z", "--", *folders.values()], capture_output=True, text=True, check=True
    ).stdout.split("\0")
    expected = {f"hopgate/{name}" for name in tracked if name}
    with zipfile.ZipFile(sys.argv[1]) as wheel:
        found = set(wheel.namelist())
    if missing := sorted(expected - found):
        print(f"not in the wheel: {', '.join(missing)}", file=sys.stderr)
        return 1
    print(f"{Path(sys.argv[1]).name} holds all {len(expected)} files of the rooms.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
