"""What the dataplane is called in the kernel: numbers and names by which its objects are known as ours.

They outlive the agent: under another protocol number, the objects of today are somebody else's tomorrow.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from holdfast.agent.claims import Key, Rule, Shape, rule

FAMILIES = (4, 6)
OWNED = "holdfast: owned by its agent"
"""The alias of a device of ours."""
_OVERHEAD = {4: 50, 6: 70}


@dataclass(frozen=True, slots=True)
class TunnelEnd:
    """This host's end of the tunnel in one family."""

    mac: str
    address: str = ""


@dataclass(frozen=True, slots=True)
class Settings:
    """How one agent's objects are told from all others. The defaults collide with no well-known software."""

    protocol: int = 175
    table: int = 7500
    priority: int = 20_000
    first_nexthop: int = 750_000_000
    vni: int = 7500
    port: int = 4789
    device: str = "holdfast"
    underlay_mtu: int = 1500
    ends: Mapping[int, TunnelEnd] = field(default_factory=dict)

    def device_name(self, family: int) -> str:
        return f"{self.device}{family}"

    def mtu(self, family: int) -> int:
        return self.underlay_mtu - _OVERHEAD[family]

    def own(self) -> dict[Key, Shape]:
        """What no peer asks for and what must be there all the same."""
        return {rule(family, self.table): Rule(self.priority) for family in FAMILIES}


def tunnel_mac(host: str, family: int) -> str:
    """The MAC of a host's tunnel when nobody has chosen one: the same after every restart, on every machine."""
    digest = hashlib.blake2b(f"{family} {host}".encode(), digest_size=6).digest()
    # Locally administered, and no group address.
    return bytes([digest[0] & 0xFC | 0x02, *digest[1:]]).hex(":")
