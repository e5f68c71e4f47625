"""An agent's dataplane in memory: forwarding entries, neighbours, nexthops and routes, and the faults of a kernel.

It outlives the agent and behaves as Linux does where that hurts: deleting a nexthop deletes its routes, a route through
a missing nexthop is refused, and a link that flaps drops what goes over it. It can hold objects that are not ours, be
interrupted while it is read, refuse single changes, not be ready, or be unreachable. The `observers` are called with
every change of its objects, so that an invariant can be checked at each moment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence, Set
from dataclasses import dataclass, field

from holdfast.agent.claims import ClaimKey, ClaimKind, LocalRoute, NexthopEntry, RemoteRoute, Shape, nexthop
from holdfast.agent.dataplane.api import ClaimChange, HostDataplaneInfo, ReadInterrupted
from holdfast.testing.fakes.target import FaultyTarget


async def _no_delay() -> None:
    """Change take no time."""


@dataclass
class FakeHandler(FaultyTarget[ClaimChange]):
    """A further handler that has to acknowledge deletes."""

    name: str = "other"
    waits_for: str | None = None

    def ready(self) -> str | None:
        return self.waits_for

    async def apply(self, changes: Sequence[ClaimChange]) -> Sequence[str | None]:
        self.check_reachable()
        answers = [self.refuse(change) for change in changes]
        self.calls += [change for change, answer in zip(changes, answers, strict=True) if answer is None]
        return answers


@dataclass
class FakeKernel(FaultyTarget[ClaimChange]):
    """`objects` is what carries our route protocol; `foreign` belongs to others and is never read."""

    name: str = "kernel"
    objects: dict[ClaimKey, Shape] = field(default_factory=dict)
    foreign: dict[ClaimKey, Shape] = field(default_factory=dict)
    interfaces: set[str] | None = None
    """The interfaces that exist; None stands for all."""
    own: Mapping[ClaimKey, Shape] = field(default_factory=dict)
    tables: dict[int, Set[ClaimKey]] = field(default_factory=dict)
    """Routes of other programs, by table."""
    waits_for: str | None = None
    interruptions: int = 0
    """Number of reads to interrupt."""
    pause: Callable[[], Awaitable[None]] = _no_delay
    """Awaited before each change and each read: where time passes, and processes die."""
    observers: list[Callable[[ClaimKey, Shape | None], None]] = field(default_factory=list)
    _disturbed: set[ClaimKey] = field(default_factory=set)
    _anything: bool = False
    _events: asyncio.Event = field(default_factory=asyncio.Event)

    def ready(self) -> str | None:
        return self.waits_for

    async def read(self, keys: Collection[ClaimKey] | None = None) -> Mapping[ClaimKey, Shape]:
        self.check_reachable()
        await self.pause()
        if self.interruptions:
            self.interruptions -= 1
            raise ReadInterrupted
        if keys is None:
            return dict(self.objects)
        return {key: self.objects[key] for key in keys if key in self.objects}

    async def apply(self, changes: Sequence[ClaimChange]) -> Sequence[str | None]:
        answers = []
        for change in changes:
            self.check_reachable()
            await self.pause()
            answers.append(self._applied(change))
        return answers

    def blocked_by(self, key: ClaimKey, shape: Shape) -> str | None:
        if isinstance(shape, LocalRoute) and self.interfaces is not None and shape.interface not in self.interfaces:
            return f"interface {shape.interface} does not exist"
        return None

    def routes_in(self, table: int) -> Set[ClaimKey]:
        return self.tables.get(table, frozenset())

    async def disturbed(self) -> Collection[ClaimKey] | None:
        await self._events.wait()
        self._events.clear()
        keys, self._disturbed = self._disturbed, set()
        anything, self._anything = self._anything, False
        return None if anything else keys

    def describe(self) -> HostDataplaneInfo:
        return HostDataplaneInfo(self.name, self.own)

    def reattach(self) -> None:
        """Give the events to a new process; those that the last one had not read are lost."""
        self._disturbed, self._anything, self._events = set(), False, asyncio.Event()

    def flush(self, keys: Collection[ClaimKey], *, silently: bool = False) -> None:
        """Remove objects of ours behind the agent's back; `silently` without an event."""
        for key in sorted(keys, reverse=True):
            self._remove(key)
        if not silently:
            self._notify(keys)

    def flap(self) -> None:
        """Take the links down and up: routes, nexthops and neighbours are gone, forwarding entries stay."""
        for key in sorted(self.objects, reverse=True):
            if key.kind in (ClaimKind.NEIGHBOUR, ClaimKind.NEXTHOP, ClaimKind.ROUTE):
                self._remove(key)
        self._notify(None)

    def appear(self, interface: str) -> None:
        """Add an interface."""
        if self.interfaces is not None:
            self.interfaces.add(interface)
        self._notify(None)

    def disappear(self, interface: str) -> None:
        """Remove an interface, and its routes with it."""
        assert self.interfaces is not None, "name the interfaces that exist before taking one away"
        self.interfaces.discard(interface)
        for key, shape in list(self.objects.items()):
            if isinstance(shape, LocalRoute) and shape.interface == interface:
                self._remove(key)
        self._notify(None)

    def _applied(self, change: ClaimChange) -> str | None:
        refusal = self.refuse(change) or self._refusal(change)
        if refusal is not None:
            return refusal
        self.calls.append(change)
        if change.new is None:
            self._remove(change.key)
        else:
            self._put(change.key, change.new.value.shape)
        return None

    def _refusal(self, change: ClaimChange) -> str | None:
        if change.key in self.foreign:
            return f"{change.key} belongs to another program" if change.new is not None else None
        if change.new is None:
            return None
        shape = change.new.value.shape
        if isinstance(shape, RemoteRoute) and nexthop(shape.via) not in self.objects:
            return f"there is no nexthop {shape.via}"
        return self.blocked_by(change.key, shape)

    def _put(self, key: ClaimKey, shape: Shape) -> None:
        self.objects[key] = shape
        for observe in self.observers:
            observe(key, shape)

    def _remove(self, key: ClaimKey) -> None:
        shape = self.objects.pop(key, None)
        if shape is None:
            return
        if isinstance(shape, NexthopEntry):
            routes = [
                each for each, via in self.objects.items() if isinstance(via, RemoteRoute) and nexthop(via.via) == key
            ]
            for route in routes:
                self._remove(route)
        for observe in self.observers:
            observe(key, None)

    def _notify(self, keys: Collection[ClaimKey] | None) -> None:
        if keys is None:
            self._anything = True
        else:
            self._disturbed.update(keys)
        self._events.set()
