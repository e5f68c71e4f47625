"""A watched prefix as a dict of decoded objects, and what has changed in it since its reader last asked.

Promises: a snapshot is taken over whole or not at all (C14); an object that is what it was has not changed, however
often it is listed (C15); a value that cannot be decoded is present, not absent (C39): the last good object stays, and
without one the key is listed as unreadable; a reader that falls behind finds at most one change per key, and can see
how far behind it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Generic, TypeVar

from holdfast.model.base.bad import Bad, BadReason
from holdfast.model.base.time import Duration, Instant
from holdfast.store.api import GATHER, Entry, Event, Events, OwnKey, Snapshot, Store, StoreError
from holdfast.store.boottime import Now, boot_now
from holdfast.store.mirror.gc_pause import resting
from holdfast.store.mirror.pending import Delta, Pending, PendingKey

T = TypeVar("T")

SLICE = 500
"""Objects handled between two turns of the event loop, so that a large snapshot never blocks it for long."""
TURN_S = 0.01
"""Time after which the loop gets its turn earlier than that, where objects are large or the machine is slow."""
LOOK = 50
"""Objects between two looks at the clock."""
_NOT_OURS = BadReason.OTHER_KIND


@dataclass(frozen=True, slots=True)
class Lag:
    """How far the reader is behind the store: revisions, and the age of the oldest change it has not taken, from the
    moment when it was read; what it may have lain in the socket before, `gather` at most, nobody can tell."""

    revisions: int
    oldest: Duration


@dataclass(slots=True)
class _State(Generic[T]):
    """One consistent view of the prefix. A snapshot builds a new one beside it, then the two are swapped."""

    objects: dict[bytes, T] = field(default_factory=dict)
    bad: dict[bytes, Bad] = field(default_factory=dict)
    revisions: dict[bytes, int] = field(default_factory=dict)
    good: dict[bytes, int] = field(default_factory=dict)
    """At which revision the object was written that stays, of keys that cannot be decoded now."""
    made: int = 0
    """Objects that were decoded for it."""


class Mirror(Generic[T]):
    """Run `run()` as a task; read `objects`, `bad` and `unreadable` at any time, or `take()` what has changed."""

    def __init__(
        self,
        store: Store,
        prefix: bytes,
        decode: Callable[[bytes, bytes], T | Bad],
        *,
        own: OwnKey | None = None,
        now: Now = boot_now,
        gather: Duration = GATHER,
    ) -> None:
        """`decode` gets key and value and never raises; `Bad` with reason OTHER_KIND means: not for this mirror. With
        `gather` a mirror under load may be late, see `Store.watch`."""
        self._store = store
        self._prefix = prefix
        self._decode = decode
        self._own = own
        self._now = now
        self._gather = gather
        self._state: _State[T] = _State()
        self._fresh: _State[T] = _State()
        """What the parts of a list that is under way have shown so far."""
        self._pending: Pending[T] = Pending()
        self._arrived = asyncio.Event()
        self._synced = asyncio.Event()
        self._settled = True
        self._lists = 0
        self._revision = 0
        self._head = 0
        self._own_seen = 0
        self._moved = asyncio.Event()

    @property
    def objects(self) -> Mapping[bytes, T]:
        """Every key's last good object."""
        return MappingProxyType(self._state.objects)

    @property
    def bad(self) -> Mapping[bytes, Bad]:
        """Every key whose present value cannot be decoded, whether or not an older object of it is known."""
        return MappingProxyType(self._state.bad)

    @property
    def unreadable(self) -> Sequence[bytes]:
        """Keys that exist and of which no object is known: nothing that could be their state may be pruned."""
        return sorted(key for key in self._state.bad if key not in self._state.objects)

    @property
    def synced(self) -> bool:
        """Whether one complete list has been taken in."""
        return self._synced.is_set()

    @property
    def settled(self) -> bool:
        """Whether no list or batch of events is being taken in just now: what is pending then tells all of it."""
        return self._settled

    @property
    def lists(self) -> int:
        """How many complete lists were taken in. After the first, each means that continuity was lost: the store may
        have been restored, or be another one."""
        return self._lists

    @property
    def revision(self) -> int:
        """The mirror shows the prefix as it was at this revision of the store."""
        return self._revision

    @property
    def shown(self) -> int:
        """What happened up to here the mirror has shown, if it has an own key: that, too, comes by the same stream."""
        return max(self._revision, self._own_seen)

    @property
    def backlog(self) -> int:
        """How many keys have changed since the reader last took them."""
        return len(self._pending)

    def is_pending(self, key: bytes) -> bool:
        """Whether the key has changed since the reader last took it."""
        return key in self._pending

    def mod_revision(self, key: bytes) -> int:
        """The revision that the key was last written at; 0 when it does not exist."""
        return self._state.revisions.get(key, 0)

    def good_revision(self, key: bytes) -> int:
        """The revision that the key's object was written at; 0 when there is none."""
        state = self._state
        return state.good.get(key) or (state.revisions.get(key, 0) if key in state.objects else 0)

    def lag(self, now: Instant) -> Lag:
        head = max(self._head, self._revision)
        oldest = self._pending.oldest()
        if oldest is None:
            return Lag(head - self._revision, Duration(0))
        return Lag(head - oldest.revision + 1, now - oldest.since)

    async def wait_synced(self) -> None:
        await self._synced.wait()

    async def wait_shown(self, revision: int) -> None:
        """Until what happened up to that revision is shown, see `shown`."""
        while self.shown < revision:
            self._moved.clear()
            await self._moved.wait()

    async def take(self, most: int = 1_000) -> Sequence[Delta[T]]:
        """What has changed, up to `most` keys, live changes first; waits until something has. What is taken is the
        reader's: it is not handed out again unless it changes again."""
        while True:
            await self._arrived.wait()
            deltas = self._deltas(most)
            if not self._pending:
                self._arrived.clear()
            if deltas:
                return deltas

    def looked_at(self, keys: Collection[bytes]) -> None:
        """For a reader that looks at `objects` also without having been told of a change: it has just looked at these.
        A change that it is told of later is then one from what it saw."""
        self._pending.looked_at(keys, self._state.objects.get)

    async def run(self) -> None:
        """Follows the store for ever. While the store is away, everything stays as it is."""
        watch = self._store.watch(self._prefix, own=self._own, held=_Held(self), parts=True, gather=self._gather)
        async for seen in watch:
            self._settled = False
            if isinstance(seen, Snapshot):
                await self._take_in(seen)
            else:
                await self._follow(seen)
            self._settled = True
            self._moved.set()
            if self._pending:
                self._arrived.set()

    async def keep_running(self, refused: Callable[[StoreError], object], again: Duration) -> None:
        """The same through refusals: a store that says no is waited for like one that is away, and asked again."""
        while True:
            try:
                await self.run()
            except StoreError as error:
                refused(error)
            await asyncio.sleep(again.total_seconds())

    def _deltas(self, most: int) -> Sequence[Delta[T]]:
        deltas: list[Delta[T]] = []
        now = self._state.objects.get
        for live, some in self._pending.take(most):
            deltas += [Delta(key, waiting.known, now(key), live) for key, waiting in some]
        return deltas

    async def _take_in(self, part: Snapshot) -> None:
        """Builds a new state beside the present one, part by part; what has not changed is the very same object."""
        if part.first:
            await self._let_go()
        self._fresh.made += len(part.items)
        with resting(self._fresh.made):
            await _in_turns(_portions(part.unchanged, LOOK), self._carry)
            await _in_turns(_taken_out(part.items), self._settle)
            if not part.more:
                await self._take_over(part.revision)

    async def _let_go(self) -> None:
        """Of a list that failed half way nothing stays; all at once it would block the loop."""
        left, self._fresh = self._fresh, _State()

        def let_go(keys: Iterable[bytes]) -> None:
            for key in keys:
                del left.objects[key]

        await _in_turns(_portions(list(left.objects), LOOK), let_go)

    async def _take_over(self, revision: int) -> None:
        """The list is complete: from now on it is what the mirror shows, and what differs waits for the reader. Both at
        once, so that nobody sees what has changed before it waits: whoever looks then tells what it knows of it."""
        before, fresh, now = self._state.objects, self._fresh, self._now()
        new: PendingKey[T] = PendingKey(None, now, revision)  # one for all of them: mostly they are nearly all there is
        differs: dict[bytes, PendingKey[T]] = {}

        def compare(keys: Sequence[bytes]) -> None:
            differs.update(dict.fromkeys([key for key in keys if key not in before], new))
            if before:
                changed = [key for key in keys if key in before and fresh.objects.get(key) is not before[key]]
                differs.update({key: PendingKey(before[key], now, revision) for key in changed})

        gone = [key for key in before if key not in fresh.objects]
        await _in_turns(_portions([*gone, *fresh.objects], LOOK), compare)
        self._state, self._fresh = fresh, _State()
        self._revision = self._head = revision
        self._own_seen = 0  # of a store that was restored, perhaps
        self._pending.listed(differs)
        self._lists += 1
        self._synced.set()

    def _carry(self, keys: Iterable[bytes]) -> None:
        into, held = self._fresh, self._state
        for key in keys:
            into.revisions[key] = held.revisions[key]
            if key in held.objects:
                into.objects[key] = held.objects[key]
            if key in held.bad:
                into.bad[key] = held.bad[key]
            if key in held.good:
                into.good[key] = held.good[key]

    def _settle(self, entries: Iterable[Entry]) -> None:
        """Decodes entries of a list; an object that is what it was is the very same (C15)."""
        into, held, decode = self._fresh, self._state.objects, self._decode
        objects, revisions = into.objects, into.revisions
        for entry in entries:
            key = entry.key
            decoded = decode(key, entry.value)
            if not isinstance(decoded, Bad):
                known = held.get(key)
                objects[key] = known if known is not None and known == decoded else decoded
            elif decoded.reason is not _NOT_OURS:
                self._leave(into, decoded, key, held.get(key))
            revisions[key] = entry.mod_revision

    def _leave(self, into: _State[T], bad: Bad, key: bytes, known: T | None) -> None:
        """What cannot be decoded leaves its last good object in place (C39)."""
        into.bad[key] = bad
        if known is not None:
            into.good[key] = self.good_revision(key)
            into.objects[key] = known

    async def _follow(self, events: Events) -> None:
        now = self._now()
        if not events.batch:
            self._own_seen = max(self._own_seen, events.own)
            return
        for batch in _portions(events.batch, SLICE):
            self._take_events(batch, now)
            self._arrived.set()
            if len(events.batch) > SLICE:
                await asyncio.sleep(0)
        self._revision = events.revision
        self._head = max(events.head, events.revision)

    def _take_events(self, events: Sequence[Event], now: Instant) -> None:
        state, decode, changed = self._state, self._decode, self._pending.changed
        objects, revisions = state.objects, state.revisions
        for event in events:
            entry = event.kv
            key = entry.key
            before = after = objects.get(key)
            if event.type != "PUT":
                after = None
                for kept in state.objects, state.bad, state.good, state.revisions:
                    kept.pop(key, None)
            else:
                decoded = decode(key, entry.value)
                if not isinstance(decoded, Bad):
                    if state.bad:
                        state.bad.pop(key, None)
                        state.good.pop(key, None)
                    if before is None or before != decoded:  # C15
                        after = objects[key] = decoded
                elif decoded.reason is not _NOT_OURS:
                    self._leave(state, decoded, key, before)
                revisions[key] = entry.mod_revision
            if after is not before:
                changed(key, before, entry.mod_revision, now)


