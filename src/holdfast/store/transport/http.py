"""HTTP/1.1 to one endpoint, on asyncio and h11: one request at a time per connection, connections reused.

The caller must know whether a request can have had an effect, so there are two failures: `NotSent` (certainly none) and
`ConnectionLost` (the request was sent). Deadlines are the caller's: a cancelled request closes its connection, so that
a late answer is never taken for the answer to the next request.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar
from urllib.parse import urlsplit

import h11

ProtocolT = TypeVar("ProtocolT", bound=asyncio.BaseProtocol)

USER_TIMEOUT_MS = 10_000
MAX_IDLE = 8
MAX_CONNECTIONS = 64
"""Concurrent connections to one endpoint; further calls wait, within their deadline."""
LARGEST_ANSWER = 256 << 20
"""Bytes of one answer: many times a page of a list."""
_KEEPALIVE = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 3),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, USER_TIMEOUT_MS),
)


class NotSent(Exception):
    """The request did not leave this process; `__cause__` has the reason."""


class ConnectionLost(Exception):
    """The connection broke after the request was sent, before the answer was complete."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A complete answer."""

    status: int
    body: bytes
    date: bytes = b""
    """The Date header: the server's clock; empty if there was none."""


@dataclass(frozen=True, slots=True)
class MemberAddress:
    """Address of a member, from a URL such as https://etcd-1:2379."""

    url: str
    host: str
    port: int
    tls: bool

    @classmethod
    def parse(cls, url: str) -> MemberAddress:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url!r} is not an endpoint: write http://HOST:PORT or https://HOST:PORT")
        if parts.path not in ("", "/") or parts.query or parts.username:
            raise ValueError(
                f"{url!r} is not an endpoint: nothing may follow the port, and a user is set by store.user"
            )
        return cls(url.rstrip("/"), parts.hostname, parts.port or 2379, parts.scheme == "https")

    @property
    def authority(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


async def connect(endpoint: MemberAddress, tls: ssl.SSLContext | None, protocol: ProtocolT) -> ProtocolT:
    """Connect the protocol. Raises `NotSent`. TCP notices a dead peer within `USER_TIMEOUT_MS` of a send."""
    loop = asyncio.get_running_loop()
    context = tls if endpoint.tls else None
    name = endpoint.host if context is not None else None
    try:
        transport, _ = await loop.create_connection(
            lambda: protocol, endpoint.host, endpoint.port, ssl=context, server_hostname=name
        )
    except (OSError, ssl.SSLError) as error:
        raise NotSent(str(error)) from error
    sock: socket.socket = transport.get_extra_info("socket")
    for level, option, value in _KEEPALIVE:
        sock.setsockopt(level, option, value)
    return protocol


def abort_soon(transport: asyncio.Transport) -> None:
    """Abort the connection in the loop's next turn: while asyncio delivers the last bytes of a TLS connection it raises
    when a protocol aborts it, and an error in the loop ends the process."""
    asyncio.get_running_loop().call_soon(transport.abort)


class HttpConnection(asyncio.Protocol):
    """One connection; `request` may be called again once it has returned."""

    def __init__(self, endpoint: MemberAddress) -> None:
        self._endpoint = endpoint
        self._http = h11.Connection(h11.CLIENT)
        self._transport: asyncio.Transport | None = None
        self._reply: asyncio.Future[Reply] | None = None
        self._status = 0
        self._date = b""
        self._body: list[bytes | bytearray] = []
        self._size = 0
        self._begun = False
        self._closed = False

    @property
    def usable(self) -> bool:
        return (
            self._transport is not None
            and not self._closed
            and not self._transport.is_closing()
            and self._http.our_state is h11.IDLE
            and self._http.their_state is h11.IDLE
        )

    async def request(self, method: str, path: str, body: bytes = b"", token: str = "") -> Reply:
        """Send one request and return its complete answer. Raises `NotSent` or `ConnectionLost`."""
        if not self.usable or self._transport is None:
            raise NotSent("the connection was closed")
        headers = [("Host", self._endpoint.authority), ("Content-Length", str(len(body)))]
        if token:
            headers.append(("Authorization", token))
        head = self._http.send(h11.Request(method=method, target=path, headers=headers)) or b""
        payload = self._http.send(h11.Data(data=body)) or b"" if body else b""
        tail = self._http.send(h11.EndOfMessage()) or b""
        self._body, self._size, self._begun = [], 0, False
        reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._reply = reply
        self._transport.write(b"".join((head, payload, tail)))
        try:
            return await reply
        except asyncio.CancelledError:
            self.close()
            raise

    def close(self) -> None:
        self._closed = True
        if self._transport is not None:
            abort_soon(self._transport)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if not self._begun and not data.startswith(b"HTTP/"[: len(data)]):
            self._fail(f"the answer is not HTTP, it begins with {data[:12]!r}")
            return
        self._begun = True
        try:
            self._http.receive_data(data)
            self._take_events()
        except h11.RemoteProtocolError as error:
            self._fail(f"the answer is not HTTP ({error})")

    def eof_received(self) -> None:
        self._fail("the server closed the connection")

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(str(exc) if exc else "the server closed the connection", exc)

    def _take_events(self) -> None:
        while True:
            event = self._http.next_event()
            if event is h11.NEED_DATA or event is h11.PAUSED:
                return
            if isinstance(event, h11.Response):
                self._status = event.status_code
                self._date = next((value for name, value in event.headers if name == b"date"), b"")
            elif isinstance(event, h11.Data):
                self._body.append(event.data)
                self._size += len(event.data)
                if self._size > LARGEST_ANSWER:  # protection: an answer without end would take all memory
                    self._body = []
                    self._fail(f"the answer is longer than {LARGEST_ANSWER:,} bytes")
                    return
            elif isinstance(event, h11.EndOfMessage):
                self._finish()
                return
            elif isinstance(event, h11.ConnectionClosed):
                self._fail("the server closed the connection")
                return

    def _finish(self) -> None:
        body, self._body = b"".join(self._body), []
        reply, self._reply = self._reply, None
        if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
        else:
            self.close()
        if reply is not None and not reply.done():
            reply.set_result(Reply(self._status, body, self._date))

    def _fail(self, why: str, cause: Exception | None = None) -> None:
        reply, self._reply = self._reply, None
        if reply is not None and not reply.done():
            lost = ConnectionLost(why)
            lost.__cause__ = cause
            reply.set_exception(lost)
        self.close()


@dataclass(slots=True)
class ConnectionPool:
    """Connections to one endpoint, kept for reuse."""

    endpoint: MemberAddress
    tls: Callable[[], ssl.SSLContext | None]
    _free: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_CONNECTIONS))
    _idle: list[HttpConnection] = field(default_factory=list)
    _busy: dict[HttpConnection, None] = field(default_factory=dict)
    """In order: what is closed first must not depend on addresses in memory."""

    async def take(self) -> tuple[HttpConnection, bool]:
        """Return an idle or new connection, and True if it is new; give it back afterwards. Raises `NotSent`."""
        await self._free.acquire()
        connection = self._kept()
        fresh = connection is None
        try:
            connection = connection or await connect(self.endpoint, self.tls(), HttpConnection(self.endpoint))
        except BaseException:
            self._free.release()
            raise
        self._busy[connection] = None
        return connection, fresh

    def give_back(self, connection: HttpConnection) -> None:
        self._busy.pop(connection, None)
        self._free.release()
        if connection.usable and len(self._idle) < MAX_IDLE:
            self._idle.append(connection)
        else:
            connection.close()

    def _kept(self) -> HttpConnection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.usable:
                return connection
            connection.close()
        return None

    def close(self) -> None:
        """Close every connection; pending requests end with `ConnectionLost`."""
        for connection in (*self._idle, *self._busy):
            connection.close()
        self._idle.clear()
