"""The mass-loss gate: many agents that vanish at once are more likely a broken store than so many dead hosts.

One agent whose report is gone is down at once. When more than 20 % and more than 5 hosts vanish within 10 s, these are
held: their last state stays, and that is said loudly. The hold of a host ends 30 s later if another agent's fresh
report was seen since it began, for then the store lives and the host is down; until one is seen, it stays. What was
seen before a host vanished proves nothing about it: the store may have broken since. A host that is there again is held
no more, also where only a list shows it, and an operator can let the losses through.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Generic

from holdfast.model.base.time import NEVER, Duration, Instant
from holdfast.reconcile import Change, Closed, Op, Reason
from holdfast.reconcile.change import K, V

GATE = "mass_loss"


class MassLossReason(Reason):
    MANY_AT_ONCE = "so many agents vanished at once that a broken store is more likely than so many dead hosts"


@dataclass(frozen=True, slots=True)
class MassLossLimits:
    share: float = 0.2
    hosts: int = 5
    within: Duration = Duration(seconds=10)
    proof_after: Duration = Duration(seconds=30)


class MassLoss(Generic[K, V]):
    """`loser` names the host whose loss a change would be; None for all other changes."""

    def __init__(
        self, place: str, loser: Callable[[Change[K, V]], str | None], limits: MassLossLimits | None = None
    ) -> None:
        self._place = place
        self._loser = loser
        self._limits = limits or MassLossLimits()
        self._lost: dict[str, Instant] = {}
        """Since when hosts are lost. A loss that is announced again because it could not be written is as old as it
        was; one that was written, or a host that was back since, makes the next one new."""
        self._held: dict[str, Instant] = {}
        self._unproven: set[str] = set()
        """Those of them since whose loss nobody else has reported."""
        self._of = 0
        self._since = NEVER
        self._believed: set[str] = set()

    @property
    def held(self) -> Collection[str]:
        return self._held.keys()

    @property
    def since(self) -> Instant:
        """Since when losses are held; never, while none are."""
        return self._since if self._held else NEVER

    def vanished(self, hosts: Collection[str], reporting: int, now: Instant) -> None:
        """These hosts would be lost by what is about to be decided, while so many report."""
        self._believe_the_proven(now)
        fresh = {host for host in hosts if host not in self._believed}
        self._lost = dict.fromkeys(fresh, now) | self._lost
        if not fresh or not (self._held or self._is_mass(reporting, now)):
            return
        if not self._held:
            self._since = now
        new = fresh - self._held.keys()
        self._held |= dict.fromkeys(new, now)
        self._unproven |= new
        self._of = max(self._of, reporting + len(self._held))

    def reported(self, host: str) -> None:
        """A fresh report, live: its host is there, and so is the store."""
        self.back([host])
        self._unproven.clear()

    def back(self, hosts: Collection[str]) -> None:
        """These are there again, which proves nothing about the others: a list tells what is, not what is fresh."""
        self._believed.difference_update(hosts)
        for host in hosts:
            self._lost.pop(host, None)
        self._release(hosts)

    @property
    def remembers(self) -> bool:
        """Whether any host was lost, as far as it still matters."""
        return bool(self._lost or self._held or self._believed)

    def settled(self, hosts: Collection[str], now: Instant) -> None:
        """Of these the inventory says by now that they are lost; that counts for as long as losses are counted."""
        for host in self._lost.keys() & hosts:
            if now - self._lost[host] > self._limits.within:
                del self._lost[host]

    def look(self, now: Instant) -> None:
        """Ends holds whose time has come, also where nobody asks about their hosts any more: an endpoint that moved
        away leaves nothing to be judged, and its host would count as held for ever."""
        self._believe_the_proven(now)

    def allow(self) -> int:
        """An operator believes that they are gone; how many were held."""
        count = len(self._held)
        self._believe(list(self._held))
        return count

    def judge(self, change: Change[K, V], tally: Mapping[Op, int], have: int, now: Instant) -> Closed | None:
        host = self._loser(change)
        if host is None:
            return None
        since = self._held.get(host, now)
        if self._is_proven(host, since, now):
            self._believe_the_proven(now)
        if not is_held(host, self._held):
            return None
        opens = f"another agent's fresh report 30 s later, or: holdfast allow {self._place}/{GATE} --once --reason …"
        detail = f"{len(self._held):,} of {self._of:,} agents"
        return Closed(GATE, MassLossReason.MANY_AT_ONCE, since, opens, detail)

    def _is_mass(self, reporting: int, now: Instant) -> bool:
        lost = sum(now - since <= self._limits.within for since in self._lost.values())
        return lost > self._limits.hosts and lost > self._limits.share * (reporting + lost)

    def _is_proven(self, host: str, since: Instant, now: Instant) -> bool:
        return host not in self._unproven and now - since >= self._limits.proof_after

    def _believe_the_proven(self, now: Instant) -> None:
        self._believe([host for host, since in self._held.items() if self._is_proven(host, since, now)])

    def _believe(self, hosts: Collection[str]) -> None:
        """From here on they count as gone, until they report again."""
        self._believed.update(hosts)
        self._release(hosts)

    def _release(self, hosts: Collection[str]) -> None:
        self._unproven.difference_update(hosts)
        for host in hosts:
            self._held.pop(host, None)
        if not self._held:
            self._of = 0


def is_held(host: str, held: Collection[str]) -> bool:
    return host in held
