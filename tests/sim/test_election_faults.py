"""Rows of the fault matrix that the election answers for, one scenario each, with its protection and without it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import Any

from holdfast.config.sections.server import ServerSettings
from holdfast.model.base.time import Instant, seconds
from holdfast.runtime.clock import Clock, SystemClock
from holdfast.server.election.leadership import Leading
from holdfast.server.election.machine import ElectionPhase
from holdfast.testing import StoreWrite, World, simulate
from holdfast.testing.fault import fault
from holdfast.testing.sim.nodes import NodeClock
from tests.sim.election_invariants import OPERATOR, ElectionInvariants, InvariantBroken
from tests.sim.server_faults import Fleet
from tests.sim.servers import LEADER_KEY, Host, MachineClock, SimServer

SEEDS = range(5)
"""Few, and of them one is enough to find out that a protection is missing."""
TIMINGS = ServerSettings()


@dataclass(frozen=True, slots=True)
class Pair:
    """A leader and a follower."""

    fleet: Fleet
    leader: SimServer
    other: SimServer
    term: int

    @property
    def world(self) -> World:
        return self.fleet.world

    def leads(self, server: SimServer) -> bool:
        return isinstance(server.check(), Leading)


Tale = Callable[[Pair], Coroutine[Any, Any, None]]


def tell(
    tale: Tale,
    *,
    containers: bool = False,
    seeds: Iterable[int] = SEEDS,
    clock: Callable[[NodeClock], Clock] = lambda machine: machine,
) -> None:
    """Runs the tale under a few seeds: server a leads and writes when it begins, b follows."""

    async def scenario(world: World) -> None:
        host = Host(world, "host-a")
        a = SimServer(world, "a", host, "pid:a" if containers else "pid:host", TIMINGS)
        elsewhere = host if containers else Host(world, "host-b")
        b = SimServer(world, "b", elsewhere, "pid:b" if containers else "pid:host", TIMINGS)
        for server in (a, b):
            server.clock = clock(server.host.first.clock)
        fleet = Fleet(world, [a, b], ElectionInvariants(world, [a, b]))
        a.start()
        if containers:  # a pid that b's namespace does not know
            a.electing.kill()
            a.revive(a.electing)
        await world.until(lambda: isinstance(a.check(), Leading), within=seconds(10))
        b.start()
        await world.until(lambda: follows(b) and fleet.judge.writes > 0, within=seconds(10))
        led = fleet.judge.led
        assert led is not None
        await tale(Pair(fleet, a, b, led.number))

    for seed in seeds:
        simulate(seed, scenario)


def follows(server: SimServer) -> bool:
    state = server.elector.state if server.elector is not None else None
    return (
        state is not None and state.phase is ElectionPhase.FOLLOWING and state.seen is not None and state.seen.term > 0
    )


@fault(
    "C1",
    without="holdfast.server.election.leadership:is_fresh",
    returns=True,
    sees=(InvariantBroken, r"b \(term \d+\) and a \(term \d+\) believe at once"),
)
def test_C1_workers_of_an_elector_that_died_silently_stop_by_themselves() -> None:
    async def tale(pair: Pair) -> None:
        pair.leader.electing.kill()
        await pair.world.until(lambda: pair.leads(pair.other), within=TIMINGS.ttl + seconds(2))
        assert not pair.leads(pair.leader)
        term = pair.fleet.judge.led
        writes = pair.fleet.judge.writes
        assert term is not None
        await asyncio.sleep(10)
        assert pair.fleet.judge.writes > writes
        assert term.writer == "b"

    tell(tale)


@fault(
    "C1",
    without="holdfast.store.fenced.store:FencedStore.txn",
    by="tests.sim.election_bugs:_unfenced",
    sees=(InvariantBroken, r"a write of term \d+ by a/writer.\d+ was accepted in term \d+"),
)
def test_C1_a_write_under_an_old_belief_is_refused_by_the_fence() -> None:
    async def tale(pair: Pair) -> None:
        """The elector is dead, and the machine stood still with its clock: nothing but the fence can know."""
        pair.leader.electing.kill()
        pair.fleet.judge.sleeps(pair.leader)
        pair.leader.writing.pause(clock_stops=True)
        await pair.world.until(lambda: pair.leads(pair.other), within=TIMINGS.ttl + seconds(2))
        pair.leader.writing.resume()
        assert pair.leads(pair.leader), "it does not know better, and that is the point"
        await asyncio.sleep(3)
        assert not pair.leads(pair.leader), "the refusal tells all workers of the server"

    tell(tale)


@fault(
    "C2",
    without="holdfast.server.election.leadership:disagrees",
    returns=False,
    sees=(AssertionError, r"not isinstance\(confirmed, Leading\)"),
)
def test_C2_nothing_long_is_begun_on_the_word_of_the_board_alone() -> None:
    async def tale(pair: Pair) -> None:
        pair.leader.electing.pause()  # it cannot notice, and the board still says that it leads
        pair.world.store.delete(OPERATOR, LEADER_KEY, None)
        await pair.world.until(lambda: pair.leads(pair.other), within=seconds(5))
        assert pair.leads(pair.leader) or pair.leader.found.read(), "the board has not been told by the elector"
        confirmed = await pair.leader.leadership.confirm(pair.world.connect("a long job"), LEADER_KEY)
        assert not isinstance(confirmed, Leading)

    tell(tale)


def of_the_day(_self: SystemClock) -> Instant:
    """Stands in for the boot clock: the time of day, as services that know no other clock take it."""
    return Instant(time.clock_gettime_ns(time.CLOCK_REALTIME))


@fault(
    "C9",
    without="holdfast.runtime.clock:SystemClock.now",
    by="tests.sim.test_election_faults:of_the_day",
    sees=(AssertionError, "a step forward costs nothing"),
)
def test_C9_stepping_the_wall_clock_neither_prolongs_nor_ends_a_leadership() -> None:
    async def tale(pair: Pair) -> None:
        machine = pair.leader.host.first.clock
        machine.step(seconds(3600))
        await asyncio.sleep(5)
        assert pair.leads(pair.leader), "a step forward costs nothing"
        for node in pair.leader.processes:
            for client in node.clients:
                client.link.cut()
        machine.step(seconds(-3600))
        await pair.world.until(lambda: pair.leads(pair.other), within=TIMINGS.ttl + seconds(2))
        assert not pair.leads(pair.leader), "a step back prolongs nothing"

    tell(tale, clock=MachineClock)


@fault(
    "C10",
    without="holdfast.server.election.machine:counted_from",
    by="tests.sim.election_bugs:_from_the_reply",
    sees=(InvariantBroken, r"a believes in term \d+ too long after its key was gone"),
)
def test_C10_an_answer_that_is_read_late_prolongs_nothing() -> None:
    async def tale(pair: Pair) -> None:
        """Frozen between the proof of a renewal and its answer, for longer than the lease: somebody else leads."""
        await next_proof(pair)
        pair.leader.electing.pause()
        await pair.world.until(lambda: pair.leads(pair.other), within=TIMINGS.ttl + seconds(2))
        pair.leader.electing.resume()
        await asyncio.sleep(0.5)
        assert not pair.leads(pair.leader)
        assert pair.leads(pair.other)

    # Whether the late answer is read before the clock is looked at is up to the order of things.
    tell(tale, seeds=range(30))


@fault(
    "C23",
    without="holdfast.server.election.machine:leading_until",
    by="tests.sim.election_bugs:_believe_for_an_hour",
    sees=(AssertionError, "its deadline does not depend on the lease"),
)
def test_C23_a_lease_that_etcds_new_leader_has_extended_gives_no_second_leader() -> None:
    """Both leaders are lost at once: the elected one is cut off, and etcd's new one begins every lease anew."""

    async def tale(pair: Pair) -> None:
        for node in pair.leader.processes:
            for client in node.clients:
                client.link.cut()
        await asyncio.sleep(TIMINGS.ttl.total_seconds() - 3)  # the lease is as old as it gets
        pair.world.store.change_leader()
        assert not pair.leads(pair.leader), "its deadline does not depend on the lease"
        await pair.world.until(lambda: pair.leads(pair.other), within=TIMINGS.ttl + seconds(3 + 3))
        assert pair.fleet.judge.led is not None
        assert pair.fleet.judge.led.number > pair.term

    tell(tale)


