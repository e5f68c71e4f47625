"""Verdict on inventory and store: do they belong together, and was one of them restored from a backup? Pure.

Both carry the fleet id and marks. The leader writes a mark to both before each batch of changes. A store whose mark
this inventory never made has changes that the inventory does not know: the inventory was restored, or lost commits
(C40). A store whose mark is older than one that is known to have reached it was restored itself (C43). Numbers such as
the highest revision prove nothing: deleting the newest object lowers them, a crash leaves gaps, a restore bumps them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum

from holdfast.inventory.api import Fence, InventoryMarks
from holdfast.model.base.bad import Bad
from holdfast.model.base.time import Duration, Instant
from holdfast.model.control.identity import Identity
from holdfast.model.control.mark import Mark
from holdfast.reconcile import Closed, Reason
from holdfast.store.identity import ADOPT, ADOPT_INVENTORY, SeenStore, StoreIdentity, StoreVerdict, classify_store

ASSIGN_INVENTORY = "holdfast inventory assign --reason WHY"


class FleetIdentityReason(Reason):
    UNKNOWN = "the identity of inventory and store is not known yet"
    EMPTY_INVENTORY = "the store belongs to a fleet, but the inventory has no fleet id: a wrong or emptied database"
    BOTH_EMPTY = "inventory and store are both empty, but this server knows a fleet: both were lost, or are wrong ones"
    FOREIGN_INVENTORY = "inventory and store belong to different fleets"
    FOREIGN_STORE = "the store belongs to another fleet than the one that this server knows"
    REGION_RENAMED = "the inventory serves another region: store.region was changed, or the database is a wrong one"
    STORE_UNNAMED = "the store has no identity, but it is not empty: another system may use it"
    STORE_RESTORED = "the store was restored from a backup"
    INVENTORY_RESTORED = "the inventory was restored from a backup, or lost commits"
    FILLING = "the store is being filled from the inventory; nothing is deleted before it is full"
    REPORT_MISSING = "its report is not in the store, which was restored or refilled a moment ago"


REPORTS_RETURN = Duration(seconds=30)
"""Time in which agents write into a refilled store what they report: they look at its identity every few seconds."""

OPENS: Mapping[FleetIdentityReason, str] = {
    FleetIdentityReason.UNKNOWN: "store and database answering (holdfast doctor)",
    FleetIdentityReason.EMPTY_INVENTORY: f"inventory.database naming the right one, or: {ASSIGN_INVENTORY}",
    FleetIdentityReason.BOTH_EMPTY: f"restoring the inventory, or both addresses naming the right ones, or: {ADOPT}",
    FleetIdentityReason.FOREIGN_INVENTORY: f"inventory.database naming the right one, or: {ASSIGN_INVENTORY}",
    FleetIdentityReason.FOREIGN_STORE: "store.endpoints and store.region naming the right store (holdfast doctor)",
    FleetIdentityReason.REGION_RENAMED: (
        "store.region and inventory.database that belong together; if the other region is over: "
        "holdfast region retire NAME --reason WHY"
    ),
    FleetIdentityReason.STORE_UNNAMED: f"holdfast import, if these objects are to stay, then: {ADOPT}",
    FleetIdentityReason.STORE_RESTORED: ADOPT,
    FleetIdentityReason.INVENTORY_RESTORED: ADOPT_INVENTORY,
    FleetIdentityReason.FILLING: "the end of the first resync",
    FleetIdentityReason.REPORT_MISSING: f"its agent's report, or {REPORTS_RETURN.seconds} s without one",
}

LATCHED: Mapping[FleetIdentityReason, StoreVerdict] = {
    FleetIdentityReason.STORE_RESTORED: StoreVerdict.RESTORED,
    FleetIdentityReason.INVENTORY_RESTORED: StoreVerdict.INVENTORY_RESTORED,
}
"""Verdicts that are written into the store's identity and stand until an operator ends them."""


