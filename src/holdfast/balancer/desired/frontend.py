"""What the dataplane should hold for one frontend now, and when that changes by itself.

A pure function of the roster, health, ramps, an operator's weights and the time. The answer carries the next instant at
which it would be another one although nothing happens: a step of a slow start, or the end of the pause that a flush
waits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from holdfast.balancer.desired import slow_start as slowstart
from holdfast.balancer.desired.pools import PoolCandidate, Serving, serving
from holdfast.balancer.health import Health, HealthState
from holdfast.balancer.services.resolved import ResolvedBackend, ResolvedFrontend
from holdfast.balancer.vip import BackendEntry, Value, VipKey
from holdfast.model.base.time import Instant


@dataclass(frozen=True, slots=True)
class Inputs:
    """Everything besides the configuration that decides what is wanted."""

    backends: Mapping[str, ResolvedBackend]
    health: Mapping[str, Health]
    ramps: Mapping[tuple[str, str], Instant] = field(default_factory=dict)
    """When slow start began, by frontend and backend."""
    weights: Mapping[str, int] = field(default_factory=dict)
    """What an operator asked for."""


@dataclass(frozen=True, slots=True)
class DesiredFrontend:
    """One frontend as it should be. `due` is when to look again at the latest."""

    serving: Serving
    objects: tuple[tuple[VipKey, Value], ...]
    due: Instant | None


def desired(frontend: ResolvedFrontend, around: Inputs, now: Instant) -> DesiredFrontend:
    pools = [[_member(frontend, name, weight, around, now) for name, weight in pool] for pool in frontend.pools]
    found = serving(
        pools, flush_on_down=frontend.config.flush_on_down, panic_below=frontend.config.panic_threshold / 100
    )
    entries = [
        (VipKey(frontend.vip, around.backends[name].identity), BackendEntry(share.weight, share.kill))
        for name, share in found.shares.items()
    ]
    objects: list[tuple[VipKey, Value]] = [(VipKey(frontend.vip), frontend.settings), *sorted(entries)]
    due = min(_changes(frontend, around, now), default=None)
    return DesiredFrontend(found, tuple(objects), due)


def _member(frontend: ResolvedFrontend, name: str, configured: int, around: Inputs, now: Instant) -> PoolCandidate:
    weight = around.weights.get(name, configured)
    health = around.health[name]
    began = around.ramps.get((frontend.name, name), slowstart.DONE)
    ramped = (
        slowstart.weight(weight, began, frontend.config.slow_start, now)
        if weight and health.state is HealthState.UP
        else None
    )
    settled = now - health.since >= around.backends[name].patience
    return PoolCandidate(name, weight, health.state, ramped, settled)


def _changes(frontend: ResolvedFrontend, around: Inputs, now: Instant) -> Iterator[Instant]:
    """The instants at which something changes by itself."""
    for name in frontend.backends():
        health = around.health[name]
        if health.state is HealthState.UP:
            began = around.ramps.get((frontend.name, name), slowstart.DONE)
            step = slowstart.next_step(began, frontend.config.slow_start, now)
            if step is not None:
                yield step
        elif health.state is HealthState.DOWN and frontend.config.flush_on_down:
            settles = health.since + around.backends[name].patience
            if settles > now:
                yield settles
