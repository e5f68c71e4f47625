"""A status worker that cannot begin its term logs for what it waits and since when, once per state."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from structlog.testing import capture_logs

from holdfast.config.root import Config
from holdfast.model.base.time import Duration, seconds
from holdfast.model.control.leader import LEADER
from holdfast.reconcile import Away
from holdfast.runtime.daemon.board import Board
from holdfast.runtime.daemon.worker import Spec, Worker
from holdfast.runtime.paths import RolePaths
from holdfast.server.election.leadership import LEADERSHIP_CELL, LeadershipCell, Leading
from holdfast.server.identity.gate import IDENTITY_CELL, IdentityCell
from holdfast.server.status import kinds
from holdfast.server.status.worker import StatusWorker
from holdfast.server.workers import cells
from tests.inventory.harness import REGION
from tests.server.harness import HandClock, StatusHarness, status_harness

SPEC = Spec("agent-status", "")


class NoWaker:
    async def wait(self, most: Duration) -> None:
        await asyncio.sleep(most.total_seconds())

    async def close(self) -> None:
        return None


class Waiter:
    """The agents' worker of a server that leads, whose syncer has judged nothing yet."""

    def __init__(self, here: StatusHarness, folder: Path) -> None:
        paths = RolePaths("server", folder / "run", folder / "state")
        paths.prepare()
        self.clock: HandClock = here.clock
        self.board = Board.create(paths.board, ["supervisor", SPEC.name, *cells([SPEC])])
        self.client = here.fake.client("agent-status")
        worker = Worker(SPEC, "server", paths, Config(), self.clock, self.board)
        run_in_thread: Any = None  # no term's work is begun, so no database is asked
        kind = kinds.agents(REGION, self.client, here.observed, run_in_thread, self.clock.now)
        self.status = StatusWorker(worker, kind, self.client, NoWaker())
        self.vitals = worker.vitals

    async def lead(self, here: StatusHarness) -> Leading:
        key = LEADER.key(REGION, "leader")
        await here.world.put(key, b"{}")
        entry = await here.world.get(key)
        assert entry is not None
        until = self.clock.now() + seconds(1e6)
        cell = LeadershipCell("leading", entry.create_revision, until, until)
        self.board.cell(LEADERSHIP_CELL, LeadershipCell).write(cell)
        return Leading(entry.create_revision, until, until)

    async def until(self, is_reached: Callable[[], bool], then: Duration) -> None:
        async with asyncio.timeout(10):
            while not is_reached():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.3)  # a few more looks at the same state
        self.clock.advance(then)


async def refuse(_leading: Leading) -> bool:
    raise Away("store", "connection refused")


def test_each_state_of_a_wait_is_logged_once_with_its_beginning(tmp_path: Path) -> None:
    async def scenario(here: StatusHarness) -> None:
        waiter = Waiter(here, tmp_path)
        leading, state = await waiter.lead(here), waiter.vitals
        identity = waiter.board.cell(IDENTITY_CELL, IdentityCell)
        fence = asyncio.create_task(waiter.status._wait_fence(leading))
        await waiter.until(lambda: state.state.startswith("idle"), seconds(20))
        identity.write(IdentityCell(leading.term, 1, "STORE_RESTORED"))
        await waiter.until(lambda: state.state == "held: identity", seconds(30))
        waiter.status.is_confirmed = refuse  # type: ignore[assignment,method-assign]
        await waiter.until(lambda: state.state == "waiting: store", seconds(40))
        fence.cancel()
        await asyncio.gather(fence, return_exceptions=True)
        waiter.clock.advance(seconds(3_600))
        state.state = "following"
        again = asyncio.create_task(waiter.status._wait_fence(leading))
        await waiter.until(lambda: state.state == "waiting: store", seconds(1))
        again.cancel()
        await asyncio.gather(again, return_exceptions=True)

    with status_harness(tmp_path) as here, capture_logs() as logs:
        asyncio.run(scenario(here))
    lines = [line for line in logs if line["event"] == "status worker is waiting"]
    assert [(line["log_level"], line["state"], line["waited_s"]) for line in lines] == [
        ("info", "idle: inventory and store are being compared", 0.0),
        ("info", "held: identity", 20.0),
        ("info", "waiting: store", 50.0),
        ("info", "waiting: store", 0.0),  # the wait of the term before is over
    ]
    assert len({line["since"] for line in lines[:3]}) == 1