def closed_by(reason: FleetIdentityReason, since: Instant, details: str = "") -> Closed:
    """The answer of an identity gate that is closed for this reason."""
    return Closed("identity", reason, since, OPENS[reason], details)


class Naming(Enum):
    """The side that gets a fleet id next."""

    NOTHING = "both sides have one"
    INVENTORY = "both are empty: the inventory first"
    STORE = "only the store is empty: it is named at once, and filled after that"


@dataclass(frozen=True, slots=True)
class Sides:
    """Both sides as they were read: memory first, then the inventory, then the store."""

    fleet: str | None
    """Fleet id of the inventory."""
    marks: InventoryMarks
    fence: Fence
    """Latest term that the inventory knows."""
    revision: int
    """The inventory's revision."""
    found: StoreIdentity
    has_mark: bool
    """True if the inventory made the store's mark."""
    empty: bool
    """True if the store has no key under the prefixes that we write; read only where it has no identity."""
    remembered: SeenStore | None
    term: int
    """Term of the leader that asks, confirmed by the store after the fence was read."""
    diverged: bool = False
    written: int = 0
    """Latest revision that the leader of this term knows of the store; noted before the store was read."""
    marked: int = 0
    """Number of the latest mark that this leader knows to be in the store; noted before the store was read."""
    others: tuple[str, ...] = ()
    """Other regions that the inventory serves; read only where it never served this one."""


@dataclass(frozen=True, slots=True)
class IdentityVerdict:
    """Reason for which the gate is closed (None: it is open), the sentence for operators, and what to name."""

    closed: FleetIdentityReason | None
    sentence: str = ""
    naming: Naming = Naming.NOTHING
    revision: int = 0
    """Under INVENTORY_RESTORED: the inventory's revision when the verdict was reached."""
    store: str = ""
    """Under INVENTORY_RESTORED: the sentence that says how the store went back, too; "" if it did not."""
    is_behind_fence: bool = False
    """True if the inventory's fence comes from the future: it knows a later term than the store (C42)."""

    @property
    def is_fenced(self) -> bool:
        """True if the leader may write to the inventory."""
        return not self.is_behind_fence and (self.naming is not Naming.NOTHING or self.closed in _FENCED)


_FENCED = frozenset({None, FleetIdentityReason.FILLING, FleetIdentityReason.INVENTORY_RESTORED})


def identity_verdict(sides: Sides) -> IdentityVerdict:
    """Judge both sides by their ids, their marks, and what this server remembers of the store."""
    return replace(_verdict(sides), is_behind_fence=fence_is_ahead(sides))


def fence_is_ahead(sides: Sides) -> bool:  # protection: C42
    """True if the inventory knows a later term than the store: the store was restored to before it."""
    return (sides.fence.epoch, sides.fence.term) > (epoch_of(sides), sides.term)


def _verdict(sides: Sides) -> IdentityVerdict:
    identity = sides.found.identity
    if isinstance(identity, Bad):
        return IdentityVerdict(FleetIdentityReason.STORE_RESTORED, classify_store(None, sides.found).sentence)
    if identity is None:
        return _without_identity(sides)
    if sides.fleet is None:
        return IdentityVerdict(FleetIdentityReason.EMPTY_INVENTORY)
    if sides.fleet != identity.fleet:
        return IdentityVerdict(
            FleetIdentityReason.FOREIGN_INVENTORY, f"inventory: fleet {sides.fleet}, store: fleet {identity.fleet}"
        )
    judgement = classify_store(sides.remembered, sides.found, diverged=sides.diverged)
    if judgement.verdict is StoreVerdict.FOREIGN:
        return IdentityVerdict(FleetIdentityReason.FOREIGN_STORE, judgement.sentence)
    evidence = judgement.sentence if judgement.verdict is StoreVerdict.RESTORED else store_went_back(sides, identity)
    inventory, latched = FleetIdentityReason.INVENTORY_RESTORED, identity.verdict
    if latched is not None and latched.name == StoreVerdict.INVENTORY_RESTORED.value:
        return IdentityVerdict(inventory, latched.sentence, revision=latched.revision, store=latched.store or evidence)
    restored = inventory_went_back(sides)
    if restored:
        return IdentityVerdict(inventory, restored, revision=sides.revision, store=evidence)
    if evidence:
        return IdentityVerdict(FleetIdentityReason.STORE_RESTORED, evidence)
    if identity.filling:
        return IdentityVerdict(FleetIdentityReason.FILLING)
    return IdentityVerdict(None)