async def next_proof(pair: Pair) -> None:
    """Returns when the store has applied the leader's next renewal, before its answer has arrived."""
    applied = asyncio.Event()

    def look(write: StoreWrite) -> None:
        if any(event.key == LEADER_KEY for event in write.events):
            applied.set()

    pair.world.latency = lambda: 0.05
    await asyncio.sleep(TIMINGS.renew_every.total_seconds() / 2)
    pair.world.store.observers.append(look)
    await applied.wait()


@fault(
    "C11",
    without="holdfast.server.election.elector:Elector._proven",
    by="tests.sim.election_bugs:_keepalive_is_enough",
    sees=(InvariantBroken, r"a believes in term \d+ too long after its key was gone"),
)
def test_C11_an_acknowledged_keepalive_of_a_revoked_lease_is_no_proof() -> None:
    async def tale(pair: Pair) -> None:
        """The writer cannot tell, it is frozen: only the renewal can find out."""
        pair.leader.writing.pause()
        pair.world.store.acknowledges_gone_leases = True
        entry = pair.world.store.keys.get(LEADER_KEY)
        assert entry is not None
        pair.world.store.revoke(OPERATOR, entry.lease)
        await pair.world.until(lambda: pair.leads(pair.other), within=seconds(5))
        await asyncio.sleep(TIMINGS.renew_deadline.total_seconds())
        assert not pair.leads(pair.leader)

    tell(tale)


