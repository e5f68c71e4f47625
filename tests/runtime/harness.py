"""Harness of the reconcile loop: a place in memory, with a clock that a test moves by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path

from hypothesis import HealthCheck, settings

from holdfast.model.base.time import Duration, Instant, seconds
from holdfast.reconcile import Brake, Gate, Kinds, Owned, PauseGate, Synced, SyncGate, one_kind
from holdfast.runtime.daemon.context import Context
from holdfast.runtime.daemon.vitals import Vitals
from holdfast.runtime.decision_log import Decision, DecisionLog, history
from holdfast.runtime.metrics import WorkerMetrics
from holdfast.runtime.reconciler import Reconciler
from holdfast.runtime.reconciler.place import LoopTimings, Place
from holdfast.testing.fakes.target import MemorySource, MemoryTarget

patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
"""Hypothesis settings for a busy machine."""

KINDS: Kinds[int] = one_kind("routes")
BIRTH = datetime(2026, 1, 1, tzinfo=UTC)


class HandClock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.instant = Instant(10**13)
        self._start = self.instant

    def now(self) -> Instant:
        return self.instant

    def wall(self) -> datetime:
        return BIRTH + (self.instant - self._start)

    def move(self, by: float) -> None:
        self.instant += seconds(by)


def owned(values: Mapping[int, str], source: str = "db", revision: int = 1) -> dict[int, Owned[str]]:
    return {key: Owned(value, source, revision) for key, value in values.items()}


def numbered(count: int) -> dict[int, str]:
    return {key: f"v{key}" for key in range(count)}


class MemoryPlace:
    """A place in memory. `want` and `have` can change at any time; `turn` runs one turn of the loop."""

    def __init__(
        self,
        folder: Path,
        want: Mapping[int, str],
        have: Mapping[int, str],
        *,
        page: int = 1_000,
        pace: LoopTimings | None = None,
        read_back: bool = True,
        braked: bool = True,
        live_first: bool = False,
        clock: HandClock | None = None,
    ) -> None:
        self.clock = clock or HandClock()
        self.source: MemorySource[int, str] = MemorySource(owned(want))
        self.target: MemoryTarget[int, str] = MemoryTarget(owned(have), page=page)
        self.intent: PauseGate[int] = PauseGate()
        self.sync = SyncGate({"db": Synced(self.clock.now(), 1)})
        self.brake: Brake[int, str] | None = Brake("routes/brake", KINDS) if braked else None
        gates: tuple[Gate[int, str], ...] = (self.sync, self.intent)
        self.place: Place[int, str] = Place(
            name="routes",
            source=self.source,
            target=self.target,
            gates=gates,
            kinds=KINDS,
            show=lambda key: f"r{key}",
            same=str.__eq__,
            brake=self.brake,
            live_first=live_first,
            read_back=read_back,
            term=lambda: 42,
        )
        self.vitals = Vitals(self.clock)
        self.metrics = WorkerMetrics()
        self.folder = folder
        self.decisions = DecisionLog(folder, "lab.routes")
        self.reconciler: Reconciler[int, str] = Reconciler(
            self.place,
            Context(self.clock, self.vitals, self.decisions, self.metrics),
            pace or LoopTimings(audit=Duration(seconds=300)),
        )

    @property
    def there(self) -> dict[int, str]:
        return {key: one.value for key, one in self.target.objects.items()}

    @property
    def state(self) -> str:
        return self.vitals.state

    def want(self, values: Mapping[int, str]) -> None:
        self.source.objects = owned(values, revision=2)

    async def turn(self, *, after: float = 0.0, times: int = 1) -> None:
        for _ in range(times):
            self.clock.move(after)
            await self.reconciler.turn()

    async def look_at(self, *keys: int, after: float = 0.0) -> None:
        """A partial pass over these keys."""
        self.reconciler.dirty.mark(keys)
        await self.turn(after=after)

    async def look_at_all(self, after: float = 0.0) -> None:
        self.reconciler.dirty.mark_all()
        await self.turn(after=after)

    def records(self) -> list[Decision]:
        return history(self.folder, last=0)

    def told(self) -> list[tuple[str, str, str]]:
        return [(one.op, one.key, one.outcome) for one in self.records()]


async def until(condition: Callable[[], bool]) -> None:
    """Waits for a condition that has no event; the caller sets a timeout."""
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0.01)


def pulse_backlog(site: MemoryPlace) -> int | None:
    return site.vitals.pulse(1, site.clock.now()).backlog
