"""Drains of hosts: stored with who and why, refused for unknown hosts, and read with the flows that are left."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from holdfast.config.root import Config
from holdfast.config.sections.log import LogSettings
from holdfast.model.base.region import Region
from holdfast.model.calico.host import HOST, Bgp, Host, HostSpec
from holdfast.model.control.scope import FLEET
from holdfast.model.fleet.balancer_report import BALANCER_REPORT, BalancerReport
from holdfast.runtime.control import Declined, Request, Who
from holdfast.runtime.daemon.board import Board
from holdfast.runtime.daemon.worker import Spec, Worker
from holdfast.runtime.decision_log import history
from holdfast.runtime.intents.drains import read_drains
from holdfast.runtime.intents.etcd import server_intents
from holdfast.runtime.paths import RolePaths
from holdfast.server.election.drains import DrainCommands
from holdfast.testing import World, simulate

REGION = Region("r")
ADA = Who(1_000, 77, "ada")


class Office:
    """One server's commands; host r1 is known."""

    def __init__(self, world: World, folder: Path) -> None:
        node = world.node("ctl-1")
        self.store = node.store()
        paths = RolePaths("server", folder / "run", folder / "state")
        board = Board.create(folder / "board", ["elector"])
        self.worker = Worker(Spec("elector", ""), "server", paths, Config(log=LogSettings()), node.clock, board)
        intents = server_intents(self.store, REGION, node.clock, paths.state, FLEET)
        self.handlers = DrainCommands(self.store, REGION, intents, self.worker.context).handlers()
        self.clock = node.clock

    async def ask(self, do: str, **args: Any) -> Any:
        return await self.handlers[do](Request(do, args), ADA)

    async def report(self, balancer: str, **draining: int | None) -> None:
        report = BalancerReport(version="1", table="t", configuration="c", health="h", intents="i", draining=draining)
        await self.store.put(BALANCER_REPORT.key(REGION, balancer), BALANCER_REPORT.encode(report))


def play(story: Callable[[Office], Coroutine[Any, Any, None]], folder: Path) -> None:
    async def started(world: World) -> None:
        office = Office(world, folder)
        await office.store.put(HOST.key(REGION, "r1"), HOST.encode(Host.of("r1", HostSpec(bgp=Bgp("10.9.0.1/24")))))
        await story(office)

    simulate(1, started)


def test_a_drain_is_stored_with_who_and_why_until_it_is_ended(tmp_path: Path) -> None:
    async def story(office: Office) -> None:
        answer = await office.ask("drain-host", name="r1", reason="new disk")
        assert answer == (
            "host r1 is drained: every balancer pauses the backends on it; end it with: holdfast undrain host r1"
        )
        (drain,) = await read_drains(office.store, REGION, office.clock.wall())
        assert (drain.who, drain.why, str(drain.scope)) == ("ada", "new disk", "host r1")
        await office.ask("undrain-host", name="r1")
        assert await office.ask("drains") == []
        with pytest.raises(Declined, match="host r1 is not drained"):
            await office.ask("undrain-host", name="r1")

    play(story, tmp_path)
    told = [one.sentence for one in history(RolePaths("server", tmp_path / "run", tmp_path / "state").decisions)]
    assert told == ["ada asked for drain of host r1: “new disk”", "ada asked for undrain of host r1"]


def test_a_host_that_is_not_known_is_refused(tmp_path: Path) -> None:
    async def story(office: Office) -> None:
        with pytest.raises(Declined, match="there is no host r2: holdfast get hosts lists them"):
            await office.ask("drain-host", name="r2", reason="new disk")
        with pytest.raises(Declined, match="name a host"):
            await office.ask("drain-host", reason="new disk")
        assert await office.ask("drains") == []

    play(story, tmp_path)


def test_a_drain_without_a_reason_is_refused(tmp_path: Path) -> None:
    async def story(office: Office) -> None:
        with pytest.raises(Declined, match="a reason is needed"):
            await office.ask("drain-host", name="r1")

    play(story, tmp_path)


def test_a_drain_for_a_time_ends_by_itself(tmp_path: Path) -> None:
    async def story(office: Office) -> None:
        await office.ask("drain-host", name="r1", reason="new disk", **{"for": "30m"})
        await asyncio.sleep(29 * 60)
        assert len(await office.ask("drains")) == 1
        await asyncio.sleep(2 * 60)
        assert await office.ask("drains") == []

    play(story, tmp_path)


def test_the_flows_that_are_left_are_those_of_every_balancer(tmp_path: Path) -> None:
    async def story(office: Office) -> None:
        await office.ask("drain-host", name="r1", reason="new disk")
        await office.report("lb-1", r1=3)
        await office.report("lb-2")
        await office.report("lb-3", r1=None)
        await office.store.put(BALANCER_REPORT.key(REGION, "lb-4"), b"{")
        (seen,) = await office.ask("drains")
        assert seen["flows"] == {"lb-1": 3, "lb-3": None}
        assert list(seen["waiting"]) == ["lb-2", "lb-4"]

    play(story, tmp_path)
