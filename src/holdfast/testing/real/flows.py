"""Flows of a client: one real connection after another to a web site, and a count of what failed.

A flow is a connection of some requests with pauses between, then comes a new one. It stays with the server that took
it. Nothing is tried twice: a request without a good answer has failed. How a connection comes about is the way's part:
through the lab's dataplane in memory, or through the kernel.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import count
from typing import Protocol

import msgspec
import structlog

log = structlog.get_logger(__name__)

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]

_TIMEOUT = 10.0
_REQUEST = b"GET / HTTP/1.1\r\nHost: www.example.net\r\n\r\n"


class FlowCounts(msgspec.Struct):
    """What became of the client's requests since it was started."""

    requests: int = 0
    failed: int = 0
    why: str = ""
    """Why the last failed one failed."""
    ended: int = 0
    """Flows that the dataplane ended between two requests."""
    opened: dict[str, int] = {}
    """Flows that got an answer, by the server that gave it."""
    broken: dict[str, int] = {}
    """Flows that failed after an answer, by the server that had given it."""
    established: dict[str, int] = {}
    """Flows by server, now."""


class NoAnswer(Exception):
    """A request failed; the message says how."""


class Connector(Protocol):
    """How a flow reaches a server."""

    async def connect(self, flow: int) -> Stream:
        """A new connection for the flow of that number. Raises `NoAnswer` when there is none."""
        ...

    def goes_on(self, flow: int) -> bool:
        """Whether the dataplane has left the flow alone; asked between two requests."""
        ...

    def close(self, flow: int) -> None:
        """The flow is over."""
        ...


class KernelConnector:
    """By the kernel's own routing: whatever stands between is not ours to know."""

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port

    async def is_served(self) -> bool:
        """Whether somebody answers there."""
        try:
            stream = await self.connect(0)
        except NoAnswer:
            return False
        stream[1].close()
        return True

    async def connect(self, flow: int) -> Stream:
        return await connected(self._host, self._port)

    def goes_on(self, flow: int) -> bool:
        return True

    def close(self, flow: int) -> None:
        """Nothing is kept of it."""


class Traffic:
    """What one client does. `pause` is in seconds, between two requests of a flow; `requests` are of each flow."""

    def __init__(self, way: Connector, *, pause: float = 0.1, requests: int = 10) -> None:
        self.counts = FlowCounts()
        self._way = way
        self._pause = pause
        self._requests = requests
        self._numbers = count(1)
        self.under_way: set[int] = set()
        """The numbers of the flows that there are now, those among them that nobody has answered yet."""
        self._servers: dict[int, str] = {}

    def show(self) -> FlowCounts:
        """The counts as of now."""
        self.counts.established = dict(Counter(self._servers.values()))
        return self.counts

    async def use(self) -> None:
        """Opens one flow after another, until cancelled."""
        while True:
            await self._flow(next(self._numbers))

    async def _flow(self, number: int) -> None:
        self.under_way.add(number)
        try:
            await self._talk(number, await self._way.connect(number))
        except NoAnswer as failure:
            server = self._servers.get(number)
            if server is not None:
                self.counts.broken[server] = self.counts.broken.get(server, 0) + 1
            self._failed(f"{server or 'a new flow'}: {failure}")
            await asyncio.sleep(self._pause)
        finally:
            self.under_way.discard(number)
            self._servers.pop(number, None)
            self._way.close(number)

    async def _talk(self, number: int, stream: Stream) -> None:
        try:
            for _ in range(self._requests):
                server = await answered(stream)
                self.counts.requests += 1
                self._met(number, server)
                await asyncio.sleep(self._pause)
                if not self._way.goes_on(number):
                    self.counts.ended += 1
                    return
        finally:
            stream[1].close()

    def _met(self, number: int, server: str) -> None:
        before = self._servers.get(number)
        if before is None:
            self._servers[number] = server
            self.counts.opened[server] = self.counts.opened.get(server, 0) + 1
        elif before != server:
            raise NoAnswer(f"{server} answered in the middle of the flow")

    def _failed(self, why: str) -> None:
        self.counts.requests += 1
        self.counts.failed += 1
        self.counts.why = why
        log.debug(f"a request failed: {why}")


async def answered(stream: Stream) -> str:
    """One request and its answer: the name of the server that gave it."""
    reader, writer = stream
    try:
        async with asyncio.timeout(_TIMEOUT):
            writer.write(_REQUEST)
            head = await reader.readuntil(b"\r\n\r\n")
            body = await reader.readuntil(b"\n")
    except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
        raise NoAnswer(str(error) or "it did not answer in time") from error
    if not head.startswith(b"HTTP/1.1 200 "):
        raise NoAnswer(f"it answered {head[:20]!r}")
    return body.decode().strip()


async def connected(host: str, port: int) -> Stream:
    """A connection to that place, or the sentence why not."""
    try:
        async with asyncio.timeout(_TIMEOUT):
            return await asyncio.open_connection(host, port)
    except (OSError, TimeoutError) as error:
        raise NoAnswer(str(error) or "it did not take the connection in time") from error
