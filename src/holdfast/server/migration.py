"""Live migrations: when has a workload arrived, and who has been told? Pure.

A migration has arrived when the agent of its target host says that the endpoint is up there. That is told once: what
was told is kept in the inventory under the migration's key, until the migration is gone. An agent that says something
else later changes nothing about it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec

from holdfast.model.endpoint_status import ENDPOINT_STATUS, EndpointStatus, EndpointStatusName, State
from holdfast.model.migration import Migration
from holdfast.model.name import join
from holdfast.model.region import Region

KIND = "migration"


class Told(msgspec.Struct, frozen=True, gc=False):
    """That a migration has arrived was told, under this idempotency key."""

    key: str


def identity(key: bytes, migration: Migration, revision: int) -> str:
    """The same for the same migration, however often it is told; another one for the next of the same workload. One
    that has no uid is told from the next by the revision that it was written at."""
    individual = migration.metadata.uid or f"revision {revision}"
    return hashlib.sha256(f"{key.decode(errors='replace')} {individual}".encode()).hexdigest()[:32]


def has_arrived(region: Region, migration: Migration, reports: Mapping[bytes, Any]) -> bool:
    target = EndpointStatusName.of(region, migration.target)
    said = reports.get(ENDPOINT_STATUS.key(region, target))
    return isinstance(said, EndpointStatus) and said.status is State.UP


def wanted(
    region: Region, key: bytes, migration: Migration, revision: int, reports: Mapping[bytes, Any], last: Told | None
) -> Told | None:
    """What should have been told about a migration that is under way."""
    mine = Told(identity(key, migration, revision))
    return mine if last == mine or has_arrived(region, migration, reports) else None


def of_endpoint(migration: Migration) -> str:
    """What the inventory calls the endpoint that migrates."""
    target = migration.target
    return join((target.orchestrator, target.workload, target.endpoint))


def notice(key: str, migration: Migration) -> dict[str, str]:
    """What is told."""
    target = migration.target
    return {
        "event": "live-migration-arrived",
        "idempotency_key": key,
        "endpoint": of_endpoint(migration),
        "workload": target.workload,
        "port": target.endpoint,
        "from": migration.source.node,
        "to": target.node,
    }
