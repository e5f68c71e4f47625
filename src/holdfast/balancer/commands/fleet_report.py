"""Details of frontends for the report of this balancer: pools and backends, those in trouble first. Read-only.

Every machine's page shows them, so they name the same states, weights and reasons as the views of this balancer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from holdfast.balancer.desired.frontend import DesiredFrontend
from holdfast.balancer.health import HealthState
from holdfast.balancer.reconciler import VipReconciler
from holdfast.balancer.services.resolved import ResolvedFrontend
from holdfast.balancer.vip import BackendEntry, VipKey, shown
from holdfast.model.base.time import NEVER, Duration, Instant
from holdfast.model.fleet.balancer_report import BACKENDS_LIMIT, BackendReport, FrontendReport, PoolReport


def frontend_details(reconciler: VipReconciler, now: Instant, wall: datetime) -> Iterator[tuple[str, FrontendReport]]:
    """Yield each frontend with its details, one by one: a report that is full asks for no more of them."""
    return (
        (one.name, _FrontendDetails(reconciler, one, now, wall).report())
        for one in _in_trouble_first(reconciler, reconciler.balancer.services.frontends.values())
    )


def _in_trouble_first(reconciler: VipReconciler, frontends: Iterable[ResolvedFrontend]) -> Sequence[ResolvedFrontend]:
    health = reconciler.balancer.health
    return sorted(frontends, key=lambda one: all(health[name].state is HealthState.UP for name in one.backends()))


class _FrontendDetails:
    """Details of one frontend at `now`, which is `wall` on the clock on the wall."""

    def __init__(self, reconciler: VipReconciler, frontend: ResolvedFrontend, now: Instant, wall: datetime) -> None:
        self._balancer = reconciler.balancer
        self._held = reconciler.target.held
        self._frontend = frontend
        self._wanted: DesiredFrontend = reconciler.balancer.desired(frontend, now)
        self._now = now
        self._wall = wall

    def report(self) -> FrontendReport:
        pause = self._balancer.pauses.get(self._frontend.name)
        return FrontendReport(
            vip=str(self._frontend.vip),
            pools=tuple(self._pool(pool) for pool in self._frontend.pools),
            active_pool=self._wanted.serving.active,
            panic=self._wanted.serving.panic,
            paused="" if pause is None else f"{pause.who}: {pause.why}",
            programmed=VipKey(self._frontend.vip) in self._held,
        )

    def _pool(self, pool: Sequence[tuple[str, int]]) -> PoolReport:
        """Report a pool in its order; of more backends than fit, those that are not up first."""
        health = self._balancer.health
        up = sum(health[name].state is HealthState.UP for name, _ in pool)
        named = pool
        if len(pool) > BACKENDS_LIMIT:
            named = sorted(pool, key=lambda one: health[one[0]].state is HealthState.UP)[:BACKENDS_LIMIT]
        return PoolReport(up=up, total=len(pool), backends=tuple(self._backend(*one) for one in named))

    def _backend(self, name: str, configured: int) -> BackendReport:
        backend, health = self._balancer.services.backends[name], self._balancer.health[name]
        entry = self._held.get(self._wanted.keys[name])
        is_up = health.state is HealthState.UP
        errors = "; ".join(self._balancer.probe_errors.get(name, {}).values())
        return BackendReport(
            name=name,
            address=shown(backend.identity),
            state=health.state.value,
            configured=configured,
            weight=entry.weight if isinstance(entry, BackendEntry) else None,
            why="" if is_up else errors or health.why,
            since=None if is_up or health.since == NEVER else self._moment(health.since),
        )

    def _moment(self, since: Instant) -> datetime:
        """Return the time of day to the second, so that reports of an unchanged state are equal."""
        return (self._wall - (self._now - since) + Duration(milliseconds=500)).replace(microsecond=0)
