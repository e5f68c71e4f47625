"""Store identity: decides whether a store is ours, another fleet's, or restored from a backup.

`/holdfast/v1/R/identity` holds the fleet id and the epoch, `/holdfast/v1/R/mark` the last mark of the leader. Every
component that acts on the store remembers both and the highest revision, because a wiped data folder comes back with
the same cluster id, member id and raft term. A number alone is not enough: a restored store outgrows every revision,
and can be restored with higher ones. So a store is restored if its mark, its revision or its history went back at the
same epoch, and that verdict stands until an operator raises the epoch (C43).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import msgspec

from holdfast.model.base.bad import Bad
from holdfast.model.base.region import Region
from holdfast.model.control.identity import IDENTITY, Identity, LatchedVerdict
from holdfast.model.control.leader import LEADER
from holdfast.model.control.mark import MARK, Mark
from holdfast.store.api import (
    Aspect,
    Compacted,
    Compare,
    Entry,
    Get,
    Operation,
    Put,
    Store,
    StoreError,
    TxnResult,
    WriteConflict,
)
from holdfast.store.fenced.store import FencedStore

ADOPT = "holdfast store adopt --reason WHY"
ADOPT_INVENTORY = "holdfast inventory adopt --keep store|inventory --reason WHY"


class StoreVerdict(Enum):
    """Verdict on a store, compared with the one seen before."""

    OURS = "ours"
    FILLING = "filling"
    UNNAMED = "store_unnamed"
    FOREIGN = "foreign_store"
    RESTORED = "store_restored"
    INVENTORY_RESTORED = "inventory_restored"


class SeenStore(msgspec.Struct, frozen=True, omit_defaults=True):
    """The store last acted on, as every daemon remembers it on disk."""

    fleet: str
    epoch: int
    revision: int
    mark: int = 0
    nonce: str = ""
    trace: int = 0
    """Revision of the leader's key when it was last read: a store with another history has another one there."""
    restored: str = ""
    """Sentence of the verdict `store_restored`, if this daemon has reached it at this epoch."""
    noticed: int = 0
    """The store's revision when that verdict was reached: what was written later is newer than the backup."""
    adopted: int = 0
    """Epoch at which an operator accepted the store for this daemon alone."""

    def seen(self, found: StoreIdentity) -> SeenStore:
        """Return what to remember of a store that was judged ours; numbers fall only when the epoch rises."""
        identity = found.identity
        assert isinstance(identity, Identity)
        if identity.epoch > self.epoch:
            return remember(found)
        mark, nonce = max((self.mark, self.nonce), (found.mark_number, found.mark_nonce), key=lambda one: one[0])
        return msgspec.structs.replace(
            self, revision=max(self.revision, found.revision), mark=mark, nonce=nonce, trace=found.trace or self.trace
        )


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict, the sentence that explains it, and the command that changes it, if there is one."""

    verdict: StoreVerdict
    sentence: str
    opens: str = ""

    @property
    def is_ours(self) -> bool:
        """True if the store is that of this fleet and holds nothing that was taken back."""
        return self.verdict in (StoreVerdict.OURS, StoreVerdict.FILLING, StoreVerdict.INVENTORY_RESTORED)

    @property
    def is_followed(self) -> bool:
        """True if daemons follow this store in everything, deletes included."""
        return self.verdict in (StoreVerdict.OURS, StoreVerdict.INVENTORY_RESTORED)


@dataclass(frozen=True, slots=True)
class StoreIdentity:
    """The identity found in the store (or an unreadable value), its mark, and its revision at that moment."""

    identity: Identity | Bad | None
    revision: int
    mod_revision: int = 0
    mark: Mark | Bad | None = None
    mark_revision: int = 0
    """Revision of the last write of the mark; 0 without one."""
    trace: int = 0
    """Revision of the last write of the leader's key; 0 without a leader."""
    term: int = 0
    """Create-revision of the leader's key."""

    @property
    def mark_number(self) -> int:
        return self.mark.number if isinstance(self.mark, Mark) else 0

    @property
    def mark_nonce(self) -> str:
        return self.mark.nonce if isinstance(self.mark, Mark) else ""


def remember(found: StoreIdentity, *, adopted: bool = False) -> SeenStore:
    """Return the memory of a store that is seen for the first time, or that an operator has `adopted`."""
    identity = found.identity
    assert isinstance(identity, Identity)
    return SeenStore(
        identity.fleet,
        identity.epoch,
        found.revision,
        found.mark_number,
        found.mark_nonce,
        found.trace,
        adopted=identity.epoch if adopted else 0,
    )


