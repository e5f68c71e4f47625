"""`holdfast resync`: an operator asks for a comparison now, and hears what it came to.

With `dry_run` nothing is written. With a kind, or a kind and a name, only those objects are compared. The comparison
itself is the loop's own; here it is counted what differed, and waited for until the loop is through with it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from holdfast.inventory.claims import name_of
from holdfast.model.bad import Bad
from holdfast.reconcile import Away, Change, Sync, diff
from holdfast.runtime.control import Declined, Request, Who
from holdfast.runtime.reconciler import Reconciler
from holdfast.server.syncer import Reign
from holdfast.server.syncer_source import InventorySource
from holdfast.server.syncer_target import EtcdTarget
from holdfast.store.api import Entry

NAMED = 20
_LOOK_S = 0.05


async def next_pass(reconciler: Reconciler[bytes, Entry], passes: int) -> None:
    """Until the loop has finished more passes than that."""
    while reconciler.passes <= passes:  # noqa: ASYNC110 -- the loop tells nobody when a pass ends
        await asyncio.sleep(_LOOK_S)


class Resync:
    """Answers for one reign: starts a resync, and tells how far it is to whoever asks for `progress`."""

    def __init__(self, reign: Reign) -> None:
        self._reign = reign
        self._told: dict[str, Any] = {}
        self._looked = 0

    async def answer(self, request: Request, _who: Who) -> dict[str, Any]:
        """At once: a resync takes longer than anybody waits for an answer."""
        if request.args.get("progress"):
            if not self._told:
                raise Declined("nobody asked for a resync since this server leads")
            return {**self._told, "looked": self._looked}
        if self._told and not self._told["done"]:
            raise Declined("a resync is under way: wait until it is done")
        kind, name = str(request.args.get("kind") or ""), str(request.args.get("name") or "")
        self._refuse_unknown(kind, name)
        self._told, self._looked = {"done": False}, 0
        self._reign.start(self._resync(kind, name, dry=bool(request.args.get("dry_run"))))
        return {**self._told, "looked": 0}

    async def _resync(self, kind: str, name: str, *, dry: bool) -> None:
        began = self._reign.around.clock.now()
        try:
            found = await self._differences(kind, name)
            if not dry:
                await self._done([change.key for change in found], whole=not kind)
        except Away as away:
            self._told = {"done": True, "error": f"nothing was compared: {away}"}
            return
        took = (self._reign.around.clock.now() - began).total_seconds()
        self._told = self._outcome(found, took, dry=dry)

    def _refuse_unknown(self, kind: str, name: str) -> None:
        known = [one.plural for one in self._reign.around.inventory.kinds]
        if name and not kind:
            raise Declined("--name needs --kind beside it")
        if kind and kind not in known:
            raise Declined(f"there is no kind {kind!r} in the inventory; there are: {', '.join(known)}")

    async def _differences(self, kind: str, name: str) -> list[Change[bytes, Entry]]:
        """What is not as wanted, from a snapshot of its own: the loop's pass is not disturbed."""
        reign = self._reign
        source = InventorySource(reign.around.inventory, reign.around.aside, Sync(), reign.around.clock.now)
        target = EtcdTarget(reign.fenced, reign.layout, source.bound)
        found: list[Change[bytes, Entry]] = []
        after: bytes | None = None
        try:
            while True:
                present, upto = await target.read(after)
                wanted = await source.read(after, upto)
                found += [
                    one for one in diff(wanted, present, reign.layout.same) if self._is_meant(one.key, kind, name)
                ]
                if upto is None:
                    return found
                after = upto
        finally:
            await source.close()

    def _is_meant(self, key: bytes, kind: str, name: str) -> bool:
        layout = self._reign.layout
        if kind and layout.plural(key) != kind:
            return False
        parsed = layout.kind(key).parse(key, layout.region)
        return not name or (not isinstance(parsed, Bad) and name_of(layout.kind(key), parsed) == name)

    async def _done(self, keys: list[bytes], *, whole: bool) -> None:
        """Until the loop has looked at these; what it holds or fails at it is through with, too."""
        reconciler = self._reign.reconciler
        if whole:
            passes = reconciler.passes
            reconciler.dirty.mark_all()
            await next_pass(reconciler, passes)
        elif keys:
            reconciler.dirty.mark(keys)
            while any(key in reconciler.dirty for key in keys):  # noqa: ASYNC110
                await asyncio.sleep(_LOOK_S)

    def _outcome(self, found: list[Change[bytes, Entry]], took: float, *, dry: bool) -> dict[str, Any]:
        counts = Counter(change.op.name.lower() for change in found)
        return {
            "done": True,
            "error": "",
            "dry_run": dry,
            "differed": len(found),
            **{op: counts[op] for op in ("create", "replace", "delete")},
            "held": 0 if dry else sum(self._reign.reconciler.held().values()),
            "seconds": round(took, 3),
            "objects": [
                {"op": change.op.name.lower(), "key": self._reign.layout.show(change.key)} for change in found[:NAMED]
            ],
        }
