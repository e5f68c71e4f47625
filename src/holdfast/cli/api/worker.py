"""Worker `api`: serves the API and the dashboard over HTTP on a loopback address, or over TLS on any."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import structlog

from holdfast.api.stream.feed import EventFeed
from holdfast.api.tokens import FILE, TokenFile
from holdfast.cli.api.certificate import ApiCertificate, certificate_of
from holdfast.cli.api.documents import CommandDocuments
from holdfast.lab.fleet import layout
from holdfast.model.base.region import Region
from holdfast.model.base.time import Duration
from holdfast.runtime.config_file import SecretRefused
from holdfast.runtime.daemon.worker import Worker
from holdfast.runtime.followed_files import why
from holdfast.runtime.store_client import open_store
from holdfast.store.api import Store

log = structlog.get_logger(__name__)
_TICK = Duration(seconds=1)
_RETRY = Duration(seconds=5)


async def run(worker: Worker) -> None:
    """Serve until the worker stops."""
    opened = await _opened(worker)
    if opened is None:
        return
    listening, certificate = opened
    async with _documents(worker) as (documents, following):
        feed = EventFeed(documents)
        server = await asyncio.to_thread(_server, worker, documents, feed, certificate)
        await _serve(worker, listening, certificate, server, feed, following)


async def _serve(
    worker: Worker,
    listening: socket.socket,
    certificate: ApiCertificate | None,
    server: Any,
    feed: EventFeed,
    following: asyncio.Future[None] | None,
) -> None:
    """Serve until the worker stops. Raises what ended the view of the fleet: a new worker begins it anew."""
    with listening:
        serving = asyncio.create_task(server.serve(sockets=[listening]), name="http")
        scheme = "http" if certificate is None else "https"
        log.info("serving the dashboard and the API", url=f"{scheme}://{_shown(listening)}/")
        while not await worker.stopped(_TICK):
            if serving.done() or (following is not None and following.done()):
                break
            if certificate is not None:
                certificate.look()
            worker.vitals.attempted(success=True)
        feed.stop()
        server.should_exit = True
        await serving
    if following is not None and following.done():
        following.result()


@contextlib.asynccontextmanager
async def _documents(worker: Worker) -> AsyncIterator[tuple[CommandDocuments, asyncio.Task[None] | None]]:
    """Yield the documents, and the task that follows the store meanwhile."""
    store = await _store(worker)
    documents = CommandDocuments(worker.paths, store, Region(worker.config.store.region or ""))
    following = None if documents.view is None else asyncio.create_task(documents.view.run(), name="fleet")
    try:
        yield documents, following
    finally:
        if following is not None:
            following.cancel()
            await asyncio.wait({following})
        if store is not None:
            await store.close()


async def _store(worker: Worker) -> Store | None:
    """Return the store that the daemons here use; None for a balancer that serves from a file alone."""
    config = worker.config.store
    if worker.role == "balancer" and worker.config.balancer.source == "file":
        return None
    if worker.role == "lab":  # its etcd chooses a port at its first start
        while (url := layout.endpoint(worker.paths.state)) is None:
            if await worker.stopped(_TICK):
                return None
        config = msgspec.structs.replace(config, endpoints=(url,))
    try:
        store = open_store(config)
    except SecretRefused as refused:
        log.error("the store cannot be opened; the fleet is not shown", why=str(refused), fix="store")
        return None
    worker.metrics.follow(store.contact, worker.clock.now)
    return store


async def _opened(worker: Worker) -> tuple[socket.socket, ApiCertificate | None] | None:
    """Return the listening socket and the certificate; None if the worker must stop before both can be used."""
    http = worker.config.http
    listens_on = http.api_listens_on()
    assert listens_on is not None, "the worker runs only with http.api"
    host, port = listens_on
    while True:
        waits_for = f"{host}:{port}"
        try:
            listening = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
        except OSError as error:
            log.warning("the API is not served; retrying", address=waits_for, why=why(error), fix="http.api")
        else:
            try:
                return listening, certificate_of(http)
            except (OSError, SecretRefused) as error:
                listening.close()
                waits_for = f"{http.cert_file} and {http.key_file}"
                log.warning("the API is not served; retrying", files=waits_for, why=why(error), fix="http.cert_file")
        worker.vitals.attempted(success=False, state=f"waiting for {waits_for}")
        if await worker.stopped(_RETRY):
            return None


def _shown(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _server(worker: Worker, documents: CommandDocuments, feed: EventFeed, certificate: ApiCertificate | None) -> Any:
    """Import the web framework, which only hosts with the extra `api` have, and build the server."""
    from holdfast.api.access import ApiAccess
    from holdfast.api.app import create_app
    from holdfast.api.sessions import Sessions
    from holdfast.cli.api.http_server import http_server

    access = ApiAccess(worker.config.http.is_api_remote, has_tls=certificate is not None)
    sessions = Sessions(TokenFile(worker.paths.state / FILE))
    return http_server(create_app(documents, feed, sessions, access), certificate)
