"""Simulated servers: the shipped elector, registrar and leader work, as processes on machines of their own.

A server is two processes, as in production: one elects, one writes; between them a board, in memory. Machines have boot
ids and PID namespaces, and a process table that always knows which processes are gone.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from datetime import UTC, datetime
from typing import Any, NoReturn, TypeVar
from unittest.mock import patch

import msgspec

from holdfast.config.sections.server import ServerSettings
from holdfast.model.base.keys import own
from holdfast.model.base.region import Region
from holdfast.model.base.time import Instant, nanoseconds, seconds
from holdfast.model.control.leader import LEADER, Leader
from holdfast.model.control.server import Server, WorkerHealth
from holdfast.reconcile import Away
from holdfast.runtime.clock import Clock, SystemClock
from holdfast.runtime.daemon.board import Cell
from holdfast.server.election.elector import Elector
from holdfast.server.election.handover import Ability, successor
from holdfast.server.election.leadership import (
    Leadership,
    LeadershipCell,
    Leading,
    NotLeading,
    TermEnded,
    is_over,
    while_leading,
)
from holdfast.server.election.machine import Election, ElectionPhase, LossReason, rests
from holdfast.server.election.predecessor import certainly_dead
from holdfast.server.election.registrar import Registrar
from holdfast.server.election.trial import DatabaseTrial, TrialState
from holdfast.store.api import NoSpace, Store, StoreAway, StoreError
from holdfast.store.fenced.store import FencedStore
from holdfast.testing import Node, World
from holdfast.testing.sim.nodes import NodeClock, SimProcess
from holdfast.testing.store.link import later

T = TypeVar("T")

REGION = Region("sim")
LEADER_KEY = LEADER.key(REGION, "leader")
DATA = own("sim/")(REGION).encode()
FIRST_PID = 7
_RESTART_AFTER = 1.0


class Data(msgspec.Struct, frozen=True):
    """A leader's write: server, term and serial number."""

    server: str
    life: str
    term: int
    number: int


class Slot(Cell[T]):
    """A cell of a board, without shared memory."""

    def __init__(self) -> None:
        self._value: T | None = None

    def write(self, value: T) -> None:
        self._value = value

    def read(self) -> T | None:
        return self._value


class Host:
    """One machine: its first process brings the clocks; its process table is always right."""

    def __init__(self, world: World, name: str, *, rate: float = 1.0, wall_error: float = 0.0) -> None:
        self.name = name
        self.boots = 1
        self.first = world.node(name, rate=rate, wall_error=seconds(wall_error))
        self._table: dict[tuple[str, int], SimProcess] = {}

    @property
    def boot_id(self) -> str:
        return f"{self.name}, boot {self.boots}"

    def pid(self, namespace: str, process: SimProcess) -> int:
        """Assign a pid to a new process: the lowest that was never used in that namespace, as in a new container."""
        pid = FIRST_PID + sum(1 for where, _ in self._table if where == namespace)
        self._table[namespace, pid] = process
        return pid

    def is_gone(self, namespace: str, pid: int) -> bool:
        process = self._table.get((namespace, pid))
        return process is None or process.dead


class MachineClock(SystemClock):
    """The shipped clock, which asks the system calls of a simulated machine: the boot clock and the time of day."""

    def __init__(self, machine: NodeClock) -> None:
        self.machine = machine

    def now(self) -> Instant:
        with patch.object(time, "clock_gettime_ns", self._read):
            return super().now()

    def wall(self) -> datetime:
        return self.machine.wall()

    def _read(self, which: int) -> int:
        return {
            time.CLOCK_BOOTTIME: self.machine.now().ns,
            time.CLOCK_REALTIME: nanoseconds(self.machine.wall() - datetime(2025, 1, 1, tzinfo=UTC)),
        }[which]


Seen = Callable[["SimServer", LeadershipCell], None]


