"""Publishes the fleet's prefixes, the networks of the inventory, in one key of the store (N21).

Agents hold routes outside them. So they are written before the first change of a term and before each change of a
network, and compared again from time to time: an endpoint without a network ends the bounds. A leader whose store or
inventory is in doubt publishes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from holdfast.inventory.api import Inventory
from holdfast.inventory.sql.thread import RunInThread
from holdfast.model.base.bad import Bad
from holdfast.model.base.region import Region
from holdfast.model.base.time import NEVER, Duration, Instant
from holdfast.model.fleet.network import NETWORK, Network
from holdfast.model.fleet.prefixes import FLEET_PREFIXES, FleetPrefixes
from holdfast.store.api import Entry
from holdfast.store.fenced.store import FencedStore

INTERVAL = Duration(seconds=10)
_PAGE = 1_000


class FleetPrefixesPublisher:
    def __init__(
        self,
        inventory: Inventory,
        run_in_thread: RunInThread,
        fenced: FencedStore,
        region: Region,
        now: Callable[[], Instant],
    ) -> None:
        self._inventory = inventory
        self._run_in_thread = run_in_thread
        self._fenced = fenced
        self._region = region
        self._now = now
        self._stored: FleetPrefixes | None = None
        self._compared = NEVER

    async def before(self, keys: Collection[bytes]) -> None:
        """Publish before these keys are written, if that can matter. Raises `Away`, `StoreError` or `Deposed`."""
        networks = NETWORK.prefix(self._region)
        if not self._compared or any(key.startswith(networks) for key in keys):
            await self.publish()

    async def keep(self) -> None:
        """Compare again, at most once per `INTERVAL`. Raises `Away`, `StoreError` or `Deposed`."""
        if not self._compared or self._now() - self._compared >= INTERVAL:
            await self.publish()

    async def publish(self) -> None:
        if NETWORK not in self._inventory.kinds:
            return  # Felix, not our agent, runs on the hosts of such a fleet
        wanted = await self._run_in_thread(lambda: fleet_prefixes(self._inventory, self._region))
        key = FLEET_PREFIXES.key(self._region, "prefixes")
        if self._stored is None:
            self._stored = _readable(await self._fenced.store.get(key))
        if wanted != self._stored:
            await self._fenced.put(key, FLEET_PREFIXES.encode(wanted))
            self._stored = wanted
        self._compared = self._now()

    def forget(self) -> None:
        """Read the key again: the store may have been restored or wiped."""
        self._stored, self._compared = None, NEVER


def fleet_prefixes(inventory: Inventory, region: Region) -> FleetPrefixes:
    """Read the networks; they bound the fleet if there are any and every endpoint is in one."""
    networks = list(_networks(inventory, region))
    prefixes = sorted({prefix for network in networks for prefix in network.prefixes})
    return FleetPrefixes(tuple(prefixes), bounded=bool(prefixes) and not inventory.networks().get("", 0))


def _networks(inventory: Inventory, region: Region) -> list[Network]:
    root, snapshot = NETWORK.prefix(region), inventory.snapshot()
    found: list[Network] = []
    try:
        after: bytes = root
        while True:
            rows = snapshot.read(after, _PAGE)
            ours = [NETWORK.decode(row.key, row.doc) for row in rows if row.key.startswith(root)]
            found += [one for one in ours if not isinstance(one, Bad)]
            if len(rows) < _PAGE or not rows[-1].key.startswith(root):
                return found
            after = rows[-1].key
    finally:
        snapshot.close()


def _readable(entry: Entry | None) -> FleetPrefixes | None:
    decoded: Any = None if entry is None else FLEET_PREFIXES.decode(entry.key, entry.value)
    return decoded if isinstance(decoded, FleetPrefixes) else None
