"""Mass-loss gate: many agents that vanish at once mean a broken store more likely than so many dead hosts.

One agent whose report is gone is down at once. When more than 20 % and more than 5 hosts vanish within 10 s, these are
held: their last state stays, and the status shows the hold. The hold of a host ends 30 s later if another agent's fresh
report was received since it began, because then the store works and the host is down; until then it stays. A report
from before a host vanished proves nothing about it: the store may have broken since. The hold of a host also ends when
the host is back, even if only a list shows it, and when an operator allows the losses.
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
    """`lost_host` names the host that a change would declare lost; None for all other changes."""

    def __init__(
        self, place: str, lost_host: Callable[[Change[K, V]], str | None], limits: MassLossLimits | None = None
    ) -> None:
        self._place = place
        self._lost_host = lost_host
        self._limits = limits or MassLossLimits()
        self._lost: dict[str, Instant] = {}
        """Lost hosts, with the instant of the loss. A loss that is announced again because it could not be written
        keeps its instant; after one that was written, or a host that was back, the next loss is a new one."""
        self._held: dict[str, Instant] = {}
        self._unproven: set[str] = set()
        """Held hosts since whose loss no other agent has reported."""
        self._of = 0
        self._since = NEVER
        self._accepted: set[str] = set()

    @property
    def held(self) -> Collection[str]:
        return self._held.keys()

    @property
    def since(self) -> Instant:
        """Instant since which losses are held; NEVER while none are."""
        return self._since if self._held else NEVER

    def vanished(self, hosts: Collection[str], reporting: int, now: Instant) -> None:
        """Announce the hosts that the next changes would declare lost, while so many hosts report."""
        self._accept_proven(now)
        fresh = {host for host in hosts if host not in self._accepted}
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
        """Note a fresh, live report: its host is alive, and the store works."""
        self.back([host])
        self._unproven.clear()

    def back(self, hosts: Collection[str]) -> None:
        """Note hosts that are back. That proves nothing about the others: a list may contain old reports."""
        self._accepted.difference_update(hosts)
        for host in hosts:
            self._lost.pop(host, None)
        self._release(hosts)

    @property
    def remembers(self) -> bool:
        """True if any loss still matters."""
        return bool(self._lost or self._held or self._accepted)

    def settled(self, hosts: Collection[str], now: Instant) -> None:
        """Note hosts that the inventory has as lost; their losses count until the window has passed."""
        for host in self._lost.keys() & hosts:
            if now - self._lost[host] > self._limits.within:
                del self._lost[host]

    def release_due(self, now: Instant) -> None:
        """End holds that are due, also where no change of their hosts is judged any more: an endpoint that moved away
        leaves nothing to judge, and its host would count as held for ever."""
        self._accept_proven(now)

    def allow(self) -> int:
        """Accept all held losses, on an operator's request. Returns how many there were."""
        count = len(self._held)
        self._accept(list(self._held))
        return count

    def judge(self, change: Change[K, V], tally: Mapping[Op, int], have: int, now: Instant) -> Closed | None:
        host = self._lost_host(change)
        if host is None:
            return None
        since = self._held.get(host, now)
        if self._is_proven(host, since, now):
            self._accept_proven(now)
        if not is_held(host, self._held):
            return None
        later = f"{self._limits.proof_after.total_seconds():g} s"
        allow = f"holdfast gate allow {self._place}/{GATE} --once --reason …"
        opens = f"another agent's fresh report {later} later, or: {allow}"
        detail = f"{len(self._held):,} of {self._of:,} agents"
        return Closed(GATE, MassLossReason.MANY_AT_ONCE, since, opens, detail)

    def _is_mass(self, reporting: int, now: Instant) -> bool:
        lost = sum(now - since <= self._limits.within for since in self._lost.values())
        return lost > self._limits.hosts and lost > self._limits.share * (reporting + lost)

    def _is_proven(self, host: str, since: Instant, now: Instant) -> bool:
        return host not in self._unproven and now - since >= self._limits.proof_after

    def _accept_proven(self, now: Instant) -> None:
        self._accept([host for host, since in self._held.items() if self._is_proven(host, since, now)])

    def _accept(self, hosts: Collection[str]) -> None:
        """Declare hosts lost until they report again."""
        self._accepted.update(hosts)
        self._release(hosts)

    def _release(self, hosts: Collection[str]) -> None:
        self._unproven.difference_update(hosts)
        for host in hosts:
            self._held.pop(host, None)
        if not self._held:
            self._of = 0


def is_held(host: str, held: Collection[str]) -> bool:
    return host in held
