"""The web application of an index server; importing it needs FastAPI, see :mod:`hopgate.index.server`."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Annotated, Any, TypeVar

from fastapi import FastAPI, Query, Request, Response, Security
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer
from starlette.exceptions import HTTPException

from ..core import HopgateError, InputError, Passage
from . import wire
from .guard import Guard
from .interface import PassageIndex, check_k, check_queries, check_query, checked_ids
from .limits import ServerLimits

T = TypeVar("T")

_log = logging.getLogger(__name__)

_LONGEST_DETAIL = 1000
_ABOUT = (
    "Searches an index of passages. `/api/search` speaks the protocol of the original ColBERT server, so that "
    "`dspy.ColBERTv2(url)` works; the other paths are for `hopgate.index.RemoteIndex` and for programs of your own."
)
_FAILURES: dict[int | str, dict[str, Any]] = {
    400: {"model": wire.Failure, "description": "The request is no JSON, or was sent to another name of this machine."},
    401: {"model": wire.Failure, "description": "The token is missing or wrong."},
    408: {"model": wire.Failure, "description": "The body took too long to arrive."},
    413: {"model": wire.Failure, "description": "The body is too large."},
    422: {
        "model": wire.Failure,
        "description": "A field is missing, of the wrong type, or beyond this server's limits.",
    },
    500: {"model": wire.Failure, "description": "The index is damaged or cannot be reached."},
    503: {"model": wire.Failure, "description": "Too many requests wait; try again after `Retry-After` seconds."},
}


class Busy(Exception):
    """More requests are waiting than the limits allow, or one has waited too long."""


class Workers:
    """Runs the index's work in threads, a limited number of calls at once.

    Args:
        limits: How many run, how many wait, and how long.
    """

    def __init__(self, limits: ServerLimits) -> None:
        self._limits = limits
        self._free = asyncio.Semaphore(limits.searches)
        self._waiting = 0
        self._pool = ThreadPoolExecutor(limits.searches, thread_name_prefix="hopgate-search")

    async def run(self, call: Callable[[], T]) -> T:
        """The result of a call.

        Raises:
            Busy: There was no thread for it in time.
        """
        if self._free.locked() and self._waiting >= self._limits.waiting:
            raise Busy
        self._waiting += 1
        try:
            async with asyncio.timeout(self._limits.patience):
                await self._free.acquire()
        except TimeoutError:
            raise Busy from None
        finally:
            self._waiting -= 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, call)
        finally:
            self._free.release()

    def close(self) -> None:
        """Drop the calls that have not begun."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def make_app(
    index: PassageIndex, *, limits: ServerLimits, token: str | None = None, hosts: frozenset[str] | None = None
) -> FastAPI:
    """An ASGI application that serves an index.

    Args:
        index: What to serve; it must be usable from several threads.
        limits: What a request may ask for.
        token: What requests, except for ``/healthz``, must carry as ``Authorization: Bearer ...``.
        hosts: Names that a request's ``Host`` header may have, in lower case; ``None`` for any.
    """
    workers = Workers(limits)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        workers.close()

    app = FastAPI(
        title="hopgate index",
        description=_ABOUT,
        version=version("hopgate"),
        # Those pages load scripts from elsewhere.
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
        dependencies=[Security(HTTPBearer(auto_error=False))] if token is not None else [],
        responses=_FAILURES,
        redirect_slashes=False,
    )
    app.router.route_class = _bounded_route(limits)
    _add_failures(app)
    _add_paths(app, index, limits, workers)
    app.add_middleware(
        Guard, token=token, hosts=hosts, max_body=limits.body, body_seconds=limits.body_seconds
    )  # Outermost but for the handler of unexpected errors.
    return app


def _add_paths(app: FastAPI, index: PassageIndex, limits: ServerLimits, workers: Workers) -> None:
    async def search(query: str, k: int, ids: list[str] | None) -> Response:
        check_query(query)
        check_k(k)
        limits.check_k(k)
        _check_ids(ids, limits)

        def work() -> bytes:
            return _encoded({"query": query, "topk": wire.topk(index.search(query, k, filter=ids))})

        return _json(await workers.run(work))

    @app.get("/api/search", response_model=wire.SearchAnswer, operation_id="search", summary="Search")
    async def get_search(
        query: Annotated[str, Query(description="A question or keywords, at most 10,000 characters.")],
        k: Annotated[int, Query(ge=1, description="How many passages; all if the index has fewer.")] = 10,
    ) -> Response:
        return await search(query, k, None)

    # `dspy.ColBERTv2` asks at the very address that it is given.
    @app.get("/", include_in_schema=False)
    async def get_root(query: str | None = None, k: Annotated[int, Query(ge=1)] = 10) -> Response:
        if query is None:
            raise HTTPException(404)
        return await search(query, k, None)

    @app.post("/", include_in_schema=False)
    @app.post("/api/search", response_model=wire.SearchAnswer, operation_id="search_post", summary="Search")
    async def post_search(request: wire.SearchRequest) -> Response:
        return await search(request.query, request.k, request.ids)

    @app.post("/search_many", response_model=wire.SearchManyAnswer, summary="Search for several queries")
    async def search_many(request: wire.SearchManyRequest) -> Response:
        check_queries(request.queries)
        limits.check_k(request.k, len(request.queries))
        _check_ids(request.ids, limits)

        def work() -> bytes:
            found = index.search_many(request.queries, request.k, filter=request.ids) if request.queries else []
            return _encoded({"results": [_records(passages) for passages in found]})

        return _json(await workers.run(work))

    @app.post("/rerank", response_model=wire.RerankAnswer, summary="Order passages by their score for a query")
    async def rerank(request: wire.RerankRequest) -> Response:
        check_query(request.query)
        return _json(await workers.run(lambda: _encoded({"results": _reranked(index, request)})))

    @app.post("/passages", response_model=wire.PassagesAnswer, summary="Look up passages by their ids")
    async def passages(request: wire.PassagesRequest) -> Response:
        limits.check_count(len(request.ids), "ids", limits.passages)
        checked_ids(request.ids)
        return _json(await workers.run(lambda: _encoded({"passages": _records(index.passages(request.ids))})))

    @app.get("/info", response_model=wire.InfoAnswer, summary="What the index holds, and the limits of this server")
    async def info() -> Response:
        def work() -> bytes:
            record = {name: value for name, value in index.info().items() if name != "path"}
            return _encoded({**record, "server": _server_record(limits)})

        return _json(await workers.run(work))

    @app.get("/healthz", response_model=wire.HealthAnswer, summary="Whether the server runs; needs no token")
    async def healthz() -> Response:
        return _json(_encoded({"status": "ok"}))

    def public(message: str) -> str:
        # Where the index lies on this machine is nobody's business.
        path = index.info().get("path")
        return message.replace(path, "the index") if isinstance(path, str) and path else message

    @app.exception_handler(InputError)
    async def refused(request: Request, error: Exception) -> Response:
        return _failure(422, public(str(error)))

    @app.exception_handler(HopgateError)
    async def broken(request: Request, error: Exception) -> Response:
        _log.error("%s: %s", request.url.path, error)
        try:
            message = public(str(error))
        except HopgateError:
            message = "the index cannot be read"
        return _failure(500, message)


