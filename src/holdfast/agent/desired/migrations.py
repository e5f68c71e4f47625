"""Live migrations of a source: which workloads are moving, from where and to where. Pure.

A migration is named like the endpoint at its target, so even one whose value is unreadable tells its target.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

import msgspec

from holdfast.agent.desired.slim_endpoint import SlimEndpoint
from holdfast.model.calico.endpoint import EndpointName


class Move(NamedTuple):
    """Source and target of a migration."""

    source: EndpointName
    target: EndpointName


class Arrival(msgspec.Struct, frozen=True, gc=False):
    """Workload that migrates to this host, as its endpoint stands here, and where it comes from."""

    endpoint: SlimEndpoint
    source: str

    def __str__(self) -> str:
        return f"arrives here by migration from {self.source}"


class Migrations:
    """Migrations by their store key (`path`)."""

    def __init__(self) -> None:
        self._known: dict[bytes, Move] = {}
        self._about: dict[EndpointName, set[bytes]] = {}
        self._unreadable: frozenset[EndpointName] = frozenset()

    def get(self, path: bytes) -> Move | None:
        return self._known.get(path)

    def put(self, path: bytes, move: Move | None) -> None:
        """Record a migration that is in progress; None records that it is over."""
        old = self._known.pop(path, None)
        for name in old or ():
            self._about[name].discard(path)
            if not self._about[name]:
                del self._about[name]
        if move is not None:
            self._known[path] = move
            for name in move:
                self._about.setdefault(name, set()).add(path)

    def about(self, name: EndpointName) -> Collection[bytes]:
        """Return the migrations from or to that endpoint."""
        return sorted(self._about.get(name, ()))

    def towards(self, name: EndpointName) -> Move | None:
        """Return the migration with that endpoint as its target."""
        return next((move for path in self.about(name) if (move := self._known[path]).target == name), None)

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
