"""The judge of a fleet whose store and database are restored and wiped. Knows the truth, asks nobody.

Of every accepted write:
- a key that the inventory wants, and has wanted for a while, is not deleted, whatever was restored;
- under `store_restored`, and while a wiped store is filled, only a key whose object has another one is deleted;
- with a restored inventory the store goes on having what was wanted before, except where somebody edited since;
- a verdict is recorded only after a restore of its side, and ends only after an operator has asked for it.

The last three end when an operator adopts that side.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from holdfast.inventory.changes import ChangeKind, Edit
from holdfast.inventory.kinds import KINDS
from holdfast.inventory.sql.objects import SqlInventory
from holdfast.model.base.bad import Bad
from holdfast.model.control.identity import IDENTITY, Identity
from holdfast.model.control.mark import MARK, Mark
from holdfast.server.syncer.keys import RegionKeys
from holdfast.store.api import Entry, Event, prefix_end
from holdfast.store.identity import StoreVerdict, identity_key, mark_key
from holdfast.testing import StoreWrite, World
from tests.sim.election_invariants import ElectionInvariants, InvariantBroken, Term, _holder
from tests.sim.servers import LEADER_KEY, REGION

STORE, INVENTORY = StoreVerdict.RESTORED.value, StoreVerdict.INVENTORY_RESTORED.value
LAYOUT = RegionKeys(REGION, KINDS)


class RestoredElection(ElectionInvariants):
    """Follows terms and judges none: in a restored store a term's number is used again."""

    @property
    def led(self) -> Term | None:
        there = self.world.store.keys.get(LEADER_KEY)
        return None if there is None else self.terms.get(there.create_revision)

    def judge_write(self, write: StoreWrite) -> None:
        for event in write.events:
            entry = event.entry
            if event.key == LEADER_KEY and entry is not None and entry.version == 1:
                server = next(one for one in self.servers if write.client.startswith(f"{one.name}/"))
                self.terms[entry.create_revision] = Term(entry.create_revision, _holder(entry), write.client, server)

    def judge_belief(self, server: object, shown: object) -> None:
        return


def wanted(inventory: SqlInventory) -> dict[bytes, bytes]:
    snapshot = inventory.snapshot()
    rows = snapshot.read(None, 10_000)
    snapshot.close()
    return {row.key: row.doc for row in rows}


