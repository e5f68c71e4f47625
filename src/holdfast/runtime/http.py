"""HTTP of a daemon: serves a few texts such as `/metrics`, on asyncio and h11, without a web framework.

A request has a bounded size and a bounded time, and connections are bounded in number, so that no client holds up the
supervisor. On a loopback address the Host header must name this machine: a web page that resolves its own name to
127.0.0.1 cannot read the metrics. An address that cannot be opened is tried again, and the daemon runs meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from ipaddress import ip_address
from pathlib import Path

import h11
import structlog

from holdfast.runtime.paths import write_atomically

log = structlog.get_logger(__name__)

Text = Callable[[], Awaitable[str]]
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_WITHIN = 10.0
_RETRY = 5.0
_CLIENTS = 16
_LARGEST = 16_384


class HttpServer:
    """Serves the given paths with GET and HEAD. Writes the address in use to `file`, for port 0 and for commands."""

    def __init__(self, listens_on: tuple[str, int] | None, texts: Mapping[str, Text], file: Path) -> None:
        self._listens_on = listens_on
        self._texts = texts
        self._file = file
        self._server: asyncio.Server | None = None
        self._opening: asyncio.Task[None] | None = None
        self._clients: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> HttpServer:
        self._file.unlink(missing_ok=True)
        if self._listens_on is not None and not await self._opened(*self._listens_on):
            self._opening = asyncio.create_task(self._open_later(*self._listens_on), name="http")
        return self

    async def __aexit__(self, *_exc: object) -> None:
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait({self._opening})
        if self._server is not None:
            self._server.close()
        for client in self._clients:
            client.cancel()
        if self._clients:
            await asyncio.wait(self._clients)
        self._file.unlink(missing_ok=True)

    async def _opened(self, host: str, port: int) -> bool:
        """Listen; False if the address cannot be opened now."""
        try:
            self._server = await asyncio.start_server(self._accept, host, port)
        except OSError as error:
            if self._opening is None:
                why = error.strerror or str(error)
                log.warning("metrics are not served; retrying", address=f"{host}:{port}", why=why, fix="http.address")
            return False
        used = self._server.sockets[0].getsockname()[1]
        shown = f"[{host}]:{used}" if ":" in host else f"{host}:{used}"
        write_atomically(self._file, shown.encode(), 0o640, sync=False)
        log.info("serving metrics", url=f"http://{shown}/metrics")
        return True

    async def _open_later(self, host: str, port: int) -> None:
        while True:
            await asyncio.sleep(_RETRY)
            if await self._opened(host, port):
                return

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._clients.add(task)
        try:
            if len(self._clients) <= _CLIENTS:
                async with asyncio.timeout(_WITHIN):
                    await self._answer_one(reader, writer)
        except (ConnectionError, TimeoutError):
            log.debug("http client sent no request in time, or disconnected")
        except asyncio.CancelledError:
            # asyncio reports a cancelled connection as a failed task.
            log.debug("http connection closed by the stop of the process")
        finally:
            self._clients.discard(task)
            writer.close()

    async def _answer_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Read one request, answer it, and close the connection."""
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=_LARGEST)
        status, body, kind, with_body = 400, "invalid request\n", "text/plain; charset=utf-8", True
        with contextlib.suppress(h11.RemoteProtocolError):
            request = await _request(connection, reader)
            if request is None:
                return
            with_body = request.method != b"HEAD"
            status, body, kind = await self._answer(request)
        content = body.encode()
        headers = [("Content-Type", kind), ("Content-Length", str(len(content))), ("Connection", "close")]
        if connection.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            head = h11.Response(status_code=status, headers=headers)
            parts = [head, *([h11.Data(data=content)] if with_body else []), h11.EndOfMessage()]
            writer.write(b"".join(connection.send(part) or b"" for part in parts))
            await writer.drain()

    async def _answer(self, request: h11.Request) -> tuple[int, str, str]:
        plain = "text/plain; charset=utf-8"
        path = request.target.decode("ascii", "replace").partition("?")[0]
        if not self._names_us(request):
            return (
                403,
                "the Host header does not name this machine: use the address that the daemon listens on\n",
                plain,
            )
        if path not in self._texts:
            return 404, f"not found; there is: {', '.join(self._texts)}\n", plain
        if request.method not in (b"GET", b"HEAD"):
            return 405, "only GET and HEAD\n", plain
        return 200, await self._texts[path](), METRICS_TYPE

    def _names_us(self, request: h11.Request) -> bool:
        """False on a loopback address if the Host header has another name: a rebound name of a web page."""
        assert self._listens_on is not None
        if not ip_address(self._listens_on[0]).is_loopback:
            return True
        given = next((value for name, value in request.headers if name == b"host"), b"").decode("ascii", "replace")
        return names_loopback(given)


def names_loopback(given: str) -> bool:
    """True if a Host header, with or without a port, names this machine itself."""
    host = given.rpartition(":")[0] if given.rpartition(":")[2].isdecimal() else given
    try:
        return host == "localhost" or ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


async def _request(connection: h11.Connection, reader: asyncio.StreamReader) -> h11.Request | None:
    """Return the request; None if the client closed the connection before it."""
    while True:
        event = connection.next_event()
        if isinstance(event, h11.Request):
            return event
        if event is not h11.NEED_DATA:
            return None
        connection.receive_data(await reader.read(_LARGEST))
