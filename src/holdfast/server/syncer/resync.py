"""`holdfast resync`: compares inventory and store now, on an operator's request, and reports the differences.

With `dry_run` nothing is written. With a kind, a kind and a name, or a network, only those objects count. The loop
itself repairs; this module counts what differs, and waits until the loop has handled it. What differs is grouped:
moves, deletes that the inventory recorded, deletes without a witness, and drift, which is all creates and replaces.
"""

from __future__ import annotations

import asyncio
import itertools
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast.inventory.api import Witness
from holdfast.inventory.kinds import name_of
from holdfast.model.base.bad import Bad
from holdfast.model.calico.endpoint import ENDPOINT
from holdfast.model.fleet.network import NETWORK_LABEL
from holdfast.reconcile import Away, Change, Op, Owned, SyncGate, diff
from holdfast.runtime.control import Declined, Request, Who
from holdfast.runtime.reconciler import Reconciler
from holdfast.server.syncer.keys import RegionKeys
from holdfast.server.syncer.source import InventorySource
from holdfast.server.syncer.target import EtcdTarget
from holdfast.server.syncer.term import SyncerTerm
from holdfast.store.api import Entry

NAMED = 20
VALUED = 200
"""Most differences that are named, and most that are shown with their values."""
DRIFT, MOVE, WITNESSED, UNWITNESSED = "drift", "move", "witnessed", "unwitnessed"
_POLL_S = 0.05
_network = re.compile(rb'"' + re.escape(NETWORK_LABEL.encode()) + rb'":\s*"([^"\\]*)"').search


def network_in(value: bytes) -> str:
    """Network of an endpoint, searched in the bytes of its value: decoding every endpoint would be too slow."""
    found = _network(value)
    return found[1].decode(errors="backslashreplace") if found else ""


async def next_pass(reconciler: Reconciler[bytes, Entry], passes: int) -> None:
    """Wait until the loop has finished more passes than that."""
    while reconciler.passes <= passes:  # noqa: ASYNC110 -- the loop has no event for the end of a pass
        await asyncio.sleep(_POLL_S)


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


@dataclass(frozen=True, slots=True)
class ResyncScope:
    """Objects that are compared: all, those of a kind, one of a kind, or those on a network."""

    kind: str = ""
    name: str = ""
    network: str = ""

    @property
    def is_whole(self) -> bool:
        return not (self.kind or self.network)

    def has(self, change: Change[bytes, Entry], layout: RegionKeys) -> bool:
        if self.kind and layout.plural(change.key) != self.kind:
            return False
        if self.network and not any(map(self._is_on_network, (change.old, change.new))):
            return False
        if not self.name:
            return True
        kind = layout.kind(change.key)
        parsed = kind.parse(change.key, layout.region)
        return not isinstance(parsed, Bad) and name_of(parsed) == self.name

    def _is_on_network(self, owned: Owned[Entry] | None) -> bool:
        return owned is not None and network_in(owned.value.value) == self.network


