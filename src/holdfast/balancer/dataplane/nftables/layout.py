"""Layout of our table: its maps, the encoding of keys and data, and the names of objects.

A VIP is an element of one of three maps per family: by port, by protocol, or by the address alone. They are searched in
this order, so that the most specific VIP wins. The element leads to the chain of the VIP, which has a bucket map. A
backend under a VIP is a mark; two maps per family hold its address, or its address and port.

The table describes itself: the comment of an element has what the packet path does not need (the weight, whether flows
were killed). So a balancer that starts reads everything from the kernel, and a person reads it with `nft list`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Container, Iterator
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address

from holdfast.balancer.maglev.table import BackendId
from holdfast.balancer.vip import (
    PROTOCOLS,
    BackendEntry,
    Vip,
    VipKey,
    VipSettings,
    backend_from,
    shown,
    vip_from,
)

MARKS = 0x4800_0000
"""Upper eight bits of our marks; numbers of buckets, which use the same field for a moment, never have them."""
MARK_MASK = 0xFF00_0000
_ROOM = 0xFF_FFFF

OPENED, TRAFFIC = "opened", "traffic"
"""Sets of all our marks, of which a table has one: each element counts flows at their first packets, or all packets."""

_WIDTHS = {4: 4, 6: 16}
_PROTOCOL_NAMES = {number: name for name, number in PROTOCOLS.items()}
_STICKY = "sticky"
_ENDED = "ended"


@dataclass(frozen=True, slots=True)
class VipMap:
    """Map from VIPs to their chains."""

    family: int
    has_protocol: bool
    has_port: bool

    @property
    def name(self) -> str:
        what = "port" if self.has_port else "protocol" if self.has_protocol else "address"
        return f"vip{self.family}-{what}"

    def key(self, vip: Vip) -> bytes:
        """Encode a key; each part begins at a multiple of four bytes."""
        made = vip.address.to_bytes(_WIDTHS[self.family], "big")
        if self.has_protocol:
            made += bytes([vip.protocol, 0, 0, 0])
        if self.has_port:
            made += vip.port.to_bytes(2, "big") + b"\0\0"
        return made

    def vip(self, key: bytes) -> Vip:
        """Decode a key. Raises ValueError for a key that is not of this map."""
        width = _WIDTHS[self.family]
        if len(key) != width + 4 * (self.has_protocol + self.has_port):
            raise ValueError("a key of another length")
        protocol = key[width] if self.has_protocol else PROTOCOLS["any"]
        if protocol not in _PROTOCOL_NAMES:
            raise ValueError("a protocol that no VIP has")
        port = int.from_bytes(key[width + 4 : width + 6], "big") if self.has_port else 0
        return Vip(self.family, int.from_bytes(key[:width], "big"), protocol, port)


VIP_MAPS = tuple(
    VipMap(family, has_protocol, has_port)
    for family in (4, 6)
    for has_protocol, has_port in ((True, True), (True, False), (False, False))
)


def vip_map(vip: Vip) -> VipMap:
    return VipMap(vip.family, vip.protocol != PROTOCOLS["any"], vip.port != 0)


@dataclass(frozen=True, slots=True)
class BackendMap:
    """Map from marks to the destination of packets."""

    family: int
    has_port: bool

    @property
    def name(self) -> str:
        return f"backend{self.family}-{'port' if self.has_port else 'address'}"

    def data(self, backend: BackendId) -> bytes:
        made = backend.address.to_bytes(_WIDTHS[self.family], "big")
        return made + backend.port.to_bytes(2, "big") + b"\0\0" if self.has_port else made


BACKEND_MAPS = tuple(BackendMap(family, has_port) for family in (4, 6) for has_port in (True, False))


def backend_map(key: VipKey) -> BackendMap:
    """Map of an entry. A backend without a port, or under a VIP for all protocols, keeps the destination port."""
    return BackendMap(key.backend.family, bool(key.backend.port) and key.vip.protocol != PROTOCOLS["any"])


MAPS = frozenset((*(one.name for one in VIP_MAPS), *(one.name for one in BACKEND_MAPS)))
"""Maps that always exist."""


def is_mark(number: int) -> bool:
    return number & MARK_MASK == MARKS


def mark_of(key: VipKey, used: Container[int]) -> int:
    """Choose the mark of an entry, the same each time it is created: flows outlive the table, and killing the flows of
    a mark must not affect those of another backend. Marks in use are skipped."""
    digest = hashlib.blake2b(
        f"{key.vip} {shown(key.backend)}".encode(), digest_size=4, person=b"holdfast-mark"
    ).digest()
    number = int.from_bytes(digest, "big")
    while (mark := MARKS | number & _ROOM) in used:
        number += 1
    return mark


@lru_cache(maxsize=1 << 14)
def name_of(vip: Vip) -> str:
    """VIP as part of a name: `192.0.2.1-tcp-80`, `2001.db8..1-udp-all`."""
    address = str(IPv4Address(vip.address) if vip.family == 4 else IPv6Address(vip.address)).replace(":", ".")
    return f"{address}-{_PROTOCOL_NAMES[vip.protocol]}-{vip.port or 'all'}"


def chain_of(vip: Vip) -> str:
    return f"vip-{name_of(vip)}"


def buckets_of(vip: Vip, size: int) -> str:
    """Name of a bucket map. Another size is another map, which is filled before the chain uses it."""
    return f"buckets-{name_of(vip)}-{size}"


def without_size(name: str) -> str:
    """Name of a bucket map without its size."""
    return name.rpartition("-")[0]


def belongs_to_a_vip(name: str) -> bool:
    """Tell whether a chain or map of this name belongs to a VIP."""
    return name.startswith(("vip-", "buckets-"))


def vip_comment(settings: VipSettings) -> str:
    """Comment of a VIP: its number of buckets, the algorithm, and whether it is sticky."""
    sticky = f"{_STICKY} " if settings.sticky else ""
    return f"{sticky}buckets {settings.table_size} algorithm {settings.algorithm}"


def settings_from(comment: str, sizes: Collection[int] = ()) -> Iterator[VipSettings]:
    """Settings that the comment of a VIP may mean. An older one has no size: then it is one of `sizes`, those of the
    VIP's bucket maps, or unknown."""
    found = _SETTINGS(comment)
    if found is not None:
        yield VipSettings(bool(found[1]), int(found[2]), int(found[3]))
        return
    for size in (*sizes, 0):
        yield VipSettings(comment == _STICKY, size)


def entry_comment(key: VipKey, entry: BackendEntry) -> str:
    """Comment of an entry: VIP, backend, weight, its base weight where that differs, and whether flows were killed."""
    base = f" of {entry.base}" if entry.base != entry.weight else ""
    ended = f" {_ENDED}" if entry.kill else ""
    return f"{key.vip} {shown(key.backend)} weight {entry.weight}{base}{ended}"


_SETTINGS = re.compile(rf"({_STICKY} )?buckets (\d{{1,9}}) algorithm (\d{{1,9}})").fullmatch
_ENTRY = re.compile(rf"(\S+) (\S+) weight (\d{{1,3}})(?: of (\d{{1,3}}))?( {_ENDED})?").fullmatch


@lru_cache(maxsize=1 << 16)
def entry_from(comment: str) -> tuple[VipKey, BackendEntry]:
    """Parse the comment of an entry. Raises ValueError for any other text."""
    if (found := _ENTRY(comment)) is None:
        raise ValueError(f"not an entry: {comment!r}")
    weight = int(found[3])
    entry = BackendEntry(weight, found[5] is not None, weight if found[4] is None else int(found[4]))
    return VipKey(vip_from(found[1]), backend_from(found[2])), entry
