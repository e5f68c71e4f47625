"""Prefix policy as this agent knows it: the addresses of the store and of all hosts, and what an operator allows.

It is computed again only when one of these has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from holdfast.agent.desired.peers import underlays
from holdfast.agent.desired.sources import Sources
from holdfast.model.fleet.prefix_policy import PrefixPolicy, parsed


class KnownPrefixes:
    def __init__(self, sources: Sources, stores: Callable[[], Collection[str]], allowed: Sequence[str]) -> None:
        """`stores` returns the addresses at which the store is reached now."""
        self._sources = sources
        self._stores = stores
        self._allowed = frozenset(map(parsed, allowed))
        self._known: object = None
        self._policy = PrefixPolicy()

    def policy(self) -> PrefixPolicy:
        stores = frozenset(self._stores())
        known = stores, sum(claims.host_changes for claims in self._sources.claims.values())
        if known != self._known:
            self._known = known
            self._policy = PrefixPolicy(self._protected(stores), allowed=self._allowed)
        return self._policy

    def _protected(self, stores: Collection[str]) -> dict[str, str]:
        """Addresses that no route may cover, each with its owner."""
        hosts = [host for claims in self._sources.claims.values() for host in claims.hosts()]
        found = {address: f"an address of host {host.metadata.name}" for host in hosts for address in underlays(host)}
        return found | dict.fromkeys(stores, "an address of the store")
