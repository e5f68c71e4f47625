"""Planted bugs of the agent: each removes one protection, by one small patch. The seeds must find every one.

with BUGS["no sync gate"]():
    first_failure(range(300), agent_scenario)
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final
from unittest.mock import patch

from holdfast.agent.claims import Claim, ClaimKey, Shape
from holdfast.agent.desired import ownership, watcher
from holdfast.agent.desired.ownership import ClaimOwners, Seniority
from holdfast.agent.desired.source_claims import SourceClaims
from holdfast.agent.desired.watcher import Journaled, SourceWatcher
from holdfast.agent.gates import readiness
from holdfast.agent.gates.dependents import DependentsGate
from holdfast.agent.gates.precedence import PrecedenceGate
from holdfast.agent.journal.codec import ClaimEntry, Entry
from holdfast.agent.journal.frames import EntryKind
from holdfast.agent.target import JournaledTarget
from holdfast.reconcile import Owned, SyncGate
from holdfast.runtime.cooperative import at_once
from holdfast.runtime.reconciler import Reconciler
from tests.agent import without_protection

Bug = Callable[[], contextlib.AbstractContextManager[object]]


def _replaced(owner: Any, name: str, by: Any) -> Bug:
    return lambda: patch.object(owner, name, by)


def _open(*_judged: object) -> None:
    return None


def _without_additions(self: JournaledTarget, entries: Iterable[Entry]) -> None:
    self.journal.write([entry for entry in entries if entry.op is not EntryKind.ADD])


def _forgets_intents(self: JournaledTarget, entries: Iterable[Entry]) -> None:
    """Take a delete off the journal when it begins, not when it is over."""
    self.journal.write(
        [ClaimEntry(EntryKind.DONE, entry.key) if entry.op is EntryKind.DELETING else entry for entry in entries]
    )


async def _half_a_list(self: SourceWatcher, _remembered: Journaled = tuple) -> set[ClaimKey]:
    if not self.objects.synced:
        return set()
    taken = self._take_state()
    touched = at_once(self._apply_changes(taken))
    self._update_synced(taken)
    return touched


def _as_the_kernel_says(self: JournaledTarget, key: ClaimKey, shapes: Mapping[ClaimKey, Shape]) -> Owned[Claim] | None:
    """Take what the kernel has as done, whatever other handlers answered."""
    remembered, shape = self.load(key), shapes.get(key)
    if remembered is None or shape is None:
        return _found(self, key, shapes)
    return Owned(Claim(shape, remembered.value.owner), remembered.source, remembered.revision)


_found = JournaledTarget._merged


async def _only_the_kernel(self: JournaledTarget, after: ClaimKey | None) -> Any:
    """Write the journal and never read it."""
    shapes = await self.dataplane.read()
    found = {key: owned for key in shapes if (owned := self._merged(key, shapes)) is not None}
    at_once(self.present.replace_all(found))
    return [(key, found[key]) for key in sorted(found) if after is None or after < key], None


async def _get_from_the_kernel(self: JournaledTarget, keys: Collection[ClaimKey]) -> Mapping[ClaimKey, Owned[Claim]]:
    shapes = await self.dataplane.read(keys)
    return {key: owned for key in keys if key in shapes and (owned := self._merged(key, shapes)) is not None}


@contextlib.contextmanager
def _kernel_alone() -> Any:
    with (
        patch.object(JournaledTarget, "read", _only_the_kernel),
        patch.object(JournaledTarget, "get", _get_from_the_kernel),
    ):
        yield


BUGS: Final[Mapping[str, Bug]] = {
    "no sync gate": _replaced(SyncGate, "judge", _open),
    "liveness is looked at once for the batch": _replaced(Reconciler, "_still_wanted", without_protection.as_planned),
    "a failed delete is tried once": lambda: patch(
        "holdfast.agent.target.is_acknowledged", without_protection.tried_once
    ),
    "additions are not journalled": _replaced(JournaledTarget, "_journal", _without_additions),
    "a deletion is forgotten when it is begun": _replaced(JournaledTarget, "_journal", _forgets_intents),
    "a claim goes with its first owner": _replaced(ClaimOwners, "_withdraw", without_protection.with_all_its_claims),
    "a nexthop goes before its routes": _replaced(DependentsGate, "judge", _open),
    "half a list is taken over": _replaced(SourceWatcher, "catch_up", _half_a_list),
    "a value that cannot be read is absent": _replaced(watcher, "unreadable_keys", lambda _mirror: []),
    "a handler that is not ready is told all the same": _replaced(readiness, "unready", _open),
    "what the kernel has, all have": _replaced(JournaledTarget, "_merged", _as_the_kernel_says),
    "only the kernel is asked what is there": _kernel_alone,
    "a workload seen on a second host has moved": _replaced(Seniority, "rank", without_protection.newest_wins),
    "a workload is where its migration says": _replaced(
        ownership, "local_place", without_protection.local_while_it_migrates
    ),
    "nothing is recalled of who has arrived": _replaced(SourceClaims, "restore", without_protection.nothing_restored),
    "a lower source takes over what an unheard one owns": _replaced(PrecedenceGate, "judge", _open),
}
