"""A kernel in memory: forwarding entries, neighbours, nexthops and routes, and everything that can go wrong with them.

It outlives the agent, and behaves as Linux does where that hurts: a nexthop takes its routes with it, a route by a
nexthop that is not there is refused, and a link that flaps drops what goes over it. It can hold objects that are not
ours, be interrupted while it is read, refuse single changes, not be ready, or be away. `seen` hears of every change of
what is there, so that a judge can look at each moment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from holdfast.agent.claims import ClaimKey, ClaimKind, LocalRoute, NexthopEntry, RemoteRoute, Shape, nexthop
from holdfast.agent.dataplane.api import ClaimChange, HostDataplaneInfo, ReadInterrupted
from holdfast.reconcile import Away


async def _at_once() -> None:
    """Changes take no time."""


@dataclass
class FakeHandler:
    """Something else that has to acknowledge deletions. `calls` are the changes that it has taken, in order."""

    name: str = "other"
    waits_for: str | None = None
    away: str | None = None
    refuse: Callable[[ClaimChange], str | None] = lambda _change: None
    calls: list[ClaimChange] = field(default_factory=list)

    def ready(self) -> str | None:
        return self.waits_for

    async def apply(self, changes: Sequence[ClaimChange]) -> Sequence[str | None]:
        if self.away is not None:
            raise Away(self.name, self.away)
        answers = [self.refuse(change) for change in changes]
        self.calls += [change for change, answer in zip(changes, answers, strict=True) if answer is None]
        return answers


@dataclass
class FakeKernel:
    """`objects` is what carries our tag; `foreign` is somebody else's, and never seen by a reader."""

    name: str = "kernel"
    objects: dict[ClaimKey, Shape] = field(default_factory=dict)
    foreign: dict[ClaimKey, Shape] = field(default_factory=dict)
    interfaces: set[str] | None = None
    """Those that exist; None stands for all."""
    own: Mapping[ClaimKey, Shape] = field(default_factory=dict)
    waits_for: str | None = None
    away: str | None = None
    interruptions: int = 0
    """How many of the next reads are interrupted."""
    refuse: Callable[[ClaimChange], str | None] = lambda _change: None
    pause: Callable[[], Awaitable[None]] = _at_once
    """Awaited before each change and each read: where time passes, and processes die."""
    seen: list[Callable[[ClaimKey, Shape | None], None]] = field(default_factory=list)
    calls: list[ClaimChange] = field(default_factory=list)
    """Every change that was made, in order."""
    _disturbed: set[ClaimKey] = field(default_factory=set)
    _anything: bool = False
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    def ready(self) -> str | None:
        return self.waits_for

    async def read(self, keys: Collection[ClaimKey] | None = None) -> Mapping[ClaimKey, Shape]:
        self._reachable()
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
            self._reachable()
            await self.pause()
            answers.append(self._applied(change))
        return answers

    def obstacle(self, key: ClaimKey, shape: Shape) -> str | None:
        if isinstance(shape, LocalRoute) and self.interfaces is not None and shape.interface not in self.interfaces:
            return f"interface {shape.interface} does not exist"
        return None

    async def disturbed(self) -> Collection[ClaimKey] | None:
        await self._news.wait()
        self._news.clear()
        keys, self._disturbed = self._disturbed, set()
        anything, self._anything = self._anything, False
        return None if anything else keys

    def describe(self) -> HostDataplaneInfo:
        return HostDataplaneInfo(self.name, self.own)

    def reattach(self) -> None:
        """Another process reads the events from now on; those of the last one are lost with it."""
        self._disturbed, self._anything, self._news = set(), False, asyncio.Event()

    def flush(self, keys: Collection[ClaimKey], *, silently: bool = False) -> None:
        """Somebody removes objects of ours."""
        for key in sorted(keys, reverse=True):
            self._remove(key)
        if not silently:
            self._tell(keys)

    def flap(self) -> None:
        """The links go down and come back: routes, nexthops and neighbours are gone, forwarding entries stay."""
        for key in sorted(self.objects, reverse=True):
            if key.kind in (ClaimKind.NEIGHBOUR, ClaimKind.NEXTHOP, ClaimKind.ROUTE):
                self._remove(key)
        self._tell(None)

    def appear(self, interface: str) -> None:
        """An interface comes up."""
        if self.interfaces is not None:
            self.interfaces.add(interface)
        self._tell(None)

    def disappear(self, interface: str) -> None:
        """An interface is gone, and its routes with it."""
        assert self.interfaces is not None, "name the interfaces that exist before taking one away"
        self.interfaces.discard(interface)
        for key, shape in list(self.objects.items()):
            if isinstance(shape, LocalRoute) and shape.interface == interface:
                self._remove(key)
        self._tell(None)

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
            return f"{change.key} is somebody else's" if change.new is not None else None
        if change.new is None:
            return None
        shape = change.new.value.shape
        if isinstance(shape, RemoteRoute) and nexthop(shape.via) not in self.objects:
            return f"there is no nexthop {shape.via}"
        return self.obstacle(change.key, shape)

    def _put(self, key: ClaimKey, shape: Shape) -> None:
        self.objects[key] = shape
        for hear in self.seen:
            hear(key, shape)

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
        for hear in self.seen:
            hear(key, None)

    def _tell(self, keys: Collection[ClaimKey] | None) -> None:
        if keys is None:
            self._anything = True
        else:
            self._disturbed.update(keys)
        self._news.set()

    def _reachable(self) -> None:
        if self.away is not None:
            raise Away(self.name, self.away)
