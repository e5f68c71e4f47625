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

from holdfast.model.time import Duration, Instant
from holdfast.testing.client import FakeClient
from holdfast.testing.virtual_loop import LIFE, never_before

if TYPE_CHECKING:
    from holdfast.testing.world import World

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


class Node:
    """One machine, and the process that runs on it now."""

    def __init__(self, world: World, name: str, clock: NodeClock, seed: random.Random) -> None:
        self.name = name
        self.clock = clock
        self.random = seed
        """For the jitter of what runs here."""
        self._world = world
        self._paused_at: float | None = None
        self._clock_stands = False
        self._life: ProcessLife | None = None

    @property
    def alive(self) -> bool:
        return self._life is not None and not self._life.dead

    @property
    def paused(self) -> bool:
        return self._paused_at is not None

    @property
    def clients(self) -> Sequence[FakeClient]:
        """The store clients of the process that runs now, or ran last."""
        return tuple(self._life.clients) if self._life is not None else ()

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
        if self._life is not None and self.alive:
            self._world.note(f"{self._life.name} is killed")
            self._life.dead = True
            self._paused_at = None

    def pause(self, *, clock_stands: bool = False) -> None:
        """SIGSTOP, or a pause of the whole machine of which its clock knows nothing."""
        if self._life is not None and self.alive and not self.paused:
            self._world.note(f"{self._life.name} is paused{', and its clock' if clock_stands else ''}")
            self._life.frozen = True
            self._paused_at, self._clock_stands = self._world.time, clock_stands

    def resume(self) -> None:
        """SIGCONT: everything that came due meanwhile runs now, late."""
        if self._life is not None and self._paused_at is not None:
            self._world.note(f"{self._life.name} goes on")
            if self._clock_stands:
                stood = self._world.time - self._paused_at
                self.clock.stand_still(stood)
                self._world.loop.reschedule(self._life, stood)
            self._life.frozen, self._paused_at = False, None
            self._world.loop.thaw()

    def _alive(self) -> ProcessLife:
        if self._life is None or self._life.dead:
            number = self._world.next_life()
            self._life = ProcessLife(number, f"{self.name}.{number}", self.clock)
            self._world.lives.append(self._life)
            self._world.note(f"{self._life.name} starts")
        return self._life
