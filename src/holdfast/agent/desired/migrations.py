"""Live migrations of a source: which workloads are moving, from where and to where, and queries about their end. Pure.

A migration is named like the endpoint at its target, so even one whose value is unreadable tells its target. A
migration that is gone stays in `ended` until it is known whether its workload arrived or turned back.

Two situations need a query to the store. An endpoint would take an address from an older endpoint of the same workload:
is it the target of a migration that has not been seen here yet? A migration is gone: has its workload arrived, or
turned back? Both have the same answer: no migration to that place is in the store any more, and the endpoints at both
ends exist there exactly as they are known here. While both ends exist it is not over, because a driver may delete the
migration before the endpoint that is no longer needed; but that takes it no longer than `PATIENCE`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from holdfast.model.base.name import join
from holdfast.model.base.region import Region
from holdfast.model.base.time import Duration
from holdfast.model.calico.endpoint import ENDPOINT, Endpoint, EndpointName
from holdfast.model.calico.migration import MIGRATION

PATIENCE = Duration(seconds=30)
"""Longest time between the delete of a migration and the delete of the endpoint that it leaves behind."""


class Move(NamedTuple):
    """Source and target of a migration."""

    source: EndpointName
    target: EndpointName


class Arrival(msgspec.Struct, frozen=True, gc=False):
    """Workload that migrates to this host, as its endpoint stands here, and where it comes from."""

    endpoint: Endpoint
    source: str
    ended: bool = False
    """Its migration is gone."""

    def __str__(self) -> str:
        state = ", which is gone: checking in the store whether it has arrived" if self.ended else ""
        return f"arrives here by migration from {self.source}{state}"


class Migrations:
    """Migrations by their store key (`path`)."""

    def __init__(self) -> None:
        self._known: dict[bytes, Move] = {}
        self._about: dict[EndpointName, set[bytes]] = {}
        self._unreadable: frozenset[EndpointName] = frozenset()
        self.ended: set[bytes] = set()
        """Migrations that are gone, with an end that is not known yet."""
        self._departed: set[Move] = set()
        """Migrations whose workload was once gone from its source."""

    def get(self, path: bytes) -> Move | None:
        return self._known.get(path)

    def put(self, path: bytes, move: Move | None) -> None:
        """Record a migration that is in progress; None records that it is over."""
        old = self._known.pop(path, None)
        self._departed -= {old}
        for name in old or ():
            self._about[name].discard(path)
            if not self._about[name]:
                del self._about[name]
        self.ended.discard(path)
        if move is not None:
            self._known[path] = move
            for name in move:
                self._about.setdefault(name, set()).add(path)

    def mark_ended(self, path: bytes) -> None:
        """Record that a migration is gone with an unknown end. The new `Move` object keeps answers about an earlier end
        of it from being taken for this one."""
        self._known[path] = Move(*self._known[path])
        self.ended.add(path)

    def about(self, name: EndpointName) -> Collection[bytes]:
        """Return the migrations from or to that endpoint."""
        return sorted(self._about.get(name, ()))

    def towards(self, name: EndpointName) -> Move | None:
        """Return the migration with that endpoint as its target."""
        return next((move for path in self.about(name) if (move := self._known[path]).target == name), None)

    def mark_departed(self, name: EndpointName) -> None:
        """Record that the workload is gone from there; if it comes back, it comes back as a new one."""
        self._departed.update(move for path in self.about(name) if (move := self._known[path]).source == name)

    def has_departed(self, move: Move) -> bool:
        return move in self._departed

    def is_expected(self, name: EndpointName) -> bool:
        """Return whether a migration has this target, unreadable ones included."""
        return name in self._unreadable or self.towards(name) is not None

    def set_unreadable(self, names: frozenset[EndpointName]) -> frozenset[EndpointName]:
        """Replace the targets of unreadable migrations; return every endpoint that this may concern."""
        before, self._unreadable = self._unreadable, names
        return before ^ names

    def unreadable_to(self, host: str) -> list[EndpointName]:
        """Return the targets of unreadable migrations on that host."""
        return [name for name in self._unreadable if name.node == host]

    def __iter__(self) -> Iterator[tuple[bytes, Move]]:
        return iter(sorted(self._known.items()))

    def __bool__(self) -> bool:
        return bool(self._known or self._unreadable)


def moved(endpoint: Endpoint, target: EndpointName) -> Endpoint:
    """Return the endpoint as it will stand at its target."""
    metadata = replace(endpoint.metadata, name=join(target))
    return replace(endpoint, metadata=metadata, spec=replace(endpoint.spec, node=target.node))


def without_host(name: str, host: str) -> str:
    """Strip the host from an endpoint's name, by its length: a start does this for every endpoint."""
    return name[len(host) + host.count("-") + 1 :]


class MigrationQuery(msgspec.Struct, frozen=True, eq=False):
    """Query about one object in the store, as it is known here."""

    path: bytes
    subject: Endpoint | Move
    """The unconfirmed endpoint, or the migration that is gone."""
    ends: tuple[EndpointName, ...]
    """Target, and source if that is known."""
    exist: tuple[bool, ...]
    """Which of the ends are known here."""

    def is_same(self, other: MigrationQuery | None) -> bool:
        """Return whether this is the same query: the answer to an earlier one does not count, however similar."""
        return other is not None and self.subject is other.subject and self.exist == other.exist

    def keys(self, region: Region) -> list[bytes]:
        """Store keys to read at one revision."""
        return [MIGRATION.key(region, self.ends[0]), *(ENDPOINT.key(region, end) for end in self.ends)]

    def is_answered(self, found: Sequence[bool], waited: Duration) -> bool:
        """`found` tells which of the keys exist in the store."""
        migrates, *exist = found
        if migrates or tuple(exist) != self.exist:
            return False
        return exist != [True, True] or waited >= PATIENCE