class Resync:
    """Answers `resync` for one term: starts a resync, or reports its `progress`."""

    def __init__(self, term: SyncerTerm) -> None:
        self._term = term
        self._state: dict[str, Any] = {}
        self._compared = 0

    async def answer(self, request: Request, _who: Who) -> dict[str, Any]:
        """Answer at once: a resync takes longer than a command waits for its answer."""
        if request.args.get("progress"):
            if not self._state:
                raise Declined("no resync was requested since this server leads")
            return {**self._state, "looked": self._compared}
        if self._state and not self._state["done"]:
            raise Declined("a resync is under way: wait until it is done")
        scope = self._scope(request.args)
        self._state, self._compared = {"done": False}, 0
        values = bool(request.args.get("values"))
        self._term.start(self._resync(scope, dry=bool(request.args.get("dry_run")), values=values))
        return {**self._state, "looked": 0}

    def _scope(self, args: Mapping[str, Any]) -> ResyncScope:
        scope = ResyncScope(*(str(args.get(word) or "") for word in ("kind", "name", "network")))
        known = [one.plural for one in self._term.syncer.inventory.kinds]
        if scope.name and not scope.kind:
            raise Declined("--name needs --kind beside it")
        if scope.kind and scope.kind not in known:
            raise Declined(f"there is no kind {scope.kind!r} in the inventory; there are: {', '.join(known)}")
        return scope

    async def _resync(self, scope: ResyncScope, *, dry: bool, values: bool) -> None:
        began = self._term.syncer.context.clock.now()
        try:
            found = await self._differences(scope, VALUED if values else NAMED)
            await self._look_up_deletes(found)
            if not dry:
                await self._wait_handled(list(itertools.chain(*found.keys.values())), whole=scope.is_whole)
        except Away as away:
            self._state = {"done": True, "error": f"nothing was compared: {away}"}
            return
        took = (self._term.syncer.context.clock.now() - began).total_seconds()
        self._state = self._outcome(found, took, dry=dry, values=values)

    async def _differences(self, scope: ResyncScope, most: int) -> Differences:
        """Compare in a snapshot of its own, so that the loop's pass is not disturbed."""
        term, syncer = self._term, self._term.syncer
        term.reconciler.dirty.mark(await term.ignored.refresh())
        source = InventorySource(
            syncer.inventory, syncer.run_in_thread, SyncGate(), syncer.context.clock.now, term.layout.wants
        )
        target = EtcdTarget(term.fenced, term.layout, source.bound)
        found = Differences(most)
        after: bytes | None = None
        try:
            while True:
                present, upto = await target.read(after)
                wanted = await source.read(after, upto)
                for change in diff(wanted, present, term.layout.same):
                    if scope.has(change, term.layout):
                        found.take(change)
                        if change.op is Op.DELETE and change.old and term.layout.kind(change.key) is ENDPOINT:
                            found.network(change.old.value)["delete"] += 1
                for key, owned in present:
                    if term.layout.kind(key) is ENDPOINT:
                        found.network(owned.value)["of"] += 1
                self._compared += max(len(present), len(wanted))
                if upto is None:
                    return found
                after = upto
        finally:
            await source.close()

    async def _look_up_deletes(self, found: Differences) -> None:
        syncer, deletes = self._term.syncer, found.keys[Op.DELETE]
        if deletes:
            found.moved = await self._term.moves.find(deletes)
            found.witnesses = await syncer.run_in_thread(lambda: syncer.inventory.witness(deletes))

    async def _wait_handled(self, keys: list[bytes], *, whole: bool) -> None:
        """Wait until the loop has handled these keys; a change that it holds or fails at is handled, too."""
        reconciler = self._term.reconciler
        if whole:
            passes = reconciler.passes
            reconciler.dirty.mark_all()
            await next_pass(reconciler, passes)
        elif keys:
            reconciler.dirty.mark(keys)
            while any(key in reconciler.dirty for key in keys):  # noqa: ASYNC110
                await asyncio.sleep(_POLL_S)

    def _outcome(self, found: Differences, took: float, *, dry: bool, values: bool) -> dict[str, Any]:
        return {
            "done": True,
            "error": "",
            "dry_run": dry,
            "differed": found.counts.total(),
            **{op: found.counts[op] for op in ("create", "replace", "delete")},
            "groups": found.groups(),
            "ignored": len(self._term.layout.ignored),
            "held": 0 if dry else sum(self._term.reconciler.held().values()),
            "seconds": round(took, 3),
            "networks": {name: dict(counts) for name, counts in sorted(found.networks.items()) if counts["delete"]},
            "objects": [self._object(change, found, values=values) for change in found.shown],
        }

    def _object(self, change: Change[bytes, Entry], found: Differences, *, values: bool) -> dict[str, Any]:
        show, key = self._term.layout.show, change.key
        shown: dict[str, Any] = {"op": change.op.name.lower(), "key": show(key), "group": found.group(change.op, key)}
        if change.op is Op.DELETE and key in found.moved:
            shown["to"] = show(found.moved[key])
        elif change.op is Op.DELETE and (witness := found.witnesses.get(key)) is not None:
            at = "" if witness.at is None else witness.at.isoformat(timespec="seconds")
            shown |= {"who": witness.who, "at": at, "revision": witness.revision}
        if values:
            shown |= {"old": _text(change.old), "new": _text(change.new)}
        return shown


def _text(owned: Owned[Entry] | None) -> str | None:
    return None if owned is None else owned.value.value.decode(errors="backslashreplace")
