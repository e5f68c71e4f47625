"""Simulated machines: each with clocks of its own, and processes on them that can be killed, frozen and started again.

A kill is a SIGKILL: not one more line of the process runs, no `finally` either, while what it had sent goes on. A
pause is a SIGSTOP: nothing of the process runs, its machine's clock does, and on resume everything that came due is
late. With `clock_stands=True` it is a hypervisor's pause, of which the machine itself notices nothing.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections.abc import Coroutine, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.model.base.time import Duration, Instant
from holdfast.testing.sim.loop import LIFE, never_before
from holdfast.testing.store.client import FakeClient

if TYPE_CHECKING:
    from holdfast.testing.sim.world import World

T = TypeVar("T")
WALL_START = datetime(2026, 1, 1, tzinfo=UTC)


class NodeClock:
    """The clocks of one simulated machine: a boot clock that may run fast or slow, a wall clock that may be wrong."""

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
        """Somebody sets the wall clock; the boot clock does not care (C9)."""
        self._wall_error += by

    def local(self, world: float) -> float:
        """Seconds on the boot clock at that moment of the world."""
        return self._uptime + world * self._rate

    def world(self, local: float) -> float:
        return never_before((local - self._uptime) / self._rate, local, self.local)

    def stand_still(self, world_seconds: float) -> None:
        """The machine did not run for a while and does not know it."""
        self._uptime -= world_seconds * self._rate


class ProcessLife:
    """One process from its start to its death."""

    def __init__(self, number: int, name: str, clock: NodeClock) -> None:
        self.number = number
        self.name = name
        self.frozen = False
        self.dead = False
        self.clients: list[FakeClient] = []
        self.local = clock.local
        self.world = clock.world
        self.context = contextvars.Context()
        self.context.run(LIFE.set, self)


class _Machine:
    """What the processes of one machine share: a hypervisor's pause stops them all, and the clock with them."""

    def __init__(self, world: World, clock: NodeClock) -> None:
        self.processes: list[Node] = []
        self.suspended_at: float | None = None
        self._world = world
        self._clock = clock

    def suspend(self) -> None:
        if self.suspended_at is None:
            self.suspended_at = self._world.time

    def go_on(self) -> None:
        """All that its processes wait for comes later by as long as it stood."""
        if self.suspended_at is None:
            return
        stood = self._world.time - self.suspended_at
        self.suspended_at = None
        self._clock.stand_still(stood)
        for node in self.processes:
            if node.life is not None:
                self._world.loop.reschedule(node.life, stood)


class Node:
    """One machine, and the process that runs on it now. `beside` gives further processes on the same machine."""

    def __init__(
        self, world: World, name: str, clock: NodeClock, seed: random.Random, machine: _Machine | None = None
    ) -> None:
        self.name = name
        self.clock = clock
        self.random = seed
        """For the jitter of what runs here."""
        self.life: ProcessLife | None = None
        """The process that runs now, or ran last."""
        self._world = world
        self._stopped = False
        self._machine = machine or _Machine(world, clock)
        self._machine.processes.append(self)

    def beside(self, name: str) -> Node:
        """Another process of this machine: the same clocks, a life of its own."""
        return Node(self._world, name, self.clock, self._world.stream(f"node {name}"), self._machine)

    @property
    def alive(self) -> bool:
        return self.life is not None and not self.life.dead

    @property
    def paused(self) -> bool:
        return self.alive and (self._stopped or self._machine.suspended_at is not None)

    @property
    def clients(self) -> Sequence[FakeClient]:
        """The store clients of the process that runs now, or ran last."""
        return tuple(self.life.clients) if self.life is not None else ()

    def run(self, work: Coroutine[Any, Any, T], *, may_fail: bool = False) -> asyncio.Task[T]:
        """Runs a coroutine in this node's process; after a kill, in a new one. If it fails, so does the simulation,
        unless it `may_fail` and whoever started it looks at the task."""
        life = self._alive()
        loop = asyncio.get_running_loop()
        name = f"{life.name}/{getattr(work, '__qualname__', 'work')}"
        task = life.context.copy().run(lambda: loop.create_task(work, name=name))
        if not may_fail:
            task.add_done_callback(self._world.judge, context=contextvars.Context())
        return task

    def store(self, *, deadline: Duration | None = None) -> FakeClient:
        """A store client of this node's process, over a link with the world's latency."""
        life = self._alive()
        client = self._world.connect(life.name, deadline)
        life.clients.append(client)
        return client

    def kill(self) -> None:
        """SIGKILL. What it had sent is still on its way."""
        if self.life is not None and self.alive:
            self._world.note(f"{self.life.name} is killed")
            self.life.dead = True
            self._stopped = False

    def pause(self, *, clock_stands: bool = False) -> None:
        """SIGSTOP, or a pause of the whole machine of which its clock knows nothing."""
        if self.life is None or not self.alive or self.paused:
            return
        self._world.note(f"{self.life.name} is paused{', and its clock' if clock_stands else ''}")
        if clock_stands:
            self._machine.suspend()
        else:
            self._stopped = True
        for node in self._machine.processes:
            node._freeze_or_not()

    def resume(self) -> None:
        """SIGCONT: everything that came due meanwhile runs now, late. A machine that was suspended goes on whole."""
        if self.life is not None and (self._stopped or self._machine.suspended_at is not None):
            self._world.note(f"{self.life.name} goes on")
            self._machine.go_on()
            self._stopped = False
            for node in self._machine.processes:
                node._freeze_or_not()
            self._world.loop.thaw()

    def _freeze_or_not(self) -> None:
        if self.life is not None:
            self.life.frozen = self.paused

    def _alive(self) -> ProcessLife:
        if self.life is None or self.life.dead:
            number = self._world.next_life()
            self.life = ProcessLife(number, f"{self.name}.{number}", self.clock)
            self.life.frozen = self._machine.suspended_at is not None
            self._world.lives.append(self.life)
            self._world.note(f"{self.life.name} starts")
        return self.life
