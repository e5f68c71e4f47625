"""The dataplane on a real kernel: it reads back what it created, and sees nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from holdfast.agent.claims import (
    ClaimKey,
    FdbEntry,
    LocalRoute,
    Mode,
    NeighbourEntry,
    NexthopEntry,
    RemoteRoute,
    Shape,
    VxlanDevice,
    device,
    forwarding,
    neighbour,
    nexthop,
    route,
)
from holdfast.agent.dataplane.linux import LinuxDataplane
from tests.agent.dataplane.linux.harness import HostHarness, creates, deletes, direct_peer, replace, vxlan_peer
from tests.agent.harness import turns_of_others

MANY = 3_000


def test_what_was_made_reads_back_and_its_deletion_leaves_nothing(dataplane: LinuxDataplane) -> None:
    wanted = {**vxlan_peer(7), **vxlan_peer(8), **direct_peer(9), **dataplane.describe().own}

    async def scene() -> None:
        assert await dataplane.apply(creates(wanted)) == [None] * len(wanted)
        assert await dataplane.read() == wanted
        assert await dataplane.apply(deletes(wanted)) == [None] * len(wanted)
        assert await dataplane.read() == {}

    asyncio.run(scene())


def test_an_endpoint_of_this_host_is_routed_to_its_interface(site: HostHarness, dataplane: LinuxDataplane) -> None:
    site.interface("tap1")
    wanted = {route("10.28.0.5/32"): LocalRoute("tap1"), route("fd00:28::5/128"): LocalRoute("tap1")}

    async def scene() -> None:
        assert await dataplane.apply(creates(wanted)) == [None, None]
        assert await dataplane.read() == wanted

    asyncio.run(scene())
    assert "dev tap1 proto 175 scope link" in site.ip("route show table 7500")


def test_a_route_moves_between_peers_and_interfaces_in_place(site: HostHarness, dataplane: LinuxDataplane) -> None:
    site.interface("tap1")
    key, first, second, here = (
        route("10.28.0.7/32"),
        RemoteRoute("10.9.0.7"),
        RemoteRoute("10.9.0.8"),
        LocalRoute("tap1"),
    )

    async def scene() -> None:
        await dataplane.apply(creates({**vxlan_peer(7), **vxlan_peer(8)}))
        for old, new in ((first, second), (second, here), (here, first)):
            assert await dataplane.apply([replace(key, old, new)]) == [None]
            assert (await dataplane.read())[key] == new

    asyncio.run(scene())


def test_a_peer_that_comes_closer_keeps_the_number_of_its_nexthop(site: HostHarness, dataplane: LinuxDataplane) -> None:
    key = nexthop("10.0.0.7")
    wanted: dict[ClaimKey, Shape] = {
        device(4): VxlanDevice("02:00:00:00:00:04"),
        key: NexthopEntry(Mode.VXLAN),
        route("10.28.0.7/32"): RemoteRoute("10.0.0.7"),
    }

    async def scene() -> None:
        await dataplane.apply(creates(wanted))
        before = site.ip("nexthop show").split()[:2]
        assert await dataplane.apply([replace(key, NexthopEntry(Mode.VXLAN), NexthopEntry(Mode.DIRECT))]) == [None]
        assert site.ip("nexthop show").split()[:2] == before
        assert await dataplane.read() == {**wanted, key: NexthopEntry(Mode.DIRECT)}

    asyncio.run(scene())


def test_a_tunnel_mac_and_a_tunnel_address_move_to_another_host_in_place(dataplane: LinuxDataplane) -> None:
    entry, pair = forwarding(4, "02:00:00:00:00:07"), neighbour("10.9.0.7")

    async def scene() -> None:
        wanted = vxlan_peer(7)
        await dataplane.apply(creates(wanted))
        moved = [
            replace(entry, wanted[entry], FdbEntry("192.0.2.77")),
            replace(pair, wanted[pair], NeighbourEntry("02:00:00:00:00:77")),
        ]
        assert await dataplane.apply(moved) == [None, None]
        found = await dataplane.read()
        assert (found[entry], found[pair]) == (FdbEntry("192.0.2.77"), NeighbourEntry("02:00:00:00:00:77"))

    asyncio.run(scene())


def test_a_restarted_agent_finds_the_same_numbers(site: HostHarness, dataplane: LinuxDataplane) -> None:
    wanted = {**vxlan_peer(7), **vxlan_peer(8)}
    asyncio.run(_apply(dataplane, wanted))
    before = site.ip("nexthop show")

    async def scene(successor: LinuxDataplane) -> None:
        assert await successor.read() == wanted
        assert not any(await successor.apply(creates({**wanted, **vxlan_peer(9)})))

    with site.dataplane() as successor:
        asyncio.run(scene(successor))
    assert set(before.splitlines()) < set(site.ip("nexthop show").splitlines())


def test_refusals_go_to_their_objects_and_the_others_are_made(dataplane: LinuxDataplane) -> None:
    good = vxlan_peer(7)
    bad: dict[ClaimKey, Shape] = {
        route("10.28.0.9/32"): RemoteRoute("10.9.0.9"),
        route("10.28.0.10/32"): LocalRoute("tap9"),
    }

    async def scene() -> None:
        changes = creates({**good, **bad})
        answers = dict(zip([change.key for change in changes], await dataplane.apply(changes), strict=True))
        assert {key for key, answer in answers.items() if answer} == set(bad)
        assert answers[route("10.28.0.9/32")] == "its nexthop is not in the kernel"
        assert answers[route("10.28.0.10/32")] == "interface tap9 does not exist"
        assert await dataplane.read() == good

    asyncio.run(scene())


def test_others_have_their_turns_while_thousands_of_objects_are_read(dataplane: LinuxDataplane) -> None:
    wanted: dict[ClaimKey, Shape] = {device(4): VxlanDevice("02:00:00:00:00:04")}
    for number in range(MANY):
        place, mac = f"{number >> 8}.{number & 255}", f"02:00:00:00:{number >> 8:02x}:{number & 255:02x}"
        wanted[forwarding(4, mac)] = FdbEntry(f"172.16.{place}")
        wanted[neighbour(f"10.9.{place}")] = NeighbourEntry(mac)
        wanted[nexthop(f"10.9.{place}")] = NexthopEntry(Mode.VXLAN)
        wanted[route(f"10.28.{place}/32")] = RemoteRoute(f"10.9.{place}")

    async def scene() -> None:
        await _apply(dataplane, wanted)
        async with turns_of_others() as turns:
            assert await dataplane.read() == wanted
        assert len(turns) >= len(wanted) // 1_000

    asyncio.run(scene())


async def _apply(dataplane: LinuxDataplane, wanted: Mapping[ClaimKey, Shape]) -> None:
    assert not any(await dataplane.apply(creates(wanted)))
