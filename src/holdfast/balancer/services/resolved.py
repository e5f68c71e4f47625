"""Services: the configured frontends and backends with every name resolved, from the file or from the store.

Frontends and backends are in numeric order of their addresses, whatever the order of the file (B2). `carry_over` keeps
health across a reload (B5). Health belongs to an address and port, not to a name (B32): an unchanged or renamed backend
keeps its health; one whose checks changed keeps its state until they have a verdict; one with another address is
another backend.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import msgspec

from holdfast.balancer.health import Health, HealthState, fresh, rechecked
from holdfast.balancer.maglev.table import BackendId
from holdfast.balancer.probing.messages import TargetSpec
from holdfast.balancer.vip import Vip, VipSettings, backend
from holdfast.config.sections.balancer import BalancerSettings
from holdfast.config.sections.frontend import Backend, Frontend
from holdfast.config.sections.healthcheck import HealthCheck
from holdfast.config.sections.vpp_limits import left_out, server_refusal
from holdfast.model.base.address import family
from holdfast.model.base.time import Duration, Instant

_UNPROBED = (HealthState.PAUSED, HealthState.DISABLED, HealthState.REMOVED)


@dataclass(frozen=True, slots=True)
class ResolvedBackend:
    """A backend with a known address."""

    name: str
    identity: BackendId
    checks: Mapping[str, TargetSpec | None]
    """The probe target of each check, by the check's name; None while the store has no check of that name. Such a
    check neither passes nor fails."""
    enabled: bool = True
    configured: str = ""
    """The configured name; a backend with addresses of both families is one for each (B34)."""

    @property
    def flush_delay(self) -> Duration:
        """Delay of a flush on down: one probe interval."""
        intervals = (target.check.interval for target in self.checks.values() if target is not None)
        return max(intervals, default=Duration(0))


@dataclass(frozen=True, slots=True)
class ResolvedFrontend:
    """A frontend with its VIP, and per pool the backends with their weights."""

    name: str
    vip: Vip
    pools: tuple[tuple[tuple[str, int], ...], ...]
    config: Frontend
    """The frontend as configured; of its pools, only what `pools` holds can be served."""

    @property
    def settings(self) -> VipSettings:
        config = self.config
        return VipSettings(
            sticky=config.src_ip_sticky,
            table_size=config.table_size,
            encapsulation=config.encapsulation or "",
            dscp=config.dscp,
        )

    def backends(self) -> Iterable[str]:
        return (name for pool in self.pools for name, _ in pool)

    @property
    def pool_names(self) -> tuple[str, ...]:
        """Name of each pool; the number of one without a name."""
        return tuple(pool.name or str(index) for index, pool in enumerate(self.config.pools))

    def pool_index(self, name: str) -> int | None:
        """Index of the pool of that name, or else of that number."""
        if name in self.pool_names:
            return self.pool_names.index(name)
        return int(name) if name.isdecimal() and int(name) < len(self.pools) else None


@dataclass(frozen=True)
class Services:
    """All services. `missing` has what had to be left out, with the reason."""

    backends: Mapping[str, ResolvedBackend] = field(default_factory=dict)
    frontends: Mapping[str, ResolvedFrontend] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def users(self) -> Mapping[str, tuple[str, ...]]:
        """Frontends that use each backend (B17: a change of the backend concerns all of them)."""
        found: dict[str, list[str]] = {name: [] for name in self.backends}
        for frontend in self.frontends.values():
            for name in frontend.backends():
                found.setdefault(name, []).append(frontend.name)
        return {name: tuple(frontends) for name, frontends in found.items()}

    @cached_property
    def at(self) -> Mapping[Vip, ResolvedFrontend]:
        return {frontend.vip: frontend for frontend in self.frontends.values()}

    @cached_property
    def named(self) -> Mapping[BackendId, str]:
        """Name of the backend at an address and port; of several, the first."""
        return {one.identity: name for name, one in reversed(list(self.backends.items()))}

    @cached_property
    def watched(self) -> Mapping[str, tuple[str, str, int]]:
        """Backend, check and generation of each probe target, by the id of the target."""
        found = ((name, check, target) for name, one in self.backends.items() for check, target in one.checks.items())
        return {target.id: (name, check, target.generation) for name, check, target in found if target is not None}

    def targets(self, health: Mapping[str, Health]) -> tuple[TargetSpec, ...]:
        """Probe targets: one per backend and check, not per frontend; none of a backend that an operator holds."""
        return tuple(
            target
            for name, one in self.backends.items()
            if health[name].state not in _UNPROBED
            for target in one.checks.values()
            if target is not None
        )


Locate = Callable[[Backend, int], str | None]
"""Returns the address of a backend in a family; None if none is known."""

_FAMILIES = (4, 6)


def _as_configured(one: Backend, version: int) -> str | None:
    return one.address if one.address and family(one.address) == version else None


def resolve_services(config: BalancerSettings, locate: Locate = _as_configured) -> Services:
    """Resolve the configuration, in order. What cannot be served as configured is left out and listed as missing.

    A file with such errors is refused; objects in the store may arrive one by one, or be edited by several people.
    """
    found: dict[str, ResolvedBackend] = {}
    missing: dict[str, str] = {}
    families = _families(config)
    for name, one in config.backends.items():
        addresses = _addresses(one, families.get(name, set()), locate)
        if not addresses:
            missing[f"backend {name}"] = f"{one.location} is not known to the store"
        for index, (version, address) in enumerate(addresses):
            key = f"{name} (IPv{version})" if index else name
            found[key] = _backend(key, address, one, config.healthchecks, name)
    backends = dict(sorted(found.items(), key=lambda item: (item[1].identity, item[0])))
    frontends: dict[Vip, ResolvedFrontend] = {}
    refused = left_out(config.frontends) if config.dataplane.kind == "vpp" else {}
    missing |= {f"frontend {name}": sentence for name, sentence in refused.items()}
    for name, frontend in sorted(config.frontends.items()):
        if name in refused:
            continue
        made = _frontend(name, frontend, config, backends, missing)
        if frontends.setdefault(made.vip, made) is not made:
            missing[f"frontend {name}"] = f"frontend {frontends[made.vip].name} has {made.vip} already"
    return Services(backends, {frontends[vip].name: frontends[vip] for vip in sorted(frontends)}, missing)


def _families(config: BalancerSettings) -> Mapping[str, set[int]]:
    """Address families of the frontends that use each backend."""
    found: dict[str, set[int]] = {}
    for frontend in config.frontends.values():
        for pool in frontend.pools:
            for name in pool.backends:
                found.setdefault(name, set()).add(family(frontend.address))
    return found


def _addresses(one: Backend, families: set[int], locate: Locate) -> list[tuple[int, str]]:
    """Addresses of a backend in the families of its frontends; without such a frontend or address, any one."""
    found = [(version, address) for version in _FAMILIES if (address := locate(one, version))]
    return [each for each in found if each[0] in families] or found[:1]


def carry_over(
    old: Services,
    new: Services,
    health: Mapping[str, Health],
    serving: Callable[[ResolvedBackend], bool],
    now: Instant,
    former: Mapping[BackendId, tuple[ResolvedBackend, Health]] = {},
) -> dict[str, Health]:
    """Health of the new services' backends (protection: B5). `serving`: whether a new one already gets flows.
    `former` are backends that are not among the old services, and still serve."""
    carried: dict[str, Health] = {}
    for name, backend_ in new.backends.items():
        before = _same_backend(old, backend_)
        found = former.get(backend_.identity) if before is None else (before, health[before.name])
        if found is None:
            carried[name] = fresh(backend_.checks, now, serving=serving(backend_))
            continue
        before, known = found
        changed = [check for check, target in backend_.checks.items() if not _same_target(before.checks, check, target)]
        same = not changed and len(before.checks) == len(backend_.checks)
        carried[name] = known if same else rechecked(known, backend_.checks, changed, now)
    return carried


def _same_backend(old: Services, backend_: ResolvedBackend) -> ResolvedBackend | None:
    """Return the same address and port among the old services: under its name, else renamed (protection: B32)."""
    before = old.backends.get(backend_.name)
    if before is not None and before.identity == backend_.identity:
        return before
    other = old.named.get(backend_.identity)
    return None if other is None else old.backends[other]


def _same_target(before: Mapping[str, TargetSpec | None], check: str, target: TargetSpec | None) -> bool:
    old = before.get(check)
    if old is None or target is None:
        return check in before and old is target
    return old.generation == target.generation


def _backend(
    name: str, address: str, one: Backend, checks: Mapping[str, HealthCheck], configured: str
) -> ResolvedBackend:
    targets = {check: _target(name, check, address, one.port, checks.get(check)) for check in one.healthcheck}
    return ResolvedBackend(name, backend(address, one.port), targets, one.enabled, configured)


def _target(name: str, check_name: str, address: str, port: int, check: HealthCheck | None) -> TargetSpec | None:
    if check is None:  # refused in a file; in the store the check may come later
        return None
    port = 0 if check.type == "icmp" else check.port or port
    return TargetSpec(f"{name}/{check_name}", address, port, check, generation=_generation(address, port, check))


def _generation(address: str, port: int, check: HealthCheck) -> int:
    """Number of what is probed, and how (protection: B31). The same again gets the same number."""
    return zlib.crc32(msgspec.json.encode((address, port, check)))


def _frontend(
    name: str,
    one: Frontend,
    config: BalancerSettings,
    backends: Mapping[str, ResolvedBackend],
    missing: dict[str, str],
) -> ResolvedFrontend:
    vip = Vip.of(one.address, one.protocol, one.port)
    names = {each.configured: name for name, each in backends.items() if each.identity.family == vip.family}
    pools, taken = [], dict[BackendId, str]()
    for pool in one.pools:
        # protection: B34, a backend serves at its address of the frontend's family
        members = [(names.get(each), _weight(each, member.weight, config)) for each, member in pool.backends.items()]
        known = sorted((backends[each].identity, each, weight) for each, weight in members if each is not None)
        # One entry per address under a VIP: two would be one key of the dataplane.
        refused = {each: _member_refusal(at, each, vip, taken, config) for at, each, _ in known}
        missing |= {f"backend {each} of frontend {name}": why for each, why in refused.items() if why is not None}
        pools.append(tuple((each, weight) for _, each, weight in known if refused[each] is None))
    return ResolvedFrontend(name, vip, tuple(pools), one)


def _member_refusal(
    at: BackendId, name: str, vip: Vip, taken: dict[BackendId, str], config: BalancerSettings
) -> str | None:
    """Explain why the dataplane cannot have this member; None when it can, and its place is then taken."""
    if config.dataplane.kind == "vpp":
        other = taken.get(at._replace(port=0), name)
        refusal = server_refusal(at.port, vip.port, None if other == name else other)
        if refusal is None:
            taken[at._replace(port=0)] = name
        return refusal
    if taken.setdefault(at, name) != name:
        return f"it has the address and port of {taken[at]}, which is in this frontend already: remove one"
    return None


def _weight(name: str, weight: int | None, config: BalancerSettings) -> int:
    return config.backends[name].weight if weight is None else weight
