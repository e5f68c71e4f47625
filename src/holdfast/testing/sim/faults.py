"""A storm: faults at times, of kinds and on nodes that the seed decides, each with an end of its own.

    await inject_faults(world, ["a", "b", "c"], lasting=seconds(120), revive=start_server)

When it returns every fault is over: links are healed and as quick as usual, nobody is paused, and the dead have been
revived. What a scenario then still finds wrong is not the storm's doing. Faults overlap; one that ends may end another
of its kind on the same node, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final

from holdfast.model.base.time import Duration, seconds
from holdfast.testing.sim.nodes import Node
from holdfast.testing.sim.world import World
from holdfast.testing.store.link import Fate, always_answered

Revive = Callable[[Node], None]
Fault = Callable[[World, Node, Revive], Coroutine[Any, Any, None]]


async def pause(world: World, node: Node, _revive: Revive) -> None:
    """SIGSTOP for a while."""
    node.pause()
    await _a_while(world)
    node.resume()


async def suspend(world: World, node: Node, _revive: Revive) -> None:
    """A hypervisor's pause: the machine's own clocks know nothing of it."""
    node.pause(clock_stands=True)
    await _a_while(world)
    node.resume()


async def kill(world: World, node: Node, revive: Revive) -> None:
    """SIGKILL, and a new process later."""
    node.kill()
    await _a_while(world)
    if not node.alive:
        revive(node)


async def partition(world: World, node: Node, _revive: Revive) -> None:
    """The node is cut off from the store for a while."""
    world.note(f"{node.name} is cut off")
    for client in node.clients:
        client.link.cut()
    await _a_while(world)
    for client in node.clients:
        client.link.heal()


async def lose_replies(world: World, node: Node, _revive: Revive) -> None:
    """For a while half the calls are lost, some before and some after they were applied."""
    world.note(f"{node.name} loses replies")
    fates = [Fate.ANSWERED, Fate.ANSWERED, Fate.REQUEST_LOST, Fate.REPLY_LOST]
    clients = node.clients
    for client in clients:
        client.link.fate_of = lambda _method: world.random.choice(fates)
    await _a_while(world)
    for client in clients:
        client.link.fate_of = always_answered


async def slow(world: World, node: Node, _revive: Revive) -> None:
    """For a while every message takes up to two seconds."""
    world.note(f"{node.name} is slow")
    clients = node.clients
    for client in clients:
        client.link.latency = lambda: world.random.uniform(0, 2)
    await _a_while(world)
    for client in clients:
        client.link.latency = world.usual_latency


async def reset(world: World, node: Node, _revive: Revive) -> None:
    """Every connection of the node is reset."""
    world.note(f"{node.name} is disconnected")
    for client in node.clients:
        client.link.disconnect()
        client.link.lose_continuity()


async def step_wall_clock(world: World, node: Node, _revive: Revive) -> None:
    """Somebody sets the wall clock, by up to an hour either way (C9)."""
    by = seconds(world.random.uniform(-3600, 3600))
    world.note(f"the wall clock of {node.name} steps by {by.total_seconds():.0f} s")
    node.clock.step(by)


async def change_etcd_leader(world: World, _node: Node, _revive: Revive) -> None:
    """etcd's own leader changes, and every lease begins again (C23)."""
    world.note("etcd has a new leader")
    world.store.change_leader()


async def compact(world: World, _node: Node, _revive: Revive) -> None:
    """Everything but the present is compacted away."""
    if world.store.revision > world.store.keys.compacted:
        world.note("the store is compacted")
        world.store.compact()


FAULTS: Final[Mapping[str, Fault]] = {
    fault.__name__: fault
    for fault in (
        pause,
        suspend,
        kill,
        partition,
        lose_replies,
        slow,
        reset,
        step_wall_clock,
        change_etcd_leader,
        compact,
    )
}
"""Every kind of fault, by name."""


async def inject_faults(
    world: World,
    nodes: Sequence[str],
    *,
    lasting: Duration,
    revive: Revive,
    faults: Sequence[Fault] = tuple(FAULTS.values()),
    calm: Duration = seconds(2),
) -> None:
    """Lets faults loose on the nodes; between two of them it is calm for up to twice `calm`."""
    under_way: set[asyncio.Task[None]] = set()
    end = world.time + lasting.total_seconds()
    while world.time < end:
        await asyncio.sleep(world.random.uniform(0, 2 * calm.total_seconds()))
        fault, node = world.random.choice(list(faults)), world.node(world.random.choice(list(nodes)))
        under_way.add(asyncio.create_task(fault(world, node, revive)))
    await asyncio.gather(*under_way)


async def _a_while(world: World) -> None:
    """Mostly short, sometimes longer than any lease."""
    await asyncio.sleep(world.random.choice([0.05, 1, 5, 20]) * world.random.uniform(0.5, 1.5))
