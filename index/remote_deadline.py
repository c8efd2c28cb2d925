"""Sockets with one deadline for a whole attempt, which no server can put off by sending a little now and then.

Importing it needs httpcore, the part of httpx that sends and receives.
"""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import httpcore
import httpx

_PIECE = 1 << 16
"""Bytes written at a time: a write waits for its time only once, however slowly the server reads."""


class Deadline(threading.local):
    """When the attempt that a thread makes must be over."""

    _end = float("inf")

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """What the thread does with its sockets in this block must be done in so many seconds."""
        self._end = time.monotonic() + seconds
        try:
            yield
        finally:
            del self._end

    def left(self, timeout: float | None, late: type[Exception]) -> float | None:
        """Seconds that a wait may take.

        Raises:
            Exception: The deadline has passed; it is of the type ``late``.
        """
        left = self._end - time.monotonic()
        if left <= 0:
            raise late("the deadline has passed")
        return min(left, timeout if timeout is not None else float("inf"))


def set_deadline(client: httpx.Client, deadline: Deadline) -> None:
    """Make a new client heed a deadline in all that it sends and receives, through proxies as well."""
    for transport in (client._transport, *client._mounts.values()):
        if isinstance(transport, httpx.HTTPTransport):
            # httpcore lets its backend be chosen, but httpx does not hand that on.
            pool: Any = transport._pool
            pool._network_backend = _Backend(pool._network_backend, deadline)


class _Backend(httpcore.NetworkBackend):
    def __init__(self, backend: httpcore.NetworkBackend, deadline: Deadline) -> None:
        self._backend = backend
        self._deadline = deadline

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        left = self._deadline.left(timeout, httpcore.ConnectTimeout)
        stream = self._backend.connect_tcp(host, port, left, local_address, socket_options)
        return _Stream(stream, self._deadline)

    def sleep(self, seconds: float) -> None:
        self._backend.sleep(seconds)


class _Stream(httpcore.NetworkStream):
    def __init__(self, stream: httpcore.NetworkStream, deadline: Deadline) -> None:
        self._stream = stream
        self._deadline = deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, self._deadline.left(timeout, httpcore.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        for start in range(0, len(buffer), _PIECE):
            piece = buffer[start : start + _PIECE]
            self._stream.write(piece, self._deadline.left(timeout, httpcore.WriteTimeout))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        left = self._deadline.left(timeout, httpcore.ConnectTimeout)
        return _Stream(self._stream.start_tls(ssl_context, server_hostname, left), self._deadline)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)
