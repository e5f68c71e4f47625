"""Claim ownership: which objects make which claims, and which object owns a key that several claim. Pure.

The object that has existed longest keeps a claim, so that editing a label moves nothing (N26). In a store that was
restored from a backup the object written last has it, because the other one may be gone in truth.
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
    SOURCE_GONE = 1
    """At the target of its migration, and the endpoint at the source is gone."""
    SETTLED = 2


class Seniority(msgspec.Struct, frozen=True, gc=False):
    """Revisions by which one of several claimants keeps a key."""

    created: int
    written: int

    def rank(self, *, restored: bool) -> int:
        """Return the rank of the object among those of one source; the highest has the claim."""
        return self.written if restored else -self.created  # protection: N26


class Claimant(msgspec.Struct, frozen=True):
    """One of several objects that claim a key."""

    wanted: SourcedClaim
    identity: Hashable
    """Stays the same wherever the workload is."""
    presence: Presence
    rank: int
    """Rank of its object, see `Seniority`."""
    is_here: bool = False
    """It could receive packets on this host now."""

    @property
    def is_migrating(self) -> bool:
        return self.presence is not Presence.SETTLED


@dataclass(frozen=True, slots=True)
class ClaimConflict:
    """Several live objects claim one key; all but the winner lose."""

    key: ClaimKey
    winner: Claimant
    losers: tuple[Claimant, ...]
    restored: bool = False

    def __str__(self) -> str:
        owner, *others = (_describe(one.wanted.claim) for one in (self.winner, *self.losers))
        rule = (
            "the newest object wins, because the store was restored" if self.restored else "the oldest object keeps it"
        )
        return f"{self.key} is claimed by {owner} and also by {' and '.join(others)}; {rule}"

    def reportable(self) -> ClaimConflict | None:
        """Return the part worth reporting; a migrating workload claims its addresses twice, as it should."""
        losers = tuple(loser for loser in self.losers if not self._is_expected(loser))
        return ClaimConflict(self.key, self.winner, losers, self.restored) if losers else None

    def _is_expected(self, loser: Claimant) -> bool:
        if loser.identity != self.winner.identity:
            return loser.presence is Presence.EXPECTED
        return loser.is_migrating or self.winner.is_migrating


def resolve(key: ClaimKey, claimants: Iterable[Claimant], *, restored: bool = False) -> ClaimConflict:
    """Choose the owner of a key, on every host alike: each workload counts at its surest place, and the workload of the
    highest rank wins. Only then does the local host matter: a workload that is recorded here, beside another place, and
    has its interface here, gets the key here. So a route neither leaves the target of a migration nor the source while
    it is not known how the migration ended: a driver may delete it before the endpoint that is no longer needed."""
    surest = sorted(claimants, key=lambda one: (one.presence, one.rank, one.wanted.path), reverse=True)
    surest_of: dict[Hashable, Claimant] = {}
    for one in surest:
        surest_of.setdefault(one.identity, one)
    ranked = sorted(surest, key=lambda one: _rank(surest_of[one.identity]), reverse=True)
    owner = ranked[0].identity
    winner = local_place([one for one in ranked if one.identity == owner]) or ranked[0]
    return ClaimConflict(key, winner, tuple(one for one in ranked if one is not winner), restored)


def local_place(places: Iterable[Claimant]) -> Claimant | None:  # protection: N8
    """Return the place of a workload on this host, if it could receive packets there."""
    return next((one for one in places if one.is_here), None)


def _rank(claimant: Claimant) -> tuple[bool, int, bytes]:
    return claimant.presence is not Presence.EXPECTED, claimant.rank, claimant.wanted.path


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
