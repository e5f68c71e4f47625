"""Details of frontends in the report of a balancer, from which every machine's page shows pools and backends."""

from __future__ import annotations

import asyncio
from pathlib import Path

from holdfast.balancer.commands.fleet_report import frontend_details
from holdfast.config.sections.frontend import Backend, Frontend, Pool, PoolMember
from holdfast.model.balancing import BACKEND, FRONTEND
from holdfast.model.control.intent import INTENT, IntentKind
from holdfast.model.control.scope import ScopeKind
from holdfast.model.fleet.balancer_report import BACKENDS_LIMIT, BALANCER_REPORT, BalancerReport, FrontendReport
from tests.balancer.store_site import REGION, StoreSite, intent, play


def _reported(site: StoreSite) -> BalancerReport:
    entry = site.world.store.keys.get(BALANCER_REPORT.key(REGION, site.node.name))
    assert entry is not None
    report = BALANCER_REPORT.decode(entry.key, entry.value)
    assert isinstance(report, BalancerReport)
    return report


def _pool(one: FrontendReport) -> list[tuple[str, str, int | None, int]]:
    return [(each.name, each.state, each.weight, each.configured) for each in one.pools[0].backends]


def test_the_report_in_the_store_has_states_weights_and_reasons(tmp_path: Path) -> None:
    async def story(site: StoreSite) -> None:
        await site.fill()
        site.truth.down = {"b2"}
        site.start()
        await asyncio.sleep(50)
        one = _reported(site).details["f1"]
        assert (one.vip, one.active_pool, one.programmed) == ("192.0.2.1:80/tcp", 0, True)
        assert _pool(one) == [("b1", "up", 100, 100), ("b2", "down", 0, 100)]
        assert (one.pools[0].up, one.pools[0].total) == (1, 2)
        up, down = one.pools[0].backends
        assert (up.why, up.since) == ("", None)
        assert down.why
        assert down.since is not None
        before = down.since
        await asyncio.sleep(20)
        assert _reported(site).details["f1"].pools[0].backends[1].since == before

    play(story, tmp_path)


def test_a_pause_and_its_reason_are_reported(tmp_path: Path) -> None:
    async def story(site: StoreSite) -> None:
        await site.fill()
        pause = intent(IntentKind.PAUSE, ScopeKind.FRONTEND, "f1")
        await site.put(INTENT, pause.name, pause)
        site.start()
        await asyncio.sleep(50)
        assert _reported(site).details["f1"].paused == "ada: new disk"

    play(story, tmp_path)


def test_frontends_and_backends_in_trouble_come_first(tmp_path: Path) -> None:
    async def story(site: StoreSite) -> None:
        await site.fill(frontends=3)
        count = BACKENDS_LIMIT + 8
        for number in range(count):
            backend = Backend(address=f"10.1.0.{number + 1}", port=80, healthcheck=("web",))
            await site.put(BACKEND, f"c{number}", backend)
        pool = Pool(backends={f"c{number}": PoolMember() for number in range(count)})
        await site.put(FRONTEND, "large", Frontend(address="192.0.2.9", port=80, pools=(pool,)))
        site.truth.down = {f"c{count - 1}"}
        site.start()
        await asyncio.sleep(50)
        clock = site.node.clock
        found = dict(frontend_details(site.job.reconciler, clock.now(), clock.wall()))
        assert list(found) == ["large", "f1", "f2", "f3"]
        (one,) = found["large"].pools
        assert (one.up, one.total, len(one.backends)) == (count - 1, count, BACKENDS_LIMIT)
        assert (one.backends[0].name, one.backends[0].state) == (f"c{count - 1}", "down")

    play(story, tmp_path)
