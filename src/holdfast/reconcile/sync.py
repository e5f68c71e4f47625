"""Sync gate: holds the deletes of a source until it has delivered one complete list at a known revision.

Absence needs proof. A timeout never counts as completeness, and an unreadable value is present, not absent: while a
source has a value that was never readable, nothing that could be its state is deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.model.base.region import shown_source
from holdfast.model.base.time import NEVER, Duration, Instant
from holdfast.reconcile.change import Change, K, Op, V
from holdfast.reconcile.gate import Closed, Reason

_STARTS_WITHIN = Duration(minutes=1)
"""Time that a source may take for its first list."""


class SyncReason(Reason):
    UNSYNCED = "its source has not delivered a complete list yet"
    SOURCES_UNSYNCED = "it has no known owner, and not every source has delivered a complete list yet"
    UNREADABLE = "its source has an unreadable value, and this object could belong to it"


@dataclass(frozen=True, slots=True)
class Synced:
    """Sync state of one source. `revision` is None until its first complete list; `since` is when that last changed.

    `unreadable` are the keys whose value has never been readable (C39: an unreadable value is present).
    """

    since: Instant
    revision: int | None = None
    unreadable: tuple[str, ...] = ()

    def opened_by(self, name: str, now: Instant) -> str:
        """Return what opens a gate that waits for this source. To give it up is no advice while it may be starting:
        what only it wanted would be deleted."""
        if now - self.since < _STARTS_WITHIN:
            return f"a complete list from {shown_source(name)}"
        return f"a complete list from {shown_source(name)}, or: holdfast source forget {name} --reason …"


def any_of_them(_change: Change[Any, Any], _source: str, unreadable: Sequence[str]) -> Sequence[str]:
    """Every object of a source could be the state of an unreadable value."""
    return unreadable


@dataclass(slots=True)
class SyncGate:
    """Gate over all configured sources. An object without a source is known only from its tag in the target."""

    sources: dict[str, Synced] = field(default_factory=dict)
    blamed: Callable[[Change[Any, Any], str, Sequence[str]], Sequence[str]] = any_of_them
    """Returns those of a source's unreadable keys whose state a change could delete."""

    def note_source(self, name: str, synced: Synced) -> None:
        self.sources[name] = synced

    def forget(self, name: str) -> None:
        """Count a source as complete and empty, because an operator said that it will not come back."""
        self.sources.pop(name, None)

    def judge(self, change: Change[K, V], tally: Mapping[Op, int], have: int, now: Instant) -> Closed | None:
        if change.op is not Op.DELETE or change.old is None:
            return None
        owner = change.old.source
        for name in [owner] if owner in self.sources else [] if owner else sorted(self.sources):
            synced = self.sources[name]
            if synced.revision is None:
                reason = SyncReason.UNSYNCED if owner else SyncReason.SOURCES_UNSYNCED
                opens = synced.opened_by(name, now)
                return Closed("sync", reason, synced.since or NEVER, opens, shown_source(name))
            blamed = self.blamed(change, name, synced.unreadable) if synced.unreadable else ()
            if blamed:
                named = blamed[0]
                more = f" and {len(blamed) - 1} more" if len(blamed) > 1 else ""
                opens = f"fix or delete {named}{more}"
                return Closed(
                    "sync", SyncReason.UNREADABLE, synced.since, opens, f"{shown_source(name)}: {named}{more}"
                )
        return None
