"""Peers: the objects that another host, and an endpoint on it, occupy in this host's kernel. Pure.

Decides how a peer is reached: directly at its underlay address where both share a segment, through the VXLAN tunnel
otherwise, or as configured. The local host occupies nothing: it is never programmed, journalled or pruned. A host that
cannot be reached, or that claims an address of the local host, is refused with a sentence, and nothing is programmed
for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from ipaddress import ip_interface

import msgspec

from holdfast.agent.claims import (
    Claim,
    ClaimKey,
    FdbEntry,
    LocalRoute,
    Mode,
    NeighbourEntry,
    NexthopEntry,
    Owner,
    RemoteRoute,
    Shape,
    forwarding,
    neighbour,
    nexthop,
    route,
)
from holdfast.agent.desired.slim_endpoint import SlimEndpoint
from holdfast.agent.tunnel_mac import link_local, mac_of
from holdfast.model.base.address import family
from holdfast.model.calico.host import Bgp, Host

FAMILIES = (4, 6)


class Encapsulation(Enum):
    """Policy for sending packets to another host through the VXLAN tunnel."""

    ALWAYS = "always"
    CROSS_SUBNET = "cross-subnet"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class LocalHost:
    """Properties of this host that decide how others are reached."""

    host: str
    encapsulation: Encapsulation = Encapsulation.CROSS_SUBNET
    addresses: frozenset[str] = frozenset()
    """Its own underlay and tunnel addresses, without prefix lengths."""
    networks: tuple[str, ...] = ()
    """Segments it is on, as `192.0.2.0/24`."""

    def at(self, own: Host | None) -> LocalHost:
        """Return this host with the addresses of its own Node."""
        if own is None:
            return LocalHost(self.host, self.encapsulation)
        known = [text for text in _underlays(own) if text]
        tunnels = [own.spec.tunnel_ipv4, own.spec.tunnel_ipv6]
        addresses = frozenset(text.partition("/")[0] for text in (*known, *tunnels) if text)
        networks = tuple(str(ip_interface(text).network) for text in known if "/" in text)
        return LocalHost(self.host, self.encapsulation, addresses, networks)

    def mode(self, underlay: str) -> Mode:
        if self.encapsulation is Encapsulation.ALWAYS:
            return Mode.VXLAN
        if self.encapsulation is Encapsulation.NEVER or _on_segment(underlay, self.networks):
            return Mode.DIRECT
        return Mode.VXLAN


class PeerReach(msgspec.Struct, frozen=True, gc=False):
    """Reachability of a peer in one family: the gateway of its routes, and the objects that it occupies for that."""

    gateway: str
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

    def gateway(self, version: int) -> str | None:
        return next((reach.gateway for known, reach in self.reach if known == version), None)


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
        gateway = to.gateway(family(prefix))
        if gateway is not None:
            yield route(prefix), Claim(RemoteRoute(gateway), owner)


def local_routes(endpoint: SlimEndpoint) -> Iterator[tuple[ClaimKey, Claim]]:
    """Routes to an endpoint on this host."""
    owner = Owner(endpoint.node, "", endpoint.joined)
    for prefix in endpoint.prefixes if endpoint.interface else ():
        yield route(prefix), Claim(LocalRoute(endpoint.interface), owner)


def _reach(host: Host, version: int, here: LocalHost) -> PeerReach | None:
    underlay = host.underlay(version)
    if underlay is None:
        return None
    if here.mode(underlay) is Mode.DIRECT:
        return PeerReach(underlay, ((nexthop(underlay), NexthopEntry(Mode.DIRECT)),))
    mac = mac_of(host, version)
    tunnel = host.spec.tunnel_ipv4 if version == 4 else host.spec.tunnel_ipv6
    # Without a configured tunnel address, any address that Linux accepts as a gateway inside the tunnel will do; for
    # IPv6 it must not be routed elsewhere, as the underlay address is.
    tunnel = tunnel or (underlay if version == 4 else link_local(mac))
    return PeerReach(
        tunnel,
        (
            (forwarding(version, mac), FdbEntry(underlay)),
            (neighbour(tunnel), NeighbourEntry(mac)),
            (nexthop(tunnel), NexthopEntry(Mode.VXLAN)),
        ),
    )


def underlays(host: Host) -> list[str]:
    """Addresses at which that host itself is reached, without prefix lengths."""
    return [text.partition("/")[0] for text in _underlays(host) if text]


def _underlays(host: Host) -> list[str]:
    bgp = host.spec.bgp or Bgp()
    return [bgp.ipv4_address, bgp.ipv6_address, *(each.address for each in host.spec.addresses)]


def _on_segment(address: str, networks: tuple[str, ...]) -> bool:
    found = ip_interface(address).ip
    return any(found in ip_interface(network).network for network in networks)
