"""Operator intents for a worker of the leader, stored in etcd: a pause, and for the syncer a timed allowance. Both
survive a takeover.

A leader reads them before its first write and every few seconds after. An unreadable pause counts as a pause. While a
timed allowance lasts, the revision up to which agents honour it rises with what the syncer deletes under it.
"""

from __future__ import annotations

import asyncio
from datetime import datetime

import msgspec

from holdfast.model.base.bad import Bad
from holdfast.model.base.region import Region
from holdfast.model.base.time import Instant
from holdfast.model.control.allowance import ALLOWANCE, Allowance, AllowanceName
from holdfast.model.control.intent import INTENT, Intent, IntentKind, IntentName
from holdfast.model.control.scope import Scope, ScopeKind
from holdfast.reconcile import Away, Pause
from holdfast.runtime.clock import Clock
from holdfast.store.api import Entry, Get, Store, StoreError
from holdfast.store.fenced.store import FencedStore

SYNCER = Scope(ScopeKind.SYNCER)
PAUSE = IntentName(IntentKind.PAUSE, SYNCER)
BRAKE = AllowanceName("brake", SYNCER)


class EtcdIntents:
    """The two keys of one scope, as they were last read."""

    def __init__(self, store: Store, region: Region, clock: Clock, scope: Scope = SYNCER) -> None:
        self.scope = scope
        self._store = store
        self._clock = clock
        self._pause_key = INTENT.key(region, IntentName(IntentKind.PAUSE, scope))
        self._brake_key = ALLOWANCE.key(region, AllowanceName(BRAKE.gate, scope))
        self._reading = asyncio.Lock()
        """Serializes the reads, so that an older answer cannot replace a newer one."""
        self._pause: Intent | Bad | None = None
        self._allowance: Allowance | None = None

    async def read(self) -> None:
        """Raise `Away` while the store does not answer."""
        async with self._reading:
            try:
                found = await self._store.txn([], [Get(self._pause_key), Get(self._brake_key)])
            except StoreError as error:
                raise Away("store", str(error)) from error
            pause, brake = (_single(result) for result in found.results)
            self._pause = None if pause is None else INTENT.decode(pause.key, pause.value)
            allowed = None if brake is None else ALLOWANCE.decode(brake.key, brake.value)
            self._allowance = None if isinstance(allowed, Bad) else allowed

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

    async def delete_pause(self) -> bool:
        """Return whether there was a pause."""
        return bool(await self._store.delete(self._pause_key))

    async def allow(self, fenced: FencedStore, allowance: Allowance) -> None:
        await fenced.put(self._brake_key, ALLOWANCE.encode(allowance))

    async def extend_allowance(self, fenced: FencedStore, written: int) -> None:
        """Cover what was written under a timed allowance, so that agents need no allowance of their own."""
        if self.allowed_until is not None and self._allowance is not None and written > self._allowance.revision:
            await self.allow(fenced, msgspec.structs.replace(self._allowance, revision=written))

    def _instant(self, at: datetime) -> Instant:
        """Convert a wall-clock time to this machine's boot clock."""
        return self._clock.now() + (at - self._clock.wall())


def _single(result: object) -> Entry | None:
    assert isinstance(result, list | tuple)
    return result[0] if result else None
