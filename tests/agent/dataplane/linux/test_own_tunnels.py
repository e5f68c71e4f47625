"""This host's own end of the tunnels, on a real kernel: its address there, its MAC, its MTU, and an old name."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

from holdfast.agent.claims import TunnelAddress, VxlanDevice, device, tunnel_address
from holdfast.config.sections.linux import LinuxSettings
from holdfast.model.calico.host import HOST, Bgp, Host, HostSpec
from holdfast.netlink.netns import inside
from holdfast.store.api import Put
from holdfast.testing.fault import fault
from tests.agent.dataplane.linux.agent import Machine, settled, until
from tests.agent.dataplane.linux.harness import HostHarness
from tests.agent.harness import ME, REGION

WORKLOAD, WORKLOAD_6 = "10.65.0.1/32", "fd65::1/128"
OWN, OWN_6 = "10.99.0.1", "fd99::1"
ANSWER_S, CLOSED_PORT = 3, 9
MAC = "66:00:00:00:00:01"


def node(name: str, number: int, tunnel: int | None = None, mac: str = "") -> Put:
    """A host on the segment, with both families."""
    inside = number if tunnel is None else tunnel
    spec = HostSpec(
        bgp=Bgp(f"10.0.0.{number}/24", f"fd00::{number:x}/64"),
        tunnel_ipv4=f"10.99.0.{inside}",
        tunnel_ipv6=f"fd99::{inside:x}",
        tunnel_mac=mac or f"66:00:00:00:00:{number:02x}",
        tunnel_mac_v6=f"66:00:00:00:06:{number:02x}",
    )
    return Put(HOST.key(REGION, name), HOST.encode(Host.of(name, spec, uid=f"uid-{name}")))


def begun(site: HostHarness, folder: Path) -> Machine:
    """A fleet of this host and one that has a workload."""
    machine = Machine(site, folder)
    fleet = machine.fleet
    fleet.write(node(ME, 1), node("other", 254), fleet.runs("w", "other", WORKLOAD, WORKLOAD_6))
    return machine


def other_end(site: HostHarness) -> None:
    """Make the switch the other host, with its workload, by hand: it accepts nothing that comes by the wrong way."""
    switch = site.switch
    switch.batch(
        [
            "address add fd00::fe/64 dev veth0 nodad",
            "link add t4 address 66:00:00:00:00:fe type vxlan id 7500 dstport 4789 local 10.0.0.254 nolearning",
            "link add t6 address 66:00:00:00:06:fe type vxlan id 7500 dstport 4789 local fd00::fe nolearning",
            "link set t4 up",
            "link set t6 up",
            "address add 10.99.0.254/32 dev t4",
            "address add fd99::fe/128 dev t6 nodad",
            f"address add {WORKLOAD} dev lo",
            f"address add {WORKLOAD_6} dev lo nodad",
            f"route add {OWN}/32 dev t4",
            f"route add {OWN_6}/128 dev t6",
            f"neighbour add {OWN} lladdr {MAC} dev t4 nud permanent",
            f"neighbour add {OWN_6} lladdr 66:00:00:00:06:01 dev t6 nud permanent",
        ]
    )
    switch.batch(
        [
            f"fdb add {MAC} dev t4 dst 10.0.0.1 self permanent",
            "fdb add 66:00:00:00:06:01 dev t6 dst fd00::1 self permanent",
        ],
        program="bridge",
    )
    for namespace in (switch, site.host):
        namespace.run("sh", "-c", "echo 1 >/proc/sys/net/ipv4/conf/all/rp_filter")


def answers(site: HostHarness, address: str) -> bool:
    """Return whether the remote workload answers this host itself."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with inside(site.host.system_name, lambda: socket.socket(family)) as caller:
        caller.settimeout(ANSWER_S)
        try:
            caller.connect((address.partition("/")[0], CLOSED_PORT))
        except ConnectionRefusedError:
            return True
        except TimeoutError:
            return False
    raise AssertionError("something listens on a port that should be closed")


@fault(
    "N24",
    without="holdfast.agent.desired.peers:LocalHost.own_tunnel_addresses",
    returns=(),
    sees=(AssertionError, r'asyncio.to_thread\(answers, site, address\), f"\{address\} does not'),
)
def test_N24_what_a_host_itself_sends_to_a_remote_workload_comes_from_its_tunnel_address(
    site: HostHarness, tmp_path: Path
) -> None:
    machine = begun(site, tmp_path)
    other_end(site)

    async def scene() -> None:
        async with machine.agent() as reconciler:
            await settled(reconciler)
            for address in (WORKLOAD, WORKLOAD_6):
                assert await asyncio.to_thread(answers, site, address), f"{address} does not answer"
            for line in (site.ip("route get 10.65.0.1"), site.ip("-6 route get fd65::1")):
                assert f"src {OWN}" in line or f"src {OWN_6}" in line

    asyncio.run(scene())


