"""Application: all endpoints, and errors as problem+json. `access` decides who may ask."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from typing import Annotated, Any

from litestar import Litestar, Response, get
from litestar.exceptions import HTTPException
from litestar.handlers import HTTPRouteHandler
from litestar.params import Parameter
from litestar.response import Stream

from holdfast.api import examples
from holdfast.api.access import ON_LOOPBACK, ApiAccess, SameMachine, TokenRequired
from holdfast.api.changes import CLOSED_BODIES, change_handlers
from holdfast.api.documents import DocumentError, Documents
from holdfast.api.openapi import answers, close_bodies, document_config, example, roles
from holdfast.api.page import page_handlers
from holdfast.api.problems import failed, no_document, no_tokens, refused
from holdfast.api.sessions import AnyRequest, Sessions
from holdfast.api.stream.feed import EventFeed
from holdfast.api.tokens import TokensUnreadable
from holdfast.runtime.http import METRICS_TYPE

_MOST_DECISIONS = 1_000
_TEXT = 256
"""Largest length of a name in a request."""

Name = Annotated[str, Parameter(min_length=1, max_length=_TEXT, examples=example("r12-07"))]
Kind = Annotated[str, Parameter(min_length=1, max_length=_TEXT, examples=example("host"))]
Key = Annotated[str | None, Parameter(max_length=_TEXT, description="Only decisions about this object.")]
After = Annotated[str, Parameter(max_length=64, description="Id of the last message, as Last-Event-ID.")]
Last = Annotated[int, Parameter(ge=1, le=_MOST_DECISIONS, description="Number of decisions.")]


def create_app(documents: Documents, feed: EventFeed, sessions: Sessions, access: ApiAccess = ON_LOOPBACK) -> Litestar:
    is_allowed = sessions.is_known if access.is_remote else _anybody
    app = Litestar(
        [
            *_checks(documents),
            *_documents(documents),
            *_fleet(documents),
            _stream(feed, is_allowed),
            *change_handlers(documents, sessions, has_tls=access.has_tls),
            *page_handlers(),
        ],
        middleware=[TokenRequired(sessions) if access.is_remote else SameMachine()],
        exception_handlers={
            DocumentError: no_document,
            TokensUnreadable: no_tokens,
            HTTPException: refused,
            Exception: failed,
        },
        openapi_config=document_config(),
        logging_config=None,
        request_max_body_size=65_536,
    )
    close_bodies(app.openapi_schema, CLOSED_BODIES)
    return app


def _documents(documents: Documents) -> Sequence[HTTPRouteHandler]:
    @get(
        "/api/v1/status",
        summary="Problems, leader and workers, as `holdfast status -o json` prints them",
        responses=answers(dict[str, Any], examples.STATUS, 503),
    )
    async def status() -> dict[str, Any]:
        return await documents.status()

    @get(
        "/api/v1/servers",
        summary="Servers of the region, as `holdfast get servers -o json` prints them",
        responses=answers(list[dict[str, Any]], examples.SERVERS, 404, 503),
    )
    async def servers() -> list[dict[str, Any]]:
        return await documents.servers()

    @get(
        "/api/v1/explain/{kind:str}/{name:str}",
        summary="One object, as `holdfast explain KIND NAME -o json` does",
        responses=answers(dict[str, Any], examples.EXPLAINED, 400, 404, 503),
    )
    async def explain(kind: Kind, name: Name) -> dict[str, Any]:
        return await documents.explain(kind, name)

    @get(
        "/api/v1/history",
        summary="The last decisions, as `holdfast history -o json` prints them",
        responses=answers(list[dict[str, Any]], examples.DECISIONS, 400, 404, 503),
    )
    async def history(key: Key = None, last: Last = 50) -> list[dict[str, Any]]:
        return await documents.history(key, last)

    return [status, servers, explain, history]


def _fleet(documents: Documents) -> Sequence[HTTPRouteHandler]:
    @get(
        "/api/v1/hosts",
        summary="Hosts as a grid: names, one letter per host, reasons of those not at head",
        responses=answers(dict[str, Any], examples.HOSTS, 503),
    )
    async def hosts() -> dict[str, Any]:
        return await documents.hosts()

    @get(
        "/api/v1/fleet",
        summary="Servers, terms, balancers, intents, totals and closed gates of agents",
        responses=answers(dict[str, Any], examples.FLEET, 503),
    )
    async def fleet() -> dict[str, Any]:
        return await documents.fleet()

    @get(
        "/api/v1/frontends",
        summary="Frontends with pools, weights, traffic and probe latencies",
        responses=answers(dict[str, Any], examples.FRONTENDS),
    )
    async def frontends() -> dict[str, Any]:
        return await documents.frontends()

    @get(
        "/api/v1/frontends/{name:str}/table",
        summary="Bucket table of a frontend, in base64",
        responses=answers(dict[str, Any], examples.TABLE, 400, 404),
    )
    async def bucket_table(name: Name) -> dict[str, Any]:
        return await documents.table(name)

    @get(
        "/api/v1/gates",
        summary="Closed gates, each with its reason and what opens it",
        responses=answers(list[dict[str, Any]], examples.GATES, 503),
    )
    async def gates() -> list[dict[str, Any]]:
        return await documents.gates()

    return [hosts, fleet, frontends, bucket_table, gates]


def _stream(feed: EventFeed, is_allowed: Callable[[AnyRequest], bool]) -> HTTPRouteHandler:
    @get(
        "/api/v1/stream",
        summary="Server-sent events; Last-Event-ID replays what was missed",
        responses=answers(str, examples.STREAMED, 400, 503, media_type="text/event-stream"),
    )
    async def stream(request: AnyRequest, after: After = "") -> Stream:
        feed.admit()
        last_id = request.headers.get("last-event-id", after)[:64]
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        messages = _until_revoked(feed.messages(last_id), lambda: is_allowed(request))
        return Stream(messages, media_type="text/event-stream", headers=headers)

    return stream


async def _until_revoked(messages: AsyncGenerator[bytes, None], is_allowed: Callable[[], bool]) -> AsyncIterator[bytes]:
    """Yield the messages, of which one comes every second, for as long as the caller's token is known."""
    async with contextlib.aclosing(messages):
        async for message in messages:
            if not is_allowed():
                return
            yield message