@dataclass
class RestoreInvariants:
    world: World
    inventory: SqlInventory
    servers: Collection[str]
    grace: float
    """A delete may be this old when it arrives: decided by a process that was stopped meanwhile."""
    went_back: dict[str, bool] = field(default_factory=lambda: {STORE: False, INVENTORY: False})
    asked: dict[str, bool] = field(default_factory=lambda: {STORE: False, INVENTORY: False})
    latched: str = ""
    filling: bool = False
    expected: dict[bytes, bytes] | None = None
    """Wanted before the database was restored, and since then by edits; None if it was not, or was adopted."""
    edited: set[Hashable] = field(default_factory=set)
    verdicts: int = 0
    deletes: int = 0
    _since: dict[bytes, float] = field(default_factory=dict)
    _wiped: bool = False

    def __post_init__(self) -> None:
        self.world.store.observers.append(self.judge)

    def told(self, edits: Sequence[Edit]) -> None:
        """Take over what people have just changed in the inventory."""
        for one in edits:
            if one.did is ChangeKind.UNCHANGED:
                continue
            keys = {one.key, one.old_key} - {None}
            self.edited |= {_who(key) for key in keys if key is not None}
            if self.expected is not None:
                for key in keys:
                    self.expected.pop(key, None)  # type: ignore[arg-type]
                if one.new is not None:
                    self.expected[one.key] = one.new
        self.look()

    def look(self) -> None:
        """Note since when each key has been wanted."""
        now = self.world.time
        self._since = {key: self._since.get(key, now) for key in wanted(self.inventory)}

    def store_replaced(self, *, wiped: bool = False) -> None:
        self._begin(STORE)
        self._wiped, self.expected = wiped, None
        self._read_identity()

    def database_replaced(self, before: Mapping[bytes, bytes]) -> None:
        """Judge what follows, if the store has a mark which the restored inventory never made."""
        self._begin(INVENTORY)
        entry = self.world.store.keys.get(mark_key(REGION))
        mark = None if entry is None else MARK.decode(entry.key, entry.value)
        unknown = isinstance(mark, Mark) and not self.inventory.has_mark(REGION.segment, mark)
        if self.went_back[STORE] or not unknown:
            self.expected = None
        elif self.expected is None:
            self.expected, self.edited = dict(before), set()
        self.look()

    def judge(self, write: StoreWrite) -> None:
        for event in write.events:
            if event.key == identity_key(REGION):
                self._judge_identity(event.entry)
            elif LAYOUT.has(event.key):
                self._judge_object(write, event)

    def _begin(self, side: str) -> None:
        self.went_back[side], self.asked[side] = True, False

    def _read_identity(self) -> None:
        entry = self.world.store.keys.get(identity_key(REGION))
        found = _identity(entry)
        self.latched = found.verdict.name if found and found.verdict else ""
        self.filling = found is not None and found.filling

    def _judge_identity(self, entry: Entry | None) -> None:
        found, before, filled = _identity(entry), self.latched, self.filling
        self._read_identity()
        verdict = found.verdict if found else None
        if self.latched != before and verdict is not None:
            self.verdicts += 1
            if not self.went_back[self.latched]:
                self._broken(f"verdict {self.latched} although nothing was restored: {verdict.sentence}")
        if before and not self.latched:
            if not self.asked[before]:
                self._broken(f"verdict {before} ended, and nobody asked for it")
            self._end(before)
        elif filled and not self.filling and self._wiped and not self.latched:
            self._end(STORE)

    def _end(self, side: str) -> None:
        self.went_back[side] = self.asked[side] = False
        if side == INVENTORY:
            self.expected = None

    def _judge_object(self, write: StoreWrite, event: Event) -> None:
        if event.entry is None:
            self.deletes += 1
            self._judge_delete(write, event.key)
        if self.expected is not None and not self.asked[INVENTORY] and _who(event.key) not in self.edited:
            self._judge_expected(event)

    def _judge_delete(self, write: StoreWrite, key: bytes) -> None:
        since = self._since.get(key)
        if since is not None and self.world.time - since > self.grace:
            self._broken(f"{write.client} deleted {LAYOUT.show(key)}, which is wanted")
        held = self.latched == STORE or (self.filling and not self.latched)
        if held and not any(self.asked.values()) and not self._is_elsewhere(write, key):
            self._broken(f"{write.client} deleted {LAYOUT.show(key)} from a store that was restored")

    def _is_elsewhere(self, write: StoreWrite, key: bytes) -> bool:
        who = LAYOUT.individual(key)
        stored = (entry.key for prefix in LAYOUT.prefixes for entry in self._range(prefix))
        return who is not None and any(LAYOUT.individual(one) == who for one in (*stored, *self._since) if one != key)

    def _range(self, prefix: bytes) -> Sequence[Entry]:
        return self.world.store.keys.range(prefix, prefix_end(prefix))

    def _judge_expected(self, event: Event) -> None:
        assert self.expected is not None
        doc = self.expected.get(event.key)
        if event.entry is None and doc is not None:
            self._broken(f"{LAYOUT.show(event.key)} was deleted because the inventory was restored")
        if event.entry is not None and (doc is None or not LAYOUT.same(Entry(event.key, doc), event.entry)):
            self._broken(f"{LAYOUT.show(event.key)} was moved back because the inventory was restored")

    def _broken(self, what: str) -> None:
        self.world.fail("the judge", InvariantBroken(what))


def _who(key: bytes) -> Hashable:
    return LAYOUT.workload(key) or key


def _identity(entry: Entry | None) -> Identity | None:
    found = None if entry is None else IDENTITY.decode(entry.key, entry.value)
    return None if isinstance(found, Bad) else found
