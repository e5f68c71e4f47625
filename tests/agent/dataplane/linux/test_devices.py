"""The agent on a kernel that others change: it acts on the kernel's own word, not at its next verification.

That one is an hour away here. How long it took is counted in ticks of the agent's own event loop, from the moment at
which the kernel announced the change: while the machine does not let the loop run, no time passes.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from holdfast.agent.claims import RemoteRoute, route
from holdfast.agent.commands.control import AgentCommands
from holdfast.agent.reconciler import AgentReconciler
from holdfast.agent.report.endpoints import EndpointReporter
from holdfast.agent.report.reporting_host import ReportingHost
from holdfast.model.base.time import Duration
from holdfast.model.calico.endpoint import EndpointName
from holdfast.model.calico.endpoint_status import ENDPOINT_STATUS, EndpointStatusName
from holdfast.netlink import links
from holdfast.netlink.netns import inside
from holdfast.netlink.socket import Netlink
from holdfast.runtime.clock import SystemClock
from tests.agent.dataplane.linux.agent import PATIENCE_S, Machine, settled, until
from tests.agent.dataplane.linux.harness import HostHarness
from tests.agent.harness import BOOT, ME, REGION

AN_HOUR = Duration(hours=1)
TICK_S = 0.01
A_SECOND = round(1 / TICK_S)
STATUS = ENDPOINT_STATUS.key(REGION, EndpointStatusName.of(REGION, EndpointName(ME, "holdfast", "w", "eth0"), ME))


class Witness:
    """A second listener to the kernel's device events."""

    def __init__(self, site: HostHarness, device: str) -> None:
        self._device = device
        self._netlink = inside(site.host.system_name, lambda: Netlink(socket.NETLINK_ROUTE, (1,), is_blocking=False))

    def hears(self, *, is_up: bool) -> None:
        """Return when the kernel has announced this state. The event loop is blocked until then."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            with contextlib.suppress(BlockingIOError):
                for message in self._netlink.receive():
                    link = links.read(message)
                    if (link.name, link.is_up) == (self._device, is_up):
                        return
            time.sleep(0.001)
        raise TimeoutError(f"the kernel said nothing of {self._device}")

    def close(self) -> None:
        self._netlink.close()


class Ticks:
    """The time of the event loop."""

    def __init__(self) -> None:
        self.count = 0

    async def run(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            self.count += 1

    async def until(self, condition: Callable[[], bool]) -> int:
        """Number of writes."""
        before = self.count
        await until(condition)
        return self.count - before


@contextlib.asynccontextmanager
async def reporting(machine: Machine, reconciler: AgentReconciler) -> AsyncIterator[Ticks]:
    """The shipped reporter beside the reconciler, and a clock."""
    states = AgentCommands(reconciler, ME, BOOT, SystemClock()).endpoints
    host, ticks = ReportingHost(REGION, ME, BOOT), Ticks()
    reporter = EndpointReporter(machine.store.client("reporter"), host, states)
    tasks = [asyncio.create_task(reporter.run()), asyncio.create_task(ticks.run())]
    try:
        yield ticks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def test_up_down_and_error_are_reported_within_a_second_of_the_kernel_event(site: HostHarness, tmp_path: Path) -> None:
    machine = Machine(site, tmp_path)
    fleet = machine.fleet
    fleet.write(fleet.joins(ME, 1), fleet.runs("w", ME, "10.65.0.1/32", interface="tap1"))
    site.interface("tap1")
    witness = Witness(site, "tap1")

    def is_said(state: str) -> Callable[[], bool]:
        return lambda: (found := machine.store.keys.get(STATUS)) is not None and state.encode() in found.value

    async def scene() -> None:
        async with machine.agent(audit=AN_HOUR) as reconciler, reporting(machine, reconciler) as ticks:
            await until(is_said("up"))
            passes = reconciler.loop.passes
            for words, is_up, state in (
                ("link set tap1 down", False, "down"),
                ("link set tap1 up", True, "up"),
                ("link set tap1-w down", False, "down"),
                ("link set tap1-w up", True, "up"),
                ("link set tap1 down", False, "down"),
            ):
                site.ip(words)
                witness.hears(is_up=is_up)
                assert await ticks.until(is_said(state)) <= A_SECOND, words
            site.ip("route add 10.65.0.1/32 via 10.0.0.254 table 7500 proto static")  # in its place, by somebody else
            site.ip("link set tap1 up")
            witness.hears(is_up=True)
            assert await ticks.until(is_said("error")) <= A_SECOND
            assert reconciler.loop.passes == passes  # each by a look at these objects, none by comparing everything

    try:
        asyncio.run(scene())
    finally:
        witness.close()


def test_a_second_nexthop_for_a_gateway_is_gone_and_its_routes_are_not(site: HostHarness, tmp_path: Path) -> None:
    machine = Machine(site, tmp_path)
    fleet = machine.fleet
    fleet.write(fleet.joins("other", 9), fleet.runs("w", "other", "10.65.0.1/32"))

    async def scene() -> None:
        async with machine.agent(audit=AN_HOUR) as reconciler:
            await settled(reconciler)
            site.ip("nexthop add id 760000000 via 10.99.0.9 dev holdfast4 onlink proto 175")
            site.ip("route replace 10.65.0.1/32 nhid 760000000 table 7500 proto 175")
            await until(lambda: "760000000" not in site.ip("nexthop show"))
            await settled(reconciler)
        assert (await machine.holds())[route("10.65.0.1/32")] == RemoteRoute("10.99.0.9")

    asyncio.run(scene())
