"""Live migrations: decides when a workload has arrived. Pure.

A migration has arrived when the live agent of its target host reports, knowing of the migration, that the endpoint is
up there. The webhook is notified once: the notification is recorded in the inventory under the migration's key, until
the migration is gone. A later report of the agent changes nothing about it.

An "up" has no lease, and one that is older than the migration may be of a workload that has long left that host. A live
agent deletes or rewrites it, unless it is true again: an agent does not rewrite an equal report. So an older report
counts once its agent has sent two heartbeats since the migration: between the two it has compared all its reports with
the actual state, many times.
"""

from __future__ import annotations

import hashlib
from collections.abc import Container, Mapping
from typing import Any, Protocol

import msgspec

from holdfast.model.base.name import join
from holdfast.model.base.region import Region
from holdfast.model.calico.endpoint_status import ENDPOINT_STATUS, EndpointState, EndpointStatus, EndpointStatusName
from holdfast.model.calico.migration import Migration
from holdfast.server.status.rules.bindings import agent_of

KIND = "migration"


class Notified(msgspec.Struct, frozen=True, gc=False):
    """Row of the inventory: the webhook was notified of an arrival, under this idempotency key."""

    key: str


def identity(key: bytes, migration: Migration, revision: int) -> str:
    """Idempotency key: the same for every notification of one migration, another for the workload's next migration. A
    migration without a uid is distinguished by the revision that it was written at."""
    individual = migration.metadata.uid or f"revision {revision}"
    return hashlib.sha256(f"{key.decode(errors='replace')} {individual}".encode()).hexdigest()[:32]


class Reports(Protocol):
    """Reports of agents and endpoints, and the revisions at which they were last written."""

    @property
    def objects(self) -> Mapping[bytes, Any]: ...

    def mod_revision(self, key: bytes) -> int: ...


class TargetReports:
    """Reports of the target hosts of migrations, and whether they count."""

    def __init__(self, region: Region, reports: Reports) -> None:
        self._region = region
        self._reports = reports
        self._heartbeats: dict[bytes, tuple[int, int]] = {}
        """By migration: its revision, and that of the agent's first heartbeat after it."""

    def has_arrived(self, key: bytes, migration: Migration, revision: int) -> bool:
        """True if that migration, written at that revision, has arrived."""
        status_key = ENDPOINT_STATUS.key(self._region, EndpointStatusName.of(self._region, migration.target))
        agent, reports = agent_of(status_key, len(ENDPOINT_STATUS.prefix(self._region))), self._reports
        report = reports.objects.get(status_key)
        is_up = isinstance(report, EndpointStatus) and report.status is EndpointState.UP
        if agent not in reports.objects or not is_up:
            self._heartbeats.pop(key, None)
            return False
        if reports.mod_revision(status_key) > revision:
            return True
        return self._has_second_heartbeat(key, revision, reports.mod_revision(agent))

    def _has_second_heartbeat(self, key: bytes, revision: int, alive: int) -> bool:
        if alive <= revision:
            return False
        begun, first = self._heartbeats.get(key, (0, 0))
        if begun != revision:
            self._heartbeats[key] = revision, alive
            return False
        return alive > first

    def forget(self, under_way: Container[bytes]) -> None:
        """Drop the state of migrations that are no longer under way."""
        self._heartbeats = {key: seen for key, seen in self._heartbeats.items() if key in under_way}


def of_endpoint(migration: Migration) -> str:
    """Name of the migrating endpoint in the inventory."""
    target = migration.target
    return join((target.orchestrator, target.workload, target.endpoint))


def notice(key: str, migration: Migration) -> dict[str, str]:
    """Body of the webhook call."""
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
