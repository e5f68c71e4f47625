"""Client of the lab: sends requests to the VIP all the time and counts failures (`counts` on its control socket).

It keeps a few flows open, each a real connection to the backend that the programmed table gives it. A flow stays with
its backend whatever happens to the table, and ends early only when the dataplane ends it. In a lab on the kernel the
client runs in a namespace of its own and connects to the VIP; there it also offers `programmed` (what the kernel holds)
and `wipe` (delete it) to scenes that may not enter the namespaces themselves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec

from holdfast.lab.fleet import layout, netns
from holdfast.lab.fleet.balancer import BALANCER
from holdfast.lab.fleet.vips_file import VipsFile
from holdfast.lab.fleet.web import ADDRESS, LOOPBACK, VIP
from holdfast.model.base.time import Duration
from holdfast.netlink.netns import enter
from holdfast.runtime.control import Request, Who
from holdfast.runtime.daemon.worker import Spec, Worker
from holdfast.testing.real.flows import Connector, KernelConnector, NoAnswer, Stream, Traffic, connected

CLIENT = Spec("client", "holdfast.lab.fleet.client:run")
FLOWS = 8
"""Flows that are open at the same time."""
_POLL = Duration(milliseconds=100)


class TableConnector:
    """Connects to the backend that the table in the lab's file gives a flow."""

    def __init__(self, dataplane: VipsFile) -> None:
        self._dataplane = dataplane

    async def is_served(self) -> bool:
        """Return True once a backend of the VIP has a weight."""
        self._dataplane.load()
        return any(key.vip == VIP and entry.weight for key, entry in self._dataplane.entries.items())

    async def connect(self, flow: int) -> Stream:
        self._dataplane.load()
        backend = self._dataplane.connect(VIP, flow)
        if backend is None:
            raise NoAnswer("no backend of the VIP has a weight")
        return await connected(LOOPBACK, backend.port)

    def is_open(self, flow: int) -> bool:
        self._dataplane.load()
        return (VIP, flow) in self._dataplane.flows

    def close(self, flow: int) -> None:
        self._dataplane.flows.pop((VIP, flow), None)


async def run(worker: Worker) -> None:
    namespaces = layout.namespaces(worker.paths.state)
    if not namespaces:
        table = TableConnector(VipsFile(path=layout.vips_file(worker.paths.state)))
        await send_traffic(worker, table, table.is_served)
        return

    async def programmed(_request: Request, _who: Who) -> object:
        return msgspec.to_builtins(await asyncio.to_thread(netns.programmed, namespaces[BALANCER]))

    async def wipe(_request: Request, _who: Who) -> object:
        return await asyncio.to_thread(netns.wipe, namespaces[BALANCER])

    worker.handlers["programmed"] = programmed
    worker.handlers["wipe"] = wipe
    enter(namespaces[netns.CLIENT])
    kernel = KernelConnector(ADDRESS, VIP.port)
    await send_traffic(worker, kernel, kernel.is_served)


async def send_traffic(worker: Worker, connector: Connector, is_served: Callable[[], Awaitable[bool]]) -> None:
    """Wait until the VIP is served, then send requests until the worker is told to stop."""
    traffic = Traffic(connector)

    async def counts(_request: Request, _who: Who) -> object:
        return msgspec.to_builtins(traffic.show())

    worker.handlers["counts"] = counts
    worker.vitals.state = "waiting: VIP"
    while not await is_served():
        if await worker.stopped(_POLL):
            return
    worker.vitals.state = "sending"
    await traffic.run(FLOWS, worker.stopping.wait())
