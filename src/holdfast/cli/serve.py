"""Worker `api`: serves the documents of the commands over HTTP, on a loopback address.

The documents are those of `holdfast status`, `get servers`, `explain` and `history`: the worker calls the functions of
these commands, in threads, and asks the daemons of its runtime folder through their control sockets.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec
import structlog

from holdfast.api.documents import DocumentError, UnknownState
from holdfast.cli.common.control_socket import CannotTell
from holdfast.cli.explain.command import KINDS, query
from holdfast.cli.get import read_servers_here
from holdfast.cli.history import decisions
from holdfast.cli.status.page import document
from holdfast.cli.status.view import read_status
from holdfast.model.base.time import Duration
from holdfast.runtime.control import Request, ask
from holdfast.runtime.daemon.worker import Worker
from holdfast.runtime.paths import RolePaths

log = structlog.get_logger(__name__)
T = TypeVar("T")

_FRESH_S = 0.5
"""Clients within this time share one status."""
_CONNECTIONS = 64
_TICK = Duration(seconds=1)
_RETRY = Duration(seconds=5)


class CommandDocuments:
    """The documents that the commands print."""

    def __init__(self, paths: RolePaths) -> None:
        self._paths = paths
        self._reading = asyncio.Lock()
        self._status: tuple[float, dict[str, Any]] | None = None

    async def status(self) -> dict[str, Any]:
        async with self._reading:
            now = asyncio.get_running_loop().time()
            if self._status is None or now - self._status[0] > _FRESH_S:
                with _as_document_errors():
                    found = document(await read_status(self._paths.runtime))
                self._status = asyncio.get_running_loop().time(), found
            return self._status[1]

    async def servers(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = msgspec.to_builtins(await self._called(read_servers_here))
        return found

    async def explain(self, kind: str, name: str) -> dict[str, Any]:
        if kind not in KINDS or kind == "flow":
            raise DocumentError(f"there is no kind {kind!r}; there are: {', '.join(k for k in KINDS if k != 'flow')}")
        return await self._called(lambda runtime: query(kind, name, None, None, runtime))

    async def history(self, key: str | None, last: int) -> list[dict[str, Any]]:
        found = await self._called(lambda runtime: decisions(runtime, [key], last, {}))
        return [one.document for one in found[-last:]]

    async def metrics(self) -> str:
        answer = await ask(self._paths.socket(), Request("metrics"))
        if answer.error:
            raise UnknownState(answer.error)
        return str(answer.result)

    async def _called(self, function: Callable[[Path], T]) -> T:
        """Call a function of a command in a thread: it waits for the daemons."""
        with _as_document_errors():
            return await asyncio.to_thread(function, self._paths.runtime)


@contextlib.contextmanager
def _as_document_errors() -> Iterator[None]:
    try:
        yield
    except CannotTell as error:
        raise UnknownState(error.message) from error
    except click.ClickException as error:
        raise DocumentError(error.message) from error


async def run(worker: Worker) -> None:
    """Serve until the worker stops."""
    listens_on = worker.config.http.api_listens_on()
    assert listens_on is not None, "the worker runs only with http.api"
    listening = await _opened(worker, *listens_on)
    if listening is None:
        return
    server = await asyncio.to_thread(_server, CommandDocuments(worker.paths))
    with listening:
        serving = asyncio.create_task(server.serve(sockets=[listening]), name="http")
        log.info("serving the API", url=f"http://{_shown(listening)}/api/v1")
        while not await worker.stopped(_TICK):
            if serving.done():
                break
            worker.vitals.attempted(success=True)
        server.should_exit = True
        server.force_exit = True
        await serving


async def _opened(worker: Worker, host: str, port: int) -> socket.socket | None:
    """Return the listening socket; None if the worker must stop while the address is taken."""
    while True:
        try:
            return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
        except OSError as error:
            why = error.strerror or str(error)
            log.warning("the API is not served; retrying", address=f"{host}:{port}", why=why, fix="http.api")
            worker.vitals.attempted(success=False, state=f"waiting for {host}:{port}")
        if await worker.stopped(_RETRY):
            return None


def _shown(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _server(documents: CommandDocuments) -> Any:
    """Import the web framework, which only hosts with the extra `api` have, and build the server."""
    import uvicorn

    from holdfast.api.app import create_app

    class _Server(uvicorn.Server):
        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            """Leave the signals to the worker."""
            yield

    return _Server(
        uvicorn.Config(
            create_app(documents),
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=_CONNECTIONS,
            timeout_keep_alive=5,
            h11_max_incomplete_event_size=16_384,
        )
    )
