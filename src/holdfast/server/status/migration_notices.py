"""Notifies a webhook that a live migration has arrived: at least once, with an idempotency key, in practice once.

Uses the one loop: notifications that are due, compared with those that were sent. A notification counts as sent when
the webhook answered 2xx, and is recorded under the fence right after; if the leader dies between the two, the next one
sends it again, with the same key. A call cannot be fenced: leadership is confirmed with the store just before it. The
pauses of the endpoints' status hold the notifications, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any

import structlog
from prometheus_client import CollectorRegistry, Counter

from holdfast.inventory.api import Fence
from holdfast.inventory.open import NotifyArrival
from holdfast.model.base.bad import Bad
from holdfast.model.base.region import Region
from holdfast.model.base.time import Duration
from holdfast.model.calico.migration import MIGRATION, Migration
from holdfast.reconcile import Away, Change, Op, Outcome, Owned, PauseGate, one_kind
from holdfast.runtime.daemon.context import Context
from holdfast.runtime.daemon.vitals import Vitals
from holdfast.runtime.metrics import WorkerMetrics
from holdfast.runtime.reconciler import Reconciler
from holdfast.runtime.reconciler.place import LoopTimings, Place
from holdfast.runtime.tasks import until_first
from holdfast.server.election.leadership import LeaderGate, Leadership, Leading, NotLeading
from holdfast.server.status.feed import follow
from holdfast.server.status.kinds import StatusKind
from holdfast.server.status.rules.migration import KIND, Notified, TargetReports, identity, notice, of_endpoint
from holdfast.server.status.target import SOURCE, ObservedTarget
from holdfast.store.api import Store, StoreError
from holdfast.store.mirror.mirror import Mirror

log = structlog.get_logger(__name__)

COMPARE_EVERY = Duration(seconds=1)
NAMED = 20
"""Failed notifications that are named; the rest is counted."""

DONE: Mapping[Op, str] = {
    Op.DELETE: "forgot",
    Op.REPLACE: "was notified again of",
    Op.CREATE: "was notified of",
}

Confirm = Callable[[], Awaitable[Leading | NotLeading]]


class ArrivalSource:
    """Migrations under way, and the notifications that are due for them."""

    def __init__(
        self, region: Region, migrations: Mirror[Migration], endpoints: Mirror[Any], target: ObservedTarget[Notified]
    ) -> None:
        self._migrations = migrations
        self._endpoints = endpoints
        self._target = target
        self._target_reports = TargetReports(region, endpoints)

    async def read(self, after: bytes | None, upto: bytes | None) -> Sequence[tuple[bytes, Owned[Notified]]]:
        found = await self.get(self._migrations.objects)
        keys = [key for key in sorted(found) if (after is None or key > after) and (upto is None or key <= upto)]
        return [(key, found[key]) for key in keys]

    async def get(self, keys: Collection[bytes]) -> Mapping[bytes, Owned[Notified]]:
        await self.refresh()
        self._target_reports.forget(self._migrations.objects)
        found: dict[bytes, Owned[Notified]] = {}
        for key in keys:
            migration = self._migrations.objects.get(key)
            row, revision = self._target.written.get(key), self._migrations.mod_revision(key)
            last = None if row is None else row.value
            notified = last if migration is None and key in self._migrations.bad else None
            if migration is not None:
                notified = self._wanted(key, migration, revision, last)
            if notified is not None:
                found[key] = Owned(notified, SOURCE, revision)
        return found

    def _wanted(self, key: bytes, migration: Migration, revision: int, last: Notified | None) -> Notified | None:
        """Notification that is due for a migration under way, if any."""
        mine = Notified(identity(key, migration, revision))
        return mine if last == mine or self._target_reports.has_arrived(key, migration, revision) else None

    async def refresh(self) -> None:
        if not (self._migrations.synced and self._endpoints.synced):
            raise Away("store", "waiting for the first complete list of migrations")


class WebhookTarget:
    """Calls the webhook, then records the notification in the inventory."""

    def __init__(
        self, target: ObservedTarget[Notified], migrations: Mirror[Migration], notify: NotifyArrival, confirm: Confirm
    ) -> None:
        self._target = target
        self._migrations = migrations
        self._notify = notify
        self._confirm = confirm
        self.read, self.get = target.read, target.get

    async def apply(self, ready: Sequence[Change[bytes, Notified]]) -> Sequence[Outcome[bytes, Notified]]:
        return [await self._one(change) for change in ready]

    async def _one(self, change: Change[bytes, Notified]) -> Outcome[bytes, Notified]:
        migration = self._migrations.objects.get(change.key)
        if change.new is not None:
            if migration is None:
                return Outcome(change, "the migration is gone")
            refusal = await self._call(change.new.value, migration)
            if refusal is not None:
                return Outcome(change, refusal)
        (outcome,) = await self._target.apply([change])
        return outcome

    async def _call(self, due: Notified, migration: Migration) -> str | None:
        try:
            if not isinstance(await self._confirm(), Leading):
                return "this server no longer leads"
        except (Away, StoreError) as error:
            return f"leadership cannot be confirmed: {error}"
        return await self._notify(notice(due.key, migration))


class MigrationNotices:
    """The loop that notifies the webhook, beside an endpoint-status term."""

    def __init__(
        self,
        context: Context,
        kind: StatusKind[Any, Any],
        store: Store,
        fence: Fence,
        *,
        leadership: Leadership,
        pause: PauseGate[bytes],
        notify: NotifyArrival,
        confirm: Confirm,
        audit_every: Duration = Duration(minutes=5),
    ) -> None:
        clock, region = context.clock, kind.rules.region
        prefix = MIGRATION.prefix(region)
        self.mirror: Mirror[Migration] = Mirror(
            store, prefix, _decode, own=kind.mirror.own, now=clock.now
        )  # protection: C38
        target = ObservedTarget(kind.observed, kind.run_in_thread, fence, KIND, prefix, Notified(""), clock)
        self.target = target
        self.reconciler: Reconciler[bytes, Notified] = Reconciler(
            Place(
                "webhook",
                ArrivalSource(region, self.mirror, kind.mirror, target),
                WebhookTarget(target, self.mirror, notify, confirm),
                [LeaderGate(leadership), pause],
                one_kind("migrations"),
                lambda key: f"migration {key.decode(errors='replace').rpartition('/')[2]}",
                lambda new, old: new == old,  # an unreadable row is never equal: no key is empty
                term=lambda: fence.term,
                done=DONE,
                read_back=False,
            ),
            # Vitals of its own: an unreachable webhook must not look like a stalled worker.
            Context(clock, Vitals(clock), context.decisions, WorkerMetrics()),
            LoopTimings(audit=audit_every),
        )

    async def run(self, stopping: asyncio.Event) -> None:
        works = {
            "migrations": follow(self.mirror, "migrations"),
            "compare": self._compare_periodically(),
            "notices": self.reconciler.run(stopping),
        }
        await until_first(works)

    def view(self) -> dict[str, Any]:
        """For `holdfast status`: migrations under way, notified ones, and notifications that fail."""
        waiting = [self._waiting(one.change.key, one.error) for one in self.reconciler.ledger if one.error]
        notified = sum(1 for key in self.mirror.objects if key in self.target.written)
        return {
            "under_way": len(self.mirror.objects),
            "notified": notified,
            "waiting": waiting[:NAMED],
            "failing": len(waiting),
        }

    def about(self, endpoint: str) -> list[dict[str, Any]]:
        """For `holdfast explain`: each migration of that endpoint, and whether the webhook was notified."""
        return [self._explain(key, one) for key, one in self.mirror.objects.items() if of_endpoint(one) == endpoint]

    def _explain(self, key: bytes, migration: Migration) -> dict[str, Any]:
        outstanding = self.reconciler.ledger.outstanding(key)
        closed = outstanding.closed if outstanding is not None and outstanding.is_held else None
        row = self.target.written.get(key)
        return {
            "from": migration.source.node,
            "to": migration.target.node,
            "notified": None if row is None else row.at.isoformat(timespec="seconds"),
            "error": outstanding.error if outstanding is not None else None,
            "held": None if closed is None else f"{closed.sentence}. To release: {closed.opens}",
        }

    def _waiting(self, key: bytes, error: str | None) -> dict[str, Any]:
        migration = self.mirror.objects.get(key)
        name = self.reconciler.place.show(key) if migration is None else of_endpoint(migration)
        return {"endpoint": name, "error": error}

    async def _compare_periodically(self) -> None:
        """Compare all migrations every second: they are few and short."""
        while True:
            await asyncio.sleep(COMPARE_EVERY.total_seconds())
            if self.mirror.synced and (self.mirror.objects or self.target.written):
                self.reconciler.dirty.mark([*self.mirror.objects, *self.target.written])


class MigrationMetrics:
    """Outcomes of the webhook calls."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.notified = Counter(
            "holdfast_migrations_notified", "Arrivals that the webhook accepted.", registry=registry
        )
        self.failed = Counter("holdfast_migration_webhook_failures", "Failed calls of the webhook.", registry=registry)


def counted(notify: NotifyArrival, metrics: MigrationMetrics) -> NotifyArrival:
    async def counting(notice: dict[str, str]) -> str | None:
        refusal = await notify(notice)
        (metrics.notified if refusal is None else metrics.failed).inc()
        return refusal

    return counting


def _decode(key: bytes, value: bytes) -> Migration | Bad:
    return MIGRATION.decode(key, value)
