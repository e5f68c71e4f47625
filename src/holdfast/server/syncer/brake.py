"""The syncer's brake: a move is not a loss, and what nobody announced is never the last of its kind.

Evacuating a host deletes as many keys as it creates. Were these deletes held, each endpoint would stand on two hosts;
so the old key of an object that moved goes with its new one, and is not counted.

A delete that somebody asked for is in the outbox. One that only a comparison found is drift, or a database that was
emptied: there even the last of three frontends waits for an operator (C27).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from holdfast.model.base.time import Instant
from holdfast.reconcile import Brake, BrakeLimits, BrakeReason, Change, Closed, Kinds, Op, Outcome, Plan
from holdfast.store.api import Entry

LIMITS = BrakeLimits(share=0.05)


class SyncerBrake(Brake[bytes, Entry]):
    """`has_moved` tells whether the object that held a key is known to have another one now; `is_announced` whether the
    inventory itself said that something about this key changed."""

    def __init__(
        self,
        name: str,
        kinds: Kinds[bytes],
        *,
        has_moved: Callable[[bytes], bool],
        is_announced: Callable[[bytes], bool],
    ) -> None:
        super().__init__(name, kinds, LIMITS)
        self._has_moved = has_moved
        self._is_announced = is_announced

    def exceeded(self, change: Change[bytes, Entry], going: int, of: int) -> BrakeReason | None:
        if going >= of and not self._is_announced(change.key):
            return BrakeReason.ALMOST_ALL
        return super().exceeded(change, going, of)

    def judge(self, change: Change[bytes, Entry], tally: Mapping[Op, int], have: int, now: Instant) -> Closed | None:
        if change.op is not Op.DELETE or self._has_moved(change.key):
            return None
        return super().judge(change, tally, have, now)

    def note(self, event: Plan[bytes, Entry] | Outcome[bytes, Entry], now: Instant) -> None:
        if isinstance(event, Plan) or (event.change.op is Op.DELETE and not self._has_moved(event.change.key)):
            super().note(event, now)
