"""Brake of the syncer.

A move is not a loss: evacuating a host deletes as many keys as it creates, and the old key of an object that is wanted
under another key now goes with its new one, uncounted; so does a migration whose end the inventory announced. A
delete that an operator asked for is in the outbox. One that only a comparison found is drift, or a database that was
emptied: there even the last of three frontends waits for an operator (C27).

The sliding minute survives a restart and a takeover: it goes into the mark that is written to the store before each
batch. That costs no request, reaches every server, and is fenced; a file or the decision log would stay on one server.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime

from holdfast.model.base.region import Region
from holdfast.model.base.time import Duration
from holdfast.model.calico.migration import MIGRATION
from holdfast.model.control.mark import RecentDeletes
from holdfast.reconcile import Brake, BrakeLimits, BrakeReason, Change, Kinds
from holdfast.runtime.clock import Clock
from holdfast.store.api import Entry


class SyncerBrake(Brake[bytes, Entry]):
    """`wanted_at` returns the other key under which the individual of a key is wanted now, `is_announced` whether the
    inventory recorded a change of this key."""

    def __init__(
        self,
        name: str,
        kinds: Kinds[bytes],
        region: Region,
        *,
        wanted_at: Callable[[bytes], bytes | None],
        is_announced: Callable[[bytes], bool],
    ) -> None:
        super().__init__(name, kinds, BrakeLimits(share=0.05))
        self._migrations = MIGRATION.prefix(region)
        self._wanted_at = wanted_at
        self._is_announced = is_announced

    def exceeded(  # protection: C27
        self, change: Change[bytes, Entry], going: int, of: int
    ) -> BrakeReason | None:
        if going >= of and not self._is_announced(change.key):
            return BrakeReason.ALMOST_ALL
        return super().exceeded(change, going, of)

    def counts(self, change: Change[bytes, Entry]) -> bool:  # protection: C44
        """C44: only what is wanted under another key now is a move; one that was deleted since then is a loss."""
        if self._wanted_at(change.key) is not None:
            return False
        return not change.key.startswith(self._migrations) or not self._is_announced(change.key)


def recent_deletes(
    brake: SyncerBrake, going: Sequence[Change[bytes, Entry]], clock: Clock
) -> tuple[RecentDeletes, ...]:
    """Return the deletes of the brake's window, with those that are about to be applied: recorded before they are, a
    leader that dies in between counts too many rather than too few."""
    now, wall = clock.now(), clock.wall()
    found: Counter[tuple[str, datetime]] = Counter()
    for kind, times in brake.window(going, now).items():
        for at, count in times.items():
            found[kind, (wall - (now - at)).replace(microsecond=0)] += count
    return tuple(RecentDeletes(kind, at, count) for (kind, at), count in sorted(found.items()))


def recall_deletes(brake: SyncerBrake, deletes: Sequence[RecentDeletes], clock: Clock) -> None:  # protection: C27
    """Let the brake of a new term count the deletes that the last one recorded. A time in the future comes from
    another machine's clock, and counts as now."""
    now, wall = clock.now(), clock.wall()
    for one in deletes:
        age = max(Duration(0), wall - one.at)
        if age < brake.limits.window:
            brake.recall(one.kind, now - age, one.count)
