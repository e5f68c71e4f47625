"""Base of the sections that are also objects in the store: health checks, backends and frontends.

A balancer reads them from its own file or from etcd (`balancer.source`). One class defines the fields, defaults and
validation for both; `holdfast.model.balancing` adds the keys and the codec.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec.structs import force_setattr

from holdfast.config.schema.field import Section
from holdfast.config.schema.scalars import Unfit, address

Unsigned = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
"""A number that every reader of the store can hold, also those written in Go. `FieldDoc` has the narrower bounds."""


class StoredSection(Section, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A section that is also the value of a key in the store, where fields at their default are left out."""


def set_canonical_address(section: StoredSection, field: str) -> None:
    """Replace the address in a field by its canonical spelling. Raises `Unfit`, so that decoding refuses the value."""
    given = getattr(section, field)
    if given is None:
        return
    try:
        force_setattr(section, field, address(given))
    except Unfit as unfit:
        raise Unfit(f"{field} {unfit}") from None
