"""The inventory's protocols, without SQL: `Inventory` is the desired state, `Observed` the state reported by agents.

Keys are the store's keys, as bytes and in the order of bytes; documents are the model's canonical JSON, so that equal
objects are equal bytes. Calls block: callers with an event loop make them in a thread. An unreachable database raises
`DatabaseAway`. Writes are fenced: a leader whose term is over gets `Deposed`, and nothing was written.

Changes are found through the outbox: note the rows, read the present state, write it to the store, then settle those
rows. A row that commits late has a low id, and a reader that remembers "read up to 17" would never see it (C37): a
reader that reads on by position also reads the outbox from its beginning from time to time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, Protocol

import msgspec

from holdfast.inventory.changes import PastChange
from holdfast.model.base.kind import Kind
from holdfast.model.control.mark import Mark
from holdfast.reconcile.change import Away


class Row(NamedTuple):
    """One desired object as the store should hold it. An empty document stands for an object that the inventory has
    and the store cannot express: what the store holds at its key stays (rule 9)."""

    key: bytes
    doc: bytes
    revision: int

    @property
    def is_refused(self) -> bool:
        """True if the object has no form in the store."""
        return not self.doc


class OutboxRow(NamedTuple):
    """A row of the outbox: the object at this key changed; `before` is its previous key if it moved. A row about
    several objects has their keys in `others`, one about none has an empty key."""

    id: int
    key: bytes
    before: bytes | None
    others: tuple[bytes, ...] = ()


class Fence(NamedTuple):
    """The term of a leader's write. Compared as (epoch, term): a restored store counts terms from below again."""

    region: str
    epoch: int
    term: int


class Witness(NamedTuple):
    """The newest recorded change that names a key, where it says that the key is no longer wanted: its object was
    deleted, or moved to the key `moved_to`."""

    revision: int
    who: str
    moved_to: bytes | None = None
    at: datetime | None = None


class InventoryMarks(NamedTuple):
    """Marks of a region in the inventory: the oldest and newest number kept, and the highest number that is known to
    have reached the store. All are 0 before the first."""

    oldest: int
    newest: int
    stored: int


class DatabaseAway(Away):
    """The database is unreachable, or does not answer in time."""

    def __init__(self, why: str) -> None:
        super().__init__("database", why)


class FenceHeld(Away):
    """A transaction of an earlier term is still open; the new term cannot begin before it ends."""

    def __init__(self, holder: int) -> None:
        super().__init__(f"fence held by term {holder}", "one of its transactions is still open")


class MarkUnknown(Away):
    """The store's mark is not one that this inventory made: one of the two went back, and has to be judged."""

    def __init__(self, number: int) -> None:
        super().__init__("store identity", f"mark {number} of the store is not one that this inventory made")


class InventorySnapshot(Protocol):
    """All objects at one moment, however long reading them takes."""

    def read(self, after: bytes | None, most: int) -> Sequence[Row]:
        """Read the next objects above a key, in key order; fewer than `most` only at the end."""
        ...

    def revision(self) -> int: ...

    def close(self) -> None: ...


