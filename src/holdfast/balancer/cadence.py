"""Cadence: when each target is probed next, and whether the prober itself was late.

Start to start: the interval includes the probe's own duration, so 100 ms stay 100 ms (B3). One probe per target at a
time; one that overruns is followed at once by the next, and cycles that were missed are not caught up (B4). First
probes are spread over the interval. Each start is moved at random by up to the jitter, around an unmoved beat, so that
the mean stays the interval.

A prober that was away, stopped or starved, knows nothing of what happened meanwhile. It notices by waking later than
it had meant to; what it started before or started too late is `late`, and a failure of it does not count (B14).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from holdfast.balancer.results import Pace, Settings
from holdfast.model.time import Duration, Instant, nanoseconds

_GOLDEN = 0.6180339887498949
_LOOK_EVERY_NS = 100_000_000
_TOLERATED_SHARE = 4
ABSENT = Duration(seconds=1)
"""A prober that was away for longer goes on in step instead of probing everything at once."""
_REMEMBERED = 64


def interval(check: Settings, pace: Pace) -> Duration:
    """How far apart this target's starts are now."""
    if pace is Pace.FAST:
        return check.fast_interval or check.interval
    if pace is Pace.DOWN:
        return check.down_interval or check.interval
    return check.interval


def spread(index: int) -> float:
    """Where in its interval the n-th target begins, from 0 to 1: even for any number of targets, known or to come."""
    return index * _GOLDEN % 1.0


def first(now: Instant, every: Duration, share: float) -> Instant:
    """When a new target is probed first."""
    return Instant(now.ns + int(nanoseconds(every) * share))


def following(beat: Instant, finished: Instant, every: Duration) -> Instant:
    """The beat after this one: start to start, or at once after an overrun, which moves the beat."""
    return Instant(max(beat.ns + nanoseconds(every), finished.ns))


def moved(beat: Instant, finished: Instant, every: Duration, jitter: float, roll: float) -> Instant:
    """When the probe of this beat starts; `roll` is a random number from -1 to 1."""
    return Instant(max(beat.ns + int(nanoseconds(every) * jitter * roll / 2), finished.ns))


def hastened(beat: Instant, last: Instant, now: Instant, every: Duration) -> Instant:
    """The beat when the pace changes while a target waits: never later than it was, never closer than the interval."""
    return Instant(min(beat.ns, max(last.ns + nanoseconds(every), now.ns)))


def resumed(beat: Instant, now: Instant, every: Duration) -> Instant:
    """The first beat that is not over yet, after the prober was away: targets stay as spread as they were."""
    step = max(1, nanoseconds(every))
    return Instant(beat.ns + max(0, -((beat.ns - now.ns) // step)) * step)


def tolerance(timeout: Duration) -> Duration:
    """How late a prober may be for this timeout without its findings becoming worthless."""
    return timeout / _TOLERATED_SHARE


@dataclass(slots=True)
class Absences:
    """When the prober was away, as it notices itself: it looked up later than it had meant to."""

    _expected: Instant | None = None
    _noticed: deque[tuple[Instant, Duration]] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))
    """When the prober came back and how long it had been away; only those longer than all that came after them."""

    def woke(self, now: Instant) -> Duration:
        """The prober looks up; how much later than it had meant to."""
        if self._expected is None or now <= self._expected:
            return Duration(0)
        away = now - self._expected
        while self._noticed and self._noticed[-1][1] <= away:
            self._noticed.pop()
        self._noticed.append((now, away))
        return away

    def sleeps(self, now: Instant, until: Instant | None) -> Instant:
        """The prober looked up at `now` and has nothing to do before `until`; when it must look up again anyway."""
        soon = now.ns + _LOOK_EVERY_NS
        self._expected = Instant(soon if until is None else max(now.ns, min(soon, until.ns)))
        return self._expected

    def late(self, due: Instant, started: Instant, bound: Duration) -> bool:
        """Whether a probe proves nothing: it was started too late, or the prober was away while it ran."""
        return started - due > bound or any(end >= started and away > bound for end, away in self._noticed)
