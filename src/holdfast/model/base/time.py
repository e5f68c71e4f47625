"""Two kinds of time that cannot be mixed: instants of one machine, and timestamps that cross machines.

An `Instant` is a point on one machine's boot clock; deadlines and ages use it. A timestamp is an aware `datetime` in
UTC, written as RFC 3339 with `Z`; timestamps of others are read with `Z`, with an offset, or naive (then they are UTC,
C7). Neither can be subtracted from the other, so that clock skew is never mistaken for an age. Nothing here reads a
clock.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, overload

import msgspec

from holdfast.model.base.address import shown

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
    """Convert a duration to nanoseconds."""
    return duration // timedelta(microseconds=1) * 1_000


def seconds(value: float) -> Duration:
    return Duration(seconds=value)


Moment = Annotated[datetime, msgspec.Meta(tz=True)]
"""A timestamp in a value of ours."""

_DATE_AND_MINUTES = len("2026-11-15T07:07")


def utc(moment: datetime) -> datetime:
    """Convert a timestamp to UTC. A naive one is refused: inside Holdfast it is a bug."""
    if moment.tzinfo is UTC:
        return moment
    if moment.tzinfo is None:
        raise ValueError(f"{moment.isoformat()} has no time zone; write it with Z or an offset")
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise ValueError(f"{moment.isoformat()} is outside the calendar in UTC") from None


def rfc3339(moment: datetime) -> str:
    """Write a timestamp as RFC 3339 with `Z`, with the fraction of the second that it has."""
    return utc(moment).isoformat().removesuffix("+00:00") + "Z"


def parse_time(text: str) -> datetime:
    """Read a timestamp. Raises ValueError with a sentence; a date without a time of day is refused."""
    leap = text[17:19] == "60"  # a leap second: one second after :59
    plain = f"{text[:17]}59{text[19:]}" if leap else text
    try:
        moment = datetime.fromisoformat(plain.replace("z", "Z")) + timedelta(seconds=leap)
    except (ValueError, OverflowError):
        moment = None
    if moment is None or len(text) < _DATE_AND_MINUTES or text[10] not in "Tt ":
        raise ValueError(f"{shown(text)} is not a time; write it as 2026-11-15T07:07:06Z")
    return utc(moment if moment.tzinfo else moment.replace(tzinfo=UTC))
