"""Which hosts and endpoints the inventory has, followed: the other side that a status is computed from (C31).

Read whole with every comparison of everything; in between, what changed is looked up when the database says that
something did. Changes are looked for from a thousand revisions back: rows may commit late (C37). Whatever is missed is
found by the next audit.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from typing import Protocol

from holdfast.inventory.api import ChangedKeys, Observed
from holdfast.inventory.sql.thread import RunInThread
from holdfast.model.base.time import NEVER, Duration, Instant
from holdfast.model.calico.endpoint import ENDPOINT
from holdfast.model.calico.host import HOST
from holdfast.server.status.agents import AgentRules
from holdfast.server.status.bindings import Bindings
from holdfast.server.status.endpoints import EndpointRules

PAGE = 5_000
OVERLAP = 1_000
LOOK_BACK_EVERY = Duration(seconds=5)


class Rows(Protocol):
    async def reload(self) -> None:
        """Reads all of them."""
        ...

    async def follow(self, now: Instant) -> Collection[bytes]:
        """The status keys of what has changed since the last time."""
        ...


class _Changes:
    """Finds out cheaply whether anything changed, and then what."""

    def __init__(self, observed: Observed, aside: RunInThread, kind: str) -> None:
        self._observed = observed
        self._aside = aside
        self._kind = kind
        self._newest = 0
        self._looked = NEVER

    async def begin(self) -> None:
        self._newest = await self._aside(self._observed.newest)

    async def since(self, now: Instant) -> ChangedKeys:
        look_back = now - self._looked >= LOOK_BACK_EVERY
        touched = await self._aside(partial(self._ask, look_back))
        self._newest = touched.newest
        if look_back:
            self._looked = now
        return touched

    def _ask(self, look_back: bool) -> ChangedKeys:
        newest = self._observed.newest()
        if newest == self._newest and not look_back:
            return ChangedKeys(newest)
        return self._observed.changed_since(self._kind, max(0, self._newest - OVERLAP))


class HostRows:
    """The region's hosts."""

    def __init__(self, agents: AgentRules, observed: Observed, aside: RunInThread) -> None:
        self._agents = agents
        self._observed = observed
        self._aside = aside
        self._changes = _Changes(observed, aside, HOST.name)

    async def reload(self) -> None:
        await self._changes.begin()
        names = await self._aside(partial(self._observed.hosts, self._agents.region.name))
        self._agents.hosts = {self._agents.key(name) for name in names}

    async def follow(self, now: Instant) -> Collection[bytes]:
        touched = await self._changes.since(now)
        if not touched.present and not touched.gone:
            return ()
        before = set(self._agents.hosts)
        await self.reload()
        return before ^ set(self._agents.hosts)


class EndpointRows:
    """The region's endpoints, by the keys at which their hosts speak of them."""

    def __init__(self, endpoints: EndpointRules, observed: Observed, aside: RunInThread) -> None:
        self._endpoints = endpoints
        self._observed = observed
        self._aside = aside
        self._prefix = ENDPOINT.prefix(endpoints.region)
        self._changes = _Changes(observed, aside, ENDPOINT.name)

    async def reload(self) -> None:
        await self._changes.begin()
        fresh = Bindings(self._endpoints.region)
        after: bytes | None = None
        while True:
            page: Sequence[bytes] = await self._aside(partial(self._observed.wanted, self._prefix, after, PAGE))
            fresh.add(page)
            if len(page) < PAGE:
                break
            after = page[-1]
        self._endpoints.bindings = fresh

    async def follow(self, now: Instant) -> Collection[bytes]:
        touched = await self._changes.since(now)
        bindings = self._endpoints.bindings
        present = [bindings.follow(key, bound=True) for key in touched.present]
        gone = [bindings.follow(key, bound=False) for key in touched.gone]
        return {key for key in (*present, *gone) if key is not None}
