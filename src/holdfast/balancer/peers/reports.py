"""Peer reports: publishes digests of this balancer's table in the store, and compares those of its peers.

The report is under a lease, so a balancer that is gone has none. It is written periodically, which also proves that
the watches of this process are alive (C38). A peer with another table is shown with the input that differs.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

import structlog

from holdfast.balancer.peers.agreement import Agreement
from holdfast.balancer.peers.digest import INPUTS, Digests
from holdfast.model.base.region import Region
from holdfast.model.base.time import Duration
from holdfast.model.fleet.balancer_report import BALANCER_REPORT, BalancerReport
from holdfast.reconcile import Away
from holdfast.runtime.clock import Clock
from holdfast.store.api import OwnKey, Store, StoreError
from holdfast.store.lease import LeasedKey
from holdfast.store.mirror.mirror import Mirror

log = structlog.get_logger(__name__)

_REPORT_EVERY = Duration(seconds=5)
_TTL = Duration(seconds=30)
_RETRY = Duration(seconds=1)


def own_key(region: Region, name: str) -> OwnKey:
    """Key that this balancer writes periodically: a watch that does not deliver it is dead."""
    return OwnKey(BALANCER_REPORT.key(region, name), _REPORT_EVERY)


class PeerReports:
    def __init__(
        self,
        store: Store,
        region: Region,
        name: str,
        clock: Clock,
        report: Callable[[], BalancerReport],
        digests: Callable[[], Digests],
        settle: Duration,
    ) -> None:
        """A peer counts as differing from `digests` after `settle`."""
        self._agreement = Agreement(settle)
        self._clock = clock
        self._key = LeasedKey(store, BALANCER_REPORT.key(region, name), _TTL)
        self._report = report
        self._own_digests = digests
        prefix = BALANCER_REPORT.prefix(region)
        self._peers = Mirror(store, prefix, BALANCER_REPORT.decode, own=own_key(region, name), now=clock.now)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._watch_peers(), name="peers")
            tasks.create_task(self._publish(), name="report")

    def differing(self) -> dict[str, tuple[str, ...]]:
        """Peers whose table has differed from ours for some time, each with the inputs that differ. Asked often."""
        peers = {
            key.rpartition(b"/")[2].decode(errors="backslashreplace"): _digests(peer)
            for key, peer in self._peers.objects.items()
            if key != self._key.key
        }
        return self._agreement.differing(self._own_digests(), peers, self._clock.now())

    async def _watch_peers(self) -> None:
        while True:
            try:
                await self._peers.run()
            except StoreError as refusal:
                log.error("cannot watch the reports of peers; retrying", error=str(refusal))
            await asyncio.sleep(_REPORT_EVERY.total_seconds())

    async def _publish(self) -> None:
        failing = False
        while True:
            try:
                await self._key.write(BALANCER_REPORT.encode(self._report()))
                failing, pause = False, _REPORT_EVERY
            except (Away, StoreError) as error:
                if not failing:
                    log.warning("cannot write the report of this balancer; retrying", error=str(error))
                failing, pause = True, _RETRY
            await asyncio.sleep(pause.total_seconds())


def by_input(differing: dict[str, tuple[str, ...]]) -> dict[str, int]:
    """Count the peers that differ by each input; for the metric."""
    counts = Counter(each for inputs in differing.values() for each in inputs)
    return {name: counts[name] for name in (*INPUTS, "dataplane")}


def _digests(report: BalancerReport) -> Digests:
    return Digests(report.table, report.configuration, report.health, report.intents)
