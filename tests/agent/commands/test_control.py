"""Control commands of a running agent: about itself, its peers, pending deletes, and one host."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.agent.claims import nexthop
from holdfast.agent.commands.control import AgentCommands
from holdfast.cli.daemons.agent import peer_lines, pending_lines
from holdfast.cli.explain.host import endpoint_lines
from holdfast.cli.explain.host import lines as explained
from holdfast.reconcile import Op
from holdfast.runtime.control import Declined, Request, Who
from holdfast.testing import World, simulate
from tests.agent.harness import ME, HostHarness

ADA = Who(1000, 1, "ada")


class Asked:
    """An agent on a simulated host, and a client of its control socket."""

    def __init__(self, site: HostHarness) -> None:
        self.site = site
        self.commands: AgentCommands | None = None

    async def start(self) -> None:
        self.site.start()
        await self.site.settled()
        self.commands = AgentCommands(self.site.running, ME, "boot-1", self.site.node.clock)

    async def __call__(self, do: str, **args: object) -> Any:
        assert self.commands is not None
        return await self.commands.handlers()[do](Request(do, args), ADA)

    async def explain(self, name: str) -> str:
        agent = await self("explain", kind="host", name=name)
        return "\n".join(explained({"name": name, "fleet": None, "agent": agent, "decisions": []}))


def play(scene: Callable[[Asked], Awaitable[None]], folder: Path) -> None:
    async def scenario(world: World) -> None:
        site = HostHarness(world, folder)
        fleet = site.fleet()
        fleet.name_it()
        fleet.write(fleet.joins("a", 1), fleet.runs("w", "a", "10.65.0.1/32"), fleet.joins(ME, 9))
        try:
            await scene(Asked(site))
        finally:
            site.close()

    simulate(1, scenario)


def test_peers_are_shown_with_how_they_are_reached(tmp_path: Path) -> None:
    async def scene(asked: Asked) -> None:
        await asked.start()
        (row,) = await asked("peers")
        assert (row["host"], row["reached"], row["routes"], row["objects"]) == ("a", ["vxlan 10.99.0.1"], 2, 5)
        assert list(peer_lines([row]))[1] == "a                    vxlan 10.99.0.1        2        5   in sync"

    play(scene, tmp_path)


def test_the_reporter_tells_the_revision_of_its_reports_and_nobody_else_does(tmp_path: Path) -> None:
    async def scene(asked: Asked) -> None:
        noted: list[int] = []
        asked.site.start()
        await asked.site.settled()
        commands = AgentCommands(asked.site.running, ME, "boot-1", asked.site.node.clock, note_report=noted.append)
        reporter, other = Who(os.geteuid(), 1, "reporter"), Who(os.geteuid() + 1, 2, "other")
        asking: list[tuple[object, Who]] = [(7, reporter), (7, reporter), (9, other), ("x", reporter), (8, reporter)]
        for revision, who in asking:
            await commands.handlers()["report"](Request("report", {"reported": revision}), who)
        assert noted == [7, 8]

    play(scene, tmp_path)


def test_a_deletion_that_the_kernel_refuses_is_pending_with_its_reason(tmp_path: Path) -> None:
    async def scene(asked: Asked) -> None:
        await asked.start()
        asked.site.kernel.refuse = lambda change: "it is busy" if change.op is Op.DELETE else None
        fleet = asked.site.fleet()
        fleet.write(fleet.leaves("a"), fleet.ends("w", "a"))
        await asyncio.sleep(5)
        route = next(row for row in await asked("pending") if row["key"] == "route 10.65.0.1/32")
        assert (route["host"], route["waiting"]["error"]) == ("a", "it is busy")
        assert route["handlers"] == [{"handler": "kernel", "acknowledged": False, "error": "it is busy"}]
        told = "\n".join(pending_lines([route]))
        assert "kernel has not deleted it: it is busy" in told

    play(scene, tmp_path)


def test_a_held_delete_is_pending_with_what_releases_it(tmp_path: Path) -> None:
    async def scene(asked: Asked) -> None:
        await asked.start()
        asked.site.kernel.refuse = lambda change: "it is busy" if change.key.text == "10.65.0.1/32" else None
        fleet = asked.site.fleet()
        fleet.write(fleet.leaves("a"), fleet.ends("w", "a"))
        await asyncio.sleep(5)
        held = next(row for row in await asked("pending") if row["key"] == str(nexthop("10.99.0.1")))
        assert held["waiting"]["gate"] == "dependents"
        assert "To release: wait until they are deleted" in list(pending_lines([held]))

    play(scene, tmp_path)


def test_a_peer_is_explained_object_by_object(tmp_path: Path) -> None:
    async def scene(asked: Asked) -> None:
        await asked.start()
        told = await asked.explain("a")
        assert told.startswith("a is a peer of me, reached by vxlan 10.99.0.1.")
        assert "OBJECT      route 10.65.0.1/32 of a-holdfast-w-eth0: wanted by region since revision" in told

    play(scene, tmp_path)


def test_an_unknown_host_is_explained_as_unknown(tmp_path: Path) -> None:
    async def scene(asked: Asked) -> None:
        await asked.start()
        assert (await asked.explain("z")).startswith("z is no peer of me: nothing of it is wanted or programmed there.")

    play(scene, tmp_path)


def test_a_report_of_another_host_is_explained_with_its_routing_if_the_agent_told_it() -> None:
    def told(report: dict[str, object]) -> str:
        seen = {"known": True, "addresses": [], "endpoints": 0, "alive": True, "reported": "", "unreadable": []}
        one: dict[str, Any] = {"name": "a", "agent": None, "decisions": [], "fleet": {**seen, "report": report}}
        return "\n".join(explained(one))

    assert "version 1, routing bgp, no counts" in told({"version": "1", "routing": "bgp"})
    assert "version 1, no counts" in told({"version": "1"})


def test_the_own_host_is_explained_with_its_endpoints(tmp_path: Path) -> None:
    async def scene(asked: Asked) -> None:
        fleet = asked.site.fleet()
        fleet.write(fleet.runs("v", ME, "10.65.0.9/32"))
        await asked.start()
        told = await asked.explain(ME)
        assert told.startswith("me is this host; its agent has 1 peer.")
        assert "ENDPOINT    me-holdfast-v-eth0: up" in told

    play(scene, tmp_path)


def test_a_host_that_the_inventory_does_not_know_says_so_until_it_is_known(tmp_path: Path) -> None:
    async def scene(asked: Asked) -> None:
        fleet = asked.site.fleet()
        fleet.write(fleet.leaves(ME))
        await asked.start()
        assert [gate["gate"] for gate in (await asked("report"))["gates"]] == ["registration"]
        assert (await asked("about"))["registered"] is False
        assert (await asked("report"))["routing"] == "mesh"
        fleet.write(fleet.joins(ME, 9))
        await asyncio.sleep(2)
        assert (await asked("report")).get("gates", []) == []

    play(scene, tmp_path)


def test_registration_is_unknown_before_the_store_is_known_to_be_ours(tmp_path: Path) -> None:
    async def scene(asked: Asked) -> None:
        asked.site.unreachable = {"region"}
        asked.site.start()
        await asyncio.sleep(5)
        asked.commands = AgentCommands(asked.site.running, ME, "boot-1", asked.site.node.clock)
        about = await asked("about")
        assert about["registered"] is None
        assert about["sources"][0]["revision"] is None

    play(scene, tmp_path)


def test_endpoints_are_not_reported_to_a_store_of_another_fleet(tmp_path: Path) -> None:
    async def scene(asked: Asked) -> None:
        fleet = asked.site.fleet()
        fleet.write(fleet.runs("v", ME, "10.65.0.9/32"))
        await asked.start()
        assert asked.commands is not None
        assert asked.commands.endpoints() is not None
        fleet.name_it("another-fleet")
        await asyncio.sleep(30)
        assert asked.commands.endpoints() is None

    play(scene, tmp_path)


def test_C39_an_endpoint_whose_value_cannot_be_read_is_not_taken_for_gone(tmp_path: Path) -> None:
    async def scene(asked: Asked) -> None:
        fleet = asked.site.fleet()
        fleet.write(msgspec.structs.replace(fleet.runs("v", ME, "10.65.0.9/32"), value=b"{"))
        await asked.start()
        assert asked.commands is not None
        assert asked.commands.endpoints() == {}
        assert not asked.commands.knows_all_endpoints()
        fleet.write(fleet.ends("v", ME))
        await asyncio.sleep(5)
        assert asked.commands.knows_all_endpoints()

    play(scene, tmp_path)


def test_only_hosts_are_explained_by_an_agent(tmp_path: Path) -> None:
    async def scene(asked: Asked) -> None:
        await asked.start()
        with pytest.raises(Declined, match="holdfast explain host NAME"):
            await asked("explain", kind="frontend", name="www")

    play(scene, tmp_path)


async def arriving(asked: Asked) -> None:
    """w migrates to this host; its interface does not exist yet."""
    fleet = asked.site.fleet()
    asked.site.kernel.interfaces = set()
    await asked.start()
    fleet.write(fleet.migrates("w", "a", ME))
    await asyncio.sleep(5)


def test_an_arriving_workload_is_shown_with_its_source(tmp_path: Path) -> None:
    async def scene(asked: Asked) -> None:
        await arriving(asked)
        assert "ENDPOINT    me-holdfast-w-eth0: down, arrives here by migration from a" in await asked.explain(ME)
        objects = [line for line in (await asked.explain("a")).splitlines() if "route 10.65.0.1/32" in line]
        assert objects[0].endswith("programmed; its workload arrives here by migration from a")
        (row,) = await asked("peers")
        assert list(peer_lines([row]))[1].endswith("1 in live migration to this host")

    play(scene, tmp_path)


@pytest.mark.parametrize("name", ["me-holdfast-w-eth0", "holdfast-w-eth0"])
def test_an_endpoint_that_arrives_is_explained_by_either_of_its_names(tmp_path: Path, name: str) -> None:
    async def scene(asked: Asked) -> None:
        await arriving(asked)
        found = await asked("explain", kind="endpoint", name=name)
        assert list(endpoint_lines([found])) == ["AGENT       on me: down, arrives here by migration from a"]
        assert (await asked("explain", kind="endpoint", name="holdfast-v-eth0"))["endpoints"] == []

    play(scene, tmp_path)
