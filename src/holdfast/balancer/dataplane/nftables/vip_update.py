"""One VIP's part of a batch: what becomes of it, and in which two steps the kernel is told. Pure.

First the new state, in which nobody new is sent to a backend that goes; then, after the flows that must not live have
been ended, the word that they were. Whoever is interrupted between the two finds an entry whose flows were not ended
yet, and is told again (B6): the table never claims what was not done.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from holdfast.balancer.dataplane.nftables.elements import Element, Marks, Transaction
from holdfast.balancer.dataplane.nftables.layout import (
    TRAFFIC,
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
from holdfast.reconcile import Change


@dataclass(slots=True)
class VipUpdate:
    """What is to become of one VIP. `ended` are the backends whose flows must not live."""

    vip: Vip
    settings: VipSettings | None
    entries: dict[BackendId, BackendEntry]
    ended: set[BackendId]

    @classmethod
    def of(cls, vip: Vip, held: VipContent) -> VipUpdate:
        return cls(vip, held.settings, {backend: placed.entry for backend, placed in held.entries.items()}, set())

    def take(self, change: Change[VipKey, Value]) -> str | None:
        """Takes a change into account, or says in one sentence why that cannot be."""
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
        if backend.family != self.vip.family:  # B9: one backend of the other family does not wedge its VIP
            return f"{shown(backend)} is not of the family of {self.vip}: a packet cannot change its family on the way"
        self.entries[backend] = new
        if new.kill:
            self.ended.add(backend)
        return None


@dataclass(frozen=True, slots=True)
class UpdateSteps:
    """What the kernel is told for one turn."""

    first: Transaction
    ended: Sequence[int]
    """Marks whose flows are ended in between."""
    then: Transaction
    after: Marks
    """The table of buckets that the first step leads to."""
    service: VipContent
    """What the VIP is after all."""


def steps(turn: VipUpdate, picture: TableSnapshot, before: Marks, used: set[int]) -> UpdateSteps:
    """From what is there to what is wanted; `used` are the marks of all entries, to which new ones are added. Raises
    `maglev.TooMany`."""
    return _Steps(turn, picture, used).made(before)


def ended_marks(turn: VipUpdate, marks: Mapping[BackendId, int]) -> list[int]:
    """Whose flows are ended: those that must not live, and nobody else's (B19)."""
    return [marks[backend] for backend in sorted(turn.ended) if backend in marks]


class _Steps:
    def __init__(self, turn: VipUpdate, picture: TableSnapshot, used: set[int]) -> None:
        self._turn = turn
        self._picture = picture
        self._held = picture.services.get(turn.vip, VipContent())
        self._marks = {backend: placed.mark for backend, placed in self._held.entries.items()}
        for backend in sorted(turn.entries.keys() - self._marks.keys()):
            self._marks[backend] = mark_of(VipKey(turn.vip, backend), used)
            used.add(self._marks[backend])

    def made(self, before: Marks) -> UpdateSteps:
        turn, shape = self._turn, self._picture.shape
        first, then = Transaction(shape.table), Transaction(shape.table)
        after = before
        if turn.settings is not None:
            after = table_of(((one, self._marks[one], entry.weight) for one, entry in turn.entries.items()), shape.size)
            first.move(buckets_of(turn.vip, shape.size), before, after)
        for backend, entry in sorted(turn.entries.items()):
            held = self._held.entries.get(backend)
            told_already = held is not None and held.entry == entry
            alive = entry if told_already else replace(entry, kill=False)
            self._place(first, backend, alive)
            if alive != entry:
                self._write(then, backend, alive, entry)
        for backend in sorted(self._held.entries.keys() - turn.entries.keys()):
            self._remove(then, backend)
        self._lead(first)
        service = VipContent(
            turn.settings, {one: PlacedBackend(self._marks[one], entry) for one, entry in turn.entries.items()}
        )
        return UpdateSteps(first, ended_marks(turn, self._marks), then, after, service)

    def _place(self, transaction: Transaction, backend: BackendId, entry: BackendEntry) -> None:
        held = self._held.entries.get(backend)
        if held is None or held.entry != entry:
            self._write(transaction, backend, None if held is None else held.entry, entry)
        mark = self._marks[backend]
        if mark not in self._picture.counted:
            transaction.add(TRAFFIC, Element(mark_key(mark)))

    def _write(self, transaction: Transaction, backend: BackendId, old: BackendEntry | None, new: BackendEntry) -> None:
        key = VipKey(self._turn.vip, backend)
        where, mark = backend_map(key), mark_key(self._marks[backend])
        if old is not None:
            transaction.delete(where.name, Element(mark))
        transaction.add(where.name, Element(mark, where.data(backend), comment=entry_comment(key, new)))

    def _remove(self, transaction: Transaction, backend: BackendId) -> None:
        mark = self._marks[backend]
        transaction.delete(backend_map(VipKey(self._turn.vip, backend)).name, Element(mark_key(mark)))
        if mark in self._picture.counted:
            transaction.delete(TRAFFIC, Element(mark_key(mark)))

    def _lead(self, transaction: Transaction) -> None:
        """Clients are led to the VIP's chain, or no longer."""
        vip, wanted, held = self._turn.vip, self._turn.settings, self._held.settings
        where = vip_map(vip)
        if wanted == held:
            return
        if held is not None:
            transaction.delete(where.name, Element(where.key(vip)))
        if wanted is not None:
            comment = vip_comment(wanted)
            transaction.add(where.name, Element(where.key(vip), chain=chain_of(vip), comment=comment))
