"""Services from the store, in the form of the configuration file.

An unreadable value is bad, not absent (rule 9): its last good object stays, and without one nothing is removed. A
reference to an object that does not exist (yet) waits for it: an unknown backend of a pool is left out, an unknown
check never passes. A backend may name a host or an endpoint of the fleet; draining that host pauses the backend.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec

from holdfast.config.loading.section import unfit
from holdfast.config.sections.balancer import BalancerSettings
from holdfast.config.sections.frontend import Backend, Frontend
from holdfast.config.sections.stored import StoredSection
from holdfast.model.balancing import BACKEND, FRONTEND, HEALTH_CHECK, SETTINGS_FIELDS
from holdfast.model.base.address import family
from holdfast.model.base.bad import Bad, BadReason, shortened
from holdfast.model.base.keys import own
from holdfast.model.base.kind import Kind
from holdfast.model.base.region import Region
from holdfast.model.calico.endpoint import Endpoint
from holdfast.model.calico.host import Host
from holdfast.model.control.intent import Intent, IntentKind, IntentName
from holdfast.model.control.scope import Scope, ScopeKind

_KINDS: tuple[Kind[Any, str], ...] = (HEALTH_CHECK, BACKEND, FRONTEND)


@dataclass(frozen=True, slots=True)
class StoreItem:
    """One object of the store: the field of `BalancerSettings` that it belongs to, its name, and its value."""

    group: str
    name: str
    section: StoredSection


def prefix(region: Region) -> bytes:
    """Prefix of all keys of health checks, backends and frontends."""
    return own("balancing/")(region).encode()


def read(region: Region, key: bytes, value: bytes) -> StoreItem | Bad:
    """Read one value of the store. Never raises, whatever the bytes."""
    for kind in _KINDS:
        name = kind.parse(key, region)
        if isinstance(name, Bad):
            continue
        found = kind.decode(key, value)
        if isinstance(found, Bad):
            return found
        wrong = unfit(found)
        if wrong:
            return Bad(key, BadReason.WRONG_SHAPE, shortened(wrong))
        return StoreItem(SETTINGS_FIELDS[kind.name], name, found)
    return Bad(key, BadReason.STRANGE_KEY, "no object of a balancer has such a key")


@dataclass(frozen=True, slots=True)
class FleetAddresses:
    """Addresses of the hosts and endpoints that backends name."""

    hosts: Mapping[str, Host] = field(default_factory=dict)
    endpoints: Mapping[str, Endpoint] = field(default_factory=dict)

    def locate(self, backend: Backend, version: int) -> str | None:
        """Return the address of the backend in this family; None while none is known."""
        if backend.host is not None:
            host = self.hosts.get(backend.host)
            return None if host is None else host.underlay(version)
        known: tuple[str | None, ...] = (backend.address,)
        if backend.endpoint is not None:
            endpoint = self.endpoints.get(backend.endpoint)
            known = () if endpoint is None else tuple(endpoint.spec.ip_networks)
        return next((one.partition("/")[0] for one in known if one and family(one) == version), None)

    def host_of(self, backend: Backend) -> str | None:
        """Return the host that the backend runs on, if it is known."""
        if backend.endpoint is not None and backend.endpoint in self.endpoints:
            return self.endpoints[backend.endpoint].spec.node
        return backend.host


def configured(base: BalancerSettings, items: Mapping[bytes, StoreItem]) -> BalancerSettings:
    """Combine the settings of the file with the frontends, backends and health checks of the store."""
    groups: dict[str, dict[str, StoredSection]] = {field: {} for field in SETTINGS_FIELDS.values()}
    for item in items.values():
        groups[item.group][item.name] = item.section
    backends = groups["backends"]
    frontends = {
        name: _without_unknown_backends(one, backends)
        for name, one in groups["frontends"].items()
        if isinstance(one, Frontend)
    }
    return msgspec.structs.replace(base, **{**groups, "frontends": frontends})


def _without_unknown_backends(frontend: Frontend, backends: Mapping[str, StoredSection]) -> Frontend:
    pools = tuple(
        msgspec.structs.replace(pool, backends={name: one for name, one in pool.backends.items() if name in backends})
        for pool in frontend.pools
    )
    return msgspec.structs.replace(frontend, pools=pools)


def intents(
    kept: Mapping[IntentName, Intent], config: BalancerSettings, fleet: FleetAddresses, wall: datetime
) -> Iterator[Intent]:
    """Intents about the fleet, frontends and backends, including those by draining a host. An intent by name has
    precedence."""
    drained = _drains(kept, wall)
    others = (ScopeKind.FLEET, ScopeKind.FRONTEND, ScopeKind.POOL, ScopeKind.MEMBER)
    yield from (one for one in kept.values() if one.scope.target in others)
    by_name = [one for one in kept.values() if one.scope.target is ScopeKind.BACKEND]
    held = {one.scope.name for one in by_name if one.what in (IntentKind.PAUSE, IntentKind.DISABLE) and one.holds(wall)}
    yield from by_name
    for name, backend in config.backends.items():
        drain = drained.get(fleet.host_of(backend) or "")
        if drain is not None and name not in held:
            why = f"host {drain.scope.name} is drained: {drain.why}"
            scope = Scope(ScopeKind.BACKEND, name)
            yield msgspec.structs.replace(drain, what=IntentKind.PAUSE, scope=scope, why=why)


def drained(
    kept: Mapping[IntentName, Intent], config: BalancerSettings, fleet: FleetAddresses, wall: datetime
) -> Mapping[str, frozenset[str]]:
    """Return the drained hosts, each with the configured names of the backends on it."""
    hosts: dict[str, set[str]] = {host: set() for host in _drains(kept, wall)}
    for name, backend in config.backends.items():
        host = fleet.host_of(backend)
        if host in hosts:
            hosts[host].add(name)
    return {host: frozenset(names) for host, names in hosts.items()}


def _drains(kept: Mapping[IntentName, Intent], wall: datetime) -> Mapping[str, Intent]:
    """Return the drains in force, by host."""
    return {
        one.scope.name: one
        for one in kept.values()
        if one.what is IntentKind.DRAIN and one.scope.target is ScopeKind.HOST and one.holds(wall)
    }
