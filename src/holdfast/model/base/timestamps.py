"""Wall-clock times that cross machines: aware datetimes in UTC, written as RFC 3339 with `Z`.

What others wrote is understood with `Z`, with an offset, or naive (then it is UTC, C7). Nothing here reads a clock.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated

import msgspec

from holdfast.model.base.address import shown

Moment = Annotated[datetime, msgspec.Meta(tz=True)]
"""A wall-clock time in a value of our own."""

_DATE_AND_MINUTES = len("2026-11-15T07:07")


def utc(moment: datetime) -> datetime:
    """The same moment in UTC. A naive one is refused: inside Holdfast it would be a bug, not a format."""
    if moment.tzinfo is UTC:
        return moment
    if moment.tzinfo is None:
        raise ValueError(f"{moment.isoformat()} has no time zone; write it with Z or an offset")
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise ValueError(f"{moment.isoformat()} is outside the calendar in UTC") from None


def written(moment: datetime) -> str:
    """RFC 3339 with `Z`, with as much of the second as there is."""
    return utc(moment).isoformat().removesuffix("+00:00") + "Z"


def read(text: str) -> datetime:
    """A time that someone else wrote. Raises ValueError with a sentence; a date without a time of day is refused."""
    leap = text[17:19] == "60"  # the second that UTC adds now and then: a moment after :59
    plain = f"{text[:17]}59{text[19:]}" if leap else text
    try:
        moment = datetime.fromisoformat(plain.replace("z", "Z")) + timedelta(seconds=leap)
    except (ValueError, OverflowError):
        moment = None
    if moment is None or len(text) < _DATE_AND_MINUTES or text[10] not in "Tt ":
        raise ValueError(f"{shown(text)} is not a time; write it as 2026-11-15T07:07:06Z")
    return utc(moment if moment.tzinfo else moment.replace(tzinfo=UTC))
