"""Following one source: the hosts, endpoints and migrations of a region in the store, as a demand.

Nothing of a source counts before every one of its prefixes has delivered a complete list: half a source could hand a
claim to the wrong owner. From then on what is taken over is always whole: never the half of a list or of a batch of
events, in which an address has left its old owner and not yet reached its new one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable
from random import Random
from typing import Any

import structlog

from holdfast.agent.claims import Claim, ClaimKey
from holdfast.agent.desired.migration_check import MigrationCheck
from holdfast.agent.desired.peers import LocalHost
from holdfast.agent.desired.source_claims import SourceClaims
from holdfast.model.base.bad import Bad
from holdfast.model.base.kind import Kind
from holdfast.model.base.region import Region
from holdfast.model.base.time import Duration
from holdfast.model.calico.endpoint import ENDPOINT, EndpointName
from holdfast.model.calico.host import HOST
from holdfast.model.calico.migration import MIGRATION
from holdfast.model.control.allowance import ALLOWANCE
from holdfast.model.control.scope import ScopeKind
from holdfast.reconcile import Change, Owned, Synced
from holdfast.runtime.clock import Clock
from holdfast.store.api import OwnKey, Store
from holdfast.store.mirror.mirror import Mirror
from holdfast.store.mirror.verify import agree

log = structlog.get_logger(__name__)

Remembered = Callable[[], Iterable[tuple[ClaimKey, Owned[Claim]]]]

LOOK_AGAIN = Duration(seconds=5)
GONE_KEPT = 100_000
"""Claims of which it is remembered since when nobody wants them; beyond that, since now."""


class SourceWatcher:
    def __init__(
        self, name: str, store: Store, region: Region, here: LocalHost, clock: Clock, own: OwnKey | None = None
    ) -> None:
        """`own` is a key that this host writes anyway: a watch on which it does not come back is dead (C38)."""
        self.name = name
        self.store = store
        self.region = region
        self._clock = clock
        self._hosts = Mirror(store, HOST.prefix(region), HOST.decode, own=own, now=clock.now)
        self._endpoints = Mirror(store, ENDPOINT.prefix(region), ENDPOINT.decode, own=own, now=clock.now)
        self._migrations = Mirror(store, MIGRATION.prefix(region), MIGRATION.decode, own=own, now=clock.now)
        self._allowances = Mirror(store, ALLOWANCE.prefix(region), ALLOWANCE.decode, own=own, now=clock.now)
        self.demand = SourceClaims(here, region, self._revision)
        self._arrivals = MigrationCheck(store, region, clock, Random(f"{here.host} {name}"))
        self.lists = 0
        """How many lists its state comes from: one more may be that of a restored store, or of another."""
        self._heads: list[int] = []
        """By which revision what is taken over is known, of each prefix."""
        self._named: set[bytes] = set()
        self._gone: dict[ClaimKey, int] = {}
        """By which revision a claim was not wanted any more that had been wanted before."""
        self._listed = 0
        """The same of all others."""
        self._waiting: dict[Mirror[Any], set[bytes]] = {mirror: set() for mirror in self._mirrors()}
        self.synced = Synced(clock.now())

    async def run(self, wake: Callable[[], None]) -> None:
        """Follows for ever; `wake` is called when there is something to take over."""
        async with asyncio.TaskGroup() as tasks:
            for mirror in self._mirrors():
                tasks.create_task(self._follow(mirror))
                tasks.create_task(self._gather(mirror, wake))
            tasks.create_task(self._follow(self._allowances))
            tasks.create_task(self._arrivals.run(wake))

    async def catch_up(self, remembered: Remembered = tuple) -> set[ClaimKey]:
        """Takes over all that the mirrors show, as a whole; the claims that it may have touched. `remembered` tells
        what earlier lives have programmed."""
        while any(not mirror.settled or mirror.backlog for mirror in self._mirrors()):  # noqa: ASYNC110
            await asyncio.sleep(0)  # taking in and gathering need nothing but turns of the loop
        if not is_complete(self._mirrors()):
            return set()
        touched = self._take_over()
        if self.synced.revision is None:
            touched |= self.demand.recall((key, owned) for key, owned in remembered() if owned.source == self.name)
        touched |= self._arrivals.weigh(self.demand, touched)
        self._note()
        self._note_gone(touched)
        return touched

    async def refresh(self) -> None:
        """Returns when a fresh, linearizable list is exactly what is known here. Raises `Away`."""
        for mirror, prefix in zip(self._mirrors(), self._prefixes(), strict=True):
            await agree(self.store, prefix, mirror)

    def is_allowed(self, change: Change[ClaimKey, Claim]) -> bool:
        """Whether an operator has let the syncer's brake open for what this deletion follows from."""
        since = self._gone.get(change.key, self._listed)
        now = self._clock.wall()
        allowances = self._allowances.objects.values()
        return any(one.scope.target is ScopeKind.SYNCER and one.covers(since, now) for one in allowances)

    def host(self, name: str) -> bool | None:
        """Whether the source knows a host of that name; None before it has spoken."""
        return HOST.key(self.region, name) in self._hosts.objects if self._hosts.synced else None

    def _take_over(self) -> set[ClaimKey]:
        touched: set[ClaimKey] = set()
        for key in self._taken(self._migrations):
            touched |= self.demand.migration(key, self._migrations.objects.get(key))
        for key in self._taken(self._hosts):
            touched |= self.demand.host(key, self._hosts.objects.get(key))
        for key in self._taken(self._endpoints):
            touched |= self.demand.endpoint(key, self._endpoints.objects.get(key))
        before, self._heads = self._heads, [mirror.revision for mirror in self._mirrors()]
        if self._heads != before:
            touched |= self.demand.rewritten()
        return touched | self.demand.unreadable(self._unread(ENDPOINT), self._unread(MIGRATION))

    def _unread(self, kind: Kind[Any, EndpointName]) -> frozenset[EndpointName]:
        """Whose values cannot be read; their keys can."""
        mirror = self._endpoints if kind is ENDPOINT else self._migrations
        names = [kind.parse(key, self.region) for key in mirror.unreadable]
        return frozenset(name for name in names if not isinstance(name, Bad))

    def _taken(self, mirror: Mirror[Any]) -> Collection[bytes]:
        """What has changed: first what is there, then what is gone, as a move is written."""
        taken, self._waiting[mirror] = self._waiting[mirror], set()
        objects = mirror.objects
        there = [key for key in taken if key in objects]
        return [*sorted(there), *sorted(taken.difference(there))]

    def _note(self) -> None:
        self._name_bad()
        self.lists = sum(mirror.lists for mirror in self._mirrors())
        revision = max(self._heads)  # a prefix that is quiet stays where it was
        unreadable = tuple(unreadable_keys(self._mirrors()))
        if (revision, unreadable) != (self.synced.revision, self.synced.unreadable):
            news = self.synced.revision is None or unreadable != self.synced.unreadable
            self.synced = Synced(self._clock.now() if news else self.synced.since, revision, unreadable)

    def _name_bad(self) -> None:
        """Each value that cannot be read is named once, as long as it stays so."""
        bad = {key: value for mirror in self._mirrors() for key, value in mirror.bad.items()}
        for key in bad.keys() - self._named:
            log.error(f"{bad[key]}; it counts as present, with its last good object where one is known")
        self._named = set(bad)

    def _note_gone(self, touched: Iterable[ClaimKey]) -> None:
        revision = self.synced.revision or 0
        self._listed = self._listed or revision
        for key in touched:
            self._gone.pop(key, None)
            if self.demand.wanted(key) is None:
                self._gone[key] = revision
        if len(self._gone) > GONE_KEPT:
            self._gone.clear()
            self._listed = revision

    async def _follow(self, mirror: Mirror[Any]) -> None:
        await mirror.keep_running(
            lambda refusal: log.error(f"{self.name} cannot be followed, what is programmed stays: {refusal}"),
            LOOK_AGAIN,
        )

    async def _gather(self, mirror: Mirror[Any], wake: Callable[[], None]) -> None:
        while True:
            deltas = await mirror.take()
            self._waiting[mirror].update(delta.key for delta in deltas)
            wake()
            await asyncio.sleep(0)

    def _mirrors(self) -> tuple[Mirror[Any], ...]:
        return self._hosts, self._endpoints, self._migrations

    def _prefixes(self) -> Iterable[bytes]:
        return HOST.prefix(self.region), ENDPOINT.prefix(self.region), MIGRATION.prefix(self.region)

    def _revision(self, key: bytes) -> int:
        hosts, endpoints, migrations = self._mirrors()
        return endpoints.good_revision(key) or hosts.good_revision(key) or migrations.good_revision(key)


def is_complete(mirrors: Iterable[Mirror[Any]]) -> bool:
    """N12: only a complete list is one; no time that has passed stands for it."""
    return all(mirror.synced for mirror in mirrors)


def unreadable_keys(mirrors: Iterable[Mirror[Any]]) -> list[str]:
    """C39: what is there and was never understood stands for something."""
    return [key.decode(errors="backslashreplace") for mirror in mirrors for key in mirror.unreadable]
