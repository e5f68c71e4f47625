"""Compactor: part of the elector worker. While its server leads, it compacts the store's history and watches its size.

A compaction cannot be fenced: it carries no term. The transaction that takes the trigger compares the term just before,
and compacting twice is compacting once. While the store is out of space nothing can be put; then it compacts without
taking the trigger.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge

from holdfast.config.sections.compaction import CompactionSettings
from holdfast.model.base.region import Region
from holdfast.model.base.time import NEVER, Duration, Instant
from holdfast.model.calico.host import HOST
from holdfast.runtime.clock import Clock
from holdfast.server.compaction import policy
from holdfast.server.compaction.policy import LAST, TRIGGER, Checked, CompactionVerdict, LastCompaction, Why
from holdfast.store.api import (
    Aspect,
    Compacted,
    Compare,
    Delete,
    Deposed,
    Get,
    NoSpace,
    Put,
    Store,
    StoreAway,
    StoreError,
)
from holdfast.store.fenced.store import FencedStore

log = structlog.get_logger(__name__)

CHECK_EVERY = Duration(seconds=10)


class CompactionMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        counter, gauge = partial(Counter, registry=registry), partial(Gauge, registry=registry)
        self.compactions = counter("holdfast_compactions", "Compactions of the store's history.")
        self.size = gauge("holdfast_store_bytes", "Size of the store's largest member.")
        self.quota = gauge("holdfast_store_quota_bytes", "Size at which the store takes no more writes.")
        self.full = gauge("holdfast_store_full", "1 while the store is out of space.")


class Compactor:
    """`fenced` returns the store fenced by the term that this server leads in; None while it does not lead."""

    def __init__(
        self,
        store: Store,
        region: Region,
        config: CompactionSettings,
        clock: Clock,
        registry: CollectorRegistry,
        fenced: Callable[[], FencedStore | None],
    ) -> None:
        self._store = store
        self._region = region
        self._config = config
        self._clock = clock
        self._fenced = fenced
        self._metrics = CompactionMetrics(registry)
        self._metrics.quota.set(config.quota)
        self._notes = LastCompaction()
        self._full = self._nearly_full = False
        self._revision = 0
        self.compacted: Instant = NEVER
        """Instant of this server's last compaction."""

    async def run(self) -> None:
        while True:
            await asyncio.sleep(CHECK_EVERY.total_seconds())
            await self.check()

    async def check(self) -> None:
        """Check once. No answer of the store ends the periodic check."""
        try:
            await self._check_size()
            fenced = self._fenced()
            if fenced is None:
                self._notes = LastCompaction()
            elif self._config.every != Duration(0):
                await self._check_history(fenced)
        except Deposed as deposed:
            log.debug("not compacted: deposed", reason=str(deposed))
        except (StoreAway, StoreError) as error:
            log.debug("cannot compact; retrying", error=str(error))

    async def _check_size(self) -> None:
        members = await self._store.status()
        full = "NOSPACE" in await self._store.alarms()
        size = max(member.db_size for member in members)
        self._metrics.size.set(size)
        self._metrics.full.set(full)
        share = size / self._config.quota
        nearly_full = not full and share >= 0.8
        fields = {"action": "defragment it", "size_mib": size >> 20, "of_quota": f"{share:.0%}"}
        if full and not self._full:
            log.warning("store is full", **fields)
        elif nearly_full and not self._nearly_full:
            log.warning("store is nearly full", **fields)
        self._full, self._nearly_full = full, nearly_full

    async def _check_history(self, fenced: FencedStore) -> None:
        trigger = await self._store.get(TRIGGER)
        if trigger is not None and trigger.lease:
            return  # the period of the last check is not over, whichever server made it
        if trigger is not None:
            log.warning("compaction trigger has no lease and would block compaction; removing it", key=TRIGGER.decode())
            await fenced.txn([Compare(TRIGGER, Aspect.MOD_REVISION, trigger.mod_revision)], [Delete(TRIGGER)])
        every = policy.period(self._config.every, self._config.every_when_large, await self._count_hosts())
        try:
            if await self._take_turn(fenced, every):
                await self._check(fenced, self._notes if self._notes.due(every, self._clock.now()) else None)
        except NoSpace:
            await self._check_without_a_put(fenced, every)

    async def _take_turn(self, fenced: FencedStore, every: Duration) -> bool:
        """Claims the check that is due. False: another server made it."""
        lease = await self._store.grant(max(Duration(seconds=2), every))
        absent, taken = Compare(TRIGGER, Aspect.CREATE_REVISION, 0), False
        try:
            taken = (await fenced.txn([absent], [Put(TRIGGER, b"%d" % fenced.term, lease)])).succeeded
        finally:
            if not taken:  # also on failure: it is retried every ten seconds, and the lease would live for an hour
                await self._revoke(lease)
        return taken

    async def _revoke(self, lease: int) -> None:
        try:
            await self._store.revoke(lease)
        except (StoreAway, StoreError) as error:
            log.info("lease not revoked; it expires", lease=f"{lease:x}", error=str(error))

    async def _check(self, fenced: FencedStore, noted: LastCompaction | None) -> None:
        verdict, last = await self._verdict(noted)
        if verdict.why is Why.RESTORED:
            last = None
        compacted = await self._compact(verdict) if verdict.upto else (last.compacted if last else 0)
        await fenced.put(LAST, b"%d" % compacted)
        self._note(verdict, written=True)

    async def _check_without_a_put(self, fenced: FencedStore, every: Duration) -> None:
        """Out of space: the term is checked by a read, since nothing can be written, and the period by memory."""
        now = self._clock.now()
        if not self._notes.due(every, now):
            return
        await fenced.txn([], [Get(LAST)])
        verdict, _ = await self._verdict(self._notes)
        if verdict.upto:
            await self._compact(verdict)
        self._note(verdict, written=False)

    async def _verdict(self, noted: LastCompaction | None) -> tuple[CompactionVerdict, Checked | None]:
        found = await self._store.txn([], [Get(LAST)])
        (entries,) = found.results
        assert not isinstance(entries, int)
        last = policy.read_last(entries[0].value, entries[0].mod_revision) if entries else None
        self._revision = found.revision
        return policy.compaction_verdict(found.revision, last, noted), last

    def _note(self, verdict: CompactionVerdict, *, written: bool) -> None:
        self._notes = LastCompaction(self._clock.now(), self._revision, written)
        if not verdict.upto:
            log.info("store history kept", revision=self._revision, reason=verdict.why.value)

    async def _compact(self, verdict: CompactionVerdict) -> int:
        """Return the revision up to which the history is compacted now."""
        try:
            await self._store.compact(verdict.upto)
        except Compacted as theirs:
            log.info("store history was already compacted by another client", revision=verdict.upto)
            return max(verdict.upto, theirs.compact_revision)
        self.compacted = self._clock.now()
        self._metrics.compactions.inc()
        log.info("store history compacted", revision=verdict.upto, kept=self._revision - verdict.upto)
        return verdict.upto

    async def _count_hosts(self) -> int:
        hosts = self._store.list(HOST.prefix(self._region), keys_only=True)
        return sum([len(page.entries) async for page in hosts])
