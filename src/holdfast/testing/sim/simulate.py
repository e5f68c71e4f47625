"""`simulate(seed, scenario)`: shipped workers on virtual time, with every order and every fault drawn from the seed.

    async def two_electors(world: World) -> None:
        a, b = world.node("a"), world.node("b", rate=1.0001)
        a.run(elector(store=a.store(), clock=a.clock, random=a.random))
        ...
        a.pause(); await asyncio.sleep(20); a.resume()

    simulate(7, two_electors)

A scenario fails by raising, and so does a node's coroutine. The error then carries the seed and the story that led to
it; the same seed with the same code gives the same steps in the same order, byte for byte. When the scenario returns,
it is over: what still runs is cut off from the store and cancelled, and nothing that it does then is judged.
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
STORY_LINES = 60
FAREWELL_ROUNDS = 50


@dataclass(frozen=True, slots=True)
class Simulation(Generic[T]):
    """One run that ended well."""

    value: T
    trace: Trace
    time: float


@dataclass(frozen=True, slots=True)
class Failure:
    """The first seed that a scenario does not survive."""

    seed: int
    error: BaseException


def simulate(seed: int, scenario: Scenario[T], *, limit: Duration = seconds(86_400)) -> Simulation[T]:
    """Runs the scenario once. `limit` is how long, in virtual time, it may take."""
    trace = Trace()
    order = random.Random(f"{seed}/order")
    with _no_garbage_collection(), contextlib.closing(VirtualLoop(order, trace.step, limit.total_seconds())) as loop:
        world = World(seed, loop, trace)
        loop.set_exception_handler(lambda _loop, failed: world.fail(failed["message"], failed.get("exception")))
        try:
            value = loop.run_until_complete(_main(world, scenario))
        except Exception as error:
            error.add_note(_story(seed, scenario, trace))
            with contextlib.suppress(Stuck):
                _farewell(world)
            raise
        done = Simulation(value, Trace(list(trace.lines)), world.time)
        _farewell(world)
        return done


def first_failure(seeds: Iterable[int], scenario: Scenario[T]) -> Failure | None:
    """Tries one seed after another: how a planted bug is hunted."""
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


def _story(seed: int, scenario: Scenario[T], trace: Trace) -> str:
    name = getattr(scenario, "__qualname__", repr(scenario))
    head = f"seed {seed}: simulate({seed}, {name}) replays exactly this; the end of its story:"
    return "\n  ".join([head, *trace.story[-STORY_LINES:]])


@contextlib.contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """The collector runs when memory says so, and finalizers with it: the only thing that no seed can order."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def _farewell(world: World) -> None:
    """Ends what is left, dead processes included: their coroutines must end somehow, and now nobody looks."""
    world.main = None
    world.loop.lift_limits()
    for life in world.lives:
        life.dead = life.frozen = False
        for client in life.clients:
            client.link.sever()
    world.loop.thaw()
    for _ in range(FAREWELL_ROUNDS):
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
