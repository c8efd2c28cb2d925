"""Keeping other people's output off the terminal, and at hand for an error message."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO

_redirecting = threading.RLock()


@contextmanager
def captured_output() -> Iterator[Callable[[], str]]:
    """Send standard output and error to a temporary file while the body runs, from Python and from C alike.

    File descriptors belong to the process: what other threads print meanwhile is taken too.

    Yields:
        A function that returns the last line with text that was printed so far.
    """
    with _redirecting, tempfile.TemporaryFile("w+", 1, errors="replace") as log:
        _flush()
        saved = [(number, os.dup(number)) for number in (1, 2)]
        try:
            for number, _ in saved:
                os.dup2(log.fileno(), number)
            # Python's own streams need not be the descriptors: notebooks and test runners put others in their place.
            with contextlib.redirect_stdout(log), contextlib.redirect_stderr(log):
                yield lambda: _last_line(log)
        finally:
            _flush()
            for number, copy in saved:
                os.dup2(copy, number)
                os.close(copy)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    if os.name == "posix":
        # C libraries buffer on their own; what is left would come out after the streams are back.
        ctypes.CDLL(None).fflush(None)


def _last_line(log: IO[str]) -> str:
    _flush()
    log.flush()
    # A reader of its own: moving the shared position would have later output overwrite earlier.
    size = os.fstat(log.fileno()).st_size
    tail = os.pread(log.fileno(), 4000, max(0, size - 4000)).decode(errors="replace")
    lines = [line.strip() for line in tail.splitlines() if line.strip()]
    return lines[-1] if lines else ""
