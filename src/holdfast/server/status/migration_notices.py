"""Telling a webhook that a live migration has arrived: at least once, with an idempotency key, in practice once.

The one loop again: what should have been told, against what was told. Told is what the webhook has answered with 2xx,
written down under the fence right after; whoever dies between the two is followed by somebody who tells it again, with
the same key. A call cannot be fenced: leadership is confirmed with the store just before it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any

import structlog
from prometheus_client import CollectorRegistry, Counter

from holdfast.inventory.api import Fence
from holdfast.model.base.bad import Bad
from holdfast.model.base.region import Region
from holdfast.model.base.time import Duration
from holdfast.model.calico.migration import MIGRATION, Migration
from holdfast.reconcile import Away, Change, Op, Outcome, Owned, one_kind
from holdfast.runtime.daemon.context import Context
from holdfast.runtime.daemon.vitals import Vitals
from holdfast.runtime.metrics import WorkerMetrics
from holdfast.runtime.reconciler import Reconciler
from holdfast.runtime.reconciler.place import LoopTimings, Place
from holdfast.runtime.tasks import until_first
from holdfast.server.election.leadership import LeaderGate, Leading, NotLeading
from holdfast.server.status.feed import follow
from holdfast.server.status.migration import KIND, Notified, Witnesses, identity, notice, of_endpoint
from holdfast.server.status.target import SOURCE, ObservedTarget
from holdfast.server.status.term import Around
from holdfast.store.api import Store, StoreError
from holdfast.store.mirror.mirror import Mirror

log = structlog.get_logger(__name__)

LOOK_EVERY = Duration(seconds=1)
NAMED = 20
"""Arrivals that are named while the webhook does not take them; the rest is counted."""

DONE: Mapping[Op, str] = {Op.DELETE: "forgot", Op.REPLACE: "was told anew of", Op.CREATE: "was told of"}

Tell = Callable[[dict[str, str]], Awaitable[str | None]]
"""Tells one notice; what went wrong, if something did."""
Confirm = Callable[[], Awaitable[Leading | NotLeading]]


class ArrivalSource:
    """The migrations that are under way, and what should have been told about them."""

    def __init__(
        self, region: Region, migrations: Mirror[Migration], endpoints: Mirror[Any], target: ObservedTarget[Notified]
    ) -> None:
        self._migrations = migrations
        self._endpoints = endpoints
        self._target = target
        self._witnesses = Witnesses(region, endpoints)

    async def read(self, after: bytes | None, upto: bytes | None) -> Sequence[tuple[bytes, Owned[Notified]]]:
        found = await self.get(self._migrations.objects)
        keys = [key for key in sorted(found) if (after is None or key > after) and (upto is None or key <= upto)]
        return [(key, found[key]) for key in keys]

    async def get(self, keys: Collection[bytes]) -> Mapping[bytes, Owned[Notified]]:
        await self.refresh()
        self._witnesses.forget(self._migrations.objects)
        found: dict[bytes, Owned[Notified]] = {}
        for key in keys:
            migration = self._migrations.objects.get(key)
            row, revision = self._target.written.get(key), self._migrations.mod_revision(key)
            last = None if row is None else row.value
            told = last if migration is None and key in self._migrations.bad else None
            if migration is not None:
                told = self._wanted(key, migration, revision, last)
            if told is not None:
                found[key] = Owned(told, SOURCE, revision)
        return found

    def _wanted(self, key: bytes, migration: Migration, revision: int, last: Notified | None) -> Notified | None:
        """What should have been told about a migration that is under way."""
        mine = Notified(identity(key, migration, revision))
        return mine if last == mine or self._witnesses.has_arrived(key, migration, revision) else None

    async def refresh(self) -> None:
        if not (self._migrations.synced and self._endpoints.synced):
            raise Away("store", "the first complete list of migrations has not come yet")


class WebhookTarget:
    """Tells what is to be told, and has it written down."""

    def __init__(
        self, target: ObservedTarget[Notified], migrations: Mirror[Migration], tell: Tell, confirm: Confirm
    ) -> None:
        self._target = target
        self._migrations = migrations
        self._tell = tell
        self._confirm = confirm
        self.read, self.get = target.read, target.get

    async def apply(self, ready: Sequence[Change[bytes, Notified]]) -> Sequence[Outcome[bytes, Notified]]:
        return [await self._one(change) for change in ready]

    async def _one(self, change: Change[bytes, Notified]) -> Outcome[bytes, Notified]:
        migration = self._migrations.objects.get(change.key)
        if change.new is not None:
            if migration is None:
                return Outcome(change, "the migration is gone")
            refusal = await self._told(change.new.value, migration)
            if refusal is not None:
                return Outcome(change, refusal)
        (outcome,) = await self._target.apply([change])
        return outcome

    async def _told(self, told: Notified, migration: Migration) -> str | None:
        try:
            if not isinstance(await self._confirm(), Leading):
                return "this server does not lead any more"
        except (Away, StoreError) as error:
            return f"leadership cannot be confirmed: {error}"
        return await self._tell(notice(told.key, migration))


class MigrationNotices:
    """The whole of it, beside an endpoint-status reign."""

    def __init__(
        self,
        around: Around,
        region: Region,
        store: Store,
        endpoints: Mirror[Any],
        fence: Fence,
        tell: Tell,
        confirm: Confirm,
    ) -> None:
        prefix = MIGRATION.prefix(region)
        self.mirror: Mirror[Migration] = Mirror(store, prefix, _decode, now=around.clock.now)
        target = ObservedTarget(around.observed, around.aside, fence, KIND, prefix, Notified(""), around.clock)
        self.target = target
        self.reconciler: Reconciler[bytes, Notified] = Reconciler(
            Place(
                "webhook",
                ArrivalSource(region, self.mirror, endpoints, target),
                WebhookTarget(target, self.mirror, tell, confirm),
                [LeaderGate(around.leadership)],
                one_kind("migrations"),
                lambda key: f"migration {key.decode(errors='replace').rpartition('/')[2]}",
                lambda new, old: new == old,  # never of one that cannot be read: no key is empty
                term=lambda: fence.term,
                done=DONE,
                read_back=False,
            ),
            # Vitals of its own: those of the worker show the reports, and an unreachable webhook must not stall them.
            Context(around.clock, Vitals(around.clock), around.decisions, WorkerMetrics()),
            LoopTimings(audit=around.audit_every),
        )

    async def run(self, stopping: asyncio.Event) -> None:
        works = {
            "migrations": follow(self.mirror, "migrations"),
            "look": self._look(),
            "notices": self.reconciler.run(stopping),
        }
        await until_first(works)

    def view(self) -> dict[str, Any]:
        """For `holdfast status`: how many are under way, of how many the webhook knows, and what it does not take."""
        waiting = [self._waiting(story.change.key, story.error) for story in self.reconciler.ledger if story.error]
        told = sum(1 for key in self.mirror.objects if key in self.target.written)
        return {
            "under_way": len(self.mirror.objects),
            "told": told,
            "waiting": waiting[:NAMED],
            "failing": len(waiting),
        }

    def about(self, endpoint: str) -> list[dict[str, Any]]:
        """For `holdfast explain`: each migration of that endpoint, and whether its arrival was told."""
        return [self._story(key, one) for key, one in self.mirror.objects.items() if of_endpoint(one) == endpoint]

    def _story(self, key: bytes, migration: Migration) -> dict[str, Any]:
        story = self.reconciler.ledger.outstanding(key)
        row = self.target.written.get(key)
        return {
            "from": migration.source.node,
            "to": migration.target.node,
            "told": None if row is None else row.at.isoformat(timespec="seconds"),
            "error": story.error if story is not None else None,
        }

    def _waiting(self, key: bytes, error: str | None) -> dict[str, Any]:
        migration = self.mirror.objects.get(key)
        name = self.reconciler.place.show(key) if migration is None else of_endpoint(migration)
        return {"endpoint": name, "error": error}

    async def _look(self) -> None:
        """Migrations are few and short: while there are any, they are looked at every second."""
        while True:
            await asyncio.sleep(LOOK_EVERY.total_seconds())
            if self.mirror.synced and (self.mirror.objects or self.target.written):
                self.reconciler.dirty.mark([*self.mirror.objects, *self.target.written])


class MigrationMetrics:
    """What the webhook made of what it was told."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.told = Counter("holdfast_migrations_told", "Arrivals that the webhook has taken.", registry=registry)
        self.failed = Counter("holdfast_migration_webhook_failures", "Arrivals it did not take.", registry=registry)


def counted(tell: Tell, metrics: MigrationMetrics) -> Tell:
    async def told(notice: dict[str, str]) -> str | None:
        refusal = await tell(notice)
        (metrics.told if refusal is None else metrics.failed).inc()
        return refusal

    return told


def _decode(key: bytes, value: bytes) -> Migration | Bad:
    return MIGRATION.decode(key, value)
