"""Scenario of the election: two to four servers, a period of faults, then recovery; all of it drawn from the seed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from holdfast.config.sections.server import ServerSettings
from holdfast.model.base.time import Duration, seconds
from holdfast.server.election.leadership import Leading
from holdfast.testing import World
from tests.sim.election_invariants import ElectionInvariants, InvariantBroken
from tests.sim.server_faults import Fleet, inject_server_faults
from tests.sim.servers import Host, SimServer

GRACE = seconds(17)
TROUBLE = 36.0
CALM = 6.0


@dataclass(frozen=True, slots=True)
class ElectionResult:
    """Counts of one run, so that a run without events is not taken for a proof."""

    terms: int
    writes: int
    recovered_after: float


def timings(world: World) -> ServerSettings:
    quick = ServerSettings(ttl=seconds(6), renew_every=seconds(1), renew_deadline=seconds(4), rpc_timeout=seconds(2))
    return world.random.choice([ServerSettings(), quick, quick])


def gather(world: World, allowed: ServerSettings) -> list[SimServer]:
    """Start servers on hosts of their own or on one host, as containers or side by side; sometimes two of one name."""
    number = world.random.randint(2, 4)
    shared = world.random.choice(["", "", "containers", "side by side"])
    names = ["a", "b", "c", "d"][:number]
    called = ["a", "a", *names[2:]] if world.random.random() < 0.1 else names
    servers: list[SimServer] = []
    for name, call in zip(names, called, strict=True):
        host = servers[0].host if shared and len(servers) == 1 else _host(world, name)
        namespace = f"pid:{name}" if shared == "containers" else "pid:host"
        servers.append(SimServer(world, name, host, namespace, allowed, called=call))
    return servers


def _host(world: World, name: str) -> Host:
    rate = 1.0 if world.random.random() < 0.5 else world.random.uniform(0.99, 1.01)
    return Host(world, f"host-{name}", rate=rate, wall_error=world.random.uniform(-500, 500))


async def election_scenario(world: World) -> ElectionResult:
    allowed = timings(world)
    servers = gather(world, allowed)
    fleet = Fleet(world, servers, ElectionInvariants(world, servers))
    world.store.acknowledges_gone_leases = world.random.random() < 0.3
    for server in servers:
        server.stubborn = world.random.choice([0, 0, 0, 1, 30])
        server.start()
        await asyncio.sleep(world.random.uniform(0, 1))
    await inject_server_faults(fleet, lasting=TROUBLE)
    await final_fault(fleet)
    world.note("the trouble is over")
    return await check_recovery(fleet, allowed)


async def final_fault(fleet: Fleet) -> None:
    """In half of the runs, end the faults without a leader: suspend or kill the leader's machine at the last moment."""
    leader = fleet.leader
    if leader is None or fleet.world.random.random() < 0.5:
        return
    fleet.world.note(f"{leader.host.name} reboots as the last thing")
    leader.host.boots += 1
    for server in fleet.servers:
        if server.host is leader.host:
            server.reboot()
            server.start()


async def check_recovery(fleet: Fleet, allowed: ServerSettings) -> ElectionResult:
    """Check recovery: a server leads within TTL + 17 s, keeps leading, and writes."""
    judge = fleet.judge
    recovered = await led_again(fleet, allowed.ttl + GRACE)
    # Who led through the trouble may still wait for an answer that was lost in it, and lose its lease over that.
    await asyncio.sleep((allowed.rpc_timeout + allowed.renew_every).total_seconds())
    await led_again(fleet, allowed.ttl + GRACE - seconds(recovered))
    led, writes = judge.led, judge.writes
    await asyncio.sleep(CALM)
    # Stubborn work of an earlier term of the same server is waited for until that term's lease has run out.
    await happens(fleet, lambda: judge.writes > writes, allowed.ttl + seconds(3), "the leader does not write")
    if judge.led is not led:
        raise InvariantBroken("leadership changed although nothing happened")
    return ElectionResult(len(judge.terms), judge.writes, recovered)


async def led_again(fleet: Fleet, within: Duration) -> float:
    """Return the seconds until a server leads."""
    begun = fleet.world.time
    await happens(fleet, lambda: leader(fleet) is not None, within, "nobody leads")
    return fleet.world.time - begun


async def happens(fleet: Fleet, what: Callable[[], bool], within: Duration, otherwise: str) -> None:
    try:
        await fleet.world.until(what, within=within)
    except TimeoutError:
        raise InvariantBroken(f"{otherwise}, {within.total_seconds():g} s after the trouble was over") from None


def leader(fleet: Fleet) -> SimServer | None:
    """Return the server that leads, by its own belief and by the store."""
    term = fleet.judge.led
    said = term.server.check() if term else None
    return term.server if term and isinstance(said, Leading) and said.term == term.number else None
