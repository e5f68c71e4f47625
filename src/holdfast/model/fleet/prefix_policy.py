"""Prefix policy: the prefixes for which no host may have a route (N21). Pure.

A route for a default, loopback, link-local or multicast prefix, or for one that covers an address of the store or of a
host, cuts every host of the fleet off at once. The inventory refuses such a prefix, and agents hold it if it gets into
the store another way.

`allowed` is the way out: a prefix that is named there exactly may cover the store or a host, and one inside it may lie
outside the fleet's networks. Nothing lifts the refusal of default, loopback, link-local and multicast prefixes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from holdfast.model.base.address import address_order, prefix_order

BITS = {4: 32, 6: 128}


class Prefix(NamedTuple):
    """Prefix as numbers."""

    family: int
    number: int
    length: int

    @property
    def last(self) -> int:
        """Highest address of it."""
        return self.number | (1 << BITS[self.family] - self.length) - 1

    def overlaps(self, other: Prefix) -> bool:
        spare = BITS[self.family] - min(self.length, other.length)
        return self.family == other.family and self.number >> spare == other.number >> spare


def parsed(text: str) -> Prefix:
    """Parse a prefix or an address."""
    return Prefix(*prefix_order(text))


_RESERVED = {
    "127.0.0.0/8": "loopback",
    "169.254.0.0/16": "link-local",
    "224.0.0.0/4": "multicast",
    "0.0.0.0/8": "unspecified",
    "::1/128": "loopback",
    "::/128": "unspecified",
    "fe80::/10": "link-local",
    "ff00::/8": "multicast",
}
RESERVED: Mapping[int, Mapping[Prefix, str]] = {
    family: {one: f"{what} prefix {text}" for text, what in _RESERVED.items() if (one := parsed(text)).family == family}
    for family in BITS
}


class PrefixRefusal(NamedTuple):
    """PrefixRefusal of a prefix: why, and what to do about it."""

    why: str
    way_out: str


ANOTHER = "choose another address"


def forbidden(prefix: Prefix) -> PrefixRefusal | None:
    """Refuse what is wrong in every fleet."""
    if not prefix.length:
        return PrefixRefusal("it is a default route, which would take all traffic of every host", ANOTHER)
    found = next((what for reserved, what in RESERVED[prefix.family].items() if prefix.overlaps(reserved)), None)
    return None if found is None else PrefixRefusal(f"it overlaps the {found}", ANOTHER)


@dataclass(frozen=True, slots=True)
class PrefixPolicy:
    """`protected` names the addresses that no prefix may cover; `fleet` has the prefixes of the fleet's networks, None
    while they are not known or do not bound it."""

    protected: Mapping[str, str] = field(default_factory=dict)
    allowed: frozenset[Prefix] = frozenset()
    fleet: frozenset[Prefix] | None = None
    _addresses: Mapping[int, list[tuple[int, str]]] = field(init=False)

    def __post_init__(self) -> None:
        found: dict[int, list[tuple[int, str]]] = {4: [], 6: []}
        for address, what in self.protected.items():
            family, number = address_order(address)
            found[family].append((number, f"{address}, {what}"))
        object.__setattr__(self, "_addresses", {family: sorted(some) for family, some in found.items()})

    def refusal(self, prefix: Prefix) -> PrefixRefusal | None:
        """Return why no host may have a route for that prefix; None if one may."""
        fixed = forbidden(prefix)
        if fixed is not None or prefix in self.allowed:
            return fixed
        covered = self._covered(prefix)
        if covered is not None:
            return PrefixRefusal(
                f"it covers {covered}", f"{ANOTHER}, or name exactly this prefix in agent.allowed_prefixes"
            )
        return None

    def outside(self, prefix: Prefix) -> PrefixRefusal | None:
        """Refuse a prefix of an endpoint that is in none of the fleet's networks."""
        if self.fleet is None or any(_within(prefix, some) for some in (self.fleet, self.allowed)):
            return None
        return PrefixRefusal(
            "it is in none of the fleet's networks",
            "give the endpoint an address of a network, add the prefix to a network (holdfast apply), or name it in "
            "agent.allowed_prefixes",
        )

    def _covered(self, prefix: Prefix) -> str | None:
        """Name the first protected address in that prefix."""
        some = self._addresses[prefix.family]
        at = bisect_left(some, (prefix.number, ""))
        return some[at][1] if at < len(some) and some[at][0] <= prefix.last else None


def _within(prefix: Prefix, some: frozenset[Prefix]) -> bool:
    """Look up every prefix around this one: that takes as long for ten networks as for ten thousand."""
    spare = BITS[prefix.family]
    return any(
        Prefix(prefix.family, prefix.number >> spare - length << spare - length, length) in some
        for length in range(prefix.length, -1, -1)
    )
