"""What occupies a dataplane: VIPs, and backends under VIPs. Keys, values, and how people read them.

A key is made of addresses, never of the names that people gave (a renamed frontend changes nothing in the world). Keys
sort as calls are made and as people count: IPv4 before IPv6, 10.0.0.2 before 10.0.0.10, a VIP before its backends (B2).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from typing import NamedTuple

from holdfast.balancer.maglev.table import BackendId
from holdfast.model.base.address import address_order
from holdfast.reconcile import Kinds

PROTOCOLS: Mapping[str, int] = {"any": 0, "tcp": 6, "udp": 17}
_NAMES = {number: name for name, number in PROTOCOLS.items()}


class Vip(NamedTuple):
    """An address that clients use; port 0 stands for all."""

    family: int
    address: int
    protocol: int
    port: int

    @classmethod
    def of(cls, address: str, protocol: str, port: int) -> Vip:
        return cls(*address_order(address), PROTOCOLS[protocol], port)

    def __str__(self) -> str:
        port = str(self.port) if self.port else "*"
        return f"{_host(self.family, self.address)}:{port}/{_NAMES[self.protocol]}"


NO_BACKEND = BackendId(0, 0, 0)


class VipKey(NamedTuple):
    """One thing in the dataplane: a VIP, or with a backend that backend's entry under it."""

    vip: Vip
    backend: BackendId = NO_BACKEND

    def __str__(self) -> str:
        return str(self.vip) if self.backend == NO_BACKEND else f"{self.vip} → {shown(self.backend)}"


@dataclass(frozen=True, slots=True)
class VipSettings:
    """The attributes of a VIP. Which of them can change without tearing it down is the dataplane's to say."""

    sticky: bool = False
    """Whether all flows of a client go to one backend (hash of the source address alone)."""
    damaged: bool = False
    """Whether what serves it is not as it should be: somebody touched it, or another version made it. Nobody wants
    that, so it is made right, or removed."""


@dataclass(frozen=True, slots=True)
class BackendEntry:
    """A backend under a VIP: its weight among new flows, and whether its established flows are to be dead.

    Both are level: `kill` says that no flow may be left, not that something is to be done once (B6).
    """

    weight: int
    kill: bool = False


Value = VipSettings | BackendEntry

KINDS: Kinds[VipKey] = Kinds(of=lambda key: "vip" if key.backend == NO_BACKEND else "entry", order=("vip", "entry"))


def backend(address: str, port: int) -> BackendId:
    return BackendId(*address_order(address), port)


def shown(identity: BackendId) -> str:
    """The backend as a person writes it."""
    return f"{_host(identity.family, identity.address)}:{identity.port}"


def weights(entries: Iterable[tuple[VipKey, Value]]) -> dict[Vip, dict[BackendId, int]]:
    """Per VIP what decides its table."""
    found: dict[Vip, dict[BackendId, int]] = {}
    for key, value in entries:
        under = found.setdefault(key.vip, {})
        if isinstance(value, BackendEntry):
            under[key.backend] = value.weight
    return found


def _host(family: int, number: int) -> str:
    return str(IPv4Address(number)) if family == 4 else f"[{IPv6Address(number)}]"
