"""Registrar: one server per name; a second one is refused; the entry of a dead one is cleared at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast.model.base.region import Region
from holdfast.model.base.time import seconds
from holdfast.model.control.server import SERVER, Server
from holdfast.server.election.handover import HandoverRefused
from holdfast.server.election.registrar import Registrar
from holdfast.testing import FakeClient, Fate, World, simulate
from holdfast.testing.fault import fault

REGION = Region("r")
TTL = seconds(15)


class Registered:
    """A registrar, its report, and the sentences of `on_name_taken`."""

    def __init__(self, world: World, node: str, *, name: str = "a", pid: int = 7) -> None:
        self.client: FakeClient = world.node(node).store()
        self.said: list[str] = []
        self.dead: set[int] = set()
        self.report = Server(
            host=node,
            pid=pid,
            boot_id=f"boot-{node}",
            pid_namespace="pid:1",
            version="1",
            since=datetime(2026, 1, 1, tzinfo=UTC),
            database=True,
        )
        self.registrar = Registrar(
            self.client,
            REGION,
            name,
            TTL,
            report=lambda: self.report,
            is_dead=lambda other: other.pid in self.dead,
            on_name_taken=self.said.append,
        )


def scene(story: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    simulate(1, story)


def holder(world: World, name: str = "a") -> str | None:
    entry = world.store.keys.get(SERVER.key(REGION, name))
    server = SERVER.decode(entry.key, entry.value) if entry else None
    return server.host if isinstance(server, Server) else None


def test_a_free_name_is_taken_under_a_lease() -> None:
    async def story(world: World) -> None:
        one = Registered(world, "h1")
        await one.registrar.register()
        assert holder(world) == "h1"
        assert one.said == [""]
        await asyncio.sleep(16)
        assert holder(world) is None

    scene(story)


def test_a_registrar_that_runs_keeps_its_name_and_sees_the_others() -> None:
    async def story(world: World) -> None:
        one, two = Registered(world, "h1"), Registered(world, "h2", name="b", pid=8)
        for each in (one, two):
            world.node(each.report.host).run(each.registrar.run())
        await asyncio.sleep(100)
        assert (holder(world), holder(world, "b")) == ("h1", "h2")
        assert list(one.registrar.others) == ["b"]
        assert list(two.registrar.others) == ["a"]

    scene(story)


def test_the_second_server_of_a_name_is_refused_with_the_fix() -> None:
    async def story(world: World) -> None:
        one, two = Registered(world, "h1"), Registered(world, "h2", pid=8)
        await one.registrar.register()
        await two.registrar.register()
        assert two.said == ["the name a is taken by h1 (pid 7): give this server another server.name"]
        assert holder(world) == "h1"

    scene(story)


def test_a_refused_server_gets_the_name_when_the_first_is_gone() -> None:
    async def story(world: World) -> None:
        one, two = Registered(world, "h1"), Registered(world, "h2", pid=8)
        await one.registrar.register()
        await two.registrar.register()
        await one.registrar.withdraw()
        await two.registrar.register()
        assert two.said[-1] == ""
        assert holder(world) == "h2"

    scene(story)


def test_a_predecessor_that_died_here_is_cleared_at_once() -> None:
    async def story(world: World) -> None:
        one, two = Registered(world, "h1"), Registered(world, "h1", pid=8)
        await one.registrar.register()
        two.dead.add(7)
        await two.registrar.register()
        assert two.said == [""]
        entry = world.store.keys.get(SERVER.key(REGION, "a"))
        assert entry is not None
        assert SERVER.decode(entry.key, entry.value) == two.report

    scene(story)


def test_a_name_whose_taking_was_not_answered_is_known_as_our_own() -> None:
    async def story(world: World) -> None:
        one = Registered(world, "h1")
        one.client.link.next_calls(Fate.REPLY_LOST, of="txn")
        running = world.node("h1").run(one.registrar.run())
        await asyncio.sleep(60)
        assert set(one.said) == {""}, "a server must not take itself for its own duplicate"
        assert holder(world) == "h1"
        running.cancel()

    scene(story)


def test_an_entry_that_cannot_be_read_is_present_and_keeps_the_name() -> None:
    async def story(world: World) -> None:
        one = Registered(world, "h1")
        await world.connect("somebody").put(SERVER.key(REGION, "a"), b"not json")
        await one.registrar.register()
        assert one.said == ["the name a is taken by an unreadable entry: give this server another server.name"]

    scene(story)


def test_a_registration_that_ran_out_is_taken_again() -> None:
    async def story(world: World) -> None:
        one = Registered(world, "h1")
        await one.registrar.register()
        await asyncio.sleep(20)
        await one.registrar.register()
        assert holder(world) == "h1"

    scene(story)


def test_a_store_that_is_away_costs_nothing_but_time() -> None:
    async def story(world: World) -> None:
        one = Registered(world, "h1")
        world.node("h1").run(one.registrar.run())
        await asyncio.sleep(1)
        one.client.link.cut()
        await asyncio.sleep(60)
        one.client.link.heal()
        await asyncio.sleep(15)
        assert holder(world) == "h1"
        assert set(one.said) == {""}

    scene(story)


def test_withdrawing_from_a_store_that_is_away_is_not_an_error() -> None:
    async def story(world: World) -> None:
        one = Registered(world, "h1")
        await one.registrar.register()
        one.client.link.sever()
        await one.registrar.withdraw()
        await asyncio.sleep(16)
        assert holder(world) is None

    scene(story)


def test_the_servers_that_can_take_over_are_read_when_they_are_asked_for() -> None:
    async def story(world: World) -> None:
        one, two = Registered(world, "h1"), Registered(world, "h2", name="b", pid=8)
        await one.registrar.register()
        with pytest.raises(HandoverRefused, match="no other server is called b"):
            await one.registrar.successors("a", "b")
        with pytest.raises(HandoverRefused, match="a leads already"):
            await one.registrar.successors("a", "a")
        await two.registrar.register()
        leases = set(world.store.leases)
        assert await one.registrar.successors("a", "b") == await one.registrar.successors("a") == ["b"]
        assert set(world.store.leases) == leases, "those that were tried are given back"

    scene(story)


async def not_checked(self: Registrar) -> None:
    """Stands in for the check of space."""


@fault(
    "C35",
    without="holdfast.server.election.registrar:Registrar._check_space",
    by="tests.server.election.test_registrar:not_checked",
    sees=(pytest.fail.Exception, "DID NOT RAISE HandoverRefused"),
)
def test_C35_nobody_can_take_over_while_the_store_is_out_of_space() -> None:
    """No server could take the leadership, and the store needs a leader that compacts it."""

    async def story(world: World) -> None:
        one, two = Registered(world, "h1"), Registered(world, "h2", name="b", pid=8)
        for each in (one, two):
            await each.registrar.register()
        world.store.run_out_of_space()
        with pytest.raises(HandoverRefused, match="no other server can take over: the store is out of space"):
            await one.registrar.successors("a", "b")
        world.store.regain_space()
        assert await one.registrar.successors("a", "b") == ["b"]

    scene(story)
