"""`simulate(seed, scenario)`: runs shipped workers on virtual time, with order and faults drawn from the seed.

    async def two_electors(world: World) -> None:
        a, b = world.node("a"), world.node("b", rate=1.0001)
        a.run(elector(store=a.store(), clock=a.clock, random=a.random))
        ...
        a.pause(); await asyncio.sleep(20); a.resume()

    simulate(7, two_electors)

A scenario fails by raising, and so does a node's coroutine. The error carries the seed and the notes that led to
it; the same seed with the same code gives the same steps in the same order, byte for byte. When the scenario returns,
it is over: what still runs is cut off from the store and cancelled, and its errors are ignored.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
from collections.abc import Callable, Coroutine, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from holdfast.model.base.time import Duration, seconds
from holdfast.testing.sim.loop import Stuck, VirtualLoop
from holdfast.testing.sim.world import Trace, World

T = TypeVar("T")
Scenario = Callable[[World], Coroutine[Any, Any, T]]
NOTES_SHOWN = 60
SHUTDOWN_ROUNDS = 50


@dataclass(frozen=True, slots=True)
class Simulation(Generic[T]):
    """A run without a failure."""

    value: T
    trace: Trace
    time: float


@dataclass(frozen=True, slots=True)
class Failure:
    """The first seed that makes a scenario fail."""

    seed: int
    error: BaseException


def simulate(seed: int, scenario: Scenario[T], *, limit: Duration = seconds(86_400)) -> Simulation[T]:
    """Run the scenario once, for at most `limit` of virtual time."""
    trace = Trace()
    order = random.Random(f"{seed}/order")
    with _no_garbage_collection(), contextlib.closing(VirtualLoop(order, trace.step, limit.total_seconds())) as loop:
        world = World(seed, loop, trace)
        loop.set_exception_handler(lambda _loop, failed: world.fail(failed["message"], failed.get("exception")))
        try:
            value = loop.run_until_complete(_main(world, scenario))
        except Exception as error:
            error.add_note(_notes_of(seed, scenario, trace))
            with contextlib.suppress(Stuck):
                _shut_down(world)
            raise
        done = Simulation(value, Trace(list(trace.lines)), world.time)
        _shut_down(world)
        return done


def first_failure(seeds: Iterable[int], scenario: Scenario[T]) -> Failure | None:
    """Try one seed after another, to find a planted bug."""
    for seed in seeds:
        try:
            simulate(seed, scenario)
        except Exception as error:  # noqa: BLE001 -- whatever it is, it is what was looked for, and is handed on
            return Failure(seed, error)
    return None


async def _main(world: World, scenario: Scenario[T]) -> T:
    world.main = asyncio.current_task()
    try:
        value = await scenario(world)
    except asyncio.CancelledError:
        if not world.failures:
            raise
    if world.failures:
        raise world.failures[0]
    return value


def _notes_of(seed: int, scenario: Scenario[T], trace: Trace) -> str:
    name = getattr(scenario, "__qualname__", repr(scenario))
    head = f"seed {seed}: simulate({seed}, {name}) replays exactly this; its last notes:"
    return "\n  ".join([head, *trace.notes[-NOTES_SHOWN:]])


@contextlib.contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Disable the collector: it runs finalizers when memory demands it, which no seed can order."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def _shut_down(world: World) -> None:
    """End all remaining tasks, those of dead processes included: their coroutines must end somehow."""
    world.main = None
    world.loop.lift_limits()
    for process in world.processes:
        process.dead = process.frozen = False
        for client in process.clients:
            client.link.sever()
    world.loop.thaw()
    for _ in range(SHUTDOWN_ROUNDS):
        left = asyncio.all_tasks(world.loop)
        if not left:
            break
        for task in left:
            task.cancel()
        with contextlib.suppress(Stuck):
            world.loop.run_until_complete(asyncio.wait(left, timeout=1))
    stubborn = list(world.loop.waiting())
    if stubborn:
        raise Stuck("\n  ".join(["these tasks do not end when they are cancelled", *stubborn]))
    world.loop.run_until_complete(world.loop.shutdown_asyncgens())
