"""Mass-loss gate: many agents that vanish at once mean a broken store more likely than so many dead hosts.

One agent whose report is gone is down at once. When more than 20 % and more than 5 hosts vanish within 10 s, these are
held: their last state stays, and the status shows the hold. Whatever vanishes while losses are held is held as well.

The hold of a host ends 30 s later if another agent's fresh report was received since it began, because then the store
works and the host is down; until then it stays. A report from before a host vanished proves nothing about it: the store
may have broken since. The hold of a host also ends when the host is back, even if only a list shows it, and when an
operator allows the losses. A host that was accepted as lost is not held again before it has been back.

`TRANSITIONS` is the whole machine, for one host. Hosts that are present are not remembered.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import Enum
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


class LossState(Enum):
    PRESENT = "present"
    LOST = "lost, and not held; counts as part of a mass for a while"
    HELD = "held"
    PROVEN = "held; another agent has reported since, so that the store works"
    ACCEPTED = "accepted as lost"


class LossEvent(Enum):
    VANISHED = "its report is gone, and hardly any other"
    VANISHED_IN_MASS = "its report is gone, and so are many others"
    OTHER_REPORTED = "a fresh report of another agent came"
    DUE = "it has been held for long enough"
    ALLOWED = "an operator allowed the losses"
    WRITTEN = "the inventory has had it as lost for a while"
    BACK = "its report is there again"


TRANSITIONS: Mapping[LossState, Mapping[LossEvent, LossState]] = {
    LossState.PRESENT: {
        LossEvent.VANISHED: LossState.LOST,
    },
    LossState.LOST: {
        # A loss that is announced again because it could not be written is as old as it was.
        LossEvent.VANISHED: LossState.LOST,
        LossEvent.VANISHED_IN_MASS: LossState.HELD,
        # After one that was written the next loss of the host is a new one.
        LossEvent.WRITTEN: LossState.PRESENT,
        LossEvent.BACK: LossState.PRESENT,
    },
    LossState.HELD: {
        LossEvent.VANISHED: LossState.HELD,
        LossEvent.VANISHED_IN_MASS: LossState.HELD,
        LossEvent.OTHER_REPORTED: LossState.PROVEN,
        LossEvent.ALLOWED: LossState.ACCEPTED,
        # Nothing of the host is left to be written, for example because its endpoints have moved away.
        LossEvent.WRITTEN: LossState.HELD,
        LossEvent.BACK: LossState.PRESENT,
    },
    LossState.PROVEN: {
        LossEvent.VANISHED: LossState.PROVEN,
        LossEvent.VANISHED_IN_MASS: LossState.PROVEN,
        LossEvent.DUE: LossState.ACCEPTED,
        LossEvent.ALLOWED: LossState.ACCEPTED,
        LossEvent.WRITTEN: LossState.PROVEN,
        LossEvent.BACK: LossState.PRESENT,
    },
    LossState.ACCEPTED: {
        LossEvent.VANISHED: LossState.ACCEPTED,
        LossEvent.VANISHED_IN_MASS: LossState.ACCEPTED,
        # Not forgotten: further rows of the same host may still have to be written.
        LossEvent.WRITTEN: LossState.ACCEPTED,
        LossEvent.BACK: LossState.PRESENT,
    },
}
_HELD = (LossState.HELD, LossState.PROVEN)


@dataclass(slots=True)
class Loss:
    """Loss of one host."""

    since: Instant
    state: LossState = LossState.PRESENT
    held_since: Instant = NEVER


class MassLoss(Generic[K, V]):
    """`lost_host` names the host that a change would declare lost; None for all other changes."""

    def __init__(
        self, place: str, lost_host: Callable[[Change[K, V]], str | None], limits: MassLossLimits | None = None
    ) -> None:
        self._place = place
        self._lost_host = lost_host
        self._limits = limits or MassLossLimits()
        self._losses: dict[str, Loss] = {}
        self._held = 0
        self._of = 0
        self._since = NEVER

    @property
    def held(self) -> Collection[str]:
        return [host for host, loss in self._losses.items() if loss.state in _HELD] if self._held else ()

    @property
    def since(self) -> Instant:
        """Instant since which losses are held; NEVER while none are."""
        return self._since if self._held else NEVER

    @property
    def remembers(self) -> bool:
        """True if any loss still matters."""
        return bool(self._losses)

    def state(self, host: str) -> LossState:
        loss = self._losses.get(host)
        return LossState.PRESENT if loss is None else loss.state

    def lost_since(self, host: str) -> Instant:
        """Instant at which the loss of a host was first seen; NEVER if none is remembered."""
        loss = self._losses.get(host)
        return NEVER if loss is None else loss.since

    def vanished(self, hosts: Collection[str], reporting: int, now: Instant) -> None:
        """Announce the hosts that the next changes would declare lost, while so many hosts report."""
        self.release_due(now)
        self._apply(LossEvent.VANISHED, hosts, now)
        fresh = any(self.state(host) is not LossState.ACCEPTED for host in hosts)
        if not fresh or not (self._held or self._is_mass(reporting, now)):
            return
        if not self._held:
            self._since = now
        self._apply(LossEvent.VANISHED_IN_MASS, hosts, now)
        self._of = max(self._of, reporting + self._held)

    def reported(self, hosts: Collection[str], now: Instant) -> None:
        """Note fresh, live reports: their hosts are alive, and the store works."""
        if hosts and self._losses:
            self.back(hosts, now)
            self._apply(LossEvent.OTHER_REPORTED, self._in(LossState.HELD), now)

    def back(self, hosts: Collection[str], now: Instant) -> None:
        """Note hosts that are back. That proves nothing about the others: a list may contain old reports."""
        self._apply(LossEvent.BACK, self._losses.keys() & hosts, now)

    def settled(self, hosts: Collection[str], now: Instant) -> None:
        """Note hosts that the inventory has as lost; their losses count until the window has passed."""
        known = self._losses.keys() & hosts
        old = [host for host in known if now - self._losses[host].since > self._limits.within]
        self._apply(LossEvent.WRITTEN, old, now)

    def release_due(self, now: Instant) -> None:
        """End holds that are due, also where no change of their hosts is judged any more: an endpoint that moved away
        leaves nothing to judge, and its host would count as held for ever."""
        if self._held:
            self._apply(LossEvent.DUE, [host for host in self._in(LossState.PROVEN) if self._is_due(host, now)], now)

    def allow(self, now: Instant) -> int:
        """Accept all held losses, on an operator's request. Returns how many there were."""
        held = self.held
        self._apply(LossEvent.ALLOWED, held, now)
        return len(held)

    def judge(self, change: Change[K, V], tally: Mapping[Op, int], have: int, now: Instant) -> Closed | None:
        host = self._lost_host(change)
        if host is None or self.state(host) not in _HELD:
            return None
        since = self._losses[host].held_since
        if self.state(host) is LossState.PROVEN and self._is_due(host, now):
            self.release_due(now)
            return None
        later = f"{self._limits.proof_after.total_seconds():g} s"
        allow = f"holdfast gate allow {self._place}/{GATE} --once --reason …"
        opens = f"another agent's fresh report {later} later, or: {allow}"
        detail = f"{self._held:,} of {self._of:,} agents"
        return Closed(GATE, MassLossReason.MANY_AT_ONCE, since, opens, detail)

    def _in(self, state: LossState) -> Collection[str]:
        return [host for host, loss in self._losses.items() if loss.state is state]

    def _is_mass(self, reporting: int, now: Instant) -> bool:
        lost = sum(now - loss.since <= self._limits.within for loss in self._losses.values())
        return lost > self._limits.hosts and lost > self._limits.share * (reporting + lost)

    def _is_due(self, host: str, now: Instant) -> bool:
        return now - self._losses[host].held_since >= self._limits.proof_after

    def _apply(self, event: LossEvent, hosts: Collection[str], now: Instant) -> None:
        """Move hosts on. Raises KeyError for an event that their state does not know."""
        for host in hosts:
            loss = self._losses.get(host) or Loss(now)
            before, loss.state = loss.state, TRANSITIONS[loss.state][event]
            is_held = loss.state in _HELD
            if is_held and before not in _HELD:
                loss.held_since = now
            self._held += is_held - (before in _HELD)
            if loss.state is LossState.PRESENT:
                del self._losses[host]
            else:
                self._losses[host] = loss
        if not self._held:
            self._of = 0
