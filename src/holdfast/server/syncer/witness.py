"""Witness gate: an object leaves the store only if a recorded change of the inventory says so (C40, C41).

An object that the inventory does not want was not necessarily deleted there. A database that was restored from an
older dump, rows that raw SQL deleted, and objects that another controller wrote to the store all look the same to a
comparison. So a delete passes only if its individual is wanted under another key now, or if the newest recorded change
that names the key deleted or moved it, or if an operator allowed exactly this key at this revision of the store.
Anything else is held as unwitnessed, however old it is.

The gate is pure: witnesses are fetched before each plan, with the batch. A key that was not looked up is held.

Keys that an operator ignores are outside the comparison: neither deleted, nor held, nor counted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import structlog

from holdfast.inventory.api import Inventory, Witness
from holdfast.inventory.sql.thread import RunInThread
from holdfast.model.base.time import Instant
from holdfast.reconcile import Change, Closed, Op, Outstanding, Reason
from holdfast.server.syncer.keys import RegionKeys
from holdfast.store.api import Entry

log = structlog.get_logger(__name__)

GATE = "witness"
ALLOW = f"holdfast gate allow syncer/{GATE} --once --reason …"
OPENS = f"{ALLOW} (deletes it), holdfast import (keeps it), or holdfast ignore KEY --reason … (leaves it alone)"
_SPARE = 1_000
"""Answers that are kept about keys that are no longer outstanding, before they are dropped."""


class WitnessReason(Reason):
    UNWITNESSED = "no recorded change of the inventory deleted it"


class WitnessGate:
    """Holds deletes without a witness. `wanted_at` returns the key under which the individual of a key is wanted now,
    or None."""

    def __init__(self, wanted_at: Callable[[bytes], bytes | None]) -> None:
        self._wanted_at = wanted_at
        self._witnesses: dict[bytes, Witness] = {}
        self._unwitnessed: dict[bytes, Instant] = {}
        self._allowed: dict[bytes, int] = {}
        self._kept = 0

    def note(self, asked: Iterable[bytes], found: Mapping[bytes, Witness], now: Instant) -> None:
        """Take the answers about these keys; they replace earlier ones."""
        for key in asked:
            self._witnesses.pop(key, None)
            if key in found:
                self._unwitnessed.pop(key, None)
            else:
                self._unwitnessed.setdefault(key, now)
        self._witnesses |= found

    def witness_of(self, key: bytes) -> Witness | None:
        """The witness of a key that was looked up."""
        return self._witnesses.get(key)

    def keep(self, is_open: Callable[[bytes], bool]) -> None:
        """Drop the answers about keys that are not outstanding, once there are many."""
        if len(self._witnesses) + len(self._unwitnessed) <= 2 * self._kept + _SPARE:
            return
        self._witnesses = {key: witness for key, witness in self._witnesses.items() if is_open(key)}
        self._unwitnessed = {key: since for key, since in self._unwitnessed.items() if is_open(key)}
        self._kept = len(self._witnesses) + len(self._unwitnessed)

    def has_moved(self, key: bytes) -> bool:
        """True if the individual of this key is wanted under another key now."""
        return self._wanted_at(key) not in (None, key)

    def judge(  # protection: C40, C41
        self, change: Change[bytes, Entry], tally: Mapping[Op, int], have: int, now: Instant
    ) -> Closed | None:
        if change.op is not Op.DELETE or change.key in self._witnesses or self.has_moved(change.key):
            return None
        if change.old is not None and self._allowed.get(change.key) == change.old.revision:
            return None
        return Closed(GATE, WitnessReason.UNWITNESSED, self._unwitnessed.get(change.key, now), OPENS)

    def allow(self, changes: Iterable[Change[bytes, Entry]]) -> None:
        """Let exactly these deletes pass: a key that is written again in the meantime is held again."""
        self._allowed |= {change.key: change.old.revision for change in changes if change.old is not None}

    def revoke(self, is_open: Callable[[bytes], bool]) -> int:
        """Take back what was allowed. Returns how many of these deletes are still outstanding."""
        unused = sum(map(is_open, self._allowed))
        self._allowed.clear()
        return unused


def unwitnessed(ledger: Iterable[Outstanding[bytes, Entry]]) -> list[Change[bytes, Entry]]:
    """Return the deletes that this gate holds."""
    return [one.change for one in ledger if one.closed is not None and one.closed.gate == GATE]


def seal(changes: Iterable[Change[bytes, Entry]]) -> str:
    """Return a digest of these keys and their revisions in the store: an operator allows what was shown, and nothing
    that was written since."""
    exact = sorted((change.key, change.old.revision) for change in changes if change.old is not None)
    return hashlib.sha256(repr(exact).encode()).hexdigest()[:16]


class WitnessLookup:
    """Fetches the witnesses of a batch of changes, before it is planned."""

    def __init__(
        self, gate: WitnessGate, inventory: Inventory, run_in_thread: RunInThread, now: Callable[[], Instant]
    ) -> None:
        self._gate = gate
        self._inventory = inventory
        self._run_in_thread = run_in_thread
        self._now = now

    async def look_up(self, changes: Sequence[Change[bytes, Entry]], is_open: Callable[[bytes], bool]) -> None:
        deletes = (change.key for change in changes if change.op is Op.DELETE)
        keys = [key for key in deletes if not self._gate.has_moved(key)]
        if keys:
            self._gate.note(keys, await self._run_in_thread(lambda: self._inventory.witness(keys)), self._now())
            self._gate.keep(is_open)


class IgnoredKeys:
    """Keys of this region that an operator told Holdfast to leave alone, as the layout has them. A key that the
    inventory wants is not ignored: an object was applied there since."""

    def __init__(self, inventory: Inventory, run_in_thread: RunInThread, layout: RegionKeys) -> None:
        self._inventory = inventory
        self._run_in_thread = run_in_thread
        self._layout = layout

    async def refresh(self) -> Collection[bytes]:
        """Read them again. Returns the keys to compare: those that are ignored from now on, or no longer."""
        found = await self._run_in_thread(lambda: read_ignored(self._inventory, self._layout))
        before, self._layout.ignored = self._layout.ignored, found
        changed = before ^ found
        if changed:
            log.info("ignored keys changed", ignored=len(found), added=len(found - before), ended=len(before - found))
        return changed


def read_ignored(inventory: Inventory, layout: RegionKeys) -> frozenset[bytes]:
    """Read the keys of this region that are to be left alone."""
    keys = frozenset(filter(layout.has, inventory.ignored()))
    return keys - {row.key for row in inventory.read_keys(keys)} if keys else keys
