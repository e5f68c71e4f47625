"""Intents in etcd: the pause of the fleet, and the pause and the allow of a leader's worker. They survive a takeover.

A leader reads them before its first write and every few seconds after. An unreadable pause counts as a pause. While an
allow for a time lasts, the revision up to which agents honour it rises with what the syncer deletes under it. In a
store that was restored from a backup allows are void, because they came back with it, and a remembered pause stays in
force and is written back (C69, `memory`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path

import structlog
from msgspec.structs import replace

from holdfast.model.base.bad import Bad
from holdfast.model.base.region import Region
from holdfast.model.control.identity import Identity
from holdfast.model.control.intent import INTENT, Intent, IntentKind, IntentName
from holdfast.model.control.scope import FLEET, Scope, ScopeKind
from holdfast.reconcile import Away
from holdfast.runtime.clock import Clock
from holdfast.runtime.control import Declined
from holdfast.runtime.intents.memory import IN_DOUBT, PauseMemory
from holdfast.runtime.intents.store import not_stored
from holdfast.runtime.store_guard import Offload
from holdfast.runtime.store_memory import MemoryUnreadable
from holdfast.store.api import Aspect, Compare, Delete, Entry, Get, Put, Store, StoreError, prefix_end
from holdfast.store.fenced.store import FencedStore
from holdfast.store.identity import SeenStore, StoreIdentity, StoreVerdict, classify_store, read_identity

log = structlog.get_logger(__name__)

FLEET_PAUSE = IntentName(IntentKind.PAUSE, FLEET)
SYNCER = Scope(ScopeKind.WORKER, "syncer")

ReadSeen = Callable[[], SeenStore | None]


class EtcdIntents:
    """The intents of those names, as they were last read. Without `seen_store`, which reads this server's memory of the
    store, the store is taken as it is."""

    def __init__(
        self,
        store: Store,
        region: Region,
        clock: Clock,
        names: Sequence[IntentName],
        memory: PauseMemory,
        seen_store: ReadSeen | None = None,
    ) -> None:
        self._store = store
        self._region = region
        self._clock = clock
        self._names = names
        self._memory = memory
        self._seen_store = seen_store
        self._verdict = StoreVerdict.OURS
        self._reading = asyncio.Lock()
        """Serializes the reads, so that an older answer cannot replace a newer one."""
        self._stored: dict[IntentName, Intent | Bad] = {}
        self._revisions: dict[IntentName, int] = {}

    def all(self) -> tuple[Intent, ...]:
        return *self._memory.pauses(self._clock.wall()), *self._allows()

    @property
    def in_doubt(self) -> bool:
        """True if the store may lack a pause, as far as the last read shows."""
        return self._verdict in IN_DOUBT

    async def refresh(self) -> None:
        """Read the intents and judge the store. Raises `Away` while the store does not answer."""
        async with self._reading:
            seen = self._recall()
            try:
                found = await self._store.txn([], [Get(INTENT.key(self._region, name)) for name in self._names])
                # The identity is read last: if the keys are those of a restored store, so is the identity.
                judged = None if self._seen_store is None else await read_identity(self._store, self._region)
            except StoreError as error:
                raise Away("store", str(error)) from error
            self._verdict = StoreVerdict.OURS if judged is None else _verdict(seen, judged)
            entries = {name: _single(one) for name, one in zip(self._names, found.results, strict=True)}
            self._revisions = {name: entry.mod_revision for name, entry in entries.items() if entry is not None}
            self._stored = {name: INTENT.decode(one.key, one.value) for name, one in entries.items() if one is not None}
            self._memory.judge(self._stored, in_doubt=self.in_doubt)
            await self._memory.save()
            if judged is not None and isinstance(judged.identity, Identity):
                await self._put_back()

    async def keep(self, intent: Intent, instead_of: Collection[IntentName] = ()) -> None:
        await self._check_ours()
        others = [Delete(self._key(name)) for name in instead_of if name != intent.name]
        await self._write([*others, Put(self._key(intent.name), INTENT.encode(intent))])

    async def drop(self, names: Collection[IntentName], who: str) -> bool:
        """Withdraw intents, also those that have expired. While the store is in doubt, daemons that remember a pause do
        not follow a delete: they get a later pause that is over."""
        await self._check_ours()
        wall = self._clock.wall()
        in_force = any(one.name in names and one.holds(wall) for one in self.all())
        pauses = [name for name in names if name.what is IntentKind.PAUSE]
        over = [Put(self._key(name), INTENT.encode(self._over(name, who))) for name in pauses if self.in_doubt]
        await self._write(over or [Delete(self._key(name)) for name in names])
        return in_force or bool(over)  # in doubt, another daemon may remember a pause

    async def allow(self, fenced: FencedStore, intent: Intent) -> None:
        """Store an allow in this term. Raises `Deposed`, `Away` or `StoreError`."""
        await fenced.put(self._key(intent.name), INTENT.encode(intent))

    async def extend_allow(self, fenced: FencedStore, written: int) -> None:
        """Cover what was written under an allow for a time, so that agents need none of their own. One that was
        withdrawn meanwhile stays so."""
        for one in self._allows():
            if one.until is not None and one.holds(self._clock.wall()) and written > one.revision:
                same = Compare(self._key(one.name), Aspect.MOD_REVISION, self._revisions[one.name])
                await fenced.txn([same], [Put(self._key(one.name), INTENT.encode(replace(one, revision=written)))])

    def _allows(self) -> Iterable[Intent]:
        return valid_allows(self._stored.values(), self._verdict)

    def _over(self, name: IntentName, who: str) -> Intent:
        known, wall = self._memory.get(name), self._clock.wall()
        at = max(wall, known.since) if isinstance(known, Intent) else wall
        return Intent(what=name.what, scope=name.scope, who=who, why="resumed", since=at, until=at)

    async def _check_ours(self) -> None:
        """Write nothing into the store of another fleet. Raises `Declined`."""
        try:
            await self.refresh()
        except Away as away:
            raise Declined(f"not done, because the store cannot be read: {away}") from away
        if self._verdict is StoreVerdict.FOREIGN:
            raise Declined("not done, because the store belongs to another fleet: see holdfast doctor")

    async def _write(self, operations: Sequence[Put | Delete]) -> None:
        try:
            await self._store.txn([], operations)
        except (Away, StoreError) as error:
            raise not_stored(error) from error

    async def _put_back(self) -> None:
        """Write remembered pauses into a store of ours that has lost them, for the other daemons, and for the time
        after the verdict. Without an identity the store counts as empty, and must stay so."""
        if self._verdict not in (StoreVerdict.RESTORED, StoreVerdict.FILLING):
            return
        for name in self._names:
            pause = self._memory.get(name)
            if not isinstance(pause, Intent) or pause == self._stored.get(name) or not pause.holds(self._clock.wall()):
                continue
            unchanged = Compare(self._key(name), Aspect.MOD_REVISION, self._revisions.get(name, 0))
            try:
                await self._store.txn([unchanged], [Put(self._key(name), INTENT.encode(pause))])
            except (Away, StoreError) as error:
                log.warning("cannot write the remembered pause back; it stays in force here", error=str(error))
            else:
                log.warning("remembered pause written back into the store", scope=str(name.scope), who=pause.who)

    def _key(self, name: IntentName) -> bytes:
        return INTENT.key(self._region, name)

    def _recall(self) -> SeenStore | MemoryUnreadable | None:
        """Recall the store that this server knows; called before the store is asked (C49)."""
        try:
            return None if self._seen_store is None else self._seen_store()
        except MemoryUnreadable as error:
            return error


def server_intents(
    store: Store,
    region: Region,
    clock: Clock,
    state: Path,
    scope: Scope,
    seen_store: ReadSeen | None = None,
    offload: Offload = asyncio.to_thread,
) -> EtcdIntents:
    """Intents that a worker of a server obeys: the pause of the fleet, and those about its own scope."""
    pauses = dict.fromkeys((FLEET_PAUSE, IntentName(IntentKind.PAUSE, scope)))
    memory = PauseMemory(state, f"server.{scope.name or scope}", pauses, offload)
    names = *pauses, IntentName(IntentKind.ALLOW, scope)
    return EtcdIntents(store, region, clock, names, memory, seen_store)


def valid_allows(found: Iterable[Intent | Bad], verdict: StoreVerdict) -> Iterable[Intent]:  # protection: C69
    """Return the allows that count: none that may have come back with a backup."""
    if verdict is StoreVerdict.RESTORED:
        return ()
    return [one for one in found if isinstance(one, Intent) and one.what is IntentKind.ALLOW]


def void_allows(region: Region) -> Delete:
    """The operation that deletes every stored allow, when a restored store is adopted."""
    prefix = INTENT.prefix(region) + f"{IntentKind.ALLOW.value}/".encode()
    return Delete(prefix, prefix_end(prefix))


def _verdict(seen: SeenStore | MemoryUnreadable | None, found: StoreIdentity) -> StoreVerdict:
    """Judge the store. Without a readable memory it may have been restored."""
    return StoreVerdict.RESTORED if isinstance(seen, MemoryUnreadable) else classify_store(seen, found).verdict


def _single(result: object) -> Entry | None:
    assert isinstance(result, list | tuple)
    return result[0] if result else None
