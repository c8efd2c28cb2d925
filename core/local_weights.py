"""Weights from a file or folder of this machine."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from .errors import WeightsError
from .known_weights import WeightFile, Weights


def link_or_copy(weights: Weights, wanted: list[WeightFile], source: Path, target: Path) -> None:
    """Bring files of the right size into a folder, by a hard link where that can be done; the caller checks them.

    Args:
        weights: The weights that the files belong to.
        wanted: The files that are needed.
        source: A folder that holds them, or the file itself, of whatever name, if the weights have one only.
        target: An existing folder. Nothing in it may be written to afterwards, since it may be the user's file.

    Raises:
        WeightsError: A file is not there, or has another size.
    """
    for file in wanted:
        path = source if source.is_file() and len(weights.files) == 1 else source / file.name
        if not path.is_file():
            raise WeightsError(f"{path} is not a file; `--from PATH` for {weights.name!r} needs {described(weights)}")
        size = path.stat().st_size
        if size != file.size:
            raise WeightsError(
                f"{path} is not the expected file ({size:,} bytes instead of {file.size:,}) and was not used: name "
                f"the right one with `hopgate lm fetch {weights.name} --from PATH`"
            )
        link = target / file.name
        link.unlink(missing_ok=True)
        try:
            os.link(path.resolve(), link)
        except OSError:  # another disk, or a file system without links
            shutil.copyfile(path, link)


def described(weights: Weights) -> str:
    """What a local path has to be for these weights, in words."""
    names = ", ".join(file.name for file in weights.files)
    return f"the file {names} or its folder" if len(weights.files) == 1 else f"a folder with {names}"
