"""Requests to an index server: retries, and limits on how long an attempt may take and how large an answer may be."""

from __future__ import annotations

import asyncio
import json
import random
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

from ..core import HopgateError, InputError, RemoteIndexError
from .bearer import TOKEN_VARIABLE

if TYPE_CHECKING:
    import ssl

    import httpx
    from tenacity import RetryCallState

    from .remote_deadline import Deadline

_LONGEST_PAUSE = 10.0
"""Seconds between two attempts, whatever the server asks for."""
_LONGEST_DETAIL = 500
_TEMPORARY = {429, 502, 503, 504}


@dataclass(frozen=True)
class Call:
    """One request: GET, or POST of a JSON object if there is a body."""

    url: str
    params: Mapping[str, str] | None = None
    body: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class _Outcome:
    """What an attempt came to: an answer, or an error with whether another attempt could help and after how long."""

    answer: bytes = b""
    error: HopgateError | None = None
    again: bool = False
    pause: float | None = None


def encoded(value: Any) -> bytes:
    """A value as JSON.

    Raises:
        TypeError: JSON has no such type.
        ValueError: A number is not finite, or the value contains itself.
        RecursionError: It is nested too deeply.
    """
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except UnicodeEncodeError:
        # Half of a surrogate pair can only be expressed in ASCII.
        return json.dumps(value, allow_nan=False).encode()


class Http:
    """Sends calls. Threads may share it.

    Args:
        timeout: Seconds for an attempt, from connecting to the end of the answer.
        retries: Further attempts after a failure that may pass.
        backoff: Seconds of the first pause; it doubles each time, is shortened at random and is at most 10 seconds.
        token: Sent as ``Authorization: Bearer ...``.
        max_bytes: Bytes that an answer may have.
        use_proxies: Whether the proxies that the environment names are used.
    """

    def __init__(
        self, *, timeout: float, retries: int, backoff: float, token: str | None, max_bytes: int, use_proxies: bool
    ) -> None:
        self._timeout = timeout
        self._retries = retries
        self._backoff = backoff
        self._max_bytes = max_bytes
        self._use_proxies = use_proxies
        self._headers = {"accept": "application/json", "accept-encoding": "identity"}
        if token is not None:
            self._headers["authorization"] = f"Bearer {token}"
        self._lock = threading.Lock()
        self._client: httpx.Client | None = None
        self._deadline: Deadline | None = None
        self._tls: ssl.SSLContext | None = None
        self._closed = False

    def send(self, call: Call) -> Any:
        """The JSON value that the server answers.

        Raises:
            RemoteIndexError: There is no answer, or one that is no JSON or says that something failed.
            InputError: The server refuses what is asked, or the request cannot be written as JSON.
        """
        from tenacity import Retrying

        client, deadline = self._shared_client()
        request = self._request(call)
        return _value(call, Retrying(**self._policy())(self._attempt, client, deadline, call, request))

    async def asend(self, call: Call) -> Any:
        """As :meth:`send`. The connection is used once, since it belongs to the event loop."""
        import httpx
        from tenacity import AsyncRetrying

        self._shared_client()  # Refuses when closed.
        request = self._request(call)
        async with httpx.AsyncClient(**self._options()) as client:
            return _value(call, await AsyncRetrying(**self._policy())(self._aattempt, client, call, request))

    def start_anew(self) -> None:
        """Leave the connections to the process that this one was forked from; two that share one mix up answers."""
        # Another thread may have held the lock, also those inside the client: nothing of it can be closed.
        self._lock = threading.Lock()
        self._client = None

    def close(self) -> None:
        """Close the connections; nothing can be sent any more."""
        with self._lock:
            self._closed, client, self._client = True, self._client, None
        if client is not None:
            client.close()

    def _shared_client(self) -> tuple[httpx.Client, Deadline]:
        import httpx

        from .remote_deadline import Deadline, set_deadline

        with self._lock:
            if self._closed:
                raise InputError("this RemoteIndex has been closed; make another")
            if self._client is None or self._deadline is None:
                client, self._deadline = httpx.Client(**self._options()), Deadline()
                set_deadline(client, self._deadline)
                self._client = client
            return self._client, self._deadline

    def _options(self) -> dict[str, Any]:
        import httpx

        # Reading the certificates takes longer than a search. Threads that come first at once all do it.
        if self._tls is None:
            self._tls = httpx.create_ssl_context(trust_env=self._use_proxies)
        # Redirects are not followed: they could carry the token elsewhere.
        return {
            "verify": self._tls,
            "timeout": self._timeout,
            "headers": self._headers,
            "follow_redirects": False,
            "trust_env": self._use_proxies,
        }

    def _request(self, call: Call) -> dict[str, Any]:
        if call.body is None:
            return {"method": "GET", "url": call.url, "params": call.params}
        headers = {"content-type": "application/json"}
        try:
            content = encoded(call.body)
        except (TypeError, ValueError, RecursionError) as error:
            raise InputError(
                f"cannot be sent to {call.url} as JSON: {error}; correct the passages' metadata"
            ) from error
        return {"method": "POST", "url": call.url, "content": content, "headers": headers}

    def _policy(self) -> dict[str, Any]:
        from tenacity import retry_if_result, stop_after_attempt

        return {
            "stop": stop_after_attempt(self._retries + 1),
            "wait": self._pause,
            "retry": retry_if_result(lambda outcome: outcome.again),
            # The last failure is the one to report.
            "retry_error_callback": lambda state: state.outcome.result(),
        }

    def _pause(self, state: RetryCallState) -> float:
        asked = state.outcome.result().pause if state.outcome is not None else None
        pause = self._backoff * 2 ** min(state.attempt_number - 1, 30) if asked is None else asked
        # Clients that failed together should not come back together.
        pause = pause * random.uniform(0.5, 1.0) if asked is None else pause + random.uniform(0, self._backoff)
        return min(pause, _LONGEST_PAUSE)

    def _attempt(self, client: httpx.Client, deadline: Deadline, call: Call, request: dict[str, Any]) -> _Outcome:
        import httpx

        answer = _Answer(call, self._max_bytes)
        try:
            with deadline.within(self._timeout), client.stream(**request) as response:
                answer.begin(response)
                for chunk in response.iter_raw():
                    answer.add(chunk)
            return answer.outcome()
        except RemoteIndexError as error:
            return _Outcome(error=error)
        except (httpx.HTTPError, httpx.InvalidURL, RuntimeError) as error:
            return self._failure(call, error)

    async def _aattempt(self, client: httpx.AsyncClient, call: Call, request: dict[str, Any]) -> _Outcome:
        import httpx

        answer = _Answer(call, self._max_bytes)
        try:
            async with asyncio.timeout(self._timeout), client.stream(**request) as response:
                answer.begin(response)
                async for chunk in response.aiter_raw():
                    answer.add(chunk)
            return answer.outcome()
        except RemoteIndexError as error:
            return _Outcome(error=error)
        except (httpx.HTTPError, httpx.InvalidURL, RuntimeError, TimeoutError) as error:
            return self._failure(call, error)

    def _failure(self, call: Call, error: Exception) -> _Outcome:
        import httpx

        if isinstance(error, httpx.InvalidURL):
            # Only the query of an original server is part of an address.
            return _Outcome(error=InputError(f"{call.url}: the query does not fit into an address; ask a shorter one"))
        is_late = isinstance(error, httpx.TimeoutException | TimeoutError)
        if is_late:
            message = f"{call.url}: no whole answer within {self._timeout:g} seconds; give a larger `timeout`"
        else:
            message = f"{call.url}: cannot be reached ({str(error) or type(error).__name__}); is the server running?"
        again = is_late or isinstance(error, httpx.NetworkError | httpx.RemoteProtocolError)
        failure = RemoteIndexError(message)
        failure.__cause__ = error
        return _Outcome(error=failure, again=again)


