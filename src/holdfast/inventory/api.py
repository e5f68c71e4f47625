"""The inventory as the rest of Holdfast sees it: plain types and one protocol. Nothing here knows SQL.

Keys are the store's keys, as bytes and in the order of bytes; documents are the model's canonical JSON, so that
comparing two objects is comparing bytes. Calls block: whoever has an event loop makes them in a thread. A database
that cannot be reached raises `DatabaseAway`; a leader whose term is over gets `Deposed`, and nothing was written.

Changes are found through the outbox. It is read without a position: a row that commits late has a low id, and whoever
remembers "read up to 17" never sees it (C37). Note the rows, look up the present state, write it, settle those rows.

The inventory's other side, as the status workers see it: what is really up, beside what is wanted.

Keys are bytes in the order of bytes, documents the canonical JSON of `holdfast.model.fleet.observed`. Writes are fenced
like all of a leader's. Calls block: whoever has an event loop makes them in a thread.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, Protocol

import msgspec

from holdfast.inventory.changes import PastChange
from holdfast.model.base.kind import Kind
from holdfast.reconcile.change import Away


class Row(NamedTuple):
    """One wanted object as the store should hold it."""

    key: bytes
    doc: bytes
    revision: int


class OutboxRow(NamedTuple):
    """A row of the outbox: something about this key changed, and maybe about the one that the object had before."""

    id: int
    key: bytes
    before: bytes | None


class Fence(NamedTuple):
    """Under which term a leader writes. Compared as (epoch, term): a restored store counts terms from below again."""

    region: str
    epoch: int
    term: int


class DatabaseAway(Away):
    """The database cannot be reached, or does not answer in time."""

    def __init__(self, why: str) -> None:
        super().__init__("database", why)


class FenceHeld(Away):
    """A transaction of an earlier term is still open, and the new term cannot begin before it has ended."""

    def __init__(self, holder: int) -> None:
        super().__init__(f"fence held by term {holder}", "one of its transactions is still open")


class InventorySnapshot(Protocol):
    """All objects at one moment, however long the reading takes."""

    def read(self, after: bytes | None, most: int) -> Sequence[Row]:
        """The next objects above that key, in key order; fewer than `most` only at the end."""
        ...

    def revision(self) -> int: ...

    def close(self) -> None: ...


class Inventory(Protocol):
    """The source of truth. SQL fleets have `SqlInventory`; Neutron is another."""

    @property
    def kinds(self) -> Sequence[Kind[Any, Any]]:
        """What it holds, the ones leaned upon first."""
        ...

    def snapshot(self) -> InventorySnapshot: ...

    def look(self, keys: Collection[bytes]) -> Sequence[Row]:
        """What these keys should hold now, outside any snapshot; a key that should not exist is not in the answer."""
        ...

    def named(self, kind: Kind[Any, Any], name: str) -> Row | None:
        """The object of that name as it is wanted now; None when it is not."""
        ...

    def called(self, kind: Kind[Any, Any], names: Collection[str]) -> Sequence[Row]:
        """The same for many; those that are not wanted are not in the answer."""
        ...

    def past(self, kind: Kind[Any, Any], name: str, last: int) -> Sequence[PastChange]:
        """The last changes of an object, newest first; also of one that is gone."""
        ...

    def networks(self) -> Mapping[str, int]:
        """How many endpoints are wanted on each network; "" stands for those that are on none."""
        ...

    def outbox(self, most: int, after: int = 0) -> Sequence[OutboxRow]:
        """Changes that nobody has settled yet. `after` pages through them within one look, and is never remembered."""
        ...

    def settle(self, fence: Fence, ids: Sequence[int]) -> None:
        """Forgets exactly these rows of the outbox. Raises `Deposed`."""
        ...

    def fleet(self) -> str | None:
        """The fleet that this inventory belongs to; None while it has no id."""
        ...

    def name_fleet(self, fence: Fence, fleet: str) -> None:
        """Gives an inventory without an id its id; one that has one keeps it. Raises `Deposed`."""
        ...

    def epoch(self, region: str) -> int:
        """The highest epoch that a leader of the region has written under; 0 before the first."""
        ...

    def tidy(self, fence: Fence, before: datetime) -> None:
        """Forgets history from before then; asked after every resync. Raises `Deposed`."""
        ...

    def raise_fence(self, fence: Fence) -> None:
        """A new leader's first act: from here on every earlier term is refused. Raises `Deposed` or `FenceHeld`."""
        ...

    def close(self) -> None: ...


class ObservedRow(msgspec.Struct, frozen=True, gc=False):
    """One row of what was observed, and when it was written."""

    key: bytes
    doc: bytes
    at: datetime


class ChangedKeys(NamedTuple):
    """What changed in the inventory since some revision: the newest one there is, and the keys concerned."""

    newest: int
    present: Collection[bytes] = ()
    gone: Collection[bytes] = ()
    """Keys that objects had before, and that stand no more."""


class Observed(Protocol):
    """What a SQL inventory offers to the status workers; Neutron is another."""

    def read(self, kind: str, prefix: bytes, after: bytes | None, most: int) -> Sequence[ObservedRow]:
        """Observed rows of that kind under the prefix, above that key, in order; fewer than `most` only at the end."""
        ...

    def write(
        self, fence: Fence, kind: str, rows: Mapping[bytes, Sequence[bytes]], gone: Collection[bytes], at: datetime
    ) -> None:
        """Writes each document under its keys and removes the keys that are gone, in one transaction of that term.
        Raises `Deposed`."""
        ...

    def wanted(self, prefix: bytes, after: bytes | None, most: int) -> Sequence[bytes]:
        """Keys of wanted objects under the prefix above that key, in key order."""
        ...

    def hosts(self, region: str) -> Sequence[str]:
        """The names of the region's hosts."""
        ...

    def newest(self) -> int:
        """The revision of the newest change; cheap."""
        ...

    def touched(self, kind: str, after: int) -> ChangedKeys:
        """Changes of objects of that kind since a revision."""
        ...
