"""Mark: a number and a nonce that the leader writes to inventory and store before each batch of changes.

The two sides belong together as long as the store's mark is one that the inventory made, and the inventory knows of no
later one that reached the store. A restored backup of either side lacks the latest marks. Nobody watches this key.

The store's mark also carries the deletes of the last minute, so that the syncer's brake counts them after a restart or
a takeover: it is written before each batch anyway.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec

from holdfast.model.base.codec import Natural
from holdfast.model.base.keys import own, single
from holdfast.model.base.kind import Column, Kind


class RecentDeletes(msgspec.Struct, frozen=True, gc=False):
    """Deletes of one kind within one second, about to be applied when the mark was written."""

    kind: str
    at: datetime
    count: Natural


class Mark(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """`number` only grows; `nonce` tells two marks of the same number apart."""

    number: Natural
    nonce: Annotated[str, msgspec.Meta(min_length=1)]
    deletes: tuple[RecentDeletes, ...] = ()


MARK: Kind[Mark, str] = Kind(
    name="mark",
    plural="marks",
    struct=Mark,
    place=single(own("mark"), "mark"),
    columns=(Column("NUMBER", lambda _, mark: str(mark.number)),),
)
