"""Desired state of one frontend, and when it changes by itself.

A pure function of the services, health, slow starts, operator weights and the time. The result carries the next instant
at which it would differ although nothing happens: a step of a slow start, or the end of the delay before a flush.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field, replace

from holdfast.balancer.desired import fail_back, slow_start
from holdfast.balancer.desired.fail_back import PoolMemory
from holdfast.balancer.desired.leaving import Predecessor, Replaced
from holdfast.balancer.desired.pools import PoolCandidate, Serving, able, first, serving
from holdfast.balancer.health import Health, HealthState
from holdfast.balancer.maglev.table import BackendId
from holdfast.balancer.services.resolved import ResolvedBackend, ResolvedFrontend
from holdfast.balancer.vip import BackendEntry, Canonical, Value, Vip, VipKey, as_wanted
from holdfast.model.base.time import NEVER, Instant


@dataclass(frozen=True, slots=True)
class Inputs:
    """Everything besides the frontend's configuration that decides its desired state."""

    backends: Mapping[str, ResolvedBackend]
    health: Mapping[str, Health]
    ramps: Mapping[tuple[str, str], Instant] = field(default_factory=dict)
    """When slow start began, by frontend and backend."""
    weights: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """Weights set by an operator, by frontend and configured backend; the frontend is empty for all of them."""
    predecessors: Mapping[str, Predecessor] = field(default_factory=dict)
    """Old addresses that serve until the new ones have a first result."""
    replaced: Mapping[Vip, tuple[Replaced, ...]] = field(default_factory=dict)
    """Backends that serve until those in their place have a first result."""
    joins: Mapping[BackendId, Instant] = field(default_factory=dict)
    """When a backend that was never up joins the base table; all others are in it."""
    pools: Mapping[Vip, PoolMemory] = field(default_factory=dict)
    """Pools that served and failed before, of frontends with a fail-back delay."""
    programmed: Mapping[Vip, Mapping[BackendId, Instant | None]] = field(default_factory=dict)
    """Entries in the dataplane: until when one stays with weight 0 if its backend has left, so that its requests can
    end; None while it gets new flows."""
    canonical: Canonical = as_wanted
    """Form of the objects in the dataplane."""


@dataclass(frozen=True, slots=True)
class DesiredFrontend:
    """Desired state of one frontend; it has to be computed again at `due` at the latest."""

    serving: Serving
    objects: tuple[tuple[VipKey, Value], ...]
    """In the form of the dataplane, in key order."""
    keys: Mapping[str, VipKey]
    """Key of each backend's entry in the dataplane."""
    due: Instant | None
    memory: PoolMemory | None = None
    """Pools that served and failed until now, of a frontend with a fail-back delay."""
    leaving: frozenset[VipKey] = frozenset()
    """Entries with weight 0 of backends that have left."""

    @property
    def by_key(self) -> Mapping[VipKey, Value]:
        return dict(self.objects)


