"""The world of one simulation: its nodes, its store, its seed, and the trace of what happened."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from holdfast.model.base.time import Duration, seconds
from holdfast.testing.sim.loop import VirtualLoop
from holdfast.testing.sim.nodes import Node, NodeClock, SimProcess
from holdfast.testing.store.client import FakeClient
from holdfast.testing.store.fake import FakeStore, StoreWrite
from holdfast.testing.store.gateway.network import SimNetwork


@dataclass
class Trace:
    """Everything that happened, in order. Equal seeds give equal text."""

    lines: list[tuple[float, str, str, bool]] = field(default_factory=list)

    def step(self, at: float, who: str, what: str) -> None:
        self.lines.append((at, who, what, False))

    def note(self, at: float, what: str) -> None:
        self.lines.append((at, "", what, True))

    @property
    def text(self) -> str:
        """Every step and every note."""
        return "".join(f"{at:.9f} {who}{':' if who else '-'} {what}\n" for at, who, what, _ in self.lines)

    @property
    def notes(self) -> list[str]:
        """The notes alone: writes, kills, pauses, faults, and the scenario's own."""
        return [f"{at:.3f} {what}" for at, _, what, noted in self.lines if noted]


class World:
    """The argument of a scenario. All randomness comes from the seed, each part from a stream of its own."""

    def __init__(self, seed: int, loop: VirtualLoop, trace: Trace) -> None:
        self.seed = seed
        self.loop = loop
        self.trace = trace
        self.random = self.stream("scenario")
        """Randomness of the scenario: when faults come, and which."""
        self.store = FakeStore(now=lambda: loop.world_time)
        self.store.observers.append(self._note_write)
        self.network = loop.network = SimNetwork(self.store, self.stream("network"))
        """Three members with that store, for clients that speak etcd's protocol (`Node.etcd`)."""
        self.latency: Callable[[], float] = lambda: self._latency.uniform(0.000_2, 0.005)
        """One-way latency between a node and the store, in seconds."""
        self.processes: list[SimProcess] = []
        self.failures: list[BaseException] = []
        """Errors of node processes; any of them fails the simulation."""
        self.main: asyncio.Task[Any] | None = None
        self._latency = self.stream("latency")
        self._nodes: dict[str, Node] = {}

    @property
    def time(self) -> float:
        """Seconds since the simulation began."""
        return self.loop.world_time

    def stream(self, name: str) -> random.Random:
        """Return a source of randomness that depends on the seed and the name alone."""
        return random.Random(f"{self.seed}/{name}")

    def node(self, name: str, *, rate: float = 1.0, wall_error: Duration = seconds(0)) -> Node:
        """Return the machine of that name; `rate` is the speed of its boot clock, its uptime comes from the seed."""
        if name not in self._nodes:
            seed = self.stream(f"node {name}")
            clock = NodeClock(self, uptime=seed.uniform(100, 1e6), rate=rate, wall_error=wall_error)
            self._nodes[name] = Node(self, name, clock, seed)
        return self._nodes[name]

    def note(self, what: str) -> None:
        """Add a note to the trace."""
        self.trace.note(self.time, what)

    async def until(self, condition: Callable[[], bool], *, within: Duration = seconds(3600)) -> None:
        """Wait, in virtual time, until the condition holds. Raises `TimeoutError`."""
        async with asyncio.timeout(within.total_seconds()):
            while not condition():  # noqa: ASYNC110 -- a condition of anything, in time that costs nothing
                await asyncio.sleep(0.01)

    def connect(self, name: str, deadline: Duration | None = None) -> FakeClient:
        client = self.store.client(name, deadline=deadline or seconds(5))
        client.link.latency = self.usual_latency
        return client

    def usual_latency(self) -> float:
        """Return the latency of one message without a fault; calls `latency` each time, so that it can be replaced."""
        return self.latency()

    def next_number(self) -> int:
        return len(self.processes) + 1

    def check_ended(self, task: asyncio.Task[Any]) -> None:
        """Fail the simulation if a node's coroutine ended with an error."""
        if not task.cancelled() and task.exception() is not None:
            self.fail(task.get_name(), task.exception())

    def fail(self, where: str, error: BaseException | None) -> None:
        """End the simulation with an error that no task awaits."""
        self.note(f"{where} failed: {error!r}")
        self.failures.append(error or RuntimeError(where))
        if self.main is not None:
            self.main.cancel()

    def _note_write(self, write: StoreWrite) -> None:
        changed = ", ".join(f"{'put' if e.entry else 'delete'} {e.key!r}" for e in write.events)
        self.note(f"{write.client} writes revision {write.revision}: {changed}")
