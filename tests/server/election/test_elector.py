"""Elector against a store: quick handover, leadership in a full store, no more requests than needed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from structlog.testing import capture_logs

from holdfast.config.sections.server import ServerSettings
from holdfast.model.base.time import seconds
from holdfast.model.control.leader import LEADER, Leader
from holdfast.model.control.leader_history import LEADERSHIP, LeaderHistory
from holdfast.server.election.leadership import Leading
from holdfast.server.election.machine import ElectionPhase, LossReason
from holdfast.testing import Fate, World, simulate
from tests.sim.election_invariants import ElectionInvariants
from tests.sim.servers import LEADER_KEY, REGION, Host, SimServer

TIMINGS = ServerSettings()


class Duo:
    """Two servers on two machines; `a` leads from the beginning."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.a, self.b = (SimServer(world, name, Host(world, f"host-{name}"), "pid", TIMINGS) for name in "ab")
        self.judge = ElectionInvariants(world, [self.a, self.b])

    async def begin(self) -> None:
        self.a.start()
        await self.world.until(lambda: leads(self.a) and self.judge.writes > 0, within=seconds(5))
        self.b.start()
        await asyncio.sleep(3)

    async def led_by(self, server: SimServer, within: float) -> None:
        await self.world.until(lambda: leads(server), within=seconds(within))

    def history(self) -> list[tuple[str, str]]:
        entry = self.world.store.keys.get(LEADERSHIP.key(REGION, "leadership"))
        assert entry is not None
        found = LEADERSHIP.decode(entry.key, entry.value)
        assert isinstance(found, LeaderHistory)
        return [(one.name, one.why) for one in found.periods]


def leads(server: SimServer) -> bool:
    return isinstance(server.check(), Leading)


def duo(story: Callable[[Duo], Coroutine[Any, Any, None]]) -> None:
    async def scenario(world: World) -> None:
        two = Duo(world)
        await two.begin()
        await story(two)

    for seed in range(3):
        simulate(seed, scenario)


def test_stepping_down_hands_over_in_well_under_a_second() -> None:
    async def story(two: Duo) -> None:
        assert two.a.elector is not None
        two.a.elector.leave(LossReason.STEPPED_DOWN, seconds(30))
        assert not leads(two.a), "it stops before anybody else can begin"
        await two.led_by(two.b, within=0.5)
        await asyncio.sleep(1)
        assert two.history() == [("a", LossReason.STEPPED_DOWN.value), ("b", "")]

    duo(story)


