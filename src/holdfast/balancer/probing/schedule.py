"""Cadence: when each target is probed next, and whether the prober itself was late.

Start to start: the interval includes the probe's own duration, so 100 ms stay 100 ms (B3). One probe per target at a
time; one that overruns is followed at once by the next, and cycles that were missed are not caught up (B4). First
probes are spread over the interval. Each start is moved at random by up to the jitter, around an unmoved beat, so that
the mean stays the interval.

A prober that was away, stopped or starved, knows nothing of what happened meanwhile. It notices by waking later than
it had meant to; what it started before or started too late is `late`, and a failure of it does not count (B14).

Times are nanoseconds of the boot clock, as plain integers: all this runs for every probe, thousands of times a second.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from holdfast.balancer.probing.messages import ProbeInterval
from holdfast.config.sections.healthcheck import HealthCheck
from holdfast.model.base.time import nanoseconds

_GOLDEN = 0.6180339887498949
_MILLISECOND = 1_000_000
_LOOK_EVERY = 100 * _MILLISECOND
_WORTH_NOTING = 5 * _MILLISECOND
_TOLERATED_SHARE = 4
_REMEMBERED = 64
ABSENT = 1_000 * _MILLISECOND
"""A prober that was away for longer goes on in step instead of probing everything at once."""


def interval(check: HealthCheck, pace: ProbeInterval) -> int:
    """How far apart this target's starts are now."""
    if pace is ProbeInterval.FAST:
        return nanoseconds(check.fast_interval or check.interval)
    if pace is ProbeInterval.DOWN:
        return nanoseconds(check.down_interval or check.interval)
    return nanoseconds(check.interval)


def spread(index: int) -> float:
    """Where in its interval the n-th target begins, from 0 to 1: even for any number of targets, known or to come."""
    return index * _GOLDEN % 1.0


def first(now: int, every: int, share: float) -> int:
    """When a new target is probed first."""
    return now + int(every * share)


def following(beat: int, finished: int, every: int) -> int:
    """The beat after this one: start to start, or at once after an overrun, which moves the beat."""
    return max(beat + every, finished)


def moved(beat: int, finished: int, every: int, jitter: float, roll: float) -> int:
    """When the probe of this beat starts; `roll` is a random number from -1 to 1.

    Two starts that are both moved by half the jitter are off by all of it at most.
    """
    return max(beat + int(every * jitter * roll / 2), finished)


def hastened(beat: int, last: int, now: int, every: int) -> int:
    """The beat when the pace changes while a target waits: never later than it was, never closer than the interval."""
    return min(beat, max(last + every, now))


def resumed(beat: int, now: int, every: int) -> int:
    """The first beat that is not over yet, after the prober was away: targets stay as spread as they were."""
    return beat + max(0, -((beat - now) // every)) * every


def tolerance(timeout: int) -> int:
    """How late a prober may be for this timeout without its findings becoming worthless."""
    return max(timeout // _TOLERATED_SHARE, _WORTH_NOTING)


@dataclass(slots=True)
class ProberStalls:
    """When the prober was away, as it notices itself: it looked up later than it had meant to."""

    _expected: int = 0
    _noticed: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))
    """When the prober came back and how long it had been away; only those longer than all that came after them."""

    def woke(self, now: int) -> int:
        """The prober looks up, or still is at it; how much later than it had meant to."""
        away = now - self._expected if self._expected else 0
        if away > _WORTH_NOTING:
            while self._noticed and self._noticed[-1][1] <= away:
                self._noticed.pop()
            self._noticed.append((now, away))
        return max(0, away)

    def sleeps(self, now: int, until: int | None) -> int:
        """The prober looked up at `now` and has nothing to do before `until`; when it must look up again anyway."""
        soon = now + _LOOK_EVERY
        self._expected = soon if until is None else max(now, min(soon, until))
        return self._expected

    def late(self, due: int, started: int, bound: int) -> bool:
        """Whether a probe proves nothing: it was started too late, or the prober was away while it ran."""
        if started - due > bound:
            return True
        for back, away in reversed(self._noticed):
            if back < started:
                return False
            if away > bound:
                return True
        return False
