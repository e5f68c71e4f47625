"""Frame of leader work: declines on a follower, leads while the board shows leadership, follows again after."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any

import pytest

from holdfast.config.root import Config
from holdfast.model.base.region import Region
from holdfast.model.base.time import seconds
from holdfast.model.control.identity import IDENTITY, Identity
from holdfast.runtime.clock import SystemClock
from holdfast.runtime.control import Declined, Request, Who
from holdfast.runtime.daemon.board import Board
from holdfast.runtime.daemon.worker import Spec, Worker
from holdfast.runtime.intents.etcd import SYNCER, server_intents
from holdfast.runtime.paths import RolePaths
from holdfast.server.election.leadership import LEADERSHIP_CELL, Leadership, LeadershipCell, Leading
from holdfast.server.leader_work import LeaderWork
from holdfast.server.workers import cells
from holdfast.store.identity import identity_key
from holdfast.testing import FakeStore

ALICE = Who(1000, 1, "alice")
SPEC = Spec("syncer", "")


class Work(LeaderWork):
    """Work that lasts as long as its term, and answers `held`."""

    def __init__(self, worker: Worker) -> None:
        store = FakeStore().client()
        state = worker.paths.state
        super().__init__(
            worker,
            Leadership.of(worker),
            store,
            Region(),
            SYNCER,
            server_intents(store, Region(), worker.clock, state, SYNCER, lambda: None),
            commands=("held",),
            on_follower="is idle",
        )
        self.working = asyncio.Event()
        self.tried = asyncio.Event()
        self.is_store_away = False

    async def begin(self, leading: Leading) -> Coroutine[Any, Any, None] | None:
        self.tried.set()
        if self.is_store_away:
            self.worker.vitals.attempted(success=False, state="waiting: store")
            return None
        self.worker.handlers["held"] = self._held
        self.worker.vitals.state = f"term {leading.term}"
        return self._work()

    async def _work(self) -> None:
        self.working.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.working.clear()

    async def _held(self, _request: Request, _who: Who) -> str:
        return "nothing is held"

    def clear_metrics(self) -> None:
        return None

    async def ask(self) -> Any:
        return await self.worker.handlers["held"](Request("held", {}), ALICE)

    def lead(self, term: int) -> None:
        until = self.worker.clock.now() + seconds(1e6)
        phase = "leading" if term else "following"
        self.worker.board.cell(LEADERSHIP_CELL, LeadershipCell).write(LeadershipCell(phase, term, until, until))


@contextlib.asynccontextmanager
async def running(folder: Path) -> AsyncIterator[Work]:
    paths = RolePaths("server", folder / "run", folder / "state")
    paths.prepare()
    board = Board.create(paths.board, ["supervisor", SPEC.name, *cells([SPEC])])
    work = Work(Worker(SPEC, "server", paths, Config(), SystemClock(), board))
    task = asyncio.create_task(work.run())
    await asyncio.sleep(0)
    try:
        yield work
    finally:
        work.worker.stopping.set()
        async with asyncio.timeout(5):
            await task


async def until(condition: Any) -> None:
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def test_a_follower_declines_what_only_a_leader_answers_and_a_former_leader_declines_it_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as work:
            with pytest.raises(Declined, match="does not lead, so its syncer is idle; holdfast leader shows"):
                await work.ask()
            work.lead(7)
            await until(work.working.is_set)
            assert (await work.ask(), work.worker.vitals.state) == ("nothing is held", "term 7")
            work.lead(0)
            await until(lambda: work.worker.vitals.state == "following")
            assert not work.working.is_set()
            with pytest.raises(Declined, match="does not lead"):
                await work.ask()

    asyncio.run(scenario())


def test_a_term_that_could_not_begin_leaves_the_reason_in_the_vitals_and_is_tried_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as work:
            work.is_store_away = True
            work.lead(7)
            await until(work.tried.is_set)
            await asyncio.sleep(0)
            assert work.worker.vitals.state == "waiting: store"
            work.is_store_away = False
            await until(work.working.is_set)

    asyncio.run(scenario())


def test_a_leader_that_stops_ends_its_work_before_it_returns(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as work:
            work.lead(7)
            await until(work.working.is_set)
        assert not work.working.is_set()

    asyncio.run(scenario())


def test_a_follower_remembers_pauses_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.server.leader_work._PAUSES_EVERY", seconds(0.01))

    async def scenario() -> None:
        async with running(tmp_path) as work:
            await work.store.put(identity_key(Region()), IDENTITY.encode(Identity("kelp", 1)))
            await work.worker.handlers["pause"](Request("pause", {"reason": "migration"}), ALICE)
            remembered = work.worker.paths.state / "intents" / "server.syncer.remembered.json"
            await until(lambda: remembered.exists() and b"migration" in remembered.read_bytes())
            await work.worker.handlers["resume"](Request("resume", {}), ALICE)
            await until(lambda: b"migration" not in remembered.read_bytes())

    asyncio.run(scenario())
