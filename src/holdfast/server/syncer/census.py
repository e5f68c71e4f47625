"""Publishes the census of the inventory in one key of the store (N28).

An agent whose brake holds deletes compares its own list with it: a host that was away while a third of the fleet
changed needs no operator then. The census is from the inventory, so that a store that lost objects does not confirm
itself. It is computed only while nothing is outstanding, at most once per `INTERVAL`, and again after `RENEWAL`,
because etcd forgets old revisions. A leader whose store or inventory is in doubt publishes none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from holdfast.inventory.api import Inventory
from holdfast.inventory.sql.thread import RunInThread
from holdfast.model.base.region import Region
from holdfast.model.base.time import NEVER, Duration, Instant
from holdfast.model.calico.endpoint import ENDPOINT
from holdfast.model.calico.host import HOST
from holdfast.model.calico.migration import MIGRATION
from holdfast.model.fleet.census import CENSUS, Census, KeySum
from holdfast.model.fleet.network import NETWORK
from holdfast.store.api import Get
from holdfast.store.fenced.store import FencedStore

INTERVAL = Duration(seconds=60)
RENEWAL = Duration(minutes=5)
_PAGE = 1_000

Version = Callable[[], object]
"""Returns what changes with every write to the store; None while something is outstanding."""


class CensusPublisher:
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
        self._published: object = None
        self._at = NEVER

    async def keep(self) -> None:
        """Publish a new census if one is due. Raises `Away`, `StoreError` or `Deposed`."""
        version = self._version()
        age = self._now() - self._at if self._at else None
        is_due = age is None or age >= (RENEWAL if version == self._published else INTERVAL)
        if version is None or not is_due or NETWORK not in self._inventory.kinds:
            return  # without networks, Felix and not our agent runs on the hosts of the fleet
        sums = await self._run_in_thread(lambda: key_sums(self._inventory, self._region))
        key = CENSUS.key(self._region, "census")
        head = (await self._fenced.store.txn([], [Get(key)])).revision
        if self._version() != version:
            return  # what was written meanwhile may not have been counted
        await self._fenced.put(key, CENSUS.encode(Census(head, *sums)))
        self._published, self._at = version, self._now()

    def forget(self) -> None:
        """Publish again: the store may have been restored or wiped."""
        self._published, self._at = None, NEVER


def key_sums(inventory: Inventory, region: Region) -> tuple[KeySum, KeySum, KeySum]:
    """Count the hosts, endpoints and migrations of the inventory."""
    hosts, endpoints, migrations = (kind.prefix(region) for kind in (HOST, ENDPOINT, MIGRATION))
    snapshot = inventory.snapshot()

    def under(root: bytes) -> Iterator[bytes]:
        after = root
        while True:
            rows = snapshot.read(after, _PAGE)
            yield from (row.key for row in rows if row.key.startswith(root))
            if len(rows) < _PAGE or not rows[-1].key.startswith(root):
                return
            after = rows[-1].key

    try:
        return (
            KeySum().with_keys(under(hosts)),
            KeySum().with_keys(under(endpoints)),
            KeySum().with_keys(under(migrations)),
        )
    finally:
        snapshot.close()
