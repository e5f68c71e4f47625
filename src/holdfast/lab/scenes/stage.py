"""Tools of every scene: a running lab seen from outside, waiting for a condition, and checking a promise."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec
from sqlalchemy import Engine

from holdfast.inventory.sql.engine import database_url, open_engine
from holdfast.inventory.sql.objects import SqlInventory
from holdfast.lab.fleet import layout
from holdfast.lab.fleet.fenced_writer import WriterCounts, writes_prefix
from holdfast.model.base.region import Region
from holdfast.model.base.time import Duration
from holdfast.runtime.clock import SystemClock
from holdfast.runtime.control import Answer, Request, ask
from holdfast.runtime.daemon.board import Board, BoardError
from holdfast.runtime.daemon.report import report
from holdfast.server.election.leadership import LEADERSHIP_CELL, LeadershipCell, Leading, leadership_verdict
from holdfast.store.client import EtcdStore
from holdfast.store.transport.gateway import Connection

CLOCK = SystemClock()
PATIENCE = Duration(seconds=60)
_POLL_S = 0.02
_BUSY = 4
"""Processes per core that want to run on an overloaded machine."""

T = TypeVar("T")


class Broken(Exception):
    """A promise was broken, or the lab is not in the state that the scene needs; the message is one sentence."""


class NotInThisLab(Broken):
    """The scene needs a lab of another kind, and has broken nothing."""


Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Lab:
    """A running lab, seen from outside."""

    folder: Path

    @property
    def state(self) -> Path:
        return self.folder / "state"

    def board(self, daemon: str, role: str = "server") -> Board:
        return Board.open(self.folder / "run" / daemon / f"{role}.board", read_only=True)

    def leading(self, server: str) -> Leading | None:
        try:
            verdict = leadership_verdict(
                self.board(server).cell(LEADERSHIP_CELL, LeadershipCell).read(), (), CLOCK.now()
            )
        except BoardError:
            return None
        return verdict if isinstance(verdict, Leading) else None

    def leader(self) -> tuple[str, Leading] | None:
        for server in layout.SERVERS:
            leading = self.leading(server)
            if leading is not None:
                return server, leading
        return None

    def tree(self, daemon: str, role: str = "server") -> list[int]:
        """Return the process ids of one daemon: its supervisor first, then every worker that has started."""
        return [pid for pid in _processes(self.board(daemon, role), role) if pid is not None]

    def is_up(self, daemon: str, role: str = "server", *, not_as: Collection[int] = ()) -> bool:
        """Return True if its supervisor and all workers have started, none of them as one of these processes."""
        try:
            found = set(_processes(self.board(daemon, role), role))
        except BoardError:
            return False
        return None not in found and found.isdisjoint(not_as)

    async def ask(
        self, daemon: str, worker: str, command: str, args: Mapping[str, object] | None = None, *, timeout: float = 5.0
    ) -> Answer:
        """Send a command to one worker; `daemon` is its control socket, such as `ctl-1/server`."""
        request = Request("tell", {"do": command, "args": args or {}}, worker)
        return await ask(self.folder / "run" / f"{daemon}.sock", request, timeout=timeout)

    async def release_brake(self) -> None:
        """Release what the syncer's brake holds, as an operator would: the hosts that scenes add and delete within a
        minute are half of so small a fleet."""
        leader = self.leader()
        if leader is not None:
            await self._release(f"{leader[0]}/server", "syncer")

    async def release_agents(self) -> int:
        """The same for the brake of every agent; return how many deletes they held."""
        return sum([await self._release(f"{host}/agent", "peers") for host in layout.hosts(self.state)])

    async def _release(self, daemon: str, worker: str) -> int:
        """Release exactly what the brake of this worker holds now; return how many deletes that were."""
        held = await self.ask(daemon, worker, "held", {"gate": "brake"})
        count: int = 0 if held.error else held.result["gates"].get("brake", 0)
        if not count:
            return 0
        shown = {"gate": "brake", "reason": "a scene of the lab", "shown": count, "seal": held.result["seal"]}
        answer = await self.ask(daemon, worker, "allow", shown)
        return 0 if answer.error else count

    def unsynced(self) -> str:
        """Say that changes of the inventory are still on their way to etcd; empty if none are, or nobody leads."""
        if self.leader() is None:
            return ""
        with self.database() as engine:
            waiting = SqlInventory(engine).waiting()
        return f"{waiting} changes of the inventory have not reached etcd" if waiting else ""

    async def writer_counts(self, server: str) -> WriterCounts | None:
        """Return what the server's writer counted; None while it does not answer."""
        answer = await self.ask(f"{server}/server", "writer", "counts", timeout=2.0)
        return None if answer.error else msgspec.convert(answer.result, WriterCounts, strict=False)

    async def accepted(self, server: str) -> int:
        """Return how many writes of this server etcd has accepted, counted by etcd."""
        async with self.store() as store:
            entry = await store.get(writes_prefix(Region()) + server.encode())
        return entry.version if entry else 0

    def etcd_pid(self) -> int:
        return int((layout.etcd_folder(self.state) / "pid").read_text(encoding="ascii"))

    @contextlib.asynccontextmanager
    async def store(self) -> AsyncIterator[EtcdStore]:
        """Connect to the lab's etcd for the length of the block."""
        url = layout.endpoint(self.state)
        if url is None:
            raise Broken("the lab's etcd has not been started yet")
        store = EtcdStore(Connection((url,)))
        try:
            yield store
        finally:
            await store.close()

    @contextlib.contextmanager
    def database(self) -> Iterator[Engine]:
        """Open the lab's inventory for the length of the block."""
        engine = open_engine(database_url(layout.database(self.state)))
        try:
            yield engine
        finally:
            engine.dispose()


