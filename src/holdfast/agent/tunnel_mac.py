"""The MAC of a host's end of the tunnel, where nobody has chosen one: made from its name, and so known to everyone.

No host has to tell another which it is, and a tunnel device that is made anew has the one that the fleet uses already.
"""

from __future__ import annotations

import hashlib
from ipaddress import IPv6Address

from holdfast.model.calico.host import Host


def tunnel_mac(host: str, family: int) -> str:
    """Of that host, for an underlay of IPv4 or IPv6."""
    digest = hashlib.blake2b(f"{family} {host}".encode(), digest_size=6).digest()
    # Locally administered, and no group address.
    return bytes([digest[0] & 0xFC | 0x02, *digest[1:]]).hex(":")


def mac_of(host: Host, family: int) -> str:
    """The MAC by which all hosts know that one's end of the tunnel: the one that its Node says, or its own."""
    said = host.spec.tunnel_mac if family == 4 else host.spec.tunnel_mac_v6
    return said or tunnel_mac(host.metadata.name, family)


def link_local(mac: str) -> str:
    """The IPv6 address that a device with that MAC has on its own link."""
    octets = bytes.fromhex(mac.replace(":", ""))
    identifier = bytes([octets[0] ^ 0x02, *octets[1:3], 0xFF, 0xFE, *octets[3:]])
    return str(IPv6Address(b"\xfe\x80" + bytes(6) + identifier))