def _anybody(_request: AnyRequest) -> bool:
    return True


def _checks(documents: Documents) -> Sequence[HTTPRouteHandler]:
    """Endpoints for load balancers and monitoring: 200 or 503."""

    async def leads() -> bool | None:
        """True if a server here leads; None if no server runs here."""
        servers = (await documents.status())["servers"]
        return any(server["phase"] == "leading" for server in servers) if servers else None

    @get(
        "/healthz",
        summary="200 while the API answers",
        responses=answers(str, "ok\n", media_type="text/plain"),
        media_type="text/plain",
    )
    async def healthz() -> str:
        return "ok\n"

    @get(
        "/readyz",
        summary="200 if everything here is known to be healthy",
        responses=roles("ready", "not ready: see /api/v1/status"),
        media_type="text/plain",
    )
    async def readyz() -> Response[str]:
        return _role((await documents.status())["exit_code"] == 0, "ready", "not ready: see /api/v1/status")

    @get(
        "/leader",
        summary="200 if a server here leads",
        responses=roles("leader", "no server here leads"),
        media_type="text/plain",
    )
    async def leader() -> Response[str]:
        return _role(await leads() is True, "leader", "no server here leads")

    @get(
        "/follower",
        summary="200 if a server runs here and none leads",
        responses=roles("follower", "no server here follows"),
        media_type="text/plain",
    )
    async def follower() -> Response[str]:
        return _role(await leads() is False, "follower", "no server here follows")

    @get(
        "/metrics",
        summary="Metrics in Prometheus' format",
        responses=answers(str, "holdfast_leader 1\n", 503, media_type=METRICS_TYPE),
    )
    async def metrics() -> Response[str]:
        return Response(await documents.metrics(), media_type=METRICS_TYPE)

    return [healthz, readyz, leader, follower, metrics]


def _role(holds: bool, yes: str, no: str) -> Response[str]:
    return Response(f"{yes if holds else no}\n", status_code=200 if holds else 503, media_type="text/plain")
