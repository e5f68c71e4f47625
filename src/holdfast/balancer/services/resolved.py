"""The roster: what is configured, with every name resolved, wherever the configuration came from.

Frontends and backends stand in numeric order of their addresses, whatever the order of the file was (B2). `carry` makes
a reload a difference (B5): what did not change keeps its health; a backend whose checks changed keeps its state until
they have a verdict; one with another address is another backend.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from holdfast.balancer.health import Health, HealthState, HealthThresholds, fresh, rechecked
from holdfast.balancer.maglev.table import BackendId
from holdfast.balancer.probing.messages import CheckSettings as CheckSettings
from holdfast.balancer.probing.messages import TargetSpec
from holdfast.balancer.vip import Vip, VipSettings, backend
from holdfast.config.sections.balancer import BalancerSettings as Configuration
from holdfast.config.sections.frontend import Backend as BackendConfig
from holdfast.config.sections.frontend import Frontend as FrontendConfig
from holdfast.config.sections.healthcheck import HealthCheck
from holdfast.model.base.time import Duration, Instant

_UNPROBED = (HealthState.PAUSED, HealthState.DISABLED, HealthState.REMOVED)


@dataclass(frozen=True, slots=True)
class ResolvedCheck:
    """One check of one backend: what the prober is told, and how its results count.

    Without a target it is named, but not known: then it never passes, and never fails.
    """

    target: TargetSpec | None
    rules: HealthThresholds = field(default_factory=HealthThresholds)


@dataclass(frozen=True, slots=True)
class ResolvedBackend:
    """A backend that stands at an address."""

    name: str
    identity: BackendId
    checks: Mapping[str, ResolvedCheck]
    enabled: bool = True

    @property
    def patience(self) -> Duration:
        """One interval: how long a flush on down waits."""
        targets = [check.target for check in self.checks.values() if check.target is not None]
        return max((target.check.interval for target in targets), default=Duration(0))


@dataclass(frozen=True, slots=True)
class Announcement:
    """Where the address of a frontend is announced, and how long it has to be down to lose that."""

    device: str
    withdraw_delay: Duration


@dataclass(frozen=True, slots=True)
class ResolvedFrontend:
    """A VIP and who may serve it: per pool the backends with their weights."""

    name: str
    vip: Vip
    settings: VipSettings
    pools: tuple[tuple[tuple[str, int], ...], ...]
    flush_on_down: bool = True
    slow_start: Duration = Duration(0)
    panic_below: float = 0.0
    description: str = ""
    announce: Announcement | None = None

    def backends(self) -> Iterable[str]:
        return (name for pool in self.pools for name, _ in pool)


@dataclass(frozen=True)
class Services:
    """Everything that is to be served. `missing` is what had to be left out, with the reason."""

    backends: Mapping[str, ResolvedBackend] = field(default_factory=dict)
    frontends: Mapping[str, ResolvedFrontend] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def users(self) -> Mapping[str, tuple[str, ...]]:
        """Which frontends each backend serves (B17: all of them hear of it)."""
        found: dict[str, list[str]] = {name: [] for name in self.backends}
        for frontend in self.frontends.values():
            for name in frontend.backends():
                found.setdefault(name, []).append(frontend.name)
        return {name: tuple(frontends) for name, frontends in found.items()}

    @cached_property
    def at(self) -> Mapping[Vip, ResolvedFrontend]:
        return {frontend.vip: frontend for frontend in self.frontends.values()}

    @cached_property
    def watched(self) -> Mapping[str, tuple[str, str]]:
        """Whose check a probed target is: its id, to backend and check."""
        found = ((name, check, how) for name, one in self.backends.items() for check, how in one.checks.items())
        return {how.target.id: (name, check) for name, check, how in found if how.target is not None}

    def targets(self, health: Mapping[str, Health]) -> tuple[TargetSpec, ...]:
        """What is to be probed: nothing that an operator holds. One target per backend and check, not per frontend."""
        return tuple(
            check.target
            for name, one in self.backends.items()
            if health[name].state not in _UNPROBED
            for check in one.checks.values()
            if check.target is not None
        )


Locate = Callable[[BackendConfig], str | None]
"""The address of a backend; None while it is not known."""


def roster(config: Configuration, locate: Locate = lambda one: one.address) -> Services:
    """The configuration, resolved and in order. What cannot be served as it is written is left out, and said so.

    In a file all that is refused; from a store it may come in parts, or from several hands.
    """
    found: dict[str, ResolvedBackend] = {}
    missing: dict[str, str] = {}
    for name, one in config.backends.items():
        address = locate(one)
        if address is None:
            missing[f"backend {name}"] = f"{_place(one)} is not known to the store"
        else:
            found[name] = _backend(name, address, one, config.healthchecks)
    backends = dict(sorted(found.items(), key=lambda item: (item[1].identity, item[0])))
    frontends: dict[Vip, ResolvedFrontend] = {}
    for name, frontend in sorted(config.frontends.items()):
        made = _frontend(name, frontend, config, backends)
        if frontends.setdefault(made.vip, made) is not made:
            missing[f"frontend {name}"] = f"frontend {frontends[made.vip].name} has {made.vip} already"
    return Services(backends, {frontends[vip].name: frontends[vip] for vip in sorted(frontends)}, missing)


def carry(
    old: Services, new: Services, health: Mapping[str, Health], serving: Callable[[ResolvedBackend], bool], now: Instant
) -> dict[str, Health]:
    """The health of the new roster's backends. `serving`: the dataplane was found sending flows to a new one."""
    carried: dict[str, Health] = {}
    for name, backend_ in new.backends.items():
        before = old.backends.get(name)
        if before is None or before.identity != backend_.identity:
            carried[name] = fresh(backend_.checks, now, serving=serving(backend_))
            continue
        changed = [check for check, how in backend_.checks.items() if before.checks.get(check) != how]
        same = not changed and len(before.checks) == len(backend_.checks)
        carried[name] = health[name] if same else rechecked(health[name], backend_.checks, changed)
    return carried


