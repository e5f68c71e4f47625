"""Load-balancing kinds: health checks, backends and frontends in the store.

Their structs are the sections of the balancer's configuration file (`config.sections`), so that a field means the same
in both places.
"""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.config.sections.frontend import Backend, Frontend
from holdfast.config.sections.healthcheck import HealthCheck
from holdfast.model.base.keys import named, own
from holdfast.model.base.kind import Column, Kind

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

BACKEND: Kind[Backend, str] = Kind(
    name="backend",
    plural="backends",
    struct=Backend,
    place=named(own("balancing/backends/")),
    columns=(
        Column("BACKEND", lambda name, _: name),
        Column("WHERE", lambda _, backend: backend.address or backend.location),
        Column("PORT", lambda _, backend: str(backend.port)),
        Column("CHECKS", lambda _, backend: " ".join(backend.healthcheck)),
        Column("ENABLED", lambda _, backend: "yes" if backend.enabled else "no"),
        Column("WEIGHT", lambda _, backend: str(backend.weight), wide=True),
    ),
)

FRONTEND: Kind[Frontend, str] = Kind(
    name="frontend",
    plural="frontends",
    struct=Frontend,
    place=named(own("balancing/frontends/")),
    columns=(
        Column("FRONTEND", lambda name, _: name),
        Column("ADDRESS", lambda _, frontend: frontend.address),
        Column("PROTOCOL", lambda _, frontend: frontend.protocol),
        Column("PORT", lambda _, frontend: str(frontend.port or "all")),
        Column("POOLS", lambda _, frontend: " | ".join(" ".join(pool.backends) for pool in frontend.pools)),
        Column("DESCRIPTION", lambda _, frontend: frontend.description or "", wide=True),
    ),
)

SETTINGS_FIELDS: Mapping[str, str] = {
    HEALTH_CHECK.name: "healthchecks",
    BACKEND.name: "backends",
    FRONTEND.name: "frontends",
}
"""Field of `BalancerSettings` that holds the objects of a kind, by the name of the kind."""
