"""MACs of VXLAN devices. Without a configured one, a host's MAC is derived from its name, so every host can compute it.

No host has to publish its MAC, and a tunnel device that is created again has the one that the fleet already uses.
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


class TunnelMacs:
    """MACs of this host's own VXLAN devices, unknown until its source has delivered a complete list."""

    def __init__(self) -> None:
        self._known: Mapping[int, str] = {}

    def of(self, family: int) -> str | None:
        return self._known.get(family)

    def all(self) -> tuple[str, ...]:
        """Return the known ones, IPv4 first."""
        return tuple(mac for family in (4, 6) if (mac := self.of(family)))

    def record(self, macs: Mapping[int, str]) -> None:
        self._known = macs
