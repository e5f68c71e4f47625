"""Fault injection: faults of random kinds, at random times, on random nodes, all drawn from the seed.

    await inject_faults(world, ["a", "b", "c"], lasting=seconds(120), revive=start_server)

When it returns every fault is over: links are healed and as quick as usual, no node is paused, and killed nodes are
revived. An error that a scenario finds then is not caused by a fault. Faults overlap; one that ends may end another
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
    """Send SIGSTOP, and SIGCONT later."""
    node.pause()
    await _some_time(world)
    node.resume()


async def suspend(world: World, node: Node, _revive: Revive) -> None:
    """Pause the machine by its hypervisor, so that its own clocks stop."""
    node.pause(clock_stops=True)
    await _some_time(world)
    node.resume()


async def kill(world: World, node: Node, revive: Revive) -> None:
    """Send SIGKILL, and start a new process later."""
    node.kill()
    await _some_time(world)
    if not node.alive:
        revive(node)


async def partition(world: World, node: Node, _revive: Revive) -> None:
    """Cut the node off from the store."""
    world.note(f"{node.name} is cut off")
    for client in node.clients:
        client.link.cut()
    await _some_time(world)
    for client in node.clients:
        client.link.heal()


async def lose_replies(world: World, node: Node, _revive: Revive) -> None:
    """Lose half the calls, some before and some after they were applied."""
    world.note(f"{node.name} loses replies")
    fates = [Fate.ANSWERED, Fate.ANSWERED, Fate.REQUEST_LOST, Fate.REPLY_LOST]
    clients = node.clients
    for client in clients:
        client.link.fate_of = lambda _method: world.random.choice(fates)
    await _some_time(world)
    for client in clients:
        client.link.fate_of = always_answered


async def slow(world: World, node: Node, _revive: Revive) -> None:
    """Delay every message by up to two seconds."""
    world.note(f"{node.name} is slow")
    clients = node.clients
    for client in clients:
        client.link.latency = lambda: world.random.uniform(0, 2)
    await _some_time(world)
    for client in clients:
        client.link.latency = world.usual_latency


async def reset(world: World, node: Node, _revive: Revive) -> None:
    """Reset every connection of the node."""
    world.note(f"{node.name} is disconnected")
    for client in node.clients:
        client.link.disconnect()
        client.link.lose_continuity()


async def step_wall_clock(world: World, node: Node, _revive: Revive) -> None:
    """Step the wall clock by up to an hour either way (C9)."""
    by = seconds(world.random.uniform(-3600, 3600))
    world.note(f"the wall clock of {node.name} steps by {by.total_seconds():.0f} s")
    node.clock.step(by)


async def change_etcd_leader(world: World, _node: Node, _revive: Revive) -> None:
    """Change etcd's leader, which extends every lease (C23)."""
    world.note("etcd has a new leader")
    world.store.change_leader()


async def compact(world: World, _node: Node, _revive: Revive) -> None:
    """Compact everything but the present revision."""
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
    """Inject faults into the nodes, with up to twice `calm` between two of them."""
    under_way: set[asyncio.Task[None]] = set()
    end = world.time + lasting.total_seconds()
    while world.time < end:
        await asyncio.sleep(world.random.uniform(0, 2 * calm.total_seconds()))
        fault, node = world.random.choice(list(faults)), world.node(world.random.choice(list(nodes)))
        under_way.add(asyncio.create_task(fault(world, node, revive)))
    await asyncio.gather(*under_way)


async def _some_time(world: World) -> None:
    """Mostly short, sometimes longer than any lease."""
    await asyncio.sleep(world.random.choice([0.05, 1, 5, 20]) * world.random.uniform(0.5, 1.5))
