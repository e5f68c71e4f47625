"""History of leadership: leader, term, begin, end, and why it ended. The leaders write it."""

from __future__ import annotations

import msgspec
from msgspec.structs import force_setattr

from holdfast.model.base.codec import Natural
from holdfast.model.base.keys import own, single
from holdfast.model.base.kind import Column, Kind
from holdfast.model.base.time import Moment, rfc3339, utc

KEPT = 50


class LeaderPeriod(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One term of one server. Its successor writes `ended` and `why` if the server itself could not."""

    name: str
    host: str
    term: Natural
    began: Moment
    ended: Moment | None = None
    why: str = ""

    def __post_init__(self) -> None:
        force_setattr(self, "began", utc(self.began))
        if self.ended is not None:
            force_setattr(self, "ended", utc(self.ended))


class LeaderHistory(msgspec.Struct, frozen=True):
    """Periods, oldest first; the last one is current if it has not ended."""

    periods: tuple[LeaderPeriod, ...] = ()

    def begin(self, period: LeaderPeriod, why_before: str) -> LeaderHistory:
        """Add a new period; a previous one without an end ended for `why_before`."""
        return LeaderHistory((*self.end(period.began, why_before).periods, period)[-KEPT:])

    def end(self, moment: Moment, why: str) -> LeaderHistory:
        """End the last period, unless it has ended already."""
        if not self.periods or self.periods[-1].ended is not None:
            return self
        last = msgspec.structs.replace(self.periods[-1], ended=moment, why=why)
        return LeaderHistory((*self.periods[:-1], last))


LEADERSHIP: Kind[LeaderHistory, str] = Kind(
    name="leadership",
    plural="leaderships",
    struct=LeaderHistory,
    place=single(own("leadership"), "leadership"),
    columns=(
        Column("TERMS", lambda _, history: str(len(history.periods))),
        Column("SINCE", lambda _, history: rfc3339(history.periods[-1].began) if history.periods else ""),
    ),
)
