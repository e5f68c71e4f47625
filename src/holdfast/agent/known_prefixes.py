"""Prefix policy as this agent knows it: the addresses of the store and of all hosts, the networks of the fleet, and
what an operator allows.

It is computed again only when one of these has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from holdfast.agent.desired.peers import underlays
from holdfast.agent.desired.sources import Sources
from holdfast.model.fleet.prefix_policy import Prefix, PrefixPolicy, parsed
from holdfast.model.fleet.prefixes import FleetPrefixes


class KnownPrefixes:
    def __init__(
        self,
        sources: Sources,
        stores: Callable[[], Collection[str]],
        allowed: Sequence[str],
        published: Callable[[], Sequence[FleetPrefixes | None]] = tuple,
    ) -> None:
        """`stores` returns the addresses at which the store is reached now, `published` what the leader of each source
        published of its networks, None for nothing yet."""
        self._published = published
        self._sources = sources
        self._stores = stores
        self._allowed = frozenset(map(parsed, allowed))
        self._known: object = None
        self._policy = PrefixPolicy()

    def policy(self) -> PrefixPolicy:
        stores = frozenset(self._stores())
        fleet = tuple(self._published())
        known = stores, fleet, sum(claims.host_changes for claims in self._sources.claims.values())
        if known != self._known:
            self._known = known
            self._policy = PrefixPolicy(self._protected(stores), self._allowed, bounds(fleet))
        return self._policy

    def _protected(self, stores: Collection[str]) -> dict[str, str]:
        """Addresses that no route may cover, each with its owner."""
        hosts = [host for claims in self._sources.claims.values() for host in claims.hosts()]
        found = {address: f"an address of host {host.metadata.name}" for host in hosts for address in underlays(host)}
        return found | dict.fromkeys(stores, "an address of the store")


def bounds(published: Sequence[FleetPrefixes | None]) -> frozenset[Prefix] | None:
    """Return the prefixes outside which no endpoint may be; None while a source has none or is not bounded by them."""
    known = [one for one in published if one is not None and one.bounded]
    if not known or len(known) != len(published):
        return None
    return frozenset(parsed(text) for one in known for text in one.prefixes)
