"""Sources: several demands in order of precedence, and what one of them may do to the claims of another.

Decides which source a claim belongs to: the first in the configured order that wants it. Only the owning source may
let a claim go (the sync gate looks at the owner), and while a source has not delivered a complete list, nothing that it
owned is handed to a source of lower precedence either: it only adds and keeps. What the dataplane needs of its own
comes first of all.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from holdfast.agent.claims import Claim, ClaimKey, Owner, Shape
from holdfast.agent.desired.source_claims import SourceClaims
from holdfast.model.base.time import Instant
from holdfast.reconcile import Change, Closed, Op, Owned, Reason, SyncGate

OWN = "agent"
"""The source of what the dataplane needs itself."""


class PrecedenceReason(Reason):
    OWNER_UNSYNCED = "it belongs to a source of higher precedence that has not delivered a complete list yet"


@dataclass
class Sources:
    """`demands` are in order of precedence. A source counts from its first complete list on (`complete`)."""

    host: str
    demands: Mapping[str, SourceClaims] = field(default_factory=dict)
    own: Mapping[ClaimKey, Shape] = field(default_factory=dict)
    complete: set[str] = field(default_factory=set)

    def keys(self) -> set[ClaimKey]:
        """Every claim that is wanted."""
        return set(self.own).union(*(demand for _, demand in self._speaking()))

    def among(self, keys: Collection[ClaimKey]) -> dict[ClaimKey, Owned[Claim]]:
        """Those of these claims that are wanted, in the order given: by whom, and how."""
        speaking = self._speaking()
        return {key: owned for key in keys if (owned := self._wanted(key, speaking)) is not None}

    def disputes(self) -> list[str]:
        """Sentences on claims that several make, and on hosts that are refused."""
        sentences: list[str] = []
        for _, demand in self._speaking():
            sentences += [str(contest) for contest in demand.contests()]
            sentences += demand.refusals()
        return sentences

    def peers(self) -> int:
        return sum(demand.peers() for _, demand in self._speaking())

    def _wanted(self, key: ClaimKey, speaking: Sequence[tuple[str, SourceClaims]]) -> Owned[Claim] | None:
        if key in self.own:
            return Owned(Claim(self.own[key], Owner(self.host)), OWN, 0)
        for name, demand in speaking:
            found = demand.wanted(key)
            if found is not None:
                return Owned(found.claim, name, demand.revision(found.by))
        return None

    def _speaking(self) -> Sequence[tuple[str, SourceClaims]]:
        return [(name, demand) for name, demand in self.demands.items() if name in self.complete]


@dataclass(slots=True)
class PrecedenceGate:
    """The gate that keeps a claim with an owner that cannot speak for itself yet."""

    order: tuple[str, ...]
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
        opens = f"a complete list from {old}, or: holdfast source forget {old} --reason …"
        return Closed("precedence", PrecedenceReason.OWNER_UNSYNCED, synced.since, opens, old)
