"""Handover: a leader that steps down for a certain server reserves the vacancy for it, under a short lease.

While the key exists, other servers do not campaign. It expires by itself: if the server does not take over, any may.
"""

from __future__ import annotations

import msgspec

from holdfast.model.base.keys import own, single
from holdfast.model.base.kind import Column, Kind


class Handover(msgspec.Struct, frozen=True, gc=False):
    """Name of the server that is to lead next, and of the one that stepped down for it."""

    to: str
    by: str


HANDOVER: Kind[Handover, str] = Kind(
    name="handover",
    plural="handovers",
    struct=Handover,
    place=single(own("handover"), "handover"),
    columns=(Column("TO", lambda _, handover: handover.to), Column("BY", lambda _, handover: handover.by)),
)
