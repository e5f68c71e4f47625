"""Health checks in the store: how backends are probed, for balancers that take their frontends from there."""

from __future__ import annotations

from datetime import timedelta
from typing import Literal

import msgspec
from msgspec.structs import force_setattr

from holdfast.model.base.address import address
from holdfast.model.base.codec import Natural
from holdfast.model.base.keys import named, own
from holdfast.model.base.kind import Column, Kind


class HealthCheck(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, kw_only=True):
    """One way to find out whether a backend serves. Fields and defaults are those of the configuration file."""

    type: Literal["icmp", "tcp", "http", "https"]
    port: Natural | None = None
    interval: timedelta = timedelta(seconds=1)
    fast_interval: timedelta | None = None
    down_interval: timedelta | None = None
    timeout: timedelta = timedelta(seconds=1)
    rise: Natural = 2
    fall: Natural = 3
    jitter: Natural = 10
    source: str | None = None
    path: str = "/"
    host: str | None = None
    sni: str | None = None
    status: tuple[str, ...] = ("200-299",)
    body: str | None = None
    verify: bool = True
    ca_file: str | None = None

    def __post_init__(self) -> None:
        if self.source is not None:
            force_setattr(self, "source", address(self.source))


HEALTH_CHECK: Kind[HealthCheck, str] = Kind(
    name="health-check",
    plural="health-checks",
    struct=HealthCheck,
    place=named(own("balancing/health-checks/")),
    columns=(
        Column("CHECK", lambda name, _: name),
        Column("TYPE", lambda _, check: check.type),
        Column("PORT", lambda _, check: "" if check.port is None else str(check.port)),
        Column("INTERVAL", lambda _, check: f"{check.interval.total_seconds():g} s"),
        Column("RISE", lambda _, check: str(check.rise), wide=True),
        Column("FALL", lambda _, check: str(check.fall), wide=True),
    ),
)
