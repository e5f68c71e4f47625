"""Asks the store about every own endpoint that is new or has changed: is its workload still arriving here?

An agent that watches its own host only has a watch for each kind, and these drift: an endpoint may be there before its
migration is, and a workload that is still elsewhere would be announced. So an endpoint and its migration are taken over
together, and only when the mirror has both as one linearizable read finds them. The same read fetches the
endpoint at the source, which no watch of this agent delivers; while it exists it is read again every `FOLLOW`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence

import structlog

from holdfast.agent.desired.slim_endpoint import SlimEndpoint, decode_endpoint
from holdfast.model.base.bad import Bad
from holdfast.model.base.region import Region
from holdfast.model.base.time import Duration
from holdfast.model.calico.endpoint import ENDPOINT, EndpointName
from holdfast.model.calico.host import Host
from holdfast.model.calico.migration import MIGRATION, Migration
from holdfast.reconcile import Away
from holdfast.store.api import Entry, Get, Store, StoreError
from holdfast.store.mirror.mirror import Mirror
from holdfast.store.mirror.pending import Delta

log = structlog.get_logger(__name__)

FOLLOW = Duration(seconds=1)
_BEHIND = Duration(milliseconds=50)
"""Pause before the next question about an endpoint of which the mirror is behind the store."""
_AT_ONCE = 40
"""Endpoints in one read, which has three keys for each; etcd allows 128."""

Object = Host | SlimEndpoint | Migration
Take = Callable[[Mapping[bytes, Object | None]], None]
"""Receives objects that belong together, by store key."""


class MoveQuestions:
    def __init__(self, store: Store, region: Region, mirror: Mirror[Object]) -> None:
        self._store = store
        self._region = region
        self._mirror = mirror
        self._open: dict[EndpointName, None] = {}
        """Endpoints here that were not taken over yet."""
        self._sources: dict[EndpointName, EndpointName] = {}
        """Endpoints here whose workload is elsewhere, too, and where."""
        self._raised = asyncio.Event()
        self._error = ""

    @property
    def is_open(self) -> bool:
        """Return whether something that the mirror has was not taken over yet."""
        return bool(self._open)

    def raise_about(self, deltas: Sequence[Delta[Object]]) -> Mapping[bytes, Object | None]:
        """Ask about these changes; return those that need no question."""
        named = {delta.key: self._name(delta.key) for delta in deltas}
        self._open |= dict.fromkeys(name for name in named.values() if name is not None)
        self._raised.set()
        return {delta.key: delta.new for delta in deltas if named[delta.key] is None}

    async def run(self, take: Take) -> None:
        """Run until cancelled."""
        while True:
            await self._wait()
            self._raised.clear()
            names = list(self._open) or list(self._sources)
            for start in range(0, len(names), _AT_ONCE):
                try:
                    take(await self._ask(names[start : start + _AT_ONCE]))
                    self._error = ""
                except (Away, StoreError) as error:
                    self._note(error)
                    await asyncio.sleep(FOLLOW.total_seconds())

    async def _wait(self) -> None:
        """Wait for a question, or for the time to ask again."""
        pause = _BEHIND if self._open else FOLLOW
        try:
            async with asyncio.timeout(pause.total_seconds() if self._open or self._sources else None):
                await self._raised.wait()
        except TimeoutError:
            return

    async def _ask(self, names: Sequence[EndpointName]) -> Mapping[bytes, Object | None]:
        """Read about these endpoints at one revision; return what the mirror has like that."""
        sources = {name: source for name in names if (source := self._source(name)) is not None}
        wanted = [key for name in names for key in self._keys(name, sources.get(name))]
        answer = await self._store.txn([], [Get(key) for key in wanted])
        found = {one.key: one for each in answer.results if not isinstance(each, int) for one in each}
        taken: dict[bytes, Object | None] = {}
        for name in names:
            if self._agrees(self._keys(name, None), found):
                taken |= self._answered(name, sources.get(name), found)
        return taken

    def _agrees(self, keys: Iterable[bytes], found: Mapping[bytes, Entry]) -> bool:
        """Return whether the mirror has these keys as they were read."""
        read = {key: found[key].mod_revision if key in found else 0 for key in keys}
        return all(self._mirror.mod_revision(key) == revision for key, revision in read.items())

    def _answered(
        self, name: EndpointName, source: EndpointName | None, found: Mapping[bytes, Entry]
    ) -> Mapping[bytes, Object | None]:
        """Take one endpoint over, with its migration and the endpoint at its source."""
        if source != self._source(name):
            return {}  # the migration came meanwhile
        self._open.pop(name, None)
        keys = self._keys(name, None)
        taken = {key: self._mirror.objects.get(key) for key in keys}
        if source is None:
            return taken
        path = ENDPOINT.key(self._region, source)
        concerns_us = any(key in found for key in keys)
        there = _slim(found[path], source) if path in found and concerns_us else None
        self._sources.pop(name, None)
        if there is not None:
            self._sources[name] = source
        return {**taken, path: there}

    def _source(self, name: EndpointName) -> EndpointName | None:
        """Host from which the workload arrives, or arrived and still has an endpoint at."""
        migration = self._mirror.objects.get(MIGRATION.key(self._region, name))
        if isinstance(migration, Migration) and migration.source != migration.target:
            return migration.source
        return self._sources.get(name)

    def _keys(self, name: EndpointName, source: EndpointName | None) -> list[bytes]:
        keys = [MIGRATION.key(self._region, name), ENDPOINT.key(self._region, name)]
        return keys if source is None else [*keys, ENDPOINT.key(self._region, source)]

    def _name(self, key: bytes) -> EndpointName | None:
        """Name of an endpoint or of a migration; None for anything else, and for a key that is unreadable."""
        for kind in (ENDPOINT, MIGRATION):
            if key.startswith(kind.prefix(self._region)):
                name = kind.parse(key, self._region)
                return None if isinstance(name, Bad) else name
        return None

    def _note(self, error: Exception) -> None:
        if str(error) != self._error:
            self._error = str(error)
            log.warning("cannot read the migrations of this host; changed endpoints wait", error=self._error)


def _slim(entry: Entry, name: EndpointName) -> SlimEndpoint:
    """Decode the endpoint at the source; an unreadable one is there all the same, without prefixes."""
    found = decode_endpoint(entry.key, entry.value)
    return SlimEndpoint(str(name), name.node, "", ()) if isinstance(found, Bad) else found