V = TypeVar("V")


def _portions(items: Sequence[V], size: int) -> Iterator[Sequence[V]]:
    return (items[start : start + size] for start in range(0, len(items), size))


def _taken_out(entries: list[Entry]) -> Iterator[Sequence[Entry]]:
    """The entries in order, a few at a time. They leave memory before the next are handled: all at once would block the
    loop, and kept they would add to what the mirror needs."""
    entries.reverse()
    while entries:
        some = entries[: -LOOK - 1 : -1]
        del entries[-LOOK:]
        yield some


async def _in_turns(portions: Iterable[Sequence[V]], handle: Callable[[Sequence[V]], object]) -> None:
    """Handles one portion after the other; in between, the event loop gets its turn."""
    clock = asyncio.get_running_loop().time
    handled, since = 0, clock()
    for some in portions:
        handle(some)
        handled += len(some)
        if handled >= SLICE or clock() - since > TURN_S:
            await asyncio.sleep(0)
            handled, since = 0, clock()


class _Held(Mapping[bytes, int]):
    """The mirror's mod_revisions, as they are at the moment of asking."""

    def __init__(self, mirror: Mirror[T]) -> None:
        self._mirror = mirror

    def __getitem__(self, key: bytes) -> int:
        return self._mirror._state.revisions[key]

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._mirror._state.revisions)

    def __len__(self) -> int:
        return len(self._mirror._state.revisions)
