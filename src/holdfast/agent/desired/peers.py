"""Peers: the objects that another host, and an endpoint on it, occupy in this host's kernel. Pure.

Decides how a peer is reached: directly at its underlay address where both share a segment, through the VXLAN tunnel
otherwise, or as configured. The local host occupies nothing: it is never programmed, journalled or pruned. A host that
cannot be reached, or that claims an address of the local host, is refused with a sentence, and nothing is programmed
for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from ipaddress import ip_interface

import msgspec

from holdfast.agent.claims import (
    BITS,
    LONGEST_INTERFACE,
    Claim,
    ClaimKey,
    FdbEntry,
    GuardElement,
    InterfaceSetup,
    LocalRoute,
    Mode,
    NeighbourEntry,
    NexthopEntry,
    Owner,
    RemoteRoute,
    Shape,
    TunnelAddress,
    VxlanDevice,
    device,
    forwarding,
    guarded,
    interface,
    neighbour,
    nexthop,
    route,
    sender,
    source,
    tunnel_address,
)
from holdfast.agent.desired.slim_endpoint import SlimEndpoint
from holdfast.agent.tunnels import link_local, mac_of, tunnel_address_of
from holdfast.model.base.address import family
from holdfast.model.calico.host import Bgp, Host

FAMILIES = (4, 6)


class Encapsulation(Enum):
    """Policy for sending packets to another host through the VXLAN tunnel."""

    ALWAYS = "always"
    CROSS_SUBNET = "cross-subnet"
    NEVER = "never"


class Routing(Enum):
    """Way in which routes to the endpoints of other hosts get into this host's kernel."""

    MESH = "mesh"
    BGP = "bgp"


@dataclass(frozen=True, slots=True)
class LocalHost:
    """Properties of this host that decide how others are reached."""

    host: str
    encapsulation: Encapsulation = Encapsulation.CROSS_SUBNET
    routing: Routing = Routing.MESH
    arrival_metric: int | None = 0
    """Metric of routes to workloads that are still on their way here; None programs none before they have arrived."""
    addresses: frozenset[str] = frozenset()
    """Its own underlay and tunnel addresses, without prefix lengths."""
    networks: tuple[str, ...] = ()
    """Segments it is on, as `192.0.2.0/24`."""
    sets_up_interfaces: bool = False
    """Its dataplane makes it the gateway of its workloads."""
    guards: bool = False
    """Its dataplane guards interfaces and tunnels."""
    tunnel_addresses: tuple[tuple[int, str], ...] = ()
    """Its own addresses inside the tunnel, by family: the source of what it sends through the tunnel itself (N24)."""

    def at(self, own: Host | None) -> LocalHost:
        """Return this host with the addresses of its own Node."""
        if own is None:
            return replace(self, addresses=frozenset(), networks=())
        known = [text for text in _underlays(own) if text]
        tunnels = [own.spec.tunnel_ipv4, own.spec.tunnel_ipv6]
        addresses = frozenset(text.partition("/")[0] for text in (*known, *tunnels) if text)
        networks = tuple(str(ip_interface(text).network) for text in known if "/" in text)
        return replace(self, addresses=addresses, networks=networks, tunnel_addresses=self.own_tunnel_addresses(own))

    def own_tunnel_addresses(self, own: Host) -> tuple[tuple[int, str], ...]:  # protection: N24
        if self.encapsulation is Encapsulation.NEVER or self.routing is Routing.BGP:
            return ()
        return tuple((version, found) for version in FAMILIES if (found := tunnel_address_of(own, version)))

    def tunnel_address(self, version: int) -> str:
        return dict(self.tunnel_addresses).get(version, "")

    def preferred_source(self, version: int, mode: Mode) -> str:
        """Return the source of what this host itself sends to a peer; empty where the kernel chooses it."""
        return self.tunnel_address(version) if mode is Mode.VXLAN else ""

    def mode(self, underlay: str) -> Mode:
        if self.encapsulation is Encapsulation.ALWAYS:
            return Mode.VXLAN
        if self.encapsulation is Encapsulation.NEVER or _on_segment(underlay, self.networks):
            return Mode.DIRECT
        return Mode.VXLAN


class PeerReach(msgspec.Struct, frozen=True, gc=False):
    """Reachability of a peer in one family: the way of its routes, and the objects that it occupies for that."""

    route: RemoteRoute
    """Shape of every route to the peer."""
    mode: Mode
    shapes: tuple[tuple[ClaimKey, Shape], ...]


class Peer(msgspec.Struct, frozen=True, gc=False):
    """Another host. `reach` has the families in which it can be reached; `refusal` says why there are none."""

    owner: Owner
    reach: tuple[tuple[int, PeerReach], ...] = ()
    refusal: str = ""

    def claims(self) -> Iterator[tuple[ClaimKey, Claim]]:
        for _, reach in self.reach:
            for key, shape in reach.shapes:
                yield key, Claim(shape, self.owner)

    def route(self, version: int) -> RemoteRoute | None:
        return next((reach.route for known, reach in self.reach if known == version), None)

    def tunnels(self) -> list[int]:
        """Return the families in which it is reached through the tunnel."""
        return [version for version, reach in self.reach if reach.mode is Mode.VXLAN]