def _add_failures(app: FastAPI) -> None:
    @app.exception_handler(Busy)
    async def busy(request: Request, error: Exception) -> Response:
        return _failure(503, "too many searches are going on; try again in a second", {"retry-after": "1"})

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: Exception) -> Response:
        faults = error.errors() if isinstance(error, RequestValidationError) else []
        texts = [f"{'.'.join(str(part) for part in fault['loc'])}: {fault['msg']}" for fault in faults[:5]]
        return _failure(422, "; ".join(texts) + (f"; and {len(faults) - 5:,} more faults" if len(faults) > 5 else ""))

    @app.exception_handler(HTTPException)
    async def other(request: Request, error: Exception) -> Response:
        status = getattr(error, "status_code", 500)
        known = {
            404: "there is no such path; /openapi.json lists those that there are",
            405: f"the method {request.method} is not for this path; see /openapi.json",
            400: "the body is not JSON that can be read: not UTF-8, nested too deeply, or a number is too long",
        }
        headers: Any = getattr(error, "headers", None)
        return _failure(status, known.get(status, str(getattr(error, "detail", error))), headers)

    @app.exception_handler(Exception)
    async def unexpected(request: Request, error: Exception) -> Response:
        # Starlette raises it again when this has been sent, and uvicorn logs it.
        return _failure(500, "an error in the server; its log says more")


def _bounded_route(limits: ServerLimits) -> type[APIRoute]:
    """The class of routes that count the items of lists in a body before each of them is looked at."""
    most = {"queries": limits.queries, "passages": limits.passages, "ids": max(limits.ids, limits.passages)}

    class Bounded(Request):
        async def json(self) -> Any:
            value = await super().json()
            for name, count in most.items() if isinstance(value, dict) else ():
                if isinstance(items := value.get(name), list):
                    try:
                        limits.check_count(len(items), name, count)
                    except InputError as error:
                        # The one kind of error that FastAPI lets out of here.
                        raise HTTPException(422, str(error)) from error
            return value

    class Route(APIRoute):
        def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            handle = super().get_route_handler()

            async def bounded(request: Request) -> Response:
                return await handle(Bounded(request.scope, request.receive))

            return bounded

    return Route


def _check_ids(ids: list[str] | None, limits: ServerLimits) -> None:
    if ids is not None:
        limits.check_count(len(ids), "ids", limits.ids)


def _reranked(index: PassageIndex, request: wire.RerankRequest) -> list[dict[str, Any]]:
    given = [passage.to_passage() for passage in request.passages]
    # Passages may be given twice, so that neither ids nor equality tell them apart; their order of scores does.
    places: dict[str, list[int]] = {}
    for place, passage in enumerate(given):
        places.setdefault(_identity(passage), []).append(place)
    ranked = index.rerank(request.query, given) if given else []
    return [{"index": places[_identity(passage)].pop(0), "score": passage.score} for passage in ranked]


def _identity(passage: Passage) -> str:
    return json.dumps(passage.with_score(None).to_dict(), sort_keys=True)


def _records(passages: Sequence[Passage]) -> list[dict[str, Any]]:
    return [passage.to_dict() for passage in passages]


def _server_record(limits: ServerLimits) -> dict[str, int]:
    return {
        "version": wire.WIRE_VERSION,
        "max_k": limits.k,
        "max_queries": limits.queries,
        "max_results": limits.results,
        "max_passages": limits.passages,
        "max_body": limits.body,
    }


def _encoded(record: dict[str, Any]) -> bytes:
    text = json.dumps(record, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    try:
        return text.encode()
    except UnicodeEncodeError:
        # Metadata may hold half of a surrogate pair, which JSON can only express in ASCII.
        return json.dumps(record, allow_nan=False, separators=(",", ":")).encode()


def _json(body: bytes) -> Response:
    return Response(body, media_type="application/json")


def _failure(status: int, detail: str, headers: dict[str, str] | None = None) -> Response:
    # In ASCII, since a detail may quote what cannot be written as UTF-8.
    shown = detail if len(detail) <= _LONGEST_DETAIL else f"{detail[:_LONGEST_DETAIL]}..."
    return Response(json.dumps({"detail": shown}), status, headers, "application/json")
