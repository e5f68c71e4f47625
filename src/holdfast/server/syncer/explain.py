"""`holdfast explain` of an object of the inventory: who changed it and why, its state in the store, its gates.

Any server answers; only the leader's syncer knows what is outstanding, and which gate holds it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from typing import Any

import msgspec

from holdfast.inventory.api import Row
from holdfast.inventory.changes import PastChange
from holdfast.inventory.kinds import name_of
from holdfast.model.base.bad import Bad
from holdfast.model.base.kind import Kind
from holdfast.model.calico.endpoint import ENDPOINT, EndpointName
from holdfast.model.calico.migration import MIGRATION, Migration
from holdfast.reconcile import Away, Change, Closed, Op, Owned
from holdfast.runtime.control import Declined, Request, Who
from holdfast.server.syncer.keys import GROUP_POLICY, RegionKeys
from holdfast.server.syncer.source import NAME
from holdfast.server.syncer.term import Syncer, SyncerTerm
from holdfast.store.api import Entry, Get, StoreError

LAST = 10


class ExplainCommands:
    """Answers on one server; `term` is its current term if it leads."""

    def __init__(self, syncer: Syncer, term: SyncerTerm | None = None) -> None:
        self._syncer = syncer
        self._inventory = syncer.inventory
        self._layout = RegionKeys(syncer.region, syncer.inventory.kinds)
        self._term = term

    async def answer(self, request: Request, _who: Who) -> dict[str, Any]:
        kind, name = self._kind(str(request.args.get("kind") or "")), str(request.args.get("name") or "")
        try:
            row = await self._syncer.run_in_thread(partial(self._inventory.find, kind, name))
            past = await self._syncer.run_in_thread(partial(self._inventory.history, kind, name, LAST))
            ignored = await self._syncer.run_in_thread(self._inventory.ignored)
            keys = list(dict.fromkeys([*_keys(row, past), *self._other_keys(kind, name, ignored)]))
            entries = await self._entries(keys)
            migration = await self._migration(kind, name)
            undo = self._inventory.is_editable and (row is not None or await self._can_undo(kind, name, past))
        except (Away, StoreError) as error:
            raise Declined(f"no answer now: {error}") from error
        if not keys:
            raise Declined(f"the inventory has no {kind.name} {name}, and had none before")
        return {
            "kind": kind.name,
            "name": name,
            "revision": None if row is None else row.revision,
            "refused": row is not None and row.is_refused,
            "goes": migration,
            "undo": undo,
            "editable": self._inventory.is_editable,
            "changes": [_shown(one) for one in past],
            "store": [self._held(key, entries.get(key), row) | {"ignored": key in ignored} for key in keys],
            "leads": self._term is not None,
            "term": self._term.fence.term if self._term else None,
            "waits": [
                msgspec.to_builtins(one)
                for key in keys
                if self._term and (one := self._term.reconciler.outstanding_for(key))
            ],
            "gates": [_closed(one) for key in keys[:1] for one in self._closed(key, entries.get(key))],
        }

    def _other_keys(self, kind: Kind[Any, Any], name: str, ignored: Collection[bytes]) -> list[bytes]:
        """Keys of objects of that name that the inventory may never have had: outstanding or ignored ones."""
        outstanding = [one.change.key for one in self._term.reconciler.ledger] if self._term else []
        return [key for key in (*outstanding, *ignored) if self._is_named(key, kind, name)]

    def _is_named(self, key: bytes, kind: Kind[Any, Any], name: str) -> bool:
        if not self._layout.has(key) or self._layout.kind(key) is not kind:
            return False
        parsed = kind.parse(key, self._syncer.region)
        return not isinstance(parsed, Bad) and goes_by(parsed, name)

    def _kind(self, name: str) -> Kind[Any, Any]:
        for kind in self._inventory.kinds:
            if name in (kind.name, kind.plural):
                return kind
        known = ", ".join(kind.name for kind in self._inventory.kinds)
        raise Declined(f"there is no kind {name!r} in the inventory; there are: {known}")

    async def _migration(self, kind: Kind[Any, Any], name: str) -> dict[str, str] | None:
        """Source and target host of a workload's live migration, as the inventory wants it."""
        if kind not in (ENDPOINT, MIGRATION) or MIGRATION not in self._inventory.kinds:
            return None
        row = await self._syncer.run_in_thread(partial(self._inventory.find, MIGRATION, name))
        found = None if row is None else MIGRATION.decode(row.key, row.doc)
        return {"from": found.source.node, "to": found.target.node} if isinstance(found, Migration) else None

    async def _can_undo(self, kind: Kind[Any, Any], name: str, past: Sequence[PastChange]) -> bool:
        """True if `undo` would bring back what was deleted; a migration that has arrived does not begin again."""
        if kind is not MIGRATION or not past or past[0].old_key is None:
            return True
        row = await self._syncer.run_in_thread(partial(self._inventory.find, ENDPOINT, name))
        home = None if row is None else ENDPOINT.parse(row.key, self._syncer.region)
        return isinstance(home, EndpointName) and home != MIGRATION.parse(past[0].old_key, self._syncer.region)

    async def _entries(self, keys: Sequence[bytes]) -> dict[bytes, Entry]:
        if not keys:
            return {}
        found = await self._syncer.store.txn([], [Get(key) for key in keys])
        return {entry.key: entry for result in found.results if not isinstance(result, int) for entry in result}

    def _held(self, key: bytes, entry: Entry | None, row: Row | None) -> dict[str, Any]:
        wanted = Entry(key, row.doc) if row is not None and row.key == key else None
        if wanted is not None and row is not None and row.is_refused:
            right = True  # whatever is there stays
        elif entry is None or wanted is None:
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
        """Gates that would hold any change of it now. What witness and brake hold is among the outstanding changes."""
        if self._term is None:
            return []
        now = self._syncer.context.clock.now()
        change = Change(Op.DELETE, key, Owned(entry or Entry(key, b""), NAME, 0), None)
        gates = [gate for gate in self._term.reconciler.place.gates if gate is not self._term.witness]
        verdicts = (gate.judge(change, {}, 0, now) for gate in gates)
        return [verdict for verdict in verdicts if verdict is not None]


def goes_by(parsed: Any, name: str) -> bool:
    """True if an operator means this object: by its name or, in OpenStack, by the id of its port or security group."""
    if isinstance(parsed, EndpointName):
        return name in (name_of(parsed), parsed.endpoint)
    return name in (name_of(parsed), name_of(parsed).removeprefix(GROUP_POLICY))


def _keys(row: Row | None, past: Sequence[PastChange]) -> list[bytes]:
    """Its present and earlier keys, the present one first."""
    found = [] if row is None else [row.key]
    return list(dict.fromkeys([*found, *(one.old_key for one in past if one.old_key is not None)]))


def _shown(past: PastChange) -> dict[str, Any]:
    return {
        "revision": past.revision,
        "did": past.did.value,
        "who": past.who,
        "why": past.why,
        "at": past.at.isoformat(timespec="seconds"),
    }


def _closed(closed: Closed) -> dict[str, str]:
    return {"gate": closed.gate, "reason": closed.sentence, "opens": closed.opens}
