"""`holdfast resync`: compares inventory and store now, on an operator's request, and reports the differences.

With `dry_run` nothing is written. With a kind, a kind and a name, a network, or keys, only those objects count. The
loop itself repairs; this module counts what differs, and waits until the loop has handled it.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from holdfast.inventory.kinds import name_of
from holdfast.model.base.bad import Bad
from holdfast.reconcile import Away, Change, Owned
from holdfast.runtime.control import Declined, Request, Who
from holdfast.runtime.reconciler import Reconciler
from holdfast.server.syncer.differences import Differences, find_differences, network_in
from holdfast.server.syncer.keys import RegionKeys
from holdfast.server.syncer.term import SyncerTerm
from holdfast.store.api import Entry

NAMED = 20
VALUED = 200
"""Most differences that are named, and most that are shown with their values."""
_POLL_S = 0.05


async def next_pass(reconciler: Reconciler[bytes, Entry], passes: int) -> None:
    """Wait until the loop has finished more passes than that."""
    while reconciler.passes <= passes:  # noqa: ASYNC110 -- the loop has no event for the end of a pass
        await asyncio.sleep(_POLL_S)


@dataclass(frozen=True, slots=True)
class ResyncScope:
    """Objects that are compared: all, those of a kind, one of a kind, those on a network, or those at some keys."""

    kind: str = ""
    name: str = ""
    network: str = ""
    keys: frozenset[bytes] = frozenset()

    @property
    def is_whole(self) -> bool:
        return not (self.kind or self.network or self.keys)

    def has(self, change: Change[bytes, Entry], layout: RegionKeys) -> bool:
        if self.keys and change.key not in self.keys:
            return False
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
        keys = frozenset(str(key).encode() for key in args.get("keys") or ())
        kind, name, network = (str(args.get(word) or "") for word in ("kind", "name", "network"))
        scope = ResyncScope(kind, name, network, keys)
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
        return await find_differences(
            syncer.inventory,
            syncer.run_in_thread,
            syncer.store,
            term.layout,
            partial(scope.has, layout=term.layout),
            syncer.context.clock.now,
            most=most,
            known=term.fence.term,
            compared=self._note_compared,
        )

    def _note_compared(self, count: int) -> None:
        self._compared += count

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
            "held": 0 if dry else sum(self._term.reconciler.held().values()),
            "seconds": round(took, 3),
            **found.report(self._term.layout, values=values),
        }
