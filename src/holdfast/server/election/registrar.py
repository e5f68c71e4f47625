"""The registrar: says under `servers/NAME` that this server lives and what it could do, under a lease.

The name is taken by creating the key, so two servers with the same name notice each other: the second neither registers
nor campaigns, and says so, until the first is gone. A predecessor that died on this machine is cleared at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from holdfast.model.base.bad import Bad
from holdfast.model.base.region import Region
from holdfast.model.base.time import Duration
from holdfast.model.control.server import SERVER, Server
from holdfast.store.api import Aspect, Compare, Delete, Entry, LeaseGone, Put, Store, StoreAway, StoreError

log = structlog.get_logger(__name__)

RENEWALS = 3
"""In one TTL."""


@dataclass(frozen=True, slots=True)
class Around:
    """What the registrar is told and tells."""

    report: Callable[[], Server]
    """What this server says of itself now."""
    dead: Callable[[Server], bool]
    """Whether that process certainly is no more."""
    taken: Callable[[str], None]
    """Called with a sentence when somebody else has the name, and with "" when it is ours."""


class Registrar:
    def __init__(self, store: Store, region: Region, name: str, ttl: Duration, around: Around) -> None:
        self._store = store
        self._key = SERVER.key(region, name)
        self._prefix = SERVER.prefix(region)
        self._region = region
        self._name = name
        self._ttl = ttl
        self._around = around
        self._lease = 0
        self._revision = 0
        """Create-revision of our key; 0: the name is not ours."""
        self.others: dict[str, Server] = {}

    async def run(self) -> None:
        while True:
            try:
                await self.register()
                await self._look_at_others()
            except (StoreAway, StoreError) as error:
                log.debug(f"{self._name} cannot register: {error}")
            await asyncio.sleep((self._ttl / RENEWALS).total_seconds())

    async def withdraw(self) -> None:
        """Gives the name back, at a clean stop. When that fails, its lease runs out."""
        if not self._lease:
            return
        try:
            await self._store.revoke(self._lease)
        except (StoreAway, StoreError) as error:
            log.info(f"the name {self._name} could not be given back; its lease runs out: {error}")
        self._lease = self._revision = 0

    async def register(self) -> None:
        """Renews our entry, or takes the name if it is free."""
        if self._revision:
            await self._renew()
        if not self._revision:
            await self._take()

    async def _renew(self) -> None:
        try:
            await self._store.renew(self._lease)
            ours = Compare(self._key, Aspect.CREATE_REVISION, self._revision)
            if (await self._store.txn([ours], [self._put()])).succeeded:
                return
        except LeaseGone:
            log.info(f"the registration of {self._name} ran out; it registers again")
        self._revision = 0

    async def _take(self) -> None:
        self._lease = await self._store.grant(self._ttl)
        absent = Compare(self._key, Aspect.CREATE_REVISION, 0)
        result = await self._store.txn([absent], [self._put()])
        if result.succeeded:
            self._hold(self._lease, result.revision)
            return
        await self._store.revoke(self._lease)
        self._lease = 0
        holder = await self._store.get(self._key)
        if holder is not None:
            await self._dispute(holder)

    def _hold(self, lease: int, revision: int) -> None:
        self._lease, self._revision = lease, revision
        self._around.taken("")

    async def _dispute(self, entry: Entry) -> None:
        other = SERVER.decode(entry.key, entry.value)
        if not isinstance(other, Bad) and _process(other) == _process(self._around.report()):
            # An entry of our own, whose answer was lost: this very process has the name.
            self._hold(entry.lease, entry.create_revision)
            return
        if not isinstance(other, Bad) and self._around.dead(other):
            same = Compare(self._key, Aspect.MOD_REVISION, entry.mod_revision)
            if (await self._store.txn([same], [Delete(self._key)])).succeeded:
                await self._take()
            return
        who = "an entry that cannot be read" if isinstance(other, Bad) else f"{other.host} (pid {other.pid})"
        self._around.taken(f"the name {self._name} is taken by {who}: give this server another server.name")

    def _put(self) -> Put:
        return Put(self._key, SERVER.encode(self._around.report()), self._lease)

    async def _look_at_others(self) -> None:
        others: dict[str, Server] = {}
        async for page in self._store.list(self._prefix):
            for entry in page.entries:
                name, server = SERVER.parse(entry.key, self._region), SERVER.decode(entry.key, entry.value)
                if not isinstance(name, Bad) and not isinstance(server, Bad) and name != self._name:
                    others[name] = server
        self.others = others


def _process(server: Server) -> tuple[str, str, str, int]:
    """What no two living processes have in common."""
    return server.host, server.boot_id, server.pid_namespace, server.pid
