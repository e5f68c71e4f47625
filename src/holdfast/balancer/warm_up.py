"""Warm-up: after a start, hands off the dataplane until backend health is known.

A restart must not be visible in the dataplane. Unknown health looks like "down", so nothing is written before
`min_delay`; then each frontend is released once, as soon as none of its backends is unknown; at `max_delay` the rest is
released with what is known, and only then unwanted objects are deleted. There is one clock per process: neither a
reload (B5) nor an empty dataplane restarts it. With both delays 0 there is no warm-up.
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
    FULL_SYNC = "unwanted objects are deleted only after the start-up window"


class Trigger(Enum):
    """Reason for the release of a frontend, shown in the log."""

    KNOWN = "all its backends are known"
    MAX_DELAY = "the start-up window is over"


class WarmUpPhase(Enum):
    CLOSED = "before min-delay"
    RELEASING = "until max-delay"
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
        return WarmUpPhase.CLOSED if now - self.started < self.min_delay else WarmUpPhase.RELEASING

    def released_now(self, known: Mapping[str, bool], now: Instant) -> tuple[WarmUp, Mapping[str, Trigger]]:
        """Release frontends, each exactly once (protection: B11). `known`: no backend of it is unknown."""
        phase = self.phase(now)
        if phase is WarmUpPhase.CLOSED:
            return self, {}
        waiting = [name for name in known if name not in self.released]
        trigger = Trigger.MAX_DELAY if phase is WarmUpPhase.OVER else Trigger.KNOWN
        released = {name: trigger for name in waiting if phase is WarmUpPhase.OVER or known[name]}
        return replace(self, released=self.released.union(released)), released

    def judge(self, frontend: str | None, now: Instant) -> Closed | None:
        """Hold the changes of a frontend until it is released; None: objects without a frontend (protection: B1)."""
        phase = self.phase(now)
        if phase is WarmUpPhase.OVER:
            return None
        if phase is WarmUpPhase.CLOSED:
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
