"""Watched prefixes as a dict of decoded objects, with the changes since its reader last took them.

Promises: a snapshot is applied whole or not at all (C14); an object that compares equal has not changed, however often
it is listed (C15); an unreadable value is present, not absent (C39): its last good object stays, and without one the
key is listed as unreadable; a reader that falls behind finds at most one change per key, and can see its lag.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Generic, TypeVar

from holdfast.model.base.bad import Bad, BadReason
from holdfast.model.base.time import Duration, Instant
from holdfast.store.api import GATHER, Entry, Event, Events, KeyRange, Keys, OwnKey, Snapshot, Store, StoreError
from holdfast.store.boottime import Now, boot_now
from holdfast.store.mirror.gc_pause import gc_paused
from holdfast.store.mirror.pending import Delta, Pending, PendingKey

T = TypeVar("T")

SLICE = 500
"""Objects handled before the event loop gets a turn, so that a large snapshot never blocks it for long."""
TURN_S = 0.01
"""Time after which the loop gets its turn earlier, where objects are large or the machine is slow."""
CLOCK_EVERY = 50
"""Objects handled between two reads of the clock."""
_NOT_OURS = BadReason.OTHER_KIND


@dataclass(frozen=True, slots=True)
class Lag:
    """Lag of the reader: revisions, and the age of the oldest change that it has not taken. The age counts from the
    read of the socket, where a change may have waited for `gather` at most."""

    revisions: int
    oldest: Duration


@dataclass(slots=True)
class _State(Generic[T]):
    """One consistent view of the prefix. A snapshot builds a new one, which then replaces the current one."""

    objects: dict[bytes, T] = field(default_factory=dict)
    bad: dict[bytes, Bad] = field(default_factory=dict)
    revisions: dict[bytes, int] = field(default_factory=dict)
    good: dict[bytes, int] = field(default_factory=dict)
    """For keys that are unreadable now: the revision of the last good object."""
    created: dict[bytes, int] = field(default_factory=dict)
    """The create_revision of keys that were written again since."""
    made: int = 0
    """Number of objects decoded for it."""


class Mirror(Generic[T]):
    """Run `run()` as a task; read `objects`, `bad` and `unreadable` at any time, or `take()` the changes."""

    def __init__(
        self,
        store: Store,
        prefix: Keys | Sequence[Keys],
        decode: Callable[[bytes, bytes], T | Bad],
        *,
        own: OwnKey | None = None,
        now: Now = boot_now,
        gather: Duration = GATHER,
        keep_created: bool = False,
    ) -> None:
        """Several prefixes are one view, always of one revision; ranges drift, see `Store.watch`. `decode` gets key and
        value and never raises; `Bad` with reason OTHER_KIND skips the key. Under load the mirror is late by up to
        `gather`. `create_revision` works with `keep_created` only, which costs memory."""
        self._store = store
        self.prefixes: tuple[Keys, ...] = (prefix,) if isinstance(prefix, bytes | KeyRange) else tuple(prefix)
        self._decode = decode
        self.own = own
        self._now = now
        self._gather = gather
        self._keep_created = keep_created
        self._state: _State[T] = _State()
        self._fresh: _State[T] = _State()
        """The parts of the current list that have arrived."""
        self._pending = Pending()
        self._arrived = asyncio.Event()
        self._synced = asyncio.Event()
        self._settled = True
        self._lists = 0
        self._rewinds = 0
        self._revision = 0
        self._head = 0
        self._passed = 0
        """Revision of an own write, or of a skipped change."""
        self._skipped = 0
        self._moved = asyncio.Event()

    @property
    def objects(self) -> Mapping[bytes, T]:
        """The last good object of every key."""
        return MappingProxyType(self._state.objects)

    @property
    def bad(self) -> Mapping[bytes, Bad]:
        """Every key whose present value is unreadable, whether or not an older object of it is known."""
        return MappingProxyType(self._state.bad)

    @property
    def unreadable(self) -> Sequence[bytes]:
        """Keys that exist without a known object: nothing that could be their state may be pruned."""
        return sorted(key for key in self._state.bad if key not in self._state.objects)

    @property
    def synced(self) -> bool:
        """True once one complete list has been applied."""
        return self._synced.is_set()

    @property
    def settled(self) -> bool:
        """True while no list or batch of events is being applied: only then is `backlog` complete."""
        return self._settled

    @property
    def lists(self) -> int:
        """Number of complete lists applied. Each after the first means that continuity was lost: the store may have
        been restored, or be another one."""
        return self._lists

    @property
    def rewinds(self) -> int:
        """Number of these lists that came from a store whose history lacks what was known before: it was wiped or
        restored."""
        return self._rewinds

    @property
    def revision(self) -> int:
        """The revision of the last change of the prefix."""
        return self._revision

    @property
    def seen_revision(self) -> int:
        """The revision up to which every change is known to be applied: writes of the own key and skipped changes raise
        it, too, because they come by the same stream."""
        return max(self._revision, self._passed)

    @property
    def skipped(self) -> int:
        """Number of changes of other keys that the stream has delivered so far."""
        return self._skipped

    @property
    def backlog(self) -> int:
        """Number of keys that have changed since the reader last took them."""
        return len(self._pending)

    def is_pending(self, key: bytes) -> bool:
        """Return True if the key has changed since the reader last took it."""
        return key in self._pending

    def mod_revision(self, key: bytes) -> int:
        """Return the revision of the key's last write; 0 when it does not exist."""
        return self._state.revisions.get(key, 0)

    def create_revision(self, key: bytes) -> int:
        """Return the revision since which the key exists, readable or not; 0 when it does not."""
        assert self._keep_created
        return self._state.created.get(key) or self._state.revisions.get(key, 0)

    def good_revision(self, key: bytes) -> int:
        """Return the revision of the key's last good object; 0 when there is none."""
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

    async def wait_seen(self, revision: int) -> None:
        """Wait until `seen_revision` has reached a revision."""
        while self.seen_revision < revision:
            self._moved.clear()
            await self._moved.wait()

    async def take(self, most: int = 1_000) -> Sequence[Delta[T]]:
        """Wait for changes and return up to `most` of them, live changes first. A key that was taken is not returned
        again unless it changes again."""
        while True:
            await self._arrived.wait()
            deltas = self._deltas(most)
            if not self._pending:
                self._arrived.clear()
            if deltas:
                return deltas

    async def run(self) -> None:
        """Follow the store for ever. While the store is unreachable, everything stays as it is."""
        watch = self._store.watch(*self.prefixes, own=self.own, held=_Held(self), parts=True, gather=self._gather)
        async for seen in watch:
            self._settled = False
            if isinstance(seen, Snapshot):
                await self._apply_snapshot(seen)
            else:
                await self._apply_events(seen)
            self._settled = True
            self._moved.set()
            if self._pending:
                self._arrived.set()

    async def keep_running(self, refused: Callable[[StoreError], object], again: Duration) -> None:
        """Follow the store through refusals too: report each to `refused` and retry after `again`."""
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
            deltas += [Delta(key, now(key), live) for key in some]
        return deltas

    async def _apply_snapshot(self, part: Snapshot) -> None:
        """Build a new state part by part; unchanged keys keep the identical object."""
        if part.first:
            await self._discard_partial()
        self._fresh.made += len(part.items)
        with gc_paused(self._fresh.made):
            await _in_slices(_portions(part.unchanged, CLOCK_EVERY), self._keep_unchanged)
            await _in_slices(_consume(part.items), self._decode_entries)
            if not part.more:
                await self._swap_state(part.revision)
                self._rewinds += part.went_back

    async def _discard_partial(self) -> None:
        """Free what a list that failed half way has left, in slices: all at once would block the loop."""
        left, self._fresh = self._fresh, _State()

        def discard(keys: Iterable[bytes]) -> None:
            for key in keys:
                del left.objects[key]

        await _in_slices(_portions(list(left.objects), CLOCK_EVERY), discard)

    async def _swap_state(self, revision: int) -> None:
        """Replace the state by the complete list and queue the differences, in one step: a reader that sees a changed
        object in `objects` must find it pending."""
        before, fresh, now = self._state.objects, self._fresh, self._now()
        waiting = PendingKey(now, revision)
        differs: dict[bytes, PendingKey] = {}

        def compare(keys: Sequence[bytes]) -> None:
            # A key that is gone has no fresh object, a new one no old object: both differ.
            changed = [key for key in keys if fresh.objects.get(key) is not before.get(key)]
            differs.update(dict.fromkeys(changed, waiting))

        gone = [key for key in before if key not in fresh.objects]
        await _in_slices(_portions([*gone, *fresh.objects], CLOCK_EVERY), compare)
        self._state, self._fresh = fresh, _State()
        self._revision = self._head = revision
        self._passed = 0  # it may be of the store before a restore
        self._pending.listed(differs)
        self._lists += 1
        self._synced.set()

    def _keep_unchanged(self, keys: Iterable[bytes]) -> None:
        into, held = self._fresh, self._state
        for key in keys:
            into.revisions[key] = held.revisions[key]
            if key in held.objects:
                into.objects[key] = held.objects[key]
            if key in held.bad:
                into.bad[key] = held.bad[key]
            if key in held.good:
                into.good[key] = held.good[key]
            if key in held.created:
                into.created[key] = held.created[key]

    def _decode_entries(self, entries: Iterable[Entry]) -> None:
        """Decode entries of a list; an object that compares equal stays the identical object (C15)."""
        into, held, decode = self._fresh, self._state.objects, self._decode
        objects, revisions = into.objects, into.revisions
        for entry in entries:
            key = entry.key
            decoded = decode(key, entry.value)
            if not isinstance(decoded, Bad):
                known = held.get(key)
                objects[key] = known if known is not None and known == decoded else decoded
            elif decoded.reason is not _NOT_OURS:
                self._keep_last_good(into, decoded, key, held.get(key))
            revisions[key] = entry.mod_revision
            if self._keep_created and entry.create_revision != entry.mod_revision:
                into.created[key] = entry.create_revision

    # protection: C39
    def _keep_last_good(self, into: _State[T], bad: Bad, key: bytes, known: T | None) -> None:
        """Record an unreadable value and keep the key's last good object."""
        into.bad[key] = bad
        if known is not None:
            into.good[key] = self.good_revision(key)
            into.objects[key] = known

    async def _apply_events(self, events: Events) -> None:
        now = self._now()
        self._skipped += events.skipped
        if not events.batch:
            self._passed = max(self._passed, events.own, events.revision)
            return
        for batch in _portions(events.batch, SLICE):
            self._apply_batch(batch, now)
            self._arrived.set()
            if len(events.batch) > SLICE:
                await asyncio.sleep(0)
        self._revision = max(self._revision, events.revision)  # ranges drift
        self._head = max(events.head, self._revision)

    def _apply_batch(self, events: Sequence[Event], now: Instant) -> None:
        state, decode, changed = self._state, self._decode, self._pending.changed
        objects, revisions = state.objects, state.revisions
        for event in events:
            entry = event.kv
            key = entry.key
            before = after = objects.get(key)
            if event.type != "PUT":
                after = None
                for kept in state.objects, state.bad, state.good, state.revisions, state.created:
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
                    self._keep_last_good(state, decoded, key, before)
                else:
                    after = None
                    for kept in state.objects, state.bad, state.good:
                        kept.pop(key, None)
                revisions[key] = entry.mod_revision
                if self._keep_created:
                    _set_created(state.created, entry)
            if after is not before:
                changed(key, entry.mod_revision, now)


