"""One open watch stream: a request whose answer never ends, read in batches.

An idle stream delivers an event the moment it arrives. Under load it does not read the socket for `gather` after each
read, so that the kernel collects what arrives meanwhile and dozens of events share the cost of one wake-up. A reader
that does not keep up stops the reading and never fills the memory.
"""

from __future__ import annotations

import asyncio

import h11

from holdfast.model.base.time import Duration
from holdfast.store.api import GATHER
from holdfast.store.transport.http import ConnectionLost, MemberAddress, abort_soon
from holdfast.store.watch.chunks import ChunkedLines

BUFFER = 256 << 10
FULL_READ = 64 << 10
"""Bytes. After a read of this size more is there or arrives at once: pausing would stall the sender."""
MOST_BUFFERED = 8 << 20
LARGEST_ERROR = 64 << 10
"""Bytes of a refusal; the rest is dropped."""


class WatchRejected(Exception):
    """The member answered the watch request with something other than a stream."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(f"HTTP {status}")
        self.status = status
        self.body = body


class WatchStream(asyncio.BufferedProtocol):
    """A watch request and the lines of its reply."""

    def __init__(self, endpoint: MemberAddress, path: str, body: bytes, token: str, gather: Duration = GATHER) -> None:
        # C72: without "close", a server in Go drops what it has not read of the body when it begins to answer, and
        # with it the later watches of the request.
        headers = [("Host", endpoint.authority), ("Content-Length", str(len(body))), ("Connection", "close")]
        if token:
            headers.append(("Authorization", token))
        self._http: h11.Connection | None = h11.Connection(h11.CLIENT)
        request = self._http.send(h11.Request(method="POST", target=path, headers=headers)) or b""
        self._request = request + body
        self._http.send(h11.Data(data=body))
        self._http.send(h11.EndOfMessage())
        self._gather_s = gather.total_seconds()
        self._status = 0
        self._error_body: list[bytes] = []
        # Reused for all reads: fresh memory for each costs the kernel more than the data does.
        self._buffer = memoryview(bytearray(BUFFER))
        self._chunks = ChunkedLines()
        self._lines: list[bytes] = []  # blocks of whole lines
        self._buffered = 0
        self._failure: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._transport: asyncio.Transport | None = None
        self._resume: asyncio.TimerHandle | None = None

    async def read(self) -> bytes:
        """Return all buffered lines; wait when there are none. Raises `ConnectionLost` or `WatchRejected` when the
        stream is over."""
        while not self._lines:
            if self._failure is not None:
                raise self._failure
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        lines, self._lines, self._buffered = b"".join(self._lines), [], 0
        if self._resume is None:
            self._resume_reading()
        return lines

    @property
    def waiting(self) -> bool:
        """True while the reader has taken everything and waits for more."""
        return self._waiter is not None and not self._lines

    def fail(self, why: str) -> None:
        """End the stream; the reader gets what is buffered, then `ConnectionLost`."""
        self._end(ConnectionLost(why))

    def close(self) -> None:
        if self._resume is not None:
            self._resume.cancel()
            self._resume = None
        if self._transport is not None:
            abort_soon(self._transport)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.write(self._request)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        data = bytes(self._buffer[:nbytes])
        try:
            rest = self._head(data) if self._http is not None else data
            lines = self._chunks.feed(rest) if rest else b""
        except (h11.RemoteProtocolError, ValueError) as error:
            self._end(ConnectionLost(f"the answer is not HTTP ({error})"))
            return
        if lines:
            self._lines.append(lines)
            self._buffered += len(lines)
            self._wake()
        if self._chunks.ended:
            self._end(ConnectionLost("the server ended the stream"))
        elif nbytes < FULL_READ or self._buffered > MOST_BUFFERED:
            self._pause_reading()

    def eof_received(self) -> None:
        self._end(ConnectionLost("the server closed the connection"))

    def connection_lost(self, exc: Exception | None) -> None:
        lost = ConnectionLost(str(exc) if exc else "the server closed the connection")
        lost.__cause__ = exc
        self._end(lost)

    def _head(self, data: bytes) -> bytes:
        """Parse the response's head with h11; return the first bytes of the body if the status is 200."""
        assert self._http is not None
        self._http.receive_data(data)
        while True:
            event = self._http.next_event()
            if isinstance(event, h11.Response):
                self._status = event.status_code
                if event.status_code == 200:
                    rest, _ = self._http.trailing_data
                    self._http = None
                    return bytes(rest)
            elif isinstance(event, h11.Data):
                if sum(map(len, self._error_body)) < LARGEST_ERROR:
                    self._error_body.append(bytes(event.data))
            elif isinstance(event, h11.EndOfMessage):
                self._end(WatchRejected(self._status, b"".join(self._error_body)))
                return b""
            else:
                return b""

    def _pause_reading(self) -> None:
        if self._transport is None or self._transport.is_closing() or self._resume is not None:
            return
        self._transport.pause_reading()
        self._resume = asyncio.get_running_loop().call_later(self._gather_s, self._gathered)

    def _gathered(self) -> None:
        self._resume = None
        if self._buffered <= MOST_BUFFERED:
            self._resume_reading()

    def _resume_reading(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _end(self, failure: Exception) -> None:
        if self._failure is None:
            self._failure = failure
        self._wake()
        self.close()
