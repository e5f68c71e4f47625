"""Store identity: decides whether a store is ours, another fleet's, or restored from a backup.

`/holdfast/v1/R/identity` holds the fleet id and the epoch. Every component that acts on the store remembers (fleet,
epoch, highest revision), because a wiped data folder comes back with the same cluster id, member id and raft term; only
the revision falls. A pure decision between: ours; another fleet's (`foreign_store`); ours, but restored to an older
state (`store_restored`: add and keep only, until an operator raises the epoch). `founding` decides what a leader does
when inventory, store or both have no fleet id yet.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import msgspec

from holdfast.model.base.bad import Bad
from holdfast.model.base.region import Region
from holdfast.model.control.identity import IDENTITY, Identity
from holdfast.store.api import Aspect, Compare, Put, Store, StoreError, TxnResult, WriteConflict
from holdfast.store.fenced.store import FencedStore

ADOPT = "holdfast store adopt --reason WHY"


class StoreVerdict(Enum):
    """Verdict on a store, compared with the one seen before."""

    OURS = "ours"
    UNNAMED = "unnamed_store"
    FOREIGN = "foreign_store"
    RESTORED = "store_restored"


class SeenStore(msgspec.Struct, frozen=True):
    """The store last acted on, as journal, fence row and balancer state remember it."""

    fleet: str
    epoch: int
    revision: int

    def seen(self, identity: Identity, revision: int) -> SeenStore:
        """Return what to remember of a store that was judged ours; the revision falls only when the epoch rises."""
        if identity.epoch > self.epoch:
            return SeenStore(identity.fleet, identity.epoch, revision)
        return SeenStore(self.fleet, self.epoch, max(self.revision, revision))


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict, the sentence that explains it, and the command that changes it, if there is one."""

    verdict: StoreVerdict
    sentence: str
    opens: str = ""


@dataclass(frozen=True, slots=True)
class StoreIdentity:
    """The identity found in the store (or an unreadable value), and the store's revision at that moment."""

    identity: Identity | Bad | None
    revision: int
    mod_revision: int = 0


def classify_store(remembered: SeenStore | None, found: StoreIdentity) -> Judgement:  # protection: C29
    """Compare the store with the one seen before."""
    identity = found.identity
    if isinstance(identity, Bad):
        return Judgement(StoreVerdict.RESTORED, f"the store's identity is unreadable ({identity.reason.value})", ADOPT)
    if identity is None:
        return _without_identity(remembered)
    if remembered is None:
        return Judgement(StoreVerdict.OURS, f"first seen: fleet {identity.fleet}, epoch {identity.epoch}")
    if identity.fleet != remembered.fleet:
        return Judgement(
            StoreVerdict.FOREIGN,
            f"this store belongs to fleet {identity.fleet}, but we belong to fleet {remembered.fleet}; "
            "nothing is written: check store.endpoints and store.region",
        )
    if (identity.epoch, found.revision) >= (remembered.epoch, remembered.revision):
        adopted = f", adopted by {identity.who}: “{identity.why}”" if identity.who else ""
        life = f"fleet {identity.fleet}, epoch {identity.epoch}{adopted}, revision {found.revision}"
        return Judgement(StoreVerdict.OURS, life)
    return Judgement(
        StoreVerdict.RESTORED,
        f"the store went back to epoch {identity.epoch}, revision {found.revision}, but epoch {remembered.epoch}, "
        f"revision {remembered.revision} was seen before; nothing is deleted until an operator has checked it",
        ADOPT,
    )


def _without_identity(remembered: SeenStore | None) -> Judgement:
    if remembered is None:
        return Judgement(StoreVerdict.UNNAMED, "the store has no identity yet; the leader will write it")
    return Judgement(
        StoreVerdict.RESTORED,
        f"the store has lost its identity (fleet {remembered.fleet} was here): it was wiped or restored; "
        "nothing is deleted until the leader has refilled it",
        ADOPT,
    )


class Founding(Enum):
    """Decision of a leader about the fleet ids of inventory and store."""

    AGREED = "both carry the same fleet id"
    CREATE_BOTH = "both are empty: create a fleet id in both"
    REFILL_STORE = "only the store is empty: refill it from the inventory, write the identity last"
    REFUSE_EMPTY_INVENTORY = (
        "the store belongs to a fleet, but the inventory is empty: it is the wrong database, or it was lost; "
        "nothing is written: restore the inventory, or point to the right one"
    )
    REFUSE_FOREIGN = "inventory and store belong to different fleets; nothing is written: check both addresses"


def founding(inventory_fleet: str | None, store_fleet: str | None) -> Founding:
    """Compare the fleet ids of inventory and store; None where there is none."""
    if inventory_fleet is None:
        return Founding.CREATE_BOTH if store_fleet is None else Founding.REFUSE_EMPTY_INVENTORY
    if store_fleet is None:
        return Founding.REFILL_STORE
    return Founding.AGREED if inventory_fleet == store_fleet else Founding.REFUSE_FOREIGN


def identity_key(region: Region) -> bytes:
    return IDENTITY.key(region, "identity")


async def read_identity(store: Store, region: Region) -> StoreIdentity:
    """Read the identity and the store's revision at one moment."""
    key = identity_key(region)
    async for page in store.list(key, page=1):
        for entry in page.entries:
            if entry.key == key:
                return StoreIdentity(IDENTITY.decode(key, entry.value), page.revision, entry.mod_revision)
        return StoreIdentity(None, page.revision)
    raise StoreError("the store returned no page for a list; check that store.endpoints names an etcd")


async def create_identity(fenced: FencedStore, region: Region, identity: Identity) -> None:
    """Write the first identity. Raises `Deposed`, or `WriteConflict` when there is one already."""
    key = identity_key(region)
    absent = Compare(key, Aspect.CREATE_REVISION, 0)
    _require(await fenced.txn([absent], [Put(key, IDENTITY.encode(identity))]), key)


async def raise_epoch(
    store: Store, region: Region, found: StoreIdentity, remembered: SeenStore, *, who: str, why: str
) -> Identity:
    """Adopt a restored store for an operator: write an epoch above every epoch seen, on top of exactly what was found.
    Raises `WriteConflict`."""
    key = identity_key(region)
    epoch = found.identity.epoch if isinstance(found.identity, Identity) else 0
    adopted = Identity(remembered.fleet, max(epoch, remembered.epoch) + 1, who, why)
    same = Compare(key, Aspect.MOD_REVISION, found.mod_revision)
    _require(await store.txn([same], [Put(key, IDENTITY.encode(adopted))]), key)
    return adopted


def _require(result: TxnResult, key: bytes) -> None:
    if not result.succeeded:
        raise WriteConflict(key)
