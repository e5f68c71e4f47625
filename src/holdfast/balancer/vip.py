"""Objects in a dataplane: VIPs, and entries of backends under VIPs. Keys, values, and how they are shown.

A key is made of addresses, never of configured names: renaming a frontend changes nothing in the dataplane. Keys sort
in the order of the calls, which is numeric: IPv4 before IPv6, 10.0.0.2 before 10.0.0.10, a VIP before its entries (B2).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from ipaddress import IPv4Address, IPv6Address
from typing import NamedTuple

from holdfast.balancer.maglev.table import ALGORITHM, BackendId, BucketWeight
from holdfast.config.sections.frontend import DEFAULT_TABLE_SIZE
from holdfast.model.base.address import address_order
from holdfast.reconcile import Kinds

PROTOCOLS: Mapping[str, int] = {"any": 0, "tcp": 6, "udp": 17}
_NAMES = {number: name for name, number in PROTOCOLS.items()}


class Vip(NamedTuple):
    """Virtual address, protocol and port; port 0 stands for all ports."""

    family: int
    address: int
    protocol: int
    port: int

    @classmethod
    def of(cls, address: str, protocol: str, port: int) -> Vip:
        return cls(*address_order(address), PROTOCOLS[protocol], port)

    @property
    def host(self) -> str:
        """The address as text, without port and protocol."""
        return str(IPv4Address(self.address) if self.family == 4 else IPv6Address(self.address))

    def __str__(self) -> str:
        port = str(self.port) if self.port else "*"
        return f"{_host(self.family, self.address)}:{port}/{_NAMES[self.protocol]}"


NO_BACKEND = BackendId(0, 0, 0)


class VipKey(NamedTuple):
    """Key of one object: a VIP, or with a backend, the entry of that backend under the VIP."""

    vip: Vip
    backend: BackendId = NO_BACKEND

    def __str__(self) -> str:
        return str(self.vip) if self.backend == NO_BACKEND else f"{self.vip} → {shown(self.backend)}"


@dataclass(frozen=True, slots=True)
class VipSettings:
    """Attributes of a VIP. The dataplane says which of them can change without a rebuild."""

    sticky: bool | None = False
    """All flows of a client go to one backend (hash of the source address alone). None: the dataplane cannot tell."""
    table_size: int = DEFAULT_TABLE_SIZE
    """Number of buckets; 0 where it cannot be told."""
    algorithm: int = ALGORITHM
    """Version of the way from weights to buckets."""
    encapsulation: str = ""
    """How packets reach a backend of a plane that tunnels: `gre`, `l3dsr`; empty where the plane rewrites addresses."""
    dscp: int = 0
    """l3dsr: mark by which backends know the VIP."""
    damaged: bool = False
    """The rules of the VIP differ from what this version writes. A damaged VIP is never wanted, so it is repaired or
    removed."""


@dataclass(frozen=True, slots=True)
class BackendEntry:
    """Entry of a backend under a VIP: its weight among new flows, and whether its established flows are killed.

    Both are level-based: `kill` means that no flow may be left, not that flows are killed once (B6).
    """

    weight: int
    kill: bool | None = False
    """None: the dataplane cannot tell."""
    base: int = -1
    """Weight in the base table, which health does not change; without it, that is `weight`."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "base", max(self.base, self.weight))


Value = VipSettings | BackendEntry
Objects = Sequence[tuple[VipKey, Value]]
Canonical = Callable[[Vip, Objects], Objects]
"""Turns all wanted objects of a VIP into the nearest that a dataplane can hold: one for each, in the same order. The
key of an object depends on that object alone; its value may depend on all of them."""


def in_words(value: Value) -> str:
    """Format the weight of an entry for the decision log; a VIP is described by its key."""
    if isinstance(value, VipSettings):
        return ""
    of = "" if value.base == value.weight else f" of {value.base}"
    return f"weight {value.weight}{of}{', flows ended' if value.kill else ''}"


def as_wanted(_vip: Vip, objects: Objects) -> Objects:
    """Canonical form in a dataplane that can hold everything."""
    return objects


def unencapsulated(_vip: Vip, objects: Objects) -> Objects:
    """Canonical form in a dataplane that rewrites addresses instead of encapsulating packets."""
    return [
        (key, replace(value, encapsulation="", dscp=0) if isinstance(value, VipSettings) else value)
        for key, value in objects
    ]


def filled(held: Value, wanted: Value) -> Value:
    """Return a held value, with the fields that the dataplane cannot tell as they are wanted."""
    unknown = {one.name for one in fields(held) if getattr(held, one.name) is None}
    if not unknown or type(held) is not type(wanted):
        return held
    return replace(held, **{name: getattr(wanted, name) for name in unknown})


KINDS: Kinds[VipKey] = Kinds(of=lambda key: "vip" if key.backend == NO_BACKEND else "entry", order=("vip", "entry"))


def backend(address: str, port: int) -> BackendId:
    return BackendId(*address_order(address), port)


def shown(identity: BackendId) -> str:
    """Show a backend as ADDRESS:PORT."""
    return f"{_host(identity.family, identity.address)}:{identity.port}"


_PLACE = r"(?:([\d.]+)|\[([\da-f:.]+)\]):(\*|\d{1,5})"
_VIP = re.compile(rf"{_PLACE}/(\w+)").fullmatch
_BACKEND = re.compile(_PLACE).fullmatch


def vip_from(text: str) -> Vip:
    """Parse a VIP: ADDRESS:PORT/PROTOCOL, IPv6 in brackets, `*` for all ports. Raises ValueError."""
    if (found := _VIP(text)) is None or found[4] not in PROTOCOLS:
        raise ValueError(f"not a VIP: {text!r}")
    return Vip(*_place(found), PROTOCOLS[found[4]], _port(found[3]))


def backend_from(text: str) -> BackendId:
    """Parse a backend: ADDRESS:PORT. Raises ValueError."""
    if (found := _BACKEND(text)) is None:
        raise ValueError(f"not a backend: {text!r}")
    return BackendId(*_place(found), _port(found[3]))


def _place(found: re.Match[str]) -> tuple[int, int]:
    return (4, int(IPv4Address(found[1]))) if found[1] is not None else (6, int(IPv6Address(found[2])))


def _port(text: str) -> int:
    port = 0 if text == "*" else int(text)
    if port > 65_535:
        raise ValueError(f"not a port: {text}")
    return port


def weights(entries: Iterable[tuple[VipKey, Value]]) -> dict[Vip, dict[BackendId, BucketWeight]]:
    """Weights per VIP and backend, which decide the Maglev table."""
    found: dict[Vip, dict[BackendId, BucketWeight]] = {}
    for key, value in entries:
        under = found.setdefault(key.vip, {})
        if isinstance(value, BackendEntry):
            under[key.backend] = BucketWeight(value.base, value.weight)
    return found


def _host(family: int, number: int) -> str:
    return str(IPv4Address(number)) if family == 4 else f"[{IPv6Address(number)}]"
