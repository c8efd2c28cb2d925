"""Progress of downloads that other programs make, read off the size of the folder that they write to."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

OnProgress = Callable[[int, int], None]
"""Called with the bytes that are done and the bytes in all."""

_INTERVAL = 0.5


@contextmanager
def reporting(folder: Path, done: int, size: int, total: int, on_progress: OnProgress | None) -> Iterator[None]:
    """Report progress while the body fills a folder; the calls come from a thread of their own.

    Args:
        folder: The folder that grows.
        done: Bytes that were done before.
        size: Bytes that the body adds; more than that in the folder is not reported.
        total: Bytes in all.
        on_progress: Called about twice a second and once when the body has ended well; ``None`` reports nothing.
    """
    if on_progress is None:
        yield
        return
    report, ended = on_progress, threading.Event()

    def watch() -> None:
        while not ended.wait(_INTERVAL):
            report(done + min(_folder_size(folder), size), total)

    thread = threading.Thread(target=watch, name="hopgate-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    report(done + size, total)


def _folder_size(folder: Path) -> int:
    size = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                size += Path(parent, name).stat().st_size
            except OSError:  # moved or removed since it was listed
                continue
    return size
