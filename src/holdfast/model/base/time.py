"""Two kinds of time that cannot be mixed up.

An `Instant` is a point on one machine's boot clock: deadlines and ages are made of it. A wall-clock time is an aware
`datetime` and appears only in timestamps that cross machines. Neither can be subtracted from the other, so a
difference between two machines' clocks is never taken for an age.
"""

from __future__ import annotations

from datetime import timedelta
from typing import overload

import msgspec

Duration = timedelta


class Instant(msgspec.Struct, frozen=True, order=True, gc=False):
    """A point in time on this machine's boot clock, in nanoseconds since boot. `Instant(0)` means "never"."""

    ns: int

    def __add__(self, other: Duration) -> Instant:
        return Instant(self.ns + nanoseconds(other))

    @overload
    def __sub__(self, other: Instant) -> Duration: ...
    @overload
    def __sub__(self, other: Duration) -> Instant: ...
    def __sub__(self, other: Instant | Duration) -> Instant | Duration:
        if isinstance(other, Instant):
            return Duration(microseconds=(self.ns - other.ns) / 1_000)
        return Instant(self.ns - nanoseconds(other))

    def __bool__(self) -> bool:
        return self.ns != 0


NEVER = Instant(0)


def nanoseconds(duration: Duration) -> int:
    """The duration as a whole number of nanoseconds."""
    return duration // timedelta(microseconds=1) * 1_000


def seconds(value: float) -> Duration:
    """A duration of that many seconds."""
    return Duration(seconds=value)
