"""Backends in the store: servers behind frontends, at an address, or wherever an endpoint or a host of the fleet is."""

from __future__ import annotations

import msgspec
from msgspec.structs import force_setattr

from holdfast.model.base.address import address
from holdfast.model.base.codec import Natural
from holdfast.model.base.keys import named, own
from holdfast.model.base.kind import Column, Kind


class Backend(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, kw_only=True):
    """One server. Exactly one of address, endpoint and host says where it is."""

    address: str | None = None
    endpoint: str | None = None
    host: str | None = None
    port: Natural = 0
    healthcheck: tuple[str, ...] = ()
    enabled: bool = True
    weight: Natural = 100

    def __post_init__(self) -> None:
        if self.address is not None:
            force_setattr(self, "address", address(self.address))


def _where(backend: Backend) -> str:
    if backend.address is not None:
        return backend.address
    return f"endpoint {backend.endpoint}" if backend.endpoint is not None else f"host {backend.host}"


BACKEND: Kind[Backend, str] = Kind(
    name="backend",
    plural="backends",
    struct=Backend,
    place=named(own("balancing/backends/")),
    columns=(
        Column("BACKEND", lambda name, _: name),
        Column("WHERE", lambda _, backend: _where(backend)),
        Column("PORT", lambda _, backend: str(backend.port)),
        Column("CHECKS", lambda _, backend: " ".join(backend.healthcheck)),
        Column("ENABLED", lambda _, backend: "yes" if backend.enabled else "no"),
        Column("WEIGHT", lambda _, backend: str(backend.weight), wide=True),
    ),
)
