"""Update of one VIP: the new contents, and the two transactions that lead to them. Pure.

The first transaction writes the new state, in which no new flow goes to a backend that is removed. Then flows are
killed, and the second transaction records that they were. After an interruption between the two, the entry does not
claim that its flows were killed, and the update is repeated (B6).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from holdfast.balancer.dataplane.nftables.layout import (
    backend_map,
    buckets_of,
    chain_of,
    entry_comment,
    mark_of,
    vip_comment,
    vip_map,
)
from holdfast.balancer.dataplane.nftables.snapshot import PlacedBackend, TableSnapshot, VipContent, mark_key, table_of
from holdfast.balancer.maglev.table import BackendId
from holdfast.balancer.vip import NO_BACKEND, BackendEntry, Value, Vip, VipKey, VipSettings, shown
from holdfast.netlink.nftables.elements import Element, Marks, Transaction
from holdfast.reconcile import Change


@dataclass(slots=True)
class VipUpdate:
    """New contents of one VIP. `ended` has the backends whose flows are killed."""

    vip: Vip
    settings: VipSettings | None
    entries: dict[BackendId, BackendEntry]
    ended: set[BackendId]

    @classmethod
    def of(cls, vip: Vip, held: VipContent) -> VipUpdate:
        return cls(vip, held.settings, {backend: placed.entry for backend, placed in held.entries.items()}, set())

    def take(self, change: Change[VipKey, Value]) -> str | None:
        """Add a change. Returns one sentence when it is not possible."""
        backend, new = change.key.backend, None if change.new is None else change.new.value
        if backend == NO_BACKEND:
            return self._take_vip(new)
        if new is None:
            if self.entries.pop(backend, None) is not None:
                self.ended.add(backend)
            return None
        return self._take_entry(backend, new)

    def _take_vip(self, new: Value | None) -> str | None:
        assert not isinstance(new, BackendEntry)
        self.settings = new
        if new is None:
            self.ended |= self.entries.keys()
            self.entries.clear()
        return None

    def _take_entry(self, backend: BackendId, new: Value) -> str | None:
        assert isinstance(new, BackendEntry)
        if self.settings is None:
            return "there is no such VIP"
        if backend.family != self.vip.family:  # protection: B9, one such backend must not block its VIP
            return f"{shown(backend)} is not of the address family of {self.vip}: remove it from this frontend"
        self.entries[backend] = new
        if new.kill:  # protection: B6
            self.ended.add(backend)
        return None


@dataclass(frozen=True, slots=True)
class UpdateSteps:
    """Steps of one update."""

    first: Transaction
    ended: Sequence[int]
    """Marks whose flows are killed in between."""
    then: Transaction
    after: Marks
    """Bucket table after the first step."""
    content: VipContent
    """Contents of the VIP after all steps."""


def steps(update: VipUpdate, snapshot: TableSnapshot, before: Marks, used: set[int]) -> UpdateSteps:
    """Plan the steps to the new contents. `used` has the marks of all entries; new ones are added to it. Raises
    `TooManyBackends`."""
    return _Steps(update, snapshot, used).plan(before)


def ended_marks(update: VipUpdate, marks: Mapping[BackendId, int]) -> list[int]:
    """Marks of the backends in `ended`, and of no others (protection: B19)."""
    return [marks[backend] for backend in sorted(update.ended) if backend in marks]


class _Steps:
    def __init__(self, update: VipUpdate, snapshot: TableSnapshot, used: set[int]) -> None:
        self._update = update
        self._snapshot = snapshot
        self._held = snapshot.contents.get(update.vip, VipContent())
        self._marks = {backend: placed.mark for backend, placed in self._held.entries.items()}
        for backend in sorted(update.entries.keys() - self._marks.keys()):
            self._marks[backend] = mark_of(VipKey(update.vip, backend), used)
            used.add(self._marks[backend])

    def plan(self, before: Marks) -> UpdateSteps:
        update, shape = self._update, self._snapshot.shape
        first, then = Transaction(shape.table), Transaction(shape.table)
        after = before
        if update.settings is not None:
            after = table_of(update.entries, self._marks, update.settings.table_size)
            first.move(buckets_of(update.vip, update.settings.table_size), before, after)
        for backend, entry in sorted(update.entries.items()):
            held = self._held.entries.get(backend)
            unchanged = held is not None and held.entry == entry
            before_kill = entry if unchanged else replace(entry, kill=False)
            self._place(first, backend, before_kill)
            if before_kill != entry:
                self._write(then, backend, before_kill, entry)
        for backend in sorted(self._held.entries.keys() - update.entries.keys()):
            self._remove(then, backend)
        self._dispatch(first)
        content = VipContent(
            update.settings, {one: PlacedBackend(self._marks[one], entry) for one, entry in update.entries.items()}
        )
        return UpdateSteps(first, ended_marks(update, self._marks), then, after, content)

    def _place(self, transaction: Transaction, backend: BackendId, entry: BackendEntry) -> None:
        held = self._held.entries.get(backend)
        if held is None or held.entry != entry:
            self._write(transaction, backend, None if held is None else held.entry, entry)
        mark = self._marks[backend]
        if mark not in self._snapshot.counted:
            transaction.add(self._snapshot.shape.counted, Element(mark_key(mark)))

    def _write(self, transaction: Transaction, backend: BackendId, old: BackendEntry | None, new: BackendEntry) -> None:
        key = VipKey(self._update.vip, backend)
        where, mark = backend_map(key), mark_key(self._marks[backend])
        if old is not None:
            transaction.delete(where.name, Element(mark))
        transaction.add(where.name, Element(mark, where.data(backend), comment=entry_comment(key, new)))

    def _remove(self, transaction: Transaction, backend: BackendId) -> None:
        mark = self._marks[backend]
        transaction.delete(backend_map(VipKey(self._update.vip, backend)).name, Element(mark_key(mark)))
        if mark in self._snapshot.counted:
            transaction.delete(self._snapshot.shape.counted, Element(mark_key(mark)))

    def _dispatch(self, transaction: Transaction) -> None:
        """Add, replace or remove the element that dispatches packets to the chain of the VIP."""
        vip, wanted, held = self._update.vip, self._update.settings, self._held.settings
        where = vip_map(vip)
        if wanted == held:
            return
        if held is not None:
            transaction.delete(where.name, Element(where.key(vip)))
        if wanted is not None:
            comment = vip_comment(wanted)
            transaction.add(where.name, Element(where.key(vip), chain=chain_of(vip), comment=comment))