def peer(host: Host, here: LocalHost) -> Peer:
    """Decide what that host occupies on this one."""
    name = host.metadata.name
    owner = Owner(name, host.metadata.uid)
    spec = host.spec
    ours = here.addresses & {*filter(None, (host.underlay(4), host.underlay(6), spec.tunnel_ipv4, spec.tunnel_ipv6))}
    if ours:
        return Peer(owner, refusal=f"host {name} claims {', '.join(sorted(ours))}, which is an address of this host")
    reach = tuple((version, found) for version in FAMILIES if (found := _reach(host, version, here)) is not None)
    return Peer(owner, reach, "" if reach else f"host {name} has no underlay address")


def remote_routes(endpoint: SlimEndpoint, to: Peer) -> Iterator[tuple[ClaimKey, Claim]]:
    """Routes to an endpoint on another host, in the families in which that host is reached."""
    owner = Owner(to.owner.host, to.owner.incarnation, endpoint.joined)
    for prefix in endpoint.prefixes:
        way = to.route(prefix.family)
        if way is not None:
            yield prefix, Claim(way, owner)


def local_routes(endpoint: SlimEndpoint, metric: int | None = 0) -> Iterator[tuple[ClaimKey, Claim]]:
    """Routes to an endpoint on this host; a metric of None stands for none."""
    if metric is None:
        return
    owner = Owner(endpoint.node, "", endpoint.joined)
    for prefix in endpoint.prefixes if endpoint.interface else ():
        yield prefix, Claim(LocalRoute(endpoint.interface, metric), owner)


def local_setup(endpoint: SlimEndpoint, here: LocalHost) -> Iterator[tuple[ClaimKey, Claim]]:
    """Setup of the interface of an endpoint on this host."""
    name = endpoint.interface
    if not here.sets_up_interfaces or not 0 < len(name.encode()) <= LONGEST_INTERFACE:
        return  # no interface can have a longer name
    owner = Owner(endpoint.node, "", endpoint.joined)
    for version in sorted({prefix.family for prefix in endpoint.prefixes}):
        yield interface(version, name), Claim(InterfaceSetup(), owner)
    if here.guards:
        for prefix in _outermost((*endpoint.prefixes, *endpoint.allowed)):
            yield source(name, prefix), Claim(GuardElement(), owner)
        yield guarded(name), Claim(GuardElement(), owner)


def _outermost(prefixes: Iterable[ClaimKey]) -> list[ClaimKey]:
    """Leave out networks inside another one: the kernel refuses ranges that overlap."""
    known = list(dict.fromkeys(prefixes))
    return [one for one in known if not any(_is_inside(one, other) for other in known)]


def _is_inside(one: ClaimKey, other: ClaimKey) -> bool:
    if one.family != other.family or other.length >= one.length:
        return False
    spare = BITS[one.family] - other.length
    return one.number >> spare == other.number >> spare


def tunnel_claims(here: LocalHost, version: int, mac: str) -> Iterator[tuple[ClaimKey, Claim]]:
    """Objects of this host's own tunnel in one family: the device, and the address of the host on it."""
    owner, own = Owner(here.host), here.tunnel_address(version)
    yield device(version), Claim(VxlanDevice(mac), owner)
    if own:
        yield tunnel_address(own), Claim(TunnelAddress(BITS[version]), owner)


def _reach(host: Host, version: int, here: LocalHost) -> PeerReach | None:
    underlay = host.underlay(version)
    if underlay is None:
        return None
    mode, mac, inside = here.mode(underlay), mac_of(host, version), tunnel_address_of(host, version)
    if mode is Mode.DIRECT:
        gateway = underlay
        shapes: tuple[tuple[ClaimKey, Shape], ...] = ((nexthop(underlay), NexthopEntry(mode)),)
    else:
        # Without a tunnel address, any address that Linux accepts as a gateway inside the tunnel will do; for IPv6 it
        # must not be routed elsewhere, as the underlay address is.
        gateway = inside or (underlay if version == 4 else link_local(mac))
        shapes = (
            (forwarding(version, mac), FdbEntry(underlay)),
            (neighbour(gateway), NeighbourEntry(mac)),
            (nexthop(gateway), NexthopEntry(mode)),
        )
    way = RemoteRoute(gateway, here.preferred_source(version, mode))
    # What that host itself sends through the tunnel comes from its tunnel address: answers must find it.
    itself = ((route(f"{inside}/{BITS[version]}"), way),) if inside else ()
    return PeerReach(way, mode, (*shapes, *_senders(host, version, here), *itself))


def _senders(host: Host, version: int, here: LocalHost) -> Iterator[tuple[ClaimKey, Shape]]:
    """Addresses from which that host may send through the tunnel, however it is reached from here: it decides for
    itself whether it encapsulates, and with several addresses may send from any of them."""
    if here.guards and here.encapsulation is not Encapsulation.NEVER:  # with that, there is no tunnel device
        for one in dict.fromkeys(underlays(host)):
            if family(one) == version:
                yield sender(one), GuardElement()


def underlays(host: Host) -> list[str]:
    """Addresses at which that host itself is reached, without prefix lengths."""
    return [text.partition("/")[0] for text in _underlays(host) if text]


def _underlays(host: Host) -> list[str]:
    bgp = host.spec.bgp or Bgp()
    return [bgp.ipv4_address, bgp.ipv6_address, *(each.address for each in host.spec.addresses)]


def _on_segment(address: str, networks: tuple[str, ...]) -> bool:
    found = ip_interface(address).ip
    return any(found in ip_interface(network).network for network in networks)
