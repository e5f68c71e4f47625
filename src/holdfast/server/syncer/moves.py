"""Moves: where the individual of a key is wanted now, as the inventory says it.

A delete is half of a move only if its individual is wanted under another key at this moment (C44): what moved and was
deleted since then is a loss. `Moves` is the one authority for that. Brake, witness and identity gate ask `wanted_at`,
whose answers `look_up` fetched for the deletes of the plan; the writer asks the inventory again (`find`), after the
last wait before its write. A create in the same plan answers for its old key without a query.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from typing import Any

from holdfast.inventory.api import Inventory
from holdfast.inventory.sql.thread import RunInThread
from holdfast.model.base.kind import Kind
from holdfast.model.calico.endpoint import ENDPOINT
from holdfast.model.calico.migration import MIGRATION
from holdfast.reconcile import Change, Op
from holdfast.server.syncer.keys import RegionKeys
from holdfast.store.api import Entry

_SPARE = 1_000
"""Answers about deletes that are no longer open, kept until the next cleaning."""

Item = Change[bytes, Entry]


class Moves:
    """`is_open` says whether a key is marked or outstanding; answers about other keys are forgotten."""

    def __init__(
        self, inventory: Inventory, run_in_thread: RunInThread, layout: RegionKeys, is_open: Callable[[bytes], bool]
    ) -> None:
        self._inventory = inventory
        self._run_in_thread = run_in_thread
        self._layout = layout
        self._is_open = is_open
        self._wanted: dict[bytes, bytes] = {}
        self._leaving: dict[Hashable, set[bytes]] = {}
        """Old keys of the individuals whose deletes were looked up."""
        self._is_any_left = False
        """True if deletes of earlier plans may be outstanding."""
        self._clean_at = _SPARE

    def wanted_at(self, key: bytes) -> bytes | None:
        """Return the other key under which the inventory wants the individual of this key now; None if there is none.

        Knows the keys of all deletes of this plan, and of those that are outstanding.
        """
        return self._wanted.get(key)

    async def look_up(self, changes: Sequence[Item]) -> None:
        """Ask where the individuals of the deletes of a plan are wanted. Raises `Away`."""
        individual = self._layout.individual
        if 0 < len(self._leaving) <= len(changes):
            self._forget_settled()  # cheaper than a question per create, and mostly nothing is left
        self._is_any_left = bool(self._leaving)
        leaving = {c.key: one for c in changes if c.op is Op.DELETE and (one := individual(c.key)) is not None}
        if not leaving:
            return
        arriving = {individual(change.key): change.key for change in changes if change.op is Op.CREATE}
        found = {key: arriving[one] for key, one in leaving.items() if one in arriving}
        found |= await self.find(leaving.keys() - found.keys())
        self._clean()
        for key, one in leaving.items():
            self._leaving.setdefault(one, set()).add(key)
            self._wanted.pop(key, None)
        self._wanted |= found

    def other_keys(self, changes: Sequence[Item]) -> Collection[bytes]:
        """Return the new keys of what these changes delete, and the old keys, not yet deleted, of what they create."""
        new = [at for change in changes if change.op is Op.DELETE and (at := self.wanted_at(change.key)) is not None]
        if not self._is_any_left:
            return new
        return [*new, *self._old_keys(change.key for change in changes if change.op is Op.CREATE)]

    async def find(self, keys: Collection[bytes]) -> Mapping[bytes, bytes]:
        """Map those of the keys whose individual is wanted under another key now to that key. Raises `Away`."""
        workload, migrations = self._layout.workload, MIGRATION.prefix(self._layout.region)
        ones = {key: (key.startswith(migrations), one) for key in keys if (one := workload(key)) is not None}
        if not ones:
            return {}
        names: dict[Kind[Any, Any], list[str]] = {
            kind: [one.decode() for is_one, one in ones.values() if is_one is (kind is MIGRATION)]
            for kind in (ENDPOINT, MIGRATION)
        }
        rows = await self._run_in_thread(
            lambda: [row for kind, named in names.items() if named for row in self._inventory.find_all(kind, named)]
        )
        here = [row.key for row in rows if self._layout.wants(row.key, row.doc)]
        now = {(key.startswith(migrations), workload(key)): key for key in here}
        return {key: now[one] for key, one in ones.items() if now.get(one, key) != key} if now else {}

    def _old_keys(self, arriving: Iterable[bytes]) -> Iterable[bytes]:
        for key in arriving:
            yield from filter(self._is_open, self._leaving.get(self._layout.individual(key), ()))

    def _clean(self) -> None:
        if len(self._leaving) + len(self._wanted) < self._clean_at:
            return
        self._wanted = {key: new for key, new in self._wanted.items() if self._is_open(key)}
        self._forget_settled()
        self._clean_at = 2 * (len(self._leaving) + len(self._wanted)) + _SPARE

    def _forget_settled(self) -> None:
        still = {one: set(filter(self._is_open, keys)) for one, keys in self._leaving.items()}
        self._leaving = {one: keys for one, keys in still.items() if keys}
