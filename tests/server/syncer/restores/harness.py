"""Helpers of the restore tests: backups of an inventory, leaders that judge and reconcile, adoptions.

The store is a fake with etcd's semantics, the inventory a SQLite file that is copied and put back.
"""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

from holdfast.runtime.control import Request, Who
from holdfast.server.syncer.adopt import AdoptCommands
from holdfast.server.syncer.term import SyncerTerm
from tests.inventory.harness import endpoint, host
from tests.server.harness import SyncerHarness

OPERATOR = Who(0, 1, "ops")


class Backup:
    """A copy of the inventory's file."""

    def __init__(self, here: SyncerHarness, folder: Path) -> None:
        self._live, self._copy = str(here.engine.url.database), str(folder / "backup.db")
        self._copied(self._live, self._copy)

    def restore(self) -> None:
        self._copied(self._copy, self._live)

    def _copied(self, from_file: str, to_file: str) -> None:
        with sqlite3.connect(from_file) as source, sqlite3.connect(to_file) as target:
            source.backup(target)


async def adopted(term: SyncerTerm, **args: Any) -> dict[str, Any]:
    """Has the leader carry out an adoption while its loop turns; returns the result."""
    commands = AdoptCommands(term)
    await commands.answer(Request("adopt", {"reason": "drill", **args}), OPERATOR)
    for _ in range(500):
        if term.syncer.adoption["done"]:
            break
        await term.reconciler.turn()
        await asyncio.sleep(0.01)
    return term.syncer.adoption


async def after(here: SyncerHarness, numbers: range) -> int:
    """A leader with these endpoints; returns the revision of a backup taken then."""
    here.editor.change([host(1), host(2), *map(endpoint, numbers)], who="alice")
    await here.settled()
    return here.fake.revision


async def turned(here: SyncerHarness, *, turns: int = 3) -> SyncerTerm:
    """A new leader that has judged and reconciled a few times."""
    term = await here.lead()
    for _ in range(turns):
        await term.check_identity()
        await term.reconciler.turn()
    return term


def live(here: SyncerHarness) -> set[bytes]:
    return {key for key in here.wanted() if key.startswith(b"/calico/")}
