"""Fleet prefixes: the networks of the inventory in one key that the leader publishes and every agent watches (N21)."""

from __future__ import annotations

import msgspec
from msgspec.structs import force_setattr

from holdfast.model.base.address import prefixes
from holdfast.model.base.keys import own, single
from holdfast.model.base.kind import Column, Kind


class FleetPrefixes(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Prefixes of all networks. They bound the fleet only while every endpoint of the inventory is in a network."""

    prefixes: tuple[str, ...] = ()
    bounded: bool = False

    def __post_init__(self) -> None:
        force_setattr(self, "prefixes", prefixes(self.prefixes))


FLEET_PREFIXES: Kind[FleetPrefixes, str] = Kind(
    name="fleet-prefixes",
    plural="fleet-prefixes",
    struct=FleetPrefixes,
    place=single(own("fleet/prefixes"), "prefixes"),
    columns=(Column("PREFIXES", lambda _, fleet: " ".join(fleet.prefixes)),),
)
