"""`holdfast explain` about an object of the inventory: who wanted it and why, whether the store has it, what holds it.

Any server answers; what only the leader's syncer knows (what waits, and for which gate) is there when this one leads.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec

from holdfast.inventory.api import Row
from holdfast.inventory.changes import PastChange
from holdfast.model.base.kind import Kind
from holdfast.model.calico.endpoint import ENDPOINT, EndpointName
from holdfast.model.calico.migration import MIGRATION, Migration
from holdfast.reconcile import Away, Change, Closed, Op, Owned
from holdfast.runtime.control import Declined, Request, Who
from holdfast.server.syncer.keys import RegionKeys
from holdfast.server.syncer.source import NAME
from holdfast.server.syncer.term import Surroundings, SyncerTerm
from holdfast.store.api import Entry, Get, StoreError

LAST = 10


class ExplainCommands:
    """Answers on one server; `reign` is set while it leads."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._layout = RegionKeys(around.region, around.inventory.kinds)
        self.reign: SyncerTerm | None = None

    async def answer(self, request: Request, _who: Who) -> dict[str, Any]:
        kind, name = self._kind(str(request.args.get("kind") or "")), str(request.args.get("name") or "")
        try:
            row = await self._around.aside(partial(self._around.inventory.find, kind, name))
            past = await self._around.aside(partial(self._around.inventory.history, kind, name, LAST))
            keys = _keys(row, past)
            entries = await self._entries(keys)
            goes = await self._goes(kind, name)
            undo = row is not None or await self._comes_back(kind, name, past)
        except (Away, StoreError) as error:
            raise Declined(f"it cannot be told now: {error}") from error
        if not keys:
            raise Declined(f"the inventory knows of no {kind.name} {name}, and of none that it had")
        return {
            "kind": kind.name,
            "name": name,
            "revision": None if row is None else row.revision,
            "goes": goes,
            "undo": undo,
            "changes": [_told(one) for one in past],
            "store": [self._held(key, entries.get(key), row) for key in keys],
            "leads": self.reign is not None,
            "term": self.reign.fence.term if self.reign else None,
            "waits": [
                msgspec.to_builtins(one)
                for key in keys
                if self.reign and (one := self.reign.reconciler.outstanding_for(key))
            ],
            "gates": [_closed(one) for key in keys[:1] for one in self._closed(key, entries.get(key))],
        }

    def _kind(self, word: str) -> Kind[Any, Any]:
        for kind in self._around.inventory.kinds:
            if word in (kind.name, kind.plural):
                return kind
        known = ", ".join(kind.name for kind in self._around.inventory.kinds)
        raise Declined(f"there is no kind {word!r} in the inventory; there are: {known}")

    async def _goes(self, kind: Kind[Any, Any], name: str) -> dict[str, str] | None:
        """From where to where a workload migrates, as the inventory wants it."""
        if kind not in (ENDPOINT, MIGRATION) or MIGRATION not in self._around.inventory.kinds:
            return None
        row = await self._around.aside(partial(self._around.inventory.find, MIGRATION, name))
        found = None if row is None else MIGRATION.decode(row.key, row.doc)
        return {"from": found.source.node, "to": found.target.node} if isinstance(found, Migration) else None

    async def _comes_back(self, kind: Kind[Any, Any], name: str, past: Sequence[PastChange]) -> bool:
        """Whether `undo` would bring back what is gone; a migration that has arrived does not begin again."""
        if kind is not MIGRATION or not past or past[0].old_key is None:
            return True
        row = await self._around.aside(partial(self._around.inventory.find, ENDPOINT, name))
        home = None if row is None else ENDPOINT.parse(row.key, self._around.region)
        return isinstance(home, EndpointName) and home != MIGRATION.parse(past[0].old_key, self._around.region)

    async def _entries(self, keys: Sequence[bytes]) -> dict[bytes, Entry]:
        if not keys:
            return {}
        found = await self._around.store.txn([], [Get(key) for key in keys])
        return {entry.key: entry for result in found.results if not isinstance(result, int) for entry in result}

    def _held(self, key: bytes, entry: Entry | None, row: Row | None) -> dict[str, Any]:
        wanted = Entry(key, row.doc) if row is not None and row.key == key else None
        if entry is None or wanted is None:
            right = entry is None and wanted is None
        else:
            right = self._layout.same(wanted, entry)
        return {
            "key": self._layout.show(key),
            "path": key.decode(errors="backslashreplace"),
            "wanted": wanted is not None,
            "revision": entry.mod_revision if entry else None,
            "version": entry.version if entry else None,
            "right": right,
        }

    def _closed(self, key: bytes, entry: Entry | None) -> list[Closed]:
        """The gates that would hold any change of it now; the brake speaks for itself in what waits."""
        if self.reign is None:
            return []
        now = self._around.clock.now()
        change = Change(Op.DELETE, key, Owned(entry or Entry(key, b""), NAME, 0), None)
        verdicts = (gate.judge(change, {}, 0, now) for gate in self.reign.reconciler.place.gates)
        return [verdict for verdict in verdicts if verdict is not None]


def _keys(row: Row | None, past: Sequence[PastChange]) -> list[bytes]:
    """Where it is and where it was, the present one first."""
    found = [] if row is None else [row.key]
    return list(dict.fromkeys([*found, *(one.old_key for one in past if one.old_key is not None)]))


def _told(past: PastChange) -> dict[str, Any]:
    return {
        "revision": past.revision,
        "did": past.did.value,
        "who": past.who,
        "why": past.why,
        "at": past.at.isoformat(timespec="seconds"),
    }


def _closed(closed: Closed) -> dict[str, str]:
    return {"gate": closed.gate, "reason": closed.sentence, "opens": closed.opens}
