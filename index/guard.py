"""What an index server refuses before it looks at what is asked: strange hosts, missing tokens, large bodies."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, TypeAlias
from urllib.parse import urlsplit

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

OPEN_PATH = "/healthz"
"""The one path that needs no token."""

_DRAINED = 32 << 20
_DRAIN_SECONDS, _QUIET_SECONDS = 5.0, 0.5
"""How much of the body of a refused request is read, since a client that still sends may never see the answer."""


class Guard:
    """ASGI middleware in front of an application that reads whole bodies.

    Args:
        app: The application.
        token: What requests must carry as ``Authorization: Bearer ...``; ``None`` if nothing.
        hosts: Names that the ``Host`` header may have, in lower case; ``None`` for any. A page in a browser that
            reaches a local server through a name of its own (DNS rebinding) sends that name.
        max_body: Bytes of a body.
        body_seconds: Seconds in which the body must have arrived.
    """

    def __init__(
        self, app: App, *, token: str | None, hosts: frozenset[str] | None, max_body: int, body_seconds: float
    ) -> None:
        self._app = app
        self._token = None if token is None else f"Bearer {token}".encode("ascii")
        self._hosts = hosts
        self._max_body = max_body
        self._body_seconds = body_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See the ASGI specification."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refusal = self._refusal(scope)
        if refusal is not None:
            await self._drain(scope, receive)
            await _refuse(send, *refusal)
            return
        try:
            async with asyncio.timeout(self._body_seconds):
                body = await self._body(receive)
        except TimeoutError:
            await _refuse(send, 408, f"the body has not arrived within {self._body_seconds:g} seconds")
            return
        except _TooLarge:
            await self._drain(scope, receive)
            await _refuse(send, *self._too_large())
            return
        except _Gone:
            return
        await self._app(scope, _replaying(body, receive), send)

    def _refusal(self, scope: Scope) -> tuple[int, str, dict[str, str]] | None:
        headers: dict[bytes, list[bytes]] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name.lower(), []).append(value)
        if self._hosts is not None and _host(headers.get(b"host", [])) not in self._hosts:
            names = ", ".join(sorted(self._hosts))
            return 400, f"this server answers only to the names {names} (Host header)", {}
        if self._token is not None and scope["path"] != OPEN_PATH:
            given = headers.get(b"authorization", [])
            scheme, _, value = given[0].partition(b" ") if len(given) == 1 else (b"", b"", b"")
            if not hmac.compare_digest(scheme.capitalize() + b" " + value.strip(), self._token):
                detail = "a token is needed: send the header `Authorization: Bearer TOKEN` with this server's token"
                return 401, detail, {"www-authenticate": "Bearer"}
        for length in headers.get(b"content-length", []):
            if length.isdigit() and (len(length) > 18 or int(length) > self._max_body):
                return self._too_large()
        return None

    def _too_large(self) -> tuple[int, str, dict[str, str]]:
        return 413, f"a body may have at most {self._max_body:,} bytes; send several requests", {}

    async def _body(self, receive: Receive) -> bytes:
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise _Gone
            body += message.get("body", b"")
            if len(body) > self._max_body:
                raise _TooLarge
            if not message.get("more_body", False):
                return bytes(body)

    async def _drain(self, scope: Scope, receive: Receive) -> None:
        # Whoever asks first whether to send a body will not send it.
        if any(name.lower() == b"expect" for name, _ in scope["headers"]):
            return
        size = 0
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_DRAIN_SECONDS):
                while size < _DRAINED:
                    message = await asyncio.wait_for(receive(), _QUIET_SECONDS)
                    size += len(message.get("body", b""))
                    if not message.get("more_body", False):
                        return


class _TooLarge(Exception):
    """More bytes have come than a body may have."""


class _Gone(Exception):
    """The client has gone away."""


def _host(values: list[bytes]) -> str | None:
    if len(values) != 1:
        return None
    try:
        return urlsplit(f"//{values[0].decode('ascii')}").hostname
    except ValueError:
        return None


def _replaying(body: bytes, receive: Receive) -> Receive:
    given = False

    async def replay() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


async def _refuse(send: Send, status: int, detail: str, headers: Mapping[str, str] | None = None) -> None:
    # If there is still more of the body, it is not read.
    body = json.dumps({"detail": detail}).encode()
    fields = {"content-type": "application/json", "content-length": str(len(body)), "connection": "close"}
    pairs = [(name.encode(), value.encode()) for name, value in {**fields, **(headers or {})}.items()]
    await send({"type": "http.response.start", "status": status, "headers": pairs})
    await send({"type": "http.response.body", "body": body})
