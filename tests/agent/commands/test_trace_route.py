"""`explain route`: from an address to its endpoint, with every kernel object on the path."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from holdfast.agent.commands.control import AgentCommands
from holdfast.cli.explain.route import lines
from holdfast.runtime.control import Declined
from tests.agent.commands.test_control import Asked, play
from tests.agent.harness import ME


async def explained(asked: Asked, address: str) -> list[str]:
    found = await asked("explain", kind="route", name=address)
    return list(lines({**found, "name": address, "decisions": []}))


def test_a_remote_workload_is_traced_through_the_tunnel_to_its_host(tmp_path: Path) -> None:
    async def scene(asked: Asked) -> None:
        await asked.start()
        head, _, owner, *steps = await explained(asked, "10.65.0.1")
        assert head == "From me, packets to 10.65.0.1 go through the tunnel to 192.0.2.1."
        assert owner == "ROUTE       10.65.0.1/32 belongs to endpoint a-holdfast-w-eth0 on host a"
        assert [step.split()[1] for step in steps] == ["route", "nexthop", "neighbour", "forwarding", "device"]
        assert all(step.endswith("programmed") for step in steps)

    play(scene, tmp_path)


def test_the_longest_prefix_counts(tmp_path: Path) -> None:
    async def scene(asked: Asked) -> None:
        fleet = asked.site.fleet()
        fleet.write(fleet.joins("b", 2), fleet.runs("net", "b", "10.65.0.0/24"))
        await asked.start()
        assert (await explained(asked, "10.65.0.1"))[0].endswith("to 192.0.2.1.")
        assert (await explained(asked, "10.65.0.2"))[0].endswith("to 192.0.2.2.")

    play(scene, tmp_path)


def test_a_workload_of_this_host_is_at_its_interface(tmp_path: Path) -> None:
    async def scene(asked: Asked) -> None:
        fleet = asked.site.fleet()
        fleet.write(fleet.runs("mine", ME, "10.65.0.9/32", interface="tap9"))
        await asked.start()
        assert (await explained(asked, "10.65.0.9"))[0] == "From me, packets to 10.65.0.9 go to interface tap9."

    play(scene, tmp_path)


def test_a_refusal_of_the_kernel_is_shown_at_its_object(tmp_path: Path) -> None:
    async def scene(asked: Asked) -> None:
        asked.site.kernel.refuse = lambda change: "no room" if change.new is not None else None
        asked.site.start()
        await asyncio.sleep(5)
        asked.commands = AgentCommands(asked.site.running, ME, "boot-1", asked.site.node.clock)
        told = await explained(asked, "10.65.0.1")
        assert told[0].endswith("go through the tunnel to 192.0.2.1 once all of these objects are in sync.")
        assert any("route 10.65.0.1/32" in line and "no room" in line for line in told)

    play(scene, tmp_path)


def test_an_address_without_a_route_and_a_malformed_address(tmp_path: Path) -> None:
    async def scene(asked: Asked) -> None:
        await asked.start()
        assert await explained(asked, "10.99.99.99") == [
            "me has no route of ours to 10.99.99.99: no known endpoint has this address."
        ]
        with pytest.raises(Declined, match="'nonsense' is not an IP address"):
            await explained(asked, "nonsense")

    play(scene, tmp_path)


def test_an_arriving_workload_is_traced_to_where_it_is_with_its_migration(tmp_path: Path) -> None:
    async def scene(asked: Asked) -> None:
        fleet = asked.site.fleet()
        asked.site.kernel.interfaces = set()
        await asked.start()
        fleet.write(fleet.migrates("w", "a", ME))
        await asyncio.sleep(5)
        head, _, _, step, *_ = await explained(asked, "10.65.0.1")
        assert head.startswith("From me, packets to 10.65.0.1 go through the tunnel to 192.0.2.1")
        assert step.endswith("its workload arrives here by migration from a")
        asked.site.kernel.interfaces = None
        asked.site.kernel.flap()
        await asyncio.sleep(5)
        head, _, _, step = await explained(asked, "10.65.0.1")
        assert head == "From me, packets to 10.65.0.1 go to interface tap-w."
        assert step.endswith("programmed; its workload arrives here by migration from a")

    play(scene, tmp_path)