V = TypeVar("V")


def _set_created(created: dict[bytes, int], entry: Entry) -> None:
    if entry.create_revision != entry.mod_revision:
        created[entry.key] = entry.create_revision
    else:
        created.pop(entry.key, None)


def _portions(items: Sequence[V], size: int) -> Iterator[Sequence[V]]:
    return (items[start : start + size] for start in range(0, len(items), size))


def _consume(entries: list[Entry]) -> Iterator[Sequence[Entry]]:
    """Yield the entries in order, a few at a time, and free them as it goes: freeing all at once would block the loop,
    and keeping them would add to the mirror's memory."""
    entries.reverse()
    while entries:
        some = entries[: -CLOCK_EVERY - 1 : -1]
        del entries[-CLOCK_EVERY:]
        yield some


async def _in_slices(portions: Iterable[Sequence[V]], handle: Callable[[Sequence[V]], object]) -> None:
    """Handle the portions one by one and yield to the event loop in between."""
    clock = asyncio.get_running_loop().time
    handled, since = 0, clock()
    for some in portions:
        handle(some)
        handled += len(some)
        if handled >= SLICE or clock() - since > TURN_S:
            await asyncio.sleep(0)
            handled, since = 0, clock()


class _Held(Mapping[bytes, int]):
    """Live view of the mirror's mod_revisions."""

    def __init__(self, mirror: Mirror[T]) -> None:
        self._mirror = mirror

    def __getitem__(self, key: bytes) -> int:  # protection: C15
        return self._mirror._state.revisions[key]

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._mirror._state.revisions)

    def __len__(self) -> int:
        return len(self._mirror._state.revisions)
