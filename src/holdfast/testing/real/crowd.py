"""Clients in a namespace that use a place all the time, and count what failed, while a test does what it does.

with crowd(site.client, "192.0.2.80", 80) as clients:
    before = clients.counts()
    …
    assert clients.after(200).failed == before.failed
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator

import msgspec

from holdfast.netlink.netns import enter
from holdfast.testing.real.flows import FlowCounts, KernelConnector, Traffic
from holdfast.testing.real.netns import Namespace
from holdfast.testing.real.processes import wait_until


class Crowd:
    """Some clients, in a thread of their own that lives in the namespace."""

    def __init__(self, traffic: Traffic, namespace: Namespace, flows: int) -> None:
        self._traffic = traffic
        self._namespace = namespace
        self._flows = flows
        self._loop = asyncio.new_event_loop()
        self._over = asyncio.Event()
        self._thread = threading.Thread(target=self._live, name=f"crowd in {namespace.name}")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join()

    def counts(self) -> FlowCounts:
        shown = self._traffic.show()
        return msgspec.structs.replace(shown, opened=dict(shown.opened), broken=dict(shown.broken))

    def after(self, requests: int) -> FlowCounts:
        """The counts when that many more requests are over."""
        goal = self.counts().requests + requests
        wait_until(lambda: self.counts().requests >= goal, f"{requests} more requests are over", within=60)
        return self.counts()

    def renewed(self) -> FlowCounts:
        """The counts when every flow that there is now is over, however it ends: a server may be slow to answer."""
        old = frozenset(self._traffic.under_way)
        wait_until(lambda: old.isdisjoint(self._traffic.under_way), "all flows are new ones", within=60)
        return self.counts()

    def _live(self) -> None:
        enter(self._namespace.system_name)
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._use())
        finally:
            self._loop.close()

    async def _use(self) -> None:
        flows = [asyncio.create_task(self._traffic.use()) for _ in range(self._flows)]
        await self._over.wait()
        for flow in flows:
            flow.cancel()
        await asyncio.gather(*flows, return_exceptions=True)


@contextlib.contextmanager
def crowd(
    namespace: Namespace, host: str, port: int, *, flows: int = 8, pause: float = 0.02, requests: int = 10
) -> Iterator[Crowd]:
    """Clients that are there until the block ends."""
    made = Crowd(Traffic(KernelConnector(host, port), pause=pause, requests=requests), namespace, flows)
    made.start()
    try:
        yield made
    finally:
        made.stop()
