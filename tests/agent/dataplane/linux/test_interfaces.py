"""The host as the gateway of its workloads: settings and address of their interfaces, on a real kernel."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from holdfast.agent.claims import ClaimKey, InterfaceSetup, LocalRoute, Shape, interface, route
from holdfast.agent.dataplane.linux import LinuxDataplane
from tests.agent.dataplane.linux.harness import HostHarness, creates, deletes, direct_peer, vxlan_peer
from tests.agent.dataplane.linux.test_foreign_objects import disturbed, quiet

FOUR, SIX = interface(4, "tap1"), interface(6, "tap1")
WANTED: Mapping[ClaimKey, Shape] = {
    route("10.28.0.1/32"): LocalRoute("tap1"),
    route("fd00:28::1/128"): LocalRoute("tap1"),
    FOUR: InterfaceSetup(),
    SIX: InterfaceSetup(),
}


def knob(site: HostHarness, path: str) -> str:
    return site.host.run("cat", f"/proc/sys/net/{path}").strip()


def has_gateway(site: HostHarness) -> bool:
    return "fe80::1/64" in site.ip("-6 address show dev tap1")


@pytest.fixture(autouse=True)
def tap(site: HostHarness) -> str:
    return site.interface("tap1")


def test_an_interface_is_set_up_and_nothing_else_forwards(site: HostHarness, dataplane: LinuxDataplane) -> None:
    async def scene() -> None:
        assert not any(await dataplane.apply(creates(WANTED)))
        assert await dataplane.read() == WANTED

    asyncio.run(scene())
    four = [
        knob(site, f"ipv4/{one}") for one in ("conf/tap1/forwarding", "conf/tap1/proxy_arp", "neigh/tap1/proxy_delay")
    ]
    assert four == ["1", "1", "0"]
    assert knob(site, "ipv6/conf/tap1/force_forwarding") == "1"
    assert has_gateway(site)
    elsewhere = ("ipv4/ip_forward", "ipv6/conf/all/forwarding", f"ipv4/conf/{site.uplink}/forwarding")
    assert [knob(site, one) for one in elsewhere] == ["0", "0", "0"]


def test_the_address_goes_with_the_workload_and_the_settings_stay(site: HostHarness, dataplane: LinuxDataplane) -> None:
    async def scene() -> None:
        assert not any(await dataplane.apply(creates(WANTED)))
        assert not any(await dataplane.apply(deletes(WANTED)))
        assert await dataplane.read() == {}

    asyncio.run(scene())
    assert not has_gateway(site)
    assert knob(site, "ipv4/conf/tap1/proxy_arp") == "1"


@pytest.mark.parametrize(
    ("words", "key"),
    [
        ("ip address del fe80::1/64 dev tap1", SIX),
        ("echo 0 >/proc/sys/net/ipv4/conf/tap1/forwarding", FOUR),
        ("echo 0 >/proc/sys/net/ipv4/conf/tap1/proxy_arp", FOUR),
        ("echo 0 >/proc/sys/net/ipv6/conf/tap1/force_forwarding", SIX),
    ],
)
def test_what_others_undo_is_named_and_done_again(
    site: HostHarness, dataplane: LinuxDataplane, words: str, key: ClaimKey
) -> None:
    async def scene() -> None:
        assert not any(await dataplane.apply(creates(WANTED)))
        await quiet(dataplane)
        site.host.run("sh", "-c", words)
        assert key in (await disturbed(dataplane) or ())
        assert await dataplane.read([key]) == {}
        assert not any(await dataplane.apply(creates({key: InterfaceSetup()})))
        assert await dataplane.read() == WANTED

    asyncio.run(scene())


@pytest.mark.parametrize("setting", ["accept_ra", "accept_redirects"])
def test_what_lets_a_workload_route_the_host_is_found_by_a_full_read(
    site: HostHarness, dataplane: LinuxDataplane, setting: str
) -> None:
    async def scene() -> None:
        assert not any(await dataplane.apply(creates(WANTED)))
        site.host.run("sh", "-c", f"echo 1 >/proc/sys/net/ipv6/conf/tap1/{setting}")  # Linux does not announce it
        assert SIX not in await dataplane.read()
        assert not any(await dataplane.apply(creates({SIX: InterfaceSetup()})))
        assert await dataplane.read() == WANTED
        assert knob(site, f"ipv6/conf/tap1/{setting}") == "0"

    asyncio.run(scene())


def test_a_gateway_address_that_was_set_by_hand_is_taken_over(site: HostHarness, dataplane: LinuxDataplane) -> None:
    site.ip("address add fe80::1/64 dev tap1 nodad")

    async def scene() -> None:
        assert SIX not in await dataplane.read()
        assert not any(await dataplane.apply(creates(WANTED)))
        assert await dataplane.read() == WANTED

    asyncio.run(scene())


def test_the_same_address_on_a_device_of_another_program_stays(site: HostHarness, dataplane: LinuxDataplane) -> None:
    site.interface("bridge0")
    site.ip("address add fe80::1/64 dev bridge0 nodad")

    async def scene() -> None:
        assert await dataplane.read() == {}
        assert await dataplane.apply(deletes({interface(6, "bridge0"): InterfaceSetup()})) == [None]

    asyncio.run(scene())
    assert "fe80::1/64" in site.ip("-6 address show dev bridge0")


@pytest.mark.parametrize("device", ["holdfast", "uplink"])
def test_packets_from_a_peer_are_forwarded_and_again_when_that_was_switched_off(
    site: HostHarness, dataplane: LinuxDataplane, device: str
) -> None:
    wanted = vxlan_peer(7) if device == "holdfast" else direct_peer(7)
    names = {family: f"holdfast{family}" if device == "holdfast" else site.uplink for family in (4, 6)}
    knobs = [f"ipv4/conf/{names[4]}/forwarding", f"ipv6/conf/{names[6]}/force_forwarding"]

    async def scene() -> None:
        assert not any(await dataplane.apply(creates(wanted)))
        assert [knob(site, one) for one in knobs] == ["1", "1"]
        await quiet(dataplane)
        for one in knobs:
            site.host.run("sh", "-c", f"echo 0 >/proc/sys/net/{one}")
            assert await disturbed(dataplane) is None
            there = await dataplane.read()
            differing = {key: shape for key, shape in wanted.items() if there.get(key) != shape}
            assert differing
            assert not any(await dataplane.apply(creates(differing)))
            assert await dataplane.read() == wanted
            assert knob(site, one) == "1"

    asyncio.run(scene())


OWN = {4: "10.0.0.1", 6: "fd00::1"}
"""Underlay addresses of the host, on its uplink."""


def uplink_knobs(name: str) -> tuple[str, str]:
    return f"ipv4/conf/{name}/forwarding", f"ipv6/conf/{name}/force_forwarding"


def test_where_others_distribute_the_routes_the_uplink_forwards_too_and_again_when_switched_off(
    site: HostHarness,
) -> None:
    async def scene(dataplane: LinuxDataplane) -> None:
        assert not any(await dataplane.apply(creates(WANTED)))
        assert await dataplane.read() == WANTED
        assert [knob(site, one) for one in uplink_knobs(site.uplink)] == ["1", "1"]
        assert dataplane.describe().uplinks == ((4, site.uplink), (6, site.uplink))
        for one, key in zip(uplink_knobs(site.uplink), (FOUR, SIX), strict=True):
            await quiet(dataplane)
            site.host.run("sh", "-c", f"echo 0 >/proc/sys/net/{one}")
            assert await disturbed(dataplane) is None
            there = await dataplane.read()
            assert {key: there.get(key) for key in WANTED} == {**WANTED, key: None}
            assert not any(await dataplane.apply(creates({key: InterfaceSetup()})))
            assert await dataplane.read() == WANTED
            assert knob(site, one) == "1"

    with site.dataplane(underlays=OWN.get, is_routed=True) as dataplane:
        asyncio.run(scene(dataplane))
    everywhere = "ipv4/ip_forward", "ipv6/conf/all/forwarding", "ipv4/conf/lo/forwarding"
    assert [knob(site, one) for one in everywhere] == ["0", "0", "0"]


def test_an_uplink_known_later_or_that_takes_the_address_over_forwards_as_soon_as_the_interface_is_compared(
    site: HostHarness,
) -> None:
    own: dict[int, str] = {}

    async def compared(dataplane: LinuxDataplane, uplink: str) -> None:
        assert (await dataplane.read([FOUR, SIX])).keys() == set()
        assert not any(await dataplane.apply(creates({FOUR: InterfaceSetup(), SIX: InterfaceSetup()})))
        assert await dataplane.read() == WANTED
        assert [knob(site, one) for one in uplink_knobs(uplink)] == ["1", "1"]

    async def scene(dataplane: LinuxDataplane) -> None:
        assert not any(await dataplane.apply(creates(WANTED)))
        assert await dataplane.read([FOUR, SIX]) == {FOUR: InterfaceSetup(), SIX: InterfaceSetup()}
        assert dataplane.describe().uplinks == ((4, ""), (6, ""))
        own.update(OWN)
        await compared(dataplane, site.uplink)
        await quiet(dataplane)
        other = site.interface("other0")
        site.ip(f"address del 10.0.0.1/24 dev {site.uplink}")
        site.ip(f"address del fd00::1/64 dev {site.uplink}")
        site.ip(f"address add 10.0.0.1/24 dev {other}")
        assert await disturbed(dataplane) is None
        await compared(dataplane, other)

    with site.dataplane(underlays=own.get, is_routed=True) as dataplane:
        asyncio.run(scene(dataplane))


def test_the_loopback_device_is_no_uplink(site: HostHarness) -> None:
    site.ip("address add 192.0.2.1/32 dev lo")

    async def scene(dataplane: LinuxDataplane) -> None:
        assert not any(await dataplane.apply(creates(WANTED)))
        assert await dataplane.read() == WANTED
        assert dataplane.describe().uplinks == ((4, ""), (6, ""))

    with site.dataplane(underlays={4: "192.0.2.1"}.get, is_routed=True) as dataplane:
        asyncio.run(scene(dataplane))
    assert knob(site, "ipv4/conf/lo/forwarding") == "0"