def _place(one: BackendConfig) -> str:
    return f"endpoint {one.endpoint}" if one.endpoint else f"host {one.host}"


def _backend(name: str, address: str, one: BackendConfig, checks: Mapping[str, HealthCheck]) -> ResolvedBackend:
    how = {check: _check(name, check, address, one.port, checks.get(check)) for check in one.healthcheck}
    return ResolvedBackend(name, backend(address, one.port), how, one.enabled)


def _check(name: str, check: str, address: str, port: int, how: HealthCheck | None) -> ResolvedCheck:
    if how is None:  # in a file this is refused; in the store the check may come later
        return ResolvedCheck(None)
    settings = CheckSettings(
        type=how.type,
        interval=how.interval,
        fast_interval=how.fast_interval,
        down_interval=how.down_interval,
        timeout=how.timeout,
        jitter=how.jitter / 100,
        source=how.source or "",
        path=how.path,
        host=how.host or "",
        sni=how.sni or "",
        statuses=how.ranges,
        body=how.body or "",
        verify=how.verify,
        ca_file=how.ca_file or "",
    )
    probed = 0 if how.type == "icmp" else how.port or port
    return ResolvedCheck(TargetSpec(f"{name}/{check}", address, probed, settings), HealthThresholds(how.rise, how.fall))


def _frontend(
    name: str, one: FrontendConfig, config: Configuration, backends: Mapping[str, ResolvedBackend]
) -> ResolvedFrontend:
    vip = Vip.of(one.address, one.protocol, one.port)
    pools, taken = [], set[BackendId]()
    for pool in one.pools:
        members = [(each, _weight(each, member.weight, config)) for each, member in pool.backends.items()]
        known = sorted((backends[each].identity, each, weight) for each, weight in members if each in backends)
        # One entry per address under a VIP, and of its family only: two would be one key of the dataplane.
        fit = [(at, each, weight) for at, each, weight in known if at.family == vip.family and at not in taken]
        kept = {at: (each, weight) for at, each, weight in reversed(fit)}
        taken |= kept.keys()
        pools.append(tuple(kept[at] for at in sorted(kept)))
    return ResolvedFrontend(
        name=name,
        vip=vip,
        settings=VipSettings(sticky=one.src_ip_sticky),
        pools=tuple(pools),
        flush_on_down=one.flush_on_down,
        slow_start=one.slow_start,
        panic_below=one.panic_threshold / 100,
        description=one.description or "",
        announce=None if one.announce is None else Announcement(one.announce.device, one.announce.withdraw_delay),
    )


def _weight(name: str, weight: int | None, config: Configuration) -> int:
    return config.backends[name].weight if weight is None else weight
