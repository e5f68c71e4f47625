"""Belonging: do this inventory and this store carry the same fleet id? The syncer's identity gate (C27).

Both without an id: the leader gives them one, the store's last. Only the store without: it is refilled from the
inventory, nothing is deleted meanwhile, and its identity is written when it is full. Only the inventory without, or two
different ids: nothing at all is written, because that is what a wrong or emptied database looks like.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from holdfast.model.base.bad import Bad
from holdfast.model.base.time import NEVER, Instant
from holdfast.model.control.identity import Identity
from holdfast.reconcile import Change, Closed, Op, Reason
from holdfast.reconcile.change import K, V
from holdfast.store.identity import ADOPT, Founding, SeenStore, StoreIdentity, StoreVerdict, founding
from holdfast.store.identity import judge as judge_store

ADOPT_INVENTORY = "holdfast inventory adopt --reason WHY"


class FleetIdentityReason(Reason):
    UNKNOWN = "it is not known yet whose inventory and store these are"
    EMPTY_INVENTORY = "the store belongs to a fleet, but the inventory has no fleet id: a wrong or emptied database"
    FOREIGN_INVENTORY = "inventory and store belong to different fleets"
    FOREIGN_STORE = "the store belongs to another fleet than the one that this server knows"
    STORE_RESTORED = "the store was thrown back to an older life"
    REFILLING = "the store has no identity and is being filled; nothing is deleted before that is done"


OPENS: Mapping[FleetIdentityReason, str] = {
    FleetIdentityReason.UNKNOWN: "store and database answering (holdfast doctor)",
    FleetIdentityReason.EMPTY_INVENTORY: f"inventory.database naming the right one, or: {ADOPT_INVENTORY}",
    FleetIdentityReason.FOREIGN_INVENTORY: f"inventory.database naming the right one, or: {ADOPT_INVENTORY}",
    FleetIdentityReason.FOREIGN_STORE: "store.endpoints and store.region naming the right store (holdfast doctor)",
    FleetIdentityReason.STORE_RESTORED: ADOPT,
    FleetIdentityReason.REFILLING: "the end of the first resync",
}

_ADD_AND_KEEP = frozenset({FleetIdentityReason.STORE_RESTORED, FleetIdentityReason.REFILLING})
"""Reasons that hold deletes only."""


@dataclass(frozen=True, slots=True)
class IdentityVerdict:
    """What was found: why the gate is closed (None: it is not), and the fleet id that a side without one should get."""

    closed: FleetIdentityReason | None
    name_inventory: str = ""
    name_store: str = ""


def standing(
    inventory_fleet: str | None, found: StoreIdentity, remembered: SeenStore | None, fresh: str
) -> IdentityVerdict:
    """What two ids, and what this server remembers of the store, come to. `fresh` is an id that nobody has yet."""
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
    return IdentityVerdict(_of_store(judge_store(remembered, found).verdict))


def _of_store(verdict: StoreVerdict) -> FleetIdentityReason | None:
    if verdict is StoreVerdict.FOREIGN:
        return FleetIdentityReason.FOREIGN_STORE
    return FleetIdentityReason.STORE_RESTORED if verdict is StoreVerdict.RESTORED else None


def epoch_of(found: StoreIdentity, fenced_before: int, remembered: SeenStore | None) -> int:
    """The epoch that a leader writes under: the store's, or above all that were when the store has lost its own."""
    if isinstance(found.identity, Identity):
        return found.identity.epoch
    return max(fenced_before, remembered.epoch if remembered else 0) + 1


@dataclass
class FleetIdentityGate:
    """The gate. Closed until somebody has looked."""

    standing: IdentityVerdict = IdentityVerdict(FleetIdentityReason.UNKNOWN)
    since: Instant = NEVER

    def note(self, standing: IdentityVerdict, now: Instant) -> bool:
        """What was found just now; whether that is something new."""
        changed = standing.closed is not self.standing.closed or not self.since
        if changed:
            self.since = now
        self.standing = standing
        return changed

    def judge(self, change: Change[K, V], tally: Mapping[Op, int], have: int, now: Instant) -> Closed | None:
        reason = self.standing.closed
        if reason is None or (reason in _ADD_AND_KEEP and change.op is not Op.DELETE):
            return None
        return Closed("identity", reason, self.since or now, OPENS[reason])
