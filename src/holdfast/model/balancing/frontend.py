"""Frontends in the store: the addresses that clients use, and the pools of backends behind them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Literal

import msgspec
from msgspec.structs import force_setattr

from holdfast.model.base.address import address
from holdfast.model.base.codec import Natural
from holdfast.model.base.keys import named, own
from holdfast.model.base.kind import Column, Kind


class PoolMember(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One backend in a pool; without a weight it has the backend's own."""

    weight: Natural | None = None


class Pool(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, kw_only=True):
    """Backends that serve together."""

    name: str | None = None
    backends: Mapping[str, PoolMember] = {}


class Announce(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, kw_only=True):
    """Where the address is put for a routing daemon to redistribute, and how long it stays when nobody serves."""

    device: str = "lo"
    withdraw_delay: timedelta = timedelta(seconds=10)


class Frontend(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, kw_only=True):
    """One virtual address. The first pool that can serves, the others stand by."""

    address: str
    protocol: Literal["tcp", "udp", "any"] = "tcp"
    port: Natural = 0
    pools: tuple[Pool, ...] = ()
    description: str | None = None
    flush_on_down: bool = True
    src_ip_sticky: bool = False
    slow_start: timedelta = timedelta(0)
    panic_threshold: Natural = 0
    announce: Announce | None = None

    def __post_init__(self) -> None:
        force_setattr(self, "address", address(self.address))


FRONTEND: Kind[Frontend, str] = Kind(
    name="frontend",
    plural="frontends",
    struct=Frontend,
    place=named(own("balancing/frontends/")),
    columns=(
        Column("FRONTEND", lambda name, _: name),
        Column("ADDRESS", lambda _, frontend: frontend.address),
        Column("PROTOCOL", lambda _, frontend: frontend.protocol),
        Column("PORT", lambda _, frontend: str(frontend.port or "all")),
        Column("POOLS", lambda _, frontend: " | ".join(" ".join(pool.backends) for pool in frontend.pools)),
        Column("DESCRIPTION", lambda _, frontend: frontend.description or "", wide=True),
    ),
)
