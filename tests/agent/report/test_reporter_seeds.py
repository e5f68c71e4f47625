"""The reporter under random faults: the host is reported alive exactly as long as it is, and not too often."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.agent.report.reporter import Reporter
from holdfast.agent.report.reporting_host import ReportingHost
from holdfast.agent.report.schedule import ReportIntervals
from holdfast.model.base.region import Region
from holdfast.model.base.time import seconds
from holdfast.model.calico.agent_status import AGENT_STATUS, LAST_STATUS
from holdfast.model.fleet.agent_report import AGENT_REPORT, AgentReport
from holdfast.testing import FakeClient, StoreWrite, World, simulate

REGION = Region()
HOST = "r12-07"
TTL = 90.0
INTERVALS = ReportIntervals()
OWN = {kind.key(REGION, HOST) for kind in (AGENT_STATUS, LAST_STATUS, AGENT_REPORT)}
REPORT, STATUS = AGENT_REPORT.key(REGION, HOST), AGENT_STATUS.key(REGION, HOST)
SLACK = 30.0
"""Margin for deadlines of running calls, and for pauses between attempts."""


class Host1207:
    """One host: its reporter comes and goes, the worker beside it answers or does not, its link is cut and heals."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.random = world.stream("weather")
        self.hears = True
        self.linked = True
        self.count = 0
        self.well_since = 0.0
        """Start of the current time without faults; infinite during a fault."""
        self.silent_since = float("inf")
        self.client: FakeClient | None = None
        self.writes: list[tuple[float, bool]] = []
        """Time of each write, and whether it was a full report."""
        world.store.observers.append(self._judge)

    async def live(self) -> None:
        """Injects faults for half an hour, and checks after each one."""
        self.start()
        while self.world.time < 1_800:
            await asyncio.sleep(self.random.uniform(1, 60))
            self.look()
            self.change()
        self.hears = self.linked = True
        self.restart()
        await asyncio.sleep(60)
        assert self.is_alive(), "in fair weather the host is alive"

    def change(self) -> None:
        match self.random.choice(["silence", "cut", "restart", "count", "count"]):
            case "silence":
                self.hears = not self.hears
                self.silent_since = float("inf") if self.hears else self.world.time
            case "cut":
                self.linked = not self.linked
                self.relink()
            case "restart":
                self.restart()
            case _:
                self.count += 1
        self.well_since = self.world.time if self.hears and self.linked else float("inf")

    def look(self) -> None:
        now = self.world.time
        if now - self.well_since > SLACK:
            assert self.is_alive(), f"all has been well for {now - self.well_since:.0f} s, and the host is not alive"
        if now - self.silent_since > INTERVALS.silent_after.total_seconds() + TTL + SLACK:
            assert not self.is_alive(), f"its worker has said nothing for {now - self.silent_since:.0f} s"

    def start(self) -> None:
        node = self.world.node(HOST)
        node.run(self._life())

    def restart(self) -> None:
        """kill -9, and started again at once."""
        self.world.node(HOST).kill()
        self.start()
        self.well_since = self.world.time if self.hears and self.linked else float("inf")

    def relink(self) -> None:
        if self.client is not None:
            self.client.link.heal() if self.linked else self.client.link.cut()

    def is_alive(self) -> bool:
        return self.world.store.keys.get(STATUS) is not None

    async def _life(self) -> None:
        node = self.world.node(HOST)
        self.client = node.store()
        self.relink()
        reporter = Reporter(
            self.client,
            ReportingHost(REGION, HOST, "boot-1"),
            seconds(TTL),
            INTERVALS,
            node.clock,
            query_worker=self._query_worker,
            remembered=lambda: None,
            show=lambda _success, _state: None,
        )
        self.writes.clear()
        await reporter.run(asyncio.Event())

    async def _query_worker(self) -> AgentReport | None:
        return AgentReport(version="1", boot_id="boot-1", counts={"failed": self.count}) if self.hears else None

    def _judge(self, write: StoreWrite) -> None:
        if not write.client.startswith(HOST):
            return
        keys = {event.key for event in write.events}
        assert keys <= OWN, f"only keys of this host are written, not {keys - OWN}"
        if REPORT in keys:
            self.writes.append((write.at, STATUS in keys))
        for (before, _), (after, alive) in zip(self.writes[-2:], self.writes[-1:], strict=False):
            apart = after - before
            assert alive or not apart or apart > INTERVALS.spacing.total_seconds() - 0.1, (
                f"two reports {apart:.1f} s apart"
            )


async def _weather(world: World) -> None:
    await Host1207(world).live()


@pytest.mark.parametrize("seed", range(25))
def test_the_host_is_reported_alive_as_long_as_it_is(seed: int) -> None:
    simulate(seed, _weather)


@pytest.mark.soak
def test_the_host_is_reported_alive_as_long_as_it_is_under_thousands_of_seeds() -> None:
    for seed in range(25, 2_000):
        simulate(seed, _weather)
