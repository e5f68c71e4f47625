"""The herald: says in the store what this balancer programs, and hears what its peers do.

The report lives under a lease, so a balancer that is gone has none. It is written again and again, which also proves
that the watches of this process are alive (C38). A peer with another table is shown with the input that differs.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

import structlog

from holdfast.balancer.peers.digest import INPUTS, Digests
from holdfast.model.base.region import Region
from holdfast.model.base.time import Duration
from holdfast.model.fleet.balancer_report import BALANCER_REPORT, BalancerReport
from holdfast.reconcile import Away
from holdfast.runtime.clock import Clock
from holdfast.store.api import OwnKey, Store, StoreError
from holdfast.store.lease import LeaseKeeper
from holdfast.store.mirror.mirror import Mirror

log = structlog.get_logger(__name__)

EVERY = Duration(seconds=5)
TTL = Duration(seconds=30)
_FIRST = Duration(seconds=1)


def own_key(region: Region, name: str) -> OwnKey:
    """What this balancer writes anyway: a watch on which it does not come back is dead."""
    return OwnKey(BALANCER_REPORT.key(region, name), EVERY)


class PeerReports:
    def __init__(
        self, store: Store, region: Region, name: str, clock: Clock, report: Callable[[], BalancerReport]
    ) -> None:
        self._store = store
        self._key = BALANCER_REPORT.key(region, name)
        self._report = report
        self._lease = LeaseKeeper(store, TTL, now=clock.now)
        prefix = BALANCER_REPORT.prefix(region)
        self._peers = Mirror(store, prefix, BALANCER_REPORT.decode, own=own_key(region, name), now=clock.now)
        self._said = False

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._lease.run(), name="lease")
            tasks.create_task(self._listen(), name="peers")
            tasks.create_task(self._speak(), name="report")

    def differing(self) -> dict[str, tuple[str, ...]]:
        """The peers whose tables are not ours, each with the inputs that differ."""
        ours = _digests(self._report())
        found = {
            key.rpartition(b"/")[2].decode(errors="backslashreplace"): ours.differing(_digests(peer))
            for key, peer in self._peers.objects.items()
            if key != self._key
        }
        return {name: inputs for name, inputs in found.items() if inputs}

    async def _listen(self) -> None:
        while True:
            try:
                await self._peers.run()
            except StoreError as refusal:
                log.error(f"peers cannot be followed: {refusal}")
            await asyncio.sleep(EVERY.total_seconds())

    async def _speak(self) -> None:
        while True:
            lease = await self._lease.next()
            try:
                await self._store.put(self._key, BALANCER_REPORT.encode(self._report()), lease=lease.id)
                self._said = True
                pause = EVERY
            except (Away, StoreError) as error:
                if self._said:
                    log.warning(f"this balancer's report cannot be written: {error}")
                self._said = False
                pause = _FIRST
            await asyncio.sleep(pause.total_seconds())


def by_input(differing: dict[str, tuple[str, ...]]) -> dict[str, int]:
    """How many peers differ by each input; for the metric."""
    counts = Counter(each for inputs in differing.values() for each in inputs)
    return {name: counts[name] for name in (*INPUTS, "dataplane")}


def _digests(report: BalancerReport) -> Digests:
    return Digests(report.table, report.configuration, report.health, report.intents)
