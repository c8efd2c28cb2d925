"""What the processor offers: cores, and units for bfloat16; and how many threads torch calculates with."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def available_cores() -> int:
    """Processor cores that this process may use: those it is bound to, and no more than a container's share allows."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # not on this system
        cores = os.cpu_count() or 1
    try:
        quota, period = _QUOTA.read_text(encoding="ascii").split()
        return cores if quota == "max" else max(1, min(cores, -(-int(quota) // int(period))))
    except (OSError, ValueError):
        return cores


@functools.cache
def has_bfloat16_units() -> bool:
    """Whether the processor has instructions that multiply bfloat16 numbers, as Linux says it."""
    try:
        flags = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return False
    return "amx_bf16" in flags or "avx512_bf16" in flags


class _Limit:
    """Sets torch's number of threads while any body runs, and puts it back after the last."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running, self._before = 0, 0

    @contextmanager
    def __call__(self, threads: int | None) -> Iterator[None]:
        """Run the body with so many threads; by default with no more than there are cores to use.

        The number belongs to the process: while several bodies run at once, the last one's holds.
        """
        import torch

        with self._lock:
            if not self._running:
                self._before = torch.get_num_threads()
            self._running += 1
            wanted = threads or min(self._before, available_cores())
            if wanted != torch.get_num_threads():
                torch.set_num_threads(wanted)
        try:
            yield
        finally:
            with self._lock:
                self._running -= 1
                if not self._running and torch.get_num_threads() != self._before:
                    torch.set_num_threads(self._before)


limited_threads = _Limit()
