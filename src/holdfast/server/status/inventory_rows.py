"""Hosts and endpoints of the inventory: the second input of a status (C31).

Read completely with every full comparison; in between, changed rows are read when the database signals a change.
Changes are searched from a thousand revisions back: rows may commit late (C37). The next audit finds what was missed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Protocol

from holdfast.inventory.api import ChangedKeys, Observed
from holdfast.inventory.sql.thread import RunInThread
from holdfast.model.base.time import NEVER, Duration, Instant
from holdfast.model.calico.endpoint import ENDPOINT
from holdfast.model.calico.host import HOST
from holdfast.server.status.rules.agents import AgentRules
from holdfast.server.status.rules.bindings import Bindings
from holdfast.server.status.rules.endpoints import EndpointRules

PAGE = 5_000
OVERLAP = 1_000
OVERLAP_EVERY = Duration(seconds=5)


class InventoryRows(Protocol):
    async def reload(self, attempted: Callable[[], None] = lambda: None) -> None:
        """Read all rows; `attempted` is called after every page."""
        ...

    async def follow(self, now: Instant) -> Collection[bytes]:
        """Return the status keys of what has changed since the last call."""
        ...


class _Changes:
    """Reads cheaply whether anything changed, and only then what."""

    def __init__(self, observed: Observed, run_in_thread: RunInThread, kind: str) -> None:
        self._observed = observed
        self._run_in_thread = run_in_thread
        self._kind = kind
        self._newest = 0
        self._overlapped = NEVER

    async def begin(self) -> None:
        self._newest = await self._run_in_thread(self._observed.newest)

    async def since(self, now: Instant) -> ChangedKeys:
        overlap = now - self._overlapped >= OVERLAP_EVERY
        touched = await self._run_in_thread(partial(self._read, overlap))
        self._newest = touched.newest
        if overlap:
            self._overlapped = now
        return touched

    def _read(self, overlap: bool) -> ChangedKeys:
        newest = self._observed.newest()
        if newest == self._newest and not overlap:
            return ChangedKeys(newest)
        return self._observed.changed_since(self._kind, max(0, self._newest - OVERLAP))


class HostRows:
    """Hosts of the region."""

    def __init__(self, agents: AgentRules, observed: Observed, run_in_thread: RunInThread) -> None:
        self._agents = agents
        self._observed = observed
        self._run_in_thread = run_in_thread
        self._changes = _Changes(observed, run_in_thread, HOST.name)

    async def reload(self, attempted: Callable[[], None] = lambda: None) -> None:
        await self._changes.begin()
        attempted()
        names = await self._run_in_thread(partial(self._observed.hosts, self._agents.region.name))
        self._agents.hosts = {self._agents.key(name) for name in names}

    async def follow(self, now: Instant) -> Collection[bytes]:
        touched = await self._changes.since(now)
        if not touched.present and not touched.gone:
            return ()
        before = set(self._agents.hosts)
        await self.reload()
        return before ^ set(self._agents.hosts)


class EndpointRows:
    """Endpoints of the region, by the keys at which their hosts report them."""

    def __init__(self, endpoints: EndpointRules, observed: Observed, run_in_thread: RunInThread) -> None:
        self._endpoints = endpoints
        self._observed = observed
        self._run_in_thread = run_in_thread
        self._prefix = ENDPOINT.prefix(endpoints.region)
        self._changes = _Changes(observed, run_in_thread, ENDPOINT.name)

    async def reload(self, attempted: Callable[[], None] = lambda: None) -> None:
        await self._changes.begin()
        attempted()
        fresh = Bindings(self._endpoints.region)
        after: bytes | None = None
        while True:
            page: Sequence[bytes] = await self._run_in_thread(partial(self._observed.wanted, self._prefix, after, PAGE))
            attempted()
            fresh.add(page)
            if len(page) < PAGE:
                break
            after = page[-1]
        self._endpoints.bindings = fresh

    async def follow(self, now: Instant) -> Collection[bytes]:
        touched = await self._changes.since(now)
        bindings = self._endpoints.bindings
        # A row that changed is compared again even where its binding did not change: its status may have (C31).
        present = [bindings.follow(key, bound=True) or bindings.status_key(key) for key in touched.present]
        gone = [bindings.follow(key, bound=False) for key in touched.gone]
        return {key for key in (*present, *gone) if key is not None}
