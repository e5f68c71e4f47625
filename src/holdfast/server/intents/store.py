"""What operators said to a worker of the leader, kept in the store: a pause, and for the syncer an allowance for a
time. Both follow a takeover.

Whoever leads reads them before its first write and every few seconds after. A pause that cannot be read is a pause:
somebody asked for something. While an allowance for a time lasts, the revision that agents honour it up to rises with
what the syncer deletes under it.
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
    """The two keys, as they were last read."""

    def __init__(self, store: Store, region: Region, clock: Clock, scope: Scope = SYNCER) -> None:
        self.scope = scope
        self._store = store
        self._clock = clock
        self._pause_key = INTENT.key(region, IntentName(IntentKind.PAUSE, scope))
        self._brake_key = ALLOWANCE.key(region, AllowanceName(BRAKE.gate, scope))
        self._reading = asyncio.Lock()
        """Of two readers the later one asks later, too: an old answer does not undo what was said meanwhile."""
        self._asked: Intent | Bad | None = None
        self._allowed: Allowance | None = None

    async def read(self) -> None:
        """Raises `Away` while the store does not answer."""
        async with self._reading:
            try:
                found = await self._store.txn([], [Get(self._pause_key), Get(self._brake_key)])
            except StoreError as error:
                raise Away("store", str(error)) from error
            pause, brake = (_single(result) for result in found.results)
            self._asked = None if pause is None else INTENT.decode(pause.key, pause.value)
            allowed = None if brake is None else ALLOWANCE.decode(brake.key, brake.value)
            self._allowed = None if isinstance(allowed, Bad) else allowed

    @property
    def pause(self) -> Pause | None:
        """The pause in force now."""
        match self._asked:
            case Bad() as bad:
                return Pause("somebody", f"what was asked for cannot be read: {bad}", self._clock.now())
            case Intent() as asked if asked.holds(self._clock.wall()):
                until = None if asked.until is None else self._instant(asked.until)
                return Pause(asked.who, asked.why, self._instant(asked.since), until)
        return None

    @property
    def allowed_until(self) -> Instant | None:
        """Until when everything may pass the brake; None when it may not."""
        until = self._allowed.until if self._allowed else None
        return self._instant(until) if until is not None and self._clock.wall() < until else None

    async def ask_for(self, pause: Intent) -> None:
        await self._store.put(self._pause_key, INTENT.encode(pause))

    async def take_back(self) -> bool:
        """Ends the pause; whether there was one."""
        return bool(await self._store.delete(self._pause_key))

    async def allow(self, fenced: FencedStore, allowance: Allowance) -> None:
        await fenced.put(self._brake_key, ALLOWANCE.encode(allowance))

    async def keep_up(self, fenced: FencedStore, written: int) -> None:
        """What was written under an allowance that lasts is covered by it: agents need not be asked again."""
        if self.allowed_until is not None and self._allowed is not None and written > self._allowed.revision:
            await self.allow(fenced, msgspec.structs.replace(self._allowed, revision=written))

    def _instant(self, at: datetime) -> Instant:
        """A wall-clock time on this machine's boot clock."""
        return self._clock.now() + (at - self._clock.wall())


def _single(result: object) -> Entry | None:
    assert isinstance(result, list | tuple)
    return result[0] if result else None
