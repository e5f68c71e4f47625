"""A status worker after a restore of the database: it reads the rows again when the verdict has ended."""

from __future__ import annotations

import asyncio
from pathlib import Path

from sqlalchemy import delete

from holdfast.config import Config
from holdfast.inventory.api import Fence
from holdfast.inventory.sql.engine import writing
from holdfast.inventory.sql.schema import OBSERVED
from holdfast.model.base.time import Duration, seconds
from holdfast.model.calico.endpoint_status import ENDPOINT_STATUS, EndpointState, EndpointStatus
from holdfast.model.control.leader import LEADER
from holdfast.runtime.daemon.board import Board
from holdfast.runtime.daemon.worker import Spec, Worker
from holdfast.runtime.paths import RolePaths
from holdfast.server.election.leadership import LEADERSHIP_CELL, LeadershipCell
from holdfast.server.identity.gate import IDENTITY_CELL, IdentityCell
from holdfast.server.status import kinds
from holdfast.server.status.worker import StatusWorker
from holdfast.server.workers import cells
from holdfast.store.api import Put
from holdfast.testing import Node, World, simulate
from holdfast.testing.fault import fault
from tests.inventory.harness import REGION, endpoint, host
from tests.server.harness import StatusHarness, at_once, status_harness, status_key

SPEC = Spec("endpoint-status", "")


class Poll:
    """Wakes nobody before the time."""

    async def wait(self, most: Duration) -> None:
        await asyncio.sleep(most.total_seconds())

    async def close(self) -> None:
        return None


class LeadingServer:
    """The endpoints' worker of a server that leads, as it ships, on virtual time."""

    def __init__(self, world: World, here: StatusHarness, folder: Path) -> None:
        self.node: Node = world.node("ctl-1")
        key = LEADER.key(REGION, "leader")
        self.term = world.store.apply("ctl-1", (), [Put(key, b"{}")]).revision
        here.inventory.raise_fence(Fence(REGION.segment, 1, self.term))
        paths = RolePaths("server", folder / "run", folder / "state")
        paths.prepare()
        board = Board.create(paths.board, ["supervisor", SPEC.name, *cells([SPEC])])
        self.worker = Worker(SPEC, "server", paths, Config(), self.node.clock, board)
        until = self.node.clock.now() + seconds(1e6)
        board.cell(LEADERSHIP_CELL, LeadershipCell).write(LeadershipCell("leading", self.term, until, until))
        self._identity = board.cell(IDENTITY_CELL, IdentityCell)
        self.judge("", 0)
        store = self.node.store()
        kind = kinds.endpoints(REGION, store, here.observed, at_once, self.node.clock.now)
        self.node.run(StatusWorker(self.worker, kind, store, Poll(), None).run())

    def judge(self, closed: str, changes: int) -> None:
        """Show a verdict as the syncer does."""
        self._identity.write(IdentityCell(self.term, 1, closed, self.node.clock.now(), changes))


@fault(
    "C61",
    without="holdfast.server.status.worker:has_verdict_ended",
    returns=False,
    sees=(AssertionError, r'here.rows\("endpoint"\).keys\(\) == before.keys\(\)'),
)
def test_C61_rows_that_a_restored_database_has_lost_are_written_when_the_verdict_ends(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        with status_harness(tmp_path) as here:
            here.editor.change([host(1), *map(endpoint, range(3))], who="alice")
            up = ENDPOINT_STATUS.encode(EndpointStatus(EndpointState.UP))
            world.store.apply("agent", (), [Put(status_key(number), up) for number in range(3)])
            server = LeadingServer(world, here, tmp_path)
            await asyncio.sleep(5)
            before = here.rows("endpoint")
            assert len(before) == 3
            server.judge("INVENTORY_RESTORED", 1)
            with writing(here.engine) as connection:
                connection.execute(delete(OBSERVED))
            await asyncio.sleep(5)
            assert here.rows("endpoint") == {}, "nothing is written under a verdict"
            server.judge("", 2)
            await asyncio.sleep(10)
            assert here.rows("endpoint").keys() == before.keys()

    simulate(1, scenario)
