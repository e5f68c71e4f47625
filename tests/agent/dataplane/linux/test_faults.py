"""Rows of the fault matrix about the kernel itself, on a real kernel."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path

from holdfast.agent.claims import (
    ClaimKey,
    Mode,
    NeighbourEntry,
    NexthopEntry,
    RemoteRoute,
    Shape,
    VxlanDevice,
    device,
    neighbour,
    nexthop,
    route,
)
from holdfast.agent.dataplane.linux import LinuxDataplane
from holdfast.store.mirror.gc_pause import WORTH_IT, gc_paused
from holdfast.testing.fault import fault
from holdfast.testing.real.processes import Process, wait_until
from tests.agent.dataplane.linux.agent import Machine, joins_6, settled
from tests.agent.dataplane.linux.harness import HostHarness, creates
from tests.agent.dataplane.linux.without_protection import FIRST_GATEWAY, TUNNEL

MANY, PART = 4_000, 1_000
TOO_STEEP = 3.0


@fault(
    "N1",
    without="holdfast.agent.target:JournaledTarget.read",
    by="tests.agent.dataplane.linux.without_protection:nothing_there",
    sees=(AssertionError, r"\{key.text for key in await machine.holds\(\)\} =="),
)
def test_N1_what_a_host_left_while_the_agent_was_down_is_not_in_the_kernel_any_more(
    site: HostHarness, tmp_path: Path
) -> None:
    machine = Machine(site, tmp_path)
    fleet = machine.fleet

    async def scene() -> None:
        fleet.write(fleet.joins("old", 1), fleet.joins("other", 2), fleet.runs("w", "old", "10.65.0.1/32"))
        async with machine.agent() as reconciler:
            await settled(reconciler)
            assert route("10.65.0.1/32") in await machine.holds()
        fleet.write(fleet.leaves("old"), fleet.ends("w", "old"))
        async with machine.agent() as reconciler:
            await settled(reconciler)
        assert {key.text for key in await machine.holds()} == {
            *("66:00:00:00:00:02", "10.99.0.2", "10.99.0.2/32"),
            "IPv4 tunnel",
        }

    asyncio.run(scene())


@fault(
    "N8",
    without="holdfast.agent.desired.ownership:ClaimOwners._withdraw",
    by="tests.agent.without_protection:with_all_its_claims",
    sees=(AssertionError, r'\(there.get\(neighbour\("10.99.0.1"\)\)'),
)
def test_N8_a_tunnel_address_with_a_new_owner_stays_in_the_kernel_when_the_old_one_goes(
    site: HostHarness, tmp_path: Path
) -> None:
    machine = Machine(site, tmp_path)
    fleet = machine.fleet

    async def scene() -> None:
        fleet.write(fleet.joins("old", 1), fleet.joins("other", 9), fleet.runs("w", "other", "10.65.0.1/32"))
        async with machine.agent() as reconciler:
            await settled(reconciler)
            fleet.write(fleet.joins("new", 2, tunnel=1))
            await settled(reconciler)
            number = site.ip("nexthop show").split("via 10.99.0.1 ")[0].split()[-1]
            fleet.write(fleet.leaves("old"))
            await settled(reconciler)
        there = await machine.holds()
        assert (there.get(neighbour("10.99.0.1")), there.get(nexthop("10.99.0.1"))) == (
            NeighbourEntry("66:00:00:00:00:02"),
            NexthopEntry(Mode.VXLAN),
        )
        assert site.ip("nexthop show").split("via 10.99.0.1 ")[0].split()[-1] == number

    asyncio.run(scene())


@fault(
    "N9",
    without="holdfast.agent.gates.dependents:DependentsGate.judge",
    sees=(AssertionError, '"Deleted fd65::1" not in monitor.output'),
)
def test_N9_a_prefix_with_a_new_owner_never_leaves_the_kernel(site: HostHarness, tmp_path: Path) -> None:
    machine = Machine(site, tmp_path)
    fleet = machine.fleet
    monitor = Process(site.host.command("ip", "-6", "monitor", "route"), log=tmp_path / "monitor")

    async def scene() -> None:
        fleet.write(joins_6("old", 1), joins_6("other", 9), fleet.runs("w", "old", "fd65::1/128"))
        async with machine.agent() as reconciler:
            await settled(reconciler)
            monitor.start()
            await asyncio.to_thread(wait_until, lambda: _hears(site, monitor, 1), "the monitor hears")
            leave, come = [fleet.leaves("old"), fleet.ends("w", "old")], joins_6("new", 2)
            fleet.write(*leave, come, fleet.runs("w", "new", "fd65::1/128"))
            await settled(reconciler)
        assert (await machine.holds())[route("fd65::1/128")] == RemoteRoute("fd99::2")
        await asyncio.to_thread(wait_until, lambda: _hears(site, monitor, 2), "the monitor has told what was before")
        assert "Deleted fd65::1" not in monitor.output

    try:
        asyncio.run(scene())
    finally:
        monitor.kill()


@fault(
    "N14",
    without="holdfast.agent.dataplane.linux.snapshot:mark",
    by="tests.agent.dataplane.linux.without_protection:whosever",
    sees=(AssertionError, r'"198.51.100.0/24" in site.ip\("route show table 7500"\)'),
)
def test_N14_routes_of_others_stay_even_in_our_own_table(site: HostHarness, tmp_path: Path) -> None:
    machine = Machine(site, tmp_path)
    fleet = machine.fleet
    site.ip("route add 198.51.100.0/24 via 10.0.0.254 table 7500 proto static")
    site.ip("route add 198.51.101.0/24 via 10.0.0.254 proto 175")

    async def scene() -> None:
        fleet.write(fleet.joins("other", 9), fleet.runs("w", "other", "10.65.0.1/32"))
        async with machine.agent() as reconciler:
            await settled(reconciler)
            fleet.write(fleet.ends("w", "other"))
            await settled(reconciler)

    asyncio.run(scene())
    assert "198.51.100.0/24" in site.ip("route show table 7500")
    assert "198.51.101.0/24" in site.ip("route show")


@fault(
    "N16",
    without="holdfast.netlink.routes:additions",
    by="tests.agent.dataplane.linux.without_protection:by_gateway",
    sees=(AssertionError, r'took\[-1\] < TOO_STEEP \* took\[0\], f"CPU per thousand routes'),
)
def test_N16_the_last_thousand_routes_cost_what_the_first_did(site: HostHarness, dataplane: LinuxDataplane) -> None:
    gateways = [_address(FIRST_GATEWAY + number) for number in range(MANY)]
    tunnel: dict[ClaimKey, Shape] = {device(4): VxlanDevice("02:00:00:00:00:04")}
    peers: dict[ClaimKey, Shape] = {nexthop(gateway): NexthopEntry(Mode.VXLAN) for gateway in gateways}
    routes: list[dict[ClaimKey, Shape]] = [
        {route(f"{_address(0x0B000000 + at)}/32"): RemoteRoute(gateways[at]) for at in range(start, start + PART)}
        for start in range(0, MANY, PART)
    ]

    async def scene() -> list[float]:
        await _program(dataplane, tunnel | peers)
        TUNNEL["device"] = int(site.ip("-oneline link show holdfast4").partition(":")[0])
        return [await _program(dataplane, part) for part in routes]

    took = asyncio.run(scene())
    assert took[-1] < TOO_STEEP * took[0], f"CPU per thousand routes: {took}"


async def _program(dataplane: LinuxDataplane, wanted: Mapping[ClaimKey, Shape]) -> float:
    """The CPU seconds that it took."""
    changes = creates(wanted)
    with gc_paused(WORTH_IT):  # a collection of this process's garbage costs more than what is measured
        before = time.process_time()
        answers = await dataplane.apply(changes)
        took = time.process_time() - before
    assert not any(answers), next(filter(None, answers))
    return took


def _address(number: int) -> str:
    return ".".join(map(str, number.to_bytes(4, "big")))


def _hears(site: HostHarness, monitor: Process, number: int) -> bool:
    for what in ("add", "del"):
        site.ip(f"-6 route {what} blackhole 2001:db8:ffff::{number}/128 table 99")
    return f"2001:db8:ffff::{number}" in monitor.output
