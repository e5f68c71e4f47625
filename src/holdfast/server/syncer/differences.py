"""Differences between inventory and store: found in one snapshot, page by page, and grouped for an operator.

Moves, deletes that the inventory recorded, deletes without a witness, and drift, which is all creates and replaces.
Nothing is written here, so it needs no leader: `holdfast openstack check` compares before a server was ever started.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast.inventory.api import Inventory, Witness
from holdfast.inventory.sql.thread import RunInThread
from holdfast.model.base.time import Instant
from holdfast.model.calico.endpoint import ENDPOINT, NETWORK_ANNOTATION
from holdfast.model.fleet.network import NETWORK_LABEL
from holdfast.reconcile import Change, Op, Owned, SyncGate, diff
from holdfast.server.syncer.keys import RegionKeys
from holdfast.server.syncer.moves import Moves
from holdfast.server.syncer.source import InventorySource
from holdfast.server.syncer.target import StoredObjects
from holdfast.store.api import Entry, Store

DRIFT, MOVE, WITNESSED, UNWITNESSED = "drift", "move", "witnessed", "unwitnessed"
_named = b"|".join(re.escape(name.encode()) for name in (NETWORK_LABEL, NETWORK_ANNOTATION))
_network = re.compile(rb'"(?:' + _named + rb')":\s*"([^"\\]*)"').search


def network_in(value: bytes) -> str:
    """Network of an endpoint, searched in the bytes of its value: decoding every endpoint would be too slow."""
    found = _network(value)
    return found[1].decode(errors="backslashreplace") if found else ""


@dataclass
class Differences:
    """Result of a comparison: counts by operation, and the first changes."""

    most: int
    counts: Counter[str] = field(default_factory=Counter)
    shown: list[Change[bytes, Entry]] = field(default_factory=list)
    keys: dict[Op, list[bytes]] = field(default_factory=lambda: {op: [] for op in Op})
    moved: Mapping[bytes, bytes] = field(default_factory=dict)
    """New keys of the individuals whose old keys would be deleted."""
    witnesses: Mapping[bytes, Witness] = field(default_factory=dict)
    networks: dict[str, Counter[str]] = field(default_factory=dict)
    """By network: number of stored endpoints (`of`), and of those to be deleted (`delete`)."""

    def take(self, change: Change[bytes, Entry]) -> None:
        self.counts[change.op.name.lower()] += 1
        self.keys[change.op].append(change.key)
        if len(self.shown) < self.most:
            self.shown.append(change)

    def group(self, op: Op, key: bytes) -> str:
        if op is Op.DELETE:
            return MOVE if key in self.moved else WITNESSED if key in self.witnesses else UNWITNESSED
        return MOVE if op is Op.CREATE and key in self.moved.values() else DRIFT

    def groups(self) -> dict[str, int]:
        """Count the changes of each group; both halves of a move count as one."""
        arriving = {*self.moved.values()}.intersection(self.keys[Op.CREATE])
        deletes = Counter(self.group(Op.DELETE, key) for key in self.keys[Op.DELETE])
        drift = len(self.keys[Op.CREATE]) + len(self.keys[Op.REPLACE]) - len(arriving)
        return {DRIFT: drift, **{group: deletes[group] for group in (MOVE, WITNESSED, UNWITNESSED)}}

    def network(self, entry: Entry) -> Counter[str]:
        return self.networks.setdefault(network_in(entry.value), Counter())

    def report(self, layout: RegionKeys, *, values: bool) -> dict[str, Any]:
        """The counts, and the first changes as operators write them, with their values if they are to be shown."""
        return {
            "differed": self.counts.total(),
            **{op: self.counts[op] for op in ("create", "replace", "delete")},
            "groups": self.groups(),
            "ignored": len(layout.ignored),
            "networks": {name: dict(counts) for name, counts in sorted(self.networks.items()) if counts["delete"]},
            "objects": [self._object(change, layout, values=values) for change in self.shown],
        }

    def _object(self, change: Change[bytes, Entry], layout: RegionKeys, *, values: bool) -> dict[str, Any]:
        key = change.key
        shown: dict[str, Any] = {
            "op": change.op.name.lower(),
            "key": layout.show(key),
            "group": self.group(change.op, key),
        }
        if change.op is Op.DELETE and key in self.moved:
            shown["to"] = layout.show(self.moved[key])
        elif change.op is Op.DELETE and (witness := self.witnesses.get(key)) is not None:
            at = "" if witness.at is None else witness.at.isoformat(timespec="seconds")
            shown |= {"who": witness.who, "at": at, "revision": witness.revision}
        if values:
            shown |= {"old": _text(change.old), "new": _text(change.new)}
        return shown


async def find_differences(
    inventory: Inventory,
    run_in_thread: RunInThread,
    store: Store,
    layout: RegionKeys,
    is_in_scope: Callable[[Change[bytes, Entry]], bool],
    now: Callable[[], Instant],
    *,
    most: int,
    known: int = 0,
    compared: Callable[[int], None] = lambda _count: None,
) -> Differences:
    """Compare inventory and store, and look up the witnesses of deletes. At most `most` changes are kept to be shown.
    `known` is a revision that the store is known to have had; `compared` is called with the size of each page. Raises
    `Away`."""
    source = InventorySource(inventory, run_in_thread, SyncGate(), now, layout.wants)
    target = StoredObjects(store, layout, source.bound, known=known)
    found = Differences(most)
    after: bytes | None = None
    try:
        while True:
            present, upto = await target.read(after)
            wanted = await source.read(after, upto)
            for change in filter(is_in_scope, diff(wanted, present, layout.same)):
                found.take(change)
                if change.op is Op.DELETE and change.old and layout.kind(change.key) is ENDPOINT:
                    found.network(change.old.value)["delete"] += 1
            for key, owned in present:
                if layout.kind(key) is ENDPOINT:
                    found.network(owned.value)["of"] += 1
            compared(max(len(present), len(wanted)))
            if upto is None:
                break
            after = upto
    finally:
        await source.close()
    if deletes := found.keys[Op.DELETE]:
        found.moved = await Moves(inventory, run_in_thread, layout, lambda _key: False).find(deletes)
        found.witnesses = await run_in_thread(lambda: inventory.witness(deletes))
    return found


def _text(owned: Owned[Entry] | None) -> str | None:
    return None if owned is None else owned.value.value.decode(errors="backslashreplace")
