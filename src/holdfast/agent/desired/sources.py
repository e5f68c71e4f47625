"""Sources: the claims of several sources in order of precedence. Pure.

A claim belongs to the first source in the configured order that wants it. Only the owning source may delete a claim
(the sync gate checks the owner), and while a source has not delivered a complete list, nothing it owned moves to a
source of lower precedence: that one only adds and keeps. Objects that the dataplane needs itself come first.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from holdfast.agent.claims import Claim, ClaimKey, Owner, Shape
from holdfast.agent.desired.source_claims import SourceClaims
from holdfast.reconcile import Owned

OWN = "agent"
"""Source of the objects that the dataplane needs itself."""


@dataclass
class Sources:
    """`claims` is in order of precedence. A source counts from its first complete list on (`complete`)."""

    host: str
    claims: Mapping[str, SourceClaims] = field(default_factory=dict)
    own: Mapping[ClaimKey, Shape] = field(default_factory=dict)
    complete: set[str] = field(default_factory=set)

    def keys(self) -> set[ClaimKey]:
        """Every claim that is wanted."""
        return set(self.own).union(*(claims for _, claims in self._synced()))

    def among(self, keys: Collection[ClaimKey]) -> dict[ClaimKey, Owned[Claim]]:
        """Return those of these claims that are wanted, in the order given, with source and value."""
        synced = self._synced()
        return {key: owned for key in keys if (owned := self._wanted(key, synced)) is not None}

    def conflicts(self) -> list[str]:
        """Sentences about keys that several objects claim, and about hosts that are refused."""
        sentences: list[str] = []
        for _, claims in self._synced():
            sentences += map(str, claims.conflicts())
            sentences += claims.refusals()
        return sentences

    def peers(self) -> int:
        return sum(claims.peers() for _, claims in self._synced())

    def host_revision(self, source: str, host: str) -> int:
        """Return the revision of that host's Node in a source; 0 if it has none."""
        claims = self.claims.get(source)
        return 0 if claims is None else claims.host_revision(host)

    def _wanted(self, key: ClaimKey, synced: Sequence[tuple[str, SourceClaims]]) -> Owned[Claim] | None:
        if key in self.own:
            return Owned(Claim(self.own[key], Owner(self.host)), OWN, 0)
        for name, claims in synced:
            found = claims.wanted(key)
            if found is not None:
                return Owned(found.claim, name, claims.revision(found.path))
        return None

    def _synced(self) -> Sequence[tuple[str, SourceClaims]]:
        return [(name, claims) for name, claims in self.claims.items() if name in self.complete]
