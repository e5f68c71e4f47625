"""Warm-up: after a start, hands off the dataplane until backend health is known.

A restart must not be visible in the dataplane. Unknown health looks like "down", so nothing is written before
`min_delay`; then each frontend is let through once, as soon as none of its backends is unknown; at `max_delay` whatever
is left is let through with what is known, and from then on what nobody wants any more may go. One clock per process: a
reload does not restart it (B5), and neither does a dataplane that was found empty. With both delays 0 there is none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from holdfast.model.base.time import Duration, Instant
from holdfast.reconcile import Closed, Reason


class WarmUpReason(Reason):
    MIN_DELAY = "inside the start-up window"
    BACKEND_UNKNOWN = "a backend has not been probed yet"
    FULL_SYNC = "what is not wanted goes only after the start-up window"


class Trigger(Enum):
    """What let a frontend through; said in the log."""

    KNOWN = "all its backends are known"
    MAX_DELAY = "the start-up window is over"


class WarmUpPhase(Enum):
    HANDS_OFF = "before min-delay"
    ONE_BY_ONE = "until max-delay"
    OVER = "over"


@dataclass(frozen=True, slots=True)
class WarmUp:
    """The start-up window of one process."""

    started: Instant
    min_delay: Duration
    max_delay: Duration
    released: frozenset[str] = field(default=frozenset())

    def phase(self, now: Instant) -> WarmUpPhase:
        if now - self.started >= self.max_delay:
            return WarmUpPhase.OVER
        return WarmUpPhase.HANDS_OFF if now - self.started < self.min_delay else WarmUpPhase.ONE_BY_ONE

    def released_now(self, known: Mapping[str, bool], now: Instant) -> tuple[WarmUp, Mapping[str, Trigger]]:
        """Which frontends are let through now, and why, each exactly once (B11). `known`: has it no unknown backend?"""
        phase = self.phase(now)
        if phase is WarmUpPhase.HANDS_OFF:
            return self, {}
        waiting = [name for name in known if name not in self.released]
        trigger = Trigger.MAX_DELAY if phase is WarmUpPhase.OVER else Trigger.KNOWN
        let = {name: trigger for name in waiting if phase is WarmUpPhase.OVER or known[name]}
        return replace(self, released=self.released.union(let)), let

    def judge(self, frontend: str | None, now: Instant) -> Closed | None:
        """Whether this frontend may be touched; None stands for what belongs to no frontend any more."""
        phase = self.phase(now)
        if phase is WarmUpPhase.OVER:
            return None
        if phase is WarmUpPhase.HANDS_OFF:
            return self._closed(WarmUpReason.MIN_DELAY, self.min_delay, "")
        if frontend is None:
            return self._closed(WarmUpReason.FULL_SYNC, self.max_delay, "")
        if frontend in self.released:
            return None
        return self._closed(
            WarmUpReason.BACKEND_UNKNOWN, self.max_delay, "a first result for each of its backends, or "
        )

    def _closed(self, reason: WarmUpReason, delay: Duration, sooner: str) -> Closed:
        opens = f"{sooner}the start-up window, {delay.total_seconds():g} s after the start"
        return Closed("warm_up", reason, self.started, opens)
