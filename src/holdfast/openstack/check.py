"""`holdfast openstack check`: compares Neutron with etcd, and reads both itself.

It needs no server: it works before the first start, where it reports what networking-calico leaked. While a server
runs, changes are on their way; so what differs is looked at again until no difference goes away by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

from holdfast.inventory.sql.thread import RunInThread
from holdfast.model.base.bad import Bad
from holdfast.model.base.region import Region
from holdfast.model.base.time import Instant
from holdfast.model.calico.endpoint import ENDPOINT, Endpoint
from holdfast.openstack.inventory import NeutronInventory
from holdfast.openstack.scope import CheckScope
from holdfast.openstack.translate.labels import GROUP
from holdfast.reconcile import Change, Op, diff
from holdfast.server.syncer.differences import UNWITNESSED, Differences, find_differences
from holdfast.server.syncer.keys import RegionKeys
from holdfast.server.syncer.source import wanted
from holdfast.server.syncer.target import StoredObjects
from holdfast.server.syncer.witness import read_ignored
from holdfast.store.api import Entry, Store

_ALL = 1_000_000_000
_AGAIN_S = 0.5
_CALM = 4
"""Looks in a row in which no difference has gone away, after which the rest is reported."""

Item = Change[bytes, Entry]


class NeutronCheck:
    """Compares one scope. `now` is used for the age of what is read."""

    def __init__(
        self,
        inventory: NeutronInventory,
        store: Store,
        region: Region,
        scope: CheckScope,
        run_in_thread: RunInThread,
        now: Callable[[], Instant],
    ) -> None:
        self._inventory = inventory
        self._store = store
        self._region = region
        self._scope = scope
        self._run_in_thread = run_in_thread
        self._now = now
        self._layout = RegionKeys(region, inventory.kinds)
        self._refused = inventory.report_refused()

    async def run(self) -> tuple[dict[str, Any], Collection[bytes]]:
        """Return the report, as the leader's `resync` answers it, and the keys that differ. Raises `Away`."""
        self._layout.ignored = await self._run_in_thread(partial(read_ignored, self._inventory, self._layout))
        found = await self._find(self._is_in_scope)
        keys = _keys(found)
        still = await self._persisting(keys)
        if still != keys:
            found = await self._find(lambda change: change.key in still)
        report = found.report(self._layout, values=True)
        report["leaks"] = await self._leaks(found)
        report["refused"] = sorted(map(str, self._refused))
        report["unrecorded"] = len(await self._run_in_thread(self._inventory.unmirrored))
        return report, _keys(found)

    async def _find(self, is_in_scope: Callable[[Item], bool]) -> Differences:
        return await find_differences(
            *(self._inventory, self._run_in_thread, self._store, self._layout, is_in_scope, self._now),
            most=_ALL,
        )

    def _is_in_scope(self, change: Item) -> bool:
        values = [owned.value.value for owned in (change.new, change.old) if owned is not None]
        return self._scope.has(change.key, values, self._region)

    async def _persisting(self, keys: Collection[bytes]) -> set[bytes]:
        """Those of these keys that go on differing: a change that is on its way arrives within seconds."""
        still, calm = set(keys), 0
        while still and calm < _CALM:
            await asyncio.sleep(_AGAIN_S)
            left = await self._differing(still)
            calm = calm + 1 if left == still else 0
            still = left
        return still

    async def _differing(self, keys: Collection[bytes]) -> set[bytes]:
        stored = StoredObjects(self._store, self._layout, _unbounded)
        present = sorted((await stored.get(keys)).items())
        rows = await self._run_in_thread(partial(self._inventory.read_keys, keys))
        return {change.key for change in diff(list(map(wanted, rows)), present, self._layout.same)}

    async def _leaks(self, found: Differences) -> Sequence[Mapping[str, Any]]:
        """Endpoints that nothing deleted, with their addresses, their groups, and the present owners of these. Felix
        skips one without a host in its name, so that one gives nobody access."""
        leaked = [change for change in found.shown if found.group(change.op, change.key) == UNWITNESSED]
        endpoints = [one for change in leaked if (one := _endpoint(change)) is not None and one.spec.node]
        addresses = {each.partition("/")[0] for one in endpoints for each in one.spec.ip_networks}
        owners = await self._run_in_thread(partial(self._inventory.address_owners, addresses)) if addresses else {}
        return [_leak(one, owners) for one in endpoints]


def _keys(found: Differences) -> set[bytes]:
    return {key for keys in found.keys.values() for key in keys}


async def _unbounded(_after: bytes | None, _most: int) -> bytes | None:
    return None


def _endpoint(change: Item) -> Endpoint | None:
    if change.op is not Op.DELETE or change.old is None:
        return None
    found = ENDPOINT.decode(change.key, change.old.value.value)
    return found if isinstance(found, Endpoint) and not isinstance(found, Bad) else None


def _leak(endpoint: Endpoint, owners: Mapping[str, str]) -> Mapping[str, Any]:
    addresses = [each.partition("/")[0] for each in endpoint.spec.ip_networks]
    return {
        "key": f"{ENDPOINT.name} {endpoint.name}",
        "addresses": addresses,
        "groups": sorted(label.removeprefix(GROUP) for label in endpoint.metadata.labels if label.startswith(GROUP)),
        "reused": {address: owners[address] for address in addresses if address in owners},
    }