def latch(
    remembered: SeenStore | None, found: StoreIdentity, judgement: Judgement, *, relisted: bool = False
) -> SeenStore | None:
    """Return the memory after a judgement. A verdict `store_restored` is remembered with it: it must not go away when
    the store has outgrown the remembered revision (C43). A store that was listed again (`relisted`) may have been
    restored a second time, so that only what is written from now on is newer than the backup."""
    if judgement.is_ours:
        return remember(found) if remembered is None else remembered.seen(found)
    if judgement.verdict is not StoreVerdict.RESTORED or remembered is None:
        return remembered
    noticed = remembered.noticed
    if relisted or not remembered.restored or _has_latched_restored(found):
        noticed = max(noticed, written_before(found))
    return msgspec.structs.replace(remembered, restored=remembered.restored or judgement.sentence, noticed=noticed)


def written_before(found: StoreIdentity) -> int:
    """Revision after which every write to a restored store is newer than the backup: now, or when the leader wrote the
    verdict into it, which a daemon may see later."""
    return found.mod_revision if _has_latched_restored(found) else found.revision


def _has_latched_restored(found: StoreIdentity) -> bool:
    return isinstance(found.identity, Identity) and bool(latched_restore(found.identity.verdict))


def latched_restore(latched: LatchedVerdict | None) -> str:
    """Sentence of the verdict `store_restored` that the leader recorded; "" without one."""
    if latched is None:
        return ""
    return latched.sentence if latched.name == StoreVerdict.RESTORED.value else latched.store


def is_foreign(remembered: SeenStore | None, identity: Identity | Bad | None) -> bool:
    """True if the store with that identity belongs to another fleet than the remembered one."""
    return remembered is not None and isinstance(identity, Identity) and identity.fleet != remembered.fleet


def classify_store(  # protection: C29
    remembered: SeenStore | None, found: StoreIdentity, *, diverged: bool = False
) -> Judgement:
    """Compare the store with the one seen before; `diverged` means that its history is another one."""
    identity = found.identity
    if isinstance(identity, Bad):
        return Judgement(StoreVerdict.RESTORED, f"the store's identity is unreadable ({identity.reason.value})", ADOPT)
    if identity is None:
        return _without_identity(remembered)
    if remembered is not None and is_foreign(remembered, identity):
        return Judgement(
            StoreVerdict.FOREIGN,
            f"this store belongs to fleet {identity.fleet}, but we belong to fleet {remembered.fleet}; "
            "nothing is written: check store.endpoints and store.region",
        )
    evidence = "" if remembered is None else _evidence(remembered, identity, found, diverged=diverged)
    latched = identity.verdict
    if not evidence and remembered is not None and remembered.adopted == identity.epoch:
        latched = None  # an operator accepted the store for this daemon
    evidence = evidence or latched_restore(latched)
    if evidence:
        return Judgement(StoreVerdict.RESTORED, evidence, ADOPT)
    if latched is not None and latched.name == StoreVerdict.INVENTORY_RESTORED.value:
        # A store that was being filled then is not full: what it lacks may live.
        verdict = StoreVerdict.FILLING if identity.filling else StoreVerdict.INVENTORY_RESTORED
        return Judgement(verdict, latched.sentence, ADOPT_INVENTORY)
    adopted = f", adopted by {identity.who}: “{identity.why}”" if identity.who else ""
    state = f"fleet {identity.fleet}, epoch {identity.epoch}{adopted}, revision {found.revision}"
    if identity.filling:
        return Judgement(StoreVerdict.FILLING, f"{state}; the leader is filling it, nothing is deleted meanwhile")
    return Judgement(StoreVerdict.OURS, state if remembered else f"first seen: {state}")


