"""Client traffic to a web site: flows of requests over real connections, and a count of what failed.

    with run_clients(site.client, "192.0.2.80", 80) as clients:
        before = clients.counts()
        …
        assert clients.after(200).failed == before.failed

A flow is one connection with some requests and pauses between them; the next flow follows. A flow stays with the server
that accepted it. Nothing is retried: a request without a good answer has failed. A `Connector` opens the connection:
through the lab's dataplane in a file, or through the kernel.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import Counter
from collections.abc import Awaitable, Iterator
from itertools import count
from typing import Protocol

import msgspec
import structlog

from holdfast.netlink.netns import enter
from holdfast.testing.real.netns import Namespace
from holdfast.testing.real.processes import wait_until

log = structlog.get_logger(__name__)

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]

_TIMEOUT = 10.0
_REQUEST = b"GET / HTTP/1.1\r\nHost: www.example.net\r\n\r\n"


class FlowCounts(msgspec.Struct):
    """Outcomes of all requests since the client was started."""

    requests: int = 0
    failed: int = 0
    why: str = ""
    """Reason of the last failure."""
    ended: int = 0
    """Flows that the dataplane ended between two requests."""
    opened: dict[str, int] = {}
    """Flows that got an answer, by server."""
    broken: dict[str, int] = {}
    """Flows that failed after their first answer, by server."""
    established: dict[str, int] = {}
    """Current flows by server."""


class NoAnswer(Exception):
    """A request failed; the message says how."""


class Connector(Protocol):
    """Opens the connections of flows."""

    async def connect(self, flow: int) -> Stream:
        """Open a connection for the flow of that number. Raises `NoAnswer`."""
        ...

    def is_open(self, flow: int) -> bool:
        """Return False once the dataplane has ended the flow; asked between two requests."""
        ...

    def close(self, flow: int) -> None:
        """Forget a flow that is over."""
        ...


class KernelConnector:
    """Connects through the kernel's routing, whatever balances in between."""

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port

    async def is_served(self) -> bool:
        """Return True if the address accepts a connection."""
        try:
            stream = await self.connect(0)
        except NoAnswer:
            return False
        stream[1].close()
        return True

    async def connect(self, flow: int) -> Stream:
        return await connected(self._host, self._port)

    def is_open(self, flow: int) -> bool:
        return True

    def close(self, flow: int) -> None:
        """Nothing is kept per flow."""


class Traffic:
    """One client. `pause` is in seconds, between two requests of a flow; `requests` are those of each flow."""

    def __init__(self, connector: Connector, *, pause: float = 0.1, requests: int = 10) -> None:
        self.counts = FlowCounts()
        self._connector = connector
        self._pause = pause
        self._requests = requests
        self._numbers = count(1)
        self.under_way: set[int] = set()
        """Numbers of the current flows, answered or not."""
        self._servers: dict[int, str] = {}

    def show(self) -> FlowCounts:
        """Return the current counts."""
        self.counts.established = dict(Counter(self._servers.values()))
        return self.counts

    async def run(self, flows: int, stopping: Awaitable[object]) -> None:
        """Keep that many flows going until `stopping` is done. Raises what ends a flow other than a failed request."""
        tasks = [asyncio.create_task(self._open_flows(), name=f"flow {number}") for number in range(flows)]
        stop = asyncio.ensure_future(stopping)
        await asyncio.wait([*tasks, stop], return_when=asyncio.FIRST_COMPLETED)
        for task in (*tasks, stop):
            task.cancel()
        for ended in await asyncio.gather(*tasks, return_exceptions=True):
            if not isinstance(ended, asyncio.CancelledError):
                raise RuntimeError("the client cannot continue") from ended

    async def _open_flows(self) -> None:
        while True:
            await self._flow(next(self._numbers))

    async def _flow(self, number: int) -> None:
        self.under_way.add(number)
        try:
            await self._talk(number, await self._connector.connect(number))
        except NoAnswer as failure:
            server = self._servers.get(number)
            if server is not None:
                self.counts.broken[server] = self.counts.broken.get(server, 0) + 1
            self._failed(f"{server or 'a new flow'}: {failure}")
            await asyncio.sleep(self._pause)
        finally:
            self.under_way.discard(number)
            self._servers.pop(number, None)
            self._connector.close(number)

    async def _talk(self, number: int, stream: Stream) -> None:
        try:
            for _ in range(self._requests):
                server = await answered(stream)
                self.counts.requests += 1
                self._record_server(number, server)
                await asyncio.sleep(self._pause)
                if not self._connector.is_open(number):
                    self.counts.ended += 1
                    return
        finally:
            stream[1].close()

    def _record_server(self, number: int, server: str) -> None:
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
        log.debug("request failed", why=why)


async def answered(stream: Stream) -> str:
    """Send one request and return the name of the server that answered. Raises `NoAnswer`."""
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
    """Open a connection. Raises `NoAnswer`."""
    try:
        async with asyncio.timeout(_TIMEOUT):
            return await asyncio.open_connection(host, port)
    except (OSError, TimeoutError) as error:
        raise NoAnswer(str(error) or "it did not take the connection in time") from error


class Clients:
    """A client whose flows run in a thread of its own, inside a namespace."""

    def __init__(self, traffic: Traffic, namespace: Namespace, flows: int) -> None:
        self._traffic = traffic
        self._namespace = namespace
        self._flows = flows
        self._loop = asyncio.new_event_loop()
        self._stopping = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name=f"clients in {namespace.name}")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()

    def counts(self) -> FlowCounts:
        shown = self._traffic.show()
        return msgspec.structs.replace(shown, opened=dict(shown.opened), broken=dict(shown.broken))

    def after(self, requests: int) -> FlowCounts:
        """Wait for that many more requests and return the counts."""
        goal = self.counts().requests + requests
        wait_until(lambda: self.counts().requests >= goal, f"{requests} more requests are over", within=60)
        return self.counts()

    def renewed(self) -> FlowCounts:
        """Wait until every current flow is over, however it ends, and return the counts: a server may answer late."""
        old = frozenset(self._traffic.under_way)
        wait_until(lambda: old.isdisjoint(self._traffic.under_way), "all flows are new ones", within=60)
        return self.counts()

    def _run(self) -> None:
        enter(self._namespace.system_name)
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._traffic.run(self._flows, self._stopping.wait()))
        finally:
            self._loop.close()


@contextlib.contextmanager
def run_clients(
    namespace: Namespace, host: str, port: int, *, flows: int = 8, pause: float = 0.02, requests: int = 10
) -> Iterator[Clients]:
    """Run clients in the namespace until the block ends."""
    made = Clients(Traffic(KernelConnector(host, port), pause=pause, requests=requests), namespace, flows)
    made.start()
    try:
        yield made
    finally:
        made.stop()
