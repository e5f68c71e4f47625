"""The compactor: the elector's second job. While its server leads, it looks after the store's history and its size.

It cannot be fenced: a compaction carries no term. The transaction that takes the trigger compares the term just before,
and compacting twice is compacting once. While the store is out of space nothing can be put; then it compacts without.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge

from holdfast.config.sections.compaction import CompactionSettings
from holdfast.model.base.region import Region
from holdfast.model.base.time import NEVER, Duration, Instant
from holdfast.model.calico.host import HOST
from holdfast.runtime.clock import Clock
from holdfast.server.compaction import policy as compaction
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

LOOK_EVERY = Duration(seconds=10)


class CompactionMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self.compactions = Counter("holdfast_compactions", "Compactions of the store's history.", registry=registry)
        self.size = Gauge("holdfast_store_bytes", "Size of the store's largest member.", registry=registry)
        self.quota = Gauge("holdfast_store_quota_bytes", "Size at which it takes no more writes.", registry=registry)
        self.full = Gauge("holdfast_store_full", "1 while the store is out of space.", registry=registry)


class Compactor:
    """`fenced` is the store under the term that this server leads in; None while it does not lead."""

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
        self._said = ""
        self._stood = 0
        self.compacted: Instant = NEVER
        """When this server last compacted."""

    async def run(self) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY.total_seconds())
            await self.look()

    async def look(self) -> None:
        """One look; whatever the store answers, the next one comes."""
        try:
            await self._weigh()
            fenced = self._fenced()
            if fenced is None:
                self._notes = LastCompaction()
            elif self._config.every != Duration(0):
                await self._upkeep(fenced)
        except Deposed as deposed:
            log.debug(f"nothing is compacted: {deposed}")
        except (StoreAway, StoreError) as error:
            log.debug(f"the store's history cannot be looked after now: {error}")

    async def _weigh(self) -> None:
        members = await self._store.status()
        full = "NOSPACE" in await self._store.alarms()
        size = max(member.db_size for member in members)
        self._metrics.size.set(size)
        self._metrics.full.set(full)
        share = size / self._config.quota
        state = "full" if full else "nearly full" if share >= 0.8 else ""
        if state and state != self._said:
            log.warning(f"the store is {state}: {size >> 20:,} MiB, {share:.0%} of compaction.quota; defragment it")
        self._said = state

    async def _upkeep(self, fenced: FencedStore) -> None:
        trigger = await self._store.get(TRIGGER)
        if trigger is not None and trigger.lease:
            return  # the period of the last check is not over, whoever made it
        if trigger is not None:
            log.warning(f"{TRIGGER.decode()} has no lease and would stop compaction for ever, so it is removed")
            await fenced.txn([Compare(TRIGGER, Aspect.MOD_REVISION, trigger.mod_revision)], [Delete(TRIGGER)])
        every = compaction.period(self._config.every, self._config.every_when_large, await self._hosts())
        try:
            if await self._take_turn(fenced, every):
                await self._check(fenced, self._notes if self._notes.due(every, self._clock.now()) else None)
        except NoSpace:
            await self._check_without_a_put(fenced, every)

    async def _take_turn(self, fenced: FencedStore, every: Duration) -> bool:
        """Whether the check that is due is ours."""
        lease = await self._store.grant(max(Duration(seconds=2), every))
        absent, taken = Compare(TRIGGER, Aspect.CREATE_REVISION, 0), False
        try:
            taken = (await fenced.txn([absent], [Put(TRIGGER, b"%d" % fenced.term, lease)])).succeeded
        finally:
            if not taken:  # also where it failed: it is tried every ten seconds, and a lease lives for an hour
                await self._let_go(lease)
        return taken

    async def _let_go(self, lease: int) -> None:
        try:
            await self._store.revoke(lease)
        except (StoreAway, StoreError) as error:
            log.debug(f"lease {lease:x} stays until it runs out: {error}")

    async def _check(self, fenced: FencedStore, noted: LastCompaction | None) -> None:
        verdict, last = await self._judged(noted)
        if verdict.why is Why.RESTORED:
            last = None
        compacted = await self._compact(verdict) if verdict.upto else (last.compacted if last else 0)
        await fenced.put(LAST, b"%d" % compacted)
        self._note(verdict, written=True)

    async def _check_without_a_put(self, fenced: FencedStore, every: Duration) -> None:
        """Out of space: who leads is asked, since it cannot be written, and when was last remembered."""
        now = self._clock.now()
        if not self._notes.due(every, now):
            return
        await fenced.txn([], [Get(LAST)])
        verdict, _ = await self._judged(self._notes)
        if verdict.upto:
            await self._compact(verdict)
        self._note(verdict, written=False)

    async def _judged(self, noted: LastCompaction | None) -> tuple[CompactionVerdict, Checked | None]:
        found = await self._store.txn([], [Get(LAST)])
        (entries,) = found.results
        assert not isinstance(entries, int)
        last = compaction.read_last(entries[0].value, entries[0].mod_revision) if entries else None
        self._stood = found.revision
        return compaction.judge(found.revision, last, noted), last

    def _note(self, verdict: CompactionVerdict, *, written: bool) -> None:
        self._notes = LastCompaction(self._clock.now(), self._stood, written)
        if not verdict.upto:
            log.info(f"the store's history is kept, revision {self._stood:,}: {verdict.why.value}")

    async def _compact(self, verdict: CompactionVerdict) -> int:
        """Up to where the history is gone now."""
        try:
            await self._store.compact(verdict.upto)
        except Compacted as theirs:
            log.info(f"somebody else has compacted the store beyond revision {verdict.upto:,} already")
            return max(verdict.upto, theirs.compact_revision)
        self.compacted = self._clock.now()
        self._metrics.compactions.inc()
        log.info(
            f"compacted the store's history up to revision {verdict.upto:,}; "
            f"{self._stood - verdict.upto:,} revisions are kept"
        )
        return verdict.upto

    async def _hosts(self) -> int:
        hosts = self._store.list(HOST.prefix(self._region), keys_only=True)
        return sum([len(page.entries) async for page in hosts])
