"""Desired state of one frontend, and when it changes by itself.

A pure function of the services, health, slow starts, operator weights and the time. The result carries the next instant
at which it would differ although nothing happens: a step of a slow start, or the end of the delay before a flush.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field, replace

from holdfast.balancer.desired import slow_start
from holdfast.balancer.desired.pools import PoolCandidate, Serving, serving
from holdfast.balancer.health import Health, HealthState
from holdfast.balancer.maglev.table import BackendId
from holdfast.balancer.services.resolved import ResolvedBackend, ResolvedFrontend
from holdfast.balancer.vip import BackendEntry, Canonical, Value, VipKey, as_wanted
from holdfast.model.base.time import NEVER, Instant


@dataclass(frozen=True, slots=True)
class Predecessor:
    """A backend before it got another address. It serves as it did until the new address has a first result."""

    backend: ResolvedBackend
    health: Health
    until: Instant
    """When it ends at the latest."""


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
    joins: Mapping[BackendId, Instant] = field(default_factory=dict)
    """When a backend that was never up joins the base table; all others are in it."""
    found_serving: Container[str] = ()
    """Backends that were serving when the dataplane was read at the start, and have been up since."""
    leaving: Mapping[tuple[str, BackendId], Instant] = field(default_factory=dict)
    """Until when a backend that has left a frontend stays with weight 0, so that its requests can end."""
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

    @property
    def by_key(self) -> Mapping[VipKey, Value]:
        return dict(self.objects)


def desired(frontend: ResolvedFrontend, inputs: Inputs, now: Instant) -> DesiredFrontend:
    serving_before = dict(_predecessors(frontend, inputs, now))
    if serving_before:
        inputs = replace(
            inputs,
            backends={**inputs.backends, **{name: one.backend for name, one in serving_before.items()}},
            health={**inputs.health, **{name: one.health for name, one in serving_before.items()}},
        )
    pools = [[_member(frontend, name, weight, inputs, now) for name, weight in pool] for pool in frontend.pools]
    found = serving(
        pools, flush_on_down=frontend.config.flush_on_down, panic_below=frontend.config.panic_threshold / 100
    )
    entries = [
        (VipKey(frontend.vip, inputs.backends[name].identity), BackendEntry(share.weight, share.kill, share.base))
        for name, share in found.shares.items()
    ]
    leaving = dict(_leaving(frontend, inputs, {key for key, _ in entries}, now))
    gone = [(key, BackendEntry(0)) for key in leaving]
    objects = inputs.canonical(frontend.vip, [(VipKey(frontend.vip), frontend.settings), *entries, *gone])
    keys = {name: key for name, (key, _) in zip(found.shares, objects[1:], strict=False)}
    # Two objects that become one are refused with the configuration; in etcd the first serves.
    once = dict(reversed(objects))
    ends = (one.until for one in serving_before.values())
    due = min([*_changes(frontend, inputs, now), *ends, *leaving.values()], default=None)
    return DesiredFrontend(found, tuple(sorted(once.items(), key=lambda pair: pair[0])), keys, due)


def _predecessors(frontend: ResolvedFrontend, inputs: Inputs, now: Instant) -> Iterator[tuple[str, Predecessor]]:
    """Backends that still serve at their old address, unless another backend of the frontend has it by now."""
    names = [name for name in frontend.backends() if name in inputs.predecessors]
    taken = {inputs.backends[name].identity for name in frontend.backends()} if names else set()
    for name in names:
        one = inputs.predecessors[name]
        if now < one.until and one.backend.identity not in taken and one.backend.identity.family == frontend.vip.family:
            yield name, one


def _leaving(
    frontend: ResolvedFrontend, inputs: Inputs, there: Container[VipKey], now: Instant
) -> Iterator[tuple[VipKey, Instant]]:
    """Entries of backends that have left the frontend a moment ago, in key order, with the time of their end."""
    for (name, backend), until in sorted(inputs.leaving.items()):
        key = VipKey(frontend.vip, backend)
        if name == frontend.name and now < until and backend.family == frontend.vip.family and key not in there:
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
    steady = name in inputs.found_serving or now - health.since >= frontend.config.fail_back_delay
    return PoolCandidate(name, weight, health.state, ramped, settled, health.is_newcomer, base, steady)


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
            steady = health.since + frontend.config.fail_back_delay
            if steady > now:
                yield steady
            began = inputs.ramps.get((frontend.name, name), slow_start.DONE)
            step = slow_start.next_step(began, frontend.config.slow_start, now)
            if step is not None:
                yield step
        elif health.state is HealthState.DOWN and frontend.config.flush_on_down:
            settles = health.since + inputs.backends[name].flush_delay
            if settles > now:
                yield settles
