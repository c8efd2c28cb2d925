"""An index as a web server, for ``dspy.ColBERTv2``, :class:`hopgate.index.RemoteIndex` and programs of your own."""

from __future__ import annotations

import errno
import ipaddress
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ..core import InputError, MissingDependencyError
from .bearer import TOKEN_VARIABLE, checked_token
from .interface import PassageIndex
from .limits import ServerLimits

if TYPE_CHECKING:
    import uvicorn

DEFAULT_PORT = 8893
_LONGEST_HEAD = 256 << 10
"""Bytes of a request's first line and headers: enough for any query of 10,000 characters in a URL."""
_IDLE_SECONDS = 30
_ACCEPTED_AT_ONCE = 16
"""Connections that are taken before the first of them is looked at, and may be one too many."""
_QUEUE = 2048
"""Connections that the system holds until they are taken."""
_GRACE_SECONDS = 30


class IndexServer:
    """Serves an index over HTTP.

    The port is taken when the server is made; requests that arrive before it runs wait. Use it as a context manager
    to serve from a thread, or call :meth:`run` to serve until the process is told to stop.

    Paths: ``/api/search`` and ``/`` (GET and POST, as the original ColBERT server), ``/search_many``, ``/rerank``,
    ``/passages``, ``/info``, ``/healthz``, and ``/openapi.json``, which describes them.

    Args:
        index: What to serve; it must be usable from several threads, as indexes of hopgate are.
        host: Address or name to listen on. Without a token only this machine can be served.
        port: Port to listen on; 0 for any free one.
        token: What requests, except for ``/healthz``, must carry as ``Authorization: Bearer ...``. There is no
            encryption: beyond this machine put a proxy with TLS in front.
        limits: What a request may ask for.

    Attributes:
        url: Where it listens: ``http://127.0.0.1:8893``.

    Raises:
        InputError: The port is in use, the address is none of this machine, or it needs a token.
        MissingDependencyError: FastAPI or uvicorn is not installed.
    """

    def __init__(
        self,
        index: PassageIndex,
        *,
        host: str = "127.0.0.1",
        port: int = DEFAULT_PORT,
        token: str | None = None,
        limits: ServerLimits | None = None,
    ) -> None:
        self._limits = limits or ServerLimits()
        self._token = None if token is None else checked_token(token)
        require_server_packages()
        self._socket, address, is_local = _listen(host, port, has_token=token is not None)
        bound = self._socket.getsockname()[1]
        self.url = f"http://[{host}]:{bound}" if ":" in host else f"http://{host}:{bound}"
        self._hosts = frozenset({"localhost", "127.0.0.1", "::1", address, host.lower()}) if is_local else None
        self._index = index
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None

    def run(self, on_ready: Callable[[], None] | None = None) -> None:
        """Serve until :meth:`stop`, or, in the main thread, until SIGINT or SIGTERM; requests under way are finished.

        Those get up to 30 seconds; a second SIGINT ends them.

        Args:
            on_ready: Called once, when requests are answered and signals are heeded.

        Raises:
            InputError: It has been stopped; make another.
        """
        self._make(on_ready).run(sockets=[self._socket])

    def stop(self) -> None:
        """Stop, when the requests under way are finished, and free the port. May be called from any thread."""
        if self._server is not None:
            self._server.should_exit = True
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        # A server that never ran has nobody else to close its socket.
        if self._server is None or self._thread is not None:
            self._socket.close()

    def __enter__(self) -> IndexServer:
        """Serve from a thread, from now on."""
        ready = threading.Event()
        server = self._make(ready.set)

        def serve() -> None:
            try:
                server.run(sockets=[self._socket])
            except (Exception, SystemExit) as error:  # noqa: BLE001 - raised again below, in the thread that waits
                self._failure = error
            finally:
                ready.set()

        self._thread = threading.Thread(target=serve, name="hopgate-server", daemon=True)
        self._thread.start()
        ready.wait()
        if self._failure is not None:
            raise self._failure
        return self

    def __exit__(self, *failure: object) -> None:
        """As :meth:`stop`."""
        self.stop()

    def _make(self, on_ready: Callable[[], None] | None) -> uvicorn.Server:
        if self._server is not None or self._socket.fileno() < 0:
            raise InputError("a server runs only once; make another IndexServer")
        import uvicorn

        from .server_app import make_app
        from .server_protocol import make_protocol

        listening = self._socket

        class Server(uvicorn.Server):
            async def startup(self, sockets: list[socket.socket] | None = None) -> None:
                await super().startup(sockets)
                listening.listen(_QUEUE)
                if on_ready is not None:
                    on_ready()

            @contextmanager
            def capture_signals(self) -> Iterator[None]:  # pyright: ignore[reportIncompatibleMethodOverride]
                # Being told to stop is how a server ends: the signal is not raised again when it has stopped.
                with _handling(self.handle_exit):
                    yield

        app = make_app(self._index, limits=self._limits, token=self._token, hosts=self._hosts)
        self._server = Server(
            uvicorn.Config(
                app,
                loop="asyncio",
                http=make_protocol(self._limits, _most_connections(self._limits)),
                backlog=_ACCEPTED_AT_ONCE,
                ws="none",
                lifespan="on",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                timeout_keep_alive=_IDLE_SECONDS,
                timeout_graceful_shutdown=_GRACE_SECONDS,
                h11_max_incomplete_event_size=_LONGEST_HEAD,
            )
        )
        return self._server