def desired(frontend: ResolvedFrontend, inputs: Inputs, now: Instant) -> DesiredFrontend:
    replaced = [one for one in inputs.replaced.get(frontend.vip, ()) if now < one.until]
    serving_before = dict(_predecessors(frontend, inputs, now))
    if serving_before or replaced:
        former = {name: one.backend for name, one in serving_before.items()}
        inputs = replace(
            inputs,
            backends={**inputs.backends, **former, **{one.backend.name: one.backend for one in replaced}},
            health={**inputs.health, **{name: one.health for name, one in serving_before.items()}},
        )
    pools = [[_member(frontend, name, weight, inputs, now) for name, weight in pool] for pool in frontend.pools]
    for one in replaced:
        pools[one.pool].append(PoolCandidate(one.backend.name, one.share.weight, HealthState.UP, base=one.share.base))
    panic_below, delay = frontend.config.panic_threshold / 100, frontend.config.fail_back_delay
    can = able(pools, panic_below)
    memory, active, switch = None, first(can), None
    if delay:
        active, memory, switch = fail_back.step(inputs.pools.get(frontend.vip, PoolMemory()), can, delay, now)
    found = serving(pools, active, flush_on_down=frontend.config.flush_on_down, panic_below=panic_below)
    entries = [
        (VipKey(frontend.vip, inputs.backends[name].identity), BackendEntry(share.weight, share.kill, share.base))
        for name, share in found.shares.items()
    ]
    objects = inputs.canonical(frontend.vip, [(VipKey(frontend.vip), frontend.settings), *entries])
    keys = {name: key for name, (key, _) in zip(found.shares, objects[1:], strict=True)}
    # Two objects that become one are refused with the configuration; in etcd the first serves.
    once = dict(reversed(objects))
    leaving = dict(_leaving(frontend.vip, inputs.programmed.get(frontend.vip, {}), once, now))
    once |= dict.fromkeys(leaving, BackendEntry(0))
    ends = [one.until for one in serving_before.values()] + [one.until for one in replaced]
    switches = () if switch is None else (switch,)
    leave = (until for until in leaving.values() if until is not None)
    due = min([*_changes(frontend, inputs, now), *ends, *leave, *switches], default=None)
    objects = tuple(sorted(once.items(), key=lambda pair: pair[0]))
    return DesiredFrontend(found, objects, keys, due, memory, frozenset(leaving))


def _predecessors(frontend: ResolvedFrontend, inputs: Inputs, now: Instant) -> Iterator[tuple[str, Predecessor]]:
    """Backends that still serve at their old address, unless another backend of the frontend has it by now."""
    names = [name for name in frontend.backends() if name in inputs.predecessors]
    taken = {inputs.backends[name].identity for name in frontend.backends()} if names else set()
    for name in names:
        one = inputs.predecessors[name]
        if now < one.until and one.backend.identity not in taken and one.backend.identity.family == frontend.vip.family:
            yield name, one


def _leaving(
    vip: Vip, programmed: Mapping[BackendId, Instant | None], wanted: Container[VipKey], now: Instant
) -> Iterator[tuple[VipKey, Instant | None]]:
    """Entries of backends that have left and still get new flows, or did a moment ago, with the time of their end."""
    for backend, until in programmed.items():
        key = VipKey(vip, backend)
        if key not in wanted and backend.family == vip.family and (until is None or now < until):
            yield key, until


def _member(frontend: ResolvedFrontend, name: str, configured: int, inputs: Inputs, now: Instant) -> PoolCandidate:
    asked = asked_weight(inputs.weights, frontend.name, inputs.backends[name])
    weight = configured if asked is None else asked
    health = inputs.health[name]
    began = inputs.ramps.get((frontend.name, name), slow_start.DONE)
    ramped = (
        slow_start.weight(weight, began, frontend.config.slow_start, now)
        if weight and health.state is HealthState.UP
        else None
    )
    settled = now - health.since >= inputs.backends[name].flush_delay
    has_joined = inputs.joins.get(inputs.backends[name].identity, NEVER) <= now
    base = max(weight, configured) if has_joined or health.state is HealthState.UP else 0
    return PoolCandidate(name, weight, health.state, ramped, settled, health.is_newcomer, base)


def asked_weight(weights: Mapping[tuple[str, str], int], frontend: str, backend: ResolvedBackend) -> int | None:
    """Weight that an operator set for a backend: in this frontend, else in all of them."""
    return weights.get((frontend, backend.configured), weights.get(("", backend.configured)))


def _changes(frontend: ResolvedFrontend, inputs: Inputs, now: Instant) -> Iterator[Instant]:
    """Instants at which the desired state changes by itself."""
    for name in frontend.backends():
        health = inputs.health[name]
        joins = inputs.joins.get(inputs.backends[name].identity, NEVER)
        if joins > now:
            yield joins
        if health.state is HealthState.UP:
            began = inputs.ramps.get((frontend.name, name), slow_start.DONE)
            step = slow_start.next_step(began, frontend.config.slow_start, now)
            if step is not None:
                yield step
        elif health.state is HealthState.DOWN and frontend.config.flush_on_down:
            settles = health.since + inputs.backends[name].flush_delay
            if settles > now:
                yield settles
