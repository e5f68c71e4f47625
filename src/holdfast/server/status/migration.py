"""Live migrations: when has a workload arrived, and who has been told? Pure.

A migration has arrived when the live agent of its target host says, knowing of the migration, that the endpoint is up
there. That is told once: what was told is kept in the inventory under the migration's key, until the migration is gone.
An agent that says something else later changes nothing about it.

An "up" has no lease, and one that is older than the migration may be of a workload that has long left that host. A live
agent takes it back or writes it anew, unless it is true again: an agent writes no word that stands there already. So an
older word counts once its agent has twice said since the migration that it lives: between the two it has compared all
its words with how things are, many times.
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
from holdfast.server.status.bindings import agent_of

KIND = "migration"


class Notified(msgspec.Struct, frozen=True, gc=False):
    """That a migration has arrived was told, under this idempotency key."""

    key: str


def identity(key: bytes, migration: Migration, revision: int) -> str:
    """The same for the same migration, however often it is told; another one for the next of the same workload. One
    that has no uid is told from the next by the revision that it was written at."""
    individual = migration.metadata.uid or f"revision {revision}"
    return hashlib.sha256(f"{key.decode(errors='replace')} {individual}".encode()).hexdigest()[:32]


class Reports(Protocol):
    """What agents say, of themselves and of endpoints, and at which revision they last wrote it."""

    @property
    def objects(self) -> Mapping[bytes, Any]: ...

    def mod_revision(self, key: bytes) -> int: ...


class Witnesses:
    """The agents of the hosts that migrations go to, and whether their word counts."""

    def __init__(self, region: Region, reports: Reports) -> None:
        self._region = region
        self._reports = reports
        self._lived: dict[bytes, tuple[int, int]] = {}
        """By migration: its revision, and that of the first sign of life after it."""

    def has_arrived(self, key: bytes, migration: Migration, revision: int) -> bool:
        """Whether that migration, written at that revision, has."""
        word = ENDPOINT_STATUS.key(self._region, EndpointStatusName.of(self._region, migration.target))
        agent, reports = agent_of(word, len(ENDPOINT_STATUS.prefix(self._region))), self._reports
        said = reports.objects.get(word)
        if agent not in reports.objects or not isinstance(said, EndpointStatus) or said.status is not EndpointState.UP:
            self._lived.pop(key, None)
            return False
        return reports.mod_revision(word) > revision or self._has_lived_on(key, revision, reports.mod_revision(agent))

    def _has_lived_on(self, key: bytes, revision: int, alive: int) -> bool:
        if alive <= revision:
            return False
        begun, first = self._lived.get(key, (0, 0))
        if begun != revision:
            self._lived[key] = revision, alive
            return False
        return alive > first

    def forget(self, under_way: Container[bytes]) -> None:
        """Nothing is known of migrations that are not under way any more."""
        self._lived = {key: lived for key, lived in self._lived.items() if key in under_way}


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