def _most_connections(limits: ServerLimits) -> int:
    try:
        import resource
    except ImportError:  # Windows, which has no such limit.
        return limits.connections
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return limits.connections if files == resource.RLIM_INFINITY else max(1, min(limits.connections, files // 2))


def require_server_packages() -> None:
    """Raise MissingDependencyError unless FastAPI and uvicorn are installed."""
    try:
        import fastapi
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise MissingDependencyError(
            f"serving an index needs {error.name or 'fastapi'}; install it with: pip install 'hopgate[serve]'"
        ) from error
    del fastapi


def _listen(host: str, port: int, *, has_token: bool) -> tuple[socket.socket, str, bool]:
    """A socket that listens, its address, and whether only this machine reaches it."""
    if isinstance(port, bool) or not isinstance(port, int) or not 0 <= port <= 65535:
        raise InputError(f"a port is a whole number from 0 to 65535, got {port!r:.80}")
    if not isinstance(host, str) or not host:
        raise InputError(f"a host must be an address or a name of this machine, got {host!r:.80}; try 127.0.0.1")
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, ValueError) as error:
        raise InputError(f"{host!r:.80} is no address or name of this machine ({error}); try 127.0.0.1") from error
    family, _, _, _, place = min(found, key=lambda one: one[0] != socket.AF_INET)
    address = str(place[0])
    is_local = ipaddress.ip_address(address.partition("%")[0]).is_loopback
    if not is_local and not has_token:
        raise InputError(
            f"{host} can be reached from other machines: set a token (--token-file FILE, or {TOKEN_VARIABLE}), or "
            "serve on 127.0.0.1"
        )
    # Named as TCP, since asyncio turns Nagle's algorithm off only where it knows that: else an answer takes 40 ms more.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        # The port of a server that has just ended can be taken again at once.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(place)
        listening.listen(_QUEUE)
    except OSError as error:
        listening.close()
        raise InputError(_why_not(error, host, port)) from error
    return listening, address, is_local


def _why_not(error: OSError, host: str, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} of {host} is in use; choose another, or 0 for any free one"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"{host} is no address of this machine; try 127.0.0.1"
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"port {port} may not be used by this user; choose one above 1023"
    return f"port {port} of {host} cannot be used: {error.strerror or error}"


@contextmanager
def _handling(handler: Callable[[int, Any], Any]) -> Iterator[None]:
    """Signals that end a process go to a handler instead; in other threads than the main one nothing changes."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