def _evidence(remembered: SeenStore, identity: Identity, found: StoreIdentity, *, diverged: bool) -> str:
    """The sentence that says how the store went back; "" if it did not."""
    if identity.epoch > remembered.epoch:
        return ""
    if remembered.restored and identity.epoch == remembered.epoch:  # protection: C43
        return remembered.restored
    stays = "nothing is deleted until an operator has checked it"
    if (identity.epoch, found.revision) < (remembered.epoch, remembered.revision):
        return (
            f"the store went back to epoch {identity.epoch}, revision {found.revision}, but epoch {remembered.epoch}, "
            f"revision {remembered.revision} was seen before; {stays}"
        )
    if found.mark_number < remembered.mark:
        return f"the store went back to mark {found.mark_number}, but mark {remembered.mark} was seen before; {stays}"
    if found.mark_number == remembered.mark and remembered.mark and found.mark_nonce != remembered.nonce:
        return f"mark {remembered.mark} of the store is not the one seen before: its history is another one; {stays}"
    if diverged:
        return f"the history of the store is not the one that was seen up to revision {remembered.revision}; {stays}"
    return ""


def _without_identity(remembered: SeenStore | None) -> Judgement:
    if remembered is None:
        return Judgement(
            StoreVerdict.UNNAMED,
            "the store has no identity yet: the leader writes it if the store is empty; a store that is not empty "
            "waits for an operator",
        )
    return Judgement(
        StoreVerdict.RESTORED,
        f"the store has lost its identity (fleet {remembered.fleet} was here): it was wiped or restored; "
        "nothing is deleted until the leader has refilled it",
        ADOPT,
    )


def identity_key(region: Region) -> bytes:
    return IDENTITY.key(region, "identity")


def mark_key(region: Region) -> bytes:
    return MARK.key(region, "mark")


async def read_identity(store: Store, region: Region) -> StoreIdentity:
    """Read identity, mark and revision of the store at one moment."""
    keys = identity_key(region), mark_key(region), LEADER.key(region, "leader")
    answer = await store.txn([], [Get(key) for key in keys])
    identity, mark, leader = (_only(result) for result in answer.results)
    return StoreIdentity(
        None if identity is None else IDENTITY.decode(identity.key, identity.value),
        answer.revision,
        0 if identity is None else identity.mod_revision,
        None if mark is None else MARK.decode(mark.key, mark.value),
        0 if mark is None else mark.mod_revision,
        0 if leader is None else leader.mod_revision,
        0 if leader is None else leader.create_revision,
    )


def _only(result: object) -> Entry | None:
    if not isinstance(result, list | tuple):
        raise StoreError("the store answered a read with something else; check that store.endpoints names an etcd")
    return result[0] if result else None


async def has_diverged(store: Store, region: Region, remembered: SeenStore) -> bool:
    """True if the store's history at the remembered revision is another one. A compacted history is no evidence."""
    if not remembered.trace:
        return False
    try:
        leader = await store.get(LEADER.key(region, "leader"), revision=remembered.trace)
    except Compacted:
        return False  # protection: C68
    return leader is None or leader.mod_revision != remembered.trace


async def create_identity(fenced: FencedStore, region: Region, identity: Identity, mark: Mark | None = None) -> None:
    """Write the first identity, with the inventory's mark. Raises `Deposed`, or `WriteConflict` when there is one
    already."""
    await replace_identity(fenced, region, StoreIdentity(None, 0), identity, mark)


async def replace_identity(
    fenced: FencedStore,
    region: Region,
    found: StoreIdentity,
    identity: Identity,
    mark: Mark | None = None,
    also: Sequence[Operation] = (),
) -> None:
    """Write an identity on top of exactly the one that was found. Raises `Deposed` or `WriteConflict`."""
    key = identity_key(region)
    marked = [] if mark is None else [Put(mark_key(region), MARK.encode(mark))]
    same = Compare(key, Aspect.MOD_REVISION, found.mod_revision)
    _require(await fenced.txn([same], [Put(key, IDENTITY.encode(identity)), *marked, *also]), key)


async def raise_epoch(
    store: Store,
    region: Region,
    found: StoreIdentity,
    remembered: SeenStore,
    *,
    who: str,
    why: str,
    dry_run: bool = False,
) -> Identity:
    """Adopt a restored store for an operator: write an epoch above every epoch seen, on top of exactly what was found.
    Raises `WriteConflict`."""
    key = identity_key(region)
    epoch = found.identity.epoch if isinstance(found.identity, Identity) else 0
    adopted = Identity(remembered.fleet, max(epoch, remembered.epoch) + 1, who, why)
    if not dry_run:
        same = Compare(key, Aspect.MOD_REVISION, found.mod_revision)
        _require(await store.txn([same], [Put(key, IDENTITY.encode(adopted))]), key)
    return adopted


def _require(result: TxnResult, key: bytes) -> None:
    if not result.succeeded:
        raise WriteConflict(key)
