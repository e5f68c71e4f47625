"""The lab's client: it uses the VIP all the time and counts what failed. `counts` on its control socket tells.

A few flows at a time, each a real connection to the backend that the programmed table gives it. A flow stays with its
backend whatever becomes of the table, and ends early only when the dataplane ends it. In a lab on the kernel the client
lives in a namespace of its own and knows of no table: it connects to the VIP. There it also tells (`programmed`) what
the kernel holds, and deletes it (`wipe`), for whoever may not go there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec

from holdfast.lab.fleet import netns
from holdfast.lab.fleet.balancer import BALANCER
from holdfast.lab.fleet.vips_file import VipsFile
from holdfast.lab.fleet.web import ADDRESS, HOME, VIP, vips_file
from holdfast.model.base.time import Duration
from holdfast.netlink.netns import enter
from holdfast.runtime.control import Request, Who
from holdfast.runtime.daemon.worker import Spec, Worker
from holdfast.testing.real.flows import Connector, KernelConnector, NoAnswer, Stream, Traffic, connected

CLIENT = Spec("client", "holdfast.lab.fleet.client:run")
FLOWS = 8
"""At a time."""
_LOOK = Duration(milliseconds=100)


class TableConnector:
    """By the table in the lab's file."""

    def __init__(self, dataplane: VipsFile) -> None:
        self._dataplane = dataplane

    async def is_served(self) -> bool:
        """Whether the VIP leads anywhere."""
        self._dataplane.load()
        return any(key.vip == VIP and entry.weight for key, entry in self._dataplane.entries.items())

    async def connect(self, flow: int) -> Stream:
        self._dataplane.load()
        backend = self._dataplane.connect(VIP, flow)
        if backend is None:
            raise NoAnswer("no backend of the VIP has a weight")
        return await connected(HOME, backend.port)

    def is_open(self, flow: int) -> bool:
        self._dataplane.load()
        return (VIP, flow) in self._dataplane.flows

    def close(self, flow: int) -> None:
        self._dataplane.flows.pop((VIP, flow), None)


async def run(worker: Worker) -> None:
    where = netns.namespaces(worker.paths.state)
    if not where:
        way = TableConnector(VipsFile(path=vips_file(worker.paths.state)))
        await use(worker, way, way.is_served)
        return

    async def programmed(_request: Request, _who: Who) -> object:
        return msgspec.to_builtins(await asyncio.to_thread(netns.programmed, where[BALANCER]))

    async def wipe(_request: Request, _who: Who) -> object:
        return await asyncio.to_thread(netns.wipe, where[BALANCER])

    worker.handlers["programmed"] = programmed
    worker.handlers["wipe"] = wipe
    enter(where[netns.CLIENT])
    by_kernel = KernelConnector(ADDRESS, VIP.port)
    await use(worker, by_kernel, by_kernel.is_served)


async def use(worker: Worker, way: Connector, is_served: Callable[[], Awaitable[bool]]) -> None:
    """Uses the VIP by that way from when it first leads anywhere until the worker is to stop."""
    traffic = Traffic(way)

    async def counts(_request: Request, _who: Who) -> object:
        return msgspec.to_builtins(traffic.show())

    worker.handlers["counts"] = counts
    worker.vitals.state = "waiting: VIP"
    while not await is_served():
        if await worker.stopped(_LOOK):
            return
    worker.vitals.state = f"uses {VIP}"
    await traffic.run(FLOWS, worker.stopping.wait())
