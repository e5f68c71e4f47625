"""Moves: which workloads of a source are on their way, from where and to where. Pure.

A migration is named like the endpoint at its target, so one whose value cannot be read still says where to. One that
has ended is kept as `over` for whoever must not act on its end before he knows which end it was.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from holdfast.model.base.name import join
from holdfast.model.calico.endpoint import Endpoint, EndpointName


class Move(NamedTuple):
    """From where an endpoint goes to where."""

    source: EndpointName
    target: EndpointName


class Arrival(msgspec.Struct, frozen=True, gc=False):
    """A workload on its way to this host, as it stands here, and where it comes from. `over`: its migration is gone."""

    endpoint: Endpoint
    source: str
    over: bool = False

    def __str__(self) -> str:
        asked = ", which is gone: the store is asked whether it has arrived" if self.over else ""
        return f"arrives here by migration from {self.source}{asked}"


class Migrations:
    """Store keys stand for migrations."""

    def __init__(self) -> None:
        self._known: dict[bytes, Move] = {}
        self._about: dict[EndpointName, set[bytes]] = {}
        self._unread: frozenset[EndpointName] = frozenset()
        self.over: set[bytes] = set()
        """Those that have ended, and nobody knows yet how."""
        self._left: set[Move] = set()
        """Those whose workload is gone from where it came from."""

    def get(self, by: bytes) -> Move | None:
        return self._known.get(by)

    def put(self, by: bytes, move: Move | None) -> None:
        """That migration is under way like this, or is not any more."""
        old = self._known.pop(by, None)
        self._left -= {old}
        for name in old or ():
            self._about[name].discard(by)
            if not self._about[name]:
                del self._about[name]
        self.over.discard(by)
        if move is not None:
            self._known[by] = move
            for name in move:
                self._about.setdefault(name, set()).add(by)

    def finish(self, by: bytes) -> None:
        """That migration is gone, and nobody knows yet how it ended. From now on it is another object than it was: what
        was asked about an earlier end of it is not asked about this one."""
        self._known[by] = Move(*self._known[by])
        self.over.add(by)

    def about(self, name: EndpointName) -> Collection[bytes]:
        """The migrations from there or to there."""
        return sorted(self._about.get(name, ()))

    def to(self, name: EndpointName) -> Move | None:
        """The one that has that endpoint for its target."""
        return next((move for by in self.about(name) if (move := self._known[by]).target == name), None)

    def leave(self, name: EndpointName) -> None:
        """What moved from there is not there any more; if it comes again, it comes anew."""
        self._left.update(move for by in self.about(name) if (move := self._known[by]).source == name)

    def has_left(self, move: Move) -> bool:
        return move in self._left

    def is_expected(self, name: EndpointName) -> bool:
        """Whether a migration goes there, be it one that cannot be read."""
        return name in self._unread or self.to(name) is not None

    def unread(self, names: frozenset[EndpointName]) -> frozenset[EndpointName]:
        """Where to the migrations go that cannot be read, from now on; all of whom that may concern."""
        before, self._unread = self._unread, names
        return before ^ names

    def unread_to(self, host: str) -> list[EndpointName]:
        """Where to on that host the migrations go that cannot be read."""
        return [name for name in self._unread if name.node == host]

    def __iter__(self) -> Iterator[tuple[bytes, Move]]:
        return iter(sorted(self._known.items()))

    def __bool__(self) -> bool:
        return bool(self._known or self._unread)


def moved(endpoint: Endpoint, target: EndpointName) -> Endpoint:
    """That endpoint as it will stand where it goes."""
    metadata = replace(endpoint.metadata, name=join(target))
    return replace(endpoint, metadata=metadata, spec=replace(endpoint.spec, node=target.node))


def hostless(name: str, host: str) -> str:
    """The name of an endpoint on that host without the host, told from its text: a start asks for all there are."""
    return name[len(host) + host.count("-") + 1 :]
