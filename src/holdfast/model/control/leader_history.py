"""The history of leadership: who led, which term, from when to when, and why it ended. Kept by the leaders."""

from __future__ import annotations

import msgspec
from msgspec.structs import force_setattr

from holdfast.model.base.keys import own, single
from holdfast.model.base.kind import Column, Kind
from holdfast.model.base.number import Natural
from holdfast.model.base.timestamps import Moment, utc, written

KEPT = 50


class LeaderPeriod(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One term of one server. `ended` and `why` come from itself, or from its successor when it could not say."""

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
    """Oldest first; the last one leads if it has not ended."""

    reigns: tuple[LeaderPeriod, ...] = ()

    def begun(self, reign: LeaderPeriod, why_before: str) -> LeaderHistory:
        """A new reign began; one that was left open before it ended for `why_before`."""
        return LeaderHistory((*self.ended_at(reign.began, why_before).reigns, reign)[-KEPT:])

    def ended_at(self, moment: Moment, why: str) -> LeaderHistory:
        """The last reign ended, unless that was said already."""
        if not self.reigns or self.reigns[-1].ended is not None:
            return self
        last = msgspec.structs.replace(self.reigns[-1], ended=moment, why=why)
        return LeaderHistory((*self.reigns[:-1], last))


LEADERSHIP: Kind[LeaderHistory, str] = Kind(
    name="leadership",
    plural="leaderships",
    struct=LeaderHistory,
    place=single(own("leadership"), "leadership"),
    columns=(
        Column("REIGNS", lambda _, leadership: str(len(leadership.reigns))),
        Column("SINCE", lambda _, leadership: written(leadership.reigns[-1].began) if leadership.reigns else ""),
    ),
)
