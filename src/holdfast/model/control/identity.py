"""Identity of a store: its fleet and its epoch. It reveals a foreign store, and one restored from a backup."""

from __future__ import annotations

from typing import Annotated

import msgspec

from holdfast.model.base.codec import Natural
from holdfast.model.base.keys import own, single
from holdfast.model.base.kind import Column, Kind


class Identity(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """`fleet` is the fleet id; an operator raises `epoch` after the store was restored from a backup. `who` and `why`
    record that; both are empty for an epoch that no operator raised."""

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
