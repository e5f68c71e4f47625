"""Networks: prefixes under one name. A label of an endpoint names its network."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_network

import msgspec
from msgspec.structs import force_setattr

from holdfast.model.base.address import prefixes
from holdfast.model.base.keys import named, own
from holdfast.model.base.kind import Column, Kind

NETWORK_LABEL = "holdfast/network"
"""The label of an endpoint that names its network."""


class Network(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, kw_only=True):
    """Prefixes that contain the addresses of all endpoints of the network."""

    prefixes: tuple[str, ...]
    description: str | None = None

    def __post_init__(self) -> None:
        if not self.prefixes:
            raise ValueError("a network needs at least one prefix")
        force_setattr(self, "prefixes", prefixes(self.prefixes))

    def has(self, prefix: str) -> bool:
        """Tell whether an address or prefix lies within the network."""
        inner = ip_network(prefix, strict=False)
        mine = [ip_network(one) for one in self.prefixes]
        return any(
            inner.version == outer.version and inner.prefixlen >= outer.prefixlen and inner.network_address in outer
            for outer in mine
        )


def network_of(labels: Mapping[str, str]) -> str:
    """The network of an endpoint with these labels; empty for none."""
    return labels.get(NETWORK_LABEL, "")


NETWORK: Kind[Network, str] = Kind(
    name="network",
    plural="networks",
    struct=Network,
    place=named(own("networks/")),
    columns=(
        Column("NETWORK", lambda name, _: name),
        Column("PREFIXES", lambda _, network: " ".join(network.prefixes)),
        Column("DESCRIPTION", lambda _, network: network.description or "", wide=True),
    ),
)
