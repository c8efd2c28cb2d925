"""How an index server treats connections: deadlines, and how many there may be. Importing it needs uvicorn."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from .limits import ServerLimits

_log = logging.getLogger(f"{__name__}.requests")
# Errors in the server matter to those who run it; what is wrong with a request is told to its sender alone.
_log.setLevel(logging.ERROR)


def make_protocol(limits: ServerLimits, connections: int) -> type[H11Protocol]:
    """The class whose objects each handle one connection.

    Args:
        limits: Its ``head_seconds`` count.
        connections: How many may be open. One more takes the place of the one without a request that has waited
            longest; if there is none, it is closed at once.
    """

    class Protocol(H11Protocol):
        def __init__(self, *args: Any, **named: Any) -> None:
            super().__init__(*args, **named)
            self.logger = _log
            self._head_timer: asyncio.TimerHandle | None = None
            self._waiting_since = self.loop.time()

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            if len(self.connections) > connections:
                others = [one for one in self.connections if isinstance(one, Protocol) and one.is_waiting()]
                # This one is among them. It counts until the event loop has closed it.
                min(others, key=lambda one: (one is self, one._waiting_since)).drop()
            self._expect_head()

        def connection_lost(self, exc: Exception | None) -> None:
            self._forget_head()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.conn.their_state is h11.IDLE:
                self._expect_head()
            else:
                self._forget_head()

        def on_response_complete(self) -> None:
            self._waiting_since = self.loop.time()
            super().on_response_complete()
            if self.transport.is_closing():
                self._drop_later()

        def timeout_keep_alive_handler(self) -> None:
            super().timeout_keep_alive_handler()
            self._drop_later()

        def _should_upgrade(self) -> bool:
            return False

        def is_waiting(self) -> bool:
            """Whether there is no request under way, and nobody has closed it yet."""
            return (self.cycle is None or self.cycle.response_complete) and not self.transport.is_closing()

        def drop(self) -> None:
            self.transport.abort()

        def _expect_head(self) -> None:
            # What comes in does not put the end off: it could be a byte every now and then.
            if self._head_timer is None:
                self._head_timer = self.loop.call_later(limits.head_seconds, self.timeout_keep_alive_handler)

        def _forget_head(self) -> None:
            if self._head_timer is not None:
                self._head_timer.cancel()
                self._head_timer = None

        def _drop_later(self) -> None:
            # A closed connection stays until the client has read everything, unless that takes too long.
            self.loop.call_later(self.timeout_keep_alive, self.transport.abort)

    return Protocol
