"""Application: read-only endpoints, errors as problem+json, and the check of Host and Origin.

It is served on a loopback address only. A web page that resolves its own name to 127.0.0.1 sends that name as Host, and
a page of another origin sends its own as Origin: both are refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any
from urllib.parse import urlsplit

import msgspec
import structlog
from litestar import Litestar, Request, Response, get
from litestar.enums import ScopeType
from litestar.exceptions import HTTPException
from litestar.handlers import HTTPRouteHandler
from litestar.middleware import ASGIMiddleware
from litestar.openapi.config import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin
from litestar.params import Parameter
from litestar.types import ASGIApp, Receive, Scope, Send

from holdfast import __version__
from holdfast.api.documents import DocumentError, Documents
from holdfast.runtime.http import METRICS_TYPE, names_loopback

log = structlog.get_logger(__name__)

_PROBLEM = "application/problem+json"
_MOST_DECISIONS = 1_000
_TEXT = 256
"""Largest length of a name in a request."""

Name = Annotated[str, Parameter(min_length=1, max_length=_TEXT)]
Key = Annotated[str | None, Parameter(query="key", max_length=_TEXT, description="Only decisions about this object.")]
Last = Annotated[int, Parameter(query="last", ge=1, le=_MOST_DECISIONS, description="Number of decisions.")]


def create_app(documents: Documents) -> Litestar:
    return Litestar(
        [*_checks(documents), *_documents(documents)],
        middleware=[_SameMachine()],
        exception_handlers={DocumentError: _no_document, HTTPException: _refused, Exception: _failed},
        openapi_config=OpenAPIConfig(
            "Holdfast", __version__, path="/api/v1", render_plugins=[JsonRenderPlugin(path="/openapi.json")]
        ),
        logging_config=None,
        request_max_body_size=65_536,
    )


def _documents(documents: Documents) -> Sequence[HTTPRouteHandler]:
    @get("/api/v1/status", summary="Problems, leader and workers, as `holdfast status -o json` prints them")
    async def status() -> dict[str, Any]:
        return await documents.status()

    @get("/api/v1/servers", summary="Servers of the region, as `holdfast get servers -o json` prints them")
    async def servers() -> list[dict[str, Any]]:
        return await documents.servers()

    @get("/api/v1/explain/{kind:str}/{name:str}", summary="One object, as `holdfast explain KIND NAME -o json` does")
    async def explain(kind: Name, name: Name) -> dict[str, Any]:
        return await documents.explain(kind, name)

    @get("/api/v1/history", summary="The last decisions, as `holdfast history -o json` prints them")
    async def history(key: Key = None, last: Last = 50) -> list[dict[str, Any]]:
        return await documents.history(key, last)

    return [status, servers, explain, history]


def _checks(documents: Documents) -> Sequence[HTTPRouteHandler]:
    """Endpoints for load balancers and monitoring: 200 or 503."""

    async def leads() -> bool | None:
        """True if a server here leads; None if no server runs here."""
        servers = (await documents.status())["servers"]
        return any(server["phase"] == "leading" for server in servers) if servers else None

    @get("/healthz", summary="200 while the API answers", media_type="text/plain")
    async def healthz() -> str:
        return "ok\n"

    @get("/readyz", summary="200 if everything here is known to be healthy", media_type="text/plain")
    async def readyz() -> Response[str]:
        return _role((await documents.status())["exit_code"] == 0, "ready", "not ready: see /api/v1/status")

    @get("/leader", summary="200 if a server here leads", media_type="text/plain")
    async def leader() -> Response[str]:
        return _role(await leads() is True, "leader", "no server here leads")

    @get("/follower", summary="200 if a server runs here and none leads", media_type="text/plain")
    async def follower() -> Response[str]:
        return _role(await leads() is False, "follower", "no server here follows")

    @get("/metrics", summary="Metrics in Prometheus' format")
    async def metrics() -> Response[str]:
        return Response(await documents.metrics(), media_type=METRICS_TYPE)

    return [healthz, readyz, leader, follower, metrics]


def _role(holds: bool, yes: str, no: str) -> Response[str]:
    return Response(f"{yes if holds else no}\n", status_code=200 if holds else 503, media_type="text/plain")


class _SameMachine(ASGIMiddleware):
    scopes = (ScopeType.HTTP,)

    async def handle(self, scope: Scope, receive: Receive, send: Send, next_app: ASGIApp) -> None:
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        origin = headers.get(b"origin")
        is_ours = names_loopback(headers.get(b"host", "")) and (origin is None or _is_local_origin(origin))
        if not is_ours:
            raise HTTPException(
                status_code=403, detail="Host or Origin does not name this machine: use the address of the API"
            )
        await next_app(scope, receive, send)


def _is_local_origin(origin: str) -> bool:
    try:
        return names_loopback(urlsplit(origin).netloc)
    except ValueError:
        return False


def _problem(request: Request[Any, Any, Any], status: int, title: str, detail: str) -> Response[bytes]:
    body = {"title": title, "status": status, "detail": detail, "instance": request.url.path}
    return Response(msgspec.json.encode(body), status_code=status, media_type=_PROBLEM)


def _no_document(request: Request[Any, Any, Any], error: DocumentError) -> Response[bytes]:
    title = "not found" if error.status == 404 else "state unknown"
    return _problem(request, error.status, title, str(error))


def _refused(request: Request[Any, Any, Any], error: HTTPException) -> Response[bytes]:
    return _problem(request, error.status_code, "request refused", error.detail)


def _failed(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    log.error("request failed", path=request.url.path, exc_info=error)
    return _problem(request, 500, "internal error", "this is a bug: the log of the api worker has the details")
