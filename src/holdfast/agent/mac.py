"""The MAC of a host's end of the tunnel, where nobody has chosen one: made from its name, and so known to everyone.

No host has to tell another which it is, and a tunnel device that is made anew has the one that the fleet uses already.
"""

from __future__ import annotations

import hashlib


def tunnel_mac(host: str, family: int) -> str:
    """Of that host, for an underlay of IPv4 or IPv6."""
    digest = hashlib.blake2b(f"{family} {host}".encode(), digest_size=6).digest()
    # Locally administered, and no group address.
    return bytes([digest[0] & 0xFC | 0x02, *digest[1:]]).hex(":")
