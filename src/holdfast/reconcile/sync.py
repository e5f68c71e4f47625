"""The sync gate: nothing is pruned before its source has delivered one complete list at a known revision.

Absence needs proof. A timeout is never taken for completeness, and a value that cannot be read is present, not absent:
while a source has one that we never understood, nothing that could be its state is removed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from holdfast.model.base.time import NEVER, Instant
from holdfast.reconcile.change import Change, K, Op, V
from holdfast.reconcile.gate import Closed, Reason


class SyncReason(Reason):
    UNSYNCED = "its source has not delivered a complete list yet"
    SOURCES_UNSYNCED = "nobody claims it, and not every source has delivered a complete list yet"
    UNREADABLE = "its source holds a value that cannot be read, and this could be what it stands for"


@dataclass(frozen=True, slots=True)
class Synced:
    """What is known of one source. `revision` is None until a complete list came; `since` is when that last changed.

    `unreadable` are the keys whose value was never understood (C39: bad is present).
    """

    since: Instant
    revision: int | None = None
    unreadable: tuple[str, ...] = ()


@dataclass(slots=True)
class SyncGate:
    """One gate over all configured sources. An object without a source is known only from marks in the target."""

    sources: dict[str, Synced] = field(default_factory=dict)

    def note_source(self, name: str, synced: Synced) -> None:
        self.sources[name] = synced

    def forget(self, name: str) -> None:
        """An operator said that this source will not come back: it counts as complete and empty, behind the brake."""
        self.sources.pop(name, None)

    def judge(self, change: Change[K, V], tally: Mapping[Op, int], have: int, now: Instant) -> Closed | None:
        if change.op is not Op.DELETE or change.old is None:
            return None
        owner = change.old.source
        for name in [owner] if owner in self.sources else [] if owner else sorted(self.sources):
            synced = self.sources[name]
            if synced.revision is None:
                reason = SyncReason.UNSYNCED if owner else SyncReason.SOURCES_UNSYNCED
                opens = f"a complete list from {name}, or: holdfast source forget {name} --reason …"
                return Closed("sync", reason, synced.since or NEVER, opens, name)
            if synced.unreadable:
                named = synced.unreadable[0]
                more = f" and {len(synced.unreadable) - 1} more" if len(synced.unreadable) > 1 else ""
                opens = f"mend or delete {named}{more}"
                return Closed("sync", SyncReason.UNREADABLE, synced.since, opens, f"{name}: {named}{more}")
        return None
