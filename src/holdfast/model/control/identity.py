"""Identity: which fleet a store belongs to, and which life of it. A foreign or restored store is recognised by this."""

from __future__ import annotations

from typing import Annotated

import msgspec

from holdfast.model.base.keys import own, single
from holdfast.model.base.kind import Column, Kind
from holdfast.model.base.number import Natural


class Identity(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """`fleet` is the fleet id; `epoch` is raised by an operator after the store was restored from a backup. `who` that
    was and `why` stay with it; both are empty for an epoch that no operator raised."""

    fleet: Annotated[str, msgspec.Meta(min_length=1)]
    epoch: Natural
    who: str = ""
    why: str = ""


IDENTITY: Kind[Identity, str] = Kind(
    name="identity",
    plural="identities",
    struct=Identity,
    place=single(own("identity"), "identity"),
    columns=(
        Column("FLEET", lambda _, identity: identity.fleet),
        Column("EPOCH", lambda _, identity: str(identity.epoch)),
    ),
)
