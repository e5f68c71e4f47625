"""Mark: a number and a nonce that the leader writes to inventory and store before each batch of changes.

The two sides belong together as long as the store's mark is one that the inventory made, and the inventory knows of no
later one that reached the store. A restored backup of either side lacks the latest marks. Nobody watches this key.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from holdfast.model.base.codec import Natural
from holdfast.model.base.keys import own, single
from holdfast.model.base.kind import Column, Kind


class Mark(msgspec.Struct, frozen=True, gc=False):
    """`number` only grows; `nonce` tells two marks of the same number apart."""

    number: Natural
    nonce: Annotated[str, msgspec.Meta(min_length=1)]


MARK: Kind[Mark, str] = Kind(
    name="mark",
    plural="marks",
    struct=Mark,
    place=single(own("mark"), "mark"),
    columns=(Column("NUMBER", lambda _, mark: str(mark.number)),),
)
