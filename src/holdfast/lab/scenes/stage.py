"""The stage of every scene: a running lab seen from outside, waiting for something to be so, and what a promise is.

How a scene reaches into a lab from outside: its etcd and its database, each for the length of a block.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
from sqlalchemy import Engine

from holdfast.inventory.sql.engine import database_url, open_engine
from holdfast.lab.fleet import fleet
from holdfast.lab.fleet.fenced_writer import WriterCounts, writes_prefix
from holdfast.lab.fleet.inventory import database
from holdfast.model.base.region import Region
from holdfast.model.base.time import Duration
from holdfast.runtime.clock import SystemClock
from holdfast.runtime.control import Request, ask
from holdfast.runtime.daemon.board import Board, BoardError
from holdfast.runtime.daemon.report import report
from holdfast.server.election.leadership import LEADERSHIP_CELL, LeadershipCell, Leading, judge
from holdfast.store.client import EtcdStore
from holdfast.store.transport.gateway import Connection

CLOCK = SystemClock()
PATIENCE = Duration(seconds=60)


class Broken(Exception):
    """A promise was not kept, or the lab is not as the scene needs it; the message is one sentence."""


Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Lab:
    """A running lab, seen from outside."""

    folder: Path

    def board(self, daemon: str, role: str = "server") -> Board:
        return Board.open(self.folder / "run" / daemon / f"{role}.board", read_only=True)

    def leading(self, server: str) -> Leading | None:
        try:
            said = judge(self.board(server).cell(LEADERSHIP_CELL, LeadershipCell).read(), (), CLOCK.now())
        except BoardError:
            return None
        return said if isinstance(said, Leading) else None

    def leader(self) -> tuple[str, Leading] | None:
        for server in fleet.SERVERS:
            said = self.leading(server)
            if said is not None:
                return server, said
        return None

    def tree(self, daemon: str, role: str = "server") -> list[int]:
        """The process ids of one daemon: its supervisor first, then every worker that has shown itself."""
        return [pid for pid in _processes(self.board(daemon, role), role) if pid is not None]

    def is_up(self, daemon: str, role: str = "server", *, not_as: Collection[int] = ()) -> bool:
        """Whether its supervisor and all of its workers have shown themselves, none as one of these processes."""
        try:
            found = set(_processes(self.board(daemon, role), role))
        except BoardError:
            return False
        return None not in found and found.isdisjoint(not_as)

    async def counts(self, server: str) -> WriterCounts | None:
        """What became of the server's writes, by its own word; None while it does not answer."""
        path = self.folder / "run" / server / "server.sock"
        said = await ask(path, Request("tell", {"do": "counts"}, "writer"), timeout=2.0)
        return None if said.error else msgspec.convert(said.result, WriterCounts, strict=False)

    async def accepted(self, server: str) -> int:
        """How many writes of this server etcd has accepted, by etcd's word."""
        url = fleet.endpoint(self.folder / "state")
        if url is None:
            raise Broken("the lab's etcd has not been started yet")
        store = EtcdStore(Connection((url,)))
        try:
            entry = await store.get(writes_prefix(Region()) + server.encode())
        finally:
            await store.close()
        return entry.version if entry else 0

    def etcd_pid(self) -> int:
        return int((fleet.etcd_folder(self.folder / "state") / "pid").read_text(encoding="ascii"))


def _processes(board: Board, role: str) -> list[int | None]:
    said = report(board, role, "", CLOCK.now())
    return [said.supervisor_pid, *(worker.pid for worker in said.workers)]


async def until(what: str, look: Callable[[], object], most: Duration = PATIENCE) -> Duration:
    """Waits for something to be so; how long that took."""
    began = CLOCK.now()
    while not look():
        if CLOCK.now() - began > most:
            raise Broken(f"{what} did not happen within {most.total_seconds():g} s")
        await asyncio.sleep(0.02)
    return CLOCK.now() - began


def send(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue  # a worker whose supervisor was killed a moment ago is gone already


def promise(kept: bool, what: str) -> None:
    if not kept:
        raise Broken(f"the promise was broken: {what}")


Scene = Callable[[Lab, Say, float], Awaitable[None]]


@contextlib.asynccontextmanager
async def store_of(lab: Lab) -> AsyncIterator[EtcdStore]:
    url = fleet.endpoint(lab.folder / "state")
    if url is None:
        raise Broken("the lab's etcd has not been started yet")
    store = EtcdStore(Connection((url,)))
    try:
        yield store
    finally:
        await store.close()


@contextlib.contextmanager
def database_of(lab: Lab) -> Iterator[Engine]:
    engine = open_engine(database_url(database(lab.folder / "state")))
    try:
        yield engine
    finally:
        engine.dispose()