@fault(
    "C12",
    without="holdfast.server.election.predecessor:same_kernel",
    returns=True,
    sees=(InvariantBroken, r"b/elector.\d+ deleted the key of term \d+, whose process lives"),
)
def test_C12_a_leader_in_another_pid_namespace_is_not_taken_for_dead() -> None:
    async def tale(pair: Pair) -> None:
        """Both on one machine, each in a container: the leader's pid means nothing to the other."""
        await asyncio.sleep(10)
        assert pair.fleet.judge.led is not None
        assert pair.fleet.judge.led.number == pair.term
        assert pair.leads(pair.leader)

    tell(tale, containers=True)


def test_a_predecessor_that_died_on_this_machine_is_cleared_at_once() -> None:
    async def tale(pair: Pair) -> None:
        pair.leader.electing.kill()
        pair.leader.revive(pair.leader.electing)
        judge = pair.fleet.judge
        await pair.world.until(lambda: max(judge.terms) > pair.term, within=seconds(1))
        assert judge.terms[pair.term].by_force, "cleared, not expired"

    tell(tale)


@fault(
    "C45",
    without="holdfast.server.election.trial:follower_state",
    by="tests.sim.election_bugs:claims_to_be_able",
    sees=(AssertionError, "led.number == pair.term"),
)
def test_C45_with_the_database_away_for_everybody_for_ten_minutes_the_leader_does_not_change() -> None:
    async def tale(pair: Pair) -> None:
        pair.leader.has_database = pair.other.has_database = lambda: False
        for _ in range(600):
            await asyncio.sleep(1)
            led = pair.fleet.judge.led
            assert led is not None, "leadership wanders"
            assert led.number == pair.term, "leadership wanders"

    tell(tale, seeds=range(2))


def test_C45_a_leader_whose_database_is_away_gives_way_to_a_server_whose_trial_succeeds() -> None:
    async def tale(pair: Pair) -> None:
        pair.leader.has_database = pair.other.has_database = lambda: False
        await asyncio.sleep(120)
        assert pair.leads(pair.leader)
        pair.other.has_database = lambda: True
        await pair.world.until(lambda: pair.leads(pair.other), within=seconds(30))
        await asyncio.sleep(900)
        assert pair.leads(pair.other), "the old leader stays unable until a trial has succeeded"

    tell(tale, seeds=range(2))


@fault(
    "C45",
    without="holdfast.server.election.handover:Ability.remembered_failure",
    returns="",
    sees=(AssertionError, "pair.fleet.judge.led is led"),
)
def test_C45_leadership_does_not_wander_when_every_leader_fails_at_what_no_trial_notices() -> None:
    async def tale(pair: Pair) -> None:
        pair.leader.can_lead = pair.other.can_lead = lambda: False
        await pair.world.until(lambda: pair.leads(pair.other), within=seconds(90))
        led = pair.fleet.judge.led
        assert led is not None
        for _ in range(1_800):
            await asyncio.sleep(1)
            assert pair.fleet.judge.led is led, "leadership wanders"

    tell(tale, seeds=range(2))


def test_C45_a_server_that_failed_as_leader_is_able_again_once_its_failed_trial_succeeds() -> None:
    async def tale(pair: Pair) -> None:
        pair.leader.has_database = lambda: False
        await pair.world.until(lambda: pair.leads(pair.other), within=seconds(90))
        await asyncio.sleep(120)
        pair.leader.has_database = lambda: True
        pair.other.has_database = lambda: False
        await pair.world.until(lambda: pair.leads(pair.leader), within=seconds(120))

    tell(tale, seeds=range(2))
