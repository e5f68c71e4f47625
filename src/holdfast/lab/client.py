"""The lab's client: it uses the VIP all the time and counts what failed. `counts` on its control socket tells.

A few flows at a time, each a real connection to the backend that the programmed table gives it, of some requests with
pauses between, then a new flow. A flow stays with its backend whatever becomes of the table, and ends early only when
the dataplane ends it. Nothing is tried twice: a request without a good answer has failed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from itertools import count

import msgspec
import structlog

from holdfast.balancer.maglev import Identity
from holdfast.balancer.vip import shown
from holdfast.lab.dataplane import VipsFile
from holdfast.lab.site import HOME, VIP, vips_file
from holdfast.model.time import Duration
from holdfast.runtime.control import Request, Who
from holdfast.runtime.worker import Spec, Worker

log = structlog.get_logger(__name__)

CLIENT = Spec("client", "holdfast.lab.client:run")
FLOWS = 8
"""At a time."""
_REQUESTS = 10
"""Of each flow."""
_PAUSE = 0.1
_TIMEOUT = 5.0
_LOOK = Duration(milliseconds=100)
_REQUEST = b"GET / HTTP/1.1\r\nHost: www.example.net\r\n\r\n"


class Counts(msgspec.Struct):
    """What became of the client's requests since it was started."""

    requests: int = 0
    failed: int = 0
    why: str = ""
    """Why the last failed one failed."""
    ended: int = 0
    """Flows that the dataplane ended."""
    opened: dict[str, int] = {}
    """Flows by backend (ADDRESS:PORT)."""
    established: dict[str, int] = {}
    """Flows by backend, now."""


class NoAnswer(Exception):
    """A request failed; the message says how."""


class Client:
    def __init__(self, dataplane: VipsFile) -> None:
        self._dataplane = dataplane
        self._numbers = count(1)
        self._counts = Counts()

    def counts(self) -> Counts:
        self._dataplane.load()
        self._counts.established = dict(Counter(map(shown, self._dataplane.flows.values())))
        return self._counts

    def is_served(self) -> bool:
        """Whether the VIP leads anywhere."""
        self._dataplane.load()
        return any(key.vip == VIP and entry.weight for key, entry in self._dataplane.entries.items())

    async def use(self) -> None:
        """Opens one flow after another, until cancelled."""
        while True:
            await self._flow(next(self._numbers))

    async def _flow(self, number: int) -> None:
        self._dataplane.load()
        backend = self._dataplane.connect(VIP, number)
        if backend is None:
            self._failed("no backend of the VIP has a weight")
            await asyncio.sleep(_PAUSE)
            return
        self._counts.opened[shown(backend)] = self._counts.opened.get(shown(backend), 0) + 1
        try:
            await self._requests(number, backend)
        except NoAnswer as failure:
            self._failed(f"{shown(backend)}: {failure}")
            await asyncio.sleep(_PAUSE)
        finally:
            self._dataplane.flows.pop((VIP, number), None)

    async def _requests(self, number: int, backend: Identity) -> None:
        async with _connected(backend) as (reader, writer):
            for _ in range(_REQUESTS):
                await _asked(reader, writer)
                self._counts.requests += 1
                await asyncio.sleep(_PAUSE)
                self._dataplane.load()
                if (VIP, number) not in self._dataplane.flows:
                    self._counts.ended += 1
                    return

    def _failed(self, why: str) -> None:
        self._counts.requests += 1
        self._counts.failed += 1
        self._counts.why = why
        log.debug(f"a request failed: {why}")


@contextlib.asynccontextmanager
async def _connected(backend: Identity) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    try:
        async with asyncio.timeout(_TIMEOUT):
            reader, writer = await asyncio.open_connection(HOME, backend.port)
    except (OSError, TimeoutError) as error:
        raise NoAnswer(str(error) or "it did not take the connection in time") from error
    try:
        yield reader, writer
    finally:
        writer.close()


async def _asked(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        async with asyncio.timeout(_TIMEOUT):
            writer.write(_REQUEST)
            head = await reader.readuntil(b"\r\n\r\n")
            await reader.readuntil(b"\n")
    except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
        raise NoAnswer(str(error) or "it did not answer in time") from error
    if not head.startswith(b"HTTP/1.1 200 "):
        raise NoAnswer(f"it answered {head[:20]!r}")


async def run(worker: Worker) -> None:
    client = Client(VipsFile(path=vips_file(worker.paths.state)))

    async def counts(_request: Request, _who: Who) -> object:
        return msgspec.to_builtins(client.counts())

    worker.handlers["counts"] = counts
    worker.vitals.state = "waiting: VIP"
    while not client.is_served():
        if await worker.stopped(_LOOK):
            return
    worker.vitals.state = f"uses {VIP}"
    flows = [asyncio.create_task(client.use(), name=f"flow {number}") for number in range(FLOWS)]
    stop = asyncio.create_task(worker.stopping.wait())
    await asyncio.wait([*flows, stop], return_when=asyncio.FIRST_COMPLETED)
    for task in (*flows, stop):
        task.cancel()
    for ended in await asyncio.gather(*flows, return_exceptions=True):
        if not isinstance(ended, asyncio.CancelledError):
            raise RuntimeError("the client cannot go on") from ended
