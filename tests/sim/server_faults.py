"""Faults of simulated servers, drawn from the seed. Each fault ends by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Final

from holdfast.model.base.time import seconds
from holdfast.server.election.machine import ElectionPhase, LossReason
from holdfast.store.api import LeaseGone
from holdfast.testing import Node, StoreWrite, World
from holdfast.testing.sim import faults
from tests.sim.election_invariants import OPERATOR, ElectionInvariants
from tests.sim.servers import LEADER_KEY, SimServer


@dataclass(frozen=True, slots=True)
class Fleet:
    world: World
    servers: Sequence[SimServer]
    judge: ElectionInvariants

    @property
    def leader(self) -> SimServer | None:
        term = self.judge.led
        return term.server if term else None


Fault = Callable[[Fleet, SimServer], Coroutine[Any, Any, None]]


async def _some_time(fleet: Fleet) -> None:
    """Mostly short, sometimes longer than any lease."""
    random, ttl = fleet.world.random, _ttl(fleet)
    await asyncio.sleep(random.choice([0.05, 1, 0.4 * ttl, 1.3 * ttl]) * random.uniform(0.5, 1.5))


def _one_process(fault: faults.Fault) -> Fault:
    """Apply a fault to one of a server's two processes, more often to the elector."""

    async def inject(fleet: Fleet, server: SimServer) -> None:
        node = fleet.world.random.choice([server.electing, server.electing, server.writing])
        await fault(fleet.world, node, server.revive)

    return inject


def _all_processes(fault: faults.Fault) -> Fault:
    async def inject(fleet: Fleet, server: SimServer) -> None:
        await asyncio.gather(*(fault(fleet.world, node, server.revive) for node in server.processes))

    return inject


async def freeze(fleet: Fleet, server: SimServer) -> None:
    """SIGSTOP both processes."""
    for node in server.processes:
        node.pause()
    await _some_time(fleet)
    for node in server.processes:
        node.resume()


async def suspend(fleet: Fleet, server: SimServer) -> None:
    """Pause the machine by its hypervisor."""
    running = next((node for node in server.processes if node.alive and not node.paused), None)
    if running is None:
        return
    for one in fleet.servers:
        if one.host is server.host:
            fleet.judge.sleeps(one)
    running.pause(clock_stops=True)
    await _some_time(fleet)
    running.resume()


async def freeze_at_a_proof(fleet: Fleet, _server: SimServer) -> None:
    """SIGSTOP just when the store has proven the leader's term: the answer is read long after it was given (C10)."""
    proven = asyncio.Event()
    frozen: list[Node] = []

    def inject(write: StoreWrite) -> None:
        term = fleet.judge.led
        if term is not None and not frozen and write.client == term.client and _puts_leader_key(write):
            frozen.extend(fleet.world.random.choice([term.server.processes, [term.server.electing]]))
            for node in frozen:
                node.pause()
            proven.set()

    fleet.world.store.observers.append(inject)
    try:
        async with asyncio.timeout(_ttl(fleet)):
            await proven.wait()
        await asyncio.sleep(_ttl(fleet) * fleet.world.random.uniform(0.3, 1.6))
    except TimeoutError:
        fleet.world.note("nobody renewed anything that could be struck")
    finally:
        fleet.world.store.observers.remove(inject)
        for node in frozen:
            node.resume()


def _puts_leader_key(write: StoreWrite) -> bool:
    return any(event.key == LEADER_KEY and event.entry is not None for event in write.events)


def _ttl(fleet: Fleet) -> float:
    return fleet.servers[0].timings.ttl.total_seconds()


async def store_away(fleet: Fleet, _server: SimServer) -> None:
    """Make the store unreachable for every server."""
    fleet.world.note("the store is away")
    for node in _nodes(fleet):
        for client in node.clients:
            client.link.cut()
    await _some_time(fleet)
    for node in _nodes(fleet):
        for client in node.clients:
            client.link.heal()


async def stale_member(fleet: Fleet, server: SimServer) -> None:
    """Serve reads of one process from a member that stopped following; its writes go on."""
    store = fleet.world.store
    clients = fleet.world.random.choice(server.processes).clients
    past = fleet.world.random.randint(max(1, store.keys.compacted, store.revision - 20), store.revision)
    fleet.world.note(f"{server.name} reads from a stale member, at revision {past}")
    for client in clients:
        client.go_stale(past)
    await _some_time(fleet)
    for client in clients:
        client.go_fresh()


async def out_of_space(fleet: Fleet, _server: SimServer) -> None:
    fleet.world.note("the store is out of space")
    fleet.world.store.run_out_of_space()
    await _some_time(fleet)
    fleet.world.store.regain_space()


