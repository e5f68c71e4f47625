"""Source of the status workers: reports in the store and rows of the inventory, judged together by `StatusRules`.

Nothing is concluded before the mirror has one complete list (rule 5): until then the source is unreachable. Losses are
announced to the mass-loss gate before they are judged, all losses of a pass before its first page, so that the gate
knows how many there are.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Generic, TypeVar

import msgspec

from holdfast.model.base.time import Instant
from holdfast.reconcile import Away, Change, Owned
from holdfast.server.status.kinds import StatusKind
from holdfast.server.status.rules import StatusRules
from holdfast.server.status.rules.mass_loss import MassLoss
from holdfast.server.status.target import PAGE, SOURCE, ObservedTarget
from holdfast.store.mirror.gc_pause import gc_paused

T = TypeVar("T")
V = TypeVar("V", bound=msgspec.Struct)


class StatusSource(Generic[T, V]):
    def __init__(
        self,
        kind: StatusKind[T, V],
        target: ObservedTarget[V],
        mass_loss: MassLoss[bytes, V],
        now: Callable[[], Instant],
    ) -> None:
        self._rules, self._mirror, self._rows = kind.rules, kind.mirror, kind.rows
        self._target = target
        self._mass_loss = mass_loss
        self._now = now
        self._pass: list[tuple[bytes, Owned[V]]] = []
        """Wanted rows of the current pass, in key order; its next page begins at `_next`."""
        self._next = 0
        self._unreadable: set[bytes] = set()
        """Keys that were compared while their value was unreadable."""

    async def read(self, after: bytes | None, upto: bytes | None) -> Sequence[tuple[bytes, Owned[V]]]:
        if after is None:
            with gc_paused(len(self._mirror.objects), lasting=False):
                await self.refresh()
                self._use_mirror()
                await self._begin_pass()
        first, wanted = self._next, self._pass
        if upto is None:
            self._pass = []
            return wanted[first:]
        self._next = bisect_right(wanted, upto, first, key=itemgetter(0))
        return wanted[first : self._next]

    async def _begin_pass(self) -> None:
        """Compute what is wanted now; a key that changes during the pass is compared again (C22)."""
        self._pass, self._next = [], 0
        keys, lost = sorted(self._rules.keys()), set[str]()
        for start in range(0, len(keys), PAGE):
            self._pass += self._wanted(keys[start : start + PAGE], lost).items()
            await asyncio.sleep(0)
        self._announce(lost)

    async def get(self, keys: Collection[bytes]) -> Mapping[bytes, Owned[V]]:
        self._check()
        lost: set[str] = set()
        found = self._wanted(keys, lost)
        self._announce(lost)
        return found

    def readable_again(self) -> Collection[bytes]:
        """Return, once, the keys whose value was unreadable when it was compared and is readable now: an equal value
        is no change of the mirror, and would never be compared."""
        readable = self._unreadable - self._mirror.bad.keys()
        self._unreadable -= readable
        return readable

    async def refresh(self) -> None:
        self._check()
        await self._rows.reload(self._target.note_attempt)

    def _check(self) -> None:  # protection: C14
        if not self._mirror.synced:
            raise Away("store", f"waiting for the first complete list of {self._rules.plural}")

    def _use_mirror(self) -> None:
        self._rules.reports, self._rules.bad = self._mirror.objects, self._mirror.bad

    def _wanted(self, keys: Collection[bytes], lost: set[str]) -> dict[bytes, Owned[V]]:
        """Compute what is wanted for these keys. Hosts that would be lost by it are added to `lost`."""
        self._use_mirror()  # keeps rules and mirror in step, also after a new list
        want, is_loss = self._rules.want, self._rules.is_loss
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
                lost.add(self._rules.host(key))
        if self._mass_loss.remembers:
            self._note_returned(keys, found, lost)
        self._unreadable |= self._rules.bad.keys() & keys
        return found

    def _note_returned(self, keys: Collection[bytes], found: Mapping[bytes, Owned[V]], lost: set[str]) -> None:
        """Reports to the gate which lost hosts are back, and which losses the inventory has by now."""
        host, is_alive = self._rules.host, self._rules.is_alive
        back = {host(key) for key, owned in found.items() if is_alive(owned.value)}
        now = self._now()
        self._mass_loss.back(back, now)
        self._mass_loss.settled({host(key) for key in keys} - back - lost, now)

    def _announce(self, lost: set[str]) -> None:
        if lost:
            note_reports(self._rules, self._mass_loss, self._now())  # a report from before they vanished proves nothing
            self._mass_loss.vanished(lost, self._rules.reporting(), self._now())


def note_reports(
    rules: StatusRules[T, V], mass_loss: MassLoss[bytes, V], now: Instant, fresh: Iterable[bytes] = ()
) -> None:
    """Reports to the gate which hosts have reported; `fresh` are the keys of live changes."""
    mass_loss.reported(rules.take_reported(fresh), now)


def lost_host(rules: StatusRules[T, V], change: Change[bytes, V]) -> str | None:
    """Host that this change would declare lost, if any."""
    new = None if change.new is None else change.new.value
    return rules.host(change.key) if change.old is not None and rules.is_loss(change.old.value, new) else None
