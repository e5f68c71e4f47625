"""Step-down request: an operator on another machine asks the leader to hand over.

The key is short-lived and names the term: the leader deletes it before it acts, and a later leader ignores it.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import force_setattr

from holdfast.model.base.codec import Natural
from holdfast.model.base.keys import own, single
from holdfast.model.base.kind import Column, Kind
from holdfast.model.base.time import Moment, rfc3339, utc


class StepDownRequest(msgspec.Struct, frozen=True, gc=False):
    """End `term`, in favour of the server `to`; empty for any that can lead."""

    term: Natural
    to: str
    who: str
    why: str
    at: Moment

    def __post_init__(self) -> None:
        force_setattr(self, "at", utc(self.at))


STEP_DOWN_REQUEST: Kind[StepDownRequest, str] = Kind(
    name="step-down-request",
    plural="step-down-requests",
    struct=StepDownRequest,
    place=single(own("step-down"), "step-down"),
    columns=(
        Column("TERM", lambda _, asked: str(asked.term)),
        Column("TO", lambda _, asked: asked.to),
        Column("WHO", lambda _, asked: asked.who),
        Column("WHY", lambda _, asked: asked.why),
        Column("SINCE", lambda _, asked: rfc3339(asked.at), wide=True),
    ),
)
