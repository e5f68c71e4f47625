"""One host in a network namespace of its own, with a dataplane on its kernel."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

from holdfast.agent.claims import (
    Claim,
    ClaimKey,
    FdbEntry,
    Mode,
    NeighbourEntry,
    NexthopEntry,
    RemoteRoute,
    Shape,
    VxlanDevice,
    device,
    forwarding,
    neighbour,
    nexthop,
    route,
)
from holdfast.agent.dataplane.api import ClaimChange
from holdfast.agent.dataplane.linux import LinuxDataplane
from holdfast.agent.dataplane.linux.devices import UnderlayLookup
from holdfast.agent.tunnels import tunnel_mac
from holdfast.config.sections.linux import LinuxSettings
from holdfast.netlink.netns import inside
from holdfast.reconcile import Change, Op, Owned
from holdfast.testing.real.netns import Namespace, NamespaceNetwork

_CLEAR = """
for family in -4 -6; do
    ip $family route flush table 7500
    ip $family rule del protocol 175
done 2>/dev/null
ip nexthop flush protocol 175
for device in holdfast4 holdfast6; do ip link del $device; done 2>/dev/null
true
"""


class HostHarness:
    """A host with a cable to a switch, on 10.0.0.0/24 and fd00::/64; it is .1 there."""

    def __init__(self, net: NamespaceNetwork, name: str = "host") -> None:
        self.net = net
        self.host: Namespace = net.namespace(name)
        self.switch: Namespace = net.namespace(f"{name}-sw")
        self.uplink = net.cable(self.host, self.switch, "10.0.0.1/24", "10.0.0.254/24")
        self.ip("address add fd00::1/64 dev", self.uplink, "nodad")

    def ip(self, *words: str) -> str:
        return self.host.run("ip", *" ".join(words).split())

    def interface(self, name: str) -> str:
        """A workload's interface, up and with a carrier."""
        self.ip(f"link add {name} type veth peer name {name}-w")
        self.ip(f"link set {name}-w up")
        self.ip(f"link set {name} up")
        return name

    def clear(self) -> None:
        """Removes everything of ours."""
        self.host.run("sh", "-c", _CLEAR)

    @contextlib.contextmanager
    def dataplane(
        self,
        settings: LinuxSettings | None = None,
        underlays: UnderlayLookup = lambda _family: None,
        *,
        guard: bool = False,
        is_routed: bool = False,
    ) -> Iterator[LinuxDataplane]:
        made = inside(
            self.host.system_name, lambda: LinuxDataplane(settings, underlays, guard=guard, is_routed=is_routed)
        )
        try:
            yield made
        finally:
            made.close()


def vxlan_peer(number: int) -> dict[ClaimKey, Shape]:
    """Objects of a peer behind the tunnel, in both families, with one endpoint in each."""
    mac, under = f"02:00:00:00:00:{number:02x}", f"192.0.2.{number}"
    mac_6, under_6 = f"02:00:00:00:06:{number:02x}", f"2001:db8::{number:x}"
    made: dict[ClaimKey, Shape] = {}
    for family, one_mac, one_under, tunnel, prefix in (
        (4, mac, under, f"10.9.0.{number}", f"10.28.0.{number}/32"),
        (6, mac_6, under_6, f"fd00:9::{number:x}", f"fd00:28::{number:x}/128"),
    ):
        made[device(family)] = VxlanDevice(tunnel_mac("host", family))
        made[forwarding(family, one_mac)] = FdbEntry(one_under)
        made[neighbour(tunnel)] = NeighbourEntry(one_mac)
        made[nexthop(tunnel)] = NexthopEntry(Mode.VXLAN)
        made[route(prefix)] = RemoteRoute(tunnel)
    return made


def direct_peer(number: int) -> dict[ClaimKey, Shape]:
    """Objects of a peer on the same segment, with one endpoint in each family."""
    made: dict[ClaimKey, Shape] = {}
    for address, prefix in (
        (f"10.0.0.{number}", f"10.29.0.{number}/32"),
        (f"fd00::{number:x}", f"fd00:29::{number:x}/128"),
    ):
        made[nexthop(address)] = NexthopEntry(Mode.DIRECT)
        made[route(prefix)] = RemoteRoute(address)
    return made


def creates(wanted: Mapping[ClaimKey, Shape]) -> list[ClaimChange]:
    return [Change(Op.CREATE, key, None, _owned(wanted[key])) for key in sorted(wanted)]


def deletes(gone: Mapping[ClaimKey, Shape]) -> list[ClaimChange]:
    return [Change(Op.DELETE, key, _owned(gone[key]), None) for key in sorted(gone, reverse=True)]


def replace(key: ClaimKey, old: Shape, new: Shape) -> ClaimChange:
    return Change(Op.REPLACE, key, _owned(old), _owned(new))


def _owned(shape: Shape) -> Owned[Claim]:
    return Owned(Claim(shape), "test", 1)
