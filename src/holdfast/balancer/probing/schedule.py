"""Probe schedule: when each target is probed next, and whether the prober itself was late.

Intervals are start to start: they include the duration of the probe, so 100 ms stay 100 ms (B3). Each target has one
probe at a time; one that overruns is followed by the next at once, and missed cycles are not made up for (B4). First
probes are spread over the interval, or over the first phase of the warm-up where that is shorter (B28). Each start is
moved at random by up to the jitter around a fixed slot, so that the mean stays the interval.

A prober that was stopped or starved (a stall) does not know what happened meanwhile. It notices a stall by waking up
later than planned. Probes that were running then, or that started too late, are `late`: their failure does not count
(B14).

Times are nanoseconds of the boot clock, as plain integers: this code runs for every probe, thousands of times a second.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from holdfast.balancer.probing.messages import ProbeInterval
from holdfast.config.sections.healthcheck import HealthCheck
from holdfast.model.base.time import nanoseconds

_GOLDEN = 0.6180339887498949
_MILLISECOND = 1_000_000
_WAKE_EVERY = 100 * _MILLISECOND
_WORTH_NOTING = 5 * _MILLISECOND
_TOLERATED_SHARE = 4
_REMEMBERED = 64
LONG_STALL = 1_000 * _MILLISECOND
"""After a longer stall, targets continue in their slots instead of being probed all at once."""


def interval(check: HealthCheck, chosen: ProbeInterval) -> int:
    """Current interval of a target."""
    if chosen is ProbeInterval.FAST:
        return nanoseconds(check.fast_interval or check.interval)
    if chosen is ProbeInterval.DOWN:
        return nanoseconds(check.down_interval or check.interval)
    return nanoseconds(check.interval)


def spread(index: int) -> float:
    """Offset of the n-th target in its interval, from 0 to 1; spread evenly for any number of targets."""
    return index * _GOLDEN % 1.0


def first_start(now: int, every: int, within: int, share: float) -> int:
    """First start of a new target; `within` bounds it, 0 does not (protection: B28)."""
    return now + int((min(every, within) if within else every) * share)


def next_slot(slot: int, finished: int, every: int) -> int:
    """Slot after this one, one interval later; at once after an overrun (protection: B3, B4)."""
    return max(slot + every, finished)


def jittered(slot: int, finished: int, every: int, jitter: float, random: float) -> int:
    """Start of the probe in this slot; `random` is a number from -1 to 1.

    Each start moves by at most half the jitter, so that two starts differ by at most all of it.
    """
    return max(slot + int(every * jitter * random / 2), finished)


def brought_forward(slot: int, last: int, now: int, every: int) -> int:
    """Slot when the interval gets shorter while a target waits: never later, and one interval after the last start."""
    return min(slot, max(last + every, now))


def realigned(slot: int, now: int, every: int) -> int:
    """First slot in the future after a stall; targets keep their offsets."""
    return slot + max(0, -((slot - now) // every)) * every


def tolerance(timeout: int) -> int:
    """Lateness up to which results of probes with this timeout count."""
    return max(timeout // _TOLERATED_SHARE, _WORTH_NOTING)


@dataclass(slots=True)
class ProberStalls:
    """Stalls of the prober: times at which it woke up later than planned."""

    _expected: int = 0
    _stalls: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))
    """End and length of past stalls; only those longer than all later ones."""

    def woke(self, now: int) -> int:
        """Note that the prober is running at `now`. Returns how much later than planned that is."""
        stall = now - self._expected if self._expected else 0
        if stall > _WORTH_NOTING:
            while self._stalls and self._stalls[-1][1] <= stall:
                self._stalls.pop()
            self._stalls.append((now, stall))
        return max(0, stall)

    def sleeps(self, now: int, until: int | None) -> int:
        """Note that the prober has nothing to do before `until`. Returns when it must wake up at the latest."""
        soon = now + _WAKE_EVERY
        self._expected = soon if until is None else max(now, min(soon, until))
        return self._expected

    def late(self, due: int, started: int, tolerated: int) -> bool:
        """Tell whether a probe proves nothing: it started late, or the prober stalled meanwhile (protection: B14)."""
        if started - due > tolerated:
            return True
        for ended, stall in reversed(self._stalls):
            if ended < started:
                return False
            if stall > tolerated:
                return True
        return False
