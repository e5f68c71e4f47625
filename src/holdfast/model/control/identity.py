"""Identity of a store: its fleet and its epoch. It reveals a foreign store, and one restored from a backup."""

from __future__ import annotations

from typing import Annotated

import msgspec

from holdfast.model.base.codec import Natural
from holdfast.model.base.keys import own, single
from holdfast.model.base.kind import Column, Kind


class LatchedVerdict(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A verdict that the leader has reached about store or inventory; it stands until an operator ends it.

    `name` is that of a `StoreVerdict`. `revision` is the inventory's revision when the verdict was reached: under
    `inventory_restored` only what was edited later is written. `store` is the sentence of `store_restored`, if the
    store was restored as well: the inventory comes first."""

    name: str
    sentence: str
    revision: int = 0
    store: str = ""


class StoreRefusal(msgspec.Struct, frozen=True):
    """Verdict for which a daemon does not take a store as it is, for `holdfast status`."""

    verdict: str
    """Its name, such as `store_restored`."""
    sentence: str
    opens: str
    fleet: str = ""
    """Fleet of that store, if it has one."""


class Identity(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """`fleet` is the fleet id; `epoch` rises when a wiped store is filled again, and when an operator accepts a store
    that was restored from a backup. `who` and `why` record the operator; both are empty for an epoch that no operator
    raised. While `filling` is set, the store does not have everything that is wanted yet."""

    fleet: Annotated[str, msgspec.Meta(min_length=1)]
    epoch: Natural
    who: str = ""
    why: str = ""
    filling: bool = False
    verdict: LatchedVerdict | None = None


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