class SimServer:
    """One server. `name` is unique, `called` is the name that it is configured with."""

    def __init__(
        self, world: World, name: str, host: Host, namespace: str, timings: ServerSettings, *, called: str = ""
    ) -> None:
        self.called = called or name
        self.name = name
        self.host = host
        self.namespace = namespace
        self.timings = timings
        self.clock: Clock = host.first.clock
        self.electing = host.first.beside(f"{self.name}/elector")
        self.writing = host.first.beside(f"{self.name}/writer")
        self.shown, self.found = Slot[LeadershipCell](), Slot[TermEnded]()
        self.elector: Elector | None = None
        self.registrar: Registrar | None = None
        self.seen: list[Seen] = []
        """Told whatever the elector shows."""
        self.has_database: Callable[[], bool] = lambda: True
        self.can_lead: Callable[[], bool] = lambda: True
        """False: a leader's work fails in the database although a trial succeeds, as without a privilege."""
        self.ability = Ability()
        """Whether the database answers this server."""
        self.stubborn = 0.0
        """For how many seconds work ignores that it was cancelled."""
        self._world = world
        self._stopping = asyncio.Event()
        self._numbers = 0

    @property
    def processes(self) -> Sequence[Node]:
        return self.electing, self.writing

    @property
    def alive(self) -> bool:
        return any(node.alive for node in self.processes)

    @property
    def leadership(self) -> Leadership:
        return Leadership(self.shown, self.found, [self.found], self.clock)

    def check(self) -> Leading | NotLeading:
        return self.leadership.check()

    def reboot(self) -> None:
        """Restart the machine: its processes and its board are gone."""
        for node in self.processes:
            node.kill()
        self.shown, self.found = Slot[LeadershipCell](), Slot[TermEnded]()

    def start(self) -> None:
        self.revive(self.electing)
        self.revive(self.writing)

    def revive(self, node: Node) -> None:
        """Restart a process that is gone, as a supervisor does."""
        if node.alive:
            return
        if node is self.electing:
            self._start_electing(node)
        else:
            leadership = self.leadership
            node.run(while_leading(leadership, self._work(leadership, node.store()), asyncio.Event(), die=self._die))

    async def stop(self) -> None:
        """SIGTERM: hand over leadership and name in bounded time, then end the process."""
        if self.electing.alive:
            self._stopping.set()
            process = self.electing.process
            await asyncio.sleep(self.timings.ttl.total_seconds())
            if self.electing.process is process:
                self.electing.kill()

    def _start_electing(self, node: Node) -> None:
        store = node.store(deadline=self.timings.rpc_timeout)
        assert node.process is not None
        pid = self.host.pid(self.namespace, node.process)
        me = Leader(self.called, self.host.name, pid, self.host.boot_id, self.namespace, self.clock.wall())
        self._stopping = asyncio.Event()
        found = self.found
        self.elector = elector = Elector(
            store,
            self.timings,
            clock=self.clock,
            me=me,
            region=REGION,
            is_dead=self._is_dead(me),
            is_over=lambda term: is_over(term, [found.read()]),
            show=self._show(self.shown),
            on_attempt=lambda _state, success: None,
            on_change=lambda _term, sentence: self._world.note(sentence),
        )
        trial = DatabaseTrial(self._try_database)
        self.registrar = registrar = self._registrar(store, me, elector, trial)
        node.run(
            _take_part(
                elector, registrar, self._stopping, trial.run, lambda: self._give_way(me, elector, registrar, trial)
            )
        )

    def _registrar(self, store: Store, me: Leader, elector: Elector, trial: DatabaseTrial) -> Registrar:
        return Registrar(
            store,
            REGION,
            self.called,
            self.timings.ttl,
            report=lambda: self._report(me, trial),
            is_dead=self._is_dead(me),
            on_name_taken=self._name_taken(elector),
        )

    async def _try_database(self) -> None:
        await asyncio.sleep(0.01)
        if not self.has_database():
            raise Away("database", "it does not answer")

    async def _give_way(self, me: Leader, elector: Elector, registrar: Registrar, trial: DatabaseTrial) -> None:
        """Check every second what this server is able to do, as the elector's worker does."""
        self.ability = Ability()
        while True:
            await asyncio.sleep(1)
            leads, now = elector.state.phase is ElectionPhase.LEADING, self.clock.now()
            self.ability = self.ability.updated(self._report(me, trial), registrar.others, now, leads=leads)
            if leads and successor(self.ability, registrar.others, now) is not None:
                elector.leave(LossReason.HANDED_OVER)

    def _is_dead(self, me: Leader) -> Callable[[Leader | Server], bool]:
        return lambda other: certainly_dead(other, me, lambda pid: self.host.is_gone(self.namespace, pid))

    def _show(self, board: Cell[LeadershipCell]) -> Callable[[LeadershipCell], None]:
        def show(shown: LeadershipCell) -> None:
            board.write(shown)
            for told in self.seen:
                told(self, shown)

        return show

    def _name_taken(self, elector: Elector) -> Callable[[str], None]:
        def taken(sentence: str) -> None:
            withheld = LossReason.DUPLICATE in elector.state.withheld
            if sentence and not withheld:
                elector.leave(LossReason.DUPLICATE)
            elif withheld and not sentence:
                elector.rejoin(LossReason.DUPLICATE)

        return taken

    def _report(self, me: Leader, trial: DatabaseTrial) -> Server:
        state = Election() if self.elector is None else self.elector.state
        # A leader's syncer uses the database; a follower knows only what its trial has shown.
        shown = trial.state.value
        if state.phase is ElectionPhase.LEADING:
            shown = "ok" if self.has_database() and self.can_lead() else "waiting: database"
        healthy = not shown.startswith("waiting")
        return Server(
            host=me.host,
            pid=me.pid,
            boot_id=me.boot_id,
            pid_namespace=me.pid_namespace,
            version="1",
            since=self.clock.wall(),
            database=healthy and shown != TrialState.UNTRIED.value,
            failed=self.ability.failed,
            workers={"syncer": WorkerHealth(healthy, shown)},
            stands=not rests(state, self.clock.now()),
        )

    def _work(self, leadership: Leadership, store: Store) -> Callable[[Leading], Awaitable[None]]:
        async def work(said: Leading) -> None:
            try:
                confirmed = await leadership.confirm(store, LEADER_KEY)
            except (StoreAway, StoreError):
                return
            if isinstance(confirmed, Leading) and confirmed.term == said.term:
                await self._write_on(FencedStore(store, LEADER_KEY, said.term, now=self.clock.now))

        return work

    async def _write_on(self, fenced: FencedStore) -> None:
        try:
            while True:
                await self._write(fenced)
                await asyncio.sleep(self.writing.random.uniform(0.1, 1.5))
        except asyncio.CancelledError:
            await asyncio.sleep(self.stubborn)
            raise

    async def _write(self, fenced: FencedStore) -> None:
        self._numbers += 1
        assert self.writing.process is not None
        data = Data(self.name, self.writing.process.name, fenced.term, self._numbers)
        try:
            await fenced.put(DATA + b"%d" % (self._numbers % 3), msgspec.json.encode(data))
        except (StoreAway, NoSpace) as error:
            self._world.note(f"{self.name} cannot tell of its write {self._numbers}: {error}")

    def _die(self, why: str) -> NoReturn:
        self._world.note(f"{self.name} ends its writer: {why}")
        node = self.writing
        node.kill()
        later(_RESTART_AFTER, lambda: self.revive(node))
        raise asyncio.CancelledError


async def _take_part(
    elector: Elector, registrar: Registrar, stopping: asyncio.Event, *beside: Callable[[], Coroutine[Any, Any, None]]
) -> None:
    """Register the name, then take part in the election, as the elector's worker does."""
    try:
        await registrar.register()
    except (StoreAway, StoreError):
        await asyncio.sleep(0)  # it will be tried again, beside the election
    tasks = [asyncio.create_task(one()) for one in (registrar.run, *beside)]
    try:
        await elector.run(stopping)
    finally:
        for task in tasks:
            task.cancel()
    await registrar.withdraw()