def test_the_address_of_this_host_in_the_tunnel_changes_while_its_routes_stay(
    site: HostHarness, tmp_path: Path
) -> None:
    machine = begun(site, tmp_path)

    async def scene() -> None:
        async with machine.agent() as reconciler:
            await settled(reconciler)
            monitor = site.host.start("ip", "monitor", "route")
            await until(lambda: "198.51.100.1" in _disturb(site, monitor))
            machine.fleet.write(node(ME, 1, tunnel=77))
            await until(lambda: "src 10.99.0.77" in site.ip("route show table 7500", WORKLOAD))
            await until(lambda: OWN not in site.ip("address show dev holdfast4"))
            await settled(reconciler)
            there = await machine.holds()
        assert there[tunnel_address("10.99.0.77")] == TunnelAddress(32)
        assert tunnel_address(OWN) not in there
        assert f"Deleted {WORKLOAD.partition('/')[0]} " not in monitor.output
        monitor.kill()

    asyncio.run(scene())


def _disturb(site: HostHarness, monitor: object) -> str:
    for what in ("add", "del"):
        site.ip(f"route {what} blackhole 198.51.100.1/32 table 99")
    return str(getattr(monitor, "output", ""))


def test_a_tunnel_address_that_another_program_deletes_is_back_with_its_routes(
    site: HostHarness, tmp_path: Path
) -> None:
    machine = begun(site, tmp_path)

    async def scene() -> None:
        async with machine.agent() as reconciler:
            await settled(reconciler)
            site.ip(f"address del {OWN}/32 dev holdfast4")
            await until(lambda: OWN in site.ip("address show dev holdfast4"))
            await until(lambda: f"src {OWN}" in site.ip("route show table 7500", WORKLOAD))
            await until(lambda: "10.99.0.254" in site.ip("neighbour show dev holdfast4 nud permanent"))

    asyncio.run(scene())


def test_another_mac_of_this_host_changes_its_tunnel_in_place(site: HostHarness, tmp_path: Path) -> None:
    machine = begun(site, tmp_path)

    async def scene() -> None:
        async with machine.agent() as reconciler:
            await settled(reconciler)
            number = site.ip("-oneline link show holdfast4").partition(":")[0]
            machine.fleet.write(node(ME, 1, mac="66:00:00:00:00:77"))
            await until(lambda: "66:00:00:00:00:77" in site.ip("link show holdfast4"))
            await settled(reconciler)
            assert site.ip("-oneline link show holdfast4").partition(":")[0] == number
            assert "10.99.0.254" in site.ip("neighbour show dev holdfast4 nud permanent")
            assert f"src {OWN}" in site.ip("route show table 7500", WORKLOAD)

    asyncio.run(scene())


def test_a_tunnel_is_as_wide_as_the_underlay_lets_it_be(site: HostHarness, tmp_path: Path) -> None:
    machine = begun(site, tmp_path)
    site.ip(f"link set {site.uplink} mtu 9000")

    async def scene() -> None:
        async with machine.agent() as reconciler:
            await settled(reconciler)
            assert "mtu 8950 " in site.ip("link show holdfast4")
            assert "mtu 8930 " in site.ip("link show holdfast6")
            site.ip(f"link set {site.uplink} mtu 4000")
            await until(lambda: "mtu 3950 " in site.ip("link show holdfast4"))
            await until(lambda: "mtu 3930 " in site.ip("link show holdfast6"))

    asyncio.run(scene())


def test_a_tunnel_under_its_old_name_is_renamed_and_nothing_of_it_is_left(site: HostHarness, tmp_path: Path) -> None:
    machine = begun(site, tmp_path)

    async def scene() -> None:
        async with machine.agent() as reconciler:
            await settled(reconciler)
        before = await machine.holds()
        async with machine.agent(linux=LinuxSettings(device="edge")) as reconciler:
            await settled(reconciler)
            shown = site.ip("link show type vxlan")
            assert "edge4" in shown
            assert "edge6" in shown
            assert "holdfast" not in shown.replace("holdfast: owned", "")
        with site.dataplane(LinuxSettings(device="edge")) as reader:
            there = await reader.read()
        assert {key: shape for key, shape in there.items() if key in before} == before

    asyncio.run(scene())


def test_tunnels_that_no_peer_needs_any_more_are_deleted(site: HostHarness, tmp_path: Path) -> None:
    machine = Machine(site, tmp_path)
    fleet = machine.fleet
    fleet.write(fleet.joins("other", 9))

    async def scene() -> None:
        async with machine.agent() as reconciler:
            await settled(reconciler)
            assert isinstance((await machine.holds())[device(4)], VxlanDevice)
            fleet.write(fleet.leaves("other"))
            await until(lambda: "holdfast4" not in site.ip("link show"))
            await settled(reconciler)
            assert await machine.holds() == {}

    asyncio.run(scene())
