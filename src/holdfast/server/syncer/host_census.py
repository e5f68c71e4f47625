"""Publishes the census of single hosts, for agents that ask (N28).

An agent with `routing: bgp` sees its own host only, so the census of the fleet cannot prove its list. While its brake
is closed its report asks, and the leader writes what the inventory has of that host, at most once per `INTERVAL`. The
keys of hosts that no longer ask are deleted. As for the fleet, nothing is counted while a change is outstanding.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from holdfast.inventory.api import Inventory, InventorySnapshot
from holdfast.inventory.sql.thread import RunInThread
from holdfast.model.base.bad import Bad
from holdfast.model.base.region import Region
from holdfast.model.base.time import NEVER, Instant
from holdfast.model.fleet.agent_report import AGENT_REPORT
from holdfast.model.fleet.census import HOST_CENSUS, Census, KeySum
from holdfast.model.fleet.network import NETWORK
from holdfast.server.syncer.census import INTERVAL, Version
from holdfast.store.api import Delete, Get, KeyRange, Put
from holdfast.store.fenced.store import FencedStore
from holdfast.store.host_keys import HostNameRefused, keys_of

AT_ONCE = 100
"""Hosts of one answer: each needs a write, and two reads of the inventory."""
_REPORTS, _ROWS = 500, 1_000

Sums = tuple[KeySum, KeySum, KeySum]


class HostCensusPublisher:
    def __init__(
        self,
        inventory: Inventory,
        run_in_thread: RunInThread,
        fenced: FencedStore,
        region: Region,
        now: Callable[[], Instant],
        version: Version,
    ) -> None:
        self._inventory = inventory
        self._run_in_thread = run_in_thread
        self._fenced = fenced
        self._region = region
        self._now = now
        self._version = version
        self._at = NEVER
        """Time at which the reports were read last."""
        self._unanswered: list[str] = []

    async def keep(self) -> None:
        """Answer hosts that ask, and remove the answers of those that no longer do. Raises `Away`, `StoreError` or
        `Deposed`."""
        if NETWORK not in self._inventory.kinds:
            return  # without networks, Felix and not our agent runs on the hosts of the fleet
        if not self._at or self._now() - self._at >= INTERVAL:
            asking = await self._read_asking()
            await self._remove_all_but(asking)
            self._unanswered, self._at = sorted(asking), self._now()
        while self._unanswered and await self._answer(self._unanswered[:AT_ONCE]):
            del self._unanswered[:AT_ONCE]

    def forget(self) -> None:
        """Read the reports again: the store may have been restored or wiped."""
        self._at, self._unanswered = NEVER, []

    async def _read_asking(self) -> set[str]:
        asking: set[str] = set()
        async for page in self._fenced.store.list(AGENT_REPORT.prefix(self._region), page=_REPORTS):
            for entry in page.entries:
                host = AGENT_REPORT.parse(entry.key, self._region)
                report = AGENT_REPORT.decode(entry.key, entry.value)
                if isinstance(host, Bad) or isinstance(report, Bad) or not report.asks_census:
                    continue
                if self._has_keys(host):
                    asking.add(host)
        return asking

    def _has_keys(self, host: str) -> bool:
        """Return whether a host has a name under which it can have endpoints."""
        try:
            keys_of(host, self._region)
        except HostNameRefused:
            return False
        return True

    async def _remove_all_but(self, asking: Collection[str]) -> None:
        wanted = {HOST_CENSUS.key(self._region, host) for host in asking}
        stale: list[bytes] = []
        async for page in self._fenced.store.list(HOST_CENSUS.prefix(self._region), keys_only=True):
            stale += [entry.key for entry in page.entries if entry.key not in wanted]
        for start in range(0, len(stale), AT_ONCE):
            await self._fenced.txn([], [Delete(key) for key in stale[start : start + AT_ONCE]])

    async def _answer(self, hosts: Sequence[str]) -> bool:
        """Write the census of these hosts; return whether nothing was outstanding meanwhile."""
        version = self._version()
        if version is None:
            return False
        sums = await self._run_in_thread(lambda: host_sums(self._inventory, self._region, hosts))
        head = (await self._fenced.store.txn([], [Get(HOST_CENSUS.key(self._region, hosts[0]))])).revision
        if self._version() != version:
            return False  # what was written meanwhile may not have been counted
        puts = [
            Put(HOST_CENSUS.key(self._region, host), HOST_CENSUS.encode(Census(head, *found)))
            for host, found in sums.items()
        ]
        await self._fenced.txn([], puts)
        return True


def host_sums(inventory: Inventory, region: Region, hosts: Sequence[str]) -> Mapping[str, Sums]:
    """Count what the inventory has of each of these hosts: itself, its endpoints and the migrations to it."""
    keys = {host: keys_of(host, region) for host in hosts}
    known = {row.key for row in inventory.read_keys([each.host.first for each in keys.values()])}
    snapshot = inventory.snapshot()
    try:
        return {
            host: (
                KeySum().with_keys(known & {each.host.first}),
                KeySum().with_keys(_within(snapshot, each.endpoints)),
                KeySum().with_keys(_within(snapshot, each.migrations)),
            )
            for host, each in keys.items()
        }
    finally:
        snapshot.close()


def _within(snapshot: InventorySnapshot, keys: KeyRange) -> Iterator[bytes]:
    after = keys.first
    while True:
        rows = snapshot.read(after, _ROWS)
        yield from (row.key for row in rows if row.key in keys)
        if len(rows) < _ROWS or rows[-1].key not in keys:
            return
        after = rows[-1].key
