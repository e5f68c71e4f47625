"""Claims: what a peer occupies in this host's kernel. Keys, shapes, owners, and what leans on what.

**A key names one object that the kernel can hold**, never who wanted it: a forwarding entry is its MAC, a neighbour and
a nexthop are their address, a route is its prefix, local or remote. So when an address, a tunnel address, a MAC or a
prefix moves to another host, that is one REPLACE of one key, and nothing of a live owner is ever deleted on behalf of a
dead one (N8, N9). A shape is what the kernel can show of it. The owner is what only the journal and the store know.

Keys sort as they are applied and as people count: what is leaned upon first, IPv4 before IPv6, 10.0.0.2 before
10.0.0.10.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, IntEnum
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address
from typing import NamedTuple

import msgspec

from holdfast.reconcile import Kinds


class ClaimKind(IntEnum):
    """The sorts of kernel objects; each may lean only on ones of a lower number."""

    RULE = 0
    """The `ip rule` of one family that sends traffic to our own table."""
    FORWARDING = 1
    """An FDB entry on the VXLAN device of one underlay family: by this MAC, to that underlay address."""
    NEIGHBOUR = 2
    """A neighbour on a VXLAN device: this tunnel address has that MAC."""
    NEXTHOP = 3
    """A nexthop object: through the tunnel to a tunnel address, or straight to an underlay address."""
    ROUTE = 4
    """A route in our own table."""

    __hash__ = int.__hash__  # an enum's own is written in Python, and every look at a key asks for it


_BITS = {4: 32, 6: 128}
_MAC_BITS = 48


class ClaimKey(NamedTuple):
    """One object in the kernel. `number` is the address, the MAC, or for a rule the table, as a number."""

    sort: ClaimKind
    family: int
    number: int
    length: int

    @property
    def text(self) -> str:
        """The address, MAC or prefix alone."""
        if self.sort is ClaimKind.RULE:
            return f"IPv{self.family} table {self.number}"
        if self.sort is ClaimKind.FORWARDING:
            return _mac(self.number)
        host = str(IPv4Address(self.number) if self.family == 4 else IPv6Address(self.number))
        return f"{host}/{self.length}" if self.sort is ClaimKind.ROUTE else host

    def __str__(self) -> str:
        return f"{self.sort.name.lower()} {self.text}"


def rule(family: int, table: int) -> ClaimKey:
    return ClaimKey(ClaimKind.RULE, family, table, 0)


def forwarding(family: int, mac: str) -> ClaimKey:
    """`family` is that of the underlay: there is one VXLAN device for each."""
    return ClaimKey(ClaimKind.FORWARDING, family, int(mac.replace(":", ""), 16), _MAC_BITS)


def neighbour(address: str) -> ClaimKey:
    family, number = _parsed(address)
    return ClaimKey(ClaimKind.NEIGHBOUR, family, number, _BITS[family])


@lru_cache(maxsize=1 << 16)
def nexthop(address: str) -> ClaimKey:
    """By its gateway: a tunnel address, or the underlay address of a host that is reached directly.

    Remembered, because every route of a host asks for the same one.
    """
    family, number = _parsed(address)
    return ClaimKey(ClaimKind.NEXTHOP, family, number, _BITS[family])


def route(prefix: str) -> ClaimKey:
    address, _, length = prefix.partition("/")
    return ClaimKey(ClaimKind.ROUTE, *_parsed(address), int(length))


def _parsed(address: str) -> tuple[int, int]:
    """Family and number of a text that has been accepted before: the model refuses every other spelling."""
    if ":" in address:
        return 6, int(IPv6Address(address))
    a, b, c, d = address.split(".")
    return 4, int(a) << 24 | int(b) << 16 | int(c) << 8 | int(d)


class Mode(Enum):
    """How packets for a peer leave this host."""

    VXLAN = "vxlan"
    DIRECT = "direct"


class RoutingRule(msgspec.Struct, frozen=True, gc=False, tag="rule"):
    priority: int


class FdbEntry(msgspec.Struct, frozen=True, gc=False, tag="forwarding"):
    to: str
    """The underlay address of the host with this tunnel MAC."""


class NeighbourEntry(msgspec.Struct, frozen=True, gc=False, tag="neighbour"):
    mac: str


class NexthopEntry(msgspec.Struct, frozen=True, gc=False, tag="nexthop"):
    mode: Mode


class RemoteRoute(msgspec.Struct, frozen=True, gc=False, tag="remote"):
    """A prefix behind another host."""

    via: str
    """The gateway of its nexthop."""


class LocalRoute(msgspec.Struct, frozen=True, gc=False, tag="local"):
    """A prefix of a workload on this host."""

    interface: str


Shape = RoutingRule | FdbEntry | NeighbourEntry | NexthopEntry | RemoteRoute | LocalRoute
"""What the kernel can show of an object. Its type goes with the sort of its key; a route is Remote or Local."""


class Owner(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Whose claim it is. Nobody's (all empty) is what is known only from the kernel's tags."""

    host: str = ""
    incarnation: str = ""
    """Tells a host from an earlier one of the same name: the uid of its Node."""
    endpoint: str = ""
    """For a route: the endpoint with that prefix."""

    def __bool__(self) -> bool:
        return bool(self.host)


NOBODY = Owner()


class Claim(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One object in the kernel with its owner: the value that is compared, journalled and handed to every handler."""

    shape: Shape
    owner: Owner = NOBODY
    missing: bool = False
    """It is remembered and the kernel does not have it: it has to be made again, or taken off the journal."""


def leans_on(key: ClaimKey, shape: Shape) -> ClaimKey | None:
    """The object without which this one is refused by the kernel, or carries nothing."""
    if isinstance(shape, RemoteRoute):
        return nexthop(shape.via)
    if isinstance(shape, NexthopEntry):
        return key._replace(sort=ClaimKind.NEIGHBOUR) if shape.mode is Mode.VXLAN else None
    if isinstance(shape, NeighbourEntry):
        return forwarding(key.family, shape.mac)
    return None


_NAMES: Mapping[ClaimKind, str] = {sort: sort.name.lower() for sort in ClaimKind}

KINDS: Kinds[ClaimKey] = Kinds(of=lambda key: _NAMES[key.sort], order=tuple(_NAMES.values()))


def _mac(number: int) -> str:
    digits = f"{number:012x}"
    return ":".join(digits[i : i + 2] for i in range(0, 12, 2))