class Inventory(Protocol):
    """The source of truth: `SqlInventory` in a SQL fleet, Neutron in OpenStack."""

    @property
    def kinds(self) -> Sequence[Kind[Any, Any]]:
        """The kinds that it holds; those that others depend on come first."""
        ...

    @property
    def is_editable(self) -> bool:
        """Tell whether operators edit its objects through Holdfast, and can undo their edits and import objects."""
        ...

    def snapshot(self) -> InventorySnapshot: ...

    def read_keys(self, keys: Collection[bytes]) -> Sequence[Row]:
        """Read the current objects at these keys, outside any snapshot; keys without an object are left out."""
        ...

    def find(self, kind: Kind[Any, Any], name: str) -> Row | None:
        """Find the current object of that name."""
        ...

    def find_all(self, kind: Kind[Any, Any], names: Collection[str]) -> Sequence[Row]:
        """Find the current objects of these names; unknown names are left out."""
        ...

    def history(self, kind: Kind[Any, Any], name: str, last: int) -> Sequence[PastChange]:
        """The last changes of an object, newest first; also of a deleted one."""
        ...

    def networks(self) -> Mapping[str, int]:
        """Count the endpoints of each network; "" stands for endpoints without a network."""
        ...

    def outbox(self, most: int, after: int = 0) -> Sequence[OutboxRow]:
        """Read unsettled changes with ids above `after`, in the order of their ids; fewer than `most` only at the end.
        Rows with lower ids may still be committed (C37)."""
        ...

    def settle(self, fence: Fence, ids: Sequence[int], mark: Mark | None = None) -> None:
        """Remove exactly these rows from the outbox, and note that the `mark` has reached the store. Raises
        `Deposed`."""
        ...

    def fleet(self) -> str | None:
        """The id of the fleet that this inventory belongs to; None while it has none."""
        ...

    def name_fleet(self, fence: Fence, fleet: str) -> None:
        """Set the fleet id of an inventory that has none. Raises `Deposed`."""
        ...

    def expect(self, fence: Fence, keys: Collection[bytes]) -> None:
        """Record that these keys are about to be created in the store, where that is needed to witness their delete.
        Raises `Deposed`."""
        ...

    def witness(self, keys: Collection[bytes]) -> Mapping[bytes, Witness]:
        """Find the recorded deletes and moves of these keys. Left out are keys that no recorded change names, whose
        newest change wants them, or whose change an adoption has voided."""
        ...

    def void_witnesses(self, fence: Fence, upto: int | None = None) -> None:
        """Let no change up to that revision, or none recorded so far, count as a witness; called when an operator has
        adopted the inventory. What was voided before stays so. Raises `Deposed`."""
        ...

    def ignored(self) -> Collection[bytes]:
        """Keys of the store that an operator told Holdfast to leave alone."""
        ...

    def revision(self) -> int:
        """The revision of the newest recorded change; 0 before the first."""
        ...

    def mark(self, fence: Fence, stored: int, nonce: str = "") -> Mark:
        """Insert and return a mark with a number above all others of the region and above `stored`, the number of the
        mark that the store is known to hold. With the `nonce` of that mark nothing is inserted unless this inventory
        made it: a database that was restored meanwhile must not hide that. Raises `MarkUnknown` or `Deposed`."""
        ...

    def marks(self, region: str) -> InventoryMarks: ...

    def has_mark(self, region: str, mark: Mark) -> bool:
        """Tell whether this inventory made that mark."""
        ...

    def fence(self, region: str) -> Fence:
        """The latest epoch and term under which a leader of the region may have written; zeros before the first."""
        ...

    def prune_history(self, fence: Fence, before: datetime, held: Collection[bytes] = ()) -> Iterator[int]:
        """Delete history older than that, in short transactions: each step of the iterator is one, and returns the
        number of deleted changes. Begins after every resync. Changes that name a key in the outbox or in `held` stay:
        they may be the witness of its delete. Raises `Deposed`."""
        ...

    def regions(self) -> Collection[str]:
        """Segments of the regions that a leader has written for, without retired ones."""
        ...

    def raise_fence(self, fence: Fence) -> None:
        """Refuse every earlier term from now on; a new leader's first write. Raises `Deposed` or `FenceHeld`."""
        ...

    def close(self) -> None: ...


class ObservedRow(msgspec.Struct, frozen=True, gc=False):
    """One row of observed state, and when it was written."""

    key: bytes
    doc: bytes
    at: datetime


class ChangedKeys(NamedTuple):
    """Changes since some revision: the newest revision, and the keys concerned."""

    newest: int
    present: Collection[bytes] = ()
    gone: Collection[bytes] = ()
    """Keys that objects had before and that no longer exist."""


class Observed(Protocol):
    """Observed state, written by the status workers: `SqlObserved` in a SQL fleet, Neutron in OpenStack.

    Documents are the canonical JSON of `holdfast.model.fleet.observed`.
    """

    def read(self, kind: str, prefix: bytes, after: bytes | None, most: int) -> Sequence[ObservedRow]:
        """Read rows of a kind under a prefix, above a key, in key order; fewer than `most` only at the end."""
        ...

    def shared(self, kind: str) -> bool:
        """Tell whether others write rows of this kind, too: then a row is read again before it is compared."""
        ...

    def write(
        self, fence: Fence, kind: str, rows: Mapping[bytes, Sequence[bytes]], gone: Collection[bytes], at: datetime
    ) -> Mapping[bytes, str]:
        """Write each document under its keys and delete the keys in `gone`, in one transaction. Returns the keys that
        were refused, with the reason; the others are written. Raises `Deposed`."""
        ...

    @property
    def is_fenced(self) -> bool:
        """Tell whether the fence covers all that `write` changes; if not, callers confirm their term just before."""
        ...

    def keep_fresh(self, fence: Fence, kind: str) -> None:
        """Write again what ages in the inventory although nothing changed, such as heartbeats. Callers confirm their
        term just before. Raises `Deposed`."""
        ...

    def read_settled(self, fence: Fence, keys: Collection[bytes]) -> Sequence[ObservedRow]:
        """Read these rows once no earlier transaction of a leader can change them any more. Raises `Deposed`."""
        ...

    def wanted(self, prefix: bytes, after: bytes | None, most: int) -> Sequence[bytes]:
        """Keys of desired objects under a prefix, above a key, in key order."""
        ...

    def hosts(self, region: str) -> Sequence[str]:
        """The names of the region's hosts."""
        ...

    def newest(self) -> int:
        """The revision of the newest change; a cheap query."""
        ...

    def changed_since(self, kind: str, revision: int) -> ChangedKeys:
        """Changes of objects of a kind after a revision."""
        ...
