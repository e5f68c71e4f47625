"""Tunnels of a host: the MACs of its VXLAN devices, and its own addresses in and below them.

Without a configured MAC, that of a host is derived from its name, so every host can compute it: no host has to publish
its MAC, and a tunnel device that is created again has the one that the fleet already uses.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from ipaddress import IPv6Address

from holdfast.model.calico.host import Host


def tunnel_mac(host: str, family: int) -> str:
    """Derive the MAC of that host, for an underlay of IPv4 or IPv6."""
    digest = hashlib.blake2b(f"{family} {host}".encode(), digest_size=6).digest()
    # Locally administered, and no group address.
    return bytes([digest[0] & 0xFC | 0x02, *digest[1:]]).hex(":")


def mac_of(host: Host, family: int) -> str:
    """Return the MAC by which every host knows that host's VXLAN device: the one in its Node, or the derived one."""
    configured = host.spec.tunnel_mac if family == 4 else host.spec.tunnel_mac_v6
    return configured or tunnel_mac(host.metadata.name, family)


def link_local(mac: str) -> str:
    """Return the IPv6 address that a device with that MAC has on its own link."""
    octets = bytes.fromhex(mac.replace(":", ""))
    identifier = bytes([octets[0] ^ 0x02, *octets[1:3], 0xFF, 0xFE, *octets[3:]])
    return str(IPv6Address(b"\xfe\x80" + bytes(6) + identifier))


def tunnel_address_of(host: Host, family: int) -> str:
    """Return the address of that host inside the tunnel; empty if it has none of its own."""
    found = host.spec.tunnel_ipv4 if family == 4 else host.spec.tunnel_ipv6
    return "" if found == host.underlay(family) else found


class OwnTunnels:
    """Tunnels of this host itself, unknown until its source has delivered a complete list."""

    def __init__(self) -> None:
        self._macs: Mapping[int, str] = {}
        self._own: Host | None = None

    def macs(self) -> tuple[str, ...]:
        """Return the known MACs, IPv4 first."""
        return tuple(self._macs[family] for family in sorted(self._macs))

    def underlay(self, family: int) -> str | None:
        """Return the address of this host to which others send the packets of a tunnel, as far as it is known."""
        return None if self._own is None else self._own.underlay(family)

    def record(self, macs: Mapping[int, str], own: Host | None) -> None:
        self._macs, self._own = macs, own
