"""Faults of the whole fleet, drawn from the seed. Each one ends by itself, and says in the trace what it does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from random import Random
from typing import Any, Final

from holdfast.model.base.time import seconds
from holdfast.testing.sim.daemon import SimDaemon
from holdfast.testing.store.gateway.client import SimEtcdStore
from holdfast.testing.store.gateway.link import SimLink
from holdfast.testing.store.link import Fate, always_answered
from tests.sim.whole_fleet.fleet import SimFleet
from tests.sim.whole_fleet.operators import ON_SPARE

Fault = Callable[[SimFleet, Random], Coroutine[Any, Any, None]]


async def kill_a_worker(fleet: SimFleet, random: Random) -> None:
    """SIGKILL one worker; its supervisor starts it again."""
    daemon = random.choice(fleet.daemons)
    daemon.node(random.choice(list(daemon.specs)).name).kill()


async def kill_a_daemon(fleet: SimFleet, random: Random) -> None:
    daemon = random.choice(fleet.daemons)
    daemon.kill()
    await _some_time(random)
    daemon.start()


async def stop_a_daemon(fleet: SimFleet, random: Random) -> None:
    """SIGTERM, as at an upgrade."""
    daemon = random.choice(fleet.daemons)
    fleet.world.note(f"{daemon.machine.name} is stopped")
    await daemon.stop()
    await _some_time(random)
    daemon.start()


async def pause_a_worker(fleet: SimFleet, random: Random) -> None:
    daemon = random.choice(fleet.daemons)
    node = daemon.node(random.choice(list(daemon.specs)).name)
    node.pause()
    await _some_time(random)
    node.resume()


async def reboot_a_machine(fleet: SimFleet, random: Random) -> None:
    random.choice(list(fleet.machines.values())).reboot()


async def cut_a_machine_off(fleet: SimFleet, random: Random) -> None:
    links = _links(random.choice(fleet.daemons))
    fleet.world.note(f"cut off: {', '.join(link.name for link in links)}")
    for link in links:
        link.cut()
    await _some_time(random)
    for link in links:
        link.heal()


async def drop_flows(fleet: SimFleet, random: Random) -> None:
    """A middlebox forgets the connections of a daemon: they are half-open."""
    for link in _links(random.choice(fleet.daemons)):
        link.drop_flows()


async def lose_replies(fleet: SimFleet, random: Random) -> None:
    """Lose calls of a daemon, some before and some after they were applied, and cut others in their reply."""
    links = _links(random.choice(fleet.daemons))
    fates = [Fate.ANSWERED, Fate.ANSWERED, Fate.REQUEST_LOST, Fate.REPLY_LOST, Fate.REPLY_CUT]
    fleet.world.note(f"replies are lost: {', '.join(link.name for link in links)}")
    for link in links:
        link.fate_of = lambda _method: random.choice(fates)
    await _some_time(random)
    for link in links:
        link.fate_of = always_answered


async def drift_watches(fleet: SimFleet, random: Random) -> None:
    """Let the watches of one stream fall behind each other."""
    links = [link for daemon in fleet.daemons for link in _links(daemon)]
    for link in links:
        link.drift = 0.3
    await _some_time(random)
    for link in links:
        link.drift = 0.0


async def stop_a_member(fleet: SimFleet, random: Random) -> None:
    """Stop one etcd member; never the last two."""
    members = fleet.world.network.members
    if any(not member.up or member.isolated for member in members):
        return
    member = random.choice(list(members))
    fleet.world.note(f"etcd member {member.name} stops")
    member.stop()
    await _some_time(random)
    member.start()


async def isolate_a_member(fleet: SimFleet, random: Random) -> None:
    """Part one member from the majority: it answers from an old copy."""
    members = fleet.world.network.members
    if any(not member.up or member.isolated for member in members):
        return
    member = random.choice(list(members))
    fleet.world.note(f"etcd member {member.name} is isolated")
    member.isolate()
    await _some_time(random)
    member.rejoin()


async def change_etcd_leader(fleet: SimFleet, random: Random) -> None:
    fleet.world.note("etcd has a new leader")
    fleet.world.store.change_leader()


async def compact(fleet: SimFleet, random: Random) -> None:
    if fleet.world.store.revision > fleet.world.store.keys.compacted:
        fleet.world.note("the store is compacted")
        fleet.world.store.compact()


async def fill_the_store(fleet: SimFleet, random: Random) -> None:
    """etcd is out of space, until an operator has made some."""
    fleet.world.note("etcd is out of space")
    fleet.world.store.run_out_of_space()
    await _some_time(random)
    fleet.world.store.alarms = ()


async def lose_database_calls(fleet: SimFleet, random: Random) -> None:
    """Lose a fifth of a server's calls to the database, half of them after they took effect."""
    name = random.choice(list(fleet.servers))
    fleet.world.note(f"{name} loses calls to the database")
    fleet.machines[name].lost_calls = 0.2
    await _some_time(random)
    fleet.machines[name].lost_calls = 0.0


async def cut_the_database_off(fleet: SimFleet, random: Random) -> None:
    """Take the database away from one server, or from all."""
    names = random.choice([list(fleet.servers), [random.choice(list(fleet.servers))]])
    fleet.world.note(f"the database is away for {', '.join(names)}")
    for name in names:
        fleet.machines[name].database_is_away = True
    await _some_time(random)
    for name in names:
        fleet.machines[name].database_is_away = False


async def fill_a_disk(fleet: SimFleet, random: Random) -> None:
    """Fill the disk of an agent's journal."""
    name = _drawn(fleet.agents, random)
    if name is None:
        return
    fleet.world.note(f"the disk of {name} is full")
    fleet.machines[name].disk_is_full = True
    await _some_time(random)
    fleet.machines[name].disk_is_full = False


