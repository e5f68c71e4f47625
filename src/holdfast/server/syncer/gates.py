"""Gates of the syncer: the fleet identity of inventory and store (C27), and the brake.

Identity. Both without an id: the leader creates one, the store's last. Only the store without: it is refilled from the
inventory, nothing is deleted meanwhile, and its identity is written when it is full. Only the inventory without, or two
different ids: nothing at all is written, because that is what a wrong or emptied database looks like.

Brake. A move is not a loss: evacuating a host deletes as many keys as it creates. If these deletes were held, each
endpoint would exist on two hosts; so the old key of an object that moved goes with its new one, and is not counted. A
delete that an operator asked for is in the outbox. One that only a comparison found is drift, or a database that was
emptied: there even the last of three frontends waits for an operator (C27).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from holdfast.model.base.bad import Bad
from holdfast.model.base.time import NEVER, Instant
from holdfast.model.control.identity import Identity
from holdfast.reconcile import Brake, BrakeLimits, BrakeReason, Change, Closed, Kinds, Op, Outcome, Plan, Reason
from holdfast.reconcile.change import K, V
from holdfast.store.api import Entry
from holdfast.store.identity import ADOPT, Founding, SeenStore, StoreIdentity, StoreVerdict, classify_store, founding

ADOPT_INVENTORY = "holdfast inventory adopt --reason WHY"


class FleetIdentityReason(Reason):
    UNKNOWN = "the identity of inventory and store is not known yet"
    EMPTY_INVENTORY = "the store belongs to a fleet, but the inventory has no fleet id: a wrong or emptied database"
    FOREIGN_INVENTORY = "inventory and store belong to different fleets"
    FOREIGN_STORE = "the store belongs to another fleet than the one that this server knows"
    STORE_RESTORED = "the store was restored from a backup"
    REFILLING = "the store has no identity and is being filled; nothing is deleted before it is full"


OPENS: Mapping[FleetIdentityReason, str] = {
    FleetIdentityReason.UNKNOWN: "store and database answering (holdfast doctor)",
    FleetIdentityReason.EMPTY_INVENTORY: f"inventory.database naming the right one, or: {ADOPT_INVENTORY}",
    FleetIdentityReason.FOREIGN_INVENTORY: f"inventory.database naming the right one, or: {ADOPT_INVENTORY}",
    FleetIdentityReason.FOREIGN_STORE: "store.endpoints and store.region naming the right store (holdfast doctor)",
    FleetIdentityReason.STORE_RESTORED: ADOPT,
    FleetIdentityReason.REFILLING: "the end of the first resync",
}

_HOLDS_DELETES_ONLY = frozenset({FleetIdentityReason.STORE_RESTORED, FleetIdentityReason.REFILLING})


@dataclass(frozen=True, slots=True)
class IdentityVerdict:
    """Reason for which the gate is closed (None: it is open), and the fleet id for a side that has none."""

    closed: FleetIdentityReason | None
    name_inventory: str = ""
    name_store: str = ""


def identity_verdict(
    inventory_fleet: str | None, found: StoreIdentity, remembered: SeenStore | None, fresh: str
) -> IdentityVerdict:
    """Judge two ids by what this server remembers of the store. `fresh` is an unused id."""
    if isinstance(found.identity, Bad):
        return IdentityVerdict(FleetIdentityReason.STORE_RESTORED)
    store_fleet = found.identity.fleet if found.identity else None
    match founding(inventory_fleet, store_fleet):
        case Founding.CREATE_BOTH if remembered is not None:
            return IdentityVerdict(FleetIdentityReason.EMPTY_INVENTORY)  # both were ours, and both are gone
        case Founding.CREATE_BOTH:
            return IdentityVerdict(FleetIdentityReason.UNKNOWN, name_inventory=fresh)
        case Founding.REFUSE_EMPTY_INVENTORY:
            return IdentityVerdict(FleetIdentityReason.EMPTY_INVENTORY)
        case Founding.REFUSE_FOREIGN:
            return IdentityVerdict(FleetIdentityReason.FOREIGN_INVENTORY)
        case Founding.REFILL_STORE:
            return IdentityVerdict(FleetIdentityReason.REFILLING, name_store=inventory_fleet or "")
    return IdentityVerdict(_of_store(classify_store(remembered, found).verdict))


def _of_store(verdict: StoreVerdict) -> FleetIdentityReason | None:
    if verdict is StoreVerdict.FOREIGN:
        return FleetIdentityReason.FOREIGN_STORE
    return FleetIdentityReason.STORE_RESTORED if verdict is StoreVerdict.RESTORED else None


def epoch_of(found: StoreIdentity, fenced_before: int, remembered: SeenStore | None) -> int:
    """Epoch that a leader writes under: the store's, or one above all earlier ones if the store has lost its own."""
    if isinstance(found.identity, Identity):
        return found.identity.epoch
    return max(fenced_before, remembered.epoch if remembered else 0) + 1


@dataclass
class FleetIdentityGate:
    """Closed until inventory and store have been compared."""

    verdict: IdentityVerdict = IdentityVerdict(FleetIdentityReason.UNKNOWN)
    since: Instant = NEVER

    def note(self, verdict: IdentityVerdict, now: Instant) -> bool:
        """Take the latest verdict. Returns whether it differs from the one before."""
        changed = verdict.closed is not self.verdict.closed or not self.since
        if changed:
            self.since = now
        self.verdict = verdict
        return changed

    def judge(  # protection: C27
        self, change: Change[K, V], tally: Mapping[Op, int], have: int, now: Instant
    ) -> Closed | None:
        reason = self.verdict.closed
        if reason is None or (reason in _HOLDS_DELETES_ONLY and change.op is not Op.DELETE):
            return None
        return Closed("identity", reason, self.since or now, OPENS[reason])


class SyncerBrake(Brake[bytes, Entry]):
    """`has_moved` says whether the object of a key is known to have another key now; `is_announced` whether the
    inventory recorded a change of this key."""

    def __init__(
        self,
        name: str,
        kinds: Kinds[bytes],
        *,
        has_moved: Callable[[bytes], bool],
        is_announced: Callable[[bytes], bool],
    ) -> None:
        super().__init__(name, kinds, BrakeLimits(share=0.05))
        self._has_moved = has_moved
        self._is_announced = is_announced

    def exceeded(  # protection: C27
        self, change: Change[bytes, Entry], going: int, of: int
    ) -> BrakeReason | None:
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