class Trio(Duo):
    """A third server, which would be faster than the one that the leader steps down for."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.c = SimServer(world, "c", Host(world, "host-c"), "pid", TIMINGS)
        self.judge.servers.append(self.c)

    async def begin(self) -> None:
        await super().begin()
        self.c.start()
        await asyncio.sleep(3)


def trio(story: Callable[[Trio], Coroutine[Any, Any, None]]) -> None:
    async def scenario(world: World) -> None:
        three = Trio(world)
        await three.begin()
        await story(three)

    for seed in range(5):
        simulate(seed, scenario)


def test_a_leader_that_steps_down_for_a_server_is_followed_by_that_one() -> None:
    async def story(three: Trio) -> None:
        assert three.a.elector is not None
        three.a.elector.leave(LossReason.STEPPED_DOWN, seconds(30), "c")
        await three.led_by(three.c, within=1)
        await asyncio.sleep(1)
        assert [name for name, _ in three.history()] == ["a", "c"]

    trio(story)


def test_any_server_takes_over_if_the_chosen_one_does_not() -> None:
    async def story(three: Trio) -> None:
        assert three.a.elector is not None
        three.c.electing.kill()
        three.a.elector.leave(LossReason.STEPPED_DOWN, seconds(30), "c")
        await asyncio.sleep(3)
        assert not leads(three.b), "it holds back"
        await three.led_by(three.b, within=5)

    trio(story)


def test_a_resignation_that_failed_is_made_up_for_long_before_the_lease_is_over() -> None:
    async def story(two: Duo) -> None:
        assert two.a.elector is not None
        unlucky = [Fate.REFUSED, Fate.REFUSED]

        def weather(_called: str) -> Fate:
            return unlucky.pop() if unlucky else Fate.ANSWERED

        two.a.electing.clients[0].link.fate_of = weather
        two.a.elector.leave(LossReason.STEPPED_DOWN, seconds(60))
        await two.led_by(two.b, within=4)
        assert not unlucky

    duo(story)


def test_failed_renewals_and_the_end_of_a_stale_term_are_logged_with_their_cause() -> None:
    async def story(two: Duo) -> None:
        two.a.electing.clients[0].link.fate_of = lambda _called: Fate.REFUSED
        with capture_logs() as lines:
            await two.led_by(two.b, within=TIMINGS.ttl.total_seconds() + 5)
            await asyncio.sleep(30)
        mine = [line for line in lines if line.get("server") == "a"]
        failed = [line for line in mine if line["event"] == "election attempt failed; retrying"]
        assert (failed[0]["log_level"], failed[0]["attempt"]) == ("info", "renew the leadership")
        assert 0 < failed[0]["term_stale_in_s"] < TIMINGS.renew_deadline.total_seconds()
        assert len(failed) < 8, "at most one in ten seconds"
        (lost,) = [line for line in mine if line["event"] == "leadership lost"]
        assert "it could not prove its term in time (not renewed for 10." in lost["reason"]
        assert failed[0]["error"] in lost["reason"]

    duo(story)


def test_a_new_leader_logs_why_there_was_no_leader() -> None:
    async def story(two: Duo) -> None:
        assert two.a.elector is not None
        with capture_logs() as lines:
            two.a.elector.leave(LossReason.STEPPED_DOWN, seconds(30))
            await two.led_by(two.b, within=0.5)
        (gained,) = [line for line in lines if line["event"] == "leadership gained"]
        assert gained["server"] == "b"
        assert gained["reason"] == "a led before, and that ended because an operator asked it to step down"

    duo(story)


@pytest.mark.parametrize(("fate", "method"), [(Fate.REFUSED, "get"), (Fate.REPLY_LOST, "txn")])
def test_a_term_is_in_the_history_once_although_the_first_write_of_it_failed(fate: Fate, method: str) -> None:
    async def story(two: Duo) -> None:
        assert two.a.elector is not None
        unlucky = [fate]

        def weather(called: str) -> Fate:
            """What a new leader asks for first is its place in the history."""
            unlucky_now = called == method and leads(two.b) and unlucky
            return unlucky.pop() if unlucky_now else Fate.ANSWERED

        two.b.electing.clients[0].link.fate_of = weather
        two.a.elector.leave(LossReason.STEPPED_DOWN, seconds(300))
        await two.led_by(two.b, within=0.5)
        await asyncio.sleep(30)
        assert not unlucky
        assert leads(two.b)
        assert two.history() == [("a", LossReason.STEPPED_DOWN.value), ("b", "")]

    duo(story)


def test_a_clean_stop_gives_leadership_and_name_back() -> None:
    async def story(two: Duo) -> None:
        stop = asyncio.ensure_future(two.a.stop())
        await two.led_by(two.b, within=0.5)
        await asyncio.sleep(1)
        assert [key for key in two.world.store.keys.range(b"/", b"0") if key.key.endswith(b"servers/a")] == []
        await stop

    duo(story)


def test_a_stop_waits_for_a_campaign_under_way_and_gives_back_what_it_wins() -> None:
    async def scenario(world: World) -> None:
        two = Duo(world)
        world.latency = lambda: 0.2
        two.a.start()
        await world.until(lambda: two.a.elector is not None and two.a.elector.state.lease != 0, within=seconds(5))
        stop = asyncio.ensure_future(two.a.stop())
        await asyncio.sleep(4)
        assert two.judge.terms, "the campaign was won after all"
        assert two.judge.led is None, "and given back"
        await stop

    simulate(1, scenario)


def test_a_dead_leader_is_followed_when_its_lease_has_run_out() -> None:
    async def story(two: Duo) -> None:
        for node in two.a.processes:
            node.kill()
        await two.led_by(two.b, within=TIMINGS.ttl.total_seconds() + 1)
        await asyncio.sleep(1)
        (died, why), (successor, _) = two.history()
        assert (died, successor) == ("a", "b")
        assert "its lease ran out" in why

    duo(story)


def test_a_full_store_keeps_its_leader() -> None:
    async def story(two: Duo) -> None:
        two.world.store.run_out_of_space()
        await asyncio.sleep(60)
        assert leads(two.a)
        assert len(two.judge.terms) == 1

    duo(story)


@pytest.mark.parametrize("to", ["", "b"])
def test_a_leader_of_a_full_store_can_step_down(to: str) -> None:
    async def story(two: Duo) -> None:
        two.world.store.run_out_of_space()
        assert two.a.elector is not None
        two.a.elector.leave(LossReason.STEPPED_DOWN, seconds(30), to)
        await asyncio.sleep(1)
        assert two.judge.led is None
        two.world.store.regain_space()
        await two.led_by(two.b, within=10)

    duo(story)


def test_a_follower_does_not_look_because_of_every_renewal() -> None:
    async def story(two: Duo) -> None:
        looks: list[str] = []
        link = two.b.electing.clients[0].link

        def count(method: str) -> Fate:
            looks.append(method)
            return Fate.ANSWERED

        link.fate_of = count
        await asyncio.sleep(60)
        assert looks.count("txn") <= 26, "three looks and three registrations in a TTL, whatever is written meanwhile"

    duo(story)


def test_what_is_to_be_done_does_not_pile_up_while_the_store_is_away() -> None:
    async def story(two: Duo) -> None:
        for server in (two.a, two.b):
            for node in server.processes:
                for client in node.clients:
                    client.link.cut()
        await asyncio.sleep(120)
        for server in (two.a, two.b):
            assert server.elector is not None
            assert server.elector._effects.qsize() <= 2
        for server in (two.a, two.b):
            for node in server.processes:
                for client in node.clients:
                    client.link.heal()
        await two.world.until(lambda: leads(two.a) or leads(two.b), within=TIMINGS.ttl)

    duo(story)


def test_a_duplicate_neither_leads_nor_ends_the_pause_of_its_namesake() -> None:
    async def scenario(world: World) -> None:
        a, b = (SimServer(world, n, Host(world, f"host-{n}"), "pid", TIMINGS, called="same") for n in "ab")
        ElectionInvariants(world, [a, b])
        a.start()
        await world.until(lambda: leads(a), within=seconds(5))
        b.start()
        await asyncio.sleep(1)
        assert b.elector is not None
        assert b.elector.state.phase is ElectionPhase.RESTING
        b.elector.leave(LossReason.PAUSED)
        for node in a.processes:
            node.kill()
        await asyncio.sleep(60)
        assert not leads(b), "the name is free, but it is still paused"
        b.elector.rejoin(LossReason.PAUSED)
        await world.until(lambda: leads(b), within=seconds(10))

    simulate(1, scenario)


def test_the_key_names_the_leader() -> None:
    async def story(two: Duo) -> None:
        entry = two.world.store.keys.get(LEADER_KEY)
        assert entry is not None
        assert b'"name":"a"' in entry.value
        assert b'"boot_id":"host-a, boot 1"' in entry.value

    duo(story)


def test_the_key_carries_the_start_of_the_leadership_not_that_of_the_process() -> None:
    async def story(two: Duo) -> None:
        await asyncio.sleep(60)
        assert two.a.elector is not None
        two.a.elector.leave(LossReason.STEPPED_DOWN, seconds(30))
        asked = two.b.clock.wall()
        await two.led_by(two.b, within=0.5)
        await asyncio.sleep(20)
        entry = two.world.store.keys.get(LEADER_KEY)
        assert entry is not None
        held = LEADER.decode(entry.key, entry.value)
        assert isinstance(held, Leader)
        assert held.since is not None
        assert asked <= held.since <= asked + seconds(1), "renewals do not move it"

    duo(story)


def test_renewals_are_logged_at_a_slow_rate() -> None:
    async def story(two: Duo) -> None:
        with capture_logs() as lines:
            await asyncio.sleep(310)
        renewed = [line for line in lines if line["log_level"] == "info" and line["event"] == "leadership renewed"]
        assert len(renewed) == 1, "one in five minutes"
        assert renewed[0]["count"] > 100
        assert renewed[0]["slowest_ms"] >= 0

    duo(story)


def test_a_follower_stops_at_once_although_the_store_is_away() -> None:
    async def story(two: Duo) -> None:
        for client in two.b.electing.clients:
            client.link.cut()
        await asyncio.sleep(7)
        assert two.b.elector is not None
        two.b.elector.leave(LossReason.STOPPED)
        assert two.b.elector._released.is_set()

    duo(story)
