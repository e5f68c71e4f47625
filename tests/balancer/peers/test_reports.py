"""PeerReports: a balancer writes its report under one lease, and again when the lease or the key is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from structlog.testing import capture_logs

from holdfast.balancer.peers.digest import Digests
from holdfast.balancer.peers.reports import PeerReports
from holdfast.model.base.region import Region
from holdfast.model.base.time import seconds
from holdfast.model.fleet.balancer_report import BALANCER_REPORT, BalancerReport
from holdfast.store.api import Entry
from holdfast.testing import World, simulate

REGION = Region("r")
REPORT = BalancerReport(version="1", table="t", configuration="c", health="h", intents="i")
DIGESTS = Digests("t", "c", "h", "i")
KEY = BALANCER_REPORT.key(REGION, "one")


def scene(story: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    async def started(world: World) -> None:
        node = world.node("one")
        reports = PeerReports(node.store(), REGION, "one", node.clock, lambda: REPORT, lambda: DIGESTS, seconds(60))
        node.run(reports.run())
        await asyncio.sleep(1)
        await story(world)

    simulate(1, started)


def stored(world: World) -> Entry:
    entry = world.store.keys.get(KEY)
    assert entry is not None
    return entry


def test_a_report_stays_under_one_lease_and_is_gone_with_it() -> None:
    async def story(world: World) -> None:
        first = stored(world)
        await asyncio.sleep(100)
        assert (stored(world).lease, stored(world).create_revision) == (first.lease, first.create_revision)
        world.node("one").kill()
        await asyncio.sleep(31)
        assert world.store.keys.get(KEY) is None

    scene(story)


def test_a_report_that_was_deleted_or_whose_lease_was_revoked_is_written_again() -> None:
    async def story(world: World) -> None:
        operator = world.connect("operator")
        await operator.delete(KEY)
        await asyncio.sleep(6)
        await operator.revoke(stored(world).lease)
        await asyncio.sleep(6)
        assert stored(world).lease in world.store.leases

    scene(story)


def test_an_old_etcd_that_acknowledges_a_revoked_lease_does_not_end_the_reports() -> None:
    async def story(world: World) -> None:
        world.store.acknowledges_gone_leases = True
        await world.connect("operator").revoke(stored(world).lease)
        await asyncio.sleep(8)
        assert stored(world).lease in world.store.leases

    scene(story)


def test_an_unreachable_store_is_logged_once_and_the_report_comes_back() -> None:
    async def story(world: World) -> None:
        (client,) = world.node("one").clients
        with capture_logs() as lines:
            client.link.cut()
            await asyncio.sleep(100)
        assert world.store.keys.get(KEY) is None
        assert [line["event"] for line in lines].count("cannot write the report of this balancer; retrying") == 1
        client.link.heal()
        await asyncio.sleep(10)
        assert stored(world).lease in world.store.leases

    scene(story)
