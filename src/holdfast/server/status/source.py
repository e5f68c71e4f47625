"""What the status workers want: reports in the store and rows of the inventory, looked at together.

`StatusRules` is what the two workers differ in; it decides, and is pure. Nothing is concluded before the mirror has
taken
in one complete list (rule 5): until then the source is away. Losses are announced to the mass-loss gate before they are
judged, all of a pass before its first page, so that it sees how many there are.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Generic, Protocol, TypeVar

import msgspec

from holdfast.model.base.bad import Bad
from holdfast.model.base.region import Region
from holdfast.model.base.time import Instant
from holdfast.reconcile import Away, Change, Owned
from holdfast.server.status.inventory_rows import Rows
from holdfast.server.status.mass_loss import MassLoss
from holdfast.server.status.target import PAGE, SOURCE, ObservedTarget
from holdfast.store.mirror.gc_pause import resting
from holdfast.store.mirror.mirror import Mirror
from holdfast.store.mirror.pending import Delta

T = TypeVar("T")
V = TypeVar("V", bound=msgspec.Struct)


class StatusRules(Protocol[T, V]):
    """What is reported about, and what follows from it."""

    region: Region
    prefix: bytes
    reports: Mapping[bytes, T]
    bad: Mapping[bytes, Bad]

    @property
    def kind(self) -> str: ...
    @property
    def plural(self) -> str: ...
    @property
    def dated(self) -> bool:
        """Whether reports say when they were made."""
        ...

    @property
    def routine(self) -> Callable[[Change[bytes, V]], bool] | None:
        """Tells changes that come all the time, if there are any."""
        ...

    def decode(self, key: bytes, value: bytes) -> T | Bad: ...
    def affected(self, deltas: Sequence[Delta[T]]) -> Iterable[bytes]: ...
    def heard(self, fresh: Iterable[bytes]) -> Collection[str]: ...
    def reporting(self) -> int: ...
    def keys(self) -> Collection[bytes]: ...
    def want(self, key: bytes, last: V | None) -> V | None: ...
    def lives(self, value: V) -> bool: ...
    def is_loss(self, old: V, new: V | None) -> bool: ...
    def orphans(self) -> Mapping[str, int]: ...
    def host(self, key: bytes) -> str: ...
    def name(self, key: bytes) -> str: ...
    def show(self, key: bytes) -> str: ...
    def words(self, value: V) -> str:
        """As a sentence about many has it."""
        ...

    def in_full(self, value: V) -> str: ...


class StatusSource(Generic[T, V]):
    def __init__(
        self,
        subject: StatusRules[T, V],
        mirror: Mirror[T],
        rows: Rows,
        target: ObservedTarget[V],
        mass_loss: MassLoss[bytes, V],
        now: Callable[[], Instant],
    ) -> None:
        self._subject = subject
        self._mirror = mirror
        self._rows = rows
        self._target = target
        self._mass_loss = mass_loss
        self._now = now
        self._pass: list[tuple[bytes, Owned[V]]] = []
        """What the pass that is under way compares, in key order, and where its next page begins."""
        self._next = 0
        self._doubted: set[bytes] = set()
        """What was looked at while it could not be read."""

    async def read(self, after: bytes | None, upto: bytes | None) -> Sequence[tuple[bytes, Owned[V]]]:
        if after is None:
            with resting(len(self._mirror.objects), lasting=False):
                await self.refresh()
                self._view()
                await self._begin_pass()
        first, wanted = self._next, self._pass
        if upto is None:
            self._pass = []
            return wanted[first:]
        self._next = bisect_right(wanted, upto, first, key=itemgetter(0))
        return wanted[first : self._next]

    async def _begin_pass(self) -> None:
        """What is wanted now; whatever changes during the pass has a look of its own (C22)."""
        self._pass, self._next = [], 0
        keys, lost = sorted(self._subject.keys()), set[str]()
        for start in range(0, len(keys), PAGE):
            self._pass += self._look(keys[start : start + PAGE], lost).items()
            await asyncio.sleep(0)
        self._announce(lost)

    async def get(self, keys: Collection[bytes]) -> Mapping[bytes, Owned[V]]:
        self._check()
        lost: set[str] = set()
        found = self._look(keys, lost)
        self._announce(lost)
        return found

    def readable_again(self) -> Collection[bytes]:
        """What could not be read when it was looked at, and can be now, told once: it may be as it was before, and yet
        nobody has seen it."""
        readable = self._doubted - self._mirror.bad.keys()
        self._doubted -= readable
        return readable

    async def refresh(self) -> None:
        self._check()
        await self._rows.reload()

    def _check(self) -> None:
        if not self._mirror.synced:
            raise Away("store", f"the first complete list of {self._subject.plural} has not come yet")

    def _view(self) -> None:
        self._subject.reports, self._subject.bad = self._mirror.objects, self._mirror.bad

    def _look(self, keys: Collection[bytes], lost: set[str]) -> dict[bytes, Owned[V]]:
        """What is wanted of these; hosts that would be lost by it are added to `lost`."""
        self._view()  # what is looked at and what the mirror takes for looked at are the same, also after a new list
        want, is_loss = self._subject.want, self._subject.is_loss
        written, revision = self._target.written, self._mirror.revision
        found: dict[bytes, Owned[V]] = {}
        shared: dict[int, Owned[V]] = {}
        for key in keys:
            row = written.get(key)
            last = None if row is None else row.value
            value = want(key, last)
            if value is not None:
                owned = shared.get(id(value))
                if owned is None:
                    owned = shared[id(value)] = Owned(value, SOURCE, revision)
                found[key] = owned
            if last is not None and value is not last and is_loss(last, value):
                lost.add(self._subject.host(key))
        if self._mass_loss.remembers:
            self._recall(keys, found, lost)
        self._mirror.looked_at(keys)
        self._doubted |= self._subject.bad.keys() & keys
        return found

    def _recall(self, keys: Collection[bytes], found: Mapping[bytes, Owned[V]], lost: set[str]) -> None:
        """Who was lost and is there again, however that is known; and whose loss stands in the inventory by now."""
        host, lives = self._subject.host, self._subject.lives
        back = {host(key) for key, owned in found.items() if lives(owned.value)}
        self._mass_loss.back(back)
        self._mass_loss.settled({host(key) for key in keys} - back - lost, self._now())

    def _announce(self, lost: set[str]) -> None:
        if lost:
            hear(self._subject, self._mass_loss)  # what was said before they vanished is no proof of it
            self._mass_loss.vanished(lost, self._subject.reporting(), self._now())


def hear(subject: StatusRules[T, V], mass_loss: MassLoss[bytes, V], fresh: Iterable[bytes] = ()) -> None:
    """Tells the gate whose reports have come; `fresh` are the keys of live changes."""
    for host in subject.heard(fresh):
        mass_loss.reported(host)


def loser(subject: StatusRules[T, V], change: Change[bytes, V]) -> str | None:
    """The host that would be lost by this change."""
    new = None if change.new is None else change.new.value
    return subject.host(change.key) if change.old is not None and subject.is_loss(change.old.value, new) else None
