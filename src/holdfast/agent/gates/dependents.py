"""Footing: what is present in the kernel, what leans on what there, and the gate that follows from it.

The kernel takes the routes of a nexthop away with it. So nothing is removed while something present leans on it, also
when that something waits for a gate of its own (a brake on routes would otherwise be worth nothing), and nothing is
moved onto what is not there yet: a peer that changes its address keeps its routes, which go over one by one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field

from holdfast.agent.claims import Claim, ClaimKey, leans_on
from holdfast.model.base.time import NEVER, Instant
from holdfast.reconcile import Change, Closed, Op, Owned, Reason

_AT_A_TIME = 1_000


class DependentsReason(Reason):
    LEANED_UPON = "other objects in the kernel still lean on it"
    NOT_THERE_YET = "what it will lean on is not there yet"


@dataclass
class Present:
    """What may be in the kernel, as far as is known: all that the journal remembers, all that carries our tag."""

    claims: dict[ClaimKey, Owned[Claim]] = field(default_factory=dict)
    version: int = 0
    """Rises whenever what is present, or its shape, changes."""
    freed: set[ClaimKey] = field(default_factory=set)
    """What may go on since it was last asked: nothing leans on it any more, or its foot is there now."""
    _leaning: Counter[ClaimKey] = field(default_factory=Counter)
    _refused: dict[ClaimKey, set[ClaimKey]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.claims)

    def __contains__(self, key: object) -> bool:
        return key in self.claims

    def __iter__(self) -> Iterator[ClaimKey]:
        return iter(self.claims)

    def leaning(self, key: ClaimKey) -> int:
        """How many present objects lean on it."""
        return self._leaning.get(key, 0)

    def put(self, key: ClaimKey, owned: Owned[Claim]) -> None:
        old = self.claims.get(key)
        if old is not None and old.value.shape == owned.value.shape:
            self.claims[key] = owned
            return
        self._lift(key, old)
        self.version += 1
        self.claims[key] = owned
        if (foot := leans_on(key, owned.value.shape)) is not None:
            self._leaning[foot] += 1
        self.freed |= self._refused.pop(key, set())

    def drop(self, key: ClaimKey) -> None:
        self.version += 1
        self._lift(key, self.claims.pop(key, None))

    def replacing_all(self, claims: Mapping[ClaimKey, Owned[Claim]]) -> Generator[None, None, None]:
        """This is all there is, as of the last of its steps (see `holdfast.runtime.cooperative`)."""
        for key in [key for key in self.claims if key not in claims]:
            self.drop(key)
        for at, (key, owned) in enumerate(claims.items()):
            if at % _AT_A_TIME == 0:
                yield
            self.put(key, owned)

    def refuse(self, key: ClaimKey, foot: ClaimKey) -> None:
        """That change waits for its foot."""
        self._refused.setdefault(foot, set()).add(key)

    def take_freed(self) -> set[ClaimKey]:
        freed, self.freed = self.freed, set()
        return freed

    def _lift(self, key: ClaimKey, old: Owned[Claim] | None) -> None:
        foot = None if old is None else leans_on(key, old.value.shape)
        if foot is None:
            return
        self._leaning[foot] -= 1
        if not self._leaning[foot]:
            del self._leaning[foot]
            self.freed.add(foot)


@dataclass(slots=True)
class DependentsGate:
    """The gate. When a tenth of a fleet goes, thousands wait at once for the same reason: it is put in words once."""

    present: Present
    _said: tuple[Instant, dict[int, Closed]] = field(default_factory=lambda: (NEVER, {}))

    def judge(self, change: Change[ClaimKey, Claim], tally: Mapping[Op, int], have: int, now: Instant) -> Closed | None:
        if change.op is Op.DELETE:
            leaning = self.present.leaning(change.key)
            return self._leaned_upon(leaning, now) if leaning else None
        if change.op is Op.REPLACE and change.new is not None:
            foot = leans_on(change.key, change.new.value.shape)
            if foot is not None and foot not in self.present:
                self.present.refuse(change.key, foot)
                return Closed("footing", DependentsReason.NOT_THERE_YET, now, f"{foot} being made", str(foot))
        return None

    def _leaned_upon(self, leaning: int, now: Instant) -> Closed:
        if self._said[0] != now:
            self._said = now, {}
        said = self._said[1].get(leaning)
        if said is None:
            detail = f"{leaning:,} object{'s' * (leaning != 1)} in the kernel"
            said = Closed("footing", DependentsReason.LEANED_UPON, now, "their going", detail)
            self._said[1][leaning] = said
        return said