def _without_identity(sides: Sides) -> IdentityVerdict:
    if sides.others:
        sentence = f"the inventory serves {', '.join(sides.others)}, and has never served this region"
        return IdentityVerdict(FleetIdentityReason.REGION_RENAMED, sentence)
    was_ours = sides.remembered is not None or sides.marks.stored > 0
    if not sides.empty:  # protection: C41
        if not was_ours or sides.fleet is None:
            return IdentityVerdict(FleetIdentityReason.STORE_UNNAMED)
        return IdentityVerdict(
            FleetIdentityReason.STORE_RESTORED, "the store has lost its identity, but not all of its objects"
        )
    if sides.fleet is None and was_ours:
        return IdentityVerdict(FleetIdentityReason.BOTH_EMPTY)
    if sides.fleet is None:
        return IdentityVerdict(FleetIdentityReason.UNKNOWN, naming=Naming.INVENTORY)
    if sides.remembered is not None and sides.remembered.mark > sides.marks.newest:
        return IdentityVerdict(
            FleetIdentityReason.INVENTORY_RESTORED,
            f"the store was wiped, and its last mark was {sides.remembered.mark}, but the inventory's newest is "
            f"{sides.marks.newest}: both went back",
            revision=sides.revision,
        )
    return IdentityVerdict(FleetIdentityReason.UNKNOWN, naming=Naming.STORE)


def inventory_went_back(sides: Sides) -> str:  # protection: C40, C70
    """The sentence that says that the store has changes which the inventory does not know; "" if it has none."""
    mark = sides.found.mark
    if not isinstance(mark, Mark) or sides.has_mark or mark.number < sides.marks.oldest:
        return ""
    return (
        f"the store has mark {mark.number}, which this inventory never made (its newest is {sides.marks.newest}): "
        "the inventory was restored from a backup, or lost commits; only what is edited from now on is written"
    )


def store_went_back(sides: Sides, identity: Identity) -> str:  # protection: C67
    """The sentence that says how the store went back, by what the inventory knows of it; "" if it did not.

    Only marks that are known to have reached the store count: a leader may die between a mark and its put (C67)."""
    stays = "it is refilled from the inventory; nothing is deleted until an operator has checked it"
    number, revision, fence = sides.found.mark_number, sides.found.revision, sides.fence
    if revision < sides.written:
        return f"the store went back to revision {revision}, but revision {sides.written} was written; {stays}"
    stored = max(sides.marks.stored, sides.marked)
    if stored > number:
        return f"the store went back to mark {number}, but mark {stored} had reached it; {stays}"
    if fence_is_ahead(sides):
        return (
            f"the store went back to before term {fence.term} of epoch {fence.epoch}, which the inventory knows: the "
            f"present term is {sides.term} of epoch {identity.epoch}; {stays}"
        )
    return ""


def next_epoch(sides: Sides) -> int:
    """An epoch above every one that store, inventory or memory knows."""
    identity = sides.found.identity
    known = identity.epoch if isinstance(identity, Identity) else 0
    return max(known, sides.fence.epoch, sides.remembered.epoch if sides.remembered else 0) + 1


def epoch_of(sides: Sides) -> int:
    """Epoch that a leader writes under: the store's, or a new one if the store has lost its own."""
    identity = sides.found.identity
    return identity.epoch if isinstance(identity, Identity) else next_epoch(sides)
