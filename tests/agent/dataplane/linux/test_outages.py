"""An uplink that fails and comes back, on a real kernel: what depends on it waits for it, and for no timer.

No timer of the loop runs here, so whatever comes back does so because of a kernel event.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import patch

import pytest

from holdfast.agent.claims import LocalRoute, route
from holdfast.agent.dataplane.api import ReadInterrupted
from holdfast.agent.dataplane.linux import LinuxDataplane
from holdfast.agent.dataplane.linux.interfaces import GATEWAY
from holdfast.agent.reconciler import AgentReconciler
from holdfast.model.base.time import Duration
from holdfast.model.calico.host import HOST, Bgp, Host, HostSpec
from holdfast.netlink import links
from holdfast.netlink.socket import Netlink
from holdfast.reconcile import Backoff, Op
from holdfast.runtime.cooperative import Steps
from holdfast.runtime.reconciler.place import LoopTimings
from holdfast.store.api import Put
from holdfast.testing.fault import fault
from tests.agent.dataplane.linux.agent import PATIENCE_S, Machine, settled, until
from tests.agent.dataplane.linux.harness import HostHarness
from tests.agent.harness import ME, REGION

HOUR = Duration(hours=1)
WITHOUT_TIMERS = LoopTimings(audit=HOUR, recheck=HOUR, backoff=Backoff(HOUR, HOUR))
WORKLOADS = 50
STORM, TRIES = 5, 20
_TYPE_AT = 4


def neighbour_host(name: str, number: int) -> Put:
    """A host on the same segment, in both families."""
    spec = HostSpec(bgp=Bgp(ipv4_address=f"10.0.0.{number}/24", ipv6_address=f"fd00::{number:x}/64"))
    return Put(HOST.key(REGION, name), HOST.encode(Host.of(name, spec, uid=f"uid-{name}")))


def with_workloads(machine: Machine) -> set[str]:
    """Two neighbours with their workloads; returns the prefixes."""
    fleet = machine.fleet
    prefixes: set[str] = set()
    fleet.write(neighbour_host("a", 2), neighbour_host("b", 3))
    for number in range(1, WORKLOADS + 1):
        mine = f"10.65.0.{number}/32", f"fd65::{number:x}/128"
        fleet.write(fleet.runs(f"w{number}", "ab"[number % 2], *mine))
        prefixes.update(mine)
    return prefixes


def routes(site: HostHarness) -> set[str]:
    """Our routes to workloads in the kernel, except the one to their gateway."""
    shown = (site.ip("route show table 7500") + site.ip("-6 route show table 7500")).splitlines()
    destinations = {line.split()[0] for line in shown} - {GATEWAY[4]}
    return {f"{one}/{128 if ':' in one else 32}" for one in destinations if not one.startswith(("10.99.", "fd99:"))}


def loses_its_carrier(site: HostHarness) -> Callable[[], None]:
    site.switch.run("ip", "link", "set", site.uplink, "down")
    return lambda: site.switch.batch([f"link set {site.uplink} up"])


def is_switched_off(site: HostHarness) -> Callable[[], None]:
    """The kernel deletes the IPv6 address with it, and does not bring it back."""
    site.ip(f"link set {site.uplink} down")
    return lambda: site.host.batch([f"link set {site.uplink} up", f"address add fd00::1/64 dev {site.uplink} nodad"])


@pytest.mark.parametrize("fails", [loses_its_carrier, is_switched_off])
@fault(
    "N20",
    without="holdfast.agent.gates.dependents:DependentsGate.is_missing",
    returns=False,
    sees=(AssertionError, r'waits\(reconciler\) == \{"dependents"'),
)
def test_N20_routes_wait_for_their_uplink_and_are_back_with_it_without_a_retry(
    site: HostHarness, tmp_path: Path, fails: Callable[[HostHarness], Callable[[], None]]
) -> None:
    machine = Machine(site, tmp_path)
    prefixes = with_workloads(machine)

    async def scene() -> None:
        async with machine.agent(pace=WITHOUT_TIMERS, direct=True) as reconciler:
            await settled(reconciler)
            assert routes(site) == prefixes
            restore = fails(site)
            await until(lambda: is_waiting(reconciler, len(prefixes)))
            assert routes(site) == set()
            assert waits(reconciler) == {"dependents", "interface"}
            restore()
            await until(lambda: routes(site) == prefixes)

    asyncio.run(scene())


def is_waiting(reconciler: AgentReconciler, count: int) -> bool:
    """Every route is outstanding, and the agent has no more to do."""
    kinds = [entry.change.key.kind.name for entry in reconciler.loop.ledger]
    return kinds.count("ROUTE") == count and not reconciler.loop.dirty and not reconciler.loop.is_in_turn()


def waits(reconciler: AgentReconciler) -> set[str]:
    """Gates that hold something; "failed" for what was tried."""
    ledger = reconciler.loop.ledger
    return {entry.closed.gate if entry.closed and not entry.error else "failed" for entry in ledger}


@fault(
    "N20",
    without="holdfast.reconcile.ledger:Ledger.clear_backoff",
    sees=(AssertionError, r"routes\(site\) == prefixes"),
)
def test_N20_a_kernel_event_ends_the_wait_of_what_the_kernel_refused(site: HostHarness, tmp_path: Path) -> None:
    machine = Machine(site, tmp_path)
    prefixes = with_workloads(machine)
    taken = "10.65.0.1/32"
    site.ip(f"route add blackhole {taken} table 7500 proto static")

    async def scene() -> None:
        async with machine.agent(pace=WITHOUT_TIMERS, direct=True) as reconciler:
            await until(lambda: has_failed(reconciler, Op.CREATE))
            site.interface("tap-0")
            await until(lambda: has_failed(reconciler, Op.REPLACE))  # of what the journal has from the first attempt
            site.ip(f"route del {taken} table 7500 proto static")
            site.interface("tap-1")
            await until(lambda: all(entry.closed for entry in reconciler.loop.ledger))  # done, or judged again and held
            assert routes(site) == prefixes

    asyncio.run(scene())


def has_failed(reconciler: AgentReconciler, op: Op) -> bool:
    """The one object that the kernel refuses waits for its retry."""
    return [entry.change.op for entry in reconciler.loop.ledger if entry.is_failed] == [op]


@contextlib.contextmanager
def storm() -> Iterator[list[bytes]]:
    """Until the block ends, the kernel's devices change during every dump of them; yields the requests of the dumps."""
    dumped: list[bytes] = []
    dump_once = Netlink._dump_once

    def interrupted(self: Netlink, request: bytes) -> Steps[tuple[list[bytes], bool]]:
        datagrams, whole = yield from dump_once(self, request)
        if struct.unpack_from("=H", request, _TYPE_AT)[0] == links.GET:
            dumped.append(request)
            whole = False
        return datagrams, whole

    with patch.object(Netlink, "_dump_once", interrupted):
        yield dumped


