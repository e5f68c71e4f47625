"""Operator intents for a worker of the leader, stored in etcd: a pause, and for the syncer a timed allowance. Both
survive a takeover.

A leader reads them before its first write and every few seconds after. An unreadable pause counts as a pause. While a
timed allowance lasts, the revision up to which agents honour it rises with what the syncer deletes under it. In a store
that was restored from a backup allowances are void, because they came back with it, and a remembered pause stays in
force (C69, `pause_memory`).
"""

from __future__ import annotations

import asyncio
from datetime import datetime

import msgspec
import structlog

from holdfast.model.base.bad import Bad
from holdfast.model.base.region import Region
from holdfast.model.base.time import Instant
from holdfast.model.control.allowance import ALLOWANCE, Allowance, AllowanceName
from holdfast.model.control.identity import Identity
from holdfast.model.control.intent import INTENT, Intent, IntentKind, IntentName
from holdfast.model.control.scope import Scope, ScopeKind
from holdfast.reconcile import Away, Pause
from holdfast.runtime.clock import Clock
from holdfast.server.intents.pause_memory import IN_DOUBT, PauseMemory, pause_in_force, verdict_of
from holdfast.store.api import Aspect, Compare, Delete, Entry, Get, Put, Store, StoreError, prefix_end
from holdfast.store.fenced.store import FencedStore
from holdfast.store.identity import StoreVerdict, read_identity

log = structlog.get_logger(__name__)

SYNCER = Scope(ScopeKind.SYNCER)
PAUSE = IntentName(IntentKind.PAUSE, SYNCER)
BRAKE = AllowanceName("brake", SYNCER)


class EtcdIntents:
    """The two keys of one scope, as they were last read. Without a `memory` only what the store holds counts."""

    def __init__(
        self, store: Store, region: Region, clock: Clock, scope: Scope = SYNCER, memory: PauseMemory | None = None
    ) -> None:
        self.scope = scope
        self._store = store
        self._region = region
        self._clock = clock
        self._memory = memory
        self._verdict = StoreVerdict.OURS
        self._pause_key = INTENT.key(region, IntentName(IntentKind.PAUSE, scope))
        self._brake_key = ALLOWANCE.key(region, AllowanceName(BRAKE.gate, scope))
        self._reading = asyncio.Lock()
        """Serializes the reads, so that an older answer cannot replace a newer one."""
        self._pause: Intent | Bad | None = None
        self._stored: Intent | Bad | None = None
        self._allowance: Allowance | None = None

    async def read(self, verdict: StoreVerdict | None = None) -> None:
        """Read both keys and judge the store; `verdict` is a worse one that the caller knows already. Raises `Away`
        while the store does not answer."""
        async with self._reading:
            seen = None if self._memory is None else self._memory.seen_store()
            try:
                found = await self._store.txn([], [Get(self._pause_key), Get(self._brake_key)])
                # The identity is read last: if the keys are those of a restored store, so is the identity.
                judged = None if self._memory is None else await read_identity(self._store, self._region)
            except StoreError as error:
                raise Away("store", str(error)) from error
            self._verdict = StoreVerdict.OURS if judged is None else verdict_of(seen, judged)
            if verdict is not None and self._verdict not in IN_DOUBT:
                self._verdict = verdict
            pause, brake = (_single(result) for result in found.results)
            self._pause = await self._in_force(pause)
            if judged is not None and isinstance(judged.identity, Identity):
                await self._put_back(0 if pause is None else pause.mod_revision)
            allowed = None if brake is None else ALLOWANCE.decode(brake.key, brake.value)
            self._allowance = _valid(allowed, self._verdict)

    async def _in_force(self, found: Entry | None) -> Intent | Bad | None:
        """Return the pause to apply, and remember it."""
        stored = self._stored = None if found is None else INTENT.decode(found.key, found.value)
        if self._memory is None:
            return stored
        remembered = self._memory.load()
        pause = pause_in_force(stored, remembered, in_doubt=self.in_doubt)
        if pause != remembered and not isinstance(pause, Bad):
            await self._memory.keep(pause)
        return pause

    async def _put_back(self, mod_revision: int) -> None:
        """Write a remembered pause into a store of ours that has lost it, for the other servers, and for the time after
        the verdict. Without an identity the store counts as empty, and must stay so."""
        pause = self._pause
        if self._verdict not in (StoreVerdict.RESTORED, StoreVerdict.FILLING) or pause == self._stored:
            return
        if not isinstance(pause, Intent) or not pause.holds(self._clock.wall()):
            return
        unchanged = Compare(self._pause_key, Aspect.MOD_REVISION, mod_revision)
        try:
            await self._store.txn([unchanged], [Put(self._pause_key, INTENT.encode(pause))])
        except (Away, StoreError) as error:
            log.warning("cannot write the remembered pause back; it stays in force here", error=str(error))
        else:
            log.warning("remembered pause written back into the store", scope=str(self.scope), who=pause.who)

    @property
    def in_doubt(self) -> bool:
        """True if the store may lack a pause, as far as the last read shows."""
        return self._verdict in IN_DOUBT

    @property
    def pause(self) -> Pause | None:
        """The pause in effect now."""
        match self._pause:
            case Bad() as bad:
                return Pause("an operator", f"the stored pause is unreadable: {bad}", self._clock.now())
            case Intent() as asked if asked.holds(self._clock.wall()):
                until = None if asked.until is None else self._instant(asked.until)
                return Pause(asked.who, asked.why, self._instant(asked.since), until)
        return None

    @property
    def allowed_until(self) -> Instant | None:
        """End of the time in which everything passes the brake; None when nothing is allowed."""
        until = self._allowance.until if self._allowance else None
        return self._instant(until) if until is not None and self._clock.wall() < until else None

    async def put_pause(self, pause: Intent) -> None:
        await self._store.put(self._pause_key, INTENT.encode(pause))

    async def end_pause(self, who: str) -> None:
        """End the pause. While the store is in doubt, servers that remember it do not follow a delete: they get a later
        pause that is over."""
        if not self.in_doubt:
            await self._store.delete(self._pause_key)
            return
        known = self._pause.since if isinstance(self._pause, Intent) else self._clock.wall()
        at = max(self._clock.wall(), known)
        over = Intent(what=IntentKind.PAUSE, scope=self.scope, who=who, why="resumed", since=at, until=at)
        await self.put_pause(over)

    async def allow(self, fenced: FencedStore, allowance: Allowance) -> None:
        await fenced.put(self._brake_key, ALLOWANCE.encode(allowance))

    async def extend_allowance(self, fenced: FencedStore, written: int) -> None:
        """Cover what was written under a timed allowance, so that agents need no allowance of their own."""
        if self.allowed_until is not None and self._allowance is not None and written > self._allowance.revision:
            await self.allow(fenced, msgspec.structs.replace(self._allowance, revision=written))

    def _instant(self, at: datetime) -> Instant:
        """Convert a wall-clock time to this machine's boot clock."""
        return self._clock.now() + (at - self._clock.wall())


def _valid(allowance: Allowance | Bad | None, verdict: StoreVerdict) -> Allowance | None:  # protection: C69
    """Return an allowance that counts: none that may have come back with a backup."""
    return None if isinstance(allowance, Bad) or verdict is StoreVerdict.RESTORED else allowance


def void_allowances(region: Region) -> Delete:
    """The operation that deletes every stored allowance, when a restored store is adopted."""
    prefix = ALLOWANCE.prefix(region)
    return Delete(prefix, prefix_end(prefix))


def _single(result: object) -> Entry | None:
    assert isinstance(result, list | tuple)
    return result[0] if result else None
