"""Registrar: publishes under `servers/NAME`, with a lease, that this server is alive and what it is able to do.

A server takes its name by creating the key, so two servers with the same name notice each other: the second neither
registers nor campaigns, and reports it, until the first is gone. The entry of a predecessor that died on this machine
is cleared at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

import structlog

from holdfast.model.base.bad import Bad
from holdfast.model.base.region import Region
from holdfast.model.base.time import Duration
from holdfast.model.control.server import SERVER, Server
from holdfast.server.election.handover import HandoverRefused, able_successors
from holdfast.store.api import Aspect, Compare, Delete, Entry, LeaseGone, NoSpace, Store, StoreAway, StoreError
from holdfast.store.lease import LeasedKey

log = structlog.get_logger(__name__)

RENEWALS = 3
"""Renewals per TTL."""
_ATTEMPT_TTL = Duration(seconds=5)
"""TTL of a lease that only shows that the store grants one."""


class Registrar:
    """`report` makes this server's entry, `is_dead` says whether a process is certainly dead. `on_name_taken` is called
    with a sentence when another server has the name, and with "" when it is ours."""

    def __init__(
        self,
        store: Store,
        region: Region,
        name: str,
        ttl: Duration,
        *,
        report: Callable[[], Server],
        is_dead: Callable[[Server], bool],
        on_name_taken: Callable[[str], None],
    ) -> None:
        self._store = store
        self._key = LeasedKey(store, SERVER.key(region, name), ttl)
        self._prefix = SERVER.prefix(region)
        self._region = region
        self._name = name
        self._ttl = ttl
        self._report = report
        self._is_dead = is_dead
        self._on_name_taken = on_name_taken
        self._revision = 0
        """Create-revision of our key; 0: the name is not ours."""
        self._changed = asyncio.Event()
        self.others: dict[str, Server] = {}

    async def run(self) -> None:
        while True:
            self._changed.clear()
            try:
                await self.register()
                await self.read_others()
            except (StoreAway, StoreError) as error:
                log.debug("cannot register; retrying", server=self._name, error=str(error))
            with suppress(TimeoutError):
                async with asyncio.timeout((self._ttl / RENEWALS).total_seconds()):
                    await self._changed.wait()

    def publish(self) -> None:
        """Renew the entry at once: what it says about this server has changed, and others decide by it."""
        self._changed.set()

    async def withdraw(self) -> None:
        """Give the name back, at a clean stop. If that fails, its lease expires."""
        await self._key.revoke()
        self._revision = 0

    async def register(self) -> None:
        """Renew our entry, or take the name if it is free."""
        if self._revision:
            await self._renew()
        if not self._revision:
            await self._take()

    async def _renew(self) -> None:
        with suppress(LeaseGone):
            if await self._key.renew() and await self._write(self._revision):
                return
        self._revision = 0

    async def _take(self) -> None:
        await self._key.grant()
        revision = await self._write(0)
        if revision:
            self._hold(self._key.lease, revision)
            return
        await self._key.revoke()
        holder = await self._store.get(self._key.key)
        if holder is not None:
            await self._resolve_conflict(holder)

    def _hold(self, lease: int, revision: int) -> None:
        self._key.lease, self._revision = lease, revision
        self._on_name_taken("")

    async def _resolve_conflict(self, entry: Entry) -> None:
        other = SERVER.decode(entry.key, entry.value)
        if not isinstance(other, Bad) and _process(other) == _process(self._report()):
            # Our own entry, whose answer was lost: this process has the name.
            self._hold(entry.lease, entry.create_revision)
            return
        if not isinstance(other, Bad) and self._is_dead(other):
            same = Compare(self._key.key, Aspect.MOD_REVISION, entry.mod_revision)
            if (await self._store.txn([same], [Delete(self._key.key)])).succeeded:
                await self._take()
            return
        who = "an unreadable entry" if isinstance(other, Bad) else f"{other.host} (pid {other.pid})"
        self._on_name_taken(f"the name {self._name} is taken by {who}: give this server another server.name")

    async def _write(self, created: int) -> int:
        """Write our entry if the key has this create-revision. Returns the revision; 0 if it has another one."""
        compare = Compare(self._key.key, Aspect.CREATE_REVISION, created)
        result = await self._key.txn([compare], [self._key.put(SERVER.encode(self._report()))])
        return result.revision if result.succeeded else 0

    async def read_others(self) -> None:
        """Read the reports of the other servers. Raises `StoreAway` or `StoreError`."""
        others: dict[str, Server] = {}
        async for page in self._store.list(self._prefix):
            for entry in page.entries:
                name, server = SERVER.parse(entry.key, self._region), SERVER.decode(entry.key, entry.value)
                if not isinstance(name, Bad) and not isinstance(server, Bad) and name != self._name:
                    others[name] = server
        self.others = others

    async def successors(self, leader: str, to: str = "") -> list[str]:
        """Return the servers that can take over from this leader now, only `to` if it is given. Raises
        `HandoverRefused` if there is none, `StoreAway` or `StoreError`."""
        if to == leader:
            raise HandoverRefused(f"{to} leads already")
        if leader != self._name:
            await self.register()  # the leader checks again, by our entry
        await self.read_others()
        servers = {**self.others, self._name: self._report()}
        able = able_successors({name: one for name, one in servers.items() if name != leader}, to)
        await self._check_space()
        return able

    async def _check_space(self) -> None:  # protection: C35
        """C35: a store that is out of space grants no lease, so nobody could take over, and it needs a leader."""
        try:
            await self._store.revoke(await self._store.grant(_ATTEMPT_TTL))
        except NoSpace as full:
            raise HandoverRefused(f"no other server can take over: {full}") from full


def _process(server: Server) -> tuple[str, str, str, int]:
    """Identity of a process: no two live processes share it."""
    return server.host, server.boot_id, server.pid_namespace, server.pid