async def revoke_lease(fleet: Fleet, _server: SimServer) -> None:
    """Revoke the leader's lease, as an operator may."""
    entry = fleet.world.store.keys.get(LEADER_KEY)
    if entry is not None:
        fleet.world.note("an operator revokes the leader's lease")
        try:
            fleet.world.store.revoke(OPERATOR, entry.lease)
        except LeaseGone:
            fleet.world.note("it had run out already")


async def delete_key(fleet: Fleet, _server: SimServer) -> None:
    """Delete the leader key, as an operator may; its lease lives on."""
    fleet.world.note("an operator deletes the leader key")
    fleet.world.store.delete(OPERATOR, LEADER_KEY, None)


async def step_down(fleet: Fleet, _server: SimServer) -> None:
    leader = fleet.leader
    elector = leader.elector if leader is not None else None
    if leader is None or elector is None or leader.electing.paused or not leader.electing.alive:
        return
    if elector.state.phase is ElectionPhase.LEADING:
        fleet.world.note(f"an operator asks {leader.name} to step down")
        leader.electing.run(_tell(lambda: elector.leave(LossReason.STEPPED_DOWN, seconds(10))))
        await asyncio.sleep(10)


async def hold(fleet: Fleet, server: SimServer) -> None:
    """Pause a server's part in the election, as an operator may, and resume it later."""
    elector = server.elector
    if elector is None or not server.electing.alive:
        return
    fleet.world.note(f"an operator pauses {server.name}")
    told = asyncio.Event()

    async def pause_until_told() -> None:
        """Send both commands in order, also to a process that is frozen when they are sent."""
        elector.leave(LossReason.PAUSED)
        await told.wait()
        elector.rejoin(LossReason.PAUSED)

    server.electing.run(pause_until_told())
    await _some_time(fleet)
    told.set()


async def restart(fleet: Fleet, server: SimServer) -> None:
    """Stop a server cleanly and start it again."""
    fleet.world.note(f"{server.name} is restarted")
    await server.stop()
    server.revive(server.electing)


async def reboot(fleet: Fleet, server: SimServer) -> None:
    """Restart the machine: its pids no longer tell which processes are gone."""
    fleet.world.note(f"{server.host.name} reboots")
    server.host.boots += 1
    neighbours = [one for one in fleet.servers if one.host is server.host]
    for one in neighbours:
        one.reboot()
    await _some_time(fleet)
    for one in neighbours:
        one.start()


async def kill_all_electors(fleet: Fleet, _server: SimServer) -> None:
    """Kill every elector at about the same time; they are started again (C32)."""
    for server in fleet.servers:
        server.electing.kill()
    await asyncio.sleep(1)
    for server in fleet.servers:
        server.revive(server.electing)


async def change_etcd_leader(fleet: Fleet, server: SimServer) -> None:
    await faults.change_etcd_leader(fleet.world, server.electing, server.revive)


async def compact(fleet: Fleet, server: SimServer) -> None:
    await faults.compact(fleet.world, server.electing, server.revive)


async def step_wall_clock(fleet: Fleet, server: SimServer) -> None:
    await faults.step_wall_clock(fleet.world, server.electing, server.revive)


async def _tell(what: Callable[[], None]) -> None:
    what()


def _nodes(fleet: Fleet) -> Sequence[Node]:
    return [node for server in fleet.servers for node in server.processes]


FAULTS: Final[Sequence[Fault]] = (
    _one_process(faults.pause),
    _one_process(faults.kill),
    _one_process(faults.partition),
    _one_process(faults.lose_replies),
    _one_process(faults.slow),
    _one_process(faults.reset),
    _all_processes(faults.kill),
    _all_processes(faults.partition),
    _all_processes(faults.lose_replies),
    freeze,
    suspend,
    freeze_at_a_proof,
    store_away,
    stale_member,
    out_of_space,
    revoke_lease,
    delete_key,
    step_down,
    hold,
    restart,
    reboot,
    kill_all_electors,
    change_etcd_leader,
    compact,
    step_wall_clock,
)
KINDS_AT_ONCE = 5
"""A seed draws this many kinds and repeats them: what goes wrong in real life goes wrong again and again."""


async def inject_server_faults(fleet: Fleet, *, lasting: float, calm: float = 2.0) -> None:
    """Inject faults; return when all of them are over."""
    world = fleet.world
    kinds = world.random.sample(FAULTS, KINDS_AT_ONCE)
    under_way: set[asyncio.Task[None]] = set()
    end = world.time + lasting
    while world.time < end:
        await asyncio.sleep(world.random.uniform(0, 2 * calm))
        # Whoever leads is struck as often as all others together: there is more to lose.
        target = fleet.leader if world.random.random() < 0.5 else None
        fault = world.random.choice(kinds)
        under_way.add(asyncio.create_task(fault(fleet, target or world.random.choice(list(fleet.servers)))))
    await asyncio.gather(*under_way)