async def tear_a_write(fleet: SimFleet, random: Random) -> None:
    """Kill an agent in the middle of a write to its journal."""
    name = _drawn(fleet.agents, random)
    if name is None:
        return
    fleet.world.note(f"{name} will die in its next write to the journal")
    fleet.machines[name].tears_next_write = True


async def flap_a_kernel(fleet: SimFleet, random: Random) -> None:
    name = _drawn(fleet.agents, random)
    if name is None:
        return
    fleet.world.note(f"the links of {name} flap")
    fleet.kernels[name].flap()


async def lose_a_table(fleet: SimFleet, random: Random) -> None:
    name = _drawn(fleet.balancers, random)
    if name is None:
        return
    fleet.world.note(f"the dataplane of {name} restarts empty")
    fleet.tables[name].restart()


async def fail_a_backend(fleet: SimFleet, random: Random) -> None:
    """Let a backend answer no probes; never b0."""
    name = random.choice(["b1", "b2", "b3", ON_SPARE])
    fleet.world.note(f"backend {name} is down")
    fleet.truth.down.add(name)
    await _some_time(random)
    fleet.truth.down.discard(name)


async def stop_a_prober(fleet: SimFleet, random: Random) -> None:
    """Let no balancer get reports of its prober."""
    fleet.truth.dead = True
    await _some_time(random)
    fleet.truth.dead = False


async def step_a_clock(fleet: SimFleet, random: Random) -> None:
    """Step the wall clock of a machine by up to an hour (C9)."""
    machine = random.choice(list(fleet.machines.values()))
    machine.first.clock.step(seconds(random.uniform(-3600, 3600)))


async def suspend_a_machine(fleet: SimFleet, random: Random) -> None:
    """Let a hypervisor pause a machine, and its clocks with it."""
    machine = random.choice(list(fleet.machines.values()))
    node = next((node for node in machine.nodes.values() if node.alive), None)
    if node is None:
        return
    node.pause(clock_stops=True)
    await _some_time(random)
    node.resume()


async def demote_a_member(fleet: SimFleet, random: Random) -> None:
    """Let a member come back as a learner (C53)."""
    member = random.choice(list(fleet.world.network.members))
    fleet.world.note(f"etcd member {member.name} is a learner")
    member.learner = True
    member.reset_connections()
    await _some_time(random)
    member.learner = False


async def restore_the_store(fleet: SimFleet, random: Random) -> None:
    """Restore etcd from a backup (C29), in one of four cases."""
    store = fleet.world.store
    if random.random() < 0.75 or store.alarms:
        return
    oldest = max(1, store.keys.compacted, store.revision - random.choice([10, 1_000]))
    revision = random.randint(oldest, store.revision)
    fleet.world.note(f"the store goes back from revision {store.revision} to {revision}")
    store.restore(revision)


async def wipe_the_store(fleet: SimFleet, random: Random) -> None:
    """Let etcd lose all data (C29), in one of six cases."""
    if random.random() < 0.83 or fleet.world.store.alarms:
        return
    fleet.world.note("the store is wiped")
    fleet.world.store.wipe()


FAULTS: Final[Sequence[Fault]] = (
    kill_a_worker,
    kill_a_daemon,
    stop_a_daemon,
    pause_a_worker,
    reboot_a_machine,
    cut_a_machine_off,
    drop_flows,
    lose_replies,
    drift_watches,
    stop_a_member,
    isolate_a_member,
    change_etcd_leader,
    compact,
    fill_the_store,
    lose_database_calls,
    cut_the_database_off,
    fill_a_disk,
    tear_a_write,
    flap_a_kernel,
    lose_a_table,
    fail_a_backend,
    stop_a_prober,
    step_a_clock,
    suspend_a_machine,
    demote_a_member,
    restore_the_store,
    wipe_the_store,
)

RECENT: Final = frozenset(
    fault.__name__ for fault in (step_a_clock, suspend_a_machine, demote_a_member, restore_the_store, wipe_the_store)
)
"""Faults with which fewer than a thousand seeds have passed: the seeds of a commit go without them, a soak has all."""


async def inject_faults(fleet: SimFleet, *, lasting: float, allowed: Collection[str]) -> int:
    """Inject the faults of these names, and wait until all are over. Returns how many there were.

    When each one comes, and what it draws, does not depend on the others: a failing seed fails with fewer of them, too.
    """
    world, under_way = fleet.world, set[asyncio.Task[None]]()
    schedule, end = world.stream("faults"), world.time + lasting
    while world.time < end:
        await asyncio.sleep(schedule.uniform(0, 5))
        fault, random = schedule.choice(FAULTS), Random(schedule.random())
        if fault.__name__ in allowed:
            world.note(fault.__name__)
            under_way.add(asyncio.create_task(fault(fleet, random)))
    await asyncio.gather(*under_way)
    return len(under_way)


def _drawn(daemons: Mapping[str, SimDaemon], random: Random) -> str | None:
    """Draw a machine; None where there are none of that kind, as in a seed that was shrunk."""
    return random.choice(list(daemons)) if daemons else None


def _links(daemon: SimDaemon) -> list[SimLink]:
    """Return the links of the daemon's present processes to the store."""
    nodes = [daemon.node(spec.name) for spec in daemon.specs]
    return [one.link for node in nodes for one in node.clients if isinstance(one, SimEtcdStore)]


async def _some_time(random: Random) -> None:
    """Mostly short, sometimes longer than any lease."""
    await asyncio.sleep(random.choice([0.05, 1, 5, 20]) * random.uniform(0.5, 1.5))
