"""Precedence gate: keeps a claim with its source while that source has not delivered a complete list.

Without it, a source of lower precedence could take over a claim from one that has not delivered its list yet.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from holdfast.agent.claims import Claim, ClaimKey
from holdfast.model.base.region import shown_source
from holdfast.model.base.time import Instant
from holdfast.reconcile import Change, Closed, Op, Reason, SyncGate


class PrecedenceReason(Reason):
    OWNER_UNSYNCED = "it belongs to a source of higher precedence that has not delivered a complete list yet"


@dataclass(slots=True)
class PrecedenceGate:
    order: tuple[str, ...]
    """Sources, highest precedence first."""
    sync: SyncGate

    def judge(self, change: Change[ClaimKey, Claim], tally: Mapping[Op, int], have: int, now: Instant) -> Closed | None:
        if change.op is not Op.REPLACE or change.old is None or change.new is None:
            return None
        old, new = change.old.source, change.new.source
        if old == new or new not in self.order or old not in self.order[: self.order.index(new)]:
            return None
        synced = self.sync.sources.get(old)
        if synced is None or synced.revision is not None:
            return None
        opens = synced.opened_by(old, now)
        return Closed("precedence", PrecedenceReason.OWNER_UNSYNCED, synced.since, opens, shown_source(old))