class _Answer:
    """An answer that is coming in."""

    def __init__(self, call: Call, max_bytes: int) -> None:
        self._url = call.url
        self._max_bytes = max_bytes
        self._body = bytearray()
        self._status = 0
        self._headers: Mapping[str, str] = {}

    def begin(self, response: httpx.Response) -> None:
        self._status, self._headers = response.status_code, response.headers
        encoding = response.headers.get("content-encoding", "identity").strip().lower()
        if encoding not in ("", "identity"):
            # A few compressed bytes can become gigabytes.
            raise RemoteIndexError(f"{self._url}: the answer is compressed, which was not asked for; {_ANOTHER}")

    def add(self, chunk: bytes) -> None:
        if len(self._body) + len(chunk) > self._max_bytes:
            raise RemoteIndexError(
                f"{self._url}: the answer has more than {self._max_bytes:,} bytes; ask for less, or give a larger "
                "`max_bytes`",
                status=self._status,
            )
        self._body += chunk

    def outcome(self) -> _Outcome:
        status, body = self._status, bytes(self._body)
        if status == 200:
            return _Outcome(body)
        detail = _detail(body)
        if detail and status in (413, 422):
            return _Outcome(error=InputError(f"{self._url} refuses the request: {detail}"))
        message = f"{self._url}: answered with status {status}" + (f" ({detail})" if detail else "")
        if status == 401:
            message += (
                f"; set the environment variable {TOKEN_VARIABLE} to this server's token, for commands and where an "
                "index is unpickled, or give it to RemoteIndex as `token`"
            )
        elif 300 <= status < 400:
            message += "; redirects are not followed, give the address that it leads to"
        error = RemoteIndexError(message, status=status)
        return _Outcome(error=error, again=status in _TEMPORARY, pause=_retry_after(self._headers.get("retry-after")))


_ANOTHER = "is this an index server?"


def _value(call: Call, outcome: _Outcome) -> Any:
    if outcome.error is not None:
        raise outcome.error
    try:
        return json.loads(outcome.answer)
    except (ValueError, RecursionError) as error:
        raise RemoteIndexError(f"{call.url}: the answer is not JSON; {_ANOTHER}", status=200) from error


def _detail(body: bytes) -> str:
    """The reason that a server gives for a failure, fit to be shown; empty if it gives none."""
    try:
        detail = json.loads(body)["detail"]
    except (ValueError, RecursionError, TypeError, KeyError, IndexError):
        return ""
    if not isinstance(detail, str):
        return ""
    return "".join(character if character.isprintable() else " " for character in detail[:_LONGEST_DETAIL]).strip()


def _retry_after(value: str | None) -> float | None:
    """Seconds that a ``Retry-After`` header asks for, at most the longest pause; ``None`` if it cannot be read."""
    if value is None:
        return None
    try:
        if value.strip().isdecimal():
            return min(float(value), _LONGEST_PAUSE)
        moment = parsedate_to_datetime(value)
        moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        return min(max((moment - datetime.now(UTC)).total_seconds(), 0.0), _LONGEST_PAUSE)
    except (ValueError, TypeError, OverflowError):
        return None
