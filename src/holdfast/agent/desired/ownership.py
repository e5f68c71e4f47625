"""Claim ownership: which objects make which claims, and which object owns a key that several claim. Pure.

Nearly every claim is made by one object alone; those are stored without any bookkeeping of claimants.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum

import msgspec

from holdfast.agent.claims import Claim, ClaimKey


class SourcedClaim(msgspec.Struct, frozen=True, gc=False):
    """Claim with the store key (`path`) of the object that makes it."""

    claim: Claim
    path: bytes


class Presence(IntEnum):
    """Strength of the evidence that a workload is at one place, compared across all places where it is recorded."""

    EXPECTED = 0
    """At the target of its migration, while its endpoint at the source still exists."""
    UNCONFIRMED = 1
    """The store has not confirmed yet that this is not the target of a migration in progress."""
    SOURCE_REAPPEARED = 2
    """At the target of its migration; the endpoint at the source was gone once, and exists again."""
    SOURCE_GONE = 3
    """At the target of its migration, and the endpoint at the source is gone."""
    UNCONFIRMED_HOLDER = 4
    """Unconfirmed, but it owns the key already: no claimant with better evidence had claimed it."""
    SETTLED = 5


MIGRATING = (Presence.EXPECTED, Presence.SOURCE_REAPPEARED, Presence.SOURCE_GONE)


class Claimant(msgspec.Struct, frozen=True):
    """One of several objects that claim a key."""

    wanted: SourcedClaim
    identity: Hashable
    """Stays the same wherever the workload is."""
    presence: Presence
    revision: int
    arrives_here: bool = False
    """It could receive packets on this host now."""

    @property
    def is_migrating(self) -> bool:
        return self.presence in MIGRATING


@dataclass(frozen=True, slots=True)
class ClaimConflict:
    """Several live objects claim one key; all but the winner lose."""

    key: ClaimKey
    winner: Claimant
    losers: tuple[Claimant, ...]

    def __str__(self) -> str:
        owner, *others = (_describe(one.wanted.claim) for one in (self.winner, *self.losers))
        return f"{self.key} is claimed by {owner} and also by {' and '.join(others)}; the newest object wins"

    def reportable(self) -> ClaimConflict | None:
        """Return the part worth reporting; a migrating workload claims its addresses twice, as it should."""
        losers = tuple(loser for loser in self.losers if not self._is_expected(loser))
        return ClaimConflict(self.key, self.winner, losers) if losers else None

    def _is_expected(self, loser: Claimant) -> bool:
        if loser.identity != self.winner.identity:
            return loser.presence is Presence.EXPECTED
        return loser.is_migrating or self.winner.is_migrating


def resolve(key: ClaimKey, claimants: Iterable[Claimant]) -> ClaimConflict:
    """Choose the owner of a key, on every host alike: each workload counts at its surest place, and the newest workload
    wins. Only then does the local host matter: a workload that is arriving here and already has its interface gets the
    key here."""
    surest = sorted(claimants, key=lambda one: (one.presence, one.revision, one.wanted.path), reverse=True)
    surest_of: dict[Hashable, Claimant] = {}
    for one in surest:
        surest_of.setdefault(one.identity, one)
    ranked = sorted(surest, key=lambda one: _rank(surest_of[one.identity]), reverse=True)
    owner = ranked[0].identity
    winner = next((one for one in ranked if one.arrives_here and one.identity == owner), ranked[0])
    return ClaimConflict(key, winner, tuple(one for one in ranked if one is not winner))


def _rank(claimant: Claimant) -> tuple[bool, int, bytes]:
    return (
        claimant.presence not in (Presence.EXPECTED, Presence.SOURCE_REAPPEARED),
        claimant.revision,
        claimant.wanted.path,
    )


class ClaimOwners:
    def __init__(self) -> None:
        self.by_path: dict[bytes, tuple[ClaimKey, ...]] = {}
        """Keys claimed by each object that claims any."""
        self.sole: dict[ClaimKey, SourcedClaim] = {}
        """Keys claimed by one object."""
        self.shared: dict[ClaimKey, dict[bytes, Claim]] = {}
        """Keys claimed by several objects."""

    def __len__(self) -> int:
        return len(self.sole) + len(self.shared)

    def __iter__(self) -> Iterator[ClaimKey]:
        yield from self.sole
        yield from self.shared

    def claimants(self, key: ClaimKey) -> list[SourcedClaim]:
        """Return the claims on a shared key."""
        return [SourcedClaim(claim, path) for path, claim in self.shared[key].items()]

    def set_claims(self, path: bytes, claims: Iterable[tuple[ClaimKey, Claim]]) -> set[ClaimKey]:
        """Make these the only claims of that object; return every key that may have changed."""
        after = dict(claims)
        before = self.by_path.pop(path, ())
        if after:
            self.by_path[path] = tuple(after)
        for key in before:
            self._withdraw(key, path)
        for key, claim in after.items():
            self._add(key, path, claim)
        return {*before, *after}

    def _withdraw(self, key: ClaimKey, path: bytes) -> None:
        # protection: N8
        claimants = self.shared.get(key)
        if claimants is None:
            del self.sole[key]
            return
        del claimants[path]
        if len(claimants) == 1:
            del self.shared[key]
            [(last, claim)] = claimants.items()
            self.sole[key] = SourcedClaim(claim, last)

    def _add(self, key: ClaimKey, path: bytes, claim: Claim) -> None:
        if key in self.shared:
            self.shared[key][path] = claim
        elif (sole := self.sole.pop(key, None)) is not None:
            self.shared[key] = {sole.path: sole.claim, path: claim}
        else:
            self.sole[key] = SourcedClaim(claim, path)


def _describe(claim: Claim) -> str:
    owner = claim.owner
    return f"endpoint {owner.endpoint} on {owner.host}" if owner.endpoint else f"host {owner.host}"