@fault(
    "N23",
    without="holdfast.agent.reconciler:AgentReconciler._disturbed",
    by="tests.agent.dataplane.linux.without_protection:unhandled",
    sees=(ReadInterrupted, "the kernel is unreachable: the kernel's table changed"),
)
def test_N23_a_storm_of_interfaces_does_not_end_the_worker_and_no_interface_is_forgotten(
    site: HostHarness, tmp_path: Path
) -> None:
    machine = Machine(site, tmp_path)
    fleet, here, there = machine.fleet, "10.65.0.1/32", "10.65.0.2/32"
    fleet.write(fleet.joins("other", 9), fleet.runs("w2", "other", there))
    fleet.write(fleet.runs("w1", ME, here, interface="tap1"))

    async def scene() -> None:
        async with machine.agent(pace=WITHOUT_TIMERS) as reconciler:
            await until(lambda: waits(reconciler) == {"interface"})
            with storm() as dumped:
                for name in ("tap1", *(f"tap1{number}" for number in range(STORM))):
                    dumped.clear()
                    site.interface(name)
                    await until(lambda: len(dumped) >= TRIES or is_over(machine))
                assert routes(site) == {there}
            await until(lambda: routes(site) == {here, there} or is_over(machine))
            assert not is_over(machine)

    asyncio.run(scene())


def is_over(machine: Machine) -> bool:
    return machine.life is not None and machine.life.done()


@fault(
    "N23",
    without="holdfast.agent.dataplane.linux.devices:Devices.read",
    by="tests.agent.dataplane.linux.without_protection:forgetful",
    sees=(pytest.fail.Exception, "DID NOT RAISE ReadInterrupted"),
)
def test_N23_an_event_is_kept_until_the_devices_could_be_read(site: HostHarness, dataplane: LinuxDataplane) -> None:
    key, shape = route("10.65.0.1/32"), LocalRoute("tap1")

    async def scene() -> None:
        assert dataplane.blocked_by(key, shape) == "interface tap1 does not exist"
        with storm():
            site.interface("tap1")
            with pytest.raises(ReadInterrupted):
                await dataplane.read([key])
        async with asyncio.timeout(PATIENCE_S):
            assert await dataplane.disturbed() == {key}
        assert dataplane.blocked_by(key, shape) is None

    asyncio.run(scene())