def _processes(board: Board, role: str) -> list[int | None]:
    shown = report(board, role, "", CLOCK.now())
    return [shown.supervisor_pid, *(worker.pid for worker in shown.workers)]


async def until(
    what: str, condition: Callable[[], object | Awaitable[object]], within: Duration = PATIENCE
) -> Duration:
    """Wait for a condition, and return how long that took. Raises `Broken` with `what` when time is up."""
    began = CLOCK.now()

    async def met() -> bool | None:
        result = condition()
        return bool(await result if inspect.isawaitable(result) else result) or None

    await obtain(what, met, within)
    return CLOCK.now() - began


async def obtain(what: str, read: Callable[[], Awaitable[T | None]], within: Duration = PATIENCE) -> T:
    """Wait until `read` returns something, and return that. Raises `Broken` with `what` when time is up."""
    began = CLOCK.now()
    while (found := await read()) is None:
        if CLOCK.now() - began > within:
            raise Broken(f"timed out after {limit_s(within)} waiting for {what}{busy(os.getloadavg()[0])}")
        await asyncio.sleep(_POLL_S)
    return found


def busy(load: float) -> str:
    """Return a note if so many processes want to run that a timeout says little about the product. Pure but for the
    number of cores."""
    cores = os.cpu_count() or 1
    if load < _BUSY * cores:
        return ""
    return f"; this machine is overloaded ({load:.0f} processes want to run on {cores} cores), which may be why"


def send(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        # A worker whose supervisor was killed a moment ago may have exited already.
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def promise(kept: bool, what: str) -> None:
    if not kept:
        raise Broken(f"the promise was broken: {what}")


Play = Callable[[Lab, Say, float], Awaitable[None]]
"""Takes the lab, a function that prints one line, and the seconds that a freeze or an outage lasts."""


@dataclass(frozen=True, slots=True)
class Scene:
    """A scene: what it does (the first sentence of `play`), and the promise that it checks."""

    play: Play
    promise: str
    """What must not suffer; printed before anything is broken."""
    limit: str
    """Bound of the promise: how long, how many, and what it does not cover."""

    @property
    def summary(self) -> str:
        return f"{(self.play.__doc__ or '').partition('.')[0]}."


def limit_s(limit: Duration) -> str:
    """Format a limit as 8 s."""
    return f"{limit.total_seconds():g} s"
