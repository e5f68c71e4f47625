"""Simulated machines with their own clocks, and processes on them that can be killed, paused and started again.

A kill is a SIGKILL: not one more line of the process runs, no `finally` either, but its requests still arrive. A
pause is a SIGSTOP: nothing of the process runs, its machine's clock does, and on resume everything that came due is
late. With `clock_stops=True` it is a hypervisor's pause, of which the machine itself notices nothing.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections.abc import Coroutine, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.model.base.time import Duration, Instant, seconds
from holdfast.testing.sim.loop import CURRENT, VirtualLoop, never_before
from holdfast.testing.store.client import FakeClient
from holdfast.testing.store.gateway.client import SimEtcdStore

if TYPE_CHECKING:
    from holdfast.testing.sim.world import World

T = TypeVar("T")
WALL_START = datetime(2026, 1, 1, tzinfo=UTC)


class NodeClock:
    """Clocks of one simulated machine: a boot clock that may run fast or slow, a wall clock that may be wrong."""

    def __init__(self, world: World, *, uptime: float, rate: float, wall_error: Duration) -> None:
        self._world = world
        self._uptime = uptime
        self._rate = rate
        self._wall_error = wall_error

    def now(self) -> Instant:
        return Instant(round(self.local(self._world.time) * 1e9))

    def wall(self) -> datetime:
        return WALL_START + timedelta(seconds=self._world.time) + self._wall_error

    def step(self, by: Duration) -> None:
        """Step the wall clock; the boot clock is unaffected (C9)."""
        self._wall_error += by

    def local(self, world: float) -> float:
        """Return the boot clock, in seconds, at that world time."""
        return self._uptime + world * self._rate

    def world(self, local: float) -> float:
        return never_before((local - self._uptime) / self._rate, local, self.local)

    def stand_still(self, world_seconds: float) -> None:
        """Turn the boot clock back by a time in which the machine did not run."""
        self._uptime -= world_seconds * self._rate


class SimProcess:
    """One process from its start to its end; a restart makes another one."""

    def __init__(self, number: int, name: str, clock: NodeClock) -> None:
        self.number = number
        self.name = name
        self.frozen = False
        self.dead = False
        self.clients: list[FakeClient | SimEtcdStore] = []
        self.local = clock.local
        self.world = clock.world
        self.context = contextvars.Context()
        self.context.run(CURRENT.set, self)

    def end(self) -> None:
        """Run nothing of it any more. The kernel closes its connections; what it has sent still arrives."""
        self.dead = True
        for client in self.clients:
            if isinstance(client, SimEtcdStore):
                client.link.abandon()


class _Machine:
    """State shared by the processes of one machine: a hypervisor's pause stops them all, and the clock with them."""

    def __init__(self, world: World, clock: NodeClock) -> None:
        self.processes: list[Node] = []
        self.suspended_at: float | None = None
        self._world = world
        self._clock = clock

    def suspend(self) -> None:
        if self.suspended_at is None:
            self.suspended_at = self._world.time

    def wake(self) -> None:
        """Resume the machine and delay all timers of its processes by the time it was suspended."""
        if self.suspended_at is None:
            return
        stood = self._world.time - self.suspended_at
        self.suspended_at = None
        self._clock.stand_still(stood)
        for node in self.processes:
            if node.process is not None:
                self._world.loop.reschedule(node.process, stood)


class Node:
    """One machine, and the process that runs on it now. `beside` gives further processes on the same machine."""

    def __init__(
        self, world: World, name: str, clock: NodeClock, seed: random.Random, machine: _Machine | None = None
    ) -> None:
        self.name = name
        self.clock = clock
        self.random = seed
        """Source of jitter for the node's processes."""
        self.process: SimProcess | None = None
        """The current process, or the last one."""
        self._world = world
        self._stopped = False
        self._machine = machine or _Machine(world, clock)
        self._machine.processes.append(self)

    def beside(self, name: str) -> Node:
        """Return a further process of this machine, on the same clocks."""
        return Node(self._world, name, self.clock, self._world.stream(f"node {name}"), self._machine)

    @property
    def loop(self) -> VirtualLoop:
        return self._world.loop

    @property
    def alive(self) -> bool:
        return self.process is not None and not self.process.dead

    @property
    def paused(self) -> bool:
        return self.alive and (self._stopped or self._machine.suspended_at is not None)

    @property
    def clients(self) -> Sequence[FakeClient | SimEtcdStore]:
        """The store clients of the current process, or of the last one."""
        return tuple(self.process.clients) if self.process is not None else ()

    def run(self, work: Coroutine[Any, Any, T], *, may_fail: bool = False) -> asyncio.Task[T]:
        """Run a coroutine in this node's process; after a kill, in a new one. If it fails, so does the simulation,
        unless it `may_fail` and the caller checks the task."""
        process = self._running_process()
        loop = asyncio.get_running_loop()
        name = f"{process.name}/{getattr(work, '__qualname__', 'work')}"
        task = process.context.copy().run(lambda: loop.create_task(work, name=name))
        if not may_fail:
            task.add_done_callback(self._world.check_ended, context=contextvars.Context())
        return task

    def store(self, *, deadline: Duration | None = None) -> FakeClient:
        """Make a store client of this node's process, over a link with the world's latency."""
        process = self._running_process()
        client = self._world.connect(process.name, deadline)
        process.clients.append(client)
        return client

    def etcd(self, *, deadline: Duration = seconds(5), relist_spread: Duration = Duration(0)) -> SimEtcdStore:
        """Make a shipped etcd client of this node's process, on the simulated network."""
        process, world = self._running_process(), self._world
        client = SimEtcdStore(
            world.network,
            process.name,
            now=self.clock.now,
            rng=self.random,
            latency=world.usual_latency,
            deadline=deadline,
            relist_spread=relist_spread,
        )
        process.clients.append(client)
        return client

    def kill(self) -> None:
        """SIGKILL. Requests that it has sent still arrive."""
        if self.process is not None and self.alive:
            self._world.note(f"{self.process.name} is killed")
            self.process.end()
            self._stopped = False

    def pause(self, *, clock_stops: bool = False) -> None:
        """SIGSTOP, or with `clock_stops` a hypervisor's pause of the whole machine, including its clock."""
        if self.process is None or not self.alive or self.paused:
            return
        self._world.note(f"{self.process.name} is paused{', and its clock' if clock_stops else ''}")
        if clock_stops:
            self._machine.suspend()
        else:
            self._stopped = True
        for node in self._machine.processes:
            node._update_frozen()

    def resume(self) -> None:
        """SIGCONT: everything that came due meanwhile runs now, late. A suspended machine resumes as a whole."""
        if self.process is not None and (self._stopped or self._machine.suspended_at is not None):
            self._world.note(f"{self.process.name} is resumed")
            self._machine.wake()
            self._stopped = False
            for node in self._machine.processes:
                node._update_frozen()
            self._world.loop.thaw()

    def _update_frozen(self) -> None:
        if self.process is not None:
            self.process.frozen = self.paused

    def _running_process(self) -> SimProcess:
        if self.process is None or self.process.dead:
            number = self._world.next_number()
            self.process = SimProcess(number, f"{self.name}.{number}", self.clock)
            self.process.frozen = self._machine.suspended_at is not None
            self._world.processes.append(self.process)
            self._world.note(f"{self.process.name} starts")
        return self.process
