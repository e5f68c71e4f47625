"""Rivals: which object makes which claims, and who else makes the same ones. Pure.

Nearly every claim is made by one object alone; those are kept in the plainest way there is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum

import msgspec

from holdfast.agent.claims import Claim, Key


class Wanted(msgspec.Struct, frozen=True, gc=False):
    """A claim with the store's object that makes it."""

    claim: Claim
    by: bytes


class Standing(IntEnum):
    """How much an object's word counts where several claim one key; among equals the newer one's."""

    EXPECTED = 0
    """A workload at the target of its migration, while it stands where it comes from."""
    DOUBTED = 1
    """Nobody has said yet whether it is only on its way there."""
    AWAITED = 2
    """A workload at the target of its migration that does not stand where it comes from any more."""
    SETTLED = 3
    ARRIVING = 4
    """A workload on its way to this host, which is programmed here beside where it comes from."""


@dataclass(frozen=True, slots=True)
class Contest:
    """Several live objects claim one key; all but the first lose."""

    key: Key
    winner: Wanted
    losers: tuple[Wanted, ...]

    def __str__(self) -> str:
        others = " and ".join(_who(loser.claim) for loser in self.losers)
        return f"{self.key} is claimed by {_who(self.winner.claim)} and also by {others}; the newest object wins"


class Rivals:
    def __init__(self) -> None:
        self.made: dict[bytes, tuple[Key, ...]] = {}
        """Of each object that makes any, what it claims."""
        self.sole: dict[Key, Wanted] = {}
        """What one object claims alone."""
        self.contested: dict[Key, dict[bytes, Claim]] = {}
        """What several claim."""

    def __len__(self) -> int:
        return len(self.sole) + len(self.contested)

    def __iter__(self) -> Iterator[Key]:
        yield from self.sole
        yield from self.contested

    def of(self, key: Key) -> list[Wanted]:
        """Those who claim a contested key."""
        return [Wanted(claim, by) for by, claim in self.contested[key].items()]

    def make(self, by: bytes, claims: Iterable[tuple[Key, Claim]]) -> set[Key]:
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

    def _withdraw(self, key: Key, by: bytes) -> None:
        rivals = self.contested.get(key)
        if rivals is None:
            del self.sole[key]
            return
        del rivals[by]
        if len(rivals) == 1:
            del self.contested[key]
            [(last, claim)] = rivals.items()
            self.sole[key] = Wanted(claim, last)

    def _enter(self, key: Key, by: bytes, claim: Claim) -> None:
        if key in self.contested:
            self.contested[key][by] = claim
        elif (sole := self.sole.pop(key, None)) is not None:
            self.contested[key] = {sole.by: sole.claim, by: claim}
        else:
            self.sole[key] = Wanted(claim, by)


def _who(claim: Claim) -> str:
    owner = claim.owner
    return f"endpoint {owner.endpoint} on {owner.host}" if owner.endpoint else f"host {owner.host}"
