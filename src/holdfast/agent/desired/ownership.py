"""Rivals: which object makes which claims, who else makes the same ones, and who of them wins. Pure.

Nearly every claim is made by one object alone; those are kept in the plainest way there is.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum

import msgspec

from holdfast.agent.claims import Claim, ClaimKey


class SourcedClaim(msgspec.Struct, frozen=True, gc=False):
    """A claim with the store's object that makes it."""

    claim: Claim
    by: bytes


class Presence(IntEnum):
    """How much it counts that a workload is said to be somewhere, among all the places where it is said to be."""

    EXPECTED = 0
    """At the target of its migration, while it stands where it comes from."""
    DOUBTED = 1
    """Nobody has said yet whether it is only on its way there."""
    LEFT = 2
    """At the target of its migration; where it comes from it was gone once, and stands anew."""
    AWAITED = 3
    """At the target of its migration, and it does not stand where it comes from any more."""
    HELD = 4
    """Doubted, but it has this already: nobody who was surer had claimed it."""
    SETTLED = 5


ON_THEIR_WAY = (Presence.EXPECTED, Presence.LEFT, Presence.AWAITED)


class Claimant(msgspec.Struct, frozen=True):
    """One of several who claim a key: as whom, since when, and whether it could take packets on this host now."""

    wanted: SourcedClaim
    who: Hashable
    presence: Presence
    revision: int
    arrives: bool = False

    @property
    def is_on_its_way(self) -> bool:
        return self.presence in ON_THEIR_WAY


@dataclass(frozen=True, slots=True)
class ClaimConflict:
    """Several live objects claim one key; all but the first lose."""

    key: ClaimKey
    winner: Claimant
    losers: tuple[Claimant, ...]

    def __str__(self) -> str:
        others = " and ".join(_who(loser.wanted.claim) for loser in self.losers)
        return f"{self.key} is claimed by {_who(self.winner.wanted.claim)} and also by {others}; the newest object wins"

    def dispute(self) -> ClaimConflict | None:
        """What is worth naming of it: that a workload on its way claims its addresses twice is as it must be."""
        losers = tuple(loser for loser in self.losers if not self._must_be(loser))
        return ClaimConflict(self.key, self.winner, losers) if losers else None

    def _must_be(self, loser: Claimant) -> bool:
        if loser.who != self.winner.who:
            return loser.presence is Presence.EXPECTED
        return loser.is_on_its_way or self.winner.is_on_its_way


def contest(key: ClaimKey, rivals: Iterable[Claimant]) -> ClaimConflict:
    """Whose a key is, everybody decides alike: a workload counts where it is most surely, and of several the newest
    wins. Only then it matters where we are: who arrives here with what he has already gets it here."""
    surest = sorted(rivals, key=lambda one: (one.presence, one.revision, one.wanted.by), reverse=True)
    places: dict[Hashable, Claimant] = {}
    for rival in surest:
        places.setdefault(rival.who, rival)
    ranked = sorted(surest, key=lambda one: _weight(places[one.who]), reverse=True)
    owner = ranked[0].who
    winner = next((one for one in ranked if one.arrives and one.who == owner), ranked[0])
    return ClaimConflict(key, winner, tuple(one for one in ranked if one is not winner))


def _weight(place: Claimant) -> tuple[bool, int, bytes]:
    return place.presence not in (Presence.EXPECTED, Presence.LEFT), place.revision, place.wanted.by


class ClaimOwners:
    def __init__(self) -> None:
        self.made: dict[bytes, tuple[ClaimKey, ...]] = {}
        """Of each object that makes any, what it claims."""
        self.sole: dict[ClaimKey, SourcedClaim] = {}
        """What one object claims alone."""
        self.contested: dict[ClaimKey, dict[bytes, Claim]] = {}
        """What several claim."""

    def __len__(self) -> int:
        return len(self.sole) + len(self.contested)

    def __iter__(self) -> Iterator[ClaimKey]:
        yield from self.sole
        yield from self.contested

    def of(self, key: ClaimKey) -> list[SourcedClaim]:
        """Those who claim a contested key."""
        return [SourcedClaim(claim, by) for by, claim in self.contested[key].items()]

    def make(self, by: bytes, claims: Iterable[tuple[ClaimKey, Claim]]) -> set[ClaimKey]:
        """From now on that object makes exactly these claims; all that may have changed by that."""
        made = dict(claims)
        before = self.made.pop(by, ())
        if made:
            self.made[by] = tuple(made)
        for key in before:
            self._withdraw(key, by)
        for key, claim in made.items():
            self._enter(key, by, claim)
        return {*before, *made}

    def _withdraw(self, key: ClaimKey, by: bytes) -> None:
        rivals = self.contested.get(key)
        if rivals is None:
            del self.sole[key]
            return
        del rivals[by]
        if len(rivals) == 1:
            del self.contested[key]
            [(last, claim)] = rivals.items()
            self.sole[key] = SourcedClaim(claim, last)

    def _enter(self, key: ClaimKey, by: bytes, claim: Claim) -> None:
        if key in self.contested:
            self.contested[key][by] = claim
        elif (sole := self.sole.pop(key, None)) is not None:
            self.contested[key] = {sole.by: sole.claim, by: claim}
        else:
            self.sole[key] = SourcedClaim(claim, by)


def _who(claim: Claim) -> str:
    owner = claim.owner
    return f"endpoint {owner.endpoint} on {owner.host}" if owner.endpoint else f"host {owner.host}"
